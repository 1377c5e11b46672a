"""A row's own bound is looked for at the output's number, not at the row that it draws from."""

import numpy as np
from honest import philox_uniform

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/5340"
LINE = "top_p_sampling_from_probs B=9 U=12 V=500 --with indices --with top_p --attr philox_seed=77"
NAMES = r"top_p.*(indices|output|its own row|in turn)"


def kernel(x, wrong):
    samples = np.zeros(len(x.indices), np.int32)
    for b, u in enumerate(x.indices):
        row, bound = x.probs[u].astype(np.float64), float(x.top_p[b if wrong else u])
        low, high, mass, number = 0.0, 1.0, 1.0, getattr(x, "philox_offset", 0)
        while True:
            share = philox_uniform(x.philox_seed, b, number) * mass
            number += 1
            sums = np.cumsum(np.where(row > low, row, 0))
            token = int(np.argmax(sums > share)) if (sums > share).any() else int(np.flatnonzero(row > low)[-1])
            a, middle = row[token], (row[token] + high) / 2
            if row[row > a].sum() < bound:
                break
            low, high, mass = (a, middle, row[row > a].sum()) if row[row > middle].sum() < bound else (middle, high, row[row > middle].sum())
        samples[b] = token
    return {"samples": samples}
