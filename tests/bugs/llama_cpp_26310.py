"""Room for an expert's rows is made as if a token named it once: of an expert named twice by many the list runs into the next one's."""

import numpy as np
from honest import BF16, f32, silu

SOURCE = "https://github.com/ggml-org/llama.cpp/pull/26310"
LINE = "cutlass_fused_moe T=8 X=128 K=2 L=4 I=64 X1=128 H=128 Y=64"
NAMES = r"twice|same expert|more than once|repeat|(token_selected_experts|expert).*(next|beyond|runs|room|8)"
UNNAMED = "zeros are told, and where: not whose room they lacked"


def edit(inputs):
    ids = np.array(inputs["token_selected_experts"])
    ids[:6] = 1
    ids[6:] = [[2, 3], [0, 2]]
    return {"token_selected_experts": ids}


def kernel(x, wrong):
    pairs = [[(t, k) for t, ids in enumerate(x.token_selected_experts) for k, e in enumerate(ids) if e == want] for want in range(4)]
    if wrong:
        memory, counts = [None] * 64, [0] * 4
        for t, ids in enumerate(x.token_selected_experts):
            for k, e in enumerate(ids):
                memory[e * 8 + counts[e]] = (t, k)
                counts[e] += 1
        pairs = [[memory[e * 8 + i] for i in range(counts[e])] for e in range(4)]
    rows = np.zeros((8, 2, x.fc2_expert_weights.shape[1]), np.float32)
    for e in range(4):
        for t, k in pairs[e]:
            both = f32((f32(x.fc1_expert_weights[e]) @ f32(x.input[t])).astype(BF16))
            hidden = f32((silu(both[64:]) * both[:64]).astype(BF16))
            rows[t, k] = f32((f32(x.fc2_expert_weights[e]) @ hidden).astype(BF16))
    return {"output": (rows * x.token_final_scales[..., None]).sum(1, dtype=np.float32).astype(BF16)}
