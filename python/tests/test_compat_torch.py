"""In upstream's place with real torch tensors: functions, and the operators torch.ops.sgl_kernel."""

import re

import pytest
import torch
from test_torch import bytes_of, to_torch
from torch._subclasses.fake_tensor import FakeTensorMode
from upstream_calls import UpstreamCall, as_the_op_has_it, assert_returned, lines_of

import dodona
from dodona import compat

FUNCTIONS = [(package, name) for package in ("sgl_kernel", "flashinfer") for name in compat.functions(package)]  # what a case has, they take as it is
OPERATORS = compat.operators("sgl_kernel")


@pytest.fixture(scope="module", autouse=True)
def operators():
    from dodona.compat._torch_ops import define

    define(compat._package("sgl_kernel"))


def type_of(name):
    return getattr(torch, {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "f8_e4m3": "float8_e4m3fn", "f8_e5m2": "float8_e5m2"}[name])


def calls(package, name, operator=False):
    """The op's case lines as upstream's callers write them, less those that upstream refuses."""
    adapter = compat._package(package).torch_adapter(name) if operator else compat._package(package).adapter(name)
    made = [(line, UpstreamCall(package, name, dodona.gen(line), to_torch, type_of if operator else str, operator)) for line in lines_of(adapter, package)]
    assert any(call.said for _, call in made)
    return [(line, call) for line, call in made if call.said]


@pytest.mark.parametrize("package, name", FUNCTIONS)
def test_functions_take_and_give_tensors(package, name):
    adapter = compat._package(package).adapter(name)
    ran = 0
    for line, call in calls(package, name):
        try:
            returned, outputs = call.run(adapter.function)
        except compat.Refused as refused:
            assert "multiple of 16" in str(refused), line
            continue
        if not re.search("return_lse|record_routing|do_finalize", line):
            assert_returned(adapter, returned)
        for output, wanted in call.wanted.items():
            value = outputs[output]
            value = as_the_op_has_it(name, value, wanted)
            assert bytes_of(value) == wanted.tobytes(), (line, output)
        ran += 1
    assert ran


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_run_on_the_cpu(name):
    adapter = compat._package("sgl_kernel").torch_adapter(name)
    operator = getattr(torch.ops.sgl_kernel, name).default
    for line, call in calls("sgl_kernel", name, operator=True):
        returned, outputs = call.run(lambda **given: operator(**given))
        assert_returned(adapter, returned)
        for output, wanted in call.wanted.items():
            if isinstance(outputs[output], int):
                assert outputs[output] == wanted
                continue
            value = outputs[output].view(torch.uint8) if outputs[output].dtype == torch.int32 and wanted.itemsize == 1 else outputs[output]
            assert bytes_of(value[: wanted.shape[0]] if wanted.ndim else value) == wanted.tobytes(), (line, output)


def moved(value, device):
    if isinstance(value, list):
        return [moved(one, device) for one in value]
    return value.to(device) if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_give_the_shapes_and_types_of_the_cpu_on_the_meta_device_and_to_compilers(name):
    operator = getattr(torch.ops.sgl_kernel, name).default

    def faked(mode, value):
        if isinstance(value, list):
            return [faked(mode, one) for one in value]
        return mode.from_tensor(value) if isinstance(value, torch.Tensor) else value

    def described(result):
        several = result if isinstance(result, (list, tuple)) else [result]
        return [(one.shape, one.dtype) if isinstance(one, torch.Tensor) else one for one in several]

    for line, call in calls("sgl_kernel", name, operator=True):
        meta = {key: moved(value, "meta") for key, value in call.arguments.items()}
        on_meta = operator(**meta)
        with FakeTensorMode() as mode:
            fake = {key: faked(mode, value) for key, value in call.arguments.items()}
            traced = operator(**fake)
        real = operator(**call.arguments)
        assert described(on_meta) == described(real) == described(traced), line


def test_a_program_may_register_its_own_shapes_for_an_operator_as_for_upstreams():
    @torch.library.register_fake("sgl_kernel::moe_fused_gate")
    def shapes(input, bias, *rest):
        return [input.new_empty(5)]

    with FakeTensorMode():
        (made,) = torch.ops.sgl_kernel.moe_fused_gate(torch.empty(4, 256), torch.empty(256), 8, 4, 8, 0, 1.0, False)
    assert made.shape == (5,)


def test_operators_that_are_not_offered_are_defined_and_raise():
    given = {"Tensor": torch.zeros(8, 8), "int": 1, "float": 1.0, "bool": False}
    ran = 0
    for name, schema in compat._package("sgl_kernel").record.schemas.items():
        kinds = [argument.type for argument in torch._C.parse_schema(f"sgl_kernel::{schema}").arguments]
        if name in OPERATORS or not kinds or any(str(kind) not in given for kind in kinds):
            assert hasattr(torch.ops.sgl_kernel, name)
            continue
        with pytest.raises(NotImplementedError, match=f"{name}: torch.ops.sgl_kernel.{name} is not offered; .* rmsnorm"):
            getattr(torch.ops.sgl_kernel, name)(*(given[str(kind)] for kind in kinds))
        ran += 1
    assert ran > 20


def test_refusals_of_operators_are_caught_as_torchs():
    with pytest.raises(RuntimeError, match=r"rmsnorm: weight has shape \[7\], expected \[H\]"):
        torch.ops.sgl_kernel.rmsnorm(torch.empty(2, 8), torch.ones(2, 8), torch.ones(7), 1e-6, False)


def test_defaults_are_torchs_own_types():
    import inspect

    import dodona.compat.sgl_kernel as sgl_kernel

    assert inspect.signature(sgl_kernel.dsv3_router_gemm).parameters["out_dtype"].default in (torch.bfloat16, "torch.bfloat16")


def test_weak_references_take_every_type_and_rank_of_torch():
    from dodona.compat.sgl_kernel import weak_ref_tensor

    kinds = [torch.complex64, torch.uint32, torch.float8_e4m3fnuz, torch.bool]
    for tensor in [torch.zeros((1,) * 7), *(torch.zeros(2, 3, dtype=kind) for kind in kinds)]:
        seen = weak_ref_tensor(tensor)
        assert seen.data_ptr() == tensor.data_ptr() and seen.dtype == tensor.dtype and seen.shape == tensor.shape


def test_log_sum_exps_in_bfloat16_are_widened():
    from dodona.compat.sgl_kernel import merge_state_v2

    v, s = torch.randn(5, 8, 64).bfloat16(), torch.randn(5, 8).bfloat16()
    assert torch.equal(merge_state_v2(v, s, v + 1, s)[0], merge_state_v2(v, s.float(), v + 1, s.float())[0])


@pytest.mark.parametrize("operator", [False, True])
def test_ids_that_are_a_slice_are_read_as_they_lie(operator):
    import dodona.compat.sgl_kernel as sgl_kernel

    whole = torch.rand(40, 64, generator=torch.Generator().manual_seed(3)).argsort(dim=1).int()
    align = torch.ops.sgl_kernel.moe_align_block_size if operator else sgl_kernel.moe_align_block_size
    outputs = []
    for ids in (whole[:, :2], whole.view(-1)[:80].view(40, 2), whole[:, :2].numpy()):
        if operator and not isinstance(ids, torch.Tensor):
            continue
        sorted_ids, experts, total, sums = (torch.zeros(n, dtype=torch.int32) for n in (80 + 65 * 16, 70, 1, 66))
        align(ids, 65, 16, sorted_ids, experts, total, sums, True)
        outputs.append((sorted_ids, experts, total))
    for other in outputs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(outputs[0], other))
    with pytest.raises(ValueError, match="topk_ids has strides"):
        align(whole[:, :1].expand(40, 2), 65, 16, *(torch.zeros(n, dtype=torch.int32) for n in (80 + 65 * 16, 70, 1, 66)), True)


def test_an_operator_that_refuses_its_second_output_has_not_written_the_first():
    torch.manual_seed(0)
    q, k, cache, at = torch.randn(4, 2, 64), torch.randn(4, 1, 64), torch.randn(9, 64), torch.arange(4)
    given = dict(cos_sin_cache=cache, pos_ids=at, interleave=False, enable_pdl=False, v=None, k_buffer=None, v_buffer=None, kv_cache_loc=None)
    rotate = torch.ops.sgl_kernel.apply_rope_pos_ids_cos_sin_cache.default
    first = torch.zeros_like(q, dtype=torch.bfloat16)
    q, k = q.bfloat16(), k.bfloat16()
    for second, text in ((k.new_zeros(4, 2, 64), r"k_rope is torch.bfloat16 \[4, 2, 64\], expected"), (k.new_zeros(4, 1, 64).requires_grad_(), "k_rope requires grad")):
        with pytest.raises(compat.Refused, match=text):
            rotate(q, k, first, second, **given)
        assert not first.any()
    with pytest.raises(compat.Refused, match="k is required"):
        rotate(q, None, first, k.clone(), **given)
    rotate(q, k, first, second.detach(), **given)
    assert first.any() and second.any()

    case = dodona.gen("scaled_fp4_experts_quant M=40 T=40 K=80 E=4 R=512")
    call = UpstreamCall("sgl_kernel", "scaled_fp4_experts_quant", case, to_torch, type_of, operator=True)
    for words, text in ((None, "output_scale is required"), (torch.zeros(3, 2, dtype=torch.int32), r"output_scale is .* \[3, 8\], expected 512 rows of 8 bytes")):
        output = torch.zeros_like(call.arguments["output"])
        with pytest.raises(compat.Refused, match=text):
            torch.ops.sgl_kernel.scaled_fp4_experts_quant.default(**{**call.arguments, "output": output, "output_scale": words})
        assert not output.any()


def test_vllms_operators_and_sums_of_products_take_tensors():
    from dodona.compat import deep_gemm
    from dodona.compat.vllm import _custom_ops as ops

    torch.manual_seed(0)
    x, w = torch.randn(4, 64).bfloat16(), torch.randn(64).bfloat16()
    out = torch.empty_like(x)
    ops.rms_norm(out, x, w, 1e-6)
    torch.testing.assert_close(out, torch.nn.functional.rms_norm(x.float(), (64,), eps=1e-6).bfloat16() * w, rtol=2**-7, atol=0)
    codes, scale = ops.scaled_fp8_quant(x, num_token_padding=8)
    assert codes.dtype is torch.float8_e4m3fn and codes.shape == (8, 64) and bool(scale == x.float().abs().max() / 448)
    torch.testing.assert_close(codes[:4].float() * scale, x.float(), rtol=2**-4, atol=2**-9 * float(scale))
    ids = torch.zeros(4, 2, dtype=torch.uint32)
    ops.topk_softmax(torch.empty(4, 2), ids, torch.empty(4, 2, dtype=torch.int32), x.float())
    assert (ids.long() == x.float().topk(2).indices).all()
    a, b, d = torch.randn(4, 3, 32).bfloat16(), torch.randn(3, 16, 32).bfloat16(), torch.zeros(4, 3, 16).bfloat16()
    deep_gemm.einsum("bhr,hdr->bhd", a, b, d)
    torch.testing.assert_close(d.float(), torch.einsum("bhr,hdr->bhd", a.float(), b.float()), rtol=2**-8, atol=2**-12)
    for call in (lambda: ops.scaled_fp8_quant(x.to("meta")), lambda: deep_gemm.einsum("bhr,hdr->bhd", a.to("meta"), b, d)):
        with pytest.raises(compat.Refused, match="is strided on meta, expected strided on cpu"):
            call()
    kept = d.clone()
    with pytest.raises(compat.Refused, match="d requires grad, and is written"):
        deep_gemm.einsum("bhr,hdr->bhd", a, b, d.requires_grad_())
    assert torch.equal(d.detach(), kept)


# ---- vLLM's operators ----


def test_vllms_operators_are_the_functions_of_their_names():
    from dodona.compat import vllm_operators
    from dodona.compat.vllm import _custom_ops as custom

    vllm_operators.define()
    vllm_operators.define()  # once
    of = torch.ops._C
    x, weight = torch.randn(3, 256, dtype=torch.bfloat16), torch.randn(256, dtype=torch.bfloat16)
    out, wanted = torch.empty_like(x), torch.empty_like(x)
    of.rms_norm(out, x, weight, 1e-6)
    custom.rms_norm(wanted, x, weight, 1e-6)
    assert torch.equal(out, wanted)
    half = torch.empty(3, 128, dtype=torch.bfloat16)
    for name, op, how in (("silu_and_mul", "silu_and_mul", {}), ("mul_and_silu", "silu_and_mul", {"gate_order": "up_gate"}), ("gelu_and_mul", "gelu_and_mul", {})):
        getattr(of, name)(half, x)
        assert torch.equal(half, getattr(dodona, op)(x, round_activation="yes", **how))
    codes, scale = torch.empty(3, 256, dtype=torch.float8_e4m3fn), torch.empty(1)
    of.dynamic_scaled_fp8_quant(codes, x, scale)
    again, same = custom.scaled_fp8_quant(x)
    assert torch.equal(codes.view(torch.uint8), again.view(torch.uint8)) and torch.equal(scale, same)
    of.static_scaled_fp8_quant(codes, x, scale * 2)
    assert torch.equal(codes.view(torch.uint8), custom.scaled_fp8_quant(x, scale * 2)[0].view(torch.uint8))
    scales = torch.empty(3, 1)
    of.dynamic_per_token_scaled_fp8_quant(codes, x, scales)
    again, same = custom.scaled_fp8_quant(x, use_per_token_if_dynamic=True)
    assert torch.equal(codes.view(torch.uint8), again.view(torch.uint8)) and torch.equal(scales, same)
    groups = torch.empty(2, 3).T
    of.per_token_group_fp8_quant(x, codes, groups, 128, 1e-10, -448.0, 448.0, False)
    again, same = dodona.sgl_per_token_group_quant_8bit(x, divide="ieee")
    assert torch.equal(codes.view(torch.uint8), again.view(torch.uint8)) and torch.equal(groups, same)
    of.per_token_group_fp8_quant(x, codes, groups, 128, 1e-10, -448.0, 448.0, True, False, False)
    assert torch.equal(groups.log2().round().exp2(), groups)
    weights, ids, places = torch.empty(3, 2), torch.empty(3, 2, dtype=torch.int32), torch.empty(3, 2, dtype=torch.int32)
    torch.ops._moe_C.topk_softmax(weights, ids, places, x.float(), True)
    assert torch.allclose(weights.sum(1), torch.ones(3)) and torch.equal(ids[:, 0].long(), x.float().argmax(1))
    rows, order = torch.empty(4, 256, dtype=torch.bfloat16), torch.tensor([2, 0, 1, 1], dtype=torch.int32)
    torch.ops._moe_C.shuffle_rows(x, order, rows)
    assert torch.equal(rows, x[order.long()])
    joined = torch.empty(3, 1, 256, dtype=torch.bfloat16)
    torch.ops._C_cache_ops.concat_mla_q(x[:, None, :192], x[:, None, 192:], joined)
    assert torch.equal(joined[:, 0], x)
    with pytest.raises(compat.NotOffered, match="gelu_quick"):
        of.gelu_quick(half, half)
    with pytest.raises(compat.NotOffered, match="output_scale"):
        of.merge_attn_states(x, None, x, scales, x, scales, None, scales)
