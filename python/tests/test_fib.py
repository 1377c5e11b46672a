"""Exported FlashInfer-Bench Definitions: every reference runs, and gives what the op's case says."""

import json
import math

import numpy as np
import pytest

import dodona
from dodona._arrays import numpy_dtype

DTYPES = {
    "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8_e4m3", "float8_e5m2": "f8_e5m2", "int64": "i64",
    "int32": "i32", "int16": "i16", "int8": "i8", "bool": "bool", "float4_e2m1": "f4_e2m1",
}  # fmt: skip


# Without ml_dtypes the arrays are raw codes, whatever the op: every sixteenth of them shows that references take those.
OPS = dodona.ops() if numpy_dtype("bf16") != np.uint16 else dodona.ops()[::16]


@pytest.fixture(scope="module")
def exported(command, tmp_path_factory):
    """Definition and workload by name."""
    root = tmp_path_factory.mktemp("fib")
    command("export", "--fib", str(root), *OPS)
    traces = [json.loads(line) for path in root.rglob("*.jsonl") for line in path.read_text().splitlines()]
    workloads = {trace["definition"]: trace["workload"] for trace in traces}
    definitions = (json.loads(path.read_text()) for path in sorted(root.rglob("*.json")))
    return root, {d["name"]: (d, workloads[d["name"]]) for d in definitions}


def of_op(exported, op):
    root, all_of_them = exported
    found = [(d, w) for d, w in all_of_them.values() if f"dodona:{op}" in d["tags"]]
    assert len(found) == len(dodona.schema(op)["cases"])
    return root, found


def sizes_of(d, workload, field):
    sizes = {**{name: axis.get("value") for name, axis in d["axes"].items()}, **workload["axes"]}
    shape = tuple(sizes[axis] for axis in field["shape"])
    return shape if field["dtype"] != "float4_e2m1" else shape[:-1] + (shape[-1] // 2,)


def as_numpy(d, workload, tensors):
    """The inputs in order, as arrays of the declared types (4-bit ones: bytes of two), and numbers."""
    for name, field in d["inputs"].items():
        source = workload["inputs"][name]
        if source["type"] == "scalar":
            yield source["value"]
        else:
            array = np.frombuffer(tensors[source["tensor_key"]], numpy_dtype(DTYPES[field["dtype"]]))
            yield array.reshape(sizes_of(d, workload, field)).copy()


def kind_of(torch, field):
    return getattr(torch, {"float4_e2m1": "float4_e2m1fn_x2"}.get(field["dtype"], field["dtype"]), None)


def torch_of(result):
    return __import__(type(result).__module__)


def judge(op, d, workload, results):
    """Shapes and types as declared; values as the judge wants them."""
    case = dodona.gen(f"{op} {dodona.schema(op)['cases'][int(d['name'].rsplit('_c', 1)[1]) - 1]}")
    results = results if isinstance(results, tuple) else (results,)
    assert len(results) == len(d["outputs"])
    meant = dict(tag.removeprefix("bits:").split("=") for tag in d["tags"] if tag.startswith("bits:"))
    outputs = {}
    for (name, field), result in zip(d["outputs"].items(), results):
        if isinstance(result, int):
            result = np.asarray(result)
        assert tuple(result.shape) == sizes_of(d, workload, field), name
        if isinstance(result, np.ndarray):
            assert result.dtype == numpy_dtype(DTYPES[field["dtype"]]), name
        else:
            assert result.dtype == kind_of(torch_of(result), field), name
        ours = name if name in case._outputs() else name.removesuffix("_out")
        outputs[ours] = dodona.as_dtype(result, meant.get(name, DTYPES[field["dtype"]]))
    verdict = case.check(outputs)
    # Of a call that writes nothing, names, types and shapes are all there is to check.
    writes_nothing = all(output.elements == 0 for output in verdict.outputs.values())
    assert verdict or (writes_nothing and verdict.outcome == "vacuous"), f"{d['name']}: {verdict}"


def reference_of(d):
    space = {}
    exec(d["reference"], space)
    return space["run"]


@pytest.mark.parametrize("op", OPS)
def test_every_reference_runs_and_passes_the_judge(op, exported, stored):
    root, found = of_op(exported, op)
    for d, workload in found:
        tensors = {key: value for path in (root / "blob").rglob(f"{d['name']}_1.safetensors") for key, value in stored(path).items()}
        inputs = list(as_numpy(d, workload, tensors))
        before = [value.tobytes() for value in inputs if isinstance(value, np.ndarray)]
        judge(op, d, workload, reference_of(d)(*inputs))
        assert [value.tobytes() for value in inputs if isinstance(value, np.ndarray)] == before, "the workload's arrays were changed"


def test_a_wrong_result_does_not_pass(exported, stored):
    root, found = of_op(exported, "rmsnorm")
    d, workload = found[0]
    size = math.prod(sizes_of(d, workload, d["outputs"]["output"]))
    zeros = np.zeros(size, numpy_dtype(DTYPES[d["outputs"]["output"]["dtype"]])).reshape(sizes_of(d, workload, d["outputs"]["output"]))
    with pytest.raises(AssertionError, match="rmsnorm_c1"):
        judge("rmsnorm", d, workload, zeros)


def test_an_output_that_the_call_does_not_make_is_named():
    from dodona import fib

    x = np.ones((1, 8), np.float32)
    with pytest.raises(ValueError, match="rmsnorm: weight is no output of this call"):
        fib.call("rmsnorm", {"weight": "float32"}, input=x, weight=x[0])
