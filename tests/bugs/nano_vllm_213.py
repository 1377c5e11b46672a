"""A chunk of a prompt is given the length of the whole prompt: its queries see as many keys further as tokens are still to come."""

import numpy as np
from honest import flash_mla, with_lines

SOURCE = "https://github.com/GeeeekExplorer/nano-vllm/pull/213"
LINE = "flash_mla_with_kvcache B=3 Q=4 N=2 pages=12 W=4 parts=4 --attr softmax_scale=0.07 --attr causal=true"
NAMES = r"(5|five) (keys )?more|cache_seqlens|length|more"


def kernel(x, wrong):
    return flash_mla(with_lines(x, cache_seqlens=np.minimum(x.cache_seqlens + 5, 256)) if wrong else x, lambda n, queries, i: n - queries + i + 1)

