"""Upstream's packages, on the CPU: names and parameters are theirs, the arithmetic is the oracle's."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

PACKAGES = ("sgl_kernel", "flashinfer")


def functions(package: str) -> list[str]:
    """The functions that dodona.compat.<package> has."""
    return sorted(importlib.import_module(f"dodona.compat.{package}").__all__)


def install(*packages: str) -> None:
    """Makes `import sgl_kernel` and the like find the oracle. A package that is already imported is left alone, and refused."""
    for package in packages or PACKAGES:
        module: ModuleType = importlib.import_module(f"dodona.compat.{package}")
        if sys.modules.get(package, module) is not module:
            raise RuntimeError(f"{package} is already imported from {getattr(sys.modules[package], '__file__', 'elsewhere')}")
        sys.modules[package] = module
