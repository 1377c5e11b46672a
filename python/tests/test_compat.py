"""Upstream's packages, by their names."""

import inspect
import re
import sys

import numpy as np
import pytest

import dodona
from dodona import compat


def test_every_op_is_found_under_its_package():
    packages = {"sgl-kernel": "sgl_kernel", "flashinfer": "flashinfer", "torch": None, "triton": None}
    for op in dodona.ops():
        for source in dodona.schema(op)["sources"]:
            package = packages[source]  # a source that is none of these is a package to come
            assert package is None or op in compat.functions(package)


@pytest.mark.parametrize("package", compat.PACKAGES)
def test_what_is_listed_exists(package):
    module = __import__(f"dodona.compat.{package}", fromlist=["x"])
    assert compat.functions(package)
    for name in compat.functions(package):
        assert callable(getattr(module, name))
    with pytest.raises(AttributeError, match=f"dodona.compat.{package} has no nonsense"):
        module.nonsense


def test_code_written_against_upstream_runs(monkeypatch):
    monkeypatch.delitem(sys.modules, "sgl_kernel", raising=False)
    compat.install("sgl_kernel")
    try:
        from sgl_kernel import fused_add_rmsnorm, rmsnorm

        x, w = np.ones((2, 8), np.float32), np.ones(8, np.float32)
        assert np.allclose(rmsnorm(x, w, 1e-6), 1)
        fused_add_rmsnorm(x, x.copy(), w, 1e-6)
    finally:
        del sys.modules["sgl_kernel"]


def test_a_package_that_is_there_is_not_replaced(monkeypatch):
    monkeypatch.setitem(sys.modules, "flashinfer", type(sys)("flashinfer"))
    with pytest.raises(RuntimeError, match="flashinfer is already imported"):
        compat.install("flashinfer")


def test_functions_with_a_recipe_keep_their_parameters():
    from dodona.compat import flashinfer

    assert list(inspect.signature(flashinfer.merge_state).parameters)[:4] == ["v_a", "s_a", "v_b", "s_b"]


def test_flashinfer_quantizes_by_its_own_recipe():
    case = dodona.gen("scaled_fp4_quant M=4 K=64 --dialect flashinfer")
    from dodona.compat import flashinfer

    got = flashinfer.fp4_quantize(case.inputs["input"], case.inputs["input_global_scale"])
    wanted = case.golden()
    assert got[0].tobytes() == wanted["output"].tobytes()
    with pytest.raises(ValueError, match="fp4_quantize: has only sf_vec_size=16"):
        flashinfer.fp4_quantize(case.inputs["input"], case.inputs["input_global_scale"], sf_vec_size=32)


def test_grouped_products_take_upstreams_dictionary():
    from dodona.compat import sgl_kernel

    line = f"cutlass_fp4_group_mm {dodona.schema('cutlass_fp4_group_mm')['cases'][0]}"
    case = dodona.gen(line)
    given = case.arguments()
    plain = {name: given.pop(name) for name in ("a_fp4", "b_fp4", "a_blockscale", "b_blockscale", "alphas")}
    out = sgl_kernel.cutlass_fp4_group_mm(*plain.values(), given.pop("out_dtype", "bf16"), "cpu", given)
    assert out.tobytes() == case.run()["out"].tobytes()


@pytest.mark.parametrize("package", compat.PACKAGES)
def test_the_docstring_lists_what_exists(package):
    text = __import__(f"dodona.compat.{package}", fromlist=["x"]).__doc__
    assert re.search(r"Functions: (.*)\.$", text).group(1).split(", ") == compat.functions(package)
