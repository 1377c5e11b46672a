"""Pages are taken to hold heads of slots where they hold slots of heads."""

import numpy as np

SOURCE = "https://github.com/LMCache/LMCache/pull/2403"
LINE = "transfer_kv_per_layer_ph_lf n=9 pages=3 Sd=14 L=3 D=64 --attr layer_id=1 --attr page_size=4 --attr head_num=2"
NAMES = r"(src_k|src_v|operands?).*(head|slot|page|order)"


def kernel(x, wrong):
    def moved(source, target):
        source = source.reshape(3, 4, 2, 3, 64) if wrong else source.transpose(0, 2, 1, 3, 4)
        target = target.copy()
        rows = target.reshape(14, 2, 64)
        for i, o in zip(x.src_indices, x.dst_indices):
            rows[o] = source[i // 4, i % 4, :, 1]
        return target

    return {"dst_k": moved(x.src_k, x.dst_k), "dst_v": moved(x.src_v, x.dst_v)}
