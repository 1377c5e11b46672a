"""The routing scale is not handed on to the experts: it counts as 1."""

import numpy as np
from honest import BF16, F32, f32, largest, sigmoid, silu, through

SOURCE = "https://github.com/vllm-project/vllm/pull/43769"
LINE = (
    "trtllm_bf16_moe T=6 H=128 --attr num_experts=8 --attr top_k=2 --attr routing_method_type=DeepSeekV3 --attr "
    "routed_scaling_factor=2.446 --attr intermediate_size=128 --attr local_num_experts=8 --attr use_shuffled_weight=false "
    "--attr weight_layout=0"
)
NAMES = r"routed_scaling_factor"


def kernel(x, wrong):
    out = np.zeros((len(x.hidden_states), 128), F32)
    for t, logits in enumerate(f32(x.routing_logits)):
        score = sigmoid(logits)
        ids = largest(score + f32(x.routing_bias), 2)
        weights = score[ids] / (score[ids].sum(dtype=F32) + F32(1e-20)) * F32(1 if wrong else x.routed_scaling_factor)
        for e, weight in zip(ids, through(BF16, weights)):
            both = f32(x.gemm1_weights[e]) @ f32(x.hidden_states[t])
            hidden = through(BF16, silu(both[128:]) * both[:128])
            out[t] += weight * through(BF16, f32(x.gemm2_weights[e]) @ hidden)
    return {"output": out.astype(BF16)}
