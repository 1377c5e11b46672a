"""Blocks of a cache are walked one after the other with the input's distance between heads, which is less than the cache's."""

import numpy as np

SOURCE = "https://github.com/tenstorrent/tt-metal/issues/54742"
LINE = "transfer_kv_all_layer_lf_ph n=4 Ss=9 pages=3 D=16 --attr num_layers=2 --attr page_size=8 --attr head_num=4"
NAMES = r"head.*(stride|distance|apart|slot|order)|stride|apart"


def edit(inputs):
    return {"dst_indices": np.array([0, 9, 18, 2], np.int64)}


def kernel(x, wrong):
    out = {}
    for side in "kv":
        source, pool = getattr(x, f"src_{side}_layers"), getattr(x, f"dst_{side}").copy()
        pages, heads, slots, layers, width = pool.shape
        rows = pool.reshape(pages * heads * slots, layers, width)
        for s, d in zip(x.src_indices, x.dst_indices):
            for h in range(heads):
                row = d // slots * heads * slots + (h if wrong else h * slots) + d % slots
                rows[row] = source.reshape(layers, -1, heads, width)[:, s, h]
        out[f"dst_{side}"] = pool
    return out
