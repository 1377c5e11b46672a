"""sglang's modules import with the oracle in upstream's place. Needs sglang's source: installed (`pip install --no-deps sglang`), or in the folder
that DODONA_SGLANG names. What else sglang needs and is not installed is stood in for."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

import dodona

FOLDER = os.environ.get("DODONA_SGLANG", "")
pytestmark = pytest.mark.skipif(
    not FOLDER and importlib.util.find_spec("sglang") is None, reason="sglang's source is not here: DODONA_SGLANG names no folder that holds it"
)


@pytest.fixture(scope="module")
def imported():
    here = pathlib.Path(__file__).parent
    paths = [FOLDER, str(pathlib.Path(dodona.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    modules = ["sglang.srt.models.deepseek_v2", "sglang/srt/layers/moe/*", "sglang/srt/layers/quantization/*"]
    ran = subprocess.run(
        [sys.executable, str(here / "sglang_imports.py"), *modules],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1]), ran.stderr


def test_the_model_and_every_layer_of_experts_and_quantization_can_be_imported(imported):
    found, errors = imported
    assert len(found["results"]) > 50
    assert {name: came for name, came in found["results"].items() if came != "imported"} == {}, errors


def test_they_take_the_oracles_functions(imported):
    taken = imported[0]["taken"]
    assert {"bmm_fp8", "concat_mla_k", "dsv3_fused_a_gemm", "dsv3_router_gemm", "merge_state_v2"} <= set(taken["sglang.srt.models.deepseek_v2"])
    assert "moe_fused_gate" in taken["sglang.srt.layers.moe.topk"] and "cutlass_fp4_group_mm" in taken["sglang.srt.layers.moe.cutlass_moe"]
