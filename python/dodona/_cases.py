"""Cases, golden outputs, verdicts."""

from __future__ import annotations

import ctypes
import json
from typing import Any, Mapping

import numpy as np

from ._arrays import CODES, Slot, Typed, dtypes_of, listed, made_tensors
from ._library import OUTCOMES, BadType, BadValue, Handle, check as check_status, exec_bytes, fail, lib, made, mode_of, number_of, path_bytes, text_bytes, whole_of
from ._ops import function, plan_of


class OutputVerdict:
    """What was said of one output: its members are those of `dodona check --json` (name, judge, outcome, failing, worst...)."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.__dict__.update(fields)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.outcome}, {self.failing} of {self.compared} elements fail>"


class Verdict:
    """What a judge says. True when it passes; prints as `dodona check` does."""

    outcome: str
    """pass, known defect, vacuous (a check that could not have failed), or fail"""
    outputs: dict[str, OutputVerdict]

    def __init__(self, handle: Handle, case: "Case") -> None:
        self._handle, self.case = handle, case
        self.outcome = OUTCOMES[lib.dodona_verdict_outcome(handle.value)]
        self.passes = bool(lib.dodona_verdict_passes(handle.value))
        self.text: str = lib.dodona_verdict_text(handle.value).decode()
        self.json: dict[str, Any] = json.loads(lib.dodona_verdict_json(handle.value))
        self.cause: str = self.json["cause"]
        """What most likely went wrong, in one line; empty for what passes. Known mistakes are looked for with explain=SECONDS"""
        self.outputs = {output["name"]: OutputVerdict(output) for output in self.json["outputs"]}

    @property
    def reproduce(self) -> str:
        """The command that makes the case again."""
        return f"dodona gen {self.case.line} -o case.safetensors" if self.case.line else ""

    def html(self) -> str:
        """One self-contained page with pictures."""
        return lib.dodona_verdict_html(self._handle.value).decode()

    def __bool__(self) -> bool:
        return self.passes

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Verdict of {self.case.op}: {self.outcome}>"


class Whose:
    """Which schedules of an op give certain outputs. True when one is named; prints as `dodona whose` does. `json` has also the nearest
    others and how many elements they differ in ("others"), and how far the schedules found differ in outputs of other inputs ("apart")."""

    answer: str
    """named: one schedule, or several that differ in chunk_order alone or in nothing; unsure: these outputs do not decide; none"""
    found: list[list[dict[str, Any]]]
    """What gives every bit, as `dodona whose --json` has it: groups of schedules with equal bits; `attrs` go into a call or a case line,
    `line_options` are those that are not the op's defaults"""

    def __init__(self, handle: Handle) -> None:
        self.text: str = lib.dodona_whose_text(handle.value).decode()
        self.json: dict[str, Any] = json.loads(lib.dodona_whose_json(handle.value))
        self.answer, self.found = self.json["answer"], self.json["found"]

    def __bool__(self) -> bool:
        return self.answer == "named"

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        names = ", or ".join(group[0]["name"] for group in self.found)
        return f"<Whose: {self.answer}{': ' + names if names else ''}>"


class Case:
    """One call of an op: inputs, attributes, what golden mode makes of them. Made by dodona.gen, dodona.load or Case.of."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.op: str = lib.dodona_case_op(handle.value).decode()
        self.line: str = lib.dodona_case_line(handle.value).decode()
        self.attrs: dict[str, Any] = json.loads(lib.dodona_case_attrs(handle.value))
        # Views of the case's own memory: what is written to the case would change what it is judged by.
        self.inputs: dict[str, np.ndarray] = listed(lib.dodona_case_inputs(handle.value), handle, writable=False)
        self.dtypes: dict[str, str] = dtypes_of(lib.dodona_case_inputs(handle.value))
        """Element types of the inputs, which raw codes do not tell"""
        self.recorded: dict[str, np.ndarray] = listed(lib.dodona_case_recorded(handle.value), handle, writable=False)

    @staticmethod
    def of(op: str, *args: Any, **kwargs: Any) -> "Case":
        """The case of a call that one is about to make: the arguments of dodona.<op>, as they are before it. They are copied."""
        plan = plan_of(op)
        import inspect

        bound = inspect.signature(function(op)).bind(*args, **kwargs)
        fields = {p["name"]: p["field"] for p in plan.schema["parameters"]}
        values = {fields.get(name, name): value for name, value in bound.arguments.items()}
        keep: list = []
        both = {slot.name for slot in plan.slots} & {attr.name for attr in plan.attrs}

        def is_attr(name: str) -> bool:
            """Of a name that a tensor and an attribute share, what is no array is the attribute."""
            return isinstance(values[name], bool) or (name in both and isinstance(values[name], (int, float, np.generic)))

        tensors = [
            slot.pack(values[slot.name], keep, [])
            for slot in plan.slots
            if values.get(slot.name) is not None and not is_attr(slot.name) and (slot.spec["direction"] != "out" or slot.spec.get("given"))
        ]
        attrs = [
            attr.pack(values[attr.name], keep)
            for attr in plan.attrs
            if values.get(attr.name) is not None and (attr.name not in both or is_attr(attr.name))
        ]
        packed = b"".join(tensors), len(tensors), b"".join(attrs), len(attrs)
        return Case(made(lambda place: lib.dodona_case_from_call(plan.c_name, *packed, place), lib.dodona_case_free))

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of dodona.<op>: writable copies of the inputs, in their layouts, and the attributes. Raw codes that would be
        taken for another type stand in dodona.as_dtype."""
        codes = {slot.name: slot.codes for slot in plan_of(self.op).slots}

        def told(name: str, array: np.ndarray) -> Any:
            dtype = self.dtypes[name]
            return array if codes[name].get(array.dtype) == CODES[dtype] else Typed(array, dtype)

        return {**{name: told(name, _writable(array)) for name, array in self.inputs.items()}, **self.attrs}

    def run(self, mode: str | None = None, threads: int | None = None, *, gpu: str | None = None) -> dict[str, np.ndarray]:
        """The outputs by name, in-place ones too; the case stays as it is. gpu: the GPU whose bits are asked for, instead of its mode."""
        how = exec_bytes(mode_of(mode, gpu), threads)
        place = ctypes.c_void_p()
        check_status(lib.dodona_case_run(self._handle.value, how, ctypes.byref(place)))
        return made_tensors(place.value)

    def golden(self, threads: int | None = None) -> dict[str, np.ndarray]:
        return self.run("golden", threads)

    def check(
        self,
        outputs: Any = None,
        /,
        *,
        mode: str | None = None,
        gpu: str | None = None,
        threads: int | None = None,
        explain: float = 0,
        sample: int | None = None,
        sample_seed: int = 1,
        **named: Any,
    ) -> Verdict:
        """Judges a kernel's outputs: by name, as a mapping, or as what dodona.<op> returns (one array, or a tuple in the schema's order).
        mode: "golden" (default: budgets), or "hopper": held to the bits of an H200; gpu: to those of this GPU. explain: seconds to look for
        the well-known mistake behind a failure. sample: judge at most so many rows of each output (elements along its last dimension), chosen
        at random by sample_seed; golden mode of attention computes no more, and the verdict says which share was judged."""
        packed, keep = self._packed(self._named(outputs, named))
        how = exec_bytes(mode_of("golden" if mode is None and gpu is None else mode, gpu), threads)
        seconds = number_of(explain, "explain")
        if sample is not None and seconds:
            raise fail("is given, expected none with sample", kind=BadValue, code="bad_option", argument="explain")

        rows, seed = 0 if sample is None else whole_of(sample, "sample", 1), whole_of(sample_seed, "sample_seed", 0)

        def judged(place: Any) -> int:
            held = (self._handle.value, b"".join(packed), len(packed), how)
            if sample is None:
                return lib.dodona_case_explain(*held, seconds, place)
            return lib.dodona_case_sample(*held, rows, seed, place)

        return Verdict(made(judged, lib.dodona_verdict_free), self)

    def whose(self, outputs: Any = None, /, *, threads: int | None = None, seconds: float = 60, **named: Any) -> Whose:
        """Which schedule of the op (split_k, accumulator, kernel...; the machine) gives these outputs to the bit? Outputs as for check()."""
        packed, keep = self._packed(self._named(outputs, named))
        how, limit = exec_bytes(None, threads), number_of(seconds, "seconds")
        return Whose(
            made(
                lambda place: lib.dodona_case_whose(self._handle.value, b"".join(packed), len(packed), how, limit, place),
                lib.dodona_whose_free,
            )
        )

    def save(self, path: Any, *, compact: bool = False) -> None:
        """Writes the case with golden outputs and budgets, for `dodona check` and for other machines."""
        check_status(lib.dodona_case_save(self._handle.value, path_bytes(path), int(compact), None))

    def _packed(self, actual: Mapping[str, Any]) -> tuple[list[bytes], list]:
        """Outputs as C has them, and what must live as long."""
        slots = {slot.name: slot for slot in plan_of(self.op).slots}
        keep: list = []
        packed = []
        for name, value in actual.items():
            if name not in slots:
                raise fail(f"is no output of this op; they are {', '.join(self._outputs())}", kind=BadType, code="unknown_argument",
                           op=self.op, argument=name)  # fmt: skip
            packed.append(slots[name].pack(_scalar(value), keep, []))
        return packed, keep

    def _outputs(self) -> list[str]:
        return [slot.name for slot in plan_of(self.op).slots if slot.written]

    def _named(self, outputs: Any, named: Mapping[str, Any]) -> dict[str, Any]:
        if outputs is None:
            return dict(named)
        if isinstance(outputs, Mapping):
            return {**outputs, **named}
        returned = [slot.name for slot in plan_of(self.op).slots if slot.spec["direction"] == "out"] or self._outputs()
        values = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        if len(values) > len(returned):
            raise fail(f"{len(values)} outputs are given, expected {', '.join(returned)}", kind=BadType, code="unknown_argument", op=self.op)
        return {**dict(zip(returned, values)), **named}

    def __repr__(self) -> str:
        return f"<Case {self.line or self.op}>"


def _scalar(value: Any) -> Any:
    """A whole number that an op returned, as the 0-d output that it is."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not -(1 << 63) <= value < 1 << 63:
            raise fail(f"is {value}, expected a number of 64 bits", argument="output")
        return np.asarray(value, np.int64)
    return value


def _writable(array: np.ndarray) -> np.ndarray:
    copy = np.empty_like(array, order="K")
    if copy.strides == array.strides:
        copy[...] = array
        return copy
    # A slice of a wider tensor: the same strides over memory of its own, with NaN, or -1, between the rows.
    span = sum((size - 1) * stride for size, stride in zip(array.shape, array.strides)) // array.itemsize + 1 if array.size else 0
    memory = np.full(span * array.itemsize, 0xFF, np.uint8).view(array.dtype)
    strided = np.lib.stride_tricks.as_strided(memory, array.shape, array.strides)
    strided[...] = array
    return strided


def gen(line: str, *, threads: int | None = None) -> Case:
    """The case that a line describes: gen("rmsnorm T=4 H=7168 --seed 7"). The same line gives the same bytes on any machine."""
    how, text = exec_bytes(None, threads), text_bytes(line, "line", "a case line")
    return Case(made(lambda place: lib.dodona_case_from_line(text, how, place), lib.dodona_case_free))


def load(path: Any, *, threads: int | None = None) -> Case:
    """A case file: from `dodona gen`, Case.save, or a recording."""
    how, name = exec_bytes(None, threads), path_bytes(path)
    return Case(made(lambda place: lib.dodona_case_load(name, how, place), lib.dodona_case_free))


def _case(case: Any) -> Case:
    return case if isinstance(case, Case) else gen(case)


def golden(case: Case | str, *, threads: int | None = None) -> dict[str, np.ndarray]:
    """What the kernel should have returned, by name, for a case or a case line."""
    return _case(case).golden(threads)


def check(
    case: Case | str,
    outputs: Any = None,
    /,
    *,
    mode: str | None = None,
    gpu: str | None = None,
    threads: int | None = None,
    explain: float = 0,
    sample: int | None = None,
    sample_seed: int = 1,
    **named: Any,
) -> Verdict:
    """Judges a kernel's outputs for a case or a case line: check("rmsnorm T=4 H=64", y), check(case, output=y)."""
    case = _case(case)
    return case.check(outputs, mode=mode, gpu=gpu, threads=threads, explain=explain, sample=sample, sample_seed=sample_seed, **named)


def whose(case: Case | str, outputs: Any = None, /, *, threads: int | None = None, seconds: float = 60, **named: Any) -> Whose:
    """Which kernel made these numbers? whose("linear T=16 N=2112 K=7168 --seed 7", y): the schedules of the op that give the outputs to the
    bit, for a case or a case line. Give it some ten thousand elements: a rounding to bf16 hides most of a schedule. `seconds` bounds the
    search. Raises Error for an op with one schedule only (`dodona whose --ops` lists the others)."""
    return _case(case).whose(outputs, threads=threads, seconds=seconds, **named)


def assert_close(case: Case | str, outputs: Any = None, /, *, mode: str | None = None, gpu: str | None = None, **named: Any) -> Verdict:
    """Raises AssertionError with the verdict and the line that makes the case again, unless the outputs pass."""
    verdict = check(case, outputs, mode=mode, gpu=gpu, **named)
    if not verdict:
        again = f"\nreproduce: {verdict.reproduce}" if verdict.reproduce else ""
        raise AssertionError(f"{verdict.text}{again}")
    return verdict


class SameBits:
    """Whether several runs gave the same bits. True when they did; prints as `dodona check --same-bits` does. `json` has the groups of runs
    that agree, the largest first ("groups"), and of each output that differs the first element, the number and the pattern
    ("differences")."""

    def __init__(self, handle: Handle) -> None:
        self.same = bool(lib.dodona_bits_same(handle.value))
        self.text: str = lib.dodona_bits_text(handle.value).decode()
        self.json: dict[str, Any] = json.loads(lib.dodona_bits_json(handle.value))

    def __bool__(self) -> bool:
        return self.same

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<SameBits: {self.json['outcome']}>"


def same_bits(*runs: Any, names: list[str] | None = None) -> SameBits:
    """Do several runs of a kernel hold the same bits? Each run is an array, a tuple of arrays, or arrays by name; nothing is said of what is
    right. For races (the same call again and again) and batch invariance: of arrays that differ in the size of their first dimension alone
    the first rows are compared, which all runs have. names: what the runs are called in the text (default: run 1, run 2...)."""
    keep: list = []
    packed, counts = [], []
    for run in runs:
        arrays = run if isinstance(run, Mapping) else run if isinstance(run, (tuple, list)) else [run]
        named = arrays if isinstance(arrays, Mapping) else {f"output {i}" if len(arrays) > 1 else "output": a for i, a in enumerate(arrays)}
        counts.append(len(named))
        for name, value in named.items():
            slot = Slot("", {"name": name, "direction": "in", "dtypes": ["bf16", "u8"]}, {}, {})
            keep.append(slot)
            packed.append(slot.pack(_scalar(value), keep, []))
    if names is not None and len(names) != len(runs):
        raise fail(f"names {len(names)} runs, expected {len(runs)}", kind=BadValue, code="bad_value", argument="names")
    called = None if names is None else (ctypes.c_char_p * len(runs))(*(text_bytes(name, "names", "names of the runs") for name in names))
    sizes = (ctypes.c_size_t * len(runs))(*counts)
    return SameBits(made(lambda place: lib.dodona_same_bits(b"".join(packed), sizes, called, len(runs), place), lib.dodona_bits_free))


def assert_same_bits(*runs: Any, names: list[str] | None = None) -> SameBits:
    """Raises AssertionError unless all runs hold the same bits: which of them disagree, where the first element lies, how many they are and
    in what pattern. Runs as for same_bits()."""
    answer = same_bits(*runs, names=names)
    if not answer:
        raise AssertionError(answer.text)
    return answer


__all__ = ["Case", "OutputVerdict", "SameBits", "Verdict", "Whose", "assert_close", "assert_same_bits", "check", "gen", "golden", "load",
           "same_bits", "whose"]  # fmt: skip
