"""KV pools as lists and as tables of addresses."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Mapping, Optional

import numpy as np

from .._adapt import Call, refuse
from .arrays import Run, bare, bytes_as, kind_of
from .checks import writable


def lists_of_pools(name: str, source: str, target: str, *, alike: bool = False) -> Callable[[Run, Call], Any]:
    """Upstream's lists of pools are copied pool by pool, `alike` ones one to one. Two pools that hold all layers are K's and V's; the layers of
    K come first."""

    def around(run: Run, call: Call) -> Any:
        sources, targets = call[source], call[target]
        if not isinstance(sources, (list, tuple)):
            return run(call)
        if not sources or not targets:
            raise refuse(name, "is empty, expected pools", argument=source if targets else target, code="bad_shape")
        # A list of pools with all layers may be shorter than the list of the single layers.
        few, many = sorted((sources, targets), key=len)
        if len(many) % len(few) or (alike and len(many) != len(few)):
            text = f"has {len(sources)} pools for {len(targets)}, expected {'as many' if alike else 'multiples of each other'}"
            raise refuse(name, text, argument=source, code="bad_shape")
        for of, pools in ((source, sources), (target, targets)):  # one that does not fit would be found behind others that are written
            if len(kinds := list(dict.fromkeys(map(kind_of, pools)))) > 1:
                text = f"has a pool of {kinds[1]} beside one of {kinds[0]}"
                raise refuse(name, text, argument=of, code="bad_shape")
        layers = len(many) // len(few)
        for i in range(len(many)):
            parts = {}
            for of, pools in ((source, sources), (target, targets)):
                whole = pools is few and few[0].ndim > many[0].ndim
                pool = pools[i // layers] if pools is few else pools[i]
                layer = i % layers
                parts[of] = (pool[:, layer : layer + 1] if whole and "layer_id" not in call else pool)[None]
            step = {"layer_id": call["layer_id"] + i % layers} if "layer_id" in call else {}
            run({**call, **parts, **step})
        return None

    return around


def tables_of_layers(name: str, *tables: str, layer_of: Optional[Mapping[str, int]] = None) -> Callable[[Run, Call], Any]:
    """A table of addresses, one a layer, is copied layer by layer. An address says where a layer begins and not where it ends: it is taken to end
    behind the last slot that its indices name. `layer_of` gives the dimension of the layers in pools that hold all of them."""
    wholes = layer_of or {}

    def around(run: Run, call: Call) -> Any:
        given = [table for table in tables if is_addresses(call[table])]
        if not given:
            return run(call)
        if len(given) < len(tables):
            other = next(table for table in tables if table not in given)
            raise refuse(name, f"is no table of addresses (uint64 [num_layers]), which {given[0]} is", argument=other, code="bad_dtype")
        layers, item = int(call["num_layers"]), int(call["item_size"])
        if item < 1:
            raise refuse(name, f"is {item}, expected the bytes of an item: a table of addresses does not say them", argument="item_size")
        for table in tables:
            if len(call[table]) != layers:
                raise refuse(name, f"has {len(call[table])} addresses, expected num_layers = {layers}", argument=table, code="bad_shape")
        pools = {pool: bare(bytes_as(bare(call[pool]), "u8")) for pool in wholes}
        for pool, dimension in wholes.items():
            if pools[pool].ndim <= dimension or pools[pool].shape[dimension] != layers:
                text = f"has shape {list(call[pool].shape)}, expected num_layers = {layers} in dimension {dimension}"
                raise refuse(name, text, argument=pool, code="bad_shape")
            stated, slot = int(call.get("dst_layout_dim", 0)), item * layers
            if stated and stated != slot:
                raise refuse(name, f"is {stated}, expected item_size times num_layers = {slot}", argument="dst_layout_dim")
        addresses = {table: [int(address) for address in call[table]] for table in tables}
        slots = {side: slots_named(call[f"{side}_indices"]) for side in ("src", "dst")}
        for layer in range(layers):
            step = {**call, "num_layers": 1}
            for table in tables:
                step[table] = memory_at(addresses[table][layer], slots[table[:3]], item)[None]
            for pool, dimension in wholes.items():
                step[pool] = pools[pool][(slice(None),) * dimension + (slice(layer, layer + 1),)]
            if "dst_layout_dim" in call:
                step["dst_layout_dim"] = 0
            run(step)
        return None

    return around


def is_addresses(value: Any) -> bool:
    value = bare(value)
    return getattr(value, "ndim", 0) == 1 and str(value.dtype).rpartition(".")[2] == "uint64"


def slots_named(indices: Any) -> int:
    """How many slots there must be for these indices. Those below zero are the op's to refuse."""
    return max((int(bare(indices).max()) if len(indices) else -1) + 1, 1)


def memory_at(address: int, rows: int, row: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint8 * (rows * row)).from_address(address)).reshape(rows, row)


def transfer_embedding_ranges_direct(src: Any, dst: Any, src_starts: Any, dst_starts: Any, lengths: Any) -> None:
    """Ranges of rows of one matrix to ranges of another, whose memory here is the host's in any case."""
    name = "transfer_embedding_ranges_direct"
    for argument, value in (("src", src), ("dst", dst)):
        if len(getattr(bare(value), "shape", ())) != 2:
            raise refuse(name, f"is {kind_of(value)}, expected rows", argument=argument, code="bad_shape")
    if bare(src).dtype != bare(dst).dtype or bare(src).shape[1] != bare(dst).shape[1]:
        raise refuse(name, f"is {kind_of(dst)}, expected {bare(src).dtype} rows of {bare(src).shape[1]} as src has", argument="dst", code="bad_shape")
    writable(name, "dst", dst)
    if not len(src_starts) == len(dst_starts) == len(lengths):
        raise refuse(name, f"has {len(lengths)} numbers for {len(src_starts)} and {len(dst_starts)} beginnings", argument="lengths", code="bad_shape")
    for argument, starts, rows in (("src_starts", src_starts, bare(src).shape[0]), ("dst_starts", dst_starts, bare(dst).shape[0])):
        for start, length in zip(starts, lengths):
            if start < 0 or length < 0 or start + length > rows:
                raise refuse(name, f"holds {start}, of {length} rows, expected ranges within {rows}", argument=argument)
    for begin, to, length in zip(src_starts, dst_starts, lengths):
        bare(dst)[to : to + length] = bare(src)[begin : begin + length]
