"""A draft is held against what the target says behind it, where it should be what the target says behind its parent."""

import numpy as np

SOURCE = "https://github.com/ohdearquant/lattice/issues/243"
LINE = "verify_tree_greedy B=9 D=16 S=5 tot=150"
NAMES = r"target.*(behind itself|own|child)"


def kernel(x, wrong):
    drafts, most = x.candidates.shape[1], 5
    flat, places = x.target_predict.reshape(-1), x.retrive_index
    predicts, accepted, count = np.full(150, -1, np.int32), np.full((len(places), most), -1, np.int32), np.zeros(len(places), np.int32)
    for b in range(len(places)):
        node, accepted[b, 0] = 0, places[b, 0]
        for depth in range(1, most):
            child = x.retrive_next_token[b, node]
            while child != -1:
                if x.candidates[b, child] == flat[places[b, child if wrong else node]]:
                    break
                child = x.retrive_next_sibling[b, child]
            if child == -1:
                break
            predicts[places[b, node]] = flat[places[b, node]] if not wrong else x.candidates[b, child]
            node, accepted[b, depth] = child, places[b, child]
            count[b] += 1
        predicts[places[b, node]] = flat[places[b, node]]
    return {"predicts": predicts, "accept_index": accepted, "accept_token_num": count}
