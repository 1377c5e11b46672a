"""Zero points are taken for the older format's, which stored one less: 1 is added to each."""

import numpy as np
from gptqmodel_2351 import nibbles
from honest import f32

SOURCE = "https://github.com/vllm-project/vllm/pull/38966"
LINE = "awq_dequantize K=96 N=64 G=3"
NAMES = r"qzeros.*(one|1 more|off by)|zero points?.*(one|\+ ?1|1 )"


def kernel(x, wrong):
    group = np.arange(96) // 32
    codes, zeros = nibbles(x.qweight), nibbles(x.qzeros) + wrong
    return {"out": (f32(codes - zeros[group]) * f32(x.scales[group])).astype(x.scales.dtype)}
