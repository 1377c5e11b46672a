"""Parts write their log-sum-exps at other strides than the merge reads them with: heads are weighted with others' parts."""

import numpy as np
from honest import scores_of_mla

SOURCE = "https://github.com/Dao-AILab/flash-attention/pull/2388"
LINE = "cutlass_mla_decode B=3 N=8 pages=12 P=32 W=4 --attr sm_scale=0.1352337788608801"
NAMES = r"parts|splits"

UNNAMED = "how parts lie in a kernel's workspace nobody else knows"


def kernel(x, wrong):
    out = np.zeros(x.q_nope.shape, x.q_nope.dtype)
    for b, keys, scores in scores_of_mla(x):
        halves = [part for part in np.array_split(np.arange(len(keys)), 2) if len(part)]
        most = [scores[:, part].max(-1) for part in halves]
        weights = [np.exp(scores[:, part] - m[:, None]) for part, m in zip(halves, most)]
        values = np.stack([w @ keys[part, :512] / w.sum(-1, keepdims=True) for w, part in zip(weights, halves)])
        lse = np.stack([m + np.log(w.sum(-1)) for w, m in zip(weights, most)])
        if wrong:
            lse = np.ascontiguousarray(lse).reshape(lse.shape[::-1]).T
        shares = np.exp(lse - lse.max(0))
        out[b] = ((shares / shares.sum(0))[..., None] * values).sum(0).astype(out.dtype)
    return {"out": out}
