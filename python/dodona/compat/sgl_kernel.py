"""sgl_kernel's functions on CPU tensors; see dodona.compat."""

from __future__ import annotations

from typing import Any

from .._ops import function
from ._inventory import listing, offered

_NAMES = offered("sgl_kernel")


def cutlass_fp4_group_mm(
    a_fp4: Any, b_fp4: Any, a_blockscale: Any, b_blockscale: Any, alphas: Any, out_dtype: Any, device: Any = None, params: Any = None
) -> Any:
    """Upstream's grouped NVFP4 product: `params` is its dictionary (expert_offsets, problem_sizes, blockscale_offsets, ...)."""
    return function("cutlass_fp4_group_mm")(a_fp4, b_fp4, a_blockscale, b_blockscale, alphas, out_dtype, **(params or {}))


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return function(name)
    raise AttributeError(f"dodona.compat.sgl_kernel has no {name}; dodona.compat.functions('sgl_kernel') lists what it has")


__all__ = sorted({*_NAMES, "cutlass_fp4_group_mm"})
__doc__ = f"{__doc__}\n\n{listing(__all__)}"
