"""A request's queries all give what its first one gives, where their number is no power of two."""

from honest import trtllm_decode

SOURCE = "https://github.com/ROCm/aiter/issues/2720"
LINE = "trtllm_batch_decode_with_kv_cache_mla B=3 Q=6 N=1 pages=17 P=32 W=5 --attr bmm1_scale=0.1352337788608801 --attr bmm2_scale=1"
NAMES = r"(along|dimension) Q.*(first|mod)|(first|same) query|row.*holds.*(first|row 0)"


def kernel(x, wrong):
    out = trtllm_decode(x)
    if wrong:
        out["out"][:] = out["out"][:, :1]
    return out
