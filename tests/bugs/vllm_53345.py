"""Scales that lie by columns are read at the stride of a row alone: token t's g-th is what lies t + g behind the first."""

import numpy as np

SOURCE = "https://github.com/vllm-project/vllm/pull/53345"
LINE = "ep_scatter T=9 H=256 Hs=4 topk=2 E=3 M=384"
NAMES = r"recv_x_scale.*(stride|column|packed)"


def kernel(x, wrong):
    scales = x.recv_x_scale
    if wrong:
        tokens, groups = scales.shape
        memory = np.ascontiguousarray(scales.T).reshape(-1)
        scales = memory[np.arange(tokens)[:, None] + np.arange(groups)]
    rooms = x.num_recv_tokens_per_expert
    begin = np.concatenate([[0], np.cumsum(rooms)[:-1]]).astype(np.int64)
    tokens, where = np.zeros_like(x.output_tensor), np.zeros_like(x.recv_topk)
    scaled = np.zeros((len(tokens), scales.shape[1]), scales.dtype)
    experts = np.zeros(len(tokens), np.int32)
    for e, room in enumerate(rooms):
        experts[begin[e] : begin[e] + room] = e
    at = begin.copy()
    for t, chosen in enumerate(x.recv_topk):
        for k, e in enumerate(chosen):
            if e >= 0:
                tokens[at[e]], scaled[at[e]], where[t, k] = x.recv_x[t], scales[t], at[e]
                at[e] += 1
    return {"expert_start_loc": at.astype(np.int32), "output_tensor": tokens, "output_tensor_scale": scaled, "m_indices": experts, "output_index": where}
