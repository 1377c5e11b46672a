"""A package of upstream's with all its modules: adapters where the oracle has the op, and for every other name something that says so."""

from __future__ import annotations

import enum
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable, Mapping

from .._ops import names, plan_of
from ._adapt import Adapter, Op, absent, absent_class, data_class
from ._upstream import Named, Record, signature_of, signature_of_schema


class _Module(ModuleType):
    """A module whose names are made when they are asked for."""

    def __init__(self, name: str, package: Package, file: str) -> None:
        super().__init__(name, f"{name} of upstream, on the CPU; see dodona.compat.")
        inner = any(module.startswith(name + ".") for module in package.record.modules)
        self.__spec__ = ModuleSpec(name, None, is_package=inner)
        self.__file__, self.__package__ = file, name if inner else name.rpartition(".")[0]
        if inner:
            self.__path__: list[str] = []
        self._owner = package

    def __getattr__(self, name: str) -> Any:
        made = self._owner.attribute(self.__spec__.name, name)
        setattr(self, name, made)
        return made

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._owner.record.names(self.__spec__.name)})


class Later:
    """What needs torch to be made, and is made when it is asked for."""

    def __init__(self, made: Callable[[], Any]) -> None:
        self.made = made


class Package:
    """What `lines` and the inventory offer of a package. Ops that have the package among their sources need no line where the names agree."""

    def __init__(
        self,
        package: str,
        lines: Mapping[str, Op],
        *,
        torch_lines: Mapping[str, Op],
        own: Mapping[str, Any],
        ignored: frozenset[str],
        within: frozenset[str] = frozenset(),
    ) -> None:
        self.record, self.lines, self.torch_lines, self.ignored = Record(package), lines, torch_lines, ignored
        self.within = within  # ops that upstream has no function of their own for: a line of another function calls them
        self.own = own  # what needs no op, by the place where upstream defines it
        self.name = package
        self._adapters: dict[str, Adapter] = {}
        self._torch_adapters: dict[str, Adapter] = {}
        self._made: dict[str, Any] = {}
        self._modules: dict[str, ModuleType] = {}

    # The inventory writes upstream as its projects do, sgl-kernel; a package's name has an underscore there.
    def ops(self) -> list[str]:
        sources = {op: plan_of(op).schema["sources"] for op in names() if op not in self.within}
        return [op for op in sources if self.name in (source.replace("-", "_") for source in sources[op])]

    def offered(self) -> list[str]:
        """Upstream's names of the functions that there are."""
        return sorted({*self.ops(), *self.lines})

    def offered_torch_ops(self) -> list[str]:
        return sorted(name for name in self.record.schemas if name in self.torch_lines or name in self.ops())

    def adapter(self, name: str) -> Adapter:
        if name not in self._adapters:
            place, text = self.record.function(name)
            later = signature_of(self.record.later[place]).parameters if place in self.record.later else {}
            newer = {name: parameter.default for name, parameter in later.items()}
            beyond = {p.name: p.default for p in signature_of(text).parameters.values() if p.default is not p.empty} if place in self.record.new else newer
            neutral = {name: (default, self._number(default)) for name, default in beyond.items()}
            self._adapters[name] = Adapter(name, signature_of(text), self.lines.get(name, Op()), self.name, self.ignored, newer, neutral)
        return self._adapters[name]

    def _number(self, default: Any) -> Any:
        """What a member of an enumeration stands for, where upstream names one; anything else as it is."""
        path = default.text.split(".") if isinstance(default, Named) else [""]
        for parts in self.record.modules.values():
            members = parts.get("classes", {}).get(path[0], {}).get("enum", {})
            if len(path) > 1 and path[1] in members:
                return members[path[1]]
        return default

    def torch_adapter(self, name: str) -> Adapter:
        if name not in self._torch_adapters:
            signature = signature_of_schema(self.record.schemas[name])
            self._torch_adapters[name] = Adapter(name, signature, self.torch_lines.get(name, Op()), self.name, self.ignored)
        return self._torch_adapters[name]

    def attribute(self, module: str, name: str) -> Any:
        """What `module` has under `name`; the same object wherever it is found."""
        if name == "__version__" and module in (self.name, f"{self.name}.version"):
            return self.record.version
        if name == "__all__":
            return sorted({*(public for public in self.record.names(module) if not public.startswith("_")), *self._beside(module)})
        target, found = self.record.modules[module].get("imports", {}).get(name), self.record.find(module, name)
        if target in self._modules and found is None:  # a function may have its module's name
            return self._modules[target]
        if found is None and f"{module}.{name}" in self.own:  # of a build that the stored version is not
            return self.own[f"{module}.{name}"]
        if found is None and name in self._beside(module):
            found = (self.record.function(name)[0], "functions", "")
        if found is None:
            listing = f"dodona.compat.functions({self.name!r}) lists what it has"
            raise AttributeError(f"dodona.compat.{module} has no {name}: upstream {self.record.version} has none; {listing}")
        place, kind, known = found
        if place not in self._made:
            self._made[place] = self._make(place, kind, known)
        return self._made[place]

    def _beside(self, module: str) -> list[str]:
        """What the package offers at its top, wherever upstream has it."""
        return self.offered() if module == self.name else []

    def _make(self, place: str, kind: str, known: Any) -> Any:
        name = place.rpartition(".")[2]
        if place in self.own:
            made = self.own[place]
            return made.made() if isinstance(made, Later) else made
        if kind == "functions" and name in self.offered() and self.record.function(name)[0] == place:
            return self.adapter(name).function
        if kind == "functions":
            return absent(place, self.offered(), signature_of(known))
        if kind == "values":
            return Named(place) if known is None else known
        if "enum" in known:
            return _enum(name, known["base"], known["enum"])
        if known.get("base") == "Exception":
            return type(name, (Exception,), {"__module__": place.rpartition(".")[0]})
        if known.get("data"):
            return data_class(place, known["init"])
        return absent_class(place, self.offered(), known.get("members", []))

    def modules(self, top: ModuleType) -> dict[str, ModuleType]:
        """Every module by its name, `top` standing for the package itself."""
        if not self._modules:
            self._modules[self.name] = top
            for name in sorted(self.record.modules):
                if name != self.name:
                    self._modules[name] = _Module(name, self, top.__file__ or "")
                    owner, _, last = name.rpartition(".")
                    if self.record.find(owner, last) is None:
                        setattr(self._modules[owner], last, self._modules[name])
        return self._modules

    def install(self, top: ModuleType) -> None:
        """Makes imports find the modules."""
        modules = self.modules(top)
        for name, module in modules.items():
            there = sys.modules.get(name, module)
            if there is not module:
                raise RuntimeError(f"{name} is already imported from {getattr(there, '__file__', 'elsewhere')}")
        sys.modules.update(modules)


def _enum(name: str, base: str, members: Mapping[str, Any]) -> type:
    """A tuple is what the member is made of; members whose value is no constant have their place for one."""
    values = [value[0] if isinstance(value, list) and len(value) == 1 else value for value in members.values()]
    values = [i if value is None else value for i, value in enumerate(values)]
    whole = all(isinstance(value, int) for value in values)
    return (getattr(enum, base, enum.Enum) if whole else enum.Enum)(name, list(zip(members, values)))


def listing(functions: list[str]) -> str:
    """The end of a package's docstring."""
    return "Functions: " + ", ".join(functions) + "."


def in_place_of(package: Package, space: dict[str, Any]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The __getattr__ and __dir__ of the module that stands for a package at the top; its own modules are set in it."""
    top = sys.modules[space["__name__"]]
    top.__path__ = []  # it has modules, none of them a file
    for name, module in package.modules(top).items():
        sys.modules[f"dodona.compat.{name}"] = module
    space["__version__"] = package.record.version
    space["__all__"] = package.attribute(package.name, "__all__")
    space["__doc__"] = f"{space['__doc__']}\n\n{listing(package.offered())}"

    def get(name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        made = package.attribute(package.name, name)
        space[name] = made
        return made

    return get, lambda: sorted({*space, *space["__all__"]})
