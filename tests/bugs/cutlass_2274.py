"""Splits bring the logarithm of the plain sum of powers: of large queries it is infinite, and the splits' weights are none."""

import numpy as np
from honest import BF16, scores_of_mla, softmax_rows

SOURCE = "https://github.com/NVIDIA/cutlass/issues/2274"
LINE = "cutlass_mla_decode B=3 N=4 pages=20 P=32 W=4 --attr sm_scale=0.1352337788608801"
NAMES = r"infinit|NaN|overflow|maxim"


def edit(inputs):
    return {"q_nope": (inputs["q_nope"].astype(np.float32) * 40).astype(BF16), "q_pe": (inputs["q_pe"].astype(np.float32) * 40).astype(BF16)}


def kernel(x, wrong):
    out = np.zeros(x.q_nope.shape, BF16)
    for b, keys, scores in scores_of_mla(x):
        if not wrong:
            weights, total, _ = softmax_rows(scores)
            out[b] = (weights @ keys[:, :512] / total).astype(BF16)
            continue
        half, parts, logs = (len(keys) + 1) // 2, [], []
        for part in (slice(0, half), slice(half, None)):
            if len(keys[part]):
                weights, total, _ = softmax_rows(scores[:, part])
                parts.append(weights @ keys[part, :512] / total)
                with np.errstate(over="ignore", divide="ignore"):
                    logs.append(np.log(np.exp(scores[:, part]).sum(-1, keepdims=True, dtype=np.float32)))
        with np.errstate(invalid="ignore"):
            most = np.maximum.reduce(logs)
            shares = [np.exp(log - most) for log in logs]
            out[b] = (sum(s * p for s, p in zip(shares, parts)) / sum(shares)).astype(BF16)
    return {"out": out}
