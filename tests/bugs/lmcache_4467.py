"""Keys and values of one head are taken for two heads that lie side by side: the source's heads alternate, and the second half of keys is what lies in the values' place."""

import numpy as np

SOURCE = "https://github.com/LMCache/LMCache/pull/4467"
LINE = "transfer_kv_per_layer n=7 Ss=12 Sd=9 H=2 D=64"
NAMES = r"(src_k|dst_k).*(src_v|dst_v|heads?|values)|(heads?).*(exchanged|another|turned)"


def kernel(x, wrong):
    k, v = np.asarray(x.src_k)[x.src_indices], np.asarray(x.src_v)[x.src_indices]
    if wrong:
        k, v = np.stack([k[:, 0], v[:, 0]], 1), np.stack([k[:, 1], v[:, 1]], 1)
    out_k, out_v = np.array(x.dst_k), np.array(x.dst_v)
    out_k[x.dst_indices], out_v[x.dst_indices] = k, v
    return {"dst_k": out_k, "dst_v": out_v}
