"""torch.ops.<package>: the operators of upstream's libraries under their schemas. Those that the oracle has run on the CPU and know the shapes
and types of what they give (meta and fake tensors); the others raise when they are called."""

from __future__ import annotations

import functools
from typing import Any

from .._arrays import ALIASES
from .._ops import Plan, plan_of
from ._adapt import Adapter, NotOffered, absent, refuse
from ._packages import Package

_libraries: dict[str, Any] = {}  # torch forgets the operators of a library that nobody holds


def define(package: Package) -> None:
    """Defines the package's operators, once in a process. One kernel serves every device: a program may still register its own for meta
    tensors, as programs do for upstream's operators."""
    import torch

    if package.name in _libraries or not package.record.schemas:
        return
    library = _libraries[package.name] = torch.library.Library(package.name, "FRAGMENT")
    offered = package.offered_torch_ops()
    for name, schema in package.record.schemas.items():
        library.define(schema)
        kernel = functools.partial(_run, package, name) if name in offered else absent(f"torch.ops.{package.name}.{name}", offered)
        library.impl(name, kernel, "CompositeExplicitAutograd")


def _run(package: Package, name: str, *args: Any, **kwargs: Any) -> Any:
    adapter = package.torch_adapter(name)
    if any(getattr(getattr(value, "device", None), "type", "") == "meta" for value in (*args, *kwargs.values())):
        return _shapes(adapter, adapter.signature.bind(*args, **kwargs).arguments)
    return adapter.function(*args, **kwargs)


def _shapes(adapter: Adapter, given: dict[str, Any]) -> Any:
    """What a call gives, without values. Sizes are those that the inputs and attributes name; an operator that writes gives nothing."""
    if adapter.returns == "()":
        return None
    plan = plan_of(adapter.op)
    ours = {adapter.fields[adapter.names[theirs]]: value for theirs, value in given.items() if value is not None and theirs in adapter.names}
    if plan.views:
        return ours[plan.slots[plan.views[plan.outputs[0]]].name][...]
    sizes: dict[str, Any] = {attr.name: ours.get(attr.name, attr.default) for attr in plan.attrs if attr.kind == "int"}
    for slot in plan.slots:
        for alternative in slot.spec["shape"].split("|") if slot.name in ours else []:
            words = alternative.split()
            if len(words) == len(ours[slot.name].shape):
                for word, size in zip(words, ours[slot.name].shape):
                    sizes.setdefault(word, size)
    made = [_made(adapter, plan, i, ours, sizes) for i in plan.outputs if plan.slots[i].name not in ours and not plan.slots[i].spec["optional"]]
    return made if adapter.returns == "Tensor[]" else made[0]


def _made(adapter: Adapter, plan: Plan, output: int, ours: dict[str, Any], sizes: dict[str, Any]) -> Any:
    import torch

    spec = plan.slots[output].spec
    words = spec["shape"].split()
    unknown = [word for word in words if word not in sizes and not word.isdigit()]
    if unknown:
        raise refuse(adapter.name, f"has sizes {', '.join(unknown)}, which the inputs do not name", kind=NotOffered, code="unsupported", argument=spec["name"])
    kind = ours[spec["same_dtype_as"]].dtype if spec.get("same_dtype_as") else ours.get(spec.get("dtype_attr"))
    if kind is None:
        kind = getattr(torch, next(theirs for theirs, name in ALIASES.items() if name == spec["dtypes"][0] and hasattr(torch, theirs)))
    return torch.empty([sizes.get(word, word.isdigit() and int(word)) for word in words], dtype=kind, device="meta")
