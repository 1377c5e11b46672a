"""An adapter: a function with upstream's signature that calls one of our ops.

What the two have in common by name needs no word. An `Op` says the rest: upstream's name for an argument, what carries no numerics, what is
handed over in another shape.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass, field, make_dataclass
from typing import Any, Callable, Mapping, Optional

import numpy as np

from .._library import BadType, BadValue, Error
from .._ops import function, parameters_of, plan_of
from ._upstream import Named, signature_of, with_later


class Refused(BadValue, BadType, AssertionError, RuntimeError):
    """What an adapter refuses. Upstream's wrappers and kernels do it with ValueError, TypeError, AssertionError and RuntimeError: it is each."""


class NotOffered(Refused, NotImplementedError):
    """A function, or a variant of one, that upstream has and the oracle has not."""


def refuse(name: str, message: str, *, kind: type[Refused] = Refused, code: str = "bad_value", argument: str = "") -> Refused:
    error = kind(f"{name}: {argument + ' ' if argument else ''}{message}")
    error.code, error.op, error.argument = code, name, argument
    return error


def as_refused(error: Error, name: str) -> Error:
    """The same error as upstream's callers catch it, beginning with the name that they called."""
    text = str(error)
    named = text.startswith(f"{name}:")
    if isinstance(error, MemoryError) or (isinstance(error, Refused) and named):
        return error
    made = (NotOffered if error.code == "unsupported" else Refused)(text if named else f"{name}: {text}")
    made.code, made.op, made.argument = error.code, error.op, error.argument
    return made


def named(name: str, method: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A function that is no adapter under upstream's name: what it or an op refuses is Refused under that name, and so is what cannot be read at all.
    A method keeps its own name, and refuses under its class's."""

    def decorated(made: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(made)

        @functools.wraps(made)
        def called(*args: Any, **kwargs: Any) -> Any:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{name}: {error}") from None
            try:
                return made(*args, **kwargs)
            except Error as error:
                raise as_refused(error, name) from None
            except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
                raise refuse(name, f"takes no such arguments ({error})") from error

        if not method:
            called.__name__ = called.__qualname__ = name
            called.__module__ = "dodona.compat"
        return called

    return decorated


# What means nothing here must still be what it is called: in the order of another version the place may be an argument's that does mean something.
IDLE_KINDS = {"enable_pdl": bool, "is_var_seq": bool, "tune_max_num_tokens": int, "use_fused_finalize": bool}

SKIP_CHECK = "skip_check"  # what upstream's decorator around functions with backends adds: arguments are checked here in any case

Call = dict  # the arguments of one call by name: upstream's, and ours where a hook adds them


@dataclass(frozen=True)
class Op:
    """How a function of upstream's is one of our ops; its members say what names and defaults do not."""

    op: str = ""  # ours, where its name differs
    names: Mapping[str, str] = field(default_factory=dict)  # upstream's argument -> ours
    only: Mapping[str, tuple] = field(default_factory=dict)  # upstream's argument -> the values that are offered; a hook sees those that it takes too
    takes: tuple[str, ...] = ()  # arguments of upstream's that a hook turns into others
    makes: tuple[str, ...] = ()  # arguments of ours that a hook gives
    sets: Mapping[str, Any] = field(default_factory=dict)  # arguments of ours that are what is said here in every call
    beside: Mapping[str, Any] = field(default_factory=dict)  # keywords of newer versions with their defaults, which a hook turns into others
    writes: Mapping[str, str] = field(default_factory=dict)  # upstream's argument -> the output of ours that is written to it
    before: Optional[Callable[[Call], None]] = None  # changes the arguments
    around: Optional[Callable[[Callable[[Call], Any], Call], Any]] = None  # makes the call: around(run, call)
    # Where a newer version has its parameters in another order: newer(positional arguments from the first other one on, keywords) is whether a call
    # means that order, None where it cannot be told.
    newer: Optional[Callable[[tuple, Mapping[str, Any]], Optional[bool]]] = None


class Adapter:
    """Upstream's signature over our op."""

    def __init__(
        self,
        name: str,
        signature: inspect.Signature,
        line: Op,
        dialect: str,
        ignored: frozenset[str],
        later: Mapping[str, Any] = {},  # parameters of a newer version, with defaults
        neutral: Mapping[str, tuple] = {},  # what those of a newer version may be where neither our op nor the line knows them
    ) -> None:
        self.name, self.line, self.op = name, line, line.op or name
        stored = signature.parameters
        signature = with_later(signature, later, line.beside)
        self.returns = signature.return_annotation
        plan = plan_of(self.op)
        self.fields = {parameter: of or parameter for parameter, of, _ in parameters_of(plan)}
        unknown = [theirs for theirs in neutral if not later or theirs not in stored]  # of a function that the newer version alone has, all of them
        self.only = {**{theirs: neutral[theirs] for theirs in signature.parameters if theirs in unknown}, **line.only}
        self.names = self._names(signature, ignored)  # upstream's argument -> ours, for those that are handed on
        self.types = self._types(plan)  # an attribute of ours -> the output of upstream's that has its type
        self.idle = {theirs: kind for theirs, kind in IDLE_KINDS.items() if theirs in ignored and theirs in signature.parameters}
        self.ours = self._ours(signature, plan, dialect)  # what our op takes beside them
        self.signature = signature.replace(parameters=[*signature.parameters.values(), *self.ours])
        self.function = self._function()
        order, newer_order = list(stored), list(later)
        if later and order != newer_order[: len(order)]:
            self.function = self._in_either_order(order, newer_order)

    def _names(self, signature: inspect.Signature, ignored: frozenset[str]) -> dict[str, str]:
        by_field = {of: parameter for parameter, of in self.fields.items()}
        found = {}
        for theirs in signature.parameters:
            if theirs in ignored or theirs in self.line.takes or theirs in self.line.only:
                if theirs not in self.line.only:
                    self.only.pop(theirs, None)
                continue
            ours = self.line.names.get(theirs, theirs.lstrip("_"))  # C++ writes some parameters with an underscore in front
            if ours in self.fields or ours in by_field:
                self.only.pop(theirs, None)
            elif theirs in self.only:
                continue
            else:
                raise LookupError(f"{self.name}: {self.op} has no {ours}, and no line says what becomes of it")
            found[theirs] = ours if ours in self.fields else by_field[ours]
        return found

    def _types(self, plan: Any) -> dict[str, str]:
        outputs = {self.fields[ours]: theirs for theirs, ours in self.names.items()}
        found = {}
        for slot in plan.slots:
            attr = slot.spec.get("dtype_attr")
            if attr and slot.name in outputs and attr not in (*self.names.values(), *self.line.makes, *self.line.sets):
                found[attr] = outputs[slot.name]
        return found

    def _ours(self, signature: inspect.Signature, plan: Any, dialect: str) -> list[inspect.Parameter]:
        """By keyword: the recipe, with the package's choices for defaults, outputs that upstream makes itself, mode and threads."""
        recipe = {spec["name"]: spec["dialects"][dialect] for spec in plan.schema["attributes"] if dialect in spec.get("dialects", {})}
        idle = {spec["name"] for spec in plan.schema["attributes"] if spec["no_effect"]}
        idle.update(parameter for parameter, of, _ in parameters_of(plan) if not of)
        taken = {*self.names.values(), *self.types, *self.line.makes, *self.line.sets, *self.line.writes.values(), *signature.parameters, *idle}
        found = []
        for name, parameter in inspect.signature(function(self.op)).parameters.items():
            if name not in taken:
                default = recipe.get(name, None if parameter.default is parameter.empty else parameter.default)
                found.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default))
        found += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default) for name, default in self.line.beside.items()]
        if "backend" in self.only:
            found.append(inspect.Parameter(SKIP_CHECK, inspect.Parameter.KEYWORD_ONLY, default=False))
        return found

    def _function(self) -> Callable[..., Any]:
        """A def with upstream's parameters: a call costs no more than handing them on."""
        space = {"_op": function(self.op), "_hooked": self._hooked, "_Error": Error, "_as_refused": as_refused, "_one": _one, "_type_of": _type_of, "_idle": self._idle, "_sets": self.line.sets}
        head = []
        for parameter in self.signature.parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY and "*" not in head:
                head.append("*")
            head.append(parameter.name)
            if parameter.default is not parameter.empty:
                space[f"_default_{parameter.name}"] = parameter.default
                head[-1] += f"=_default_{parameter.name}"
        given = {**{theirs: theirs for theirs in (*self.names, *self.line.takes, *self.only)}, **{p.name: p.name for p in self.ours if p.name != SKIP_CHECK}}
        if self.line.before or self.line.around or self.only:
            call = f"_hooked({_arguments(given)})"
        else:
            types = {attr: f"_type_of({output})" for attr, output in self.types.items()}
            sets = {name: f"_sets[{name!r}]" for name in self.line.sets}
            call = f"_op({_arguments({**{self.names.get(name, name): name for name in given}, **types, **sets})})"
        body = {"None": call, "()": call, "Tensor[]": f"return list({call})"}.get(self.returns, f"return _one({call})")
        checks = [f"    if {name}.__class__ is not {kind.__name__} and {name} is not None: _idle({name!r}, {name})" for name, kind in self.idle.items()]
        lines = [f"def {self.name}({', '.join(head)}):", *checks, "    try:", f"        {body}", "    except _Error as error:"]
        exec("\n".join([*lines, f"        raise _as_refused(error, {self.name!r}) from None"]), space)
        made = space[self.name]
        made.__doc__, made.__module__ = function(self.op).__doc__, "dodona.compat"
        if "backend" in self.only:  # of upstream's decorator around functions with several
            made.is_backend_supported = lambda backend, cc=None: backend in self.only["backend"]
            made.is_compute_capability_supported = lambda cc: True
        return made

    def _in_either_order(self, order: list[str], newer_order: list[str]) -> Callable[..., Any]:
        """The function for callers by position of both versions."""
        made, name, tell = self.function, self.name, self.line.newer
        assert tell is not None, f"{name}: {newer_order} is another order than {order}, and no line says how calls are told apart"
        same = next(i for i, theirs in enumerate(order) if i == len(newer_order) or newer_order[i] != theirs)

        @functools.wraps(made)
        def called(*args: Any, **kwargs: Any) -> Any:
            if len(args) <= same:
                return made(*args, **kwargs)
            newer = tell(args[same:], kwargs)
            if newer is None:
                places = f"{order[same]} of {name} in one version of upstream, {newer_order[same]} in a newer one"
                raise refuse(name, f"is {args[same]!r} by position, where it is {places}; give it by keyword", argument=order[same])
            names = newer_order if newer else order
            if len(args) > len(names):
                raise TypeError(f"{name}() takes {len(names)} positional arguments but {len(args)} were given")
            beyond = dict(zip(names[same:], args[same:]))
            if twice := beyond.keys() & kwargs.keys():
                raise TypeError(f"{name}() got multiple values for argument {min(twice)!r}")
            return made(*args[:same], **beyond, **kwargs)

        return called

    def _idle(self, name: str, value: Any) -> None:
        """A number may be of any class, and stand for a truth value."""
        kind = self.idle[name]
        number = isinstance(value, (int, np.bool_, np.integer)) and not (kind is int and isinstance(value, (bool, np.bool_)))
        if not number or (kind is bool and value not in (0, 1)):
            expected = {bool: "None, True or False", int: "None or a whole number"}[kind]
            raise refuse(self.name, f"is {_told(value)}, expected {expected}: versions of upstream differ in what stands at a place", argument=name)

    def _hooked(self, **given: Any) -> Any:
        """Through the hooks, which take arguments to be what they are called: where that was wrong, what is no such thing is named."""
        try:
            return self._through_hooks(dict(given))
        except Error:
            raise
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise self._misfit(given, error) from error

    def _misfit(self, given: Call, error: Exception) -> Refused:
        plan, shown = plan_of(self.op), []
        for theirs, parameter in self.signature.parameters.items():
            words = parameter.annotation  # of an operator's schema
            if given.get(theirs) is None and isinstance(words, str) and words.startswith("Tensor") and "?" not in words:
                return refuse(self.name, "is required", argument=theirs, code="missing_argument")
        slots, attrs = {slot.name: slot for slot in plan.slots}, {attr.name: attr for attr in plan.attrs}
        for theirs, ours in self.names.items():
            value, field_of = given.get(theirs), self.fields[ours]
            array = hasattr(getattr(value, "array", value), "shape") and not isinstance(value, np.generic)
            slot, attr = slots.get(field_of), attrs.get(field_of)
            if slot is not None and value is None and not slot.spec["optional"] and (slot.spec["direction"] != "out" or slot.spec.get("given")):
                return refuse(self.name, "is required", argument=theirs, code="missing_argument")
            if slot is not None and attr is None and value is not None and not array:
                return refuse(self.name, f"is {_told(value)}, expected an array (NumPy, torch, or anything with __dlpack__)", argument=theirs, code="bad_dtype")
            if slot is None and attr is not None and array:
                return refuse(self.name, f"is {_told(value)}, expected {attr.expected()}", argument=theirs)
            if array:
                shown.append(f"{theirs} is {_told(getattr(value, 'array', value))}")
        shown += [f"{theirs} is {_told(given[theirs])}" for theirs in self.line.takes if given.get(theirs) is not None]
        return refuse(self.name, f"takes no such arguments ({error}): {', '.join(shown)}")

    def _through_hooks(self, call: Call) -> Any:
        for name, values in self.only.items():
            given = call[name] if name in self.line.takes else call.pop(name)
            if not any(_same(given, value) for value in values):
                offered = " or ".join(dict.fromkeys(map(repr, values)))
                raise refuse(self.name, f"is {_told(given)}, offered is {offered}", kind=NotOffered, code="unsupported", argument=name)
        if self.line.before:
            self.line.before(call)
        return self.line.around(self._run, call) if self.line.around else self._run(call)

    def _run(self, call: Call) -> Any:
        """Our op with what the hooks left of the call."""
        given = {**self.line.sets, **{self.names.get(name, name): value for name, value in call.items() if name not in self.line.takes}}
        given.update({attr: _type_of(call[output]) for attr, output in self.types.items()})
        return function(self.op)(**given)


def _told(value: Any) -> str:
    """Of tensors type and shape alone."""
    shape = getattr(value, "shape", None)
    return repr(value) if shape is None else f"{value.dtype} {list(shape)}"


def _same(given: Any, value: Any) -> bool:
    """Members of enumerations by their names, or the numbers that they are."""
    if isinstance(value, Named):
        return str(given) == value.text
    return given is value or ((isinstance(value, type(given)) or isinstance(given, type(value))) and given == value)


def _arguments(given: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in given.items())


def _one(result: Any) -> Any:
    """One output is handed back bare, also where our op could have given more."""
    return result[0] if type(result) is tuple and len(result) == 1 else result


def _type_of(output: Any) -> Any:
    """Codes in NumPy's unsigned integers say no type: it is the op's own then."""
    kind = getattr(output, "dtype", None)
    return None if kind in (None, np.uint8, np.uint16) else kind


def absent(place: str, offered: list[str], signature: inspect.Signature | None = None) -> Callable[..., Any]:
    """A function of upstream's that the oracle has not: it is there to be imported, and says so when it is called."""
    package, name = place.partition(".")[0], place.rpartition(".")[2]

    def called(*args: Any, **kwargs: Any) -> Any:
        raise refuse(name, f"{place} is not offered; dodona.compat has of {package}: {', '.join(offered)}", kind=NotOffered, code="unsupported")

    called.__name__ = called.__qualname__ = name
    called.__module__ = place.rpartition(".")[0]
    called.__doc__ = f"{place}: not offered by dodona.compat."
    if signature is not None:
        called.__signature__ = signature  # type: ignore[attr-defined]
    return called


class AbsentMember(Named):
    """A member of a class that is not offered: known by its name, and saying so where it is called."""

    __slots__ = ("_raising",)

    def __init__(self, text: str, raising: Callable[..., Any]) -> None:
        super().__init__(text)
        self._raising = raising

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._raising()


def absent_class(place: str, offered: list[str], members: list[str]) -> type:
    """Likewise a class: it can be imported, subclassed and asked for its members by name, and raises where an object is made."""
    module, _, name = place.rpartition(".")
    raising = absent(place, offered)
    body = {"__module__": module, "__qualname__": name, "__doc__": raising.__doc__, "__init__": lambda self, *args, **kwargs: raising()}
    return type(name, (), {**{member: AbsentMember(f"{place}.{member}", raising) for member in members}, **body})


def data_class(place: str, parameters: str) -> type:
    """A class that holds what it is made of, and no more: it is what upstream's is, less methods."""
    module, _, name = place.rpartition(".")
    fields = signature_of(f"{parameters} -> None").parameters.values()
    described = [(f.name, Any) if f.default is f.empty else (f.name, Any, field(default=f.default)) for f in fields]
    return make_dataclass(name, described, namespace={"__module__": module, "__doc__": f"{place}: its fields."}, frozen=True)
