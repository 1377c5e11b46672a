"""Slots of a cache that is a slice of a wider one are taken for packed ones when they are written."""

import numpy as np

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/527"
LINE = "transfer_kv_per_layer n=9 Ss=24 Sd=16 D=32"
NAMES = r"src_k.*src_v.*(packed|stride|apart)|(packed|stride|apart).*src"


def edit(inputs):
    wide = lambda t: np.concatenate([t, t[::-1]], 1)[:, :32]
    return {"src_k": wide(np.asarray(inputs["src_k"])), "src_v": wide(np.asarray(inputs["src_v"]))}


def kernel(x, wrong):
    def moved(source, to):
        source, to = np.asarray(source), np.array(to)
        if wrong:
            source = np.lib.stride_tricks.as_strided(source, source.shape, (32 * source.itemsize, source.itemsize))
        to[x.dst_indices] = source[x.src_indices]
        return to

    return {"dst_k": moved(x.src_k, x.dst_k), "dst_v": moved(x.src_v, x.dst_v)}
