"""Scales of received rows lie by columns, and are copied as if a row's lay side by side."""

import numpy as np

SOURCE = "https://github.com/vllm-project/vllm/issues/53338"
LINE = "ep_scatter T=24 H=512 Hs=4 topk=2 E=3 M=384"
NAMES = r"recv_x_scale.*(column|stride)"


def kernel(x, wrong):
    scales = x.recv_x_scale
    if wrong:  # what lies behind the last column is nobody's
        flat = np.concatenate([scales.T.reshape(-1), np.zeros(4, scales.dtype)])
        scales = flat[np.arange(len(scales))[:, None] + np.arange(4)[None]]
    rooms = x.num_recv_tokens_per_expert
    ends = np.cumsum(rooms).astype(np.int32)
    begin = ends - rooms
    out, out_scale = np.zeros((384, 512), x.recv_x.dtype), np.zeros((384, 4), scales.dtype)
    owner, place = np.zeros(384, np.int32), np.zeros(x.recv_topk.shape, x.recv_topk.dtype)
    for e, end in enumerate(ends):
        owner[begin[e] : end] = e
        at = begin[e]
        for t, k in np.argwhere(x.recv_topk == e):
            out[at], out_scale[at], place[t, k], at = x.recv_x[t], scales[t], at, at + 1
    return {"expert_start_loc": begin + np.bincount(x.recv_topk[x.recv_topk >= 0], minlength=3).astype(np.int32), "output_tensor": out, "output_tensor_scale": out_scale, "m_indices": owner, "output_index": place}
