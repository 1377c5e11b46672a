"""Where what a call reaches is defined: Python of sgl-kernel, FlashInfer and DeepGEMM, and behind it the registrations of torch operators in C++."""

from __future__ import annotations

import ast
import pathlib
import re
from dataclasses import dataclass, field

from .flow import TAKES, Flow, Place
from .sources import Function, Project, dotted, text_of, walk

# A function of a package launches something when it, or a function of the package that it calls, touches one of these.
LAUNCHES = re.compile(r"torch\.ops\.|(get|gen|load)_\w*module|_module\b|\b_C\b|runner|cudnn|cute\.|triton")
ASKS = re.compile(r"^((get|set|is|has|can|should)_|capture$)")


@dataclass
class Definition:
    path: pathlib.Path | None = None  # None: only the compiled package has it
    line: int = 0
    what: str = ""  # "binary package (NAME)" where there is no path
    cpp: list[tuple[str, pathlib.Path, int]] = field(default_factory=list)  # registration and C++ function behind a torch operator
    launches: bool = True


class Package:
    """A package that kernels come from, with its sources where they are given."""

    def __init__(self, name: str, folder: pathlib.Path | None):
        self.name, self.project = name, Project(name, folder) if folder else None
        self.flow = Flow(self.project, ()) if folder else None

    def define(self, name: str, cpp: Cpp | None) -> Definition | None:
        """The definition of a dotted name; None where the package's sources have nothing that can be called by it."""
        if self.project is None:
            # Nothing but the name tells: classes hold things, questions launch nothing, and neither do dictionaries and what objects hold.
            parts = name.split(".")
            asks = self.name in ("deep_gemm", "deep_ep") and (bool(ASKS.match(parts[-1])) or parts[-1][:1].isupper())
            held = parts[-1] in TAKES or any(part[:1].isupper() for part in parts[1:-2])
            return Definition(what=f"binary package ({self.name})", launches=not asks and not held)
        # Folders without an __init__.py are of no module's names.
        parts = name.split(".")
        begin = next((i for i in range(len(parts) - 1, 0, -1) if ".".join(parts[:i]) in self.project.paths), 1)
        values = list(self.flow.imported(".".join(parts[:begin]), None))
        for part in parts[begin:]:
            instance = part.endswith("()")
            values = [found for value in values for found in self.flow.attribute(value, part.removesuffix("()"))]
            if instance:
                values = [value._replace(kind="instance") for value in values if value.kind == "class"]
        for value in values:
            if value.kind in ("function", "method"):
                function = value.what
                touched = self.touched(function)
                found = Definition(function.module.path, function.line, function.qualname, launches=bool(LAUNCHES.search(touched)))
                for operator in dict.fromkeys(re.findall(r"torch\.ops\.\w+\.(\w+)", touched)):
                    found.cpp += cpp.places(operator) if cpp else []
                return found
            if value.kind == "class":
                return Definition(value.what.module.path, value.what.line, value.what.qualname, launches=False)
        for value in values:
            if value.kind == "outside":
                return Definition(what=f"binary package ({value.what.rpartition('.')[0]})", launches=not ASKS.match(name.split(".")[-1]))
        return None

    def touched(self, function: Function, depth: int = 4) -> str:
        """The names that a function uses, with those of the package's functions that it calls."""
        seen, left, names = {function}, [(function, depth)], []
        while left:
            current, deep = left.pop(0)
            for node in walk(current.node):
                if isinstance(node, ast.Attribute):
                    names.append(dotted(node))
                    method = self.own_method(current, node) if deep else None
                    if method is not None and method not in seen:
                        seen.add(method)
                        left.append((method, deep - 1))
                elif isinstance(node, ast.Name):
                    names.append(node.id)
                    for value in self.flow.name(node.id, Place(current, None)) if deep and isinstance(node.ctx, ast.Load) else ():
                        if value.kind == "function" and value.what not in seen:
                            seen.add(value.what)
                            left.append((value.what, deep - 1))
        return "\n".join(names)


    def own_method(self, function: Function, node: ast.Attribute) -> Function | None:
        """What `self.name` is in a method."""
        of_self = function.owner is not None and function.positional and dotted(node.value) == function.positional[0]
        return self.flow.method(function.owner, node.attr) if of_self else None


class Cpp:
    """Torch operators registered in C++: `m.def("name(...)")`, `m.impl("name", kind, &function)`, and the functions' definitions."""

    def __init__(self, folder: pathlib.Path):
        self.registered: dict[str, list[tuple[str, pathlib.Path, int]]] = {}
        self.functions: dict[str, tuple[pathlib.Path, int]] = {}
        # A line that begins with a type or a name and opens a parenthesis; a brace, not a semicolon, follows what it closes.
        begun = re.compile(r"^(?:[A-Za-z_][^\n;{}()=]*[\s*&])?([A-Za-z_]\w*)\(", re.MULTILINE)
        for path in sorted(p for p in folder.rglob("*") if p.suffix in (".cc", ".cpp", ".cu", ".cuh", ".h")):
            if any(word in ("cpu", "rocm", "musa", "hip") for part in path.relative_to(folder).parts for word in re.split(r"\W|_", part)):
                continue
            text = text_of(path)
            for found in re.finditer(r"m\.(def|impl)\(\s*\"(\w+)", text):
                rest = text[found.end() : found.end() + 2000]
                function = re.match(r"[^;]*?&\s*([\w:]+)", rest) if found.group(1) == "impl" else None
                line = text.count("\n", 0, found.start()) + 1
                name = function.group(1).split("::")[-1] if function else ""
                self.registered.setdefault(found.group(2), []).append((name, path, line))
            for found in begun.finditer(text):
                if not re.match(r"[^;{}]*\)\s*(const\s*)?\{", text[found.end() : found.end() + 3000]):
                    continue
                self.functions.setdefault(found.group(1), (path, text.count("\n", 0, found.start(1)) + 1))

    def places(self, operator: str) -> list[tuple[str, pathlib.Path, int]]:
        found = []
        for name, path, line in self.registered.get(operator, []):
            found.append((f"m.impl {operator}" if name else f"m.def {operator}", path, line))
            if name in self.functions:
                found.append((name, *self.functions[name]))
        return found
