"""The loop that is to fill scales up to whole tiles begins where it ends: what lies there is whatever memory held."""

import numpy as np
from honest import E4M3, scaled_fp4_quant

SOURCE = "https://github.com/vllm-project/vllm/pull/27439"
LINE = "scaled_fp4_quant M=9 K=80 --attr padding=zeros"
NAMES = r"padding|filled up|fill"
UNNAMED = "what padding is filled with is whatever memory held"


def kernel(x, wrong):
    out = scaled_fp4_quant(x)
    if wrong:
        marked = scaled_fp4_quant(x, scales=lambda s: np.ones_like(s))["output_scale"].astype(np.float32) == 1
        stale = np.random.default_rng(7).integers(0, 127, out["output_scale"].shape).astype(np.uint8).view(E4M3)
        out["output_scale"] = np.where(marked, out["output_scale"], stale)
    return out
