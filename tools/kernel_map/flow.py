"""Which functions, methods and kernels each call can reach: what every name may hold, followed through assignments, parameters, attributes,
returned values, containers, annotations and registries.

An attribute belongs to a class, and an inherited method is followed once for each class that it is called on, so that `self.forward_cuda` of one
layer is not that of another. Where nothing made within reach says what a value is, its annotation does: any class derived from it. A call whose
arguments do not fit a function's parameters is not a call of that function. Values grow until nothing changes any more.
"""

from __future__ import annotations

import ast
import builtins
import collections
from dataclasses import dataclass
from typing import NamedTuple

from .sources import FUNCTIONS, Class, Function, Guard, Item, Known, Module, Project, dotted, elsewhere, left_out, walk

NOTHING: frozenset = frozenset()
# Functions that give back (or hold) what they are given.
PASSES = frozenset(
    "ModuleList ModuleDict Sequential list tuple dict set sorted reversed zip enumerate iter next map filter partial partialmethod compile cast copy "
    "deepcopy lru_cache cache wraps chain lambdify register_custom_op disable allow_in_graph script ref".split()
)
# Methods of containers whose value is an element.
TAKES = frozenset("get pop values items keys copy setdefault popitem popleft".split())
DEEPEST = 4
# Types whose values hold no function and no object of a class of the project.
PLAIN = frozenset(
    "Tensor int float bool str bytes None NoneType dtype device Size Optional Union Tuple List Dict Set Sequence Iterable tuple list dict set "
    "ndarray torch np numpy typing Generator Stream Event Final ClassVar Literal".split()
)


class Value(NamedTuple):
    kind: str  # function, method, class, instance, module, outside (a dotted name of no project), super, partial
    what: object
    of: object = None  # method, super: the class of the object; function: that of the object whose method contains it; partial: arguments bound


class Place(NamedTuple):
    """A function for one class of objects that it is called on, or a module."""

    owner: Function | Module
    of: Class | None


@dataclass(frozen=True)
class Edge:
    caller: Place
    callee: Place
    call: ast.AST
    guards: tuple[Guard, ...]


@dataclass(frozen=True)
class Site:
    """A call of something outside: a kernel, perhaps."""

    caller: Place
    name: str  # dotted, of where it comes from; for Triton MODULE:FUNCTION
    call: ast.Call
    guards: tuple[Guard, ...]
    triton: Function | None = None


class Flow:
    def __init__(self, project: Project, packages: tuple[str, ...], compiled: str = "sglang.jit_kernel"):
        self.project, self.packages, self.compiled = project, packages, compiled
        self.parameters: dict[tuple, frozenset] = {}
        self.extras: dict[tuple, list[str]] = {}  # of a function and the class of its object: what `**kwargs` is given by name
        self.fields: dict[tuple, frozenset] = {}
        self.texts: dict[tuple, frozenset] = {}
        self.operators: dict[str, frozenset] = {}
        self.last: dict[tuple, frozenset] = {}
        self.now: dict[tuple, frozenset] = {}
        self.busy: set[tuple] = set()
        self.asking: list[tuple] = []  # what is being found out, the innermost last
        self.readers: dict[tuple, set[tuple]] = collections.defaultdict(set)  # of a value or a table's entry: what asked for it
        self.changed: set[tuple] = set()  # in this round
        self.trusting = False
        self._orders: dict[Class, list] = {}
        self._unquoted: dict[ast.AST, ast.AST] = {}
        self._derived: dict[Class, tuple[Class, ...]] = {}
        self._arguments: dict[ast.Call, tuple[int, frozenset, bool]] = {}
        self._plain: dict[ast.AST, bool] = {}
        self.properties: set[str] = set()
        self.edges: dict[Place, list[Edge]] = {}
        self.sites: dict[Place, list[Site]] = {}

    # ---- classes ----

    def know(self, modules: list[Module]):
        """Learns the hierarchy of all classes of these modules, for annotations."""
        classes = [found for module in modules for found in module.body.classes]
        for found in classes:
            self.properties.update(name for name, method in found.methods.items() if method.is_property)
        for found in classes:
            for base in self.order(found)[1:]:
                if isinstance(base, Class) and found not in base.below:
                    base.below.append(found)

    def order(self, start: Class) -> list:
        """The class and what it inherits from, nearest first; bases outside as dotted names."""
        if start not in self._orders:
            self._orders[start] = [start]
            found = [start]
            for base in start.node.bases:
                base = base.value if isinstance(base, ast.Subscript) else base
                for value in self.evaluate(base, Place(start.module, None)):
                    if value.kind == "class":
                        found += [c for c in self.order(value.what)]
                    elif value.kind == "outside":
                        found.append(value.what)
            # A base that several share comes after all of them.
            self._orders[start] = [c for i, c in enumerate(found) if c not in found[i + 1 :]]
        return self._orders[start]

    def derived(self, base: Class) -> tuple[Class, ...]:
        if base not in self._derived:
            self._derived[base] = tuple(c for c in (base, *base.below) if not left_out(c.module.name))
        return self._derived[base]

    def method(self, of: Class, name: str, after: Class | None = None) -> Function | None:
        order = self.order(of)
        if after is not None:
            order = order[order.index(after) + 1 :] if after in order else self.order(after)[1:]
        return next((c.methods[name] for c in order if isinstance(c, Class) and name in c.methods), None)

    def annotated(self, node, module: Module) -> frozenset:
        """Instances of the classes that an annotation names, and of those derived from them."""
        if node is None:
            return NOTHING
        key = ("annotation", node)
        self.asked(key)
        if key not in self.now:
            self.now[key] = NOTHING
            self.asking.append(key)
            self.now[key] = frozenset(self._annotated(node, module))
            self.asking.pop()
            if self.now[key] != self.last.get(key, NOTHING):
                self.changed.add(key)
        return self.now[key]

    def _annotated(self, node, module):
        node = self.unquoted(node)
        if isinstance(node, (ast.Name, ast.Attribute)):
            for value in self.evaluate(node, Place(module, None)):
                # A protocol promises what a value can do, not what it is.
                if value.kind == "class" and not any(isinstance(c, str) and c.endswith(".Protocol") for c in self.order(value.what)):
                    for found in self.derived(value.what):
                        yield Value("instance", found)
                elif value.kind == "outside" and self.in_package(value.what) and value.what.split(".")[-1][:1].isupper():
                    yield Value("outside", value.what + "()")
        elif isinstance(node, ast.Subscript):
            name = dotted(node.value).split(".")[-1]
            inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if name in ("Type", "type"):
                for value in (v for part in inside for v in self._annotated(part, module)):
                    yield Value("class", value.what) if value.kind == "instance" else value
            elif name not in ("Callable", "Literal"):
                for part in inside:
                    yield from self._annotated(part, module)
        elif isinstance(node, ast.BinOp):
            yield from self._annotated(node.left, module)
            yield from self._annotated(node.right, module)

    def unquoted(self, node):
        """An annotation written as text, parsed once: values are kept by node."""
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            return node
        if node not in self._unquoted:
            try:
                self._unquoted[node] = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                self._unquoted[node] = ast.Constant(value=None)
        return self._unquoted[node]

    def is_plain(self, node) -> bool:
        """Whether an annotation promises a tensor, a number or a text, or containers of them."""
        if node is None:
            return False
        if node not in self._plain:
            parts = walk(self.unquoted(node))
            names = {part.id for part in parts if isinstance(part, ast.Name)} | {part.attr for part in parts if isinstance(part, ast.Attribute)}
            self._plain[node] = names <= PLAIN and (bool(names & (PLAIN - {"Optional", "Union", "torch", "typing"})) or not names)
        return self._plain[node]

    def in_package(self, name: str) -> bool:
        return name.partition(".")[0] in self.packages

    # ---- values ----

    def asked(self, key):
        if self.asking:
            self.readers[key].add(self.asking[-1])

    def entry(self, table: str, key) -> frozenset:
        """What a table holds; who asks is told when that grows."""
        self.asked((table, key))
        return getattr(self, table).get(key, NOTHING)

    def memo(self, key, compute) -> frozenset:
        """What `compute` gives, anew in a round when something that it asked for has changed; where it asks for itself, what it gave in the
        round before."""
        self.asked(key)
        if key in self.now:
            return self.now[key]
        if key in self.busy:
            return self.last.get(key, NOTHING)
        self.busy.add(key)
        before = self.last.get(key, NOTHING)
        self.asking.append(key)
        found = frozenset(compute())
        self.asking.pop()
        if found <= before:
            found = before
        else:
            found |= before
            self.changed.add(key)
        self.busy.discard(key)
        self.now[key] = found
        return found

    def evaluate(self, node, place: Place) -> frozenset:
        kind = type(node)
        if kind is ast.Name:
            return self.name(node.id, place)
        if kind in self.KEPT:
            return self.memo((node, place), lambda: self.KEPT[kind](self, node, place))
        parts = self.PARTS.get(kind)
        if parts is not None:
            return NOTHING.union(*(self.evaluate(part, place) for part in parts(node)))
        if kind is Known:
            return frozenset([Value("class", node.what) if isinstance(node.what, Class) else Value("function", node.what, place.of)])
        if kind is Item:
            return self.memo((node, place), lambda: self.item(node.value, node.index, place))
        if kind is ast.Lambda and hasattr(node, "made"):
            return frozenset([Value("function", node.made, place.of)])
        return NOTHING

    def _attribute(self, node, place):
        for base in self.evaluate(node.value, place):
            yield from self.attribute(base, node.attr)

    def name(self, name: str, place: Place) -> frozenset:
        return self.memo((name, place), lambda: self._name(name, place))

    def _name(self, name, place):
        owner, of = place
        if isinstance(owner, Module):
            yield from self.exported(owner, name)
            return
        if name in owner.parameters:
            yield from self.parameter(owner, of, name)
        bindings = owner.body.bindings.get(name, []) if name not in owner.body.globals else []
        for binding in bindings:
            yield from self.bound(binding, place)
        if name in owner.parameters or bindings:
            return
        if owner.parent is not None:
            yield from self.name(name, Place(owner.parent, of))
        else:
            yield from self.name(name, Place(owner.module, None))

    def parameter(self, function, of, name):
        if function.owner is not None and function.positional[:1] == [name] and not function.is_static:
            if of is not None:
                yield Value("class" if function.is_class_method else "instance", of)
            return
        annotation = function.annotations.get(name)
        if self.is_plain(annotation) or name in (function.rest, function.named_rest):
            return
        promised = self.annotated(annotation, function.module)
        yield from promised
        if promised:
            return
        yield from self.entry("parameters", (function, of, name))
        if name in function.defaults:
            outer = Place(function.parent, of) if function.parent else Place(function.module, None)
            yield from self.evaluate(function.defaults[name], outer)

    def bound(self, binding, place):
        if binding.kind == "value":
            if isinstance(binding.what, ast.AST):
                where = Place(binding.within, None) if binding.within is not None else place
                yield from self.evaluate(binding.what, where)
        elif binding.kind == "function":
            yield Value("function", binding.what, place.of)
        elif binding.kind == "class":
            yield Value("class", binding.what)
        else:
            yield from self.imported(*binding.what)

    def imported(self, source: str, name: str | None):
        if name is None:
            yield Value("module" if self.project.owns(source) else "outside", source)
        elif not self.project.owns(source):
            yield Value("outside", f"{source}.{name}")
        else:
            module = self.project.module(source)
            if module is None and source not in self.project.folders:
                yield Value("outside", f"{source}.{name}")  # compiled
            found = self.name(name, Place(module, None)) if module is not None else NOTHING
            yield from found
            if not found and f"{source}.{name}" in self.project.paths:
                yield Value("module", f"{source}.{name}")

    def exported(self, module: Module, name: str):
        bindings = module.body.bindings.get(name, [])
        for binding in bindings:
            if not (binding.kind == "import" and binding.what[1] is not None and binding.what == (module.name, name)):
                yield from self.bound(binding, Place(module, None))
        if bindings:
            return
        for star in module.body.stars:
            source = self.project.module(star)
            if source is not None:
                yield from self.name(name, Place(source, None))
        if hasattr(builtins, name):
            yield Value("outside", name)

    def attribute(self, base: Value, name: str):
        if base.kind == "module":
            module = self.project.module(base.what)
            found = self.name(name, Place(module, None)) if module is not None else NOTHING
            yield from found
            if not found and f"{base.what}.{name}" in self.project.paths:
                yield Value("module", f"{base.what}.{name}")
        elif base.kind == "outside":
            # Names outside matter where they lead to a kernel, a class to derive from or a function that passes values on: never deep ones.
            if base.what.count(".") < DEEPEST:
                yield Value("outside", f"{base.what}.{name}")
        elif base.kind in ("class", "instance"):
            yield from self.member(base, name)
        elif base.kind == "super":
            method = self.method(base.of, name, after=base.what)
            if method is not None:
                yield Value("function", method) if method.is_static else Value("method", method, base.of)
        elif base.kind in ("function", "method") and name in ("run", "fn", "__func__", "__wrapped__"):
            yield base

    def member(self, base: Value, name: str) -> frozenset:
        return self.memo((base, name), lambda: self._member(base, name))

    def _member(self, base, name):
        of = base.what
        if name == "__class__":
            yield Value("class", of)
            return
        method = self.method(of, name)
        if method is not None:
            if method.is_property:
                yield from self.returned(Place(method, of)) if base.kind == "instance" else NOTHING
            elif method.is_static:
                yield Value("function", method)
            elif base.kind == "instance" or method.is_class_method:
                yield Value("method", method, of)
            else:
                yield Value("function", method, of)
        for c in self.order(of):
            if not isinstance(c, Class):
                if self.in_package(c):
                    yield Value("outside", f"{c}().{name}")
                continue
            written = c.written.get(name, [])
            if self.is_plain(c.annotations.get(name)):
                return
            found = set(self.entry("fields", (c, name)))
            for value in c.values.get(name, []):
                found |= self.evaluate(value, Place(c.module, None))
            for value, function in written:
                found |= self.evaluate(value, Place(function, of))
            yield from found
            # What the class itself writes is known better than its annotation says.
            if name in c.annotations and (not written or (self.trusting and not found)):
                yield from self.annotated(c.annotations[name], c.module)

    def returned(self, place: Place) -> frozenset:
        return self.memo(("returned", place), lambda: self._returned(place))

    def _returned(self, place):
        node = place.owner.node
        annotation = node.returns if isinstance(node, FUNCTIONS) else None
        if self.is_plain(annotation):
            return
        found = {v for value in place.owner.body.returns for v in self.evaluate(value, place)}
        yield from found
        if not found and self.trusting:
            yield from self.annotated(annotation, place.owner.module)

    def item(self, node, index: int, place: Place):
        """One element of what an expression gives, where its making can be seen; else whatever it gives."""
        if isinstance(node, (ast.Tuple, ast.List)) and index < len(node.elts) and not any(isinstance(e, ast.Starred) for e in node.elts):
            yield from self.evaluate(node.elts[index], place)
        elif isinstance(node, ast.IfExp):
            yield from self.item(node.body, index, place)
            yield from self.item(node.orelse, index, place)
        elif isinstance(node, ast.Call):
            for value in self.evaluate(node.func, place):
                targets = self.targets(value, node, place) if value.kind in ("function", "method", "instance", "partial") else []
                for target in targets:
                    yield from self.memo(("item", index, target), lambda target=target: self._item(target, index))
                if not targets:
                    yield from self.result(value, node, place)
        else:
            yield from self.evaluate(node, place)

    def _item(self, target: Place, index: int):
        node = target.owner.node
        if not self.is_plain(node.returns if isinstance(node, FUNCTIONS) else None):
            for value in target.owner.body.returns:
                yield from self.item(value, index, target)

    # ---- calls ----

    def called(self, node: ast.Call, place: Place):
        """What a call gives back; what it passes is noted."""
        if isinstance(node.func, ast.Attribute) and node.func.attr in TAKES:
            for held in self.evaluate(node.func.value, place):
                if held.kind in ("function", "method", "partial") or held.kind in ("class", "instance") and not self.member(held, node.func.attr):
                    yield held
        for value in self.evaluate(node.func, place):
            yield from self.result(value, node, place)

    # Expressions whose values are kept; and those whose values are their parts'.
    KEPT = {ast.Attribute: _attribute, ast.Call: called}
    PARTS = {
        ast.IfExp: lambda node: (node.body, node.orelse),
        ast.BinOp: lambda node: (node.left, node.right) if isinstance(node.op, (ast.Add, ast.BitOr)) else (),
        **dict.fromkeys((ast.BoolOp, ast.Dict), lambda node: node.values),
        **dict.fromkeys((ast.List, ast.Tuple, ast.Set), lambda node: node.elts),
        **dict.fromkeys((ast.Subscript, ast.Starred, ast.Await, ast.NamedExpr, ast.DictComp), lambda node: (node.value,)),
        **dict.fromkeys((ast.ListComp, ast.SetComp, ast.GeneratorExp), lambda node: (node.elt,)),
    }

    def result(self, value: Value, node: ast.Call, place: Place):
        if value.kind == "outside":
            yield from self.outside(value.what, node, place)
            return
        if value.kind == "class":
            self.targets(value, node, place)
            yield Value("instance", value.what)
            return
        targets = self.targets(value, node, place)
        if value.kind == "instance" and not targets:
            yield value  # what a weak reference gives when it is called
        for target in targets:
            if target.owner.name in PASSES:
                for argument in node.args:
                    yield from self.evaluate(argument, place)
            else:
                yield from self.returned(target)

    def outside(self, name: str, node: ast.Call, place: Place):
        last = name.split(".")[-1]
        if name in ("getattr", "builtins.getattr") and len(node.args) >= 2:
            for attribute in self.written_out(node.args[1], place):
                for base in self.evaluate(node.args[0], place):
                    yield from self.attribute(base, attribute)
        elif last == "partial":
            for argument in node.args[:1]:
                for value in self.evaluate(argument, place):
                    for target in self.targets(value, ast.Call(func=argument, args=node.args[1:], keywords=node.keywords), place, partly=True):
                        del target
                    if value.kind in ("function", "method", "class", "instance"):
                        yield Value("partial", value, len(node.args) - 1)
        elif last == "import_module" and node.args and isinstance(node.args[0], ast.Constant):
            yield from self.imported(str(node.args[0].value), None)
        elif name == "super":
            function = place.owner
            while isinstance(function, Function) and function.owner is None:
                function = function.parent
            if isinstance(function, Function) and place.of is not None:
                yield Value("super", function.owner, place.of)
        elif name == "type" and len(node.args) == 1:
            yield from (Value("class", v.what) for v in self.evaluate(node.args[0], place) if v.kind == "instance")
        elif last in PASSES:
            for argument in (*node.args, *(k.value for k in node.keywords)):
                yield from self.evaluate(argument, place)
        elif self.in_package(name) and last[:1].isupper():
            yield Value("outside", f"{name}()")
        elif name.startswith("torch.ops."):
            for value in self.entry("operators", operator_name(name)):
                yield from self.result(value, node, place)

    def written_out(self, node, place: Place) -> list[str]:
        """The texts that an expression may be: a literal, or a parameter that literals are passed for."""
        if isinstance(node, ast.Constant):
            return [node.value] if isinstance(node.value, str) else []
        owner, of = place
        return sorted(self.entry("texts", (owner, of, node.id))) if isinstance(node, ast.Name) else []

    def targets(self, value: Value, node: ast.Call, place: Place, partly=False, skip=0) -> list[Place]:
        """The functions of the project that a call of `value` enters; arguments flow into their parameters."""
        if value.kind == "partial":
            return self.targets(value.what, node, place, partly, skip + value.of)
        if value.kind == "function":
            function, of = value.what, value.of
            if function.owner is not None and not function.is_static and not function.is_class_method:
                # Class.method(object, ...): the object is the first argument.
                first = [v.what for v in self.evaluate(node.args[0], place) if v.kind == "instance"] if node.args else []
                first = [c for c in first if function.owner in self.order(c)] or [of or function.owner]
                return [p for c in dict.fromkeys(first) for p in self.enter(Place(function, c), node, place, partly, skip)]
            return self.enter(Place(function, None if function.is_static else of), node, place, partly, skip)
        if value.kind == "method":
            return self.enter(Place(value.what, value.of), node, place, partly, skip + 1)
        if value.kind == "instance":
            method = self.method(value.what, "__call__") or self.method(value.what, "forward")
            return self.enter(Place(method, value.what), node, place, partly, skip + 1) if method else []
        if value.kind == "class":
            method = self.method(value.what, "__init__")
            if method is not None:
                return self.enter(Place(method, value.what), node, place, partly, skip + 1)
            self.fill(value.what, node, place)
        return []

    def fill(self, made: Class, node: ast.Call, place: Place):
        """A class of fields: arguments are its attributes."""
        names = [name for c in reversed(self.order(made)) if isinstance(c, Class) for name in c.annotations]
        pairs = [*zip(names, node.args), *((k.arg, k.value) for k in node.keywords if k.arg in names)]
        for name, value in pairs:
            self.grow("fields", (made, name), self.evaluate(value, place))

    def enter(self, target: Place, node: ast.Call, place: Place, partly: bool, skip: int) -> list[Place]:
        function = target.owner
        names = function.positional[skip:] if not function.is_static else function.positional[max(skip - 1, 0) :] if skip else function.positional
        count, given, stars = self.arguments(node)
        if count > len(names) and function.rest is None:
            return []
        if function.named_rest is None and not given <= {*names, *function.keywords}:
            return []
        if not stars and not given.isdisjoint(names[:count]):
            return []
        if not stars and not partly and any(n not in function.defaults and n not in given for n in (*names[count:], *function.keywords)):
            return []
        key = (function, target.of)

        def by_name(name, values):
            if name not in known:
                if (*key, f"**{name}") not in self.parameters:
                    self.extras.setdefault(key, []).append(name)
                    self.changed.add(("extras", key))
                name = f"**{name}"
            self.grow("parameters", (*key, name), values)

        for name, argument in (*zip(names, node.args), *((k.arg, k.value) for k in node.keywords)):
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                self.grow("texts", (*key, name), frozenset([argument.value]))
        index = 0
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                if not (isinstance(argument.value, ast.Name) and argument.value.id == getattr(place.owner, "rest", None)):
                    # A sequence made elsewhere: which of its elements goes where is not followed.
                    for name in names[index:]:
                        self.grow("parameters", (*key, name), self.evaluate(argument.value, place))
                for value in self.passed_on(argument.value, place, "*"):
                    self.grow("parameters", (*key, names[index] if index < len(names) else f"*{index - len(names)}"), value)
                    index += 1
            else:
                self.grow("parameters", (*key, names[index] if index < len(names) else f"*{index - len(names)}"), self.evaluate(argument, place))
                index += 1
        known = {*names, *function.keywords}
        for keyword in node.keywords:
            if keyword.arg is None:
                for name, value in self.named(keyword.value, place):
                    by_name(name, value)
            else:
                by_name(keyword.arg, self.evaluate(keyword.value, place))
        return [target]

    def arguments(self, node: ast.Call) -> tuple[int, frozenset, bool]:
        """How many arguments a call counts out, which it names, and whether a star stands for others."""
        if node not in self._arguments:
            plain = sum(not isinstance(a, ast.Starred) for a in node.args)
            given = frozenset(k.arg for k in node.keywords if k.arg is not None)
            self._arguments[node] = plain, given, plain < len(node.args) or any(k.arg is None for k in node.keywords)
        return self._arguments[node]

    def passed_on(self, node, place: Place, star: str) -> list[frozenset]:
        """What the function's own `*args` holds, one by one, where exactly that is passed on."""
        owner, of = place
        if not isinstance(owner, Function) or not isinstance(node, ast.Name) or node.id != owner.rest:
            return []
        found = []
        while True:
            key = (owner, of, f"{star}{len(found)}")
            value = self.entry("parameters", key)
            if key not in self.parameters:
                return found
            found.append(value)

    def named(self, node, place: Place):
        """The same for `**kwargs`, and for a dictionary whose keys are written down."""
        owner, of = place
        if isinstance(node, ast.Call) and dotted(node.func) == "dict":
            yield from ((k.arg, self.evaluate(k.value, place)) for k in node.keywords if k.arg)
        elif isinstance(node, ast.Dict):
            yield from ((k.value, self.evaluate(v, place)) for k, v in zip(node.keys, node.values) if isinstance(k, ast.Constant))
        elif isinstance(owner, Function) and isinstance(node, ast.Name) and node.id == owner.named_rest:
            for name in list(self.entry("extras", (owner, of))):
                yield name, self.entry("parameters", (owner, of, f"**{name}"))

    def grow(self, table: str, key, values: frozenset):
        held = getattr(self, table)
        before = held.get(key)
        if before is None or not values <= before:
            held[key] = values if before is None else before | values
            self.changed.add((table, key))

    # ---- reach ----

    def process(self, place: Place):
        """Follows the calls of one body: the functions it enters, and the calls of what lies outside."""
        edges, sites = [], []
        body = place.owner.body
        self.asking.append(("calls", place))
        for target, value in body.stores:
            found = self.evaluate(value, place)
            if found:
                for holder in self.evaluate(target.value, place):
                    if holder.kind in ("instance", "class"):
                        self.grow("fields", (holder.what, target.attr), found)
        for call, guards in body.calls:
            self.register(call, place)
            for value in sorted_values(self.evaluate(call.func, place)):
                root = value
                while root.kind == "partial":
                    root = root.what
                if root.kind == "outside":
                    entered = [t for v in self.entry("operators", operator_name(root.what)) for t in self.targets(v, call, place)]
                    edges += [Edge(place, target, call, guards) for target in entered]
                    if not entered:
                        sites.append(Site(place, root.what, call, guards))
                elif root.kind == "function" and root.what.is_triton:
                    if not (isinstance(place.owner, Function) and place.owner.is_triton):
                        sites.append(Site(place, f"{root.what.module.name}:{root.what.qualname}", call, guards, root.what))
                else:
                    for target in self.targets(value, call, place):
                        name = target.owner.module.name
                        if elsewhere(target.owner.name):
                            continue
                        if name.startswith(self.compiled) and not place_module(place).name.startswith(self.compiled):
                            sites.append(Site(place, f"{name}.{target.owner.qualname}", call, guards))
                        else:
                            edges.append(Edge(place, target, call, guards))
        for read, guards in body.reads:
            if read.attr in self.properties:
                for base in self.evaluate(read.value, place):
                    method = self.method(base.what, read.attr) if base.kind == "instance" else None
                    if method is not None and method.is_property:
                        edges.append(Edge(place, Place(method, base.what), read, guards))
        self.asking.pop()
        self.edges[place], self.sites[place] = edges, sites

    def register(self, call: ast.Call, place: Place):
        """An operator of torch.ops made of a Python function."""
        if dotted(call.func).split(".")[-1] == "direct_register_custom_op":
            given = {k.arg: k.value for k in call.keywords} | dict(zip(("op_name", "op_func"), call.args))
            name = given.get("op_name")
            if isinstance(name, ast.Constant) and "op_func" in given:
                self.grow("operators", name.value, self.evaluate(given["op_func"], place))

    def reach(self, roots: list[Place], within: tuple[str, ...]) -> dict[Place, Edge | None]:
        """Every place that the roots lead to, nearest first, with the call that led there. Beyond modules of these names nothing is followed."""
        found: dict[Place, Edge | None] = dict.fromkeys(roots)
        left = collections.deque(roots)
        while left:
            place = left.popleft()
            if place not in self.edges:
                self.process(place)
            for edge in self.edges[place]:
                if edge.callee not in found and (not within or place_module(edge.callee).name.startswith(within)):
                    found[edge.callee] = edge
                    left.append(edge.callee)
        return found

    def forget(self):
        self.now, self.edges, self.sites = {}, {}, {}

    def forget_readers(self):
        """What changed in this round, and whatever asked for that, is found out anew in the next one."""
        stale, left = set(self.changed), list(self.changed)
        while left:
            for reader in self.readers.get(left.pop(), ()):
                if reader not in stale:
                    stale.add(reader)
                    left.append(reader)
        for key in stale:
            self.now.pop(key, None)
            if key[0] == "calls":
                self.edges.pop(key[1], None)
                self.sites.pop(key[1], None)

    def run(self, groups: list[tuple[list[Place], tuple[str, ...]]], modules: list[Module], rounds: int = 60, progress=lambda text: None) -> int:
        """Follows everything from the roots, and from what modules do when they are imported, until nothing changes. Says how many rounds it took."""
        self.forget()
        for count in range(1, rounds + 1):
            self.changed = set()
            self.reach([Place(module, None) for module in modules], ())
            for roots, within in groups:
                self.reach(roots, within)
            self.last.update(self.now)
            progress(f"following calls, round {count}: {len(self.edges)} functions, {len(self.now)} values, {len(self.changed)} changed")
            if self.changed:
                self.forget_readers()
            elif self.trusting:
                return count
            else:
                self.trusting = True
                self.forget()
        raise RuntimeError(f"values still change after {rounds} rounds")


def place_module(place: Place) -> Module:
    return place.owner if isinstance(place.owner, Module) else place.owner.module


def operator_name(name: str) -> str:
    """torch.ops.sglang.x.default is x of sglang."""
    parts = name.split(".")
    return parts[3] if parts[:3] == ["torch", "ops", "sglang"] and len(parts) > 3 else ""


def sorted_values(values) -> list[Value]:
    def key(value):
        what = value.what
        while isinstance(what, Value):
            what = what.what
        if isinstance(what, (Function, Class)):
            return (value.kind, what.module.name, what.qualname, what.line, value.of.qualname if isinstance(value.of, Class) else "")
        return (value.kind, str(what), "", 0, "")

    return sorted(values, key=key) if len(values) > 1 else list(values)
