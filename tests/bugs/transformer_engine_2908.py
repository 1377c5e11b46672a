"""Slots of no expert are sorted to the front and not skipped: rows are counted from the first of them."""

import numpy as np

SOURCE = "https://github.com/NVIDIA/TransformerEngine/issues/2908"
LINE = "deepep_run_moe_deep_preprocess T=9 topk=4 --attr num_experts=8 --special absent-ids"
NAMES = r"(src2dst|rows?).*(more|shift|off|none|-1|behind|plus|add|count)"


def kernel(x, wrong):
    flat = x.topk_ids.reshape(-1)
    order, none = np.argsort(flat, kind="stable"), int((flat < 0).sum())
    rows = np.empty(len(flat), np.int64)
    rows[order] = np.arange(len(flat)) - (0 if wrong else none)
    ids = np.zeros(len(flat), flat.dtype)
    ids[: len(flat) - none] = flat[order][none:]
    counts = np.bincount(flat[flat >= 0], minlength=x.num_experts)
    return {"reorder_topk_ids": ids, "src2dst": rows, "seg_indptr": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)}
