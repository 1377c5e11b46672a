"""Groups are chosen by biased scores in fp32, experts by scores and biases of the logits' type."""

import numpy as np
from honest import BF16, f32, largest, sigmoid, through

SOURCE = "https://github.com/vllm-project/vllm-xpu-kernels/pull/527"
LINE = "biased_grouped_topk T=64 E=128 --dtype gating_output=bf16 --attr topk=8 --attr renormalize=true --attr num_expert_group=8 --attr topk_group=4"
NAMES = r"bf16|rounded"


def kernel(x, wrong):
    scores = sigmoid(x.gating_output)
    by_group = (scores + f32(x.correction_bias)).reshape(len(scores), 8, -1)
    keep = np.zeros((len(scores), 8), bool)
    np.put_along_axis(keep, largest(np.sort(by_group, -1)[..., -2:].sum(-1, dtype=np.float32), 4), True, axis=-1)
    if wrong:
        by_group = through(BF16, through(BF16, scores) + through(BF16, x.correction_bias)).reshape(by_group.shape)
    ids = largest(np.where(keep[..., None], by_group, -np.inf).reshape(scores.shape), 8)
    taken = np.take_along_axis(scores, ids, -1)
    return {"topk_weights": (taken / taken.sum(-1, keepdims=True, dtype=np.float32)).astype(np.float32), "topk_ids": ids.astype(np.int32)}
