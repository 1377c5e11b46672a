"""An expert's rows are filled in by blocks of 128 without a look at its end: what a later expert has stored is overwritten."""

import numpy as np

SOURCE = "https://github.com/sgl-project/sglang/pull/29525"
LINE = "ep_scatter T=60 H=128 Hs=1 topk=2 E=2 M=256"
NAMES = r"m_indices.*(behind|next|over|earlier|before|end)"
UNNAMED = "which expert's rows are filled in last is left to a race"


def kernel(x, wrong):
    rooms = x.num_recv_tokens_per_expert
    begin = np.concatenate([[0], np.cumsum(rooms)[:-1]]).astype(np.int64)
    tokens, where = np.zeros_like(x.output_tensor), np.zeros_like(x.recv_topk)
    scaled = np.zeros((len(tokens), x.recv_x_scale.shape[1]), x.recv_x_scale.dtype)
    experts = np.zeros(len(tokens), np.int32)
    for e in range(len(rooms)):
        experts[begin[e] : begin[e] + rooms[e]] = e
    if wrong:  # expert 0's blocks come last, and are one too many
        experts[begin[0] : begin[0] + rooms[0] + 40] = 0
    at = begin.copy()
    for t, chosen in enumerate(x.recv_topk):
        for k, e in enumerate(chosen):
            if e >= 0:
                tokens[at[e]], scaled[at[e]], where[t, k] = x.recv_x[t], x.recv_x_scale[t], at[e]
                at[e] += 1
    return {"expert_start_loc": at.astype(np.int32), "output_tensor": tokens, "output_tensor_scale": scaled, "m_indices": experts, "output_index": where}
