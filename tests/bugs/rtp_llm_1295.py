"""A draft that the target would choose too is accepted whatever its coin says."""

import numpy as np

SOURCE = "https://github.com/alibaba/rtp-llm/pull/1295"
LINE = "tree_speculative_sampling_target_only B=9 D=16 V=8 S=5 tot=150"
NAMES = r"(likeliest|largest|choice).*coin"


def kernel(x, wrong):
    batch, drafts = x.candidates.shape
    predicts, accepted = np.full(150, -1, np.int32), np.full((batch, 5), -1, np.int32)
    count, rejected = np.zeros(batch, np.int32), np.array(x.draft_probs)
    for b in range(batch):
        node, accepted[b, 0] = 0, x.retrive_index[b, 0]
        coin = x.uniform_samples[b, 0]
        for depth in range(1, 5):
            child, acc = x.retrive_next_token[b, node], np.float32(0)
            while child != -1:
                token = x.candidates[b, child]
                acc += x.target_probs[b, node, token]
                if coin <= acc or (wrong and token == np.argmax(x.target_probs[b, node])) or x.target_probs[b, node, token] >= np.float32(1):
                    break
                rejected[b, node, token] = x.target_probs[b, node, token]
                child = x.retrive_next_sibling[b, child]
            if child == -1:
                break
            predicts[x.retrive_index[b, node]] = x.candidates[b, child]
            node, accepted[b, depth] = child, x.retrive_index[b, child]
            count[b], coin = count[b] + 1, x.uniform_samples[b, child]
        behind = x.target_probs[b, node]
        left = np.maximum(behind - (rejected[b, node] if count[b] < 5 - 1 else 0), 0)
        sums = np.cumsum(left, dtype=np.float32)
        above = np.flatnonzero(sums > x.uniform_samples_for_final_sampling[b] * sums[-1])
        predicts[x.retrive_index[b, node]] = above[0] if len(above) else len(left) - 1
    return {"draft_probs": rejected, "predicts": predicts, "accept_index": accepted, "accept_token_num": count}
