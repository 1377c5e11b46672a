"""vLLM's routers that choose by a bias and weigh without it, and what stands before them. In NumPy, in fp32; of equal scores the first expert is taken.
Scores that are no numbers are 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._arrays import is_torch
from ..._ops import function
from .._adapt import NotOffered, named, refuse
from .._layouts import as_given
from .arrays import as_f32, bare, type_of
from .checks import of_shape, of_type, shape_of, writable

TINY = np.float32(1e-20)
LOWEST = np.float32(-np.inf)
ROUTER_SHAPES, MOST_TOKENS = ((3072, 256), (6144, 128), (6144, 256)), 32


def numbers_of(name: str, argument: str, value: Any) -> np.ndarray:
    of_type(name, argument, value, "f32", "bf16", "f16")
    wide = as_f32(bare(value))
    return np.asarray(wide.detach() if is_torch(wide) else wide, np.float32)


def scored(logits: np.ndarray, sigmoid: bool) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        powers = np.exp(-logits.astype(np.float64) if sigmoid else (logits - logits.max(-1, keepdims=True)).astype(np.float64))
        scores = (1 / (1 + powers) if sigmoid else powers / powers.sum(-1, keepdims=True)).astype(np.float32)
    return np.where(np.isfinite(scores) & np.isfinite(logits), scores, np.float32(0))


def few_enough(name: str, topk: int, experts: int) -> None:
    if not 1 <= topk <= experts:
        raise refuse(name, f"has {topk} columns, expected 1 to {experts}", argument="topk_weights", code="bad_shape")


def chosen(name: str, scores: np.ndarray, bias: Any, topk: int) -> np.ndarray:
    """Experts by score plus bias."""
    choice = scores
    if bias is not None:
        of_shape(name, "e_score_correction_bias", bias, (scores.shape[1],))
        choice = scores + numbers_of(name, "e_score_correction_bias", bias)
    return np.argsort(-choice, axis=1, kind="stable")[:, :topk]


def weights_of(scores: np.ndarray, ids: np.ndarray, renormalize: bool, factor: float) -> np.ndarray:
    weights = np.take_along_axis(scores, ids, 1)
    if renormalize:
        sums = weights.sum(1, keepdims=True)
        weights = weights / np.where(sums > 0, sums, np.float32(1))
    return (weights * np.float32(factor)).astype(np.float32)


def weighed(name: str, scores: np.ndarray, bias: Any, topk: int, renormalize: bool, factor: float) -> tuple[np.ndarray, np.ndarray]:
    """Experts by score plus bias, and weights without it."""
    few_enough(name, topk, scores.shape[1])
    ids = chosen(name, scores, bias, topk)
    return weights_of(scores, ids, renormalize, factor), ids.astype(np.int32)


def put(name: str, weights: Any, ids: Any, places: Any, made: tuple[np.ndarray, np.ndarray]) -> None:
    """Into the caller's arrays; token_expert_indices[t, k] is k * tokens + t."""
    tokens, topk = made[0].shape
    for argument, value in (("topk_weights", weights), ("topk_ids", ids), ("token_expert_indices", places)):
        of_shape(name, argument, value, (tokens, topk))
        writable(name, argument, value)
    of_type(name, "topk_weights", weights, "f32")
    of_type(name, "token_expert_indices", places, "i32")
    if str(bare(ids).dtype).rpartition(".")[2] != "uint32":  # which no op of ours has
        of_type(name, "topk_ids", ids, "i32", "i64")
    numbers = np.arange(tokens * topk, dtype=np.int32).reshape(topk, tokens).T.copy()
    for value, array in ((weights, made[0]), (ids, made[1]), (places, numbers)):
        target = bare(value)
        target[...] = as_given(array, target).to(target.dtype) if is_torch(target) else array


def _no_padding(name: str, is_padding: Any) -> None:
    if is_padding is not None:
        raise refuse(name, "is given, offered is None", kind=NotOffered, code="unsupported", argument="is_padding")


@named("topk_sigmoid")
def topk_sigmoid(
    topk_weights: Any, topk_ids: Any, token_expert_indices: Any, gating_output: Any, renormalize: bool = False, e_score_correction_bias: Any = None,
    routed_scaling_factor: float = 1.0, is_padding: Any = None,
) -> None:  # fmt: skip
    """Experts of the largest sigmoids, or of sigmoid plus bias; the factor multiplies the weights."""
    name = "topk_sigmoid"
    _no_padding(name, is_padding)
    tokens, topk = shape_of(name, "topk_weights", topk_weights, 2)
    of_shape(name, "gating_output", gating_output, (tokens, shape_of(name, "gating_output", gating_output, 2)[1]))
    scores = scored(numbers_of(name, "gating_output", gating_output), True)
    put(name, topk_weights, topk_ids, token_expert_indices, weighed(name, scores, e_score_correction_bias, topk, renormalize, routed_scaling_factor))


def softmax_with_bias(name: str, call: dict) -> None:
    """topk_softmax, whose bias steers the choice alone."""
    _, topk = shape_of(name, "topk_weights", call["topk_weights"], 2)
    scores = scored(numbers_of(name, "gating_output", call["gating_output"]), False)
    made = weighed(name, scores, call["e_score_correction_bias"], topk, bool(call.get("renormalize")), 1.0)
    put(name, call["topk_weights"], call["topk_ids"], call["token_expert_indices"], made)


GROUPED = ("num_expert_group", "topk_group", "topk", "renormalize", "routed_scaling_factor")


@named("grouped_topk")
def grouped_topk(scores: Any, *rest: Any, **others: Any) -> tuple[Any, Any]:
    """The best experts of the best groups, by score plus bias; a group is as good as its two best, weights are the scores, over their sum where
    renormalize asks for it, times the factor. Behind scores stand those with the bias, then the numbers; newer versions have the bias, and whether
    scores are logits of sigmoids (1), behind the numbers."""
    name = "grouped_topk"
    older = "scores_with_bias" in others or bool(rest) and hasattr(bare(rest[0]), "shape")
    names = ("scores_with_bias", *GROUPED) if older else (*GROUPED, "bias", "scoring_func")
    given = {"scoring_func": 0, **dict(zip(names, rest)), **others}
    if len(rest) > len(names) or set(names[: len(rest)]) & others.keys() or given.keys() - {*names, "scoring_func"}:
        raise refuse(name, f"takes {', '.join(names)} behind scores, and has {[*given]}")
    for argument in names:
        if argument not in given:
            raise refuse(name, "is required", argument=argument, code="missing_argument")
    tokens, experts = shape_of(name, "scores", scores, 2)
    groups, kept, topk = (given[argument] for argument in GROUPED[:3])
    if not isinstance(groups, int) or groups < 1 or experts % groups or not 1 <= kept <= groups or not 1 <= topk <= kept * (experts // groups):
        raise refuse(name, f"is {groups}, with {kept} kept and {topk} chosen of {experts} experts", argument="num_expert_group")
    if given["scoring_func"] not in (0, 1):
        raise refuse(name, f"is {given['scoring_func']!r}, expected 0 or 1", argument="scoring_func")
    own = numbers_of(name, "scores", scores)
    own = scored(own, True) if given["scoring_func"] else own
    other = "scores_with_bias" if older else "bias"
    of_shape(name, other, given[other], (tokens, experts) if older else (experts,))
    choice = numbers_of(name, other, given[other]) if older else own + numbers_of(name, other, given[other])
    parts = choice.reshape(tokens, groups, -1)
    best = np.sort(parts, axis=2)[..., -min(2, parts.shape[2]) :].sum(2)
    there = np.zeros((tokens, groups), bool)
    np.put_along_axis(there, np.argsort(-best, axis=1, kind="stable")[:, :kept], True, 1)
    ids = np.argsort(-np.where(np.repeat(there, experts // groups, axis=1), choice, LOWEST), axis=1, kind="stable")[:, :topk].astype(np.int32)
    weights = np.take_along_axis(own, ids.astype(np.int64), 1)
    sums = weights.sum(1, keepdims=True) if given["renormalize"] else np.ones((tokens, 1), np.float32)
    weights = weights / (sums + TINY) if given["renormalize"] else weights
    weights = np.where(sums > 0, weights * np.float32(given["routed_scaling_factor"]), np.float32(1 / topk)).astype(np.float32)  # of no number, alike
    return as_given(weights, bare(scores)), as_given(ids, bare(scores))


@named("fp32_router_gemm")
def fp32_router_gemm(hidden_states: Any, router_weight: Any, **how: Any) -> Any:
    """Logits in fp32 of 1 to 32 tokens, for weights in fp32."""
    name = "fp32_router_gemm"
    (tokens, inner), (experts, depth) = shape_of(name, "hidden_states", hidden_states, 2), shape_of(name, "router_weight", router_weight, 2)
    if type_of(hidden_states) not in ("f32", "bf16"):
        raise refuse(name, f"is {type_of(hidden_states)}, expected float32 or bfloat16", argument="hidden_states", code="bad_dtype")
    if type_of(router_weight) != "f32":
        raise refuse(name, f"is {type_of(router_weight)}, expected float32", argument="router_weight", code="bad_dtype")
    if depth != inner or (inner, experts) not in ROUTER_SHAPES:
        raise refuse(name, f"has shape {[experts, depth]} for rows of {inner}, supported are {ROUTER_SHAPES} columns and experts", argument="router_weight", code="bad_shape")
    if tokens > MOST_TOKENS:
        raise refuse(name, f"has {tokens} rows, expected num_tokens up to {MOST_TOKENS}", argument="hidden_states", code="bad_shape")
    for argument, value in (("hidden_states", hidden_states), ("router_weight", router_weight)):
        array = bare(value)
        if not (array.is_contiguous() if is_torch(array) else array.flags.c_contiguous):
            raise refuse(name, "is not contiguous, expected contiguous rows", argument=argument, code="bad_layout")
    return function("linear")(as_f32(bare(hidden_states)), bare(router_weight), "f32", **{"mode": "golden", **how})  # few sums, each rounded once


@named("concat_mla_q")
def concat_mla_q(ql_nope: Any, q_pe: Any, q_out: Any) -> None:
    """Both parts of a head's query beside one another."""
    name = "concat_mla_q"
    (*lead, latent), (*_, rotated) = shape_of(name, "ql_nope", ql_nope, 3), shape_of(name, "q_pe", q_pe, 3)
    of_shape(name, "q_pe", q_pe, (*lead, rotated))
    of_shape(name, "q_out", q_out, (*lead, latent + rotated))
    of_type(name, "ql_nope", ql_nope, "bf16", "f16", "f32")
    for argument, value in (("q_pe", q_pe), ("q_out", q_out)):
        of_type(name, argument, value, type_of(ql_nope))
    writable(name, "q_out", q_out)
    bare(q_out)[..., :latent], bare(q_out)[..., latent:] = bare(ql_nope), bare(q_pe)


ROUTERS = (concat_mla_q, fp32_router_gemm, grouped_topk, topk_sigmoid)
