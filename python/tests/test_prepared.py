"""Prepared weights: the bits of the raw ones, and what bad use gets."""

import numpy as np
import pytest

import dodona

OPS = [op for op in dodona.ops() if dodona.schema(op)["prepared"]]


def prepared_call(line):
    """The arguments of a case, with its weights prepared."""
    case = dodona.gen(line)
    arguments = case.arguments()
    schema = dodona.schema(case.op)
    names = [name for name in schema["prepared"] if name in arguments]
    attrs = [spec["name"] for spec in schema["attributes"] if spec["name"] in arguments]
    weights = dodona.prepare(case.op, **{name: arguments[name] for name in names + attrs})
    return case.op, arguments, {**arguments, **dict.fromkeys(names, weights)}, weights


def test_some_ops_take_prepared_weights():
    assert "cutlass_scaled_fp4_mm" in OPS and "cutlass_fp4_group_mm" in OPS


@pytest.mark.parametrize("line", [f"{op} {line}" for op in OPS for line in dodona.schema(op)["cases"]])
def test_prepared_weights_give_the_bits_of_raw_ones(line):
    op, raw, prepared, weights = prepared_call(line)
    outputs = lambda given: given if isinstance(given, tuple) else (given,)
    wanted, got = outputs(getattr(dodona, op)(**raw)), outputs(getattr(dodona, op)(**prepared))
    assert [np.asarray(output).tobytes() for output in got] == [np.asarray(output).tobytes() for output in wanted]
    assert weights.nbytes > 0 and weights.op == op and op in repr(weights)


def test_experts_are_prepared_one_by_one():
    op, raw, _, whole = prepared_call("cutlass_fp4_group_mm M=40 N=32 K=96 E=4 R=512")
    one = lambda e: dodona.prepare(op, b_fp4=raw["b_fp4"][e : e + 1], b_blockscale=raw["b_blockscale"][e : e + 1])
    parts = {e: one(e) for e in range(4)}
    call = lambda weights: dodona.cutlass_fp4_group_mm(**{**raw, "b_fp4": weights, "b_blockscale": weights})
    gathered = dodona.gather(4, parts)
    assert gathered.nbytes == whole.nbytes
    wanted = np.asarray(call(whole)).tobytes()
    assert np.asarray(call(gathered)).tobytes() == wanted
    ends = [*raw["expert_offsets"][1:], 40]
    visited = [e for e in range(4) if ends[e] > raw["expert_offsets"][e]]
    assert np.asarray(call(dodona.gather(4, {e: parts[e] for e in visited}))).tobytes() == wanted
    with pytest.raises(TypeError, match=f"holds no weights of expert {visited[0]}"):
        call(dodona.gather(4, {(visited[0] + 1) % 4: parts[0], **{e: parts[e] for e in visited[1:]}}))
    with pytest.raises(ValueError, match="expected 0 to 3"):
        dodona.gather(4, {4: parts[0]})
    with pytest.raises(ValueError, match="are none"):
        dodona.gather(4, {})


def test_bad_use_is_one_clear_error():
    line = "cutlass_scaled_fp4_mm M=4 N=32 K=1024"
    op, raw, prepared, weights = prepared_call(line)
    run = dodona.cutlass_scaled_fp4_mm
    with pytest.raises(ValueError, match="golden mode needs the arguments that they stand for: b, block_scale_b"):
        run(**prepared, mode="golden")
    with pytest.raises(TypeError, match="b is given, and prepared weights stand for it"):
        run(**{**prepared, "b": raw["b"]})
    with pytest.raises(TypeError, match="a is prepared weights, which stand for b, block_scale_b"):
        run(**{**prepared, "a": weights})
    with pytest.raises(ValueError, match=r"b has shape \[32, 512\], expected \[N, K/2\]"):
        run(**{**prepared, "a": raw["a"][:, :32].copy()})
    with pytest.raises(ValueError, match="holds weights of cutlass_scaled_fp4_mm, expected those of this op"):
        grouped = prepared_call("cutlass_fp4_group_mm M=40 N=32 K=96 E=4 R=512")[1]
        dodona.cutlass_fp4_group_mm(**{**grouped, "b_fp4": weights, "b_blockscale": weights})
    with pytest.raises(TypeError, match="block_scale_b is missing"):
        dodona.prepare(op, b=raw["b"])
    with pytest.raises(TypeError, match="a is not prepared; expected b, block_scale_b"):
        dodona.prepare(op, a=raw["a"], b=raw["b"], block_scale_b=raw["block_scale_b"])
    with pytest.raises(ValueError, match="rmsnorm: has nothing to prepare"):
        dodona.prepare("rmsnorm", weight=np.ones(8, np.float32))
    weights.free()
    with pytest.raises(ValueError, match="weights are freed"):
        run(**prepared)
