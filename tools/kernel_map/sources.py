"""Python sources as the map needs them: modules, classes and functions with what each name is bound to, each call with the conditions around it.

Nothing is imported or run. Branches that an NVIDIA GPU never takes (`if is_hip():`) are left out as the sources are read.
"""

from __future__ import annotations

import ast
import pathlib
from dataclasses import dataclass, field

# What upstream's questions about the platform answer on an NVIDIA GPU, by the name of the function.
ANSWERS = {
    **dict.fromkeys(("is_cuda", "is_cuda_alike", "is_triton_available", "is_flashinfer_available"), True),
    **dict.fromkeys(
        ("is_hip", "is_npu", "is_cpu", "is_xpu", "is_hpu", "is_musa", "is_mps", "is_habana_available", "is_gfx95_supported", "cpu_has_amx_support",
         "use_intel_amx_backend", "is_shm_available", "use_intel_xpu_backend", "is_host_cpu_arm64", "is_rocm", "is_out_of_tree", "is_tpu"),
        False,
    ),
}  # fmt: skip
FACTS = {"torch.version.hip": None, "torch.version.xpu": None, "TYPE_CHECKING": True, "typing.TYPE_CHECKING": True}
# Words in the names of modules that serve other machines.
OTHER_PLATFORMS = frozenset("npu ascend aiter rocm hip amx xpu hpu wave musa mindspore".split())
# Layers of other models that share classes with these: state spaces and linear attention.
OTHER_MODELS = ("mamba", "fla", "hybrid_linear_attn_backend", "dual_chunk_flashattention_backend", "vision")

UNKNOWN = object()
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Methods of lists and dictionaries that put their last argument into them.
PUTS = frozenset("append extend add insert setdefault update".split())


class BadInput(Exception):
    """What was given cannot be mapped; the text names the file and what was expected."""


def left_out(module: str) -> bool:
    """Whether a module serves other machines or other models."""
    parts = module.split(".")
    return any(word in OTHER_PLATFORMS for part in parts for word in part.split("_")) or any(part in OTHER_MODELS for part in parts)


def elsewhere(function: str) -> bool:
    """Whether a function's name says that it runs on another machine: `forward_npu`."""
    return any(word in OTHER_PLATFORMS or word == "cpu" for word in function.split("_"))


def walk(node: ast.AST) -> list[ast.AST]:
    """What ast.walk gives, in its order, in half of the time."""
    found = [node]
    for node in found:  # grows while it is read
        for field_name in node._fields:
            value = getattr(node, field_name, None)
            if isinstance(value, list):
                found += [part for part in value if isinstance(part, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
    return found


@dataclass
class Guard:
    """A condition on the way to a statement: a test, its negation, or an import that may fail."""

    text: str
    line: int


@dataclass(eq=False)
class Binding:
    """What a name is bound to in one place: the value of an expression, a definition, or an import."""

    kind: str  # value, function, class, import
    what: object  # an expression, a Function, a Class, or the module and the name there (None: the module itself)
    guards: tuple[Guard, ...]
    line: int
    within: Function | None = None  # of a global that a function binds


@dataclass(eq=False)
class Body:
    """What statements do: names bound, calls made, attributes written, values given back."""

    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    calls: list[tuple[ast.Call, tuple[Guard, ...]]] = field(default_factory=list)
    reads: list[tuple[ast.Attribute, tuple[Guard, ...]]] = field(default_factory=list)
    stores: list[tuple[ast.Attribute, ast.expr]] = field(default_factory=list)
    returns: list[ast.expr] = field(default_factory=list)
    globals: set[str] = field(default_factory=set)
    nested: list[Function] = field(default_factory=list)
    classes: list[Class] = field(default_factory=list)
    stars: list[str] = field(default_factory=list)
    puts: list[tuple[str, Binding]] = field(default_factory=list)  # what a function puts into containers of its module


class Function:
    """A function, method or lambda."""

    def __init__(self, node, module: Module, owner: Class | None, parent: Function | None):
        self.node, self.module, self.owner, self.parent = node, module, owner, parent
        self.name = getattr(node, "name", "<lambda>")
        within = owner.qualname if owner else parent.qualname if parent else ""
        self.qualname = f"{within}.{self.name}" if within else self.name
        self.line = node.lineno
        arguments = node.args
        self.positional = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
        self.keywords = [a.arg for a in arguments.kwonlyargs]
        self.rest = arguments.vararg.arg if arguments.vararg else None
        self.named_rest = arguments.kwarg.arg if arguments.kwarg else None
        self.annotations = {a.arg: a.annotation for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs) if a.annotation}
        self.defaults = dict(zip(reversed(self.positional), reversed(arguments.defaults)))
        self.defaults.update({name: value for name, value in zip(self.keywords, arguments.kw_defaults) if value is not None})
        self.decorators = list(getattr(node, "decorator_list", []))
        self.marks = {dotted(d.func if isinstance(d, ast.Call) else d) for d in self.decorators}
        self.parameters = {*self.positional, *self.keywords, *(name for name in (self.rest, self.named_rest) if name)}
        self.is_static = "staticmethod" in self.marks
        self.is_class_method = "classmethod" in self.marks or self.name in ("__init_subclass__", "__class_getitem__", "__new__")
        self.is_property = any(mark.split(".")[-1] in ("property", "cached_property", "cache_property") for mark in self.marks)
        self._body: Body | None = None

    @property
    def body(self) -> Body:
        if self._body is None:
            bound = {n.id for n in walk(self.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            reader = Reader(self.module, self, self.parameters | bound)
            if isinstance(self.node, ast.Lambda):
                reader.expression(self.node.body, ())
                reader.body.returns.append(self.node.body)
            else:
                reader.statements(self.node.body, ())
            self._body = reader.body
        return self._body

    @property
    def is_triton(self) -> bool:
        return any(mark in ("triton.jit", "jit") or mark.endswith("triton.jit") or mark.endswith("gluon.jit") for mark in self.marks)


class Class:
    def __init__(self, node: ast.ClassDef, module: Module, within: str):
        self.node, self.module, self.name, self.line = node, module, node.name, node.lineno
        self.qualname = f"{within}.{node.name}" if within else node.name
        self.methods: dict[str, Function] = {}
        self.values: dict[str, list[ast.expr]] = {}
        self.annotations: dict[str, ast.expr] = {}
        self.below: list[Class] = []
        self._written: dict[str, list[tuple[ast.expr, Function]]] | None = None
        for statement in live(node.body, module):
            if isinstance(statement, FUNCTIONS):
                made = Function(statement, module, self, None)
                if "overload" not in made.marks and not any(mark.endswith((".setter", ".deleter")) for mark in made.marks):
                    self.methods[made.name] = made
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                self.annotations[statement.target.id] = statement.annotation
                if statement.value is not None:
                    self.values.setdefault(statement.target.id, []).append(statement.value)
            elif isinstance(statement, ast.Assign):
                for target in statement.targets:
                    if isinstance(target, ast.Name):
                        self.values.setdefault(target.id, []).append(statement.value)

    @property
    def written(self) -> dict[str, list[tuple[ast.expr, Function]]]:
        """Attributes that methods write on their first argument, with the methods; annotations of such writes are kept with the class's."""
        if self._written is None:
            self._written = {}
            for method in self.methods.values():
                if method.positional and not method.is_static:
                    self._collect(method, method.positional[0])
        return self._written

    def _collect(self, function: Function, me: str):
        for target, value in function.body.stores:
            if isinstance(target.value, ast.Name) and target.value.id == me:
                self._written.setdefault(target.attr, []).append((value, function))
        for node in walk(function.node):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute) and dotted(node.target.value) == me:
                self.annotations.setdefault(node.target.attr, node.annotation)
        for inner in function.body.nested:
            self._collect(inner, me)


def text_of(path: pathlib.Path, encoding: str = "utf-8") -> str:
    """What a checkout's file holds; one that is a pipe would be waited for."""
    if not path.is_file():
        raise BadInput(f"{path}: expected a file, found {'none of the usual kind' if path.exists() else 'a link to nothing'}")
    try:
        return path.read_text(encoding=encoding, errors="replace")
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from None


class Module:
    def __init__(self, name: str, path: pathlib.Path, project: Project):
        self.name, self.path, self.project = name, path, project
        self.is_package = path.name == "__init__.py"
        self.text = text_of(path, encoding="utf-8-sig")
        try:
            self.tree = ast.parse(self.text, filename=str(path))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None)
            raise BadInput(f"{path}{f':{line}' if line else ''}: expected Python source, but it does not parse: {getattr(error, 'msg', error) or type(error).__name__}") from None
        self.rebound = {name for node in walk(self.tree) if isinstance(node, ast.Global) for name in node.names} if "global" in self.text else set()
        self._body: Body | None = None

    @property
    def body(self) -> Body:
        if self._body is None:
            self._body = Body()  # constants of this module may be asked for while it is read
            reader = Reader(self, None, set())
            reader.body = self._body
            reader.statements(self.tree.body, ())
            for function in self.functions():
                mine = [(name, b) for name in function.body.globals for b in function.body.bindings.get(name, [])]
                for name, binding in (*mine, *function.body.puts):
                    binding.within = function
                    self._body.bindings.setdefault(name, []).append(binding)
        return self._body

    def functions(self):
        """Every function of the module: nested ones and methods too."""
        left = [*self._body.nested, *(f for c in self._body.classes for f in c.methods.values())]
        while left:
            function = left.pop()
            yield function
            left += function.body.nested
            left += [f for c in function.body.classes for f in c.methods.values()]

    def absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        base = self.name.split(".")
        base = base[: len(base) - node.level + (1 if self.is_package else 0)]
        return ".".join([*base, *([node.module] if node.module else [])])


def dotted(node) -> str:
    """`a.b.c` of names and attributes; what stands before a call or an index in it is left out."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else node.attr
    return ""


def ends(body) -> bool:
    """Whether control never leaves these statements at their end."""
    last = body[-1] if body else None
    if isinstance(last, (ast.Return, ast.Raise, ast.Continue, ast.Break)):
        return True
    return isinstance(last, ast.If) and bool(last.orelse) and ends(last.body) and ends(last.orelse)


def live(body, module: Module):
    """Statements under conditions too, but for branches never taken."""
    for node in body:
        if isinstance(node, ast.If):
            known = module.project.constant(node.test, module, frozenset())
            if known is UNKNOWN or known:
                yield from live(node.body, module)
            if known is UNKNOWN or not known:
                yield from live(node.orelse, module)
        elif isinstance(node, (ast.Try, ast.With)):
            yield from live(node.body, module)
            for handler in getattr(node, "handlers", []):
                yield from live(handler.body, module)
        else:
            yield node


class Reader:
    """Fills the Body of a module or function."""

    def __init__(self, module: Module, function: Function | None, local: set[str]):
        self.module, self.function, self.local, self.body = module, function, local, Body()

    def bind(self, name, kind, what, guards, line):
        self.body.bindings.setdefault(name, []).append(Binding(kind, what, guards, line))

    def statements(self, statements, guards):
        for index, node in enumerate(statements):
            if isinstance(node, ast.If):
                known = self.module.project.constant(node.test, self.module, self.local)
                text = ast.unparse(node.test)
                self.expression(node.test, guards)
                if known is UNKNOWN or known:
                    self.statements(node.body, (*guards, Guard(text, node.lineno)))
                if known is UNKNOWN or not known:
                    self.statements(node.orelse, (*guards, Guard(negated(node.test), node.lineno)))
                body_ends, else_ends = ends(node.body), bool(node.orelse) and ends(node.orelse)
                if (body_ends and known is not UNKNOWN and known) or (else_ends and known is not UNKNOWN and not known):
                    return
                if body_ends and not else_ends:
                    guards = (*guards, Guard(negated(node.test), node.lineno))
                elif else_ends and not body_ends:
                    guards = (*guards, Guard(text, node.lineno))
            else:
                self.statement(node, guards)

    def statement(self, node, guards):
        if isinstance(node, FUNCTIONS):
            made = Function(node, self.module, None, self.function)
            if "overload" in made.marks:
                return
            self.body.nested.append(made)
            self.bind(node.name, "function", made, guards, node.lineno)
            for decorator in node.decorator_list:
                self.expression(decorator, guards)
                # A decorator is a call with what it decorates.
                call = ast.Call(func=decorator, args=[ast.copy_location(Known(made), decorator)], keywords=[])
                self.body.calls.append((ast.copy_location(call, decorator), guards))
            for default in made.defaults.values():
                self.expression(default, guards)
        elif isinstance(node, ast.ClassDef):
            made = Class(node, self.module, self.function.qualname if self.function else "")
            self.body.classes.append(made)
            self.bind(node.name, "class", made, guards, node.lineno)
            for decorator in node.decorator_list:
                self.expression(decorator, guards)
                call = ast.Call(func=decorator, args=[ast.copy_location(Known(made), decorator)], keywords=[])
                self.body.calls.append((ast.copy_location(call, decorator), guards))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                target = alias.name if alias.asname else alias.name.split(".")[0]
                self.bind(alias.asname or target, "import", (target, None), guards, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            source = self.module.absolute(node)
            for alias in node.names:
                if alias.name == "*":
                    self.body.stars.append(source)
                else:
                    self.bind(alias.asname or alias.name, "import", (source, alias.name), guards, node.lineno)
        elif isinstance(node, ast.Global):
            self.body.globals.update(node.names)
        elif isinstance(node, ast.Assign):
            self.expression(node.value, guards)
            for target in node.targets:
                self.assign(target, node.value, guards)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
            if node.value is not None:
                self.expression(node.value, guards)
                self.assign(node.target, node.value, guards)
        elif isinstance(node, (ast.Return, ast.Expr)):
            if node.value is not None:
                self.expression(node.value, guards)
                if isinstance(node, ast.Return):
                    self.body.returns.append(node.value)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self.expression(node.iter, guards)
            self.assign(node.target, node.iter, guards)
            self.statements(node.body, guards)
            self.statements(node.orelse, guards)
        elif isinstance(node, ast.While):
            self.expression(node.test, guards)
            self.statements(node.body, (*guards, Guard(ast.unparse(node.test), node.lineno)))
            self.statements(node.orelse, guards)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                self.expression(item.context_expr, guards)
                if item.optional_vars is not None:
                    self.assign(item.optional_vars, item.context_expr, guards)
            self.statements(node.body, guards)
        elif isinstance(node, ast.Try):
            may_fail = any(handler.type is None or "ImportError" in ast.unparse(handler.type) or "Exception" in ast.unparse(handler.type)
                           for handler in node.handlers) and any(isinstance(s, (ast.Import, ast.ImportFrom)) for s in node.body)  # fmt: skip
            self.statements(node.body, (*guards, Guard("the import succeeds", node.lineno)) if may_fail else guards)
            for handler in node.handlers:
                name = ast.unparse(handler.type) if handler.type else "an exception"
                self.statements(handler.body, (*guards, Guard(f"after {name}", handler.lineno)))
            self.statements(node.orelse, guards)
            self.statements(node.finalbody, guards)
        elif isinstance(node, ast.Match):
            self.expression(node.subject, guards)
            for case in node.cases:
                self.statements(case.body, (*guards, Guard(f"{ast.unparse(node.subject)} matches {ast.unparse(case.pattern)}", case.pattern.lineno)))
        elif isinstance(node, (ast.Assert, ast.Raise, ast.Delete)):
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self.expression(child, guards)

    def assign(self, target, value, guards):
        """Containers are transparent: what is put into one, or taken out, is the container's value."""
        if isinstance(target, ast.Name):
            self.bind(target.id, "value", value, guards, value.lineno)
        elif isinstance(target, ast.Attribute):
            self.body.stores.append((target, value))
        elif isinstance(target, (ast.Tuple, ast.List)):
            pairs = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
            for index, part in enumerate(target.elts):
                item = value.elts[index] if pairs else ast.copy_location(Item(value, index), value)
                self.assign(part, item, guards)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, value, guards)
        elif isinstance(target, ast.Subscript):
            self.put(target.value, value, guards)

    def put(self, container, value, guards):
        if isinstance(container, ast.Name) and self.function is not None and container.id not in self.local:
            self.body.puts.append((container.id, Binding("value", value, guards, value.lineno)))
        else:
            self.assign(container, value, guards)

    def expression(self, node, guards):
        """Calls and reads of attributes inside an expression, each with the conditions that the expression itself puts on it."""
        if isinstance(node, ast.Lambda):
            made = Function(node, self.module, None, self.function)
            node.made = made
            self.body.nested.append(made)
            return
        if isinstance(node, ast.IfExp):
            known = self.module.project.constant(node.test, self.module, self.local)
            self.expression(node.test, guards)
            if known is UNKNOWN or known:
                self.expression(node.body, (*guards, Guard(ast.unparse(node.test), node.lineno)))
            if known is UNKNOWN or not known:
                self.expression(node.orelse, (*guards, Guard(negated(node.test), node.lineno)))
            return
        if isinstance(node, ast.BoolOp):
            for part in node.values:
                self.expression(part, guards)
                known = self.module.project.constant(part, self.module, self.local)
                if known is not UNKNOWN and bool(known) == isinstance(node.op, ast.Or):
                    return
                guards = (*guards, Guard(ast.unparse(part) if isinstance(node.op, ast.And) else negated(part), part.lineno))
            return
        if isinstance(node, ast.Call):
            self.body.calls.append((node, guards))
            function = node.func
            if isinstance(function, ast.Attribute) and function.attr in PUTS and node.args:
                self.put(function.value, node.args[-1], guards)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            self.body.reads.append((node, guards))
        elif isinstance(node, ast.NamedExpr):
            self.assign(node.target, node.value, guards)
        elif isinstance(node, (ast.Yield, ast.YieldFrom)) and node.value is not None:
            self.body.returns.append(node.value)
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            for part in node.generators:
                self.assign(part.target, part.iter, guards)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.expr, ast.keyword, ast.comprehension)):
                self.expression(child, guards)


class Known(ast.expr):
    """Stands in an expression for a function or class that is known already."""

    _fields = ()

    def __init__(self, what=None):
        super().__init__()
        self.what = what


class Item(ast.expr):
    """Stands for one element of what an expression gives, where names are assigned from it together."""

    _fields = ()

    def __init__(self, value=None, index=0):
        super().__init__()
        self.value, self.index = value, index


def negated(test) -> str:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return ast.unparse(test.operand)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        for one, other in ((ast.Is, ast.IsNot), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Lt, ast.GtE), (ast.Gt, ast.LtE)):
            for a, b in ((one, other), (other, one)):
                if isinstance(test.ops[0], a):
                    return ast.unparse(ast.Compare(left=test.left, ops=[b()], comparators=test.comparators))
    text = ast.unparse(test)
    return f"not {text}" if isinstance(test, (ast.Name, ast.Attribute, ast.Call)) else f"not ({text})"


class Project:
    """Every module of a package, parsed when it is first asked for."""

    def __init__(self, package: str, folder: pathlib.Path):
        self.package, self.folder = package, folder
        self.paths: dict[str, pathlib.Path] = {}
        for path in sorted(folder.rglob("*.py")):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            self.paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        # Every module and every folder of modules, with an __init__.py or without one.
        self.folders = {".".join(name.split(".")[: n + 1]) for name in self.paths for n in range(name.count(".") + 1)}
        self.modules: dict[str, Module] = {}
        self._asked: set[tuple[str, str]] = set()

    def module(self, name: str) -> Module | None:
        if name not in self.paths or left_out(name):
            return None
        if name not in self.modules:
            self.modules[name] = Module(name, self.paths[name], self)
        return self.modules[name]

    def owns(self, name: str) -> bool:
        return name == self.package or name.startswith(self.package + ".")

    def constant(self, node, module: Module, local):
        """What the expression is on an NVIDIA GPU, where that is known; else UNKNOWN."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return UNKNOWN if node.id in local else self.constant_named(node.id, module)
        if isinstance(node, ast.Attribute):
            return FACTS.get(dotted(node), UNKNOWN)
        if isinstance(node, ast.Call):
            if dotted(node.func).split(".")[-1] in ANSWERS:
                return ANSWERS[dotted(node.func).split(".")[-1]]
            return self.constant(node.args[0], module, local) if dotted(node.func) == "bool" and len(node.args) == 1 else UNKNOWN
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            value = self.constant(node.operand, module, local)
            return UNKNOWN if value is UNKNOWN else not value
        if isinstance(node, ast.BoolOp):
            values = [self.constant(part, module, local) for part in node.values]
            decides = isinstance(node.op, ast.Or)
            if any(value is not UNKNOWN and bool(value) == decides for value in values):
                return decides
            return UNKNOWN if any(value is UNKNOWN for value in values) else values[-1]
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = self.constant(node.left, module, local), self.constant(node.comparators[0], module, local)
            if left is not UNKNOWN and right is not UNKNOWN:
                if isinstance(node.ops[0], (ast.Is, ast.Eq)):
                    return left == right
                if isinstance(node.ops[0], (ast.IsNot, ast.NotEq)):
                    return left != right
        return UNKNOWN

    def constant_named(self, name: str, module: Module):
        if name in FACTS:
            return FACTS[name]
        key = (module.name, name)
        if key in self._asked or name in module.rebound:
            return UNKNOWN
        self._asked.add(key)
        try:
            found = []
            for binding in module.body.bindings.get(name, []):
                if binding.kind == "value":
                    found.append(self.constant(binding.what, module, frozenset()))
                elif binding.kind == "import" and binding.what[1] is not None and (source := self.module(binding.what[0])) is not None:
                    found.append(self.constant_named(binding.what[1], source))
                else:
                    return UNKNOWN
            return found[0] if found and all(value is not UNKNOWN and value == found[0] for value in found) else UNKNOWN
        finally:
            self._asked.discard(key)
