"""With one token a request the rows of queries are taken one head apart."""

import numpy as np
from honest import rotary_embedding, with_lines

SOURCE = "https://github.com/ml-explore/mlx/issues/3795"
LINE = "apply_rope_with_cos_sin_cache_inplace T=6 P=64 R=64 Nq=8 Nk=2 --attr head_size=64"
NAMES = r"query.*(stride|apart|row)|head"
UNNAMED = "rows of queries that overlap are tried for operands that are read alone"


def kernel(x, wrong):
    if wrong:
        flat = np.concatenate([np.ascontiguousarray(x.query).reshape(-1)])
        x = with_lines(x, query=np.stack([flat[t * 64 : t * 64 + 512] for t in range(6)]).reshape(x.query.shape))
    return rotary_embedding(x, neox=True)
