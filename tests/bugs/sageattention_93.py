"""The sums of weighted values are kept in fp16, rounded when each tile of keys is added."""

import numpy as np
from honest import f32, scores_of_mla

SOURCE = "https://github.com/thu-ml/SageAttention/issues/93"
LINE = "cutlass_mla_decode B=3 N=8 pages=24 P=32 W=8 --attr sm_scale=0.01"
NAMES = r"sums of weighted values are kept in f16|overflow"


def edit(inputs):
    cache = f32(inputs["kv_c_and_k_pe_cache"])
    return {
        "kv_c_and_k_pe_cache": (cache * np.float32(400) + np.float32(2000)).astype(inputs["kv_c_and_k_pe_cache"].dtype),
        **{name: (f32(inputs[name]) / np.float32(400)).astype(inputs[name].dtype) for name in ("q_nope", "q_pe")},
    }


def kernel(x, wrong):
    out = np.zeros(x.q_nope.shape, x.q_nope.dtype)
    for b, keys, scores in scores_of_mla(x):
        most = np.full((len(scores), 1), -np.inf, np.float32)
        total, acc = np.zeros_like(most), np.zeros((len(scores), 512), np.float32)
        for first in range(0, len(keys), 64):
            part = scores[:, first : first + 64]
            now = np.maximum(most, part.max(-1, keepdims=True))
            weights, rescale = np.exp(part - now), np.exp(most - now)
            total = total * rescale + weights.sum(-1, keepdims=True)
            acc = acc * rescale + weights @ keys[first : first + 64, :512]
            if wrong:
                with np.errstate(all="ignore"):
                    acc = f32(acc.astype(np.float16))
            most = now
        out[b] = (acc / total).astype(out.dtype)
    return {"out": out}
