"""Scores are multiplied with the tanh where the cap is to be: beyond the cap they stay as they are."""

import numpy as np
from imp_688 import scores

SOURCE = "https://github.com/unslothai/unsloth-zoo/pull/593"
LINE = "decode_attention_fwd B=3 N=4 Nk=2 S=60 n=90 D=64 --attr v_head_dim=64 --attr sm_scale=1 --attr logit_cap=5"
NAMES = r"cap.*tanh|tanh.*cap|score.*(times|multiplied).*tanh"

UNNAMED = "a cap of another formula is no call of the op"


def kernel(x, wrong):
    cap = np.float32(x.logit_cap)
    return scores(x, lambda s: (s if wrong else cap) * np.tanh(s / cap))
