"""K is walked in steps of 64 and the step's number looks for the scales, both operands': they belong to 128, and half of K has those of groups behind it."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/tile-ai/TileOPs/pull/1666"
LINE = "fp8_gemm_nt M=16 N=32 K=512"
NAMES = r"(twice|64|2 i|i / 64|half as|i \* 2).*"
UNNAMED = "halves of a block with scales of two others are no call of the op"


def kernel(x, wrong):
    step, per = 64, 1 if wrong else 2
    total = np.zeros((len(x.a), len(x.b)), np.float32)

    def scales(t, i):  # what lies behind a row is the next one's, and zeros lie behind the last
        flat = np.concatenate([np.ascontiguousarray(f32(t)).reshape(-1), np.zeros(64, np.float32)])
        return flat[np.arange(len(t)) * t.shape[1] + i // per]

    for i in range(x.a.shape[1] // step):
        part = f32(x.a[:, i * step : (i + 1) * step]) @ f32(x.b[:, i * step : (i + 1) * step]).T
        total += part * scales(x.sfa, i)[:, None] * np.repeat(scales(x.sfb, i), 128)[: len(x.b)][None]
    return {"d": total.astype(BF16)}
