"""Rows are chosen by the request's number in the batch, not by the row that it was given."""

import numpy as np

SOURCE = "https://github.com/sgl-project/sglang/pull/27658"
LINE = "assign_req_to_token_pool R=9 C=40 B=5 n=60"
NAMES = r"req_pool_indices"


def kernel(x, wrong):
    table, taken = np.array(x.req_to_token), 0
    for b in range(5):
        first, end = int(x.start_offset[b]), int(x.end_offset[b])
        table[b if wrong else x.req_pool_indices[b], first:end] = x.out_cache_loc[taken : taken + end - first]
        taken += end - first
    return {"req_to_token": table}
