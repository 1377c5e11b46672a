"""Four codes are made signed by one subtraction of 32 bits: a negative one borrows from the byte above it, whose code is one less."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/gittensor-ai-lab/sparkinfer/pull/761"
LINE = "cutlass_w4a8_moe_mm M=13 N=40 K=256 E=2 G=2"
NAMES = r"borrow|byte|one less"


def edit(inputs):  # the packer clamps to -7..7
    packed = inputs["b"].view(np.uint8)
    low, high = packed & 15, packed >> 4
    return {"b": (np.where(low == 8, 9, low) | np.where(high == 8, 9, high) << 4).astype(np.uint8).view(inputs["b"].dtype)}


def signed(nibbles, wrong):
    if wrong:
        words = np.ascontiguousarray(nibbles).view(np.uint32)
        return ((words ^ np.uint32(0x08080808)) - np.uint32(0x08080808)).view(np.int8)
    return (nibbles.astype(np.int8) ^ 8) - 8


def kernel(x, wrong):
    packed = x.b.view(np.uint8)
    codes = np.stack([signed(packed & 15, wrong), signed(packed >> 4, wrong)], -1).reshape(*x.b.shape[:2], -1)
    ends = [*x.experts_offsets[1:], len(x.a)]
    out = np.zeros((len(x.a), x.b.shape[1]), np.float32)
    for e, (begin, end) in enumerate(zip(x.experts_offsets, ends)):
        for g in range(2):
            part = slice(g * 128, g * 128 + 128)
            out[begin:end] += f32(x.a[begin:end, part]) @ f32(codes[e, :, part]).T * f32(x.b_scales[e]).reshape(2, -1)[g]
    return {"d": (out * x.a_scales[0]).astype(BF16)}
