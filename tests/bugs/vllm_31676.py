"""The bias is added to the sums before they are multiplied with the scales of the codes."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/vllm-project/vllm/pull/31676"
LINE = (
    "fused_moe_kernel M=5 topk=2 K=512 E=4 N=64 Sa=10 Ka=1 Sn=64 Kg=1 EM=256 NB=16 --attr per_channel_quant=true --with bias --dtype A=i8 --dtype B=i8"
    " --attr use_int8_w8a8=true"
)
NAMES = r"bias.*(scale|before|factor)"

UNNAMED = "a bias that its scale makes nearly nothing looks like none"


def edit(inputs):  # scales as small as those of weights are
    return {"A_scale": f32(inputs["A_scale"]) * np.float32(1e-3), "B_scale": f32(inputs["B_scale"]) * np.float32(1e-2)}


def kernel(x, wrong):
    out = np.zeros((*x.topk_ids.shape, x.B.shape[1]), BF16)
    pairs = x.topk_ids.shape[1]
    for block, e in enumerate(x.expert_ids[: int(x.num_tokens_post_padded[0]) // 16]):
        for pair in x.sorted_token_ids[block * 16 : block * 16 + 16]:
            if pair >= x.topk_ids.size or e < 0:
                continue
            sums = f32(x.B[e].astype(np.int64) @ x.A[pair].astype(np.int64))
            scale = f32(x.A_scale).reshape(-1)[pair] * f32(x.B_scale)[e].reshape(-1)
            out[pair // pairs, pair % pairs] = ((sums + f32(x.bias)[e]) * scale if wrong else sums * scale + f32(x.bias)[e]).astype(BF16)
    return {"C": out}
