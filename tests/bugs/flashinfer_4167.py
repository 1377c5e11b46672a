"""A pair of numbers is rounded to bf16 on its way to e4m3: ties of the first rounding go the wrong way in the second."""

import numpy as np
from honest import E4M3, f32, through
import ml_dtypes

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/4167"
LINE = "mla_rope_quantize_fp8 T=9 N=16 Dr=64 Dn=512 P=128 --attr is_neox=false --attr quant_scale_q=3.7 --attr quant_scale_kv=0.7"
NAMES = r"bf16.*(before|on the way|first|twice)|(twice|double).*bf16"


def kernel(x, wrong):
    half = x.cos_sin_cache.shape[-1] // 2
    table = x.cos_sin_cache[x.pos_ids]

    def codes(t, scale):
        value = f32(t) * np.float32(scale)
        value = through(ml_dtypes.bfloat16, value) if wrong else value
        return np.clip(value, -448, 448).astype(E4M3)

    def rotated(t):
        at = (slice(None), None) if t.ndim == 3 else (slice(None),)
        cos, sin = table[:, :half][at], table[:, half:][at]
        out = f32(t).copy()
        a, b = f32(t)[..., 0::2], f32(t)[..., 1::2]
        out[..., 0::2], out[..., 1::2] = a * cos - b * sin, b * cos + a * sin
        return out

    return {
        "q_rope_out": codes(rotated(x.q_rope), x.quant_scale_q),
        "k_rope_out": codes(rotated(x.k_rope), x.quant_scale_kv),
        "q_nope_out": codes(x.q_nope, x.quant_scale_q),
        "k_nope_out": codes(x.k_nope, x.quant_scale_kv),
    }
