"""What callers and tests of FlashInfer's ask beside kernels: bits in bytes, tiles, what would have to be compiled, quantizers of tests."""

from __future__ import annotations

import inspect
import re
from typing import Any, Callable, Iterable, Optional

import numpy as np

from .._arrays import is_torch
from . import _deep_gemm as deep_gemm
from ._adapt import NotOffered, named, refuse
from ._hooks.arrays import bare
from ._hooks.checks import of_type, shape_of
from ._layouts import as_given
from ._upstream import signature_of

# ---- bits in bytes ----


def _order(name: str, bitorder: str) -> str:
    if bitorder not in ("big", "little"):
        raise refuse(name, f"is {bitorder!r}, expected big or little", argument="bitorder")
    return bitorder


def _bits(name: str, x: Any) -> np.ndarray:
    shape_of(name, "x", x, 1)
    of_type(name, "x", x, "bool", "u8")
    return np.asarray(bare(x)) != 0


@named("packbits")
def packbits(x: Any, bitorder: str = "big") -> Any:
    """Eight truth values a byte, the first one at the top (big) or at the bottom; zeros behind the last."""
    name = "packbits"
    return as_given(np.packbits(_bits(name, x), bitorder=_order(name, bitorder)), bare(x))


@named("segment_packbits")
def segment_packbits(x: Any, indptr: Any, bitorder: str = "big") -> tuple[Any, Any]:
    """Each segment in bytes of its own, and where they begin."""
    name = "segment_packbits"
    bits = _bits(name, x)
    shape_of(name, "indptr", indptr, 1)
    of_type(name, "indptr", indptr, "i32", "i64")
    ends = np.asarray(bare(indptr)).astype(np.int64)
    if not len(ends) or ends[0] != 0 or ends[-1] != len(bits) or (np.diff(ends) < 0).any():
        raise refuse(name, f"is {ends.tolist()}, expected to rise from 0 to {len(bits)}", argument="indptr")
    _order(name, bitorder)
    packed = [np.packbits(bits[begin:end], bitorder=bitorder) for begin, end in zip(ends, ends[1:])]
    starts = np.concatenate([[0], np.cumsum([len(part) for part in packed])]).astype(np.int32)
    return as_given(np.concatenate([*packed, np.zeros(0, np.uint8)]), bare(x)), as_given(starts, bare(x))


# ---- tiles ----


def next_positive_power_of_2(x: int) -> int:
    return 1 << max(x - 1, 0).bit_length()


def calculate_tile_tokens_dim(num_tokens: int, num_experts: int, top_k: int, max_tile_tokens_dim: int = 128) -> int:
    """Rows of a kernel's tile, by the tokens of an expert and three tenths more: a power of two from 8 to the largest."""
    tokens = int(num_tokens * top_k // num_experts * 1.3)
    return min(max(next_positive_power_of_2(tokens), 8), max_tile_tokens_dim)


def determine_gemm_backend(device: object) -> str:
    """Whose kernels upstream would take on the machine that get_compute_capability names."""
    return "sm80"


def _match_sm_version(device: object, sm_version: Iterable[str]) -> bool:
    """Whether a B200 is among them."""
    return "100" in sm_version


# ---- what would have to be compiled ----


class Compiled:
    """Stands for what upstream compiles on the machine. There is nothing to compile here, and nothing to load."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_compiled = self.is_aot = True

    def build(self, *args: Any, **kwargs: Any) -> None:
        """Done."""

    def build_and_load(self, *args: Any, **kwargs: Any) -> Any:
        raise refuse(self.name, "build_and_load: modules of compiled kernels are not offered; call the package's functions", kind=NotOffered, code="unsupported")


def build_jit_specs(specs: Any, verbose: bool = False, skip_prebuilt: bool = True) -> None:
    """Nothing has to be compiled."""


MAKES_SPECS = re.compile(r"gen_\w*module(_\w+)?$")


def specs(record: Any) -> dict[str, Callable[..., Compiled]]:
    """The functions of a record that say what to compile, by their places."""

    return {
        f"{module}.{name}": spec(name, signature_of(known))
        for module, parts in record.modules.items()
        for name, known in parts.get("functions", {}).items()
        if MAKES_SPECS.match(name)
    }


def spec(name: str, signature: Optional[inspect.Signature] = None) -> Callable[..., Compiled]:
    def made(*args: Any, **kwargs: Any) -> Compiled:
        return Compiled(name)

    made.__name__ = made.__qualname__ = name
    made.__module__, made.__doc__ = "dodona.compat", Compiled.__doc__
    if signature is not None:
        made.__signature__ = signature  # type: ignore[attr-defined]
    return made


# ---- quantizers of upstream's tests ----


def _tiles(name: str, x: Any, counts: tuple, k_major: bool) -> tuple[Any, tuple]:
    """x as [..] with its last two dimensions in tiles, [.., s0, t0, s1, t1], and what is in front."""
    x = bare(x)
    if not is_torch(x):
        raise refuse(name, f"is {type(x).__name__}, expected a torch tensor", argument="x", code="bad_dtype")
    if x.ndim not in (2, 3) or x.ndim != len(counts):
        raise refuse(name, f"has {x.ndim} dimensions with scales of {len(counts)}, expected 2 or 3 of both", argument="x", code="bad_shape")
    *front, rows, columns = counts if k_major else (*counts[:-2], counts[-1], counts[-2])
    if any(size % count for size, count in zip(x.shape, (*front, rows, columns))):
        raise refuse(name, f"has shape {list(x.shape)}, expected multiples of {[*front, rows, columns]}", argument="x", code="bad_shape")
    sizes = [part for size, count in zip(x.shape, (*front, rows, columns)) for part in (count, size // count)]
    return x.reshape(sizes), tuple(range(1, 2 * x.ndim, 2))


def quantize_fp8(x: Any, scale_shape: Any, tile_shape: Any, scale_major_mode: str) -> tuple[Any, Any]:
    """Codes of e4m3 over a power of two for each tile, at least what its largest magnitude needs. Scales are [.., rows, K] (K) or [.., K, rows] (MN)."""
    import torch

    k_major = scale_major_mode == "K"
    tiles, inner = _tiles("quantize_fp8", x, tuple(scale_shape), k_major)
    largest = tiles.abs().amax(inner, keepdim=True).clamp(1e-4)
    scales = torch.pow(2.0, torch.ceil(torch.log2((largest / 448).abs())))
    codes = (tiles / (scales + 1e-8)).reshape(bare(x).shape).to(torch.float8_e4m3fn)
    scales = scales.squeeze(inner)
    return codes, scales if k_major else scales.swapaxes(-1, -2)


def dequantize_fp8(x: Any, x_scale: Any, scale_major_mode: str) -> Any:
    """What codes and scales of quantize_fp8 stand for."""
    k_major = scale_major_mode == "K"
    tiles, inner = _tiles("dequantize_fp8", x, tuple(bare(x_scale).shape), k_major)
    scales = bare(x_scale) if k_major else bare(x_scale).swapaxes(-1, -2)
    for axis in inner:
        scales = scales.unsqueeze(axis)
    return (tiles.float() * scales).reshape(bare(x).shape)


# What is here, by the module in which upstream has it.
def per_token_cast_to_fp8(x: Any) -> tuple[Any, Any]:
    """DeepGEMM's, under powers of two."""
    return deep_gemm.per_token_cast_to_fp8(x, True)


def per_block_cast_to_fp8(x: Any) -> tuple[Any, Any]:
    """DeepGEMM's, under powers of two."""
    return deep_gemm.per_block_cast_to_fp8(x, True)


PLACES = {
    "flashinfer.quantization": (packbits, segment_packbits),
    "flashinfer.quantization.packbits": (packbits, segment_packbits),
    "flashinfer.utils": (calculate_tile_tokens_dim, determine_gemm_backend, next_positive_power_of_2, _match_sm_version),
    "flashinfer.gemm.gemm_base": (_match_sm_version,),
    "flashinfer.testing.utils": (quantize_fp8, dequantize_fp8, per_block_cast_to_fp8, per_token_cast_to_fp8),
    "flashinfer.jit.core": (build_jit_specs,),
    "flashinfer.jit": (build_jit_specs,),
    "flashinfer.gemm": tuple(spec(name) for name in ("gen_gemm_module", "gen_gemm_sm90_module")),
}
