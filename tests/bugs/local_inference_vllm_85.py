"""A request's number and its length are handed on in each other's place: request b sees its first b keys."""

from honest import xqa_decode

SOURCE = "https://github.com/local-inference-lab/vllm/pull/85"
LINE = "xqa_batch_decode_with_kv_cache_mla B=4 N=1 pages=12 P=32 W=3 --attr bmm1_scale=0.07"
NAMES = r"seq_lens.*number"
UNNAMED = "a request of no keys is no call of the op"


def kernel(x, wrong):
    return xqa_decode(x, length=lambda b, n: b if wrong else n)
