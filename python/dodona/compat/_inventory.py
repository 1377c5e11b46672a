"""Which ops a package offers: those of its source, and those that it shares with the other."""

from __future__ import annotations

from typing import Any, Callable

from .._ops import function, names, plan_of

# Offered by both under the same name with the same parameters; the inventory knows them by one source.
SHARED = {
    "rmsnorm", "fused_add_rmsnorm", "silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul", "apply_rope_with_cos_sin_cache_inplace", "bmm_fp8",
    "merge_state",
}  # fmt: skip


def offered(package: str) -> list[str]:
    """The inventory writes upstream as its projects do, sgl-kernel; a package's name has an underscore there."""
    return [op for op in names() if op in SHARED or plan_of(op).schema["source"].replace("-", "_") == package]


def with_dialect(op: str, dialect: str) -> Callable[..., Any]:
    """The op's function with the recipe of `dialect`, where that differs from the default."""
    base, plan = function(op), plan_of(op)
    recipe = {
        spec["name"]: spec["dialects"][dialect] for spec in plan.schema["attributes"] if dialect in spec.get("dialects", {})
    }
    if not recipe:
        return base

    def called(*args: Any, **kwargs: Any) -> Any:
        return base(*args, **{**recipe, **kwargs})

    called.__name__, called.__doc__, called.__wrapped__ = op, base.__doc__, base
    return called


def listing(functions: list[str]) -> str:
    """The end of a module's docstring."""
    return "Functions: " + ", ".join(functions) + "."
