"""The number of experts is taken for that of the choices of a token: experts above are never looked at."""

import numpy as np
from honest import fused_experts, silu, with_lines

SOURCE = "https://github.com/huggingface/transformers/pull/43154"
LINE = "cutlass_fused_moe T=16 X=128 K=3 L=8 I=64 X1=128 H=128 Y=64"
NAMES = r"expert.*(3|from|above|more)|token_selected_experts"


def kernel(x, wrong):
    scales = np.where(np.asarray(x.token_selected_experts) >= 3, np.float32(0), x.token_final_scales) if wrong else x.token_final_scales
    return fused_experts(with_lines(x, token_final_scales=scales), lambda gate, up, e: silu(gate) * up)
