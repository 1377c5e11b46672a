"""Blocks of a copy are stored one behind the other, but each is read from the begin of what is copied."""

import numpy as np

SOURCE = "https://github.com/vllm-project/vllm/issues/15908"
LINE = "create_chunked_prefix_cache_kv_indices R=4 C=300 B=3 n=400"
NAMES = r"(mod|of each|every|first|repeat).*32|32.*(mod|of each|every|first|repeat)"


def edit(inputs):
    return {"chunk_start_idx": np.array([10, 0, 60], np.int32), "chunk_seq_lens": np.array([150, 200, 50], np.int32), "chunk_cu_seq_lens": np.array([0, 150, 350, 400], np.int32)}


def kernel(x, wrong):
    out = np.zeros(400, np.int32)
    for b in range(3):
        at = np.arange(x.chunk_seq_lens[b])
        row = x.req_to_token[x.req_pool_indices[b]]
        out[x.chunk_cu_seq_lens[b] : x.chunk_cu_seq_lens[b + 1]] = row[x.chunk_start_idx[b] + (at % 32 if wrong else at)]
    return {"chunk_kv_indices": out}
