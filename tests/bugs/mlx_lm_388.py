"""What top_k leaves does not add up to one, and top_p is held against it all the same."""

import numpy as np
from honest import philox_uniform

SOURCE = "https://github.com/ml-explore/mlx-lm/pull/388"
LINE = "top_k_top_p_sampling_from_probs B=24 U=24 V=32 --attr top_k=12 --attr top_p=0.6 --attr philox_seed=1234"
NAMES = r"renormal|top_p|divided by (its|their) sum|add up to"
UNNAMED = "one filter's numbers that the next takes as they are change one choice"


def edit(inputs):
    shares = np.random.default_rng(5).gamma(2.0, size=(24, 32))
    return {"probs": (shares / shares.sum(-1, keepdims=True)).astype(np.float32)}


def kernel(x, wrong):
    samples = np.zeros(24, np.int32)
    for b, row in enumerate(x.probs.astype(np.float64)):
        row = np.where(row >= np.sort(row)[-x.top_k], row, 0)
        left = row.sum()
        row /= left
        bound = (left - (1 - x.top_p)) / left if wrong else x.top_p
        low, high, mass, number = 0.0, 1.0, 1.0, 0
        while True:
            share = philox_uniform(1234, b, number) * mass
            number += 1
            sums = np.cumsum(np.where(row > low, row, 0))
            token = int(np.argmax(sums > share)) if (sums > share).any() else int(np.flatnonzero(row > low)[-1])
            a, middle = row[token], (row[token] + high) / 2
            if row[row > a].sum() < bound:
                break
            low, high, mass = (a, middle, row[row > a].sum()) if row[row > middle].sum() < bound else (middle, high, row[row > middle].sum())
        samples[b] = token
    return {"samples": samples}
