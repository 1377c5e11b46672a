"""A block of heads is as high as a value is wide, and sums are divided by the wrong one of the two: column j by the sum of head j."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/XPU-Forces/mojo_opset/pull/395"
LINE = "decode_attention_fwd B=2 N=64 Nk=1 S=60 n=50 D=64 --attr v_head_dim=64 --attr sm_scale=0.125"
NAMES = r"(sum|divi).*(column|other head|transposed|wrong|another)"
UNNAMED = "sums of other heads, by columns, are no factor of a row"


def kernel(x, wrong):
    out = np.zeros((2, 64, 64), x.q.dtype)
    for b in range(2):
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        weights, total, _ = softmax_rows(f32(x.q[b]) @ f32(x.k_buffer[slots, 0]).T * np.float32(0.125))
        out[b] = (weights @ f32(x.v_buffer[slots, 0]) / (total.T if wrong else total)).astype(out.dtype)
    return {"o": out}
