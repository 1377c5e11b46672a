"""What is left of the row is thrown away: the most probable token is returned."""

import numpy as np
from honest import top_k_top_p, with_lines

SOURCE = "https://github.com/EricLBuehler/mistral.rs/pull/2424"
LINE = "top_p_sampling_from_probs B=16 U=16 V=1000 --attr top_p=0.7 --attr philox_seed=5"
NAMES = r"most probable|argmax|largest"


def kernel(x, wrong):
    if wrong:
        return {"samples": x.probs.argmax(-1).astype(np.int32)}
    return top_k_top_p(with_lines(x, top_k=1 << 30), joint=True)
