"""The unrounded sum with the residual is normalized, where the model normalizes what was stored."""

from honest import BF16, fused_add_rmsnorm, through

SOURCE = "https://github.com/vllm-project/vllm-omni/pull/6878"
LINE = "fused_add_rmsnorm T=16 H=512 --attr normalize=rounded"
NAMES = r"normalize=unrounded"


def kernel(x, wrong):
    return fused_add_rmsnorm(x, before=lambda s: s if wrong else through(BF16, s))
