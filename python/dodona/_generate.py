"""A whole model, from tokens to tokens, run by the library."""

from __future__ import annotations

import ctypes
import json
import numbers
import operator
from dataclasses import dataclass
from typing import Callable, Sequence

from ._library import BEHIND_LAYER, BadType, Handle, check, each, fail, lib, options_bytes


@dataclass(frozen=True)
class Generated:
    """What a run of a model gave."""

    tokens: list[list[int]]
    """new tokens of each prompt"""
    model: str
    weights: str
    rounds: int
    """passes over the prompts' chunks and the tokens, or steps of speculative decoding"""
    accepted: int
    """drafted tokens that were accepted"""
    layers: int
    arithmetic_seconds: float


def generate(
    prompt_ids: Sequence[int] | Sequence[Sequence[int]],
    *,
    preset: str | None = None,
    config: str | None = None,
    weights: str | None = None,
    weights_seed: int = 0,
    linear: str | None = None,
    max_new: int = 16,
    temperature: float = 0.0,
    top_k: int = -1,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: int = 0,
    end_token: int = -1,
    speculative: str | None = None,
    speculative_num_steps: int | None = None,
    speculative_eagle_topk: int | None = None,
    speculative_num_draft_tokens: int | None = None,
    chunk: int = 512,
    experts: str | None = None,
    rounding: str = "bf16",
    use: str | Sequence[str] = (),
    kv_cache_dtype: str = "bf16",
    mode: str = "fast",
    threads: int | None = None,
    state: str | None = None,
    resume: bool = False,
    behind_layer: Callable[[int, int], object] | None = None,
) -> Generated:
    """Continues one prompt, or several together, as `dodona generate` does, whose options of the same names these are: the tokens are the
    same for any number of threads, tier, chunk and company. `preset` is "tiny" unless it, `config` or `weights` says another. Layers
    stream through memory. `behind_layer(layer, layers)` is called behind every layer; what it raises, Ctrl-C among it, stops the run and
    is raised from here, and with `state`, a file, the same call with `resume=True` goes on at the layer that was reached."""
    try:
        one = len(prompt_ids) > 0 and isinstance(prompt_ids[0], numbers.Integral)
        prompts = [[operator.index(token) for token in prompt] for prompt in ([prompt_ids] if one else prompt_ids)]
    except TypeError:
        raise fail(f"is {prompt_ids!r}, expected ids of tokens, or a list of such lists", kind=BadType, argument="prompt_ids") from None
    options = {
        "prompt_ids": prompts, "preset": preset, "config": config, "weights": weights, "weights_seed": weights_seed, "linear": linear,
        "max_new": max_new, "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed,
        "end_token": end_token, "speculative": speculative, "speculative_num_steps": speculative_num_steps,
        "speculative_eagle_topk": speculative_eagle_topk, "speculative_num_draft_tokens": speculative_num_draft_tokens, "chunk": chunk,
        "experts": experts, "rounding": rounding, "use": each(use), "kv_cache_dtype": kv_cache_dtype, "mode": mode, "threads": threads,
        "state": state, "resume": resume,
    }  # fmt: skip
    raised: list[BaseException] = []

    # Called even where nobody asks: between two layers Python sees its signals.
    def behind(layer: int, layers: int, _: object) -> int:
        try:
            if behind_layer is not None:
                behind_layer(layer, layers)
        except BaseException as error:
            raised.append(error)
            return 1
        return 0

    text = options_bytes(options)
    record = ctypes.c_void_p()
    status = lib.dodona_generate(text, BEHIND_LAYER(behind), None, ctypes.byref(record))
    if raised:
        raise raised[0]
    check(status)
    handle = Handle(record.value, lib.dodona_record_free)
    return Generated(**json.loads(lib.dodona_record_text(handle.value)))
