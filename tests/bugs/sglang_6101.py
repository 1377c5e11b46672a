"""Parts of the keys are merged by log-sum-exps made without their maximum, which overflow where scores are large."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/sgl-project/sglang/pull/6101"
LINE = "cutlass_mla_decode B=3 N=2 pages=12 P=32 W=4 --attr sm_scale=3"
NAMES = r"maximum|overflow"


def kernel(x, wrong):
    page = x.kv_c_and_k_pe_cache.shape[1]
    cache = f32(x.kv_c_and_k_pe_cache).reshape(-1, 576)
    out = np.zeros(x.q_nope.shape, x.q_nope.dtype)
    for b, n in enumerate(x.seq_lens):
        keys = cache[[x.page_table[b][t // page] * page + t % page for t in range(n)]]
        scores = np.concatenate([f32(x.q_nope[b]), f32(x.q_pe[b])], -1) @ keys.T * np.float32(x.sm_scale)
        values, sums = [], []
        for part in np.array_split(np.arange(n), 2):
            if len(part) == 0:
                continue
            most = scores[:, part].max(-1, keepdims=True)
            weights = np.exp(scores[:, part] - most)
            values.append(weights @ keys[part, :512] / weights.sum(-1, keepdims=True))
            with np.errstate(all="ignore"):
                sums.append(np.log(np.exp(scores[:, part]).sum(-1)) if wrong else most[:, 0] + np.log(weights.sum(-1)))
        with np.errstate(all="ignore"):
            shares = np.exp(np.array(sums) - np.max(sums, 0))
            shares = shares / shares.sum(0)
        out[b] = sum(v * s[:, None] for v, s in zip(values, shares)).astype(out.dtype)
    return {"out": out}
