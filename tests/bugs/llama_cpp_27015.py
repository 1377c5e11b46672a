"""Ids of a token are taken to differ: of an expert that it names twice only one slot is computed."""

import numpy as np
from honest import fused_experts, silu, with_lines

SOURCE = "https://github.com/ggml-org/llama.cpp/issues/27015"
LINE = "cutlass_fused_moe T=12 X=64 K=4 L=8 I=32 X1=64 H=64 Y=32"
NAMES = r"twice|duplicate|repeated|same expert"


def edit(inputs):
    ids = np.array(inputs["token_selected_experts"])
    ids[::2, 3] = ids[::2, 1]
    return {"token_selected_experts": ids}


def kernel(x, wrong):
    scales = np.array(x.token_final_scales)
    if wrong:
        for t, ids in enumerate(x.token_selected_experts):
            for k in range(4):
                if ids[k] in ids[:k]:
                    scales[t, k] = 0
    return fused_experts(with_lines(x, token_final_scales=scales), lambda gate, up, e: silu(gate) * up)
