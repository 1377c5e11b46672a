"""Upstream's packages, on the CPU: names and parameters are theirs, the arithmetic is the oracle's.

    compat.install()                 # sgl_kernel, flashinfer, deep_gemm and flash_mla with all their modules
    import sgl_kernel, flashinfer.decode

Every public name of upstream is there. What the oracle has not raises compat.NotOffered when it is called.
"""

from __future__ import annotations

import importlib
import importlib.util

from ._adapt import NotOffered, Refused
from ._packages import Package

PACKAGES = ("sgl_kernel", "flashinfer", "deep_gemm", "flash_mla")


def _package(name: str) -> Package:
    return importlib.import_module(f"dodona.compat.{name}").PACKAGE


def functions(package: str) -> list[str]:
    """The functions that dodona.compat.<package> has."""
    return _package(package).offered()


def operators(package: str) -> list[str]:
    """The operators of torch.ops.<package> that run."""
    return _package(package).offered_torch_ops()


def version(package: str) -> str:
    """The version of upstream whose names and parameters these are."""
    return _package(package).record.version


def install(*packages: str) -> None:
    """Makes `import sgl_kernel`, `import flashinfer.decode` and the like find the oracle, and where torch is there defines torch.ops.sgl_kernel, and for
    vllm torch.ops._C, _moe_C and _C_cache_ops. "trtllm" is TensorRT-LLM's operators alone, torch.ops.trtllm and tensorrt_llm.
    A package that is already imported is left alone, and refused."""
    for name in packages or PACKAGES:
        if name == "trtllm":
            importlib.import_module("dodona.compat.trtllm").define()
            continue
        package = _package(name)
        package.install(importlib.import_module(f"dodona.compat.{name}"))
        if package.record.schemas and importlib.util.find_spec("torch") is not None:
            from ._torch_ops import define

            define(package)
        if name == "vllm" and importlib.util.find_spec("torch") is not None:
            importlib.import_module("dodona.compat.vllm_operators").define()


__all__ = ["NotOffered", "PACKAGES", "Refused", "functions", "install", "operators", "version"]
