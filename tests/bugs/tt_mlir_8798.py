"""The sum of squares is taken for their mean: rows are divided by the root of the width too."""

from honest import F32, rmsnorm

SOURCE = "https://github.com/tenstorrent/tt-mlir/pull/8798"
LINE = "rmsnorm T=12 H=768"
NAMES = r"(mean|sum of squares|variance|divided|width|root)"


def kernel(x, wrong):
    squares = lambda a: (a * a).sum(-1, keepdims=True, dtype=F32)
    return rmsnorm(x, 1e-6, mean_square=squares if wrong else lambda a: squares(a) / F32(a.shape[-1]))
