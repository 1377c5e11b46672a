"""A decoder layer of a real size, run by the library."""

from __future__ import annotations

import ctypes
import json
from dataclasses import dataclass
from typing import Any, Sequence

import numpy as np

from ._arrays import made_tensors
from ._library import Handle, check, lib


@dataclass(frozen=True)
class Layer:
    """What a run of a layer gave."""

    hidden: np.ndarray
    residual: np.ndarray
    digest: str
    """SHA-256 of both, equal on every machine"""
    model: str
    layer: int
    ops: list[dict[str, Any]]
    """every model op with its shapes, kernels, seconds, rms"""


def layer(
    *,
    preset: str | None = None,
    config: str | None = None,
    weights: str | None = None,
    layer: int | None = None,
    kv_len: int | Sequence[int] = 1024,
    batch: int | None = None,
    mode: str = "fast",
    threads: int | None = None,
    seed: int = 0,
    phase: str = "decode",
    prefix_len: int | Sequence[int] | None = None,
    draft_tokens: int | None = None,
    backend: str | None = None,
    path: str | None = None,
    experts: str | None = None,
    use: str | Sequence[str] = (),
    kv_cache_dtype: str = "bf16",
    linear: str | None = None,
    expert_weights: str = "stored",
    fused_shared_expert: bool = False,
    gpu: str | None = None,
) -> Layer:
    """Runs one decoder layer for one step, as `dodona layer` does, whose options of the same names these are: weights come from a
    checkpoint's folder, or from the seed. `phase`: decode, prefill, extend (behind `prefix_len` tokens of each request) or verify (the
    last `draft_tokens`); `use`: kernels of model ops, `["q_b_proj=int8_scaled_mm"]`; `linear`: the form of the linear modules of weights from the seed; `gpu`: instead of `mode`. A layer of `r1-nvfp4`, the default, holds a few
    hundred megabytes; `preset="tiny"` next to nothing."""
    options = {
        "preset": preset, "config": config, "weights": weights, "layer": layer, "mode": mode if gpu is None else None, "threads": threads, "seed": seed,
        "kv_len": [kv_len] if isinstance(kv_len, int) else list(kv_len), "batch": batch, "phase": phase,
        "prefix_len": [prefix_len] if isinstance(prefix_len, int) else prefix_len and list(prefix_len), "draft_tokens": draft_tokens,
        "backend": backend, "path": path, "experts": experts, "use": [use] if isinstance(use, str) else list(use),
        "kv_cache_dtype": kv_cache_dtype, "linear": linear, "expert_weights": expert_weights,
        "fused_shared_expert": fused_shared_expert, "gpu": gpu,
    }  # fmt: skip
    text = json.dumps({name: value for name, value in options.items() if value is not None})
    tensors, record = ctypes.c_void_p(), ctypes.c_void_p()
    check(lib.dodona_layer(text.encode(), ctypes.byref(tensors), ctypes.byref(record)))
    handle = Handle(record.value, lib.dodona_record_free)
    outputs = made_tensors(tensors.value)
    told = json.loads(lib.dodona_record_text(handle.value))
    return Layer(outputs["hidden"], outputs["residual"], told["digest"], told["model"], told["layer"], told["ops"])
