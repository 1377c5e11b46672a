"""Modules of upstream's checkouts that hold Triton kernels, imported one by one: all else that they import is a stand-in, and where there is no GPU,
torch is made to answer like a machine with an H100."""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import pathlib
import sys
import types
from typing import Any

import torch

NAME = "NVIDIA H100 80GB HBM3"
# Packages that upstream imports at the top of modules whose kernels need nothing of them.
ABSENT = ("sgl_kernel", "flashinfer", "einops", "vllm", "deep_gemm", "transformers", "huggingface_hub", "pydantic", "zmq", "psutil", "orjson")


class _Kind(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything()


class _Anything(metaclass=_Kind):
    """A class, a function, a decorator, a base and a value, as an import may want it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __init_subclass__(cls, **_: Any) -> None:
        pass

    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else _Anything()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything()

    def __iter__(self) -> Any:
        return iter(())

    def __or__(self, other: Any) -> Any:
        return self

    def __bool__(self) -> bool:
        return False

    def __index__(self) -> int:
        return 0

    def __lt__(self, other: Any) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__
    __ror__ = __or__


class _StandIn(types.ModuleType):
    __path__: list[str] = []
    __version__ = "99.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Kind(name, (_Anything,), {})
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of sglang that nobody asked for, and packages that need not be installed, are stand-ins."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] not in ("sglang", *ABSENT):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> Any:
        return _StandIn(spec.name)

    def exec_module(self, module: Any) -> None:
        pass


# What modules ask of sglang.srt.utils while they are imported, and what their wrappers call of it.
_UTILITIES = {
    "is_cuda": lambda: True, "is_hip": lambda: False, "is_npu": lambda: False, "is_xpu": lambda: False, "is_cpu": lambda: False, "is_hpu": lambda: False,
    "is_sm90_supported": lambda *_: True, "is_sm100_supported": lambda *_: False, "is_blackwell": lambda: False, "is_flashinfer_available": lambda: False,
    "cpu_has_amx_support": lambda: False, "supports_custom_op": lambda: False, "get_bool_env_var": lambda *_: False, "get_int_env_var": lambda name, default=0: default,
    "log_info_on_rank0": lambda *_, **__: None, "direct_register_custom_op": lambda *_, **__: None, "cached_triton_kernel": lambda *_, **__: lambda function: function,
    "align": lambda x, y: -(-x // y) * y, "ceil_align": lambda x, y: -(-x // y) * y, "ceil_div": lambda x, y: -(-x // y),
    "next_power_of_2": lambda n: 1 << (n - 1).bit_length() if n > 0 else 1, "get_device_core_count": lambda *_: 132,
    "get_device_name": lambda *_: NAME.replace(" ", "_"), "get_cuda_version": lambda: (13, 0), "get_device_capability": lambda *_: (9, 0),
}  # fmt: skip


def pretend_a_gpu() -> None:
    """CPU tensors go wherever upstream's wrappers demand CUDA ones."""
    torch.version.cuda = torch.version.cuda or "13.0"
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_capability = lambda device=None: (9, 0)
    torch.cuda.get_device_name = lambda device=None: NAME
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.device = lambda *_: contextlib.nullcontext()
    torch.cuda.get_device_properties = lambda device=None: types.SimpleNamespace(
        major=9, minor=0, multi_processor_count=132, max_threads_per_multi_processor=2048, name=NAME, total_memory=80 << 30
    )
    torch.Tensor.is_cuda = property(lambda self: True)


def defined_memory() -> None:
    """What upstream allocates and does not write is zero, here and on a GPU."""
    torch.empty = lambda *args, **kwargs: torch.zeros(*args, **kwargs)
    torch.empty_like = lambda *args, **kwargs: torch.zeros_like(*args, **kwargs)
    torch.Tensor.new_empty = lambda self, *args, **kwargs: self.new_zeros(*args, **kwargs)


def _load(name: str, path: pathlib.Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    parent, _, leaf = name.rpartition(".")
    setattr(sys.modules[parent], leaf, module)
    return module


def modules(sglang: pathlib.Path, wanted: dict[str, str], flashinfer: pathlib.Path | None) -> types.SimpleNamespace:
    """`wanted` of the folder that holds sglang's package, and FlashInfer's Triton kernels of the folder that holds its package; by short names.
    A module that is not there is None."""
    sys.meta_path.insert(0, _Finder())
    torch.library.register_fake = lambda *_, **__: lambda function: function  # of operators that the absent packages would have defined
    for name in wanted.values():
        parts = name.split(".")
        for depth in range(1, len(parts)):
            parent = ".".join(parts[:depth])
            if parent not in sys.modules:
                sys.modules[parent] = _StandIn(parent)
                sys.modules[parent].__path__ = [str(sglang.joinpath(*parts[:depth]))]
    for name in ("sglang.srt.utils", "sglang.srt.utils.common"):
        sys.modules[name] = _StandIn(name)
        for key, value in _UTILITIES.items():
            setattr(sys.modules[name], key, value)
    found: dict[str, Any] = {}
    for short, name in wanted.items():
        path = sglang.joinpath(*name.split(".")).with_suffix(".py")
        found[short] = _load(name, path) if path.exists() else None
    kernels = flashinfer / "flashinfer" / "triton" / "kernels" if flashinfer else None
    package = types.ModuleType("flashinfer_kernels")
    package.__path__ = [str(kernels)] if kernels else []
    sys.modules["flashinfer_kernels"] = package
    for short, name in {"fi_cascade": "cascade", "fi_norm": "norm", "fi_act": "activation", "fi_gemm": "sm_constraint_gemm"}.items():
        there = kernels is not None and (kernels / f"{name}.py").exists()
        found[short] = importlib.import_module(f"flashinfer_kernels.{name}") if there else None
    return types.SimpleNamespace(**found)
