"""FlashInfer's draws that are no op of their own: chains of drafts, in NumPy on the GPU's stream, and tokens by their logits."""

from __future__ import annotations

from typing import Any, Callable, Optional

import numpy as np

from ._adapt import refuse
from ._hooks.arrays import as_f32, bare, not_writable, type_of
from ._hooks.draws import as_signed, softmax, stream_that_is_said
from ._layouts import as_given

MULTIPLIERS, STEPS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
WORD = np.uint64(0xFFFFFFFF)


def philox_words(seed: int, rows: int, first: int, count: int) -> np.ndarray:
    """Words `first` and on of Philox 4x32-10 in as many subsequences as there are rows, [rows, count]."""
    blocks = np.arange(first // 4, (first + count + 3) // 4, dtype=np.uint64)
    shape = (rows, len(blocks))
    x = np.broadcast_to(blocks & WORD, shape)
    y = np.broadcast_to(blocks >> np.uint64(32), shape)
    z = np.broadcast_to(np.arange(rows, dtype=np.uint64)[:, None], shape)
    w = np.zeros(shape, np.uint64)
    keys = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(10):
        left, right = np.uint64(MULTIPLIERS[0]) * x, np.uint64(MULTIPLIERS[1]) * z
        x, y, z, w = right >> np.uint64(32) ^ y ^ np.uint64(keys[0]), right & WORD, left >> np.uint64(32) ^ w ^ np.uint64(keys[1]), left & WORD
        keys = [(key + step) & 0xFFFFFFFF for key, step in zip(keys, STEPS)]
    words = np.stack([x, y, z, w], axis=-1).reshape(rows, -1)
    return words[:, first % 4 : first % 4 + count].astype(np.uint32)


def uniforms(seed: int, rows: int, offset: int, count: int) -> np.ndarray:
    """curand_uniform: above 0, at most 1."""
    return philox_words(seed, rows, offset, count).astype(np.float32) * np.float32(2.0**-32) + np.float32(2.0**-33)


def _stream(name: str, generator: Any, seed: Any, offset: Any) -> tuple[int, int]:
    call = {"seed": seed, "offset": offset, "philox_seed": 0, "philox_offset": 0}
    if generator is not None:
        call["philox_seed"] = as_signed(generator.initial_seed())
        if getattr(generator.device, "type", "") == "cuda":
            call["philox_offset"] = generator.get_offset()
    stream_that_is_said(name, call)
    return call["philox_seed"] & (2**64 - 1), call["philox_offset"] & (2**64 - 1)


def _probabilities(name: str, argument: str, value: Any, shape: Optional[tuple] = None) -> np.ndarray:
    array = bare(value)
    if not hasattr(array, "shape") or len(array.shape) != 3 or type_of(value) not in ("f32", "f16", "bf16") or shape not in (None, tuple(array.shape)):
        found = f"is {array.dtype} {list(array.shape)}" if hasattr(array, "shape") else f"is {array!r}"
        raise refuse(name, f"{found}, expected probabilities {'[B, S, V]' if shape is None else list(shape)}", argument=argument, code="bad_shape")
    return np.asarray(as_f32(array))


def _counts(name: str, argument: str, value: Any, rows: int, model: Any) -> Any:
    """What a call adds to, zeros where there is none."""
    if value is None:
        return as_given(np.zeros(rows, np.int32), model)
    array = bare(value)
    if tuple(getattr(array, "shape", ())) != (rows,) or type_of(array) != "i32":
        found = f"is {array.dtype} {list(array.shape)}" if hasattr(array, "shape") else f"is {array!r}"
        raise refuse(name, f"{found}, expected int32 [{rows}]", argument=argument, code="bad_dtype")
    if reason := not_writable(array):
        raise refuse(name, f"{reason}, and is written", argument=argument)
    return array


def chain_speculative_sampling(
    draft_probs: Any, draft_token_ids: Any, target_probs: Any, maybe_output_accepted_token_num: Any = None, maybe_output_emitted_draft_token_num: Any = None,
    deterministic: bool = True, generator: Any = None, *, seed: Any = None, offset: Any = None,
) -> tuple:  # fmt: skip
    """Draft tokens are taken while u * draft < target, in fp32; at the first that is not, or behind the last, a token by what the target has beyond the
    draft. Sums of probabilities are of double precision. Tokens [B, S + 1], -1 behind the last one; how many drafts would have been accepted, and how
    many were emitted, are added to what the caller gives."""
    name = "chain_speculative_sampling"
    draft = _probabilities(name, "draft_probs", draft_probs)
    rows, steps, vocabulary = draft.shape
    target = _probabilities(name, "target_probs", target_probs, (rows, steps + 1, vocabulary))
    given = bare(draft_token_ids)
    if tuple(getattr(given, "shape", ())) != (rows, steps) or type_of(given) not in ("i32", "i64"):
        found = f"is {given.dtype} {list(given.shape)}" if hasattr(given, "shape") else f"is {given!r}"
        raise refuse(name, f"{found}, expected int32 or int64 {[rows, steps]}", argument="draft_token_ids", code="bad_dtype")
    ids = np.asarray(given).astype(np.int64)
    if ((ids < 0) | (ids >= vocabulary)).any():
        raise refuse(name, f"holds {ids[(ids < 0) | (ids >= vocabulary)][0]}, expected tokens below {vocabulary}", argument="draft_token_ids")
    accepted = _counts(name, "maybe_output_accepted_token_num", maybe_output_accepted_token_num, rows, bare(draft_probs))
    emitted = _counts(name, "maybe_output_emitted_draft_token_num", maybe_output_emitted_draft_token_num, rows, bare(draft_probs))
    key, first = _stream(name, generator, seed, offset)
    u = uniforms(key, rows, first, steps + 2)
    q = np.take_along_axis(target[:, :steps], ids[..., None], 2)[..., 0]
    p = np.take_along_axis(draft, ids[..., None], 2)[..., 0]
    tokens, number = np.full((rows, steps + 1), -1, np.int32), np.arange(rows)
    taken = u[:, :steps] * p < q
    position = np.where(taken.all(1), steps, np.argmin(taken, 1)) if steps else np.zeros(rows, np.int64)
    # The number that refused a draft is used up. That draft and those behind it are tried with the numbers that follow, then comes that of the token.
    behind = ((np.arange(steps) >= position[:, None]) & (u[:, 1 : steps + 1] * p < q)).sum(1)
    emitting = np.arange(steps) < position[:, None]
    tokens[:, :steps][emitting] = ids[emitting]
    padded = np.concatenate([draft, np.zeros((rows, 1, vocabulary), np.float32)], axis=1)
    beyond = np.maximum(target[number, position] - padded[number, position], np.float32(0)).astype(np.float64)
    sums = beyond.cumsum(1)
    last = u[number, np.where(position < steps, steps + 1, steps)]
    reached = sums > (last.astype(np.float64) * sums[:, -1])[:, None]
    largest = vocabulary - 1 - np.argmax((beyond > 0)[:, ::-1], 1)
    tokens[number, position] = np.where(reached.any(1), np.argmax(reached, 1), largest)
    _add(accepted, position + behind)
    _add(emitted, position)
    return as_given(tokens, bare(draft_probs)), accepted, emitted


def _add(counts: Any, values: np.ndarray) -> None:
    counts += as_given(values.astype(np.int32), counts)


def from_logits(function: Callable[[str], Callable[..., Any]]) -> Callable[..., Any]:
    def sampling_from_logits(
        logits: Any, indices: Any = None, deterministic: bool = True, generator: Any = None, check_nan: bool = False, *, seed: Any = None,
        offset: Any = None, **how: Any,
    ) -> Any:  # fmt: skip
        """sampling_from_probs of their softmax: the distribution that upstream's noise gives, but not the token that it gives for a seed."""
        name = "sampling_from_logits"
        array = bare(logits)
        if not hasattr(array, "shape") or len(array.shape) != 2 or type_of(logits) not in ("f32", "f16", "bf16"):
            found = f"is {array.dtype} {list(array.shape)}" if hasattr(array, "shape") else f"is {array!r}"
            raise refuse(name, f"{found}, expected logits [rows, vocabulary]", argument="logits", code="bad_shape")
        if check_nan and bool((array != array).any()):
            raise refuse(name, "Input logits contains NaN.", argument="logits")
        said = {key: value for key, value in (("seed", seed), ("offset", offset)) if value is not None}
        return function("sampling_from_probs")(softmax(logits), indices, deterministic, generator, **said, **how)

    return sampling_from_logits
