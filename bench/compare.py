"""Runs peers beside Dodona and writes what came of it as a page; tools/compare builds, then runs this. A row of the table below is one
case line: our ways of running it, the peers' ways, and what must be moved or computed at least.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import math
import os
import pathlib
import platform
import re
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from typing import Callable

import numpy as np

import compare_peers as peer
import dodona

# ---- the table


def linear_work(s: dict) -> dict:
    return {"R": 2.0 * s["N"] * s["K"], "F": 2.0 * s["T"] * s["N"] * s["K"]}


def fp4_work(s: dict) -> dict:
    return {"R": 0.5625 * s["N"] * s["K"], "V": 2.0 * s["M"] * s["N"] * s["K"]}


def mla_work(s: dict) -> dict:
    return {"R": 2.0 * 576 * s["B"] * s["W"] * s["P"], "F": 2.0 * 128 * s["B"] * s["W"] * s["P"] * (576 + 512)}


def fused_a_work(s: dict) -> dict:
    return linear_work({"T": s["T"], "N": 2112, "K": 7168})


def bmm_work(s: dict) -> dict:
    return {"R": 1.0 * s["L"] * s["N"] * s["K"], "F": 2.0 * s["L"] * s["M"] * s["N"] * s["K"]}


def norm_work(s: dict) -> dict:
    return {"C": 4.0 * s["T"] * s["H"]}


def silu_work(s: dict) -> dict:
    return {"C": 6.0 * s["T"] * s["D"]}


def quant_work(s: dict) -> dict:
    return {"C": 3.0 * s["M"] * s["K"]}


def router_work(s: dict) -> dict:
    return {"C": 4.0 * s["T"] * (s["E"] + 2 * s["topk"])}


def align_work(s: dict) -> dict:
    return {"C": 4.0 * (s["M"] * s["topk"] + s["S"] + s["B"])}


def sum_work(s: dict) -> dict:
    return {"C": 2.0 * s["T"] * s["D"] * (s["topk"] + 1)}


@dataclass
class Row:
    line: str
    work: Callable[[dict], dict]  # sizes -> bytes for R and C, operations for F and V
    peers: tuple  # functions of compare_peers, named PEER_...
    rotate: tuple = ()  # arguments that every call has anew, where they are large; outputs too
    mode: str = "fast"
    packed: bool = False  # also with weights packed before

    @property
    def op(self) -> str:
        return self.line.split()[0]

    @property
    def sizes(self) -> dict:
        return {name: int(value) for name, value in re.findall(r"\b(\w+)=(\d+)\b", self.line)}


MLA = "N=128 pages=64 P=64 W=64 --attr sm_scale=0.1352337788608801"
FP4 = {"work": fp4_work, "rotate": ("b", "block_scale_b"), "packed": True}
SMALL = {"rotate": ("input", "output", "output_q", "output_s", "out")}

TABLE = {
    "NVFP4 product": [
        Row("cutlass_scaled_fp4_mm M=1 N=4096 K=7168", peers=(peer.ggml_nvfp4, peer.ggml_mxfp4, peer.torch_nvfp4), **FP4),
        Row("cutlass_scaled_fp4_mm M=16 N=4096 K=7168", peers=(peer.ggml_nvfp4, peer.ggml_mxfp4), **FP4),
        Row("cutlass_scaled_fp4_mm M=64 N=4096 K=7168", peers=(peer.ggml_nvfp4, peer.ggml_mxfp4, peer.torch_nvfp4), **FP4),
    ],
    "bf16 product": [
        Row(f"linear T={t} N={n} K={k}", linear_work, rotate=("weight",),
            peers=(peer.openblas_linear, peer.torch_linear_f32, peer.torch_linear_bf16, peer.ggml_linear))
        for t, n, k in [(1, 24576, 1536), (16, 24576, 1536), (64, 24576, 1536), (1, 2112, 7168), (64, 2112, 7168)]
    ],
    "MLA decode, 128 heads, kv 4096": [
        Row(f"cutlass_mla_decode B={b} {MLA}", mla_work, peers=(peer.torch_mla_f32, peer.torch_mla_bf16)) for b in (1, 8)
    ],
    "Norms, activations, quantization": [
        *(Row(f"rmsnorm T={t} H=7168", norm_work, peers=(peer.torch_rmsnorm,), **SMALL) for t in (1, 512, 4096)),
        *(Row(f"silu_and_mul T={t} D=2048", silu_work, peers=(peer.torch_silu,), **SMALL) for t in (1, 512, 4096)),
        *(Row(f"sgl_per_token_quant_fp8 M={m} K=7168", quant_work, peers=(peer.torch_quant_fp8,), **SMALL) for m in (1, 512)),
    ],
    "Routing of a mixture of experts": [
        *(Row(f"topk_softmax T={t} E=256 topk=8", router_work, peers=(peer.torch_topk_softmax,)) for t in (1, 1024)),
        *(Row(f"topk_sigmoid T={t} E=256 topk=8", router_work, peers=(peer.torch_topk_sigmoid,)) for t in (1, 1024)),
        Row("moe_align_block_size M=4096 topk=8 S=48959 B=765 --attr num_experts=257 --attr block_size=64 --attr pad_sorted_token_ids=true",
            align_work, peers=(peer.torch_align,)),
        *(Row(f"moe_sum_reduce T={t} topk=8 D=7168 --attr routed_scaling_factor=2.5", sum_work, peers=(peer.torch_sum_reduce,),
              rotate=("input_tensor", "output_tensor")) for t in (1, 512)),
    ],
    "Hopper mode: an H200's bits": [
        Row("dsv3_fused_a_gemm T=1", fused_a_work, peers=(peer.mmasim_fused_a,), mode="hopper"),
        Row("bmm_fp8 L=1 M=64 N=128 K=512", bmm_work, peers=(peer.mmasim_bmm_fp8,), mode="hopper"),
    ],
    "Golden mode, and torch in double": [
        Row("cutlass_scaled_fp4_mm M=1 N=4096 K=7168", fp4_work, peers=(peer.torch_nvfp4_f64,), mode="golden"),
        Row("linear T=1 N=24576 K=1536", linear_work, peers=(peer.torch_linear_f64,), mode="golden"),
        Row(f"cutlass_mla_decode B=1 {MLA}", mla_work, peers=(peer.torch_mla_f64,), mode="golden"),
        Row("rmsnorm T=64 H=7168", norm_work, peers=(peer.torch_rmsnorm_f64,), mode="golden"),
    ],
}  # fmt: skip

# How a product's time grows with its rows: shares of the limit that binds, each operand of one such line with M rows.
CURVE_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def product_work(bytes_of_weight: float, unit: str) -> Callable[[dict], dict]:
    def work(s: dict) -> dict:
        products = s.get("L", 1) * s["N"] * s["K"]
        return {"R": bytes_of_weight * products, unit: 2.0 * s.get("M", s.get("T")) * products}

    return work


FP8, W8, W4, NVFP4, BF16 = (product_work(*pair) for pair in [(1, "F"), (1, "V"), (0.5, "V"), (0.5625, "V"), (2, "F")])
CURVE = [
    Row("fp8_blockwise_scaled_mm M={} N=4096 K=7168", FP8, (), rotate=("mat_b",)),
    Row("fp8_scaled_mm M={} N=4096 K=7168", FP8, (), rotate=("mat_b",)),
    Row("bmm_fp8 L=128 M={} N=512 K=128", FP8, (), rotate=("B",)),
    Row("int8_scaled_mm M={} N=4096 K=7168", W8, (), rotate=("mat_b",)),
    Row("int8_scaled_mm M={} N=4096 K=7168", W8, (), rotate=("mat_b",), packed=True),
    Row("qserve_w4a8_per_chn_gemm M={} N=4096 K=7168", W4, (), rotate=("kernel",)),
    Row("qserve_w4a8_per_chn_gemm M={} N=4096 K=7168", W4, (), rotate=("kernel",), packed=True),
    Row("qserve_w4a8_per_group_gemm M={} N=4096 K=7168", W4, (), rotate=("kernel", "zeros", "scales_i8")),
    Row("qserve_w4a8_per_group_gemm M={} N=4096 K=7168", W4, (), rotate=("kernel", "zeros", "scales_i8"), packed=True),
    Row("cutlass_scaled_fp4_mm M={} N=4096 K=7168", NVFP4, (), rotate=("b", "block_scale_b")),
    Row("cutlass_scaled_fp4_mm M={} N=4096 K=7168", NVFP4, (), rotate=("b", "block_scale_b"), packed=True),
    Row("cutlass_scaled_fp4_mm M={} N=7168 K=16384", NVFP4, (), rotate=("b", "block_scale_b"), packed=True),
    Row("linear T={} N=24576 K=1536", BF16, (), rotate=("weight",)),
    Row("linear T={} N=2112 K=7168", BF16, (), rotate=("weight",)),
    Row("bmm L=128 M={} N=512 K=128", BF16, (), rotate=("mat2",)),
    Row("bmm L=128 M={} N=128 K=512", BF16, (), rotate=("mat2",)),
]

LABELS = {
    "ggml_nvfp4": "ggml NVFP4", "ggml_mxfp4": "ggml MXFP4, repacked", "ggml_linear": "ggml bf16", "openblas_linear": "OpenBLAS f32",
    "torch_linear_f32": "torch f32", "torch_linear_bf16": "torch bf16", "torch_nvfp4": "torch, dequantize and multiply in f32",
    "torch_mla_f32": "torch f32", "torch_mla_bf16": "torch bf16", "torch_nvfp4_f64": "torch, dequantize and multiply in f64",
    "mmasim_fused_a": "mmasim", "mmasim_bmm_fp8": "mmasim",
}  # fmt: skip
PEER_OF = {"openblas": "OpenBLAS", "ggml": "ggml", "torch": "torch", "mmasim": "mmasim"}


def label_of(function: Callable) -> str:
    return LABELS.get(function.__name__, "torch f64" if function.__name__.endswith("f64") else "torch")


# ---- one row

LARGE = 4e6  # bytes from which on data come from memory, and a share of a limit says something


@dataclass
class Contender:
    label: str
    calls: list
    result: Callable[[], np.ndarray]
    free: Callable[[], None] = lambda: None
    rounds: list = field(default_factory=list)
    limits: dict = field(default_factory=dict)  # of its row: R, C, F, V, the larger of before and after
    clean: int = 0
    interrupted: int = 0

    @property
    def seconds(self) -> float:
        return statistics.median(self.rounds)


def as_f32(array: np.ndarray) -> np.ndarray:
    if array.dtype == np.float32 or array.dtype.kind == "i":
        return array.astype(np.float32, copy=False)
    if array.dtype.name in ("float8_e4m3fn", "uint8"):
        return peer.e4m3_to_f32(array)
    return peer.bf16_to_f32(array)


def inputs_of(row: Row) -> dict:
    defaults = {spec["name"]: spec["default"] for spec in dodona.schema(row.op)["attributes"] if not spec["required"]}
    arguments = {**defaults, **dodona.gen(row.line).arguments()}
    if "seq_lens" in arguments:
        arguments["seq_lens"][:] = row.sizes["W"] * row.sizes["P"]
    return arguments


def ours(row: Row, arguments: dict, turns: Callable, packed: bool) -> Contender:
    function = getattr(dodona, row.op)
    schema = dodona.schema(row.op)
    parameter = {p["field"]: p["name"] for p in schema["parameters"] if p["field"]}
    outputs = [spec["name"] for spec in schema["tensors"] if spec["direction"] == "out"]
    made = function(**arguments, mode=row.mode)
    made = dict(zip(outputs, made if isinstance(made, tuple) else (made,)))
    given = {**arguments, **{parameter.get(name, name): array for name, array in made.items()}, "mode": row.mode}
    names = [name for name in given if name in row.rotate]
    sets = []
    for _ in range(turns(sum(given[name].nbytes for name in names)) if names else 1):
        if packed:
            weights = dodona.prepare(row.op, **{name: given[name] for name in row.rotate})
            sets.append({**given, **dict.fromkeys(row.rotate, weights)})
        else:
            sets.append({**given, **{name: given[name].copy(order="K") for name in names}})
    label = f"**Dodona**{' ' + row.mode if row.mode != 'fast' else ''}{', packed' if packed else ''}"
    return Contender(label, peer.in_turn(sets, lambda kwargs: function(**kwargs)), lambda: as_f32(made[outputs[0]]))


def switches() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def one_round(contender: Contender, turn, seconds: float) -> None:
    """Calls for about so long. Calls in which a thread of this process had to leave its processor are left out, unless all are such."""
    clean, all_calls = [], []
    end = time.perf_counter() + seconds
    while not all_calls or time.perf_counter() < end:
        call, before = next(turn), switches()
        begin = time.perf_counter()
        call()
        took = time.perf_counter() - begin
        all_calls.append(took)
        if switches() == before:
            clean.append(took)
    contender.clean += len(clean)
    contender.interrupted += len(all_calls) - len(clean)
    contender.rounds.append(statistics.median(clean) if clean else sorted(all_calls)[len(all_calls) // 4])


def limits_now(letters) -> dict:
    """What this machine can do at this moment, in units of 10^9 a second."""
    command = [os.environ["DODONA_COMMAND"], "doctor", "--json", "--limits", ",".join(letters)]
    seen = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["limits"][-1]
    return {letter: seen[LIMITS[letter]] for letter in letters}


def with_limits(contenders: list[Contender], letters, before: dict) -> list[Contender]:
    after = limits_now(letters)
    for contender in contenders:
        contender.limits = {letter: max(before[letter], after[letter]) for letter in letters}
    return contenders


def measure(row: Row, peers: dict, cold_bytes: int, rounds: int, seconds: float) -> list[Contender]:
    arguments = inputs_of(row)

    def turns(nbytes: int) -> int:
        return 1 if nbytes < LARGE else math.ceil(cold_bytes / nbytes)

    contenders = [ours(row, arguments, turns, packed) for packed in ([True, False] if row.packed else [False])]
    for function in row.peers:
        instance = peers[PEER_OF[function.__name__.split("_")[0]]]
        if isinstance(instance, str):
            continue
        try:
            contenders.append(Contender(label_of(function), *function(instance, arguments, turns)))
        except OSError as error:
            print(f"{row.line}: {label_of(function)}: {error}", file=sys.stderr)
    letters = list(row.work(row.sizes))
    before = limits_now(letters)
    cycles = [itertools.cycle(contender.calls) for contender in contenders]
    for cycle in cycles:
        next(cycle)()
    for _ in range(rounds):
        for contender, cycle in zip(contenders, cycles):
            time.sleep(0.03)  # threads of the one before spin for a while
            one_round(contender, cycle, seconds)
    return with_limits(contenders, letters, before)


# ---- the page


def raise_priority() -> None:
    """Ahead of what else runs, where the user may: other programs disturb less, on a quiet machine nothing changes."""
    try:
        os.nice(-15)
    except PermissionError:
        pass


def doctor() -> dict:
    return json.loads(subprocess.run([os.environ["DODONA_COMMAND"], "doctor", "--json"], check=True, capture_output=True, text=True).stdout)


def time_text(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} us" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def digits(number: float) -> str:
    """Three of them, never with an exponent above."""
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def rate_text(work: dict, seconds: float) -> str:
    amount, unit = (work["F"], "GFLOP") if "F" in work else (work["V"], "GOP") if "V" in work else (work.get("C"), "GB")
    by_reading = "R" in work and work["R"] / 2 >= amount / 20  # a row or two: what is read tells more
    return f"{digits(work['R'] / seconds * 1e-9)} GB/s" if by_reading else f"{digits(amount / seconds * 1e-9)} {unit}/s"


def share_text(work: dict, contender: Contender) -> str:
    if max(work.values()) < LARGE:  # the limits are those of memory, and of work that is worth starting threads for
        return ""
    least = {letter: amount / (contender.limits[letter] * 1e9) for letter, amount in work.items()}
    letter = max(least, key=least.get)
    return f"{least[letter] / contender.seconds:.2f} {letter}"


def agreement_text(first: Contender, other: Contender) -> str:
    a, b = first.result().astype(np.float64).reshape(-1), other.result().astype(np.float64).reshape(-1)
    if np.array_equal(a, b):
        return "no bit"
    return f"{np.linalg.norm(a - b) / np.linalg.norm(a):.1g}"


def table(header: list[str], rows: list[list[str]]) -> str:
    left = {"case line", "contender", "share of limit", "when"}
    lines = [header, ["---" if title in left else "---:" for title in header], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def rows_text(row: Row, contenders: list[Contender], differs: list[str]) -> list[list[str]]:
    work, first = row.work(row.sizes), contenders[0]
    line = row.line.split(" --attr")[0]
    text = []
    for i, contender in enumerate(contenders):
        ratio = statistics.median(theirs / mine for theirs, mine in zip(contender.rounds, first.rounds))
        text.append([f"`{line}`" if i == 0 else "", contender.label, ("~" if contender.clean < 5 else "") + time_text(contender.seconds),
                     rate_text(work, contender.seconds), share_text(work, contender) if row.mode == "fast" else "",
                     "" if i == 0 else f"{ratio:.2f} x", "" if i == 0 else differs[i]])  # fmt: skip
    return text


def measure_curve(cold_bytes: int, rounds: int, seconds: float) -> list[tuple[Row, list]]:
    """Of every row of CURVE a contender for each number of rows."""
    curve = []
    for row in CURVE:
        times = []
        for m in CURVE_ROWS:
            one = replace(row, line=row.line.format(m))
            print(one.line, file=sys.stderr)
            contender = ours(one, inputs_of(one), lambda nbytes: 1 if nbytes < LARGE else math.ceil(cold_bytes / nbytes), row.packed)
            letters = list(one.work(one.sizes))
            before = limits_now(letters)
            cycle = itertools.cycle(contender.calls)
            next(cycle)()
            for _ in range(rounds):
                one_round(contender, cycle, seconds)
            times.append((one, with_limits([contender], letters, before)[0]))
            contender.calls = []
        curve.append((row, times))
    return curve


def curve_text(curve: list) -> str:
    header = ["case line", "contender", *(f"{m} row{'s' if m > 1 else ''}" for m in CURVE_ROWS)]
    rows = [[f"`{row.line.format('M')}`", "packed" if row.packed else "", *(share_text(one.work(one.sizes), contender) for one, contender in times)] for row, times in curve]
    return ("\n## How products grow with rows\n\nShares of the limit that binds: what must be read, or computed, would take that part of a call's time.\n\n"
            + table(header, rows))  # fmt: skip


LIMITS = {"R": "R_GBps", "C": "C_GBps", "U": "U_GBps", "F": "F_GFLOPps", "V": "V_GOPps"}


def limits_text(when: list[tuple[str, dict]]) -> str:
    header = ["threads", "when", "R GB/s", "C GB/s", "U GB/s", "F GFLOP/s", "V GOP/s"]
    rows = [[str(l["threads"]), label, *(f"{l[key]:.4g}" for key in LIMITS.values())] for label, report in when for l in report["limits"]]
    return table(header, sorted(rows, key=lambda r: int(r[0])))


def page(before: dict, after: dict, loads: list, interrupted: float, peers: dict, sections: dict, filtered: bool, curve: str) -> str:
    load, threads = loads[0][0], before["threads"]
    cache = f"{before['last_level_cache_bytes'] / 2**20:.0f} MiB of last-level cache ({before['last_level_cache_source']})"
    cold = f"{before['cold_bytes'] / 2**20:.0f} MiB" + ("" if before["cold"] else ", which is **not cold**: memory allows no more")
    noise = ("The machine was quiet when the run began." if load < 0.5 else
             f"**The machine was not quiet** (load average {load:.1f} before the run): take ratios with care, and times as upper bounds.")
    absent = [f"{name} ({why})" for name, why in peers.items() if isinstance(why, str)]
    versions = [f"{name} {p.version}" for name, p in peers.items() if not isinstance(p, str)]
    head = f"""# Performance

Made by `tools/compare`; do not edit. {noise}

| | |
| --- | --- |
| date | {datetime.date.today()}{", some rows only" if filtered else ""} |
| machine | {before['cpu']}, {before['processors']} processors, {cache}, {before['memory_GiB']:.0f} GiB of memory; {platform.system()} |
| Dodona | {before['version']}, tier {before['isa']}, {threads} threads |
| peers | {"; ".join(versions) or "none"} |
| absent | {"; ".join(absent) or "none"} |
| load average (1, 5, 15 minutes) | {"; ".join(", ".join(f"{x:.2f}" for x in entry) for entry in loads)}: before and after; {interrupted:.0%} of the calls were interrupted |

Every contender of a row runs in one process, in turn, a round of each after the other; a time is the median over the rounds of the round's
median, `~` where fewer than five calls were free of interruption; "time / first" is the median over the rounds of its time by that of the row's
first line. Weights are copies used in turn that together make up {cold}; inputs below 4 MB stay in a cache. Calls come from Python, ours and theirs.
"differs" is the relative L2 difference of the result from the first line's: peers that compute something weaker, say with 8-bit
activations, show it there (rounding to bf16 alone makes 0.002), and "no bit" says that all bits are equal. Rates count what must be moved or computed at
least; shares are of the limit that binds (R: reading memory, C: copying it, F: fp32 multiply-adds, V: 8-bit integer products; U: changing memory in
place), as measured right before and after the row, the larger of both: the table below is of the beginning and the end. A peer may pass F with instructions that multiply bf16 directly.

## Limits

"""
    text = head + limits_text([("before", before), ("after", after)])
    for title, rows in sections.items():
        text += f"\n## {title}\n\n" + table(["case line", "contender", "time", "rate", "share of limit", "time / first", "differs"], rows)
    return text + curve


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/compare", description="Runs peers beside Dodona, interleaved, and writes docs/performance.md.")
    parser.add_argument("-o", "--output", default=None, help="Where to write the page (default docs/performance.md; - for standard output)")
    parser.add_argument("--filter", default="", metavar="REGEX", help="Only case lines that match, to standard output unless -o is given")
    parser.add_argument("--curve", action="store_true", help="Only how products grow with rows, to standard output unless -o is given")
    parser.add_argument("--rounds", type=int, default=5, help="Rounds of each contender (default 5)")
    parser.add_argument("--seconds", type=float, default=0.08, help="Length of a round (default 0.08)")
    options = parser.parse_args()
    if options.curve:
        options.filter = "(?!)"
    output = options.output or ("-" if options.filter else str(pathlib.Path(__file__).resolve().parent.parent / "docs/performance.md"))

    loads = [os.getloadavg()]
    raise_priority()
    before = doctor()
    advice = re.search(r"OPENBLAS_CORETYPE=(\w+)", before.get("openblas", {}).get("advice", ""))
    if advice:  # read when the library is loaded
        os.environ["OPENBLAS_CORETYPE"] = advice.group(1)
    peers = peer.find(before["threads"])
    for name, why in peers.items():
        if isinstance(why, str):
            print(f"{name} is absent: {why}", file=sys.stderr)
    measured = {}
    for title, rows in TABLE.items():
        for row in rows:
            if not re.search(options.filter, row.line):
                continue
            print(row.line, file=sys.stderr)
            contenders = measure(row, peers, before["cold_bytes"], options.rounds, options.seconds)
            measured.setdefault(title, []).append((row, contenders, [agreement_text(contenders[0], c) for c in contenders]))
            for contender in contenders:
                contender.free()
                contender.calls = []
    curve = [] if options.filter and not options.curve else measure_curve(before["cold_bytes"], options.rounds, options.seconds)
    after = doctor()
    loads.append(os.getloadavg())
    sections = {title: [line for row, contenders, differs in rows for line in rows_text(row, contenders, differs)] for title, rows in measured.items()}
    everyone = [contender for rows in measured.values() for _, contenders, _ in rows for contender in contenders]
    interrupted = sum(c.interrupted for c in everyone) / max(1, sum(c.interrupted + c.clean for c in everyone))
    text = page(before, after, loads, interrupted, peers, sections, bool(options.filter), curve_text(curve) if curve else "")
    if output == "-":
        print(text, end="")
    else:
        pathlib.Path(output).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
