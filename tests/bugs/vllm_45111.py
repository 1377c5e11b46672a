"""Pages are taken to lie as close as their own tokens fill them, though other layers' pages lie between."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/vllm-project/vllm/pull/45111"
LINE = "decode_attention_fwd B=3 N=4 Nk=1 S=40 n=60 D=576 --attr v_is_slice_of_k=true --attr sm_scale=0.05 --without v_buffer"
NAMES = r"k_buffer.*(packed|stride|apart)"


def edit(inputs):
    wide = np.zeros((40, 2, 576), np.asarray(inputs["k_buffer"]).dtype)
    wide[:, :1] = np.asarray(inputs["k_buffer"])
    wide[:, 1:] = np.asarray(inputs["k_buffer"])[::-1]
    return {"k_buffer": wide[:, :1]}


def kernel(x, wrong):
    pool = x.k_buffer
    if wrong:
        pool = np.lib.stride_tricks.as_strided(pool, pool.shape, np.empty(pool.shape, pool.dtype).strides)
    out = np.zeros((*x.q.shape[:2], 512), x.q.dtype)
    for b in range(len(x.q)):
        keys = f32(pool[x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]], 0])
        weights, total, _ = softmax_rows(f32(x.q[b]) @ keys.T * np.float32(x.sm_scale))
        out[b] = (weights @ keys[:, :512] / total).astype(out.dtype)
    return {"o": out}
