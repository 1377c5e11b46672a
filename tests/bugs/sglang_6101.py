"""Parts of the keys are merged by log-sum-exps made without their maximum, which overflow where scores are large."""

import numpy as np
from honest import scores_of_mla

SOURCE = "https://github.com/sgl-project/sglang/pull/6101"
LINE = "cutlass_mla_decode B=3 N=2 pages=12 P=32 W=4 --attr sm_scale=3"
NAMES = r"maximum|overflow"


def kernel(x, wrong):
    out = np.zeros(x.q_nope.shape, x.q_nope.dtype)
    for b, keys, scores in scores_of_mla(x):
        values, sums = [], []
        for part in np.array_split(np.arange(len(keys)), 2):
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
