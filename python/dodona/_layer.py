"""A decoder layer of a real size, run by the library."""

from __future__ import annotations

import ctypes
import json
from dataclasses import dataclass
from typing import Any, Sequence

import numpy as np

from ._arrays import made_tensors
from ._library import Handle, check, each, lib, options_bytes


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
    mode: str | None = None,
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
    residual: str = "fused",
    rounding: str = "bf16",
    dual_stream: bool = False,
    prefix_chunk: int | None = None,
    page_seed: int = 0,
) -> Layer:
    """Runs one decoder layer for one step, as `dodona layer` does, whose options of the same names these are.

    Weights come from a checkpoint's folder (`weights`), or from `seed`; so do the inputs and the tokens that are cached already. A layer of
    `r1-nvfp4`, the default, holds a few hundred megabytes; `preset="tiny"` next to nothing.

    * `kv_len`, `prefix_len`, `draft_tokens`, `prefix_chunk`: tokens. `kv_len` of each request, the new ones included: one value, or a list.
      `prefix_chunk`: cached tokens of all requests that one chunk of path mha-chunked expands (131072).
    * `phase`: decode, prefill, extend (behind `prefix_len` tokens of each request) or verify (the last `draft_tokens`).
    * `mode`: fast (the default), golden, or that of a GPU, which `gpu` may name instead.
    * `use`: kernels of model ops, `["q_b_proj=int8_scaled_mm"]`; `linear`: the form of the linear modules of weights from the seed.
    * `residual`: fused (norms take the fp32 sum with it) or pre-added (the rounded sum); `rounding`: bf16, or off: what passes from op to
      op stays in fp32. `dual_stream`: upstream's order with two streams, of a mixture of experts; `page_seed`: deals the cache's pages in
      a shuffled order. Neither of the last two changes a bit.

    Gives `Layer`: `hidden` and `residual` of shape [tokens, hidden_size], in bf16 (float32 where `rounding` is off), what the layer hands
    on to the next one. Raises `Error` naming the option, what was expected and what came: a value that is none of these, a flag of experts
    for a dense layer, a kernel or mode that the layer does not have, a tensor that the checkpoint lacks."""
    options = {
        "preset": preset, "config": config, "weights": weights, "layer": layer, "mode": mode, "threads": threads, "seed": seed,
        "kv_len": each(kv_len), "batch": batch, "phase": phase,
        "prefix_len": each(prefix_len), "draft_tokens": draft_tokens,
        "backend": backend, "path": path, "experts": experts, "use": each(use),
        "kv_cache_dtype": kv_cache_dtype, "linear": linear, "expert_weights": expert_weights,
        "fused_shared_expert": fused_shared_expert, "gpu": gpu, "residual": residual, "rounding": rounding,
        "dual_stream": dual_stream, "prefix_chunk": prefix_chunk, "page_seed": page_seed,
    }  # fmt: skip
    tensors, record = ctypes.c_void_p(), ctypes.c_void_p()
    check(lib.dodona_layer(options_bytes(options), ctypes.byref(tensors), ctypes.byref(record)))
    handle = Handle(record.value, lib.dodona_record_free)
    outputs = made_tensors(tensors.value)
    told = json.loads(lib.dodona_record_text(handle.value))
    return Layer(outputs["hidden"], outputs["residual"], told["digest"], told["model"], told["layer"], told["ops"])
