"""Where a token names an expert twice only one of the two is kept."""

import numpy as np
from honest import fused_experts, silu, with_lines

SOURCE = "https://github.com/ggml-org/llama.cpp/issues/24591"
LINE = "cutlass_fused_moe T=12 X=128 K=3 L=4 I=64 X1=128 H=128 Y=64 --special repeated-ids"
NAMES = r"repeated|twice|duplicate|same expert"


def kernel(x, wrong):
    scales = np.array(x.token_final_scales)
    if wrong:
        for t, ids in enumerate(x.token_selected_experts):
            for k, e in enumerate(ids):
                if e in ids[:k]:
                    scales[t, k] = 0
    return fused_experts(with_lines(x, token_final_scales=scales), lambda gate, up, e: silu(gate) * up)
