"""A scale has no least value of its own, as version 2 has none: groups that are all zeros get 2^-42 where 2^-33 is due."""

import numpy as np
from honest import e4m3, f32

SOURCE = "https://github.com/vllm-project/vllm/pull/53346"
LINE = "sgl_per_token_group_quant_8bit M=24 K=1024 --attr scale_ue8m0=true --dtype output_s=i32 --special zero-groups"
NAMES = r"enable_v2=true|zeros"


def kernel(x, wrong):
    groups = f32(x.input).reshape(len(x.input), -1, 128)
    scale = np.maximum(np.abs(groups).max(-1), np.float32(1e-10)) * np.float32(1 / 448)
    power = np.ceil(np.log2((scale if wrong else np.maximum(scale, np.float32(1e-10))).astype(np.float64)))
    words = (power + 127).astype(np.uint8).view(np.uint32).view(np.int32)
    return {"output_q": e4m3(groups * np.exp2(-power)[..., None].astype(np.float32)).reshape(x.input.shape), "output_s": words}
