"""Rows of zeros that fill the head up to whole tiles win where all real logits are negative."""

import numpy as np

SOURCE = "https://github.com/mirage-project/mirage/issues/751"
LINE = "fast_topk T=12 V=100 --attr topk=1"
NAMES = r"padd|beyond|behind|range|filled up"


def edit(inputs):
    values = np.array(inputs["values"])
    values[::3] = -np.abs(values[::3]) - np.float32(0.5)
    return {"values": values}


def kernel(x, wrong):
    values = np.asarray(x.values)
    wide = np.concatenate([values, np.zeros((12, 28), values.dtype)], 1) if wrong else values
    at = np.argmax(wide, -1)
    return {"out_values": np.take_along_axis(wide, at[:, None], 1), "indices": at[:, None].astype(np.int64)}
