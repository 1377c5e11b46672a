"""The workspace has fewer rows than the chunk: rows behind its end are skipped and keep what was there."""

import numpy as np

SOURCE = "https://github.com/vllm-project/vllm/pull/51252"
LINE = "get_mla_kv_buffer S=60 T=24"
NAMES = r"rows 16\.\.23|not (written|stored)|unwritten"


def kernel(x, wrong):
    rows = np.asarray(x.kv_buffer)[x.loc]
    if wrong:
        rows[16:] = 0
    return {"cache_k_nope": rows[:, None, :512].copy(), "cache_k_rope": rows[:, None, 512:].copy()}
