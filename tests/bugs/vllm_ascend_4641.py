"""The indexer's rotation pairs neighbours where the model pairs halves."""

from honest import rotary_embedding

SOURCE = "https://github.com/vllm-project/vllm-ascend/pull/4641"
LINE = "apply_rope_with_cos_sin_cache_inplace T=16 P=128 R=64 Nq=8 Nk=1 --attr head_size=64 --attr is_neox=true"
NAMES = r"is_neox=false|interleaved"


def kernel(x, wrong):
    return rotary_embedding(x, neox=not wrong)
