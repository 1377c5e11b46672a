"""Half of the threads that a block of 256 keys needs are launched: the second half of its scores is never written."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/deepseek-ai/DeepGEMM/pull/229"
LINE = "fp8_mqa_logits M=6 H=32 D=64 N=700 --attr clean_logits=false"
NAMES = r"every 256|of each 256"


def kernel(x, wrong):
    logits = np.zeros((len(x.q), len(x.kv)), np.float32)
    for m in range(len(x.q)):
        scores = np.maximum(f32(x.q[m]) @ f32(x.kv).T, 0)
        logits[m] = x.weights[m].astype(np.float32) @ scores * x.kv_sf
    if wrong:
        logits[:, np.arange(len(x.kv)) % 256 >= 128] = 0
    return {"logits": logits}
