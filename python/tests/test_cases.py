"""Cases, verdicts, layers."""

import hashlib
import re
import subprocess
import sys

import numpy as np
import pytest

import dodona

LINE = "rmsnorm T=3 H=64 --dtype input=f32 --seed 5"


def test_a_case_has_inputs_attributes_and_its_line():
    case = dodona.gen("rmsnorm T=3 H=64 --dtype input=f32 --attr eps=0.5 --seed 5")
    assert case.op == "rmsnorm" and case.attrs["eps"] == 0.5
    assert case.inputs["input"].shape == (3, 64) and case.inputs["input"].dtype == np.float32
    assert case.line == "rmsnorm H=64 T=3 --dtype input=f32 --attr eps=0.5 --seed 5"
    with pytest.raises(ValueError):
        case.inputs["input"][0, 0] = 1
    case.arguments()["input"][0, 0] = 1  # a copy


def test_optional_arguments_are_asked_for_and_left_out():
    sizes = "apply_shuffle_mul_sum M=2 topk=3 R=6 D=8"
    assert "factors" in dodona.gen(sizes).inputs
    assert "factors" not in dodona.gen(f"{sizes} --without factors").inputs
    assert dodona.gen(f"{sizes} --without factors").line.endswith("--without factors")
    offsets = "scaled_fp4_experts_quant M=9 T=9 K=64 E=2 R=256"
    assert "blockscale_offsets" not in dodona.gen(offsets).inputs
    assert dodona.gen(f"{offsets} --with blockscale_offsets").inputs["blockscale_offsets"].shape == (3,)
    with pytest.raises(ValueError, match="input is not optional"):
        dodona.gen("rmsnorm T=3 H=64 --without input")


def test_inputs_outlive_their_case():
    inputs = dodona.gen(LINE).inputs["input"]
    again = dodona.gen(LINE).inputs["input"]
    assert np.array_equal(inputs, again)


def test_golden_is_what_the_command_generates(command, stored, tmp_path):
    path = tmp_path / "case.safetensors"
    command("gen", *LINE.split(), "-o", str(path))
    assert dodona.golden(LINE)["output"].tobytes() == stored(path)["out.output"]
    case = dodona.load(path)
    assert case.line == dodona.gen(LINE).line
    assert case.recorded["output"].tobytes() == stored(path)["out.output"]
    other = tmp_path / "other.safetensors"
    case.save(other)
    assert other.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("how", ["one array", "by name", "a mapping", "a tuple"])
def test_outputs_are_given_in_any_way(how):
    y = dodona.golden(LINE)["output"]
    given = {"one array": ((y,), {}), "by name": ((), {"output": y}), "a mapping": (({"output": y},), {}), "a tuple": (((y,),), {})}[how]
    verdict = dodona.check(LINE, *given[0], **given[1])
    assert verdict and verdict.passes and verdict.outcome == "pass" and verdict.outputs["output"].differing == 0


def test_a_failing_verdict_prints_as_the_command_does(command, tmp_path):
    case = dodona.gen(LINE)
    y = case.golden()["output"].copy()
    y[1, 7] += 1
    verdict = dodona.check(case, y)
    assert not verdict and verdict.outcome == "fail"
    assert verdict.outputs["output"].failing == 1 and verdict.outputs["output"].worst[0]["index"] == [1, 7]
    assert "<html" in verdict.html()
    case.save(tmp_path / "case.safetensors")
    np.save(tmp_path / "mine.npy", y)
    printed = subprocess.run(
        [__import__("os").environ["DODONA_COMMAND"], "check", str(tmp_path / "case.safetensors"), str(tmp_path / "mine.npy")],
        capture_output=True,
        text=True,
    )
    assert printed.returncode == 1
    assert printed.stdout.startswith(str(verdict))


def test_a_verdict_that_compared_nothing_does_not_pass():
    case = dodona.gen("trtllm_batch_decode_with_kv_cache_mla B=1 Q=1 N=2 pages=2 P=32 W=1 --attr bmm1_scale=1e36")
    verdict = case.check(case.golden())
    assert verdict.outcome == "vacuous" and not verdict
    assert verdict.outputs["out"].compared == 0 and verdict.outputs["out"].outcome == "vacuous"
    assert "nothing was compared" in str(verdict) and "nothing was compared" in verdict.html()


def test_assert_close_raises_with_the_line():
    y = dodona.golden(LINE)["output"]
    assert dodona.assert_close(LINE, output=y)
    with pytest.raises(AssertionError, match="reproduce: dodona gen rmsnorm H=64 T=3 --dtype input=f32 --seed 5"):
        dodona.assert_close(LINE, output=np.zeros_like(y))


def test_a_case_of_a_call_of_ones_own():
    rng = np.random.default_rng(2)
    x, residual, weight = rng.standard_normal((2, 32), np.float32), rng.standard_normal((2, 32), np.float32), np.ones(32, np.float32)
    case = dodona.Case.of("fused_add_rmsnorm", x, residual, weight, eps=1e-5)
    dodona.fused_add_rmsnorm(x, residual, weight, eps=1e-5)
    assert case.check(input=x, residual=residual)
    assert not case.check(input=residual, residual=residual)


def test_a_case_of_a_call_whose_outputs_say_how_many_are_chosen():
    logits = np.random.default_rng(3).standard_normal((4, 16), np.float32)
    weights, ids = np.zeros((4, 3), np.float32), np.zeros((4, 3), np.int32)
    case = dodona.Case.of("topk_softmax", weights, ids, logits, True)
    dodona.topk_softmax(weights, ids, logits, True)
    assert case.check(topk_weights=weights, topk_ids=ids) and not case.check(topk_weights=weights, topk_ids=ids[:, ::-1].copy())


@pytest.mark.parametrize(
    "outputs, kind, words",
    [
        ({}, TypeError, "rmsnorm: output is missing"),
        ({"y": np.zeros((3, 64), np.float32)}, TypeError, "rmsnorm: y is no output"),
        ({"output": np.zeros((3, 63), np.float32)}, ValueError, r"rmsnorm: output .*\[3, 63\], expected \[3, 64\]"),
        ({"output": np.zeros((3, 64), np.float16)}, TypeError, "rmsnorm: output .* f16"),
    ],
)
def test_outputs_that_are_not_those_of_the_call(outputs, kind, words):
    with pytest.raises(kind, match=words):
        dodona.check(LINE, outputs)


@pytest.mark.parametrize("line", ["", "rmsnorm T=1", "nothing T=1", "rmsnorm T=x H=8", "rmsnorm T=1 H=8 --seed"])
def test_bad_lines(line):
    with pytest.raises(ValueError):
        dodona.gen(line)


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(ValueError, match="none.safetensors"):
        dodona.load(tmp_path / "none.safetensors")


def test_explanations_name_the_mistake():
    line = "silu_and_mul T=4 D=32 --dtype input=f32"
    swapped = dodona.gen(line + " --attr gate_order=up_gate").golden()["out"]
    verdict = dodona.gen(line).check(swapped, explain=5)
    assert not verdict and "explanation" in str(verdict)


def test_a_layer_has_one_digest_for_any_number_of_threads():
    run = dodona.layer(preset="tiny", kv_len=[5, 9], seed=3)
    content = b"".join(np.ascontiguousarray(array).tobytes() for array in (run.hidden, run.residual))
    assert run.digest == hashlib.sha256(content).hexdigest()
    assert run.digest == dodona.layer(preset="tiny", kv_len=[5, 9], seed=3, threads=1).digest
    assert run.digest != dodona.layer(preset="tiny", kv_len=[5, 9], seed=4).digest
    assert run.hidden.shape[0] == 2 and "self.q_b_proj()" in [op["op"] for op in run.ops]
    with pytest.raises(ValueError, match="preset|nothing"):
        dodona.layer(preset="nothing")
    with pytest.raises(ValueError, match="kv_len"):
        dodona.layer(preset="tiny", kv_len=[1, 2, 3], batch=2)


def test_a_layer_takes_every_phase_and_kernels_by_name():
    tiny = {"preset": "tiny", "kv_len": [12, 9], "seed": 3}
    assert dodona.layer(**tiny, phase="prefill").hidden.shape[0] == 21
    extended = dodona.layer(**tiny, phase="extend", prefix_len=[5, 0], path="mha-chunked")
    assert extended.hidden.shape[0] == 16 and "merge_state_v2()" in [op["op"] for op in extended.ops]
    assert dodona.layer(**tiny, phase="verify", draft_tokens=3, backend="flashmla").hidden.shape[0] == 6
    used = dodona.layer(**tiny, backend="trtllm_mla", kv_cache_dtype="fp8_e4m3", use=["o_proj=int8_scaled_mm"])
    kernels = {op["op"]: op["kernels"] for op in used.ops}
    assert kernels["self.rotary_emb()"] == "mla_rope_quantize_fp8" and "int8_scaled_mm" in kernels["self.o_proj()"]
    with pytest.raises(ValueError, match="possible here"):
        dodona.layer(**tiny, use=["q_proj=linear"])
    with pytest.raises(ValueError, match="prefix_len"):
        dodona.layer(**tiny, phase="extend")
    assert dodona.layer(**tiny, use="o_proj=int8_scaled_mm").digest == dodona.layer(**tiny, use=["o_proj=int8_scaled_mm"]).digest


def test_a_layer_takes_the_forms_of_weights_and_a_gpu():
    tiny = {"preset": "tiny", "kv_len": 9}
    forms = [{}, {"linear": "int8"}, {"expert_weights": "fp8", "experts": "triton"}, {"fused_shared_expert": True}]
    assert len({dodona.layer(**tiny, **form).digest for form in forms}) == len(forms)
    hopper = {"preset": "tiny-fp8", "kv_len": 9, "backend": "flashmla"}
    assert dodona.layer(**hopper, gpu="h100").digest == dodona.layer(**hopper, mode="hopper").digest
    for wrong in ({"linear": "int9"}, {"expert_weights": "fp7"}, {"gpu": "v100"}, {"layer": 0, "fused_shared_expert": True}):
        with pytest.raises(ValueError, match=next(reversed(wrong)) if "linear" not in wrong else "int9"):
            dodona.layer(**tiny, **wrong)


def test_a_layer_takes_residuals_roundings_and_orders():
    tiny = {"preset": "tiny", "kv_len": [12, 9], "seed": 3}
    plain = dodona.layer(**tiny)
    added, wide = dodona.layer(**tiny, residual="pre-added"), dodona.layer(**tiny, rounding="off")
    assert len({plain.digest, added.digest, wide.digest}) == 3
    assert {op["op"]: op["kernels"] for op in added.ops}["self.input_layernorm()"] == "rmsnorm"
    assert wide.hidden.dtype == np.float32 and wide.hidden.shape == wide.residual.shape == plain.hidden.shape == (2, 256)
    assert plain.digest == dodona.layer(**tiny, residual="fused", rounding="bf16", dual_stream=False, page_seed=0).digest
    # What changes no bit, and is another way all the same.
    both = dodona.layer(**tiny, dual_stream=True, page_seed=7)
    names = [op["op"] for op in both.ops]
    assert both.digest == plain.digest and names.index("self.shared_experts()") < names.index("self.gate()")
    chunks = {"phase": "extend", "prefix_len": [8, 5], "path": "mha-chunked"}
    merges = [[op["op"] for op in dodona.layer(**tiny, **chunks, **chunk).ops].count("merge_state_v2()") for chunk in ({}, {"prefix_chunk": 4})]
    assert merges[0] == 1 and merges[1] > 1
    for wrong, why in (
        ({"residual": "added"}, "residual must be fused or pre-added, got 'added'"),
        ({"rounding": "fp16"}, "rounding must be bf16 or off, got 'fp16'"),
        ({"layer": 0, "dual_stream": True}, "dual_stream is given, but layer 0 is dense"),
        ({"prefix_chunk": 0}, "prefix_chunk is 0, expected 1 to 1073741824"),
        ({"page_seed": -1}, "page_seed is -1, expected 0 or more"),
        ({"mode": "golden", "gpu": "h100"}, "gpu is 'h100', whose mode is hopper, but mode is golden"),
        ({"rounding": "off", "mode": "hopper"}, "rounding is off, expected bf16 in hopper mode"),
    ):
        with pytest.raises(dodona.Error, match=re.escape(why)):
            dodona.layer(**tiny, **wrong)


def test_a_model_continues_texts_and_goes_on_where_it_was_stopped(tmp_path):
    call = {"preset": "tiny", "max_new": 3, "threads": 1}
    whole = dodona.generate([[5, 17, 3], [1]], **call)
    assert [len(text) for text in whole.tokens] == [3, 3] and whole.layers == 9 and whole.model == "tiny"
    assert dodona.generate(np.array([5, 17, 3]), **call).tokens == whole.tokens[:1]
    trees = {"speculative": "nextn", "speculative_num_steps": 2, "speculative_eagle_topk": 2, "speculative_num_draft_tokens": 4}
    assert dodona.generate([[5, 17, 3], [1]], **call, **trees).tokens == whole.tokens
    seen = []

    def stop(layer, layers):
        seen.append((layer, layers))
        if len(seen) == 5:
            raise KeyboardInterrupt

    kept = {**call, "state": str(tmp_path / "state")}
    with pytest.raises(KeyboardInterrupt):
        dodona.generate([[5, 17, 3], [1]], **kept, behind_layer=stop)
    assert seen == [(0, 3), (1, 3), (2, 3), (0, 3), (1, 3)]
    rest = dodona.generate([[5, 17, 3], [1]], **kept, resume=True)
    assert rest.tokens == whole.tokens and rest.layers == 4
    with pytest.raises(ValueError, match="is the state of another call: seed is 0, expected 1"):
        dodona.generate([[5, 17, 3], [1]], **kept, seed=1, resume=True)
    with pytest.raises(ValueError, match="holds token 512"):
        dodona.generate([512], **call)


def test_without_its_library_the_import_says_what_to_do(tmp_path):
    program = "import dodona"
    for library, words in (("/no/such/library.so", "cannot load /no/such/library.so"), ("", "DODONA_LIBRARY is not set")):
        environment = {**__import__("os").environ, "DODONA_LIBRARY": library}
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
        if not library and run.returncode == 0:
            continue  # an installed package has its library beside it
        assert words in run.stderr


def test_whose_names_the_schedule_of_outputs():
    made = dodona.gen("linear T=8 N=96 K=712 --attr out_dtype=f32 --attr split_k=3").run("hopper")
    case = dodona.gen("linear T=8 N=96 K=712 --attr out_dtype=f32")
    answer = dodona.whose(case, made)
    assert answer and answer.answer == "named"
    assert answer.found[0][0]["attrs"]["split_k"] == "3" and "split_k=3" in str(answer) and "split_k=3" in repr(answer)
    assert dodona.check(case, made, mode="hopper").json["schedule"] == "these are the bits of hopper split_k=3 = blackwell split_k=3"
    other = dodona.whose(case, output=case.golden()["output"])
    assert not other and other.answer == "none" and not other.found
    with pytest.raises(dodona.Error, match="one schedule only"):
        dodona.whose("gelu_and_mul T=2 D=64", np.zeros((2, 64), np.uint16))
    with pytest.raises(dodona.Error, match="expected"):
        dodona.whose(case, np.zeros((7, 96), np.float32))


def test_a_sample_of_the_rows_is_judged_and_the_verdict_says_so():
    case = dodona.gen("rmsnorm T=50 H=64")
    verdict = case.check(case.run("fast"), sample=4, sample_seed=9)
    assert verdict and "4 of 50 rows, seed 9" in verdict.text
    assert dodona.check("rmsnorm T=50 H=64", case.run("fast"), sample=1000)
    with pytest.raises(dodona.Error, match="explain is given, expected none with sample"):
        case.check(case.run("fast"), sample=4, explain=1)


# ---- the same bits, run after run ----


def test_runs_of_the_same_bits_pass_whatever_holds_them():
    y = np.arange(24, dtype=np.float32).reshape(4, 6)
    assert dodona.assert_same_bits(y, y.copy(), y.copy())
    assert dodona.assert_same_bits((y, y.astype(np.int32)), (y, y.astype(np.int32)))
    assert dodona.assert_same_bits({"out": y.view(np.uint16)}, {"out": y.view(np.uint16).copy()})
    assert dodona.same_bits(y[:2], y), "the rows that both have"


def test_runs_of_other_bits_are_named_with_what_differs():
    y = np.arange(24, dtype=np.float32).reshape(4, 6)
    other = y.copy()
    other[2, 1:] += 1
    with pytest.raises(AssertionError, match=r"differ +third, from first") as failure:
        dodona.assert_same_bits(y, y.copy(), other, names=["first", "second", "third"])
    assert "5 of 24 elements" in str(failure.value) and "the first at [2, 1]" in str(failure.value)
    answer = dodona.same_bits(y, other)
    assert not answer and answer.json["groups"] == [["run 1"], ["run 2"]]
    assert not dodona.same_bits(np.zeros(3, np.float32), -np.zeros(3, np.float32)), "zeros of another sign"


def test_runs_that_cannot_be_compared_are_an_error():
    y = np.ones((2, 3), np.float32)
    for runs, words in (((y,), "two runs"), ((y, y.astype(np.float64)), "is f64 in run 2"), ((y, y[:, :2]), "only the first dimension")):
        with pytest.raises(dodona.Error, match=words):
            dodona.same_bits(*runs)
