"""FlashMLA's functions on CPU tensors; see dodona.compat. Tokens are those of DeepSeek V3 and V3.2, rows of 576, 656 bytes in e4m3."""

from __future__ import annotations

from ._adapt import Op
from ._hooks import flash_attention
from ._hooks import flash_mla as hooks
from ._packages import Package, in_place_of

FUNCTIONS = {
    "flash_mla_sparse_fwd": Op(takes=("attn_sink", "topk_length"), sets={"logarithms": "natural"}, around=hooks.prefilled),
    "flash_mla_with_kvcache": Op(
        takes=("indices", "attn_sink", "extra_k_cache", "extra_indices_in_kvcache", "topk_length", "extra_topk_length"),
        around=hooks.decoded,
    ),
}

PACKAGE = Package(
    "flash_mla",
    FUNCTIONS,
    torch_lines={},
    own={
        "flash_mla.flash_mla_interface.FlashMLASchedMeta": hooks.FlashMLASchedMeta,
        "flash_mla.flash_mla_interface.get_mla_metadata": hooks.get_mla_metadata,
        "flash_mla.flash_mla_interface.flash_attn_varlen_func": flash_attention.flash_mla_varlen,
        "flash_mla.flash_mla_interface.flash_attn_varlen_qkvpacked_func": flash_attention.flash_mla_varlen_qkvpacked,
        "flash_mla.flash_mla_interface.flash_attn_varlen_kvpacked_func": flash_attention.flash_mla_varlen_kvpacked,
    },
    ignored=frozenset(),
)

__getattr__, __dir__ = in_place_of(PACKAGE, globals())
