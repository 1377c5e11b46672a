"""Steps of tensor cores against the package `mmasim`, where it is installed; `tools/compare-mmasim --steps N` compares as many as there is time for."""

import importlib.machinery
import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("torch", minversion="2.9", reason="mmasim needs torch 2.9, which is not installed")
pytest.importorskip("mmasim", reason="mmasim, an optional dependency of the tests, is not installed")

PATH = str(Path(__file__).resolve().parents[2] / "tools/compare-mmasim")
LOADER = importlib.machinery.SourceFileLoader("compare_mmasim", PATH)
tool = importlib.util.module_from_spec(importlib.util.spec_from_loader("compare_mmasim", LOADER))
LOADER.exec_module(tool)


@pytest.mark.parametrize("name", tool.instructions())
def test_random_and_edge_steps_give_its_bits(name):
    told = tool.compare(name, steps=8192)
    assert told["steps"] >= 8192
    assert told["differing"] == 0, told["examples"]
