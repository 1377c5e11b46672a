"""vLLM's blocks of rows for experts where tokens lie in batches of experts, its router of square roots of softplus, and the largest logits of rows."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from ..._arrays import is_torch
from .._adapt import named, refuse
from .._layouts import as_given
from .arrays import bare, type_of
from .checks import of_shape, of_type, shape_of, writable
from .vllm import numbers
from .vllm_routers import chosen, few_enough, numbers_of, put, weights_of


def _count(name: str, argument: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise refuse(name, f"is {value!r}, expected a positive number", argument=argument)
    return int(value)


@named("batched_moe_align_block_size")
def batched_moe_align_block_size(
    max_tokens_per_batch: int, block_size: int, expert_num_tokens: Any, sorted_ids: Any, expert_ids: Any, num_tokens_post_pad: Any
) -> None:
    """Rows of each expert's batch, e * max_tokens_per_batch + i, in whole blocks; what fills up is the number of all rows, and blocks of nobody are -1."""
    name = "batched_moe_align_block_size"
    most, block = _count(name, "max_tokens_per_batch", max_tokens_per_batch), _count(name, "block_size", block_size)
    counts = numbers(name, "expert_num_tokens", expert_num_tokens, "i32").astype(np.int64)
    shape_of(name, "expert_num_tokens", expert_num_tokens, 1)
    if counts.size and not 0 <= counts.min() <= counts.max() <= most:
        raise refuse(name, f"holds {counts.min()} to {counts.max()}, expected 0 to {most}", argument="expert_num_tokens")
    room = {"sorted_ids": sorted_ids, "expert_ids": expert_ids, "num_tokens_post_pad": num_tokens_post_pad}
    blocks = -(-counts // block)
    for argument, wanted in (("sorted_ids", int(blocks.sum()) * block), ("expert_ids", int(blocks.sum())), ("num_tokens_post_pad", 1)):
        (there,) = shape_of(name, argument, room[argument], 1)
        of_type(name, argument, room[argument], "i32")
        writable(name, argument, room[argument])
        if there < wanted:
            raise refuse(name, f"has room for {there}, expected {wanted} at least", argument=argument, code="bad_shape")
    ids = np.full(bare(sorted_ids).shape[0], len(counts) * most, np.int32)
    begin = 0
    for expert, count in enumerate(counts):
        ids[begin : begin + count] = expert * most + np.arange(count)
        begin += int(blocks[expert]) * block
    of_block = np.full(bare(expert_ids).shape[0], -1, np.int32)
    of_block[: blocks.sum()] = np.repeat(np.arange(len(counts)), blocks)
    for target, made in ((bare(sorted_ids), ids), (bare(expert_ids), of_block), (bare(num_tokens_post_pad), np.array([begin], np.int32))):
        target[: len(made)] = as_given(made, target)


@named("topk_hash_softplus_sqrt")
def topk_hash_softplus_sqrt(
    topk_weights: Any, topk_indices: Any, token_expert_indices: Any, gating_output: Any, renormalize: bool = False, routed_scaling_factor: float = 1.0,
    e_score_correction_bias: Any = None, input_tokens: Any = None, hash_indices_table: Any = None, is_padding: Optional[Any] = None,
) -> None:  # fmt: skip
    """Experts by sqrt(softplus(logit)) plus a bias, or those that a table has for each token's word; weights without the bias, over their sum where asked for, times the factor. What
    is no number is 0; a row of padding has experts -1 of weight 0."""
    name = "topk_hash_softplus_sqrt"
    tokens, experts = shape_of(name, "gating_output", gating_output, 2)
    _, topk = shape_of(name, "topk_weights", topk_weights, 2)
    few_enough(name, topk, experts)
    logits = numbers_of(name, "gating_output", gating_output).astype(np.float64)
    with np.errstate(invalid="ignore"):
        scores = np.sqrt(np.where(logits > 20, logits, np.logaddexp(0, np.minimum(logits, 20)))).astype(np.float32)
    scores = np.where(np.isfinite(scores), scores, np.float32(0))
    if (input_tokens is None) != (hash_indices_table is None):
        raise refuse(name, "is missing, expected input_tokens and hash_indices_table or none", argument="input_tokens" if input_tokens is None else "hash_indices_table")
    if hash_indices_table is not None:
        ids = _by_word(name, input_tokens, hash_indices_table, tokens, topk, experts)
    else:
        ids = chosen(name, scores, e_score_correction_bias, topk)
    weights = weights_of(scores, ids, renormalize, routed_scaling_factor)
    if is_padding is not None:
        of_shape(name, "is_padding", is_padding, (tokens,))
        padding = np.asarray(bare(is_padding)).astype(bool)
        weights[padding], ids = 0, np.where(padding[:, None], -1, ids)
    put(name, topk_weights, topk_indices, token_expert_indices, (weights, ids.astype(np.int32)))


def _by_word(name: str, words: Any, table: Any, tokens: int, topk: int, experts: int) -> np.ndarray:
    of_shape(name, "input_tokens", words, (tokens,))
    count, _ = shape_of(name, "hash_indices_table", table, 2)
    of_shape(name, "hash_indices_table", table, (count, topk))
    of_word, of_table = numbers(name, "input_tokens", words, "i32", "i64"), numbers(name, "hash_indices_table", table, "i32", "i64")
    if of_word.size and not 0 <= of_word.min() <= of_word.max() < count:
        raise refuse(name, f"holds {of_word.min()} to {of_word.max()}, expected words below {count}", argument="input_tokens")
    ids = of_table[of_word].astype(np.int64)
    if ids.size and not 0 <= ids.min() <= ids.max() < experts:
        raise refuse(name, f"names experts {ids.min()} to {ids.max()} of {experts}", argument="hash_indices_table")
    return ids


def _placed(name: str, indices: Any, logits: Any, num_rows: int) -> None:
    if num_rows != bare(logits).shape[0]:
        raise refuse(name, f"is {num_rows}, expected {bare(logits).shape[0]}, the rows of logits", argument="num_rows")


@named("top_k_per_row_prefill")
def top_k_per_row_prefill(
    logits: Any, cu_seqlen_ks: Any, cu_seqlen_ke: Any, raw_topk_indices: Any, num_rows: int, stride0: int, stride1: int, topk_tokens: int
) -> None:
    """The places, from a row's start on, of its range's largest logits; see of_ranges. Strides are the tensor's own."""
    from .._row_topk import of_ranges

    name = "top_k_per_row_prefill"
    _placed(name, raw_topk_indices, logits, num_rows)
    of_ranges(name, logits, cu_seqlen_ks, cu_seqlen_ke, raw_topk_indices, topk_tokens)


@named("top_k_per_row_decode")
def top_k_per_row_decode(logits: Any, next_n: int, seq_lens: Any, raw_topk_indices: Any, num_rows: int, stride0: int, stride1: int, topk_tokens: int) -> None:
    """The same of requests that have next_n rows each."""
    from .._row_topk import of_lengths

    name = "top_k_per_row_decode"
    _placed(name, raw_topk_indices, logits, num_rows)
    of_lengths(name, logits, seq_lens, raw_topk_indices, next_n, topk_tokens)


EXPERTS = (batched_moe_align_block_size, topk_hash_softplus_sqrt, top_k_per_row_decode, top_k_per_row_prefill)
