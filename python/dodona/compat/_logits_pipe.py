"""FlashInfer's pipelines of what is done to logits, flashinfer.logits_processor: processors become operators by the type that they are given, neighbours
become one operator where a rule says so, and the operators are the functions of flashinfer.sampling. What no function is for (a division by the
temperature, a softmax on its own, min-p without a draw) is torch's, as upstream has it."""

from __future__ import annotations

import enum
import sys
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, Optional, Sequence

from .._arrays import is_torch
from ._hooks.draws import softmax


class TensorType(enum.Enum):
    """What the numbers mean."""

    LOGITS = 1
    PROBS = 2
    INDICES = 3

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"TensorType.{self.name}"


LOGITS, PROBS, INDICES = TensorType


@dataclass(frozen=True)
class TaggedTensor:
    """A tensor beside what its numbers mean; torch's functions take it for the tensor."""

    data: Any
    type: TensorType

    logits = staticmethod(lambda t: TaggedTensor(t, LOGITS))
    probs = staticmethod(lambda t: TaggedTensor(t, PROBS))
    indices = staticmethod(lambda t: TaggedTensor(t, INDICES))

    def __torch_function__(self, func: Any, types: Any, args: Sequence = (), kwargs: Optional[dict] = None) -> Any:
        return func(*(arg.data if isinstance(arg, TaggedTensor) else arg for arg in args), **(kwargs or {}))

    shape = property(lambda self: self.data.shape)
    device = property(lambda self: self.data.device)
    dtype = property(lambda self: self.data.dtype)

    def size(self, dim: Optional[int] = None) -> Any:
        return self.data.shape if dim is None else self.data.shape[dim]

    def __repr__(self) -> str:
        return f"TaggedTensor(type={self.type}, shape={self.shape}, dtype={self.dtype}, device={self.device})"


class CompileError(Exception):
    pass


class LegalizationError(Exception):
    pass


# ---- operators ----


class Op:
    """One step, from one type to another."""

    IN: Optional[TensorType] = None
    OUT: Optional[TensorType] = None

    def __init__(self) -> None:
        if self.IN is None or self.OUT is None:
            raise ValueError(f"Operator {type(self).__name__} must define IN and OUT tensor types")

    def __call__(self, tensor: TaggedTensor, **kwargs: Any) -> TaggedTensor:
        raise NotImplementedError

    def _validate_input_type(self, tensor: TaggedTensor) -> TensorType:
        if tensor.type != self.IN:
            raise ValueError(f"Operator {type(self).__name__} cannot accept input type {tensor.type}. Expected: {self.IN}")
        return self.OUT  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.IN} -> {self.OUT})"


class ParameterizedOp(Op):
    """One whose parameters come with the call, or were said before."""

    def __init__(self, **default_params: Any) -> None:
        super().__init__()
        self.default_params = default_params

    def _get_param(self, name: str, kwargs: dict, required: bool = True) -> Any:
        known = {**self.default_params, **kwargs}
        if required and name not in known:
            raise ValueError(f"Required parameter '{name}' not provided for {type(self).__name__}")
        return known.get(name)


def _positive_number(name: str, value: Any) -> None:
    if not isinstance(value, float) or value <= 0:
        raise ValueError(f"{name.capitalize()} must be positive float or a tensor array")


def _positive_count(name: str, value: Any) -> None:
    if not isinstance(value, int) or value <= 0:
        raise ValueError(f"{name} must be a positive integer or a tensor array")


def _share(name: str, value: Any) -> None:
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be float in (0, 1] or a tensor array")


CONDITIONS = {"temperature": _positive_number, "top_k": _positive_count, "top_p": _share, "min_p": _share}


class _Table(ParameterizedOp):
    """An operator that is a row of the table below."""

    NEEDS: tuple[str, ...] = ()
    RUN: Callable[..., Any]

    def __call__(self, tensor: TaggedTensor, **kwargs: Any) -> TaggedTensor:
        out, values = self._validate_input_type(tensor), {}
        for name in self.NEEDS:
            values[name] = self._get_param(name, kwargs)
            if not hasattr(values[name], "shape"):
                CONDITIONS[name](name, values[name])
        if self.OUT is INDICES:
            values |= {name: self._get_param(name, kwargs, required=False) for name in ("indices", "generator")}
            values["deterministic"] = self.default_params.get("deterministic", True)
        elif "is_deterministic" in kwargs and "top_p" in values:
            values["is_deterministic"] = kwargs["is_deterministic"]
        return TaggedTensor(type(self).RUN(tensor.data, **values), out)


def _sampling(name: str, **said: Any) -> Callable[..., Any]:
    """A function of flashinfer.sampling, found when it is called."""

    def run(data: Any, **values: Any) -> Any:
        return sys.modules[f"{__package__}.flashinfer"].PACKAGE.attribute("flashinfer.sampling", name)(data, **values, **said)

    return staticmethod(run)  # type: ignore[return-value]


def _divided(data: Any, temperature: Any) -> Any:
    return data / temperature


def _above_a_share(data: Any, min_p: Any) -> Any:
    largest = data.amax(-1, keepdim=True) if is_torch(data) else data.max(-1, keepdims=True)
    kept = data * (data >= (min_p[..., None] if hasattr(min_p, "shape") else min_p) * largest)
    return kept / kept.sum(axis=-1, keepdims=True)


def _operator(name: str, of: TensorType, to: TensorType, needs: tuple[str, ...], run: Callable[..., Any]) -> type[_Table]:
    run = run if isinstance(run, staticmethod) else staticmethod(run)  # type: ignore[assignment]
    return type(name, (_Table,), {"IN": of, "OUT": to, "NEEDS": needs, "RUN": run, "__module__": __name__})


OPERATORS = (
    TemperatureOp := _operator("TemperatureOp", LOGITS, LOGITS, ("temperature",), _divided),
    SoftmaxOp := _operator("SoftmaxOp", LOGITS, PROBS, (), softmax),
    ProbsTopKOp := _operator("ProbsTopKOp", PROBS, PROBS, ("top_k",), _sampling("top_k_renorm_probs")),
    LogitsTopKOp := _operator("LogitsTopKOp", LOGITS, LOGITS, ("top_k",), _sampling("top_k_mask_logits")),
    TopPOp := _operator("TopPOp", PROBS, PROBS, ("top_p",), _sampling("top_p_renorm_probs")),
    MinPOp := _operator("MinPOp", PROBS, PROBS, ("min_p",), _above_a_share),
    ProbsSampleOp := _operator("ProbsSampleOp", PROBS, INDICES, (), _sampling("sampling_from_probs")),
    LogitsSampleOp := _operator("LogitsSampleOp", LOGITS, INDICES, (), _sampling("sampling_from_logits")),
    FusedTemperatureSoftmaxOp := _operator("FusedTemperatureSoftmaxOp", LOGITS, PROBS, ("temperature",), _sampling("softmax")),
    FusedProbsTopKSampleOp := _operator("FusedProbsTopKSampleOp", PROBS, INDICES, ("top_k",), _sampling("top_k_sampling_from_probs")),
    FusedProbsTopPSampleOp := _operator("FusedProbsTopPSampleOp", PROBS, INDICES, ("top_p",), _sampling("top_p_sampling_from_probs")),
    FusedProbsMinPSampleOp := _operator("FusedProbsMinPSampleOp", PROBS, INDICES, ("min_p",), _sampling("min_p_sampling_from_probs")),
    FusedProbsTopKTopPSampleOp := _operator(
        "FusedProbsTopKTopPSampleOp", PROBS, INDICES, ("top_k", "top_p"), _sampling("top_k_top_p_sampling_from_probs", filter_apply_order="joint")
    ),
)


# ---- processors ----


class LogitsProcessor:
    """What the user names: operators by the type of what it is given."""

    BECOMES: dict[TensorType, type[Op]] = {}

    def __init__(self, **params: Any) -> None:
        self.params = params

    def legalize(self, input_type: TensorType) -> list[Op]:
        if input_type not in self.BECOMES:
            raise ValueError(f"{type(self).__name__} can only be applied to {' or '.join(map(str, self.BECOMES))}, got {input_type}")
        return [self.BECOMES[input_type](**self.params)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in self.params.items())})"


class Temperature(LogitsProcessor):
    BECOMES = {LOGITS: TemperatureOp}


class Softmax(LogitsProcessor):
    BECOMES = {LOGITS: SoftmaxOp}

    def __init__(self, enable_pdl: Optional[bool] = None, **params: Any) -> None:
        super().__init__(enable_pdl=enable_pdl, **params)


class TopK(LogitsProcessor):
    BECOMES = {LOGITS: LogitsTopKOp, PROBS: ProbsTopKOp}

    def __init__(self, joint_topk_topp: bool = False, **params: Any) -> None:
        super().__init__(joint_topk_topp=joint_topk_topp, **params)


class TopP(LogitsProcessor):
    BECOMES = {PROBS: TopPOp}


class MinP(LogitsProcessor):
    BECOMES = {PROBS: MinPOp}


class Sample(LogitsProcessor):
    BECOMES = {LOGITS: LogitsSampleOp, PROBS: ProbsSampleOp}

    def __init__(self, deterministic: bool = True, **params: Any) -> None:
        super().__init__(deterministic=deterministic, **params)


def legalize_processors(processors: Sequence[LogitsProcessor], initial_type: TensorType = LOGITS) -> list[Op]:
    """The operators of the processors, one after another."""
    if not processors:
        raise LegalizationError("Cannot legalize empty processor list")
    made: list[Op] = []
    for i, processor in enumerate(processors):
        try:
            ops = processor.legalize(made[-1].OUT if made else initial_type)  # type: ignore[arg-type]
        except Exception as error:
            raise LegalizationError(f"Failed to legalize processor {i} ({type(processor).__name__}): {error}") from error
        if not ops:
            raise LegalizationError(f"Failed to legalize processor {i} ({type(processor).__name__}): it produced no ops")
        made += ops
    return made


def infer_initial_type(processors: Sequence[LogitsProcessor]) -> TensorType:
    """The one type that the first processor takes."""
    taken = []
    for kind in (LOGITS, PROBS) if processors else ():
        try:
            processors[0].legalize(kind)
        except (ValueError, LegalizationError):
            continue
        taken.append(kind)
    if len(taken) > 1:
        text = f"Cannot infer input type: {type(processors[0]).__name__} can accept both LOGITS and PROBS. Please specify input_type explicitly"
        raise LegalizationError(f"{text} when creating the LogitsPipe.")
    if processors and not taken:
        raise LegalizationError(f"Processor {type(processors[0]).__name__} cannot accept standard pipeline inputs (LOGITS or PROBS)")
    return taken[0] if taken else LOGITS


def validate_processor_chain(processors: Sequence[LogitsProcessor]) -> None:
    if not processors:
        raise LegalizationError("Processor chain cannot be empty")
    legalize_processors(processors, infer_initial_type(processors))


# ---- what may stand together, and what becomes one ----


def single_softmax_rule(ops: Sequence[Op]) -> None:
    if sum(isinstance(op, SoftmaxOp) for op in ops) > 1:
        raise CompileError("Multiple Softmax operators found. Only one Softmax is allowed per pipeline.")


def indices_terminal_rule(ops: Sequence[Op]) -> None:
    for op, behind in zip(ops, ops[1:]):
        if op.OUT is INDICES:
            text = f"No operator may follow one that outputs Indices. Found {type(behind).__name__} after {type(op).__name__}"
            raise CompileError(f"{text} which outputs Indices.")


def get_default_validity_checks() -> list[Callable[[Sequence[Op]], None]]:
    return [single_softmax_rule, indices_terminal_rule]


def validate_pipeline(ops: Sequence[Op], custom_checks: Optional[Sequence[Callable]] = None) -> None:
    if not ops:
        raise CompileError("Pipeline cannot be empty")
    for check in (*get_default_validity_checks(), *(custom_checks or ())):
        check(ops)


class FusionRule(NamedTuple):
    """Neighbours of these types become one operator where the guard agrees; rules of a larger `prio` are asked first."""

    pattern: tuple[type, ...]
    guard: Callable[[list], bool]
    build: Callable[[list], Op]
    prio: int = 0


def joint_topk_topp_sampleprobs_guard(window: Sequence[Op]) -> bool:
    return bool(getattr(window[0], "default_params", {}).get("joint_topk_topp", False))


def _always(window: Sequence[Op]) -> bool:
    return True


def _builder(name: str, made: type[Op], **defaults: Any) -> Callable[[Sequence[Op]], Op]:
    """Makes the operator, with what was said of the last one of the window."""

    def build(window: Sequence[Op]) -> Op:
        return made(**{name: getattr(window[-1], "default_params", {}).get(name, value) for name, value in defaults.items()})

    build.__name__ = build.__qualname__ = name
    return build


build_temperature_softmax = _builder("build_temperature_softmax", FusedTemperatureSoftmaxOp, enable_pdl=None)
build_topk_sampling = _builder("build_topk_sampling", FusedProbsTopKSampleOp, deterministic=True)
build_topp_sampling = _builder("build_topp_sampling", FusedProbsTopPSampleOp, deterministic=True)
build_minp_sampling = _builder("build_minp_sampling", FusedProbsMinPSampleOp, deterministic=True)


def get_default_fusion_rules() -> list[FusionRule]:
    joint = _builder("build_joint_sampling", FusedProbsTopKTopPSampleOp)
    return [
        FusionRule((TemperatureOp, SoftmaxOp), _always, build_temperature_softmax, 100),
        FusionRule((ProbsTopKOp, TopPOp, ProbsSampleOp), joint_topk_topp_sampleprobs_guard, joint, 100),
        FusionRule((ProbsTopKOp, ProbsSampleOp), _always, build_topk_sampling, 10),
        FusionRule((TopPOp, ProbsSampleOp), _always, build_topp_sampling, 10),
        FusionRule((MinPOp, ProbsSampleOp), _always, build_minp_sampling, 10),
    ]


class Compiler:
    """Types, checks, then fusion from the left."""

    def __init__(self) -> None:
        self.fusion_rules, self.validity_checks = [], get_default_validity_checks()
        for rule in get_default_fusion_rules():
            self.register_fusion_rule(rule)

    def register_fusion_rule(self, rule: FusionRule) -> None:
        self.fusion_rules = sorted([*self.fusion_rules, rule], key=lambda known: -known.prio)

    def register_validity_check(self, check: Callable[[Sequence[Op]], None]) -> None:
        self.validity_checks.append(check)

    def compile(self, ops: Sequence[Op]) -> list[Op]:
        if not ops:
            raise CompileError("Cannot compile empty operator list")
        if ops[0].IN not in (LOGITS, PROBS):
            text = f"First operator ({type(ops[0]).__name__}) cannot accept standard pipeline inputs. Expected LOGITS or PROBS,"
            raise CompileError(f"{text} but operator accepts: {ops[0].IN}")
        for i, (op, behind) in enumerate(zip(ops, ops[1:]), 1):
            if op.OUT != behind.IN:
                text = f"Type mismatch at operator {i} ({type(behind).__name__}). Expected input type: {op.OUT},"
                raise CompileError(f"{text} but operator accepts: {behind.IN}. Previous operator output: {op.OUT}")
        for check in self.validity_checks:
            check(ops)
        return self._fused(list(ops))

    def _fused(self, ops: list[Op]) -> list[Op]:
        at = 0
        while at < len(ops):
            for rule in self.fusion_rules:
                window = ops[at : at + len(rule.pattern)]
                if len(window) == len(rule.pattern) and all(map(isinstance, window, rule.pattern)) and rule.guard(window):
                    ops[at : at + len(window)] = [rule.build(window)]
                    at = max(at - 1, 0)  # what stands before may go with what came
                    break
            else:
                at += 1
        return ops


def compile_pipeline(
    ops: Sequence[Op], custom_fusion_rules: Optional[Sequence[FusionRule]] = None, custom_validity_checks: Optional[Sequence[Callable]] = None
) -> list[Op]:
    compiler = Compiler()
    for rule in custom_fusion_rules or ():
        compiler.register_fusion_rule(rule)
    for check in custom_validity_checks or ():
        compiler.register_validity_check(check)
    return compiler.compile(ops)


class LogitsPipe:
    """Processors one after another, called with logits or probabilities and what they need by keyword."""

    def __init__(
        self,
        processors: Sequence[LogitsProcessor],
        compile: bool = True,
        input_type: Optional[TensorType] = None,
        custom_fusion_rules: Optional[Sequence[FusionRule]] = None,
        custom_validity_checks: Optional[Sequence[Callable]] = None,
    ) -> None:
        if not processors:
            raise ValueError("Pipeline cannot be empty")
        self.processors, self.compiled_ops = list(processors), None
        try:
            self._initial_type = input_type or infer_initial_type(self.processors)
            self.ops = legalize_processors(self.processors, self._initial_type)
        except LegalizationError as error:
            raise ValueError(f"Pipeline creation failed: {error}") from error
        if compile:
            self.compile(custom_fusion_rules, custom_validity_checks)

    def compile(self, custom_fusion_rules: Optional[Sequence[FusionRule]] = None, custom_validity_checks: Optional[Sequence[Callable]] = None) -> None:
        try:
            self.compiled_ops = compile_pipeline(self.ops, custom_fusion_rules, custom_validity_checks)
        except CompileError as error:
            raise ValueError(f"Compilation failed: {error}") from error

    def __call__(self, x: Any, **kwargs: Any) -> Any:
        tensor = x if isinstance(x, TaggedTensor) else TaggedTensor(x, PROBS if self._initial_type is PROBS else LOGITS)
        for i, op in enumerate(self.ops if self.compiled_ops is None else self.compiled_ops):
            try:
                tensor = op(tensor, **kwargs)
            except Exception as error:
                raise ValueError(f"Error executing operator {i} ({type(op).__name__}): {error}") from error
        return tensor.data

    initial_type = property(lambda self: self._initial_type)

    def __repr__(self) -> str:
        listed = [" -> ".join(type(part).__name__ for part in parts or ()) for parts in (self.processors, self.ops, self.compiled_ops)]
        return f"LogitsPipe([{listed[0]}], ops=[{listed[1]}], compiled_ops=[{listed[2]}])"


BUILDERS = (build_temperature_softmax, build_topk_sampling, build_topp_sampling, build_minp_sampling)

# What is here, by the module of flashinfer.logits_processor in which upstream has it.
PLACES: dict[str, dict[str, Any]] = {
    "types": {"TensorType": TensorType, "TaggedTensor": TaggedTensor},
    "op": {"Op": Op, "ParameterizedOp": ParameterizedOp},
    "operators": {made.__name__: made for made in OPERATORS},
    "processors": {made.__name__: made for made in (LogitsProcessor, Temperature, Softmax, TopK, TopP, MinP, Sample)},
    "legalization": {made.__name__: made for made in (LegalizationError, legalize_processors, infer_initial_type, validate_processor_chain)},
    "validators": {
        made.__name__: made for made in (CompileError, single_softmax_rule, indices_terminal_rule, get_default_validity_checks, validate_pipeline)
    },
    "fusion_rules": {made.__name__: made for made in (FusionRule, joint_topk_topp_sampleprobs_guard, get_default_fusion_rules, *BUILDERS)},
    "compiler": {"Compiler": Compiler, "compile_pipeline": compile_pipeline},
    "pipeline": {"LogitsPipe": LogitsPipe},
}
