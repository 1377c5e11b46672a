"""The normalized row is not rounded before the weight multiplies it."""

from honest import BF16, f32, rmsnorm, through
import numpy as np

SOURCE = "https://github.com/vllm-project/vllm/pull/42379"
LINE = "rmsnorm T=5 H=1536 --attr kernel=vllm --attr weight_order=rounded"
NAMES = r"weight_order|not rounded|round"


def kernel(x, wrong):
    if wrong:
        return rmsnorm(x, x.eps if hasattr(x, "eps") else 1e-6)
    a = f32(x.input)
    scale = np.float32(1) / np.sqrt((a * a).mean(-1, keepdims=True, dtype=np.float32) + np.float32(getattr(x, "eps", 1e-6)))
    return {"output": (through(BF16, a * scale) * f32(x.weight)).astype(BF16)}
