"""What a version of an upstream package offers, by name: upstream/PACKAGE.json, which tools/upstream-signatures makes from its sources."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any, Collection, Iterator, Mapping


class Named:
    """A value of upstream that is known here by its name alone."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


def value_of(text: str) -> Any:
    """A default as upstream writes it. torch's names are torch's where a program has imported it."""
    torch = sys.modules.get("torch")
    if text.startswith("torch.") and hasattr(torch, text[len("torch.") :]):
        return getattr(torch, text[len("torch.") :])
    try:
        return ast.literal_eval(text)
    except ValueError:
        return Named(text)


def signature_of(text: str) -> inspect.Signature:
    """`(input, eps=1e-06, *, out=None) -> Tensor`; the annotation is the text of what is returned."""
    head, _, returned = text.rpartition(" -> ")
    arguments = ast.parse(f"def f{head}: pass").body[0].args  # type: ignore[attr-defined]
    kinds = inspect.Parameter
    listed = []

    def add(node: ast.arg, kind: Any, default: ast.expr | None) -> None:
        value = inspect.Parameter.empty if default is None else value_of(ast.unparse(default))
        listed.append(inspect.Parameter(node.arg, kind, default=value))

    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    for node, default in zip(plain, defaults):
        add(node, kinds.POSITIONAL_OR_KEYWORD, default)
    if arguments.vararg:
        add(arguments.vararg, kinds.VAR_POSITIONAL, None)
    for node, default in zip(arguments.kwonlyargs, arguments.kw_defaults):
        add(node, kinds.KEYWORD_ONLY, default)
    if arguments.kwarg:
        add(arguments.kwarg, kinds.VAR_KEYWORD, None)
    return inspect.Signature(listed, return_annotation=returned)


def signature_of_schema(schema: str) -> inspect.Signature:
    """A torch operator's schema: `rmsnorm(Tensor! output, Tensor input, float eps) -> ()`. Annotations are the types, as text."""
    head, returned = re.fullmatch(r"\w+\((.*)\) -> (.*)", schema).groups()  # type: ignore[union-attr]
    listed = []
    for part in filter(None, head.split(", ")):
        kind, _, name = part.rpartition(" ")
        name, equals, default = name.partition("=")
        value = ast.literal_eval(default) if equals else inspect.Parameter.empty
        listed.append(inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=value, annotation=kind))
    return inspect.Signature(listed, return_annotation=returned.strip("()") if "[" in returned else returned)


def with_later(signature: inspect.Signature, later: Mapping[str, Any], left_out: Collection[str] = ()) -> inspect.Signature:
    """A signature that takes calls of a newer version too, of which `later` has the parameters and defaults: what that has beyond stands behind, by
    keyword, and by position too where the newer order goes on where the older ends; what it no longer has may be left out. What is `left_out` the
    caller adds, by keyword."""
    whole, later = list(later), {name: of for name, of in later.items() if name not in left_out}
    older = [p.replace(default=None) if p.name not in later and p.default is p.empty else p for p in signature.parameters.values()] if later else []
    goes_on = [p.name for p in older] == whole[: len(older)] and all(p.kind is p.POSITIONAL_OR_KEYWORD for p in older)
    goes_on = goes_on and whole == list(later) and all(later[name] is not inspect.Parameter.empty for name in whole[len(older) :])
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if goes_on else inspect.Parameter.KEYWORD_ONLY
    beyond = [inspect.Parameter(name, kind, default=of) for name, of in later.items() if name not in signature.parameters]
    return signature.replace(parameters=[*older, *beyond]) if later else signature


class Record:
    """One package at one version, and names and signatures of a newer one where PACKAGE.later.json has some."""

    def __init__(self, package: str) -> None:
        folder = Path(__file__).parent / "upstream"
        content = json.loads((folder / f"{package}.json").read_text())
        self.package, self.version = package, content["version"]
        self.modules: dict[str, dict[str, Any]] = content["modules"]
        self.later: dict[str, str] = {}  # signatures that changed, by the place of the function
        self.new: set[str] = set()  # places that the newer version alone has
        if (folder / f"{package}.later.json").exists():
            newer = json.loads((folder / f"{package}.later.json").read_text())
            self.later = newer["signatures"]
            for place, members in newer["enums"].items():  # with the newer version's numbers: what stands for a new member stood for none
                owner, _, name = place.rpartition(".")
                self.modules[owner]["classes"][name]["enum"] = members
            for module, parts in newer["modules"].items():
                for kind, names in parts.items():
                    known = self.modules.setdefault(module, {}).setdefault(kind, {})
                    self.new.update(f"{module}.{name}" for name in names if name not in known)
                    known.update({name: value for name, value in names.items() if name not in known})
        for name in list(self.modules):  # folders that hold modules and no file of their own
            for end in range(len(name)):
                if name[end] == ".":
                    self.modules.setdefault(name[:end], {})
        self.schemas = {schema.partition("(")[0]: schema for schema in content.get("torch_ops", [])}

    def names(self, module: str) -> Iterator[str]:
        for part in self.modules[module].values():
            yield from part

    def find(self, module: str, name: str) -> tuple[str, str, Any] | None:
        """Where `name` of `module` is defined, as what kind of thing, and what is known of it."""
        place = self.modules[module].get("imports", {}).get(name, f"{module}.{name}")
        owner, _, name = place.rpartition(".")
        for kind in ("functions", "classes", "values"):
            if name in self.modules.get(owner, {}).get(kind, {}):
                return place, kind, self.modules[owner][kind][name]
        return None

    def function(self, name: str) -> tuple[str, str]:
        """Where the function of this name is defined, and its signature: what the package itself shows, else the one module that has it."""
        found = self.find(self.package, name)
        if found is not None and found[1] == "functions":
            return found[0], found[2]
        places = [module for module, parts in self.modules.items() if name in parts.get("functions", {})]
        if len(places) != 1:
            raise LookupError(f"{self.package} {self.version} has {len(places)} functions called {name}")
        return f"{places[0]}.{name}", self.modules[places[0]]["functions"][name]
