"""Partial sums go into the places of the maxima before all have read those: in two rows one group of lanes takes a sum for the row's maximum."""

import numpy as np

SOURCE = "https://github.com/ml-explore/mlx-lm/pull/1714"
LINE = "log_softmax T=16 N=1024 --dtype input=f32"
NAMES = r"sum.*(lack|without|part|group|lanes|term)|terms.*(left out|missing|lost)|lanes|warp"
UNNAMED = "two rows alone lose a race, by one group's partial sum"


def edit(inputs):
    return {"input": np.asarray(inputs["input"]) * np.float32(0.2)}


def kernel(x, wrong):
    out = np.zeros_like(x.input)
    lane_group = np.arange(1024) % 256 // 32
    for t, row in enumerate(x.input):
        most = np.full(1024, row.max(), np.float32)
        if wrong and t in (5, 9):
            late = lane_group == t - 3
            most[late] = max(row.max(), np.exp(row[lane_group == 0] - row.max()).sum(dtype=np.float32))
        total = np.exp(row - most).sum(dtype=np.float32)
        out[t] = row - most - np.log(total)
    return {"output": out}
