"""The grader against kernels that want to be paid for no work, and those that did it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import dodona
import pytest

HERE = Path(__file__).parent
CLAIM = "rmsnorm --attr kernel=flashinfer"


def graded(kernel: str, claim: str = CLAIM, **options) -> dodona.Grade:
    return dodona.Grader(claim, **{"calls": 20, "seconds": 20, **options}).grade(f"{HERE / 'graded_kernels.py'}:{kernel}")


@pytest.mark.parametrize("kernel", ["honest", "other_order"])
def test_honest_kernels_pass(kernel):
    grade = graded(kernel, calls=60)
    assert grade, str(grade)
    assert grade.score == 1 and not grade.causes and not grade.notes


# The kernel, and what the grading says of it.
CHEATS = {
    "zeros": "is one value everywhere",
    "constant": "is one value everywhere",
    "input_itself": "is memory of the argument input",
    "unwritten": "output",
    "cached_by_shape": "output is what call",
    "cached_once": "output",
    "benchmark_shapes_only": "output",
    "full_rows_only": "output",
    "reads_the_answer": "output",
    "patches_the_comparison": "is one value everywhere",
    "lazy": "is a _Lazy, expected a NumPy array",
    "finishes_later": "is one value everywhere",
    "scribbles_on_inputs": "wrote the input weight",
    "refuses": "refused: rows of another width",
    "says_done": "is one value everywhere",
    "another_mapping": "output",
    "maps_what_lies_there": "output",
    "backdates": "wrote the input input",
}


@pytest.mark.parametrize("kernel", CHEATS)
def test_cheats_are_caught_and_named(kernel):
    grade = graded(kernel)
    assert not grade and grade.score < 1
    assert any(CHEATS[kernel] in cause for cause in grade.causes), str(grade)


def test_outputs_filled_behind_the_answer_do_not_count():
    grade = graded("writes_behind_its_caller", calls=6)
    assert not grade
    assert all("went on writing" in cause or "output" in cause for cause in grade.causes), str(grade)


def test_a_file_that_is_cut_short_is_foul(tmp_path):
    cutter = tmp_path / "cutter.py"
    cutter.write_text("import os, sys\nfor line in sys.stdin:\n    os.truncate(line.strip(), 64)\n    print('done', line.strip(), flush=True)\n")
    grade = dodona.Grader("rmsnorm", calls=2).grade(command=[sys.executable, str(cutter)])
    assert not grade and grade.causes == ["the file of the call has another size than before"]


def test_nothing_that_a_kernel_can_look_at_tells_the_secret(tmp_path):
    """Names, arguments and environments of all processes that it sees, and the folder of the calls."""
    spy = tmp_path / "spy.py"
    spy.write_text(
        "import os, pathlib, sys\n"
        "for number, line in enumerate(sys.stdin):\n"
        "    seen = [line, repr(dict(os.environ)), repr(sys.argv)]\n"
        "    for place in pathlib.Path('/proc').glob('[0-9]*'):\n"
        "        for name in ('cmdline', 'environ', 'comm'):\n"
        "            try: seen.append((place / name).read_text(errors='replace'))\n"
        "            except OSError: pass\n"
        "    seen += [repr(path) + repr(path.stat()) for path in pathlib.Path(line.strip()).parent.iterdir()]\n"
        f"    pathlib.Path({str(tmp_path)!r}, f'seen{{number}}').write_text('\\n'.join(seen))\n"
        "    print('failed', line.strip(), 'spied', flush=True)\n"
    )
    grade = dodona.Grader("rmsnorm", calls=2).grade(command=[sys.executable, str(spy)])
    seen = "".join(path.read_text() for path in tmp_path.glob("seen*"))
    assert grade.nonce and seen and grade.nonce not in seen
    for call in grade.calls:
        assert call["case"].split("--seed ")[1].split()[0] not in seen


def test_a_crash_is_a_failed_call_and_the_kernel_is_given_up_after_three():
    grade = graded("crashes")
    assert not grade and len(grade.calls) == 3
    assert grade.causes == ["was ended by signal 11"] and "given up" in grade.notes[-1]


def test_a_kernel_that_hangs_is_ended():
    grade = graded("hangs", calls=1, seconds=0.5)
    assert not grade and grade.causes == ["gave no answer within 1 s"]


def test_other_bits_for_the_same_inputs_are_noted_and_fail_where_asked():
    claim = CLAIM + " H=64 T=4 --dtype input=bf16 --dist normal"
    assert any("had the same inputs" in note for note in graded("changes_its_mind", claim).notes)
    strict = graded("changes_its_mind", claim, same_bits=True)
    assert any("had the same inputs" in cause for cause in strict.causes) and not strict
    assert graded("honest", claim, same_bits=True)


def test_a_nonce_makes_the_same_calls_and_gradings_differ():
    first, second = graded("zeros", calls=6), graded("zeros", calls=6)
    again = graded("zeros", calls=6, nonce=first.nonce)
    lines = [[call["case"] for call in grade.calls] for grade in (first, second, again)]
    assert lines[0] == lines[2] and lines[0] != lines[1]
    assert first.json["secret"] and not again.json["secret"]


def test_sizes_and_types_vary_where_the_claim_leaves_them_open():
    lines = [call["case"] for call in graded("zeros", calls=30).calls]
    assert len({line.split(" --seed")[0] for line in lines}) > 10
    fixed = [call["case"] for call in graded("zeros", "rmsnorm H=64 T=2..3 --dtype input=f16", calls=10).calls]
    assert all(" H=64 " in line and "input=f16" in line and (" T=2 " in line or " T=3 " in line) for line in fixed)


def test_calls_repeat_inputs_and_sizes_of_earlier_ones():
    calls = graded("honest", calls=10).calls
    lines = [call["case"] for call in calls]
    assert [call["kind"] for call in calls] == ["new", "new", "new", "sizes", "again"] * 2
    assert lines[4] in lines[:4] and lines[3] not in lines[:3]


def test_the_kernel_is_told_nothing_of_how_its_inputs_were_made(tmp_path):
    spy = tmp_path / "spy.py"
    spy.write_text(
        "import mmap, shutil, sys\n"
        "for line in sys.stdin:\n"
        f"    shutil.copy(line.strip(), {str(tmp_path / 'call.safetensors')!r})\n"
        "    print('failed', line.strip(), 'spied', flush=True)\n"
    )
    dodona.Grader("rmsnorm", calls=1).grade(command=[sys.executable, str(spy)])
    blob = (tmp_path / "call.safetensors").read_bytes()
    header = json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")])
    assert sorted(header["__metadata__"]) == ["attrs", "op", "outputs"]
    assert set(header) == {"__metadata__", "in.input", "in.weight", "out.output"}


def test_a_file_put_in_the_place_of_the_call_is_not_seen(tmp_path):
    forger = tmp_path / "forger.py"
    forger.write_text(
        "import os, sys\n"
        "for line in sys.stdin:\n"
        "    path = line.strip(); blob = open(path, 'rb').read()\n"
        "    os.unlink(path); open(path, 'wb').write(blob.replace(b'in.', b'xx.'))\n"
        "    print('done', line.strip(), flush=True)\n"
    )
    grade = dodona.Grader("rmsnorm", calls=2).grade(command=[sys.executable, str(forger)])
    assert not grade and grade.causes == ["output was not written"]


def test_work_after_the_answer_is_foul(tmp_path):
    late = tmp_path / "late.py"
    late.write_text(
        "import mmap, os, sys, time\n"
        "for line in sys.stdin:\n"
        "    with open(line.strip(), 'r+b') as file:\n"
        "        memory = mmap.mmap(file.fileno(), 0)\n"
        "    print('done', line.strip(), flush=True)\n"
        "    end = time.time() + 1\n"
        "    while time.time() < end:\n"
        "        memory[-1] = (memory[-1] + 1) % 256\n"
    )
    grade = dodona.Grader("rmsnorm H=64 T=512 --dtype input=f32", calls=2).grade(command=[sys.executable, str(late)])
    assert not grade and any(call["outcome"] in ("foul", "fail") for call in grade.calls)
    assert any("went on writing" in cause for cause in grade.causes), str(grade)


def test_a_command_with_the_word_call_is_started_for_every_call(tmp_path):
    script = tmp_path / "once.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(HERE)!r}); sys.path.insert(0, {str(Path(dodona.__file__).parent)!r})\n"
        "import serve, graded_kernels\n"
        "serve.run(graded_kernels.honest, sys.argv[1], serve.NumPy())\n"
    )
    grade = dodona.Grader(CLAIM, calls=3).grade(command=[sys.executable, str(script), "{call}"])
    assert grade, str(grade)


# The claim, and what of it cannot be.
IMPOSSIBLE = {"rmsnorm H=-1": "H", "no_such_op": "no_such_op", "rmsnorm --seed 3": "--seed", "rmsnorm --dtype input=i8": "i8"}


@pytest.mark.parametrize("claim", IMPOSSIBLE)
def test_an_impossible_claim_is_an_error(claim):
    with pytest.raises(dodona.Error, match=IMPOSSIBLE[claim]):
        graded("honest", claim)


def test_a_command_that_cannot_be_started_is_an_error():
    with pytest.raises(dodona.Error, match="no-such-program.*cannot be started"):
        dodona.Grader("rmsnorm").grade(command=["no-such-program"])
    with pytest.raises(dodona.Error, match="is no option of a grading"):
        dodona.Grader("rmsnorm", speed=1).grade(command=["true"])


def test_ops_that_write_in_place_and_return_several_outputs_can_be_graded(tmp_path):
    kernel = tmp_path / "kernel.py"
    kernel.write_text(
        "import numpy as np\n"
        "def fused_add_rmsnorm(input, residual, weight, eps=1e-6, **attrs):\n"
        "    x = input.astype(np.float32) + residual.astype(np.float32)\n"
        "    residual[...] = x.astype(np.float16)\n"
        "    scale = 1 / np.sqrt((x * x).mean(-1, keepdims=True, dtype=np.float32) + np.float32(eps))\n"
        "    input[...] = (x * scale * weight.astype(np.float32)).astype(np.float16)\n"
    )
    claim = "fused_add_rmsnorm --dtype input=f16 --dist normal"
    grade = dodona.Grader(claim, calls=6).grade(f"{kernel}:fused_add_rmsnorm")
    assert grade, str(grade)


def test_torch_tensors_can_be_asked_for(tmp_path):
    pytest.importorskip("torch")
    kernel = tmp_path / "kernel.py"
    kernel.write_text(
        "import torch\n"
        "def rmsnorm(input, weight, eps=1e-6, **attrs):\n"
        "    x = input.float()\n"
        "    return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight.float()).to(input.dtype)\n"
    )
    grade = dodona.Grader(CLAIM + " --dist normal", calls=6).grade(f"{kernel}:rmsnorm", torch="cpu")
    assert grade, str(grade)
