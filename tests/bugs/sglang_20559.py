"""A key's head is numbered behind those of the query, and looked for by that number: tokens' keys are rotated by positions of tokens before them."""

import numpy as np
from honest import rotary_embedding, with_lines

SOURCE = "https://github.com/sgl-project/sglang/issues/20559"
LINE = "apply_rope_with_cos_sin_cache_inplace T=16 P=128 R=64 Nq=4 Nk=1 --attr head_size=64 --attr is_neox=true"
NAMES = r"key.*(position|rotat|token|head|shift|row|4|before)|position.*(4|before|shift)"


def kernel(x, wrong):
    out = rotary_embedding(x, neox=True)
    if wrong:  # head 4 of token t's key is token t + 4's only head
        late = with_lines(x, query=x.query[:-4], key=x.key[4:], positions=x.positions[:-4])
        out["key"] = np.concatenate([x.key[:4], rotary_embedding(late, neox=True)["key"]])
    return out
