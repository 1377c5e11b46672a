"""Every op of the inventory as a function, made from its schema on first use."""

from __future__ import annotations

import ctypes
import json
import numbers
import struct
from typing import Any, Callable, Mapping

import numpy as np

from ._arrays import TORCH, Slot, Typed, dtype_name, dtypes_of, empty_like, is_torch, like_torch, made_tensors
from ._library import GPUS, BadType, Handle, check, exec_bytes, fail, lib, made, mode_of, text_bytes

_pack_attr = struct.Struct("PPd").pack
_EXEC = {(None, None): None}
_NOTHING = object()  # the default of what must be given: no value equals it


def names() -> list[str]:
    """Names of all ops, in the inventory's order."""
    return [lib.dodona_op_name(index).decode() for index in range(lib.dodona_op_count())]


def schema(op: str) -> dict[str, Any]:
    """The schema of an op: tensors, attributes, parameters, contract, known defects, case lines."""
    text = lib.dodona_op_schema(text_bytes(op, "op", "the name of an op"))
    if text is None:
        raise fail(f"no op of that name; dodona.ops() lists them: {lib.dodona_last_error().decode()}", code="unknown_op", argument=op)
    return json.loads(text)


class _Attr:
    """One attribute of an op: how Python values become it."""

    __slots__ = ("op", "name", "kind", "default", "required", "_name", "pointer")

    def __init__(self, op: str, spec: dict) -> None:
        self.op, self.name, self.kind, self.default = op, spec["name"], spec["kind"], spec["default"]
        self.required = spec["required"]
        self._name = ctypes.create_string_buffer(self.name.encode())
        self.pointer = ctypes.addressof(self._name)

    def pack(self, value: Any, keep: list) -> bytes:
        """dodona_attr as bytes."""
        if isinstance(value, np.generic) and not isinstance(value, np.character):
            value = value.item()
        kind = self.kind
        if kind == "float" and isinstance(value, (int, float)) and not isinstance(value, bool):
            return _pack_attr(self.pointer, 0, value)
        if kind == "bool" and isinstance(value, bool):
            return _pack_attr(self.pointer, 0, value)
        if kind == "dtype":
            return self._word(dtype_name(value, self.op, self.name), keep)
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise fail(f"is {value!r}, expected {self.expected()}", kind=BadType, code="bad_value", op=self.op, argument=self.name)
        plain = int if isinstance(value, int) else float if isinstance(value, float) else str  # members of IntEnum write themselves otherwise
        return self._word(str(plain(value)), keep)

    def _word(self, text: str, keep: list) -> bytes:
        buffer = ctypes.create_string_buffer(text_bytes(text, self.name))
        keep.append(buffer)
        return _pack_attr(self.pointer, ctypes.addressof(buffer), 0.0)

    def expected(self) -> str:
        return {"int": "a whole number", "float": "a number", "bool": "True or False", "word": "a word"}.get(self.kind, self.kind)


class Plan:
    """What is known of an op before it is called."""

    def __init__(self, op: str) -> None:
        self.schema = schema(op)
        self.op, self.c_name = op, op.encode()
        tensors = {spec["name"]: spec for spec in self.schema["tensors"]}
        attrs = {spec["name"]: spec for spec in self.schema["attributes"]}
        self.slots = [Slot(op, spec, tensors, attrs) for spec in self.schema["tensors"]]
        self.attrs = [_Attr(op, spec) for spec in self.schema["attributes"]]
        self.defaults = [_NOTHING if attr.required else attr.default for attr in self.attrs]
        self.outputs = [i for i, slot in enumerate(self.slots) if slot.spec["direction"] == "out"]
        # Outputs that NumPy can allocate, for they look like an input; the library makes the others.
        self.alike = {i: self._model(i) for i in self.outputs}
        self.views = {i: self._index(self.slots[i].spec["view_of"]) for i in self.outputs if self.slots[i].spec.get("view_of")}
        self.dtype_of_output = {slot.name: slot.spec for slot in self.slots}
        self.scalar = len(self.outputs) == 1 and self.slots[self.outputs[0]].spec["shape"].strip() == ""

    def _index(self, name: str) -> int:
        return next(i for i, slot in enumerate(self.slots) if slot.name == name)

    def _model(self, output: int) -> int | None:
        spec = self.slots[output].spec
        if spec["optional"] or spec.get("view_of") or "|" in spec["shape"]:
            return None
        for i, slot in enumerate(self.slots):
            same = spec.get("same_dtype_as") == slot.name or (
                spec.get("same_dtype_as") is not None and spec.get("same_dtype_as") == slot.spec.get("same_dtype_as")
            )
            if slot.spec["direction"] != "out" and not slot.spec["optional"] and same and slot.spec["shape"] == spec["shape"]:
                return i
        return None


def _packed_attrs(plan: Plan, values: tuple, keep: list) -> tuple[bytes, int]:
    packed = []
    for attr, value, default in zip(plan.attrs, values, plan.defaults):
        if value is default or value is None:
            continue  # not given: the library has the default, or says that it is missing
        packed.append(attr.pack(value, keep))
    return b"".join(packed), len(packed)


class Prepared:
    """Weights of one op, packed once for many calls in fast mode; see prepare."""

    __slots__ = ("op", "arguments", "_handle")

    def __init__(self, op: str, handle: Handle) -> None:
        self.op, self._handle = op, handle
        self.arguments: tuple[str, ...] = tuple(plan_of(op).schema["prepared"])  # what it is given in place of

    def __repr__(self) -> str:
        size = "freed" if self._handle is None else f"{self.nbytes} bytes"
        return f"<dodona.Prepared {', '.join(self.arguments)} of {self.op}, {size}>"

    @property
    def handle(self) -> int:
        if self._handle is None:
            raise fail("weights are freed", op=self.op, argument="prepared")
        return self._handle.value

    @property
    def nbytes(self) -> int:
        return lib.dodona_prepared_bytes(self.handle)

    def free(self) -> None:
        """Gives the memory back now; later calls with it are refused. No call may be using it."""
        self._handle = None


def prepare(op: str, *, threads: int | None = None, **weights: Any) -> Prepared:
    """Packs weights of an op: dodona.prepare("cutlass_scaled_fp4_mm", b=b, block_scale_b=scales). The arrays are needed no more; fast mode
    takes what is returned in place of each of them and gives the same bits. schema(op)["prepared"] names them. Attributes of the calls to
    come may be given too: some ops pack by them (weight_layout, arithmetic) and refuse weights that were packed for other calls."""
    plan, keep = plan_of(op), []
    slots = {slot.name: slot for slot in plan.slots}
    attrs = {attr.name: attr for attr in plan.attrs}
    for name in weights:
        if name not in slots and name not in attrs:
            raise fail("is not an argument of this op", kind=BadType, code="unknown_argument", op=op, argument=name)
    packed = [slots[name].pack(value, keep, []) for name, value in weights.items() if name in slots]
    chosen = [attrs[name].pack(value, keep) for name, value in weights.items() if name not in slots]
    how = exec_bytes(None, threads)
    call = lambda place: lib.dodona_prepare_for(plan.c_name, b"".join(packed), len(packed), b"".join(chosen), len(chosen), how, place)
    return Prepared(op, made(call, lib.dodona_prepared_free))


def gather(count: int, parts: Mapping[int, Prepared]) -> Prepared:
    """Weights of `count` experts, of which those of `parts` are there, each prepared alone from arrays whose first size is 1. Copies nothing.
    A call that needs another expert is refused."""
    if not isinstance(parts, Mapping) or not all(isinstance(part, Prepared) for part in parts.values()):
        raise fail(f"is {type(parts).__name__}, expected prepared weights by the expert's number", kind=BadType, argument="parts")
    if not all(isinstance(number, numbers.Integral) for number in (count, *parts)):
        raise fail("are no whole numbers", kind=BadType, argument="experts")
    if not parts:
        raise fail("are none, expected at least one", code="missing_argument", argument="parts")
    if min(parts) < 0 or max(parts) >= count:
        raise fail(f"name experts {min(parts)} to {max(parts)}, expected 0 to {count - 1}", argument="parts")
    index = (ctypes.c_size_t * len(parts))(*parts)
    handles = (ctypes.c_void_p * len(parts))(*(part.handle for part in parts.values()))
    call = lambda place: lib.dodona_prepared_gather(count, index, handles, len(parts), place)
    return Prepared(next(iter(parts.values())).op, made(call, lib.dodona_prepared_free))


def _take_prepared(plan: Plan, given: list) -> Prepared:
    """The prepared weights among the arguments, which become arguments that are not given."""
    found = next(value for value in given if type(value) is Prepared)
    for i, slot in enumerate(plan.slots):
        inside = slot.name in found.arguments and found.op == plan.op
        if type(given[i]) is Prepared and given[i] is not found:
            raise fail("are two, expected one for all of their arguments", op=plan.op, argument="prepared weights")
        if given[i] is found and found.op == plan.op and not inside:
            raise fail(f"is prepared weights, which stand for {', '.join(found.arguments)}", kind=BadType, code="bad_dtype", op=plan.op,
                       argument=slot.name)  # fmt: skip
        if given[i] is found:
            given[i] = None
    return found


def run(plan: Plan, tensors: tuple, attrs: tuple, mode: str | None, threads: int | None) -> Any:
    """One call: `tensors` and `attrs` in the order of the schema, None for what is not given."""
    keep: list = []
    back: list = []
    packed = []
    given = list(tensors)
    slots = plan.slots
    prepared = _take_prepared(plan, given) if Prepared in map(type, given) else None
    for i, slot in enumerate(slots):
        value = given[i]
        if value is not None:
            packed.append(slot.pack(value, keep, back))
    missing = False
    for i in plan.outputs:
        if given[i] is not None:
            continue
        model = plan.alike[i]
        source = given[model] if model is not None else None
        # Raw codes of torch are left to the library: what it makes has the type that they stand for.
        if type(source) is np.ndarray or (type(source) in TORCH and source.dtype.is_floating_point):
            try:
                given[i] = result = empty_like(source)
            except (MemoryError, RuntimeError):
                missing = True  # the library says it of the op and the argument
                continue
            packed.append(slots[i].pack(result, keep, back))
        else:
            missing = True
    try:
        plain = attrs == plan.defaults
    except (ValueError, RuntimeError):  # arrays among them, which are neither equal nor not
        plain = False
    attr_bytes, attr_count = (None, 0) if plain else _packed_attrs(plan, attrs, keep)
    key = (mode, threads)
    try:
        how = _EXEC[key]
    except (KeyError, TypeError):  # not seen before, or none that could be
        how = exec_bytes(mode, threads)
        _EXEC[key] = how
    place = ctypes.c_void_p() if missing else None
    to = ctypes.byref(place) if missing else None
    if prepared is None:
        status = lib.dodona_run(plan.c_name, b"".join(packed), len(packed), attr_bytes, attr_count, how, to)
    else:
        handle = prepared.handle
        status = lib.dodona_run_prepared(plan.c_name, handle, b"".join(packed), len(packed), attr_bytes, attr_count, how, to)
    if status:
        check(status)
    if missing:
        _take_made(plan, given, place.value)
    for device, host in back:
        device.copy_(host)
    if len(plan.outputs) == 1:
        result = given[plan.outputs[0]]
        return result.item() if plan.scalar and isinstance(result, np.ndarray) else result
    return tuple(given[i] for i in plan.outputs if given[i] is not None) or None


def _take_made(plan: Plan, given: list, handle: int) -> None:
    """Puts what the library made where the caller gave nothing; torch callers get torch tensors."""
    model = next((value for value in given if value is not None), None)
    model = model.array if isinstance(model, Typed) else model
    kinds = dtypes_of(handle) if is_torch(model) else {}
    made = made_tensors(handle)
    for i in plan.outputs:
        slot = plan.slots[i]
        if given[i] is not None or slot.name not in made:
            continue
        if i in plan.views:
            source = given[plan.views[i]]
            given[i] = (source.array if isinstance(source, Typed) else source)[...]
        elif kinds:
            given[i] = like_torch(made[slot.name], kinds[slot.name], model)
        else:
            given[i] = made[slot.name]


# ---- functions ----


def parameters_of(plan: Plan) -> list[tuple[str, str, str]]:
    """Parameter, field, and the kind of parameter: positional or keyword."""
    listed = [(p["name"], p["field"], "positional") for p in plan.schema["parameters"]]
    fields = {field for _, field, _ in listed}
    taken = {name for name, _, _ in listed}
    rest = [slot.name for slot in plan.slots if not slot.spec.get("view_of")] + [attr.name for attr in plan.attrs]
    for name in dict.fromkeys(rest):
        if name not in fields and name not in taken:
            listed.append((name, name, "keyword"))
    return listed


def _default(plan: Plan, field: str) -> str | None:
    """The default as source text; None when the argument must be given."""
    for slot in plan.slots:
        if slot.name == field:
            return "None" if slot.spec["optional"] or (slot.spec["direction"] == "out" and not slot.spec.get("given")) else None
    for attr in plan.attrs:
        if attr.name == field:
            return None if attr.required else repr(attr.default)
    return "None"


def _source(plan: Plan) -> str:
    """The function's text: upstream's parameters, then by keyword what else the schema has."""
    parameters = parameters_of(plan)
    head, optional = [], False
    keyword = [p for p in parameters if p[2] == "keyword"]
    for name, field, _ in (p for p in parameters if p[2] == "positional"):
        default = _default(plan, field) if field else "None"
        if default is None and optional:
            default = "None"  # stands behind one that has a default: the library says that it is missing
        optional = optional or default is not None
        head.append(name if default is None else f"{name}={default}")
    head.append("*")
    for name, field, _ in keyword:
        default = _default(plan, field)
        head.append(name if default is None else f"{name}={default}")
    head += ["mode=None", "gpu=None", "threads=None"]
    by_field = {field: name for name, field, _ in parameters if field}
    tensors = [by_field.get(slot.name, "None") for slot in plan.slots]
    attrs = [by_field[attr.name] for attr in plan.attrs]
    # One name for a tensor and for the attribute that asks for it, or that holds one number for all: what is no array is the attribute.
    both = [attr for attr in plan.attrs if attr.name in {slot.name for slot in plan.slots}]
    lines = [f"def {plan.op}({', '.join(head)}):"]
    for attr in both:
        kinds = "bool" if attr.kind == "bool" else "(int, float, _generic)"
        name = attr.name
        lines.append(f"    {name}, {name}_ = (None, {name}) if isinstance({name}, {kinds}) else ({name}, {attr.default!r})")
        attrs = [f"{given}_" if given == name else given for given in attrs]
    lines.append(f"    return _run(_plan, ({''.join(t + ', ' for t in tensors)}), [{', '.join(attrs)}], mode if gpu is None else _mode_of(mode, gpu), threads)")
    return "\n".join(lines)


def _tensor_doc(slot: Slot) -> str:
    spec = slot.spec
    types = f"as {spec['same_dtype_as']}" if spec.get("same_dtype_as") else f"by {spec['dtype_attr']}" if spec.get("dtype_attr") else ""
    types = "|".join([types] * bool(types) + spec["dtypes"])
    notes = [types, f"[{spec['shape']}]"]
    if spec["layout"] != "rows":
        notes.append(spec["layout"].replace("_", "-"))
    if spec["direction"] == "in place":
        notes.append("written in place")
    if spec.get("storage"):
        notes.append(spec["storage"]["text"])
    if spec["optional"]:
        notes.append("optional")
    return f"    {slot.name}: {', '.join(notes)}: {spec['doc']}"


def _doc(plan: Plan) -> str:
    s = plan.schema
    lines = [*([s["about"], ""] if s.get("about") else []), s["contract"], "", f"{s['category']}; upstream: {', '.join(s['sources'])}.", "", "Tensors", *[_tensor_doc(slot) for slot in plan.slots]]
    if plan.attrs:
        lines += ["", "Attributes"]
    for spec in s["attributes"]:
        default = "required" if spec["required"] else f"default {spec['default']}"
        choices = "; " + "|".join(spec["choices"]) if spec.get("choices") else ""
        dialects = "".join(f"; {dialect}: {value}" for dialect, value in spec.get("dialects", {}).items())
        lines.append(f"    {spec['name']}: {default}{choices}{dialects}: {spec['doc']}")
    lines += ["", f"mode: {', '.join(s['modes'])}. gpu: a GPU instead of its mode: {', '.join(GPUS)}. threads: a number; all processors when not given."]
    lines += s["caveats"].values()
    lines += ["", "Case lines", *[f"    {plan.op} {line}" for line in s["cases"]]]
    return "\n".join(lines)


_functions: dict[str, Callable[..., Any]] = {}
_plans: dict[str, Plan] = {}


def plan_of(op: str) -> Plan:
    if op not in _plans:
        _plans[op] = Plan(op)
    return _plans[op]


def function(op: str) -> Callable[..., Any]:
    """The function of an op; the same object every time."""
    if op not in _functions:
        plan = plan_of(op)
        space: dict[str, Any] = {"_run": run, "_plan": plan, "_mode_of": mode_of, "_generic": np.generic}
        exec(_source(plan), space)  # a def with upstream's own parameters costs nothing per call
        made = space[op]
        made.__doc__, made.__module__, made.__qualname__ = _doc(plan), "dodona", op
        _functions[op] = made
    return _functions[op]
