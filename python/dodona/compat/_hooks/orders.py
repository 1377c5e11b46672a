"""Whose order positional arguments have, where versions of upstream differ."""

from __future__ import annotations

import enum
from typing import Any, Callable, Mapping, Optional

from .arrays import bare


def newer_where(kind: Callable[[Any], bool]) -> Callable[[tuple, Mapping[str, Any]], Optional[bool]]:
    """A newer version's, where the first argument that the versions have at different places is of this kind."""
    return lambda beyond, keywords: kind(beyond[0])


def a_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def newer_moe(beyond: tuple, keywords: Mapping[str, Any]) -> Optional[bool]:
    """Of trtllm's mixtures of experts: the rows of a tile, powers of two from 8 on or None, have gone, and the routing method has their place."""
    value = beyond[0]
    if value is None:
        return False
    if isinstance(value, (str, enum.Enum)):
        return True
    if len(beyond) > 1:
        return isinstance(beyond[1], bool)  # what follows the method; the method itself is a number
    if value == 8 and "routing_method_type" not in keywords:
        return None
    return value < 8 or value == 9


def newer_bf16_moe(beyond: tuple, keywords: Mapping[str, Any]) -> Optional[bool]:
    """A factor, or none, before the routing method."""
    return beyond[0] is None or isinstance(beyond[0], float) or "routing_method_type" in keywords


def newer_fp4_quantize(beyond: tuple, keywords: Mapping[str, Any]) -> Optional[bool]:
    """enable_pdl has no effect; False and None mean the same in either place."""
    if len(beyond) > 1 or beyond[0] in (None, False):
        return len(beyond) > 1
    return None


def newer_ragged(beyond: tuple, keywords: Mapping[str, Any]) -> Optional[bool]:
    """A threshold of skipped softmax, or none, before out and lse."""
    return a_number(beyond[0]) or len(beyond) > 2 or (beyond[0] is None and len(beyond) > 1 and getattr(bare(beyond[1]), "ndim", 0) == 3)
