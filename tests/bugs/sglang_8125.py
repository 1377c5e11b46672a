"""The chosen experts are not sorted when the last column is given to the shared expert: it replaces another than the least."""

import numpy as np
from honest import f32, largest, sigmoid

SOURCE = "https://github.com/sgl-project/sglang/pull/8125"
LINE = (
    "biased_grouped_topk T=16 E=256 --attr topk=9 --attr renormalize=true --attr num_fused_shared_experts=1 "
    "--attr routed_scaling_factor=2.5 --attr num_expert_group=8 --attr topk_group=4"
)
NAMES = r"(shared|last).*(least|another|sorted)"

UNNAMED = "which expert a choice without an order loses is anything"


def kernel(x, wrong):
    scores = sigmoid(x.gating_output)
    groups = (scores + f32(x.correction_bias)).reshape(len(scores), x.num_expert_group, -1)
    keep = np.zeros(groups.shape[:2], bool)
    np.put_along_axis(keep, largest(np.sort(groups, -1)[..., -2:].sum(-1), x.topk_group), True, -1)
    ids = largest(np.where(keep[..., None], groups, -np.inf).reshape(scores.shape), x.topk)
    if wrong:
        ids = np.sort(ids, -1)
    taken = np.take_along_axis(scores, ids, -1)
    total = taken[:, :-1].sum(-1, keepdims=True, dtype=np.float32)
    taken[:, -1:], ids[:, -1] = total / np.float32(x.routed_scaling_factor), scores.shape[1]
    return {"topk_weights": (taken / total).astype(np.float32), "topk_ids": ids.astype(np.int32)}
