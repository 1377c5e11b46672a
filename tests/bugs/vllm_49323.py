"""A kernel pairs halves whatever the model says: here neighbours."""

from honest import rotary_embedding

SOURCE = "https://github.com/vllm-project/vllm/pull/49323"
LINE = "apply_rope_with_cos_sin_cache_inplace T=16 P=128 R=64 Nq=8 Nk=1 --attr head_size=64 --attr is_neox=false"
NAMES = r"is_neox=true|halves"


def kernel(x, wrong):
    return rotary_embedding(x, neox=wrong)
