"""Triton kernels on this CPU, with the bits of a GPU, where there is none.

    import dodona.triton

    dodona.triton.run(kernel, gpu="h100")[grid](x, y, n, BLOCK=128)     # one kernel; CPU tensors of torch or NumPy arrays, written in place

    with dodona.triton.here(gpu="h100"):                                # every kernel that is launched inside, wrappers included
        out = my_library.my_op(x, w)

The installed Triton compiles the kernel for the GPU that is named (its ptxas runs without one), and the PTX it made is carried out here, by
dodona.ptx: tensor-core steps, approximate functions and the order of every sum are those of the machine. Triton's own rules apply unchanged:
specialisation by value and alignment, heuristics, hooks, keyword arguments such as num_warps.

A kernel under @triton.autotune with several configurations runs with the one that is named (`config=`): a GPU chooses by its clock, and which it
took decides the bits.

What a kernel does that it must not raises dodona.ptx.KernelError with the line of the kernel (see dodona.ptx); findings="keep" goes on.
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from typing import Any, Callable, Iterator

from ._library import Error, fail

# What Triton calls the machines that dodona.ptx knows: compute capability, and the shared memory that a block may have.
TARGETS = {"h100": 90, "h200": 90, "a100": 80, "l40s": 89}


@dataclass(frozen=True, eq=False)
class Compiled:
    """A kernel as Triton compiled it for a GPU, and what its launch needs."""

    name: str
    ptx: str
    parameters: tuple[tuple[str, str], ...]  # those that the PTX takes, with Triton's types ("*bf16", "i32", "fp32"...), in its order
    constants: dict[str, Any]  # constexpr arguments, and those that Triton made constants (None, and the integer 1)
    num_warps: int
    num_ctas: int
    shared: int  # bytes of dynamic shared memory
    scratch: tuple[int, int]  # bytes of global and of profile scratch for each block
    descriptors: tuple[dict, ...]  # how Triton lays out the tensor descriptors among the parameters
    arch: int
    triton: str  # its version
    cubin: bytes = b""  # what its ptxas made of the PTX
    flags: str = ""  # with these options


@dataclass(frozen=True)
class Launch:
    """One launch: the kernel, its grid, and its arguments in the order of `kernel.parameters`."""

    kernel: Compiled
    grid: tuple[int, int, int]
    arguments: tuple[Any, ...]


def _triton() -> Any:
    try:
        import triton
        import triton.runtime.driver  # noqa: F401
    except ImportError as error:
        raise ImportError(f"dodona.triton: Triton is not installed ({error}); pip install triton") from error
    return triton


def _refuse(message: str, argument: str = "", code: str = "bad_value") -> Exception:
    return fail(message, code=code, op="triton", argument=argument)


def _arch(gpu: str) -> int:
    if gpu not in TARGETS:
        raise _refuse(f"must be one of {', '.join(TARGETS)}, got {gpu!r}", "gpu", "bad_option")
    return TARGETS[gpu]


class _NoBenchmark:
    """Triton asks its driver for the way to time a kernel; here no clock may choose."""

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise _refuse("has no clock to choose a configuration by: name one", "config")


class _Driver:
    """What Triton asks of the machine before it compiles: a device of the kind that is named, and no way to launch on it."""

    def __init__(self, triton: Any, arch: int) -> None:
        from triton.backends.compiler import GPUTarget

        self._target, self._arch = GPUTarget("cuda", arch, 32), arch

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> Any:
        return ("dodona", self._arch)  # Triton keeps what it compiled by device: ours never meets a real one

    def get_current_stream(self, device: Any) -> int:
        return 0

    def set_current_device(self, device: Any) -> None:
        pass

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        return divmod(self._arch, 10)

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_benchmarker(self) -> Any:
        return _NoBenchmark()


class _Array:
    """A NumPy array as Triton specialises on it."""

    __slots__ = ("array", "dtype")

    def __init__(self, array: Any) -> None:
        self.array, self.dtype = array, array.dtype

    def data_ptr(self) -> int:
        return self.array.ctypes.data


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array_interface__") and not hasattr(value, "data_ptr")


def _flat(values: Any, types: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(types, tuple):
        for value, kind in zip(values, types):
            yield from _flat(value, kind)
    elif types != "constexpr":
        yield values, types


def _compiled(triton: Any, made: Any, arch: int) -> Compiled:
    signature = dict(made.src.signature)
    if "ptx" not in made.asm:
        raise _refuse(f"{made.name} came from a backend without PTX")
    parameters = []
    for name, kind in signature.items():
        leaves = [leaf for _, leaf in _flat(kind, kind)] if isinstance(kind, tuple) else [kind] if kind != "constexpr" else []
        parameters += [(name if len(leaves) == 1 else f"{name}[{i}]", leaf) for i, leaf in enumerate(leaves)]
    names = list(signature)
    constants = {}
    for path, value in made.src.constants.items():
        key = path if isinstance(path, str) else names[path[0]] + "".join(f"[{i}]" for i in path[1:])
        constants[key] = value
    data = made.metadata
    return Compiled(
        name=made.name, ptx=made.asm["ptx"], parameters=tuple(parameters), constants=constants, num_warps=data.num_warps,
        num_ctas=getattr(data, "num_ctas", 1), shared=data.shared,
        scratch=(getattr(data, "global_scratch_size", 0) or 0, getattr(data, "profile_scratch_size", 0) or 0),
        descriptors=tuple(each for each in getattr(data, "tensordesc_meta", None) or () if each is not None), arch=arch, triton=triton.__version__,
        cubin=made.asm["cubin"] if isinstance(made.asm.get("cubin"), bytes) else b"", flags="" if getattr(data, "enable_fp_fusion", True) else "--fmad=false",
    )  # fmt: skip


def _grid(grid: Any, bound: dict[str, Any]) -> tuple[int, int, int]:
    given = grid(bound) if callable(grid) else grid
    given = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if not 1 <= len(given) <= 3:
        raise _refuse(f"has {len(given)} dimensions, expected 1 to 3", "grid", "bad_shape")
    sizes = tuple(int(size) for size in given) + (1,) * (3 - len(given))
    return sizes  # type: ignore[return-value]


def _bound(fn: Any, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, defaults filled in; what is no parameter (num_warps...) is Triton's."""
    names = set(fn.signature.parameters)
    bound = fn.signature.bind(*args, **{key: value for key, value in kwargs.items() if key in names})
    bound.apply_defaults()
    return dict(bound.arguments)


class _Patch:
    """JITFunction.run and Autotuner.run while kernels run here."""

    def __init__(self, triton: Any, arch: int, config: Any, launch: Callable[[Launch], None]) -> None:
        from triton.runtime import autotuner, driver, jit

        # `triton.runtime.driver` is the configuration object itself in every version since 3.0.
        self._driver = getattr(driver, "driver", driver)
        self._jit, self._tuner = jit.JITFunction, autotuner.Autotuner
        self._triton, self._arch, self._config, self._launch = triton, arch, config, launch
        self._made: dict[int, tuple[Any, Compiled]] = {}

    def __enter__(self) -> None:
        self._before = self._driver._active
        self._run, self._tune = self._jit.run, self._tuner.run
        self._driver.set_active(_Driver(self._triton, self._arch))
        patch = self

        def run(fn: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
            args = tuple(_Array(value) if _is_array(value) else value for value in args)
            kwargs = {key: _Array(value) if _is_array(value) else value for key, value in kwargs.items()}
            made = patch._run(fn, *args, grid=grid, warmup=True, **kwargs)
            made = made.result() if hasattr(made, "result") else made
            if not warmup:
                patch.launch(fn, made, grid, args, kwargs)
            return made

        def tune(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            return patch.tuned(tuner, args, kwargs)

        self._jit.run, self._tuner.run = run, tune

    def __exit__(self, *_: Any) -> None:
        self._jit.run, self._tuner.run = self._run, self._tune
        self._driver._active = self._before

    def launch(self, fn: Any, made: Any, grid: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        _, kernel = self._made.get(id(made), (None, None))
        if kernel is None:
            kernel = _compiled(self._triton, made, self._arch)
            self._made[id(made)] = (made, kernel)  # keeps `made`, so that its id stays its own
        bound = _bound(fn, args, kwargs)
        sizes = _grid(grid, {**kwargs, **bound})
        values = []
        for name, kind in made.src.signature.items():
            values += [value.array if isinstance(value, _Array) else value for value, _ in _flat(bound[name], kind)]
        self._launch(Launch(kernel, sizes, tuple(values)))

    def tuned(self, tuner: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        tuner.nargs = dict(zip(tuner.arg_names, args))
        chosen = self._chosen(tuner, kwargs)
        values = {**tuner.nargs, **kwargs, **chosen.all_kwargs()}
        if chosen.pre_hook is not None:
            chosen.pre_hook(values)
        result = tuner.fn.run(*args, **kwargs, **chosen.all_kwargs())
        tuner.best_config, tuner.nargs = chosen, None
        return result

    def _chosen(self, tuner: Any, kwargs: dict[str, Any]) -> Any:
        name = tuner.base_fn.__name__
        config = self._config.get(name) if isinstance(self._config, dict) else self._config
        config = config(tuner.configs, tuner.nargs | kwargs) if callable(config) else config
        if config is None:
            usable = tuner.prune_configs(kwargs) if len(tuner.configs) > 1 else tuner.configs
            if len(usable) == 1:
                return usable[0]
            listed = "".join(f"\n  {number}: {one}" for number, one in enumerate(tuner.configs))
            raise _refuse(f"must name one of {name}'s {len(tuner.configs)} configurations (a GPU takes the one that its clock likes best, "
                          f"and its bits may depend on it):{listed}", "config", "missing_argument")  # fmt: skip
        if isinstance(config, int) and not isinstance(config, bool):
            if not 0 <= config < len(tuner.configs):
                raise _refuse(f"must be from 0 to {len(tuner.configs) - 1} for {name}, got {config}", "config", "bad_option")
            return tuner.configs[config]
        if not hasattr(config, "all_kwargs"):
            raise _refuse(f"is {type(config).__name__}, expected a triton.Config, its number, or a function that chooses one", "config", "bad_option")
        return config


@contextlib.contextmanager
def launching(to: Callable[[Launch], None], gpu: str = "h100", config: Any = None) -> Iterator[None]:
    """While it is entered, kernels are compiled for `gpu`, and each launch is handed to `to` instead of a GPU."""
    triton = _triton()
    if getattr(getattr(triton, "knobs", None), "runtime", None) is not None and triton.knobs.runtime.interpret:
        raise _refuse("runs in Triton's interpreter (TRITON_INTERPRET is set), which makes no PTX: unset it before the kernels are defined")
    with _Patch(triton, _arch(gpu), config, to):
        yield


@functools.lru_cache(maxsize=256)
def _module(kernel: Compiled) -> Any:
    from .ptx import Module

    return Module(kernel.ptx, f"{kernel.name}.ptx")


@functools.lru_cache(maxsize=256)
def readings(kernel: Compiled) -> Any:
    """How Triton's ptxas read the sums of products that the PTX leaves open, by the machine code that it made (see dodona.ptx.Module.readings).
    Triton leaves few open, if any."""
    import os

    from triton.backends import nvidia

    folder = os.path.join(os.path.dirname(nvidia.__file__), "bin")
    tools = {"disassembler": path for name in ("nvdisasm", "cuobjdump") if os.path.exists(path := os.path.join(folder, name))}
    # Triton brings an assembler for each generation of GPUs, and takes the newer one for PTX of newer versions too.
    there = [path for name in ("ptxas", "ptxas-blackwell") if os.path.exists(path := os.path.join(folder, name))]
    named = os.environ.get("TRITON_PTXAS_PATH")
    candidates = [named] if named else there or [""]
    for ptxas in candidates:
        try:
            return _module(kernel).readings(kernel.name, machine_code=kernel.cubin or None, ptxas=ptxas, flags=kernel.flags, **tools)
        except Error:
            if ptxas == candidates[-1]:
                raise


def _contract(kernel: Compiled, asked: Any) -> Any:
    """Where nobody asked for a reading: what the machine code says, if it says it."""
    if asked not in (None, "auto", "ptxas"):
        return asked
    if not _module(kernel).kernel(kernel.name).open:
        return "auto"
    customary = "off" if kernel.flags else "auto"
    try:
        found = readings(kernel)
    except Error:
        if asked == "ptxas":
            raise
        return customary
    if asked == "ptxas" and not found.settled:
        raise _refuse(f"ptxas is not settled: {found.said}", "contract", "bad_option")
    return found if found.settled else customary


def _value(value: Any, kind: str) -> Any:
    """An argument as dodona.ptx takes it."""
    if kind.startswith("*") or value is None or hasattr(value, "data_ptr") or _is_array(value):
        return value
    if kind in ("fp16", "bf16", "fp32", "fp64", "f32", "f64"):
        import numpy as np

        return np.float64(value) if kind in ("fp64", "f64") else np.float32(value)  # Triton widens 16-bit scalars to fp32
    return bool(value) if kind in ("i1", "u1") else int(value)


def _expanded(launch: Launch) -> tuple[list[Any], list[str]]:
    """Arguments as the PTX takes them: a host's tensor descriptor is a tensor map, its sizes and its strides."""
    from .ptx import TensorMap

    values, names = [], []
    maps = iter(launch.kernel.descriptors)
    for value, (name, kind) in zip(launch.arguments, launch.kernel.parameters):
        if not kind.startswith("tensordesc"):
            values.append(_value(value, kind))
            names.append(name)
            continue
        told = next(maps, None)
        if told is None:
            raise _refuse(f"{name} is a tensor descriptor that Triton made no bulk copies of", "arguments")
        sizes = [int(size) for size in value.shape]
        steps = [int(step) for step in value.strides]
        swizzle = {0: 0, 1: 32, 2: 64, 3: 128}[told["swizzle"]]
        values += [TensorMap(value.base, told["block_size"], swizzle, "nan" if getattr(value, "padding", "zero") == "nan" else "zeros"), *sizes, *steps]
        names += [name, *(f"{name}.shape[{i}]" for i in range(len(sizes))), *(f"{name}.strides[{i}]" for i in range(len(steps)))]
    return values, names


def carry_out(launch: Launch, **options: Any) -> Any:
    """Runs a launch here; gives dodona.ptx's report. `options` are those of dodona.ptx.Module.launch."""
    import numpy as np

    kernel = launch.kernel
    module = _module(kernel)
    entry = module.kernel(kernel.name)
    values, names = _expanded(launch)
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    # Triton adds pointers to scratch memory at the end: of all blocks, and one for profiles.
    for size in kernel.scratch[: len(entry.parameters) - len(values)]:
        values.append(np.zeros(blocks * kernel.num_ctas * size, np.uint8) if size else None)
        names.append("scratch")
    return module.launch(kernel.name, launch.grid, entry.block or (32 * kernel.num_warps, 1, 1), *values, shared=kernel.shared, names=names,
                         contract=_contract(kernel, options.pop("contract", None)), **options)  # fmt: skip


class Runner:
    """What run() gives: `runner[grid](*args, **kwargs)` launches, like the kernel itself; `reports` are those of its launches."""

    def __init__(self, kernel: Any, gpu: str, config: Any, options: dict[str, Any]) -> None:
        self._kernel, self._gpu, self._config, self._options = kernel, gpu, config, options
        self.reports: list[Any] = []

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, **kwargs: Any) -> Any:
            with here(self._gpu, self._config, **self._options) as reports:
                self._kernel[grid](*args, **kwargs)
            self.reports += reports
            return reports[-1] if reports else None

        return launch


def _checked(kernel: Any) -> None:
    if not hasattr(kernel, "run") or not hasattr(kernel, "__getitem__") or type(kernel).__name__ == "InterpretedFunction":
        raise _refuse(f"is {type(kernel).__name__}, expected a function under @triton.jit" + (
            ": it was defined for Triton's interpreter; unset TRITON_INTERPRET" if type(kernel).__name__ == "InterpretedFunction" else ""), "kernel", "bad_option")  # fmt: skip


def run(kernel: Any, gpu: str = "h100", config: Any = None, **options: Any) -> Runner:
    """run(kernel)[grid](*args, **kwargs): compiles `kernel` for `gpu` and runs it here, on CPU tensors of torch or NumPy arrays, which it writes.

    `kernel`: under @triton.jit, or under @triton.autotune or @triton.heuristics above it. `gpu`: h100, h200, a100 or l40s. `config`: for kernels
    that are tuned: a number, a triton.Config, or a function of the configurations and the arguments. `options`: those of
    dodona.ptx.Module.launch (findings, race, uninit, threads, contract, limit). A launch gives its report.
    """
    _triton()
    _checked(kernel)
    return Runner(kernel, gpu, config, options)


def compile(kernel: Any, *args: Any, grid: Any = (1,), gpu: str = "h100", config: Any = None, **kwargs: Any) -> Compiled:
    """The kernel as it would be launched with these arguments, without launching it: PTX, and what a launch needs."""
    _triton()
    _checked(kernel)
    made: list[Launch] = []
    with launching(made.append, gpu, config):
        kernel[grid](*args, **kwargs)
    return made[-1].kernel


@contextlib.contextmanager
def here(gpu: str = "h100", config: Any = None, **options: Any) -> Iterator[list[Any]]:
    """While it is entered, every Triton kernel that is launched runs here: wrappers around kernels are called as they are, with CPU tensors.

    Gives the list of reports, one a launch; a grid of no blocks launches nothing. `config`: see run(); also a dictionary from kernels'
    names to such. It changes how Triton launches for the whole process: not for several threads at once.
    """
    reports: list[Any] = []

    def carry(launch: Launch) -> None:
        # Triton compiles a kernel for a grid of no blocks, and launches nothing.
        if 0 not in launch.grid:
            reports.append(carry_out(launch, **options))

    with launching(carry, gpu, config):
        yield reports


__all__ = ["Compiled", "Launch", "Runner", "carry_out", "compile", "here", "launching", "readings", "run"]
