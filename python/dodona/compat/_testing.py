"""sgl_kernel's modules for tests of its own, with torch: rotations in its native operations, pools, inputs, and how codes are compared.

torch is imported where it is used: sgl_kernel can be used without it."""

from __future__ import annotations

import functools
from typing import Any, Optional

from ._adapt import refuse


def _apply_rotary_emb(x: Any, cos: Any, sin: Any, is_neox_style: bool) -> Any:
    """Pairs of x [T, H, D] turned by cos and sin [T, D/2], in the type of x: the halves of a row (neox), or neighbours."""
    import torch

    cos, sin = (angle.unsqueeze(-2).to(x.dtype) for angle in (cos, sin))
    first, second = x.chunk(2, dim=-1) if is_neox_style else (x[..., ::2], x[..., 1::2])
    turned = (first * cos - second * sin, second * cos + first * sin)
    return torch.cat(turned, dim=-1) if is_neox_style else torch.stack(turned, dim=-1).flatten(-2)


@functools.cache
def rotary_classes() -> dict[str, type]:
    import torch

    class RotaryEmbedding(torch.nn.Module):
        """The first rotary_dim numbers of each head turned, with torch's own operations."""

        def __init__(self, head_size: int, rotary_dim: int, max_position_embeddings: int, base: int, is_neox_style: bool, dtype: Any) -> None:
            super().__init__()
            self.head_size, self.rotary_dim, self.base = head_size, rotary_dim, base
            self.max_position_embeddings, self.is_neox_style, self.dtype = max_position_embeddings, is_neox_style, dtype
            self.register_buffer("cos_sin_cache", self._compute_cos_sin_cache(), persistent=False)

        def _compute_inv_freq(self, base: float) -> Any:
            return 1.0 / base ** (torch.arange(0, self.rotary_dim, 2, dtype=torch.float32) / self.rotary_dim)

        def _compute_cos_sin_cache(self) -> Any:
            angles = torch.outer(torch.arange(self.max_position_embeddings, dtype=torch.float32), self._compute_inv_freq(self.base))
            return torch.cat((angles.cos(), angles.sin()), dim=-1)

        def _turned(self, x: Any, tokens: int, cos: Any, sin: Any) -> Any:
            heads = x.view(tokens, -1, self.head_size)
            rotated = _apply_rotary_emb(heads[..., : self.rotary_dim], cos, sin, self.is_neox_style)
            return torch.cat((rotated, heads[..., self.rotary_dim :]), dim=-1).reshape(x.shape).to(self.dtype)

        def forward_native(self, positions: Any, query: Any, key: Any, offsets: Any = None, fused_set_kv_buffer_arg: Any = None) -> tuple:
            if fused_set_kv_buffer_arg is not None:
                raise refuse("RotaryEmbedding", "is given, expected None", argument="fused_set_kv_buffer_arg")
            at = (positions if offsets is None else positions + offsets).flatten()
            cos, sin = self.cos_sin_cache.index_select(0, at).chunk(2, dim=-1)
            return self._turned(query, len(at), cos, sin), self._turned(key, len(at), cos, sin)

    class FlashInferRotaryEmbedding(RotaryEmbedding):
        """By apply_rope_with_cos_sin_cache_inplace."""

        def forward_cuda(self, positions: Any, query: Any, key: Any, offsets: Any = None, fused_set_kv_buffer_arg: Any = None) -> tuple:
            from . import sgl_kernel

            sgl_kernel.apply_rope_with_cos_sin_cache_inplace(
                positions=positions, query=query, key=key, head_size=self.head_size, cos_sin_cache=self.cos_sin_cache, is_neox=self.is_neox_style,
                fused_set_kv_buffer_arg=fused_set_kv_buffer_arg,
            )  # fmt: skip
            return query, key

    class SglKernelRotaryEmbedding(RotaryEmbedding):
        """By rotary_embedding, which wants the cache in the type of the queries."""

        def forward_cuda(self, positions: Any, query: Any, key: Any, offsets: Any = None, fused_set_kv_buffer_arg: Any = None) -> tuple:
            if fused_set_kv_buffer_arg is not None:
                raise refuse("SglKernelRotaryEmbedding", "is given, expected None", argument="fused_set_kv_buffer_arg")
            from . import sgl_kernel

            self.cos_sin_cache = self.cos_sin_cache.to(query.dtype)
            sgl_kernel.rotary_embedding(positions, query, key, self.head_size, self.cos_sin_cache, self.is_neox_style)
            return query, key

    class MHATokenToKVPool:
        """One layer's keys and values in bf16, a slot a token."""

        KV_POOL_SIZE = 16384

        def __init__(self, head_num: int, head_dim: int) -> None:
            self.head_num, self.head_dim, self.size = head_num, head_dim, self.KV_POOL_SIZE
            self.page_size, self.layer_num, self.start_layer = 1, 1, 0
            self.store_dtype, self.device = torch.bfloat16, "cpu"
            self._create_buffers()

        def _create_buffers(self) -> None:
            shape = (self.size + self.page_size, self.head_num, self.head_dim)
            self.k_buffer, self.v_buffer = ([torch.zeros(shape, dtype=self.store_dtype) for _ in range(self.layer_num)] for _ in range(2))

        def set_kv_buffer(self, loc: Any, cache_k: Any, cache_v: Any) -> None:
            for pool, rows in ((self.k_buffer[0], cache_k), (self.v_buffer[0], cache_v)):
                pool[loc] = rows.to(pool.dtype)

    classes = (RotaryEmbedding, FlashInferRotaryEmbedding, SglKernelRotaryEmbedding, MHATokenToKVPool)
    for made in classes:
        made.__module__, made.__qualname__ = "sgl_kernel.testing.rotary_embedding", made.__name__
    return {made.__name__: made for made in classes}


def create_inputs(head_size: int, batch_size: int, seq_len: int, device: Any, dtype: Any, num_q_heads: int, num_kv_heads: int) -> dict[str, Any]:
    """Positions, queries, keys, values, and a slot of the pool for each token."""
    import torch

    tokens = batch_size * seq_len
    rows = lambda heads: torch.randn(tokens, heads * head_size, dtype=dtype, device=device)
    slots = torch.randperm(rotary_classes()["MHATokenToKVPool"].KV_POOL_SIZE, dtype=torch.int64, device=device)
    return {
        "pos_ids": torch.arange(seq_len, device=device).repeat(batch_size),
        "query": rows(num_q_heads),
        "key": rows(num_kv_heads),
        "value": rows(num_kv_heads),
        "out_cache_loc": slots[:tokens].clone(),
    }


# ---- quantization by groups ----

RANKS_TOKENS, EXPERTS = 768, 288  # tokens that a rank may send, and experts of all ranks


def _compute_balanced_split(total: int, arr_len: int) -> Any:
    """As even as whole numbers are, the larger ones first."""
    import torch

    return torch.tensor([total // arr_len + (i < total % arr_len) for i in range(arr_len)], dtype=torch.int32)


def _compute_imbalanced_split(total: int, arr_len: int, gen_cpu: Any, dtype: Any = None) -> Any:
    """Shares by cubes of uniform numbers; what rounding leaves goes to places drawn at random."""
    import torch

    shares = torch.rand(arr_len, generator=gen_cpu) ** 3
    parts = (shares / shares.sum() * total).round().to(dtype or torch.int32)
    while left := total - int(parts.sum()):
        place = int(torch.randint(0, arr_len, (1,), generator=gen_cpu))
        if left > 0 or parts[place] > 0:
            parts[place] += 1 if left > 0 else -1
    return parts


def create_per_token_group_quant_test_data(num_tokens: int, hidden_dim: int, num_ranks: int, flags: dict) -> tuple[Any, Optional[Any]]:
    """Rows as experts get them from all ranks with how many count, where flags name a layout; else rows with some large numbers."""
    import torch

    seeded = [torch.Generator().manual_seed(num_tokens * 10000 + hidden_dim) for _ in range(2)]
    width = hidden_dim * (2 if flags["fuse_silu_and_mul"] else 1)
    layout = flags["masked_layout_mode"]
    if layout is None:
        x = torch.randn(num_tokens, width, dtype=torch.bfloat16, generator=seeded[1])
        x[torch.randn(x.shape, generator=seeded[1]) < 0.001] *= 10
        return x, None
    local = EXPERTS // num_ranks
    if local * num_ranks != EXPERTS:
        raise refuse("create_per_token_group_quant_test_data", f"is {num_ranks}, expected a divisor of {EXPERTS}", argument="num_ranks")
    splits = {
        "balanced": lambda: _compute_balanced_split(num_tokens, local),
        "imbalanced": lambda: _compute_imbalanced_split(num_tokens, local, gen_cpu=seeded[0]),
        "extreme": lambda: torch.tensor([num_tokens] + [0] * (local - 1), dtype=torch.int32),
    }
    if layout not in splits:
        raise refuse("create_per_token_group_quant_test_data", f"has masked_layout_mode {layout!r}, expected one of {', '.join(splits)}", argument="flags")
    x = torch.randn(local, RANKS_TOKENS * num_ranks, width, dtype=torch.bfloat16, generator=seeded[1])
    return x, splits[layout]()


def assert_all_close_or_tiny_diff(a: Any, b: Any) -> None:
    """Codes one apart in at most one of 200 places, or one of 25 where there are at most 4096, and none further."""
    import torch

    if a.dtype != b.dtype or a.shape != b.shape:
        raise AssertionError(f"{a.dtype} {list(a.shape)} and {b.dtype} {list(b.shape)}")
    if a.dtype not in (torch.float8_e4m3fn, torch.int8):
        raise NotImplementedError(f"assert_all_close_or_tiny_diff: {a.dtype}, expected float8_e4m3fn or int8")
    kind = torch.uint8 if a.dtype == torch.float8_e4m3fn else torch.int8
    apart = (a.view(kind).to(torch.int16) - b.view(kind).to(torch.int16)).abs()
    near, far, count = int((apart == 1).sum()), int((apart > 1).sum()), apart.numel()
    if far or near > (0.04 if count <= 4096 else 0.005) * count:
        raise AssertionError(f"of {count} codes {near} are one apart and {far} further")
