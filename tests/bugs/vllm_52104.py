"""The sum with the residual is rounded before it is normalized, where the contract normalizes the unrounded sum."""

from honest import BF16, fused_add_rmsnorm, through

SOURCE = "https://github.com/vllm-project/vllm/issues/52104"
LINE = "fused_add_rmsnorm T=16 H=512"
NAMES = r"normalize=rounded"


def kernel(x, wrong):
    return fused_add_rmsnorm(x, before=lambda s: through(BF16, s) if wrong else s)
