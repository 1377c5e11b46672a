"""FlashInfer's functions on CPU tensors; see dodona.compat. Recipes are those of the dialect `flashinfer`."""

from __future__ import annotations

from typing import Any

from .._library import fail
from .._ops import function
from ._inventory import listing, offered, with_dialect

_NAMES = offered("flashinfer")


def fp4_quantize(
    input: Any,
    global_scale: Any,
    sf_vec_size: int = 16,
    sf_use_ue8m0: bool = False,
    is_sf_swizzled_layout: bool = True,
    is_sf_8x4_layout: bool = False,
    is_global_scale_inversed: bool = False,
    enable_pdl: Any = None,
) -> Any:
    """NVFP4 in blocks of 16 with e4m3 scales in tiles of 128 x 4: the only variant that the oracle has."""
    if sf_vec_size != 16 or sf_use_ue8m0 or not is_sf_swizzled_layout or is_sf_8x4_layout or is_global_scale_inversed:
        raise fail("has only sf_vec_size=16 with swizzled e4m3 scales", code="unsupported", op="fp4_quantize")
    return function("scaled_fp4_quant")(input, global_scale, zero_block="amax")


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return with_dialect(name, "flashinfer")
    raise AttributeError(f"dodona.compat.flashinfer has no {name}; dodona.compat.functions('flashinfer') lists what it has")


__all__ = sorted({*_NAMES, "fp4_quantize"})
__doc__ = f"{__doc__}\n\n{listing(__all__)}"
