"""A page is taken to hold twice as many tokens as it does: tokens of the second half lie in the page behind."""

from honest import cutlass_mla_decode

SOURCE = "https://github.com/sgl-project/sglang-jax/issues/1074"
LINE = "cutlass_mla_decode B=4 N=16 pages=24 P=16 W=8 --attr sm_scale=0.1352337788608801"
NAMES = r"page.*(32|twice|2 times)"


def kernel(x, wrong):
    pages = x.kv_c_and_k_pe_cache.shape[0]

    def twice(table, t, page):
        return (table[t // (2 * page)] * 2 * page + t % (2 * page)) % (pages * page)

    return cutlass_mla_decode(x, slot=twice) if wrong else cutlass_mla_decode(x)
