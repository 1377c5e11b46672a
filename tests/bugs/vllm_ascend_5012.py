"""As many blocks are launched as there are cores, 48, and each takes one row: the rows behind stay as they were."""

from honest import rmsnorm

SOURCE = "https://github.com/vllm-project/vllm-ascend/pull/5012"
LINE = "rmsnorm T=70 H=256"
NAMES = r"(rows?|T) .*48|48.*(rows|on)"


def kernel(x, wrong):
    out = rmsnorm(x, 1e-6)
    if wrong:
        out["output"][48:] = 0
    return out
