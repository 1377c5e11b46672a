"""A scan's blocks do not hand their sums on: from the second block on the running sum begins with the first one's alone."""

import numpy as np
from honest import philox_uniform

SOURCE = "https://github.com/ROCm/aiter/pull/2035"
LINE = "min_p_sampling_from_probs B=24 U=24 V=4000 --attr min_p=0.0 --attr philox_seed=1234"
NAMES = r"running sum|scan|block|prefix"

UNNAMED = "how a scan's blocks hand their sums on is its own"


def kernel(x, wrong):
    samples = np.zeros(len(x.probs), np.int32)
    for b, row in enumerate(x.probs.astype(np.float64)):
        kept = np.where(row >= getattr(x, "min_p", 0) * row.max(), row, 0)
        sums = np.cumsum(kept)
        share = float(philox_uniform(x.philox_seed, b, 0)) * sums[-1]
        if wrong:
            first = kept[:1024].sum()
            for c in range(1024, len(row), 1024):
                sums[c : c + 1024] = first + np.cumsum(kept[c : c + 1024])
        above = np.flatnonzero(sums > share)
        samples[b] = above[0] if len(above) else len(row) - 1
    return {"samples": samples}
