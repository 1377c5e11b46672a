"""Two pages are loaded at once from where the first of them lies, as if the second followed it in the cache."""

import numpy as np
from honest import BF16, scores_of_mla, softmax_rows, with_lines

SOURCE = "https://github.com/hw-native-sys/pypto/pull/470"
LINE = "cutlass_mla_decode B=4 N=16 pages=24 P=16 W=8 --attr sm_scale=0.0721687836"
NAMES = r"page_table.*(consecutive|one behind the one before|follow|adjacent|contiguous|pairs|neighbour|every second)"


def kernel(x, wrong):
    if wrong:
        table = x.page_table.copy()
        table[:, 1::2] = (table[:, 0::2] + 1) % len(x.kv_c_and_k_pe_cache)
        x = with_lines(x, page_table=table)
    out = np.zeros(x.q_nope.shape, BF16)
    for b, keys, scores in scores_of_mla(x):
        weights, total, _ = softmax_rows(scores)
        out[b] = (weights @ keys[:, :512] / total).astype(BF16)
    return {"out": out}
