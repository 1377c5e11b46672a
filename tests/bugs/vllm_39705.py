"""A tile of K spans two groups, and takes scales and zero points of its first one for both."""

import numpy as np
from gptqmodel_2351 import nibbles
from honest import f32

SOURCE = "https://github.com/vllm-project/vllm/pull/39705"
LINE = "awq_dequantize K=128 N=64 G=4"
NAMES = r"(scales|qzeros|group).*(first|every|two|pair|tile|64|other|before)"


def kernel(x, wrong):
    group = np.arange(128) // 32
    group = group // 2 * 2 if wrong else group
    return {"out": (f32(nibbles(x.qweight) - nibbles(x.qzeros)[group]) * f32(x.scales[group])).astype(x.scales.dtype)}
