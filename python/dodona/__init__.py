"""What should this kernel have returned? A CPU oracle for the kernels of DeepSeek inference.

Every op of the inventory is a function under upstream's name, with upstream's parameters in their order:

    y = dodona.rmsnorm(x, weight, eps=1e-6)             # NumPy arrays, torch tensors, anything with __dlpack__
    dodona.fused_add_rmsnorm(x, residual, weight)       # in place
    y = dodona.rmsnorm(x, weight, mode="golden")        # fast (default), golden, hopper; gpu="b200"

and whatever made an output, it can be judged:

    case = dodona.gen("rmsnorm T=4 H=7168 --seed 7")
    verdict = dodona.check(case, my_kernel(**case.arguments()))
    print(verdict)                                      # as the command prints it
    dodona.assert_close("rmsnorm T=4 H=7168 --seed 7", output=y)

bfloat16, float8 and float4 are ml_dtypes' where that package is installed, and raw codes (uint16, uint8) otherwise.
"""

from __future__ import annotations

from typing import Any

from ._arrays import Typed, as_dtype, device_copies
from ._cases import (
    Case, OutputVerdict, SameBits, Verdict, Whose, assert_close, assert_same_bits, check, gen, golden, load, same_bits, whose,
)  # fmt: skip
from .grader import Grade, Grader
from ._generate import Generated, generate
from ._layer import Layer, layer
from ._library import BadType, BadValue, Error, OutOfMemory, version as __version__
from ._ops import Prepared, function as _function, gather, names as _names, prepare, schema


def ops() -> list[str]:
    """Names of all ops, in the inventory's order."""
    return _names()


def __getattr__(name: str) -> Any:
    if not name.startswith("_") and name in _names():
        made = _function(name)
        globals()[name] = made
        return made
    raise AttributeError(f"module 'dodona' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_names()})


__all__ = [
    "BadType", "BadValue", "Case", "Error", "Grade", "Grader", "Layer", "OutOfMemory", "OutputVerdict", "Prepared", "SameBits", "Typed", "Verdict", "Whose", "__version__",
    "as_dtype", "assert_close", "assert_same_bits", "check", "device_copies", "gather", "gen", "generate", "golden", "layer", "load", "ops", "prepare", "same_bits", "schema", "whose",
    *_names(),
]  # fmt: skip
