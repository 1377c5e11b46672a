"""docs/regenerate_inputs.py, which makes a case's inputs with nothing but NumPy."""

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

import dodona

SCRIPT = pathlib.Path(__file__).parents[2] / "docs" / "regenerate_inputs.py"


def regenerate(path):
    return subprocess.run([sys.executable, SCRIPT, path], capture_output=True, text=True)


def made_again(command, path, *line):
    command("gen", *line, "--compact", "-o", str(path))
    done = regenerate(path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def script():
    """The script as a module: starting an interpreter takes longer than most cases."""
    spec = importlib.util.spec_from_file_location("regenerate_inputs", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Values, weights, positions, tables of cosines, scales, 8-bit floats, log-sum-exps, packed codes, lengths, pages, experts.
@pytest.mark.parametrize(
    "line",
    [
        "rmsnorm T=3 H=65 --seed 77 --dist outliers",
        "merge_state T=2 N=5 D=64 --dist edge",
        "rotary_embedding T=3 P=64 R=64 Nq=4 --attr head_size=64 --dtype query=f32",
        "bmm_fp8 L=1 M=3 N=32 K=64 --dist ties",
        "linear T=3 N=5 K=48 --dist edge",
        "trtllm_batch_decode_with_kv_cache_mla B=1 Q=1 N=2 pages=2 P=32 W=1 --attr bmm1_scale=0.0005 --dtype query=f8_e4m3 --dist edge",
        "weak_ref_tensor S=33 --dtype tensor=f4_e2m1 --dist wide-exponent",
        "cutlass_mla_decode B=2 N=2 pages=8 P=32 W=4 --attr sm_scale=0.1",
        "prepare_moe_input M=9 topk=3 --attr num_experts=4 --attr n=8 --attr k=16",
    ],
)
def test_the_numpy_script_makes_the_same_inputs(command, tmp_path, line):
    made_again(command, tmp_path / "case", *line.split())


def special_lines():
    """Of each special the first two lines that it strikes, over all ops: together every special of the page."""
    names = re.findall(r"^\| ([a-z][a-z0-9-]+) \|", (SCRIPT.parent / "inputs.md").read_text().split("## Special inputs")[1].split("## Windows")[0], re.M)
    left = {name: 2 for name in names if name != "special"}
    for op in dodona.ops():
        for line in dodona.schema(op)["cases"]:
            struck = []
            for name in [name for name, count in left.items() if count and op != "dsv3_fused_a_gemm"]:
                try:
                    dodona.gen(f"{op} {line} --special {name}")
                except dodona.BadValue as error:
                    assert "of which this call has none" in str(error)
                else:
                    left[name] -= 1
                    struck.append(name)
            if struck:
                yield f"{op} {line} " + " ".join(f"--special {name}" for name in struck)
    assert not any(left.values()), left


@pytest.mark.parametrize("line", special_lines())
def test_the_numpy_script_makes_special_inputs(command, tmp_path, line):
    made_again(command, tmp_path / "case", *line.split(), *([] if "--seed" in line else ["--seed", "4"]))


@pytest.mark.parametrize(
    "line",
    [
        "rmsnorm T=600000 H=8192 --window T=524287..524289",  # 2^32 elements in between
        "bmm L=4 M=6 N=8 K=16 --window L=1..3 --window M=2..5",
        "softmax B=8 V=33 --window B=3..5",
        "cutlass_mla_decode B=5 N=2 pages=60 P=16 W=8 --attr sm_scale=0.1 --window B=2..4 --special stale-cache",
        "moe_fused_gate T=9 E=64 --attr num_expert_group=8 --attr topk_group=4 --attr topk=6 --window T=4..6 --special nan-rows",
    ],
)
def test_the_numpy_script_makes_windows(command, tmp_path, line):
    made_again(command, tmp_path / "case", *line.split())


def kin_lines():
    """Case lines whose inputs are, some of them, made of others, with the arguments that are."""
    for op in dodona.ops():
        schema = dodona.schema(op)
        kin = [spec for spec in schema["tensors"] if spec.get("made_of_other_inputs")]
        for line in schema["cases"]:
            absent = [spec["name"] for spec in kin if spec.get("optional") and f"--with {spec['name']}" not in line]
            here = {name for name in absent if name in dodona.gen(f"{op} {line}").arguments()}
            made = [spec["name"] for spec in kin if spec["name"] not in absent or spec["name"] in here]
            if made:
                yield f"{op} {line}", made


@pytest.mark.parametrize("line, made", kin_lines())
def test_the_numpy_script_makes_inputs_of_other_inputs(command, tmp_path, script, monkeypatch, capsys, line, made):
    page = (SCRIPT.parent / "inputs.md").read_text()
    for seed in range(3):
        path = tmp_path / f"case{seed}"
        command("gen", *line.split(), "--seed", str(seed), "--compact", "-o", str(path))
        monkeypatch.setattr(sys, "argv", ["regenerate_inputs.py", str(path)])
        with pytest.raises(SystemExit) as end:
            script.main()
        told = capsys.readouterr().out
        assert end.value.code == 0, told
        for name in made:
            assert name in told and name in page


def test_every_input_made_of_others_is_in_some_case_line():
    made = {(line.split()[0], name) for line, names in kin_lines() for name in names}
    wanted = {(op, s["name"]) for op in dodona.ops() for s in dodona.schema(op)["tensors"] if s.get("made_of_other_inputs")}
    assert made == wanted and wanted


def test_the_numpy_script_notices_other_bytes(command, tmp_path):
    path = tmp_path / "case"
    command("gen", *"rmsnorm T=3 H=65".split(), "--compact", "-o", str(path))
    content = path.read_bytes()
    other_seed = content.replace(rb'\"seed\":0', rb'\"seed\":1')
    assert other_seed != content
    path.write_bytes(other_seed)
    assert regenerate(path).returncode != 0
