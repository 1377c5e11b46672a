"""Sampling, drafts and what they choose among."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

from ..._arrays import dtype_name, is_torch
from .._adapt import Call, NotOffered, refuse
from .arrays import Run, as_f32, bare, bytes_as, like


def thresholds(**kinds: str) -> Callable[[Call], None]:
    """Probabilities and logits as float32; thresholds, where each row has one, as the type given here, and 1 where there is none."""

    def convert(call: Call) -> None:
        for name in ("probs", "logits"):
            if name in call:
                call[name] = as_f32(call[name])
        for name, kind in kinds.items():
            value = bare(call[name])
            if value is None:
                call[name] = 1.0
            elif getattr(value, "shape", None):
                whole = value.int() if is_torch(value) else value.astype(np.int32, copy=False)
                call[name] = whole if kind == "int32" else as_f32(value)

    return convert


def as_signed(word: int) -> int:
    """The same 64 bits."""
    word &= 2**64 - 1
    return word - 2**64 if word >= 2**63 else word


def drawn(generator: str, **kinds: str) -> Callable[[Call], None]:
    """As thresholds, with the stream of a CUDA generator: its seed, and its offset before the call. Of any other generator the seed alone.
    The generator is not advanced."""
    convert = thresholds(**kinds)

    def read(call: Call) -> None:
        convert(call)
        if call.get("check_nan") and bool((call["probs"] != call["probs"]).any()):
            raise refuse("sampling", "Input probs contains NaN.", argument="probs")
        given = call[generator]
        if given is not None:
            call["philox_seed"] = as_signed(given.initial_seed())
            if getattr(given.device, "type", "") == "cuda":
                call["philox_offset"] = given.get_offset()

    return read


def threshold_a_row(name: str, **kinds: str) -> Callable[[Call], None]:
    """FlashInfer's thresholds are numbers, or one for each row; the beginnings of its refusals are looked for by its callers."""

    def check(call: Call) -> None:
        rows = len(bare(call["probs"] if "probs" in call else call["logits"]))
        for threshold in kinds:
            shape = getattr(bare(call[threshold]), "shape", None)
            if shape is None or isinstance(call[threshold], np.generic):
                continue
            if len(shape) == 0:
                text = "Expected a 1D tensor of shape (batch_size,) or scalar, got a 0-dimensional tensor"
            elif len(shape) > 1:
                text = f"Expected a 1D tensor or scalar, got a {len(shape)}D tensor"
            elif call.get("indices") is None and shape[0] != rows:
                text = f"Sampling parameter tensor batch size mismatch: {shape[0]} thresholds, expected {rows}"
            else:
                continue
            raise refuse(name, f"{threshold}: {text}", code="bad_shape")

    return check


def type_kept(name: str, argument: str, **kinds: str) -> Callable[[Run, Call], Any]:
    """Of 16-bit numbers what is computed in float32 is rounded back."""
    check, convert = threshold_a_row(name, **kinds), thresholds(**kinds)

    def around(run: Run, call: Call) -> Any:
        check(call)
        given = bare(call[argument])
        convert(call)
        result = run(call)
        if is_torch(given):
            return result.to(given.dtype)
        return result.astype(given.dtype) if given.dtype.kind != "u" else result  # codes in integers say no type

    return around


def seeded(name: str, *, zeros_are_drawn: bool = False, **kinds: str) -> Callable[[Run, Call], Any]:
    """As drawn, with the stream's seed and offset said instead, where they are; samples have the type of the numbers of the rows."""
    check, convert = threshold_a_row(name, **kinds), drawn("generator", **kinds)

    def around(run: Run, call: Call) -> Any:
        check(call)
        convert(call)
        stream_that_is_said(name, call)
        if call.pop("return_valid"):
            return samples_and_validity(lambda left: samples_by_rows(run, left), call, zeros_are_drawn)
        return samples_by_rows(run, call)

    return around


def stream_that_is_said(name: str, call: Call) -> None:
    if (call["seed"] is None) != (call["offset"] is None):
        missing, there = ("seed", "offset") if call["seed"] is None else ("offset", "seed")
        raise refuse(name, f"is none where {there} is given", argument=missing, code="missing_argument")
    for part in ("seed", "offset"):
        value = bare(call[part])
        if value is None:
            continue
        if int(np.prod(getattr(value, "shape", ()))) != 1:
            text = f"has shape {list(value.shape)}, offered is one element: a stream for each row is not"
            raise refuse(name, text, kind=NotOffered, code="unsupported", argument=part)
        call[f"philox_{part}"] = as_signed(int(value if isinstance(value, int) else value.reshape(-1)[0]))


def samples_by_rows(run: Run, call: Call) -> Any:
    rows = bare(call["indices"])
    if rows is None or dtype_name(rows.dtype) != "i64":
        return run(call)
    samples = run({**call, "indices": rows.int() if is_torch(rows) else rows.astype(np.int32)})
    return samples.long() if is_torch(samples) else samples.astype(np.int64)


def samples_and_validity(run: Run, call: Call, zeros_are_drawn: bool) -> Any:
    """Upstream's sample of a row with nothing to draw is 0, and not valid; the ops refuse such rows, so another stands in."""
    probs, rows = bare(call["probs"]), bare(call["indices"])
    drawable = ((probs >= 0) if zeros_are_drawn else (probs > 0)).any(-1)
    stand_in = probs.clone() if is_torch(probs) else probs.copy()
    stand_in[~drawable] = 1.0 / max(probs.shape[-1], 1)
    samples = run({**call, "probs": stand_in})
    valid = drawable if rows is None else drawable[rows]
    samples[~valid] = 0
    return samples, valid


def counts_of_output_rows(around: Callable[[Run, Call], Any]) -> Callable[[Run, Call], Any]:
    """Of top_k alone upstream's kernel reads the count of the output row, where others read that of the row of probs."""

    def run_rows(run: Run, call: Call) -> Any:
        rows, probs = bare(call["indices"]), bare(call["probs"])
        if rows is None or not getattr(bare(call["top_k"]), "shape", None):
            return run(call)
        if stray := [row for row in rows.tolist() if not 0 <= row < len(probs)]:
            raise refuse("top_k_sampling_from_probs", f"names row {stray[0]} of {len(probs)}", argument="indices")
        return run({**call, "probs": probs[rows], "indices": None})

    return lambda run, call: around(lambda left: run_rows(run, left), call)


def each_or_one(*names: str, then: Callable[[Call], None] | None = None) -> Callable[[Call], None]:
    """Of the operators: a tensor with a threshold for each row, or a number for all."""

    def choose(call: Call) -> None:
        for name in names:
            each, one = call[f"maybe_{name}_arr"], call[f"{name}_val"]
            call[name] = each if each is not None else int(one) if name == "top_k" else one
        if then is not None:
            then(call)

    return choose


def softmax(logits: Any) -> Any:
    """Of each row, as torch has it; in NumPy where the array is NumPy's."""
    logits = as_f32(bare(logits))
    if is_torch(logits):
        return logits.softmax(-1)
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def from_logits(function: Callable[[str], Callable[..., Any]]) -> Callable[..., Any]:
    """Upstream's composition of a package's functions."""

    def top_k_top_p_sampling_from_logits(
        logits: Any,
        top_k: Any,
        top_p: Any,
        indices: Any = None,
        filter_apply_order: str = "top_k_first",
        deterministic: bool = True,
        generator: Any = None,
        check_nan: bool = False,
        **how: Any,
    ) -> Any:
        """A mask and top_p_sampling_from_probs, or top_k_top_p_sampling_from_probs jointly; `how` as those have it."""
        drawn_as = {"deterministic": deterministic, "generator": generator, "check_nan": check_nan, **how}
        if filter_apply_order == "joint":
            return function("top_k_top_p_sampling_from_probs")(softmax(logits), top_k, top_p, indices, "joint", **drawn_as)
        if filter_apply_order != "top_k_first":
            text = f"is {filter_apply_order!r}, expected 'top_k_first' or 'joint'"
            raise refuse("top_k_top_p_sampling_from_logits", text, argument="filter_apply_order")
        return function("top_p_sampling_from_probs")(softmax(function("top_k_mask_logits")(logits, top_k)), top_p, indices, **drawn_as)

    return top_k_top_p_sampling_from_logits


def tree_as_callers_have_it(call: Call) -> None:
    """Rows of more than eight bits are words; of one step there are no parents."""
    mask = call["tree_mask"]
    if call["tree_mask_mode"] == 2 and bare(mask).dtype.itemsize > 1:
        call["tree_mask"] = bytes_as(bare(mask), "u8")
    if call["depth"] == 1:  # no parents are read, and upstream has none
        parents = bare(call["selected_index"])
        call["parent_list"] = parents.new_zeros((len(parents), 1)) if is_torch(parents) else np.zeros((len(parents), 1), np.int64)


def indptr_of_the_batch(call: Call) -> None:
    """There may be more offsets than are read."""
    for name in ("input_indptr", "output_indptr"):
        call[name] = call[name][: call["batch_size"] + 1]


def largest_along(run: Run, call: Call) -> Any:
    """Any dimension, as torch has it."""
    values, dim = call["values"], call["dim"]
    rank = bare(values).ndim
    if dim in (-1, rank - 1):
        return run(call)
    call["values"], call["dim"] = like(values, bare(values).swapaxes(dim, -1)), -1
    return tuple(like(found, bare(found).swapaxes(dim, -1)) for found in run(call))
