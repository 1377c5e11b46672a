"""Biased scores that groups and experts are chosen by are kept in bf16, where the router keeps them in fp32."""

from honest import BF16, f32, largest, sigmoid, through
import numpy as np

SOURCE = "https://github.com/flagos-ai/FlagGems/issues/4245"
LINE = "biased_grouped_topk T=32 E=64 --dtype gating_output=bf16 --attr topk=8 --attr renormalize=true --attr num_expert_group=8 --attr topk_group=2"
NAMES = r"bf16|rounded"


def kernel(x, wrong):
    scores = sigmoid(x.gating_output)
    biased = scores + f32(x.correction_bias)
    biased = through(BF16, through(BF16, scores) + through(BF16, x.correction_bias)) if wrong else biased
    by_group = biased.reshape(len(biased), 8, -1)
    best = np.sort(by_group, axis=-1)[..., -2:].sum(-1, dtype=np.float32)
    best = through(BF16, best) if wrong else best
    keep = np.zeros(best.shape, bool)
    np.put_along_axis(keep, largest(best, 2), True, axis=-1)
    ids = largest(np.where(keep[..., None], by_group, -np.inf).reshape(biased.shape), 8)
    taken = np.take_along_axis(scores, ids, -1)
    return {"topk_weights": (taken / taken.sum(-1, keepdims=True, dtype=np.float32)).astype(np.float32), "topk_ids": ids.astype(np.int32)}
