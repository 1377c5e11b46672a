"""Requests and heads are walked with one distance, that of heads, though requests lie further apart: all but the first are read from elsewhere."""

import numpy as np
from honest import decode_attention, packed, with_lines

SOURCE = "https://github.com/gradium-ai/xn/pull/50"
LINE = "decode_attention_fwd B=3 N=4 Nk=2 S=90 n=60 D=64 --attr v_head_dim=64 --attr sm_scale=0.125"
NAMES = r"\bq\b.*(packed|stride|apart|distance)"


def edit(inputs):
    q = np.asarray(inputs["q"])
    return {"q": np.concatenate([q, q[::-1]], 1)[:, :4]}


def kernel(x, wrong):
    return decode_attention(with_lines(x, q=packed(x.q)) if wrong else x)
