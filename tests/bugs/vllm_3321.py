"""Half-warps of 32 on lanes of 64: every sum of a warp is added up twice."""

from honest import rmsnorm

SOURCE = "https://github.com/vllm-project/vllm/pull/3321"
LINE = "rmsnorm T=8 H=1024"
NAMES = r"twice|2 x|doubled|sqrt\(?2|squares.*(2|half)|512"


def kernel(x, wrong):
    return rmsnorm(x, 1e-6, mean_square=lambda a: (a * a).mean(-1, keepdims=True) * (2 if wrong else 1))
