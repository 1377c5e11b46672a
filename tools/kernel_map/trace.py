"""The map: every kernel that the DeepSeek models reach, where it is called, how one gets there, and where it is defined."""

from __future__ import annotations

import ast
import pathlib
from dataclasses import dataclass, field

from .definitions import ASKS, Cpp, Definition, Package
from .flow import Edge, Flow, Place, Site, place_module
from .inventory import Inventory
from .sources import BadInput, Function, Guard, Project, dotted, left_out, text_of, walk

SOURCES = {
    "sgl_kernel": "sgl-kernel", "flashinfer": "flashinfer", "deep_gemm": "deep-gemm", "deep_ep": "deep-ep", "triton": "triton", "torch": "torch.ops",
    "sglang": "sglang-jit",
}  # fmt: skip
# Classes of these rooms are known to annotations, whether anything imports them or not.
ROOMS = ("layers", "mem_cache", "speculative", "distributed", "batch_overlap", "eplb", "model_executor", "compilation", "batch_invariant_ops")


@dataclass
class Entry:
    """Where a part of the map begins."""

    title: str
    files: tuple[str, ...]  # patterns below python/sglang/srt
    functions: tuple[str, ...] = ()  # names, or their beginnings with a star; none: all
    within: tuple[str, ...] = ()  # modules that are followed; none: all
    entry_classes: bool = False  # the classes in EntryClass alone, with what they inherit


ENTRIES = (
    Entry("forward pass", ("models/deepseek_v2.py",), ("forward",), entry_classes=True),
    Entry("forward pass, NextN", ("models/deepseek_nextn.py",), ("forward",), entry_classes=True),
    Entry("forward pass, first model", ("models/deepseek.py",), ("forward",), entry_classes=True),
    Entry("building and loading", ("models/deepseek_v2.py", "models/deepseek_nextn.py", "models/deepseek.py"), ("__init__", "load_weights"),
          entry_classes=True),
    Entry("weights after loading", ("layers/quantization/**/*.py", "layers/quantization/*.py"), ("process_weights_after_loading",), ("sglang.srt.layers",)),
    Entry("attention metadata", ("layers/attention/*.py",), ("init_forward_metadata*",), ("sglang.srt.layers.attention",)),
    Entry("sampling", ("layers/sampler.py",), (), ("sglang.srt.layers.sampler",)),
    Entry("speculation", ("speculative/eagle*.py", "speculative/spec_utils.py"), (), ("sglang.srt.speculative",)),
    Entry("captured graphs", ("compilation/weak_ref_tensor.py",), (), ("sglang.srt.compilation",)),
)  # fmt: skip


@dataclass
class Frame:
    """One call on the way: who calls, what, where."""

    function: str
    path: pathlib.Path
    line: int
    call: str
    guards: list[Guard] = field(default_factory=list)


@dataclass
class CallSite:
    part: str  # title of the entry that reaches it
    frames: list[Frame]  # from the entry to the call itself
    imports: list[tuple[str, int, list[Guard]]] = field(default_factory=list)  # what brings the name in, where, under which conditions
    used_by: list[str] = field(default_factory=list)  # calls in the models' files that lead here

    @property
    def path(self):
        return self.frames[-1].path

    @property
    def line(self):
        return self.frames[-1].line


@dataclass
class Kernel:
    name: str
    source: str
    dotted: str
    definition: Definition
    sites: list[CallSite] = field(default_factory=list)
    standing: str = ""
    op: str | None = None


def locate(checkout: pathlib.Path) -> pathlib.Path:
    """The package's folder: of a checkout, of an unpacked wheel, or the folder itself."""
    if not checkout.is_dir():
        raise BadInput(f"{checkout}: expected a folder with a checkout of sglang, found {'a file' if checkout.exists() else 'nothing'}")
    for folder in (checkout / "python" / "sglang", checkout / "sglang", checkout):
        if (folder / "srt").is_dir():
            break
    else:
        raise BadInput(f"{checkout}: expected a checkout of sglang with python/sglang/srt in it")
    if not (folder / "srt" / "models" / "deepseek_v2.py").is_file():
        raise BadInput(f"{folder / 'srt' / 'models' / 'deepseek_v2.py'}: expected the DeepSeek model's file, found none")
    return folder


def package_folder(name: str, given: pathlib.Path) -> pathlib.Path:
    for folder in (given / name, given / "python" / name, given):
        if (folder / "__init__.py").is_file():
            return folder
    raise BadInput(f"{given}: expected the Python package {name} (a folder with __init__.py), or a folder that holds it")


class Tracer:
    def __init__(self, checkout: pathlib.Path, places: dict[str, pathlib.Path], csrc: pathlib.Path | None, counted=(), progress=lambda text: None):
        self.counted = frozenset(counted)  # names that are kernels whatever their code looks like
        folder = locate(checkout)
        self.project = Project("sglang", folder)
        beside = folder.parent.parent / "sgl-kernel"
        if "sgl_kernel" not in places and (beside / "python" / "sgl_kernel" / "__init__.py").is_file():
            places = {**places, "sgl_kernel": beside / "python"}
        csrc = csrc or (beside / "csrc" if (beside / "csrc").is_dir() else None)
        if csrc is not None and not csrc.is_dir():
            raise BadInput(f"{csrc}: expected the folder of sgl-kernel's C++ sources")
        self.packages = {}
        for name in (n for n in SOURCES if n not in ("triton", "torch", "sglang")):
            self.packages[name] = Package(name, package_folder(name, places[name]) if name in places else None)
        self.cpp = Cpp(csrc) if csrc else None
        progress("reading")
        rooms = tuple(f"sglang.srt.{room}" for room in ROOMS)
        self.modules = [self.project.module(name) for name in self.project.paths if name.startswith(rooms) and not left_out(name)]
        self.flow = Flow(self.project, tuple(self.packages))
        self.flow.know(self.modules)
        self.groups = [(entry, self.roots(entry)) for entry in ENTRIES]
        progress("following calls")
        self.flow.run([(roots, entry.within) for entry, roots in self.groups], self.modules, progress=progress)

    def roots(self, entry: Entry) -> list[Place]:
        srt, found = self.project.folder / "srt", {}
        for path in sorted({path for pattern in entry.files for path in srt.glob(pattern)}):
            parts = path.relative_to(self.project.folder).with_suffix("").parts
            module = self.project.module(".".join(("sglang", *(parts[:-1] if parts[-1] == "__init__" else parts))))
            if module is None:
                continue
            if entry.entry_classes:
                classes = sorted((v.what for v in self.flow.name("EntryClass", Place(module, None)) if v.kind == "class"), key=lambda c: c.line)
                if not classes:
                    raise BadInput(f"{path}: expected models that EntryClass names, found none")
                functions = [(self.flow.method(c, name), c) for c in classes for name in entry.functions]
            else:
                functions = [(f, None) for f in module.body.nested] + [(f, c) for c in module.body.classes for f in c.methods.values()]
            for function, of in functions:
                if function is not None and matches(function.name, entry.functions):
                    found[Place(function, of)] = None
        return list(found)

    def kernels(self) -> list[Kernel]:
        kernels: dict[tuple, Kernel] = {}
        seen: set[tuple] = set()
        models = {path for path in self.project.folder.glob("srt/models/deepseek*")}
        for entry, roots in self.groups:
            reached = self.flow.reach(roots, entry.within)
            leading = self.leading(reached, models)
            for place in reached:
                for site in self.flow.sites[place]:
                    found = self.kernel(site)
                    if found is None:
                        continue
                    identity = (found.source, found.name, found.definition.path, found.definition.line)
                    kernel = kernels.setdefault(identity, found)
                    where = (*identity, place_module(place).path, called_name(site.call).end_lineno)
                    if where not in seen:
                        seen.add(where)
                        kernel.sites.append(self.call_site(entry, site, reached, leading))
        for kernel in kernels.values():
            kernel.sites.sort(key=lambda s: ([e.title for e in ENTRIES].index(s.part), len(s.frames), str(s.path), s.line))
        order = list(SOURCES.values())
        return sorted(kernels.values(), key=lambda k: (order.index(k.source), k.name, k.dotted))

    def kernel(self, site: Site) -> Kernel | None:
        if site.triton is not None:
            function = site.triton
            return Kernel(function.name, "triton", f"{function.module.name}.{function.qualname}", Definition(function.module.path, function.line))
        package = site.name.partition(".")[0]
        last = site.name.split(".")
        if package in self.packages:
            found = self.packages[package].define(site.name, self.cpp)
            if found is None or not (found.launches or last[-1] in self.counted):
                return None
            # A method is named with its class.
            name = ".".join(part.removesuffix("()") for part in last[-2:]) if last[-2][:1].isupper() else last[-1]
            return Kernel(name, SOURCES[package], site.name.replace("()", ""), found)
        if site.name.startswith("torch.ops.") and len(last) > 3:
            places = self.cpp.places(last[3]) if self.cpp and last[2] == "sgl_kernel" else []
            return Kernel(last[3], "torch.ops", site.name, Definition(what=f"binary package ({last[2]})", cpp=places))
        if site.name.startswith(self.flow.compiled + "."):
            module = self.project.module(site.name.rpartition(".")[0])
            function = next((f for f in module.body.nested if f.name == last[-1]), None) if module and not ASKS.match(last[-1]) else None
            return Kernel(last[-1], SOURCES[package], site.name, Definition(function.module.path, function.line)) if function else None
        return None

    def call_site(self, entry: Entry, site: Site, reached: dict, leading: dict) -> CallSite:
        frames = [frame(site.caller, site.call, site.guards)]
        place = site.caller
        while (edge := reached[place]) is not None:
            frames.insert(0, frame(edge.caller, edge.call, edge.guards))
            place = edge.caller
        return CallSite(entry.title, frames, self.imports(site), leading.get(site.caller, []))

    def imports(self, site: Site) -> list[tuple[str, int, list[Guard]]]:
        """The imports that bring the called name in, in the function, those around it, and its module."""
        node = site.call.func
        while not isinstance(node, ast.Name):
            node = getattr(node, "value", None) or getattr(node, "func", None)
            if node is None:
                return []
        owner = site.caller.owner
        while owner is not None:
            found = [b for b in owner.body.bindings.get(node.id, []) if b.kind == "import"]
            if found:
                module = owner.module if isinstance(owner, Function) else owner
                return [(str(module.path), b.line, list(b.guards)) for b in found]
            owner = (owner.parent or owner.module) if isinstance(owner, Function) else None
        return []

    def leading(self, reached: dict, models: set[pathlib.Path]) -> dict[Place, list[str]]:
        """For each place: the calls in the models' own files that lead out of them and, at any length, to it."""
        callers: dict[Place, list[Edge]] = {}
        for place in reached:
            for edge in self.flow.edges[place]:
                if edge.callee in reached:
                    callers.setdefault(edge.callee, []).append(edge)

        of_models = {m for m in map(place_module, reached) if m.path in models or any(folder in models for folder in m.path.parents)}

        def of_model(place):
            return place_module(place) in of_models

        found: dict[Place, dict[str, None]] = {}
        begun = [(e.callee, text(e.call)) for edges in callers.values() for e in edges if of_model(e.caller) and not of_model(e.callee)]
        for place, name in sorted(set(begun), key=lambda item: item[1]):
            left = [place]
            while left:
                current = left.pop()
                names = found.setdefault(current, {})
                if name not in names:
                    names[name] = None
                    left += [e.callee for e in self.flow.edges[current] if e.callee in reached and not of_model(e.callee)]
        for place in reached:
            if of_model(place) and place not in found:
                found[place] = {place.owner.name: None} if isinstance(place.owner, Function) else {}
        return {place: sorted(names) for place, names in found.items()}


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(name == p or (p.endswith("*") and name.startswith(p[:-1])) for p in patterns)


def called_name(call: ast.AST) -> ast.AST:
    """The name or attribute that is called: `kernel` of `kernel[grid](x)`."""
    node = call.func if isinstance(call, ast.Call) else call
    while isinstance(node, (ast.Subscript, ast.Call)):
        node = node.value if isinstance(node, ast.Subscript) else node.func
    return node


def text(call: ast.AST) -> str:
    return dotted(called_name(call)) or ast.unparse(call).split("\n")[0][:60]


def frame(caller: Place, call: ast.AST, guards) -> Frame:
    owner = caller.owner
    name = owner.qualname if isinstance(owner, Function) else "<module>"
    if caller.of is not None and isinstance(owner, Function) and owner.owner is not caller.of:
        name = f"{name} [{caller.of.qualname}]"
    return Frame(name, place_module(caller).path, called_name(call).end_lineno, text(call), list(guards))


def compare(kernels: list[Kernel], inventory: Inventory) -> list[Kernel]:
    """Says of each kernel where it stands: implemented, counted (in the inventory, without an op yet) or missing. A kernel has the op of its name,
    or that of a function by which every call comes to it."""
    for kernel in kernels:
        around = [inventory.op_around([(f.function, f.path) for f in site.frames]) for site in kernel.sites]
        kernel.op = inventory.op_of(kernel.name) or (around[0] if all(around) else None)
        kernel.standing = "implemented" if kernel.op else "counted" if kernel.name in inventory.counted else "missing"
    return kernels


def unreached(names: list[str], project: Project) -> dict[str, list[tuple[pathlib.Path, int, str]]]:
    """For kernels that nothing reaches: the calls by that name, wherever they are, and the project's own functions of that name."""
    found: dict[str, list[tuple[pathlib.Path, int, str]]] = {name: [] for name in names}
    for name, path in project.paths.items():
        if not name.startswith("sglang.srt.") or left_out(name):
            continue
        written = text_of(path)
        if any(kernel in written for kernel in names):
            for node in walk(project.module(name).tree):
                if isinstance(node, ast.Call) and (kernel := text(node).split(".")[-1]) in found:
                    found[kernel].append((path, node.lineno, "called"))
                elif isinstance(node, ast.FunctionDef) and node.name in found:
                    found[node.name].append((path, node.lineno, "defined in Python"))
    return found


def verify(kernels: list[Kernel]) -> tuple[int, list[str]]:
    """Reads every file that the map names: how many places it names, and those where the file, the line or the name is not there."""
    lines: dict[pathlib.Path, list[str]] = {}
    places: set[tuple[pathlib.Path, int, str]] = set()
    for kernel in kernels:
        found = kernel.definition
        if found.path is not None:
            places.add((found.path, found.line, ""))
        places.update((path, line, name.split()[-1]) for name, path, line in found.cpp)
        for site in kernel.sites:
            places.update((f.path, f.line, f.call.split(".")[-1]) for f in site.frames)
            places.update((pathlib.Path(path), line, "") for path, line, _ in site.imports)
    wrong = []
    for path, line, name in sorted(places):
        if path not in lines:
            lines[path] = path.read_text(errors="replace").splitlines() if path.is_file() else []
        if not 1 <= line <= len(lines[path]):
            wrong.append(f"{path}:{line}: no such line")
        elif name and name not in "\n".join(lines[path][max(line - 2, 0) : line + 1]):
            wrong.append(f"{path}:{line}: expected {name}")
    return len(places), wrong
