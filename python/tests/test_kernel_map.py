"""tools/kernel-map on a small checkout made here: every kind of call, with its exact chain, and what bad input gets. With DODONA_SGLANG_CHECKOUT,
on a real one."""

import json
import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "kernel-map"

# Lines are counted in the chains below: each file begins at its line 1.
CHECKOUT = {
    "python/sglang/__init__.py": "",
    "python/sglang/srt/utils.py": """\
        import torch
        def is_cuda(): return torch.cuda.is_available()
        def is_hip(): return torch.version.hip is not None
        def direct_register_custom_op(op_name, op_func, mutates_args=()): ...
        from typing import Protocol
        class MakesLayer(Protocol):
            def __call__(self, idx): ...
        def make_layers(count, make: MakesLayer):
            layers = torch.nn.ModuleList([None] + [make(idx=i) for i in range(count)])
            return layers, count
        """,
    "python/sglang/srt/models/deepseek_v2.py": """\
        from torch import nn; from sglang.srt.utils import make_layers
        from sglang.srt.layers.linear import Linear
        from sglang.srt.layers.norm import Norm, Act
        from sglang.srt.layers.calls import Calls
        from sglang.srt.layers.attention.base_attn_backend import ForwardBatch
        class Layer(nn.Module):
            def __init__(self, config, quant_config=None):
                self.norm = Norm()
                self.act_fn = Act()
                self.proj = Linear(quant_config=quant_config)
                self.calls = Calls()
            def forward(self, x, forward_batch: ForwardBatch):
                x = self.norm(x)
                x = self.act_fn(x)
                x = self.proj(x)
                x = forward_batch.attn_backend.forward(x)
                return self.calls.all(x)
        class Model(nn.Module):
            def __init__(self, config, quant_config=None):
                self.layers, self.end = make_layers(2, lambda idx: Layer(config, quant_config=quant_config))
            def forward(self, x, forward_batch):
                for layer in self.layers:
                    x = layer(x, forward_batch)
                return x
        class DeepseekV2ForCausalLM(nn.Module):
            def __init__(self, config):
                self.model = Model(config)
            def forward(self, x, forward_batch: "ForwardBatch"):
                return self.model(x, forward_batch)
            def never_called(self, x):
                from sgl_kernel import never_reached
                return never_reached(x)
        EntryClass = [DeepseekV2ForCausalLM]
        """,
    # Dispatch by platform: each layer's own forward_cuda, and nobody else's.
    "python/sglang/srt/layers/norm.py": """\
        from sglang.srt.utils import is_cuda, is_hip
        from torch import nn
        _is_cuda, _is_hip = is_cuda(), is_hip()
        if is_cuda():
            from sgl_kernel import rmsnorm, silu_and_mul as act
        if _is_hip:
            from aiter import rmsnorm
        class Op(nn.Module):
            def __init__(self):
                self._forward_method = self.dispatch()
            def dispatch(self):
                if is_hip():
                    return self.forward_hip
                return self.forward_cuda
            def forward(self, *args, **kwargs):
                return self._forward_method(*args, **kwargs)
        class Norm(Op):
            def forward_cuda(self, x):
                if x.shape[0] == 0:
                    return x
                return rmsnorm(x)
            def forward_hip(self, x):
                from sgl_kernel import hip_only
                return hip_only(x)
        class Act(Op):
            def forward_cuda(self, x):
                return act(x)
        """,
    # Quantization methods: made by a configuration that only an annotation names.
    "python/sglang/srt/layers/linear.py": """\
        from typing import Optional
        from sglang.srt.layers.quantization.base import QuantizationConfig, Method
        class Plain(Method):
            def apply(self, layer, x, bias=None):
                return x
        class Linear:
            def __init__(self, quant_config: Optional[QuantizationConfig] = None):
                self.quant_method: Optional[Method] = Plain() if quant_config is None else quant_config.get_quant_method(self)
            def forward(self, x):
                return self.quant_method.apply(self, x, bias=None)
        """,
    "python/sglang/srt/layers/quantization/base.py": """\
        class QuantizationConfig:
            def get_quant_method(self, layer): raise NotImplementedError
        class Method:
            def apply(self, layer, *args, **kwargs): raise NotImplementedError
        """,
    "python/sglang/srt/layers/quantization/fp8.py": """\
        from sglang.srt.layers.quantization.base import QuantizationConfig, Method
        from sglang.srt.layers.quantization.kernels import block_product
        class Fp8Config(QuantizationConfig):
            def get_quant_method(self, layer):
                return Fp8Linear(self) if hasattr(layer, "weight") else Fp8Experts(self)
        class Fp8Linear(Method):
            def __init__(self, quant_config: Fp8Config):
                self.product = block_product()
            def apply(self, layer, x, bias=None):
                return self.product(x, layer)
        class Fp8Experts(Method):
            def __init__(self, quant_config: Fp8Config): ...
            def apply(self, layer, dispatch_output):
                from sgl_kernel import cutlass_w4a8_moe_mm
                return cutlass_w4a8_moe_mm(dispatch_output)
            def process_weights_after_loading(self, layer):
                from flashinfer import nvfp4_block_scale_interleave
                layer.scale = nvfp4_block_scale_interleave(layer.scale)
        """,
    # A function chosen at run time, an alias, an attribute of a module.
    "python/sglang/srt/layers/quantization/kernels.py": """\
        import sgl_kernel as sk
        import deep_gemm
        def block_product():
            if enabled():
                return by_deep_gemm
            return by_cutlass
        def enabled(): ...
        def by_deep_gemm(x, layer):
            deep_gemm.set_num_sms(1)
            return deep_gemm.fp8_gemm_nt(x, layer.weight)
        def by_cutlass(x, layer):
            return sk.fp8_blockwise_scaled_mm(x, layer.weight) if layer.weight is not None else None
        """,
    "python/sglang/srt/layers/attention/base_attn_backend.py": """\
        from dataclasses import dataclass
        class AttentionBackend:
            def forward(self, x):
                return self.forward_decode(x)
            def forward_decode(self, x): raise NotImplementedError
        @dataclass
        class ForwardBatch:
            attn_backend: AttentionBackend = None
        """,
    "python/sglang/srt/layers/attention/backends.py": """\
        import flashinfer
        from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
        class TrtllmBackend(AttentionBackend):
            def __init__(self, runner):
                self.wrapper = flashinfer.BatchMLAPagedAttentionWrapper(runner.buffer)
            def init_forward_metadata(self, forward_batch):
                from sgl_kernel import cutlass_mla_get_workspace_size
                cutlass_mla_get_workspace_size(8)
            def forward_decode(self, x):
                if x.dim() > 2 and self.wrapper is not None:
                    self.wrapper.run(x)
                return flashinfer.decode.trtllm_batch_decode_with_kv_cache_mla(x)
        class AscendBackend(AttentionBackend):
            def forward_npu(self, x):
                import torch
                return torch.ops.npu.attention(x)
            def forward_decode(self, x):
                return self.forward_npu(x)
        """,
    # What is left: operators, registries, partial functions, containers, Triton, texts as names.
    "python/sglang/srt/layers/calls.py": """\
        import functools
        import torch
        import triton
        from sglang.srt.layers.registry import handlers, the_operator
        @triton.jit
        def device_function(a): ...
        @triton.autotune(configs=[], key=[])
        @triton.jit
        def fused_moe_kernel(a, BLOCK: int):
            device_function(a)
        class Calls:
            def all(self, x):
                self.by_name("step")
                self.launch(x)
                twice = functools.partial(self.bound, 2)
                for call in [twice]:
                    call(x)
                torch.ops.sglang.python_op(x)
                torch.ops.sgl_kernel.direct_op.default(x)
                return handlers["one"](*self.state(x))
            def state(self, x): return x, self
            def launch(self, x):
                grid = (1,)
                launcher = fused_moe_kernel[grid]
                launcher(x, BLOCK=16)
            def bound(self, n, x):
                try:
                    from sgl_kernel import gelu_and_mul
                except ImportError:
                    return x
                return gelu_and_mul(x)
            def by_name(self, name):
                return getattr(self, name)()
            def step(self):
                import sgl_kernel.elementwise as ops
                return ops.concat_mla_k() and ops.not_there() and ops.helper()
            def from_a_sequence(self):
                from sgl_kernel import merge_state_v2
                return merge_state_v2() and self.held()
            def held(self):
                import flashinfer
                flashinfer.Wrapper.lengths.copy_(flashinfer.kinds.uint4.keys())
        """,
    "python/sglang/srt/layers/registry.py": """\
        from sglang.srt.utils import direct_register_custom_op
        handlers = {}
        def register(name):
            def decorator(function):
                handlers[name] = function
                return function
            return decorator
        @register("one")
        def handler(x, calls):
            from sgl_kernel import moe_fused_gate
            return moe_fused_gate(x) + calls.from_a_sequence()
        def the_operator(x):
            from sgl_kernel import shuffle_rows
            return shuffle_rows(x)
        direct_register_custom_op(op_name="python_op", op_func=the_operator, mutates_args=["x"])
        """,
    "python/sglang/srt/layers/sampler.py": """\
        from sgl_kernel import top_k_renorm_prob
        class Sampler:
            def forward(self, logits):
                return top_k_renorm_prob(logits)
        """,
    "sgl-kernel/python/sgl_kernel/__init__.py": """\
        from sgl_kernel.elementwise import *
        from sgl_kernel.elementwise import helper
        """,
    "sgl-kernel/python/sgl_kernel/elementwise.py": "import torch\n"
    + "".join(
        f"def {name}(*args): return torch.ops.sgl_kernel.{name}.default(*args)\n"
        for name in (
            "rmsnorm", "silu_and_mul", "fp8_blockwise_scaled_mm", "cutlass_w4a8_moe_mm", "cutlass_mla_get_workspace_size", "gelu_and_mul", "concat_mla_k",
            "moe_fused_gate", "merge_state_v2", "shuffle_rows", "top_k_renorm_prob", "never_reached", "hip_only",
        )
    )
    + "def helper(): return 1\n",
    "sgl-kernel/csrc/common_extension.cc": """\
        TORCH_LIBRARY_FRAGMENT(sgl_kernel, m) {
          m.def("rmsnorm(Tensor! output, Tensor input) -> ()");
          m.impl("rmsnorm", torch::kCUDA, &rmsnorm);
          m.def("direct_op(Tensor x) -> Tensor");
        }
        """,
    "sgl-kernel/csrc/norm.cu": """\
        void rmsnorm(at::Tensor& output, at::Tensor& input);
        void rmsnorm(at::Tensor& output,
                     at::Tensor& input) {
        }
        """,
}  # fmt: skip


def make(folder, files=CHECKOUT):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return folder


def run(*arguments):
    return subprocess.run([sys.executable, str(TOOL), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    return make(tmp_path_factory.mktemp("sglang"))


@pytest.fixture(scope="module")
def found(checkout):
    done = run(checkout, "--format", "json")
    assert done.returncode == 1, done.stderr  # deep_gemm's product, among others, has no op
    return {kernel["name"]: kernel for kernel in json.loads(done.stdout)["kernels"]}


def chain(kernel):
    return [f"{f['function']}:{f['line']} {f['calls']}" for f in kernel["sites"][0]["chain"]]


MODEL = [
    "DeepseekV2ForCausalLM.forward:29 self.model",
    "Model.forward:23 layer",
]

CHAINS = {
    "rmsnorm": [*MODEL, "Layer.forward:13 self.norm", "Op.forward [Norm]:16 self._forward_method", "Norm.forward_cuda:21 rmsnorm"],
    "silu_and_mul": [*MODEL, "Layer.forward:14 self.act_fn", "Op.forward [Act]:16 self._forward_method", "Act.forward_cuda:27 act"],
    "fp8_gemm_nt": [
        *MODEL, "Layer.forward:15 self.proj", "Linear.forward:10 self.quant_method.apply", "Fp8Linear.apply:10 self.product",
        "by_deep_gemm:10 deep_gemm.fp8_gemm_nt",
    ],
    "fp8_blockwise_scaled_mm": [
        *MODEL, "Layer.forward:15 self.proj", "Linear.forward:10 self.quant_method.apply", "Fp8Linear.apply:10 self.product",
        "by_cutlass:12 sk.fp8_blockwise_scaled_mm",
    ],
    "trtllm_batch_decode_with_kv_cache_mla": [
        *MODEL, "Layer.forward:16 forward_batch.attn_backend.forward", "AttentionBackend.forward [TrtllmBackend]:4 self.forward_decode",
        "TrtllmBackend.forward_decode:12 flashinfer.decode.trtllm_batch_decode_with_kv_cache_mla",
    ],
    "BatchMLAPagedAttentionWrapper.run": [
        *MODEL, "Layer.forward:16 forward_batch.attn_backend.forward", "AttentionBackend.forward [TrtllmBackend]:4 self.forward_decode",
        "TrtllmBackend.forward_decode:11 self.wrapper.run",
    ],
    "fused_moe_kernel": [*MODEL, "Layer.forward:17 self.calls.all", "Calls.all:14 self.launch", "Calls.launch:25 launcher"],
    "gelu_and_mul": [*MODEL, "Layer.forward:17 self.calls.all", "Calls.all:17 call", "Calls.bound:31 gelu_and_mul"],
    "concat_mla_k": [*MODEL, "Layer.forward:17 self.calls.all", "Calls.all:13 self.by_name", "Calls.by_name:33 getattr", "Calls.step:36 ops.concat_mla_k"],
    "shuffle_rows": [*MODEL, "Layer.forward:17 self.calls.all", "Calls.all:18 torch.ops.sglang.python_op", "the_operator:14 shuffle_rows"],
    "merge_state_v2": [
        *MODEL, "Layer.forward:17 self.calls.all", "Calls.all:20 handlers", "handler:11 calls.from_a_sequence", "Calls.from_a_sequence:39 merge_state_v2",
    ],
    "direct_op": [*MODEL, "Layer.forward:17 self.calls.all", "Calls.all:19 torch.ops.sgl_kernel.direct_op.default"],
    "moe_fused_gate": [*MODEL, "Layer.forward:17 self.calls.all", "Calls.all:20 handlers", "handler:11 moe_fused_gate"],
    "nvfp4_block_scale_interleave": ["Fp8Experts.process_weights_after_loading:18 nvfp4_block_scale_interleave"],
    "cutlass_mla_get_workspace_size": ["TrtllmBackend.init_forward_metadata:8 cutlass_mla_get_workspace_size"],
    "top_k_renorm_prob": ["Sampler.forward:4 top_k_renorm_prob"],
}  # fmt: skip


@pytest.mark.parametrize("name", CHAINS)
def test_a_kernel_is_reached_by_its_chain(found, name):
    assert chain(found[name]) == CHAINS[name]


def test_nothing_else_is_reached(found):
    """Not what nobody calls, nor other platforms, nor a method whose parameters do not take the arguments, nor questions to a library, nor
    methods of what its objects hold."""
    assert sorted(found) == sorted(CHAINS)


def test_conditions_are_the_tests_around_the_call_and_its_import(found):
    conditions = {name: kernel["sites"][0]["conditions"] for name, kernel in found.items()}
    assert conditions["rmsnorm"] == ["x.shape[0] != 0", "imported if is_cuda()"]
    assert conditions["BatchMLAPagedAttentionWrapper.run"] == ["x.dim() > 2 and self.wrapper is not None"]
    assert conditions["fp8_blockwise_scaled_mm"] == ["layer.weight is not None"]
    assert conditions["gelu_and_mul"] == ["imported if the import succeeds"]
    assert conditions["moe_fused_gate"] == []


def test_definitions_go_through_python_to_cpp(found):
    assert found["rmsnorm"]["definition"] == "sgl-kernel/python/sgl_kernel/elementwise.py:2"
    assert [(r["what"], r["place"]) for r in found["rmsnorm"]["registrations"]] == [
        ("m.def rmsnorm", "sgl-kernel/csrc/common_extension.cc:2"), ("m.impl rmsnorm", "sgl-kernel/csrc/common_extension.cc:3"),
        ("rmsnorm", "sgl-kernel/csrc/norm.cu:2"),
    ]  # fmt: skip
    assert found["fused_moe_kernel"]["definition"] == "python/sglang/srt/layers/calls.py:9"
    assert found["fp8_gemm_nt"]["definition"] == "binary package (deep_gemm)"
    assert found["direct_op"]["registrations"][0]["place"] == "sgl-kernel/csrc/common_extension.cc:4"


def test_sources_and_users_are_named(found):
    assert {kernel["source"] for kernel in found.values()} == {"sgl-kernel", "flashinfer", "deep-gemm", "triton", "torch.ops"}
    assert found["rmsnorm"]["sites"][0]["used_by"] == ["self.norm"]
    assert found["fp8_gemm_nt"]["sites"][0]["used_by"] == ["self.proj"]


def test_the_inventory_says_where_each_stands(found, checkout, tmp_path):
    assert (found["rmsnorm"]["standing"], found["rmsnorm"]["op"]) == ("implemented", "rmsnorm")
    assert found["rmsnorm"]["since"].count(".") == 2
    listing = tmp_path / "list.json"
    listing.write_text(json.dumps([{"name": "rmsnorm", "source": "sgl-kernel", "in": True}, {"name": "silu_and_mul", "source": "sgl-kernel", "in": False}]))
    kernels = json.loads(run(checkout, "--inventory", listing, "--format", "json").stdout)["kernels"]
    standing = {kernel["name"]: kernel["standing"] for kernel in kernels}
    assert (standing["rmsnorm"], standing["silu_and_mul"], standing["gelu_and_mul"]) == ("implemented", "counted", "missing")


def test_exit_status_is_1_for_what_we_lack_and_0_for_what_is_known(checkout, tmp_path):
    known = tmp_path / "map.json"
    first = run(checkout, "--format", "json", "-o", known)
    assert first.returncode == 1
    assert "direct_op (torch.ops, missing): python/sglang/srt/layers/calls.py:19" in first.stderr
    assert run(checkout, "--known", known).returncode == 0
    less = json.loads(known.read_text())
    less["kernels"] = [kernel for kernel in less["kernels"] if kernel["name"] != "direct_op"]
    known.write_text(json.dumps(less))
    again = run(checkout, "--known", known)
    assert again.returncode == 1 and len(again.stderr.splitlines()) == 2


def test_progress_goes_to_stderr_when_it_is_asked_for(checkout):
    quiet, told = run(checkout), run(checkout, "--progress")
    assert told.stdout == quiet.stdout and told.returncode == quiet.returncode
    assert "reading" not in quiet.stderr
    assert "== reading" in told.stderr and "== following calls, round 1: " in told.stderr and "== looking up" in told.stderr


def test_text_and_markdown_say_the_same(checkout):
    text, page = run(checkout).stdout, run(checkout, "--format", "md").stdout
    for part in ("layers/norm.py:21", "sgl-kernel/csrc/norm.cu:2", "Op.forward [Norm]", "x.shape[0] != 0"):
        assert part in text and part in page
    assert "## Summary" in page and "| `rmsnorm` | sgl-kernel | since " in page


@pytest.fixture
def modules():
    """The tool's own, for what no map of a small checkout shows."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        from kernel_map import definitions, inventory
    finally:
        sys.path.pop(0)
    return definitions, inventory


def test_a_kernel_is_here_by_its_name_another_name_or_a_function_around_it(modules):
    _, inventory = modules
    tree = inventory.of_tree(ROOT)
    assert set(inventory.OTHER_NAMES.values()) <= set(tree.ops)
    assert tree.op_of("rmsnorm") == "rmsnorm" and tree.op_of("set_mla_kv_buffer_kernel") == "set_mla_kv_buffer"
    assert tree.op_of("Buffer.low_latency_dispatch") == "deepep_low_latency_dispatch" and tree.op_of("_fwd_kernel_stage1") is None
    of, elsewhere = pathlib.Path("decode_attention.py"), pathlib.Path("double_sparsity_attention.py")
    assert tree.op_around([("Model.forward", of), ("decode_attention_fwd", of), ("_decode_att_m_fwd", of)]) == "decode_attention_fwd"
    assert tree.op_around([("select_experts", of), ("moe_sum_reduce_triton", of)]) == "moe_sum_reduce"
    assert tree.op_around([("Model.forward", of)]) is None and tree.op_around([("extend_attention_fwd", elsewhere)]) is None


@pytest.fixture(scope="module")
def page():
    return (ROOT / "docs" / "kernel-map.md").read_text()


def summary_of(page):
    """(kernel, source, where it stands) of each row."""
    rows = re.findall(r"^\| `([\w.]+)` \| ([^|]+) \| ([^|]+) \| [^|]+ \| `[^|]+` \| [^|]*\|$", page, re.MULTILINE)
    assert len(rows) > 150
    return rows


# What a document on DeepSeek's kernels has and the page has not: of sglang a month later, or of other models than the three.
NOT_ON_THE_PAGE = {
    "sgl-kernel merge_state",
    "sgl-kernel gelu_tanh_and_mul",
    "flashinfer xqa_batch_decode_with_kv_cache_mla",
    "flashinfer mxfp4_quantize",
    "flashinfer apply_rope_with_cos_sin_cache_inplace",
    "triton context_attention_fwd",
    "triton matmul_persistent",
    "triton dequantize_k_cache",
}


def test_the_page_has_the_kernels_that_the_documents_list_by_their_source(page):
    rows = [line.strip().split(" | ") for line in (ROOT / "tests/documents/kernels.txt").read_text().splitlines() if line.startswith("kernel traces | ")]
    assert len(rows) == 77
    missing = set()
    for _, op, kernel, shown in rows:
        source, _, name = op.partition(": ")
        names = {kernel, name or kernel}
        on_it = [k for k, of, here in summary_of(page) if of.lower() == source and (k.split(".")[0] in names or here.split(", ")[0] in names)]
        if not shown.startswith("none: ") and not on_it:
            missing.add(f"{source} {name or kernel}")
    assert missing == NOT_ON_THE_PAGE


def test_the_page_has_a_chain_and_a_definition_of_each_kernel(page):
    """The three parts that the document on tracing asks for: a summary, kernels by source, chains from the call to the model."""
    by_source, _, chains = page.partition("## By source")[2].partition("## Calls and their conditions")
    parts = {source.lower(): part for source, part in re.findall(r"^### ([\w.-]+) \(\d+\)\n(.*?)(?=^### |\Z)", by_source, re.MULTILINE | re.DOTALL)}
    headed = {head.replace("-", "").lower(): part for head, part in re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", chains, re.MULTILINE | re.DOTALL)}
    for kernel, source, _ in summary_of(page):
        assert f"| `{kernel}` | " in parts[source.lower()], kernel
        assert "\n#0  " in headed[f"{kernel} ({source})".replace("-", "").lower()], kernel


def test_the_page_says_of_each_kernel_what_the_inventory_says(modules, page):
    _, inventory = modules
    tree = inventory.of_tree(ROOT)
    for name, _, standing in summary_of(page):
        *named, since = standing.split(", ")
        assert since in ("missing", "in the inventory") or since.startswith("since "), name
        own = tree.op_of(name)
        if since == "missing":
            assert own is None, f"{name}: the page was made before there was an op of it: make it anew"
        else:
            assert (named[0] if named else name) in tree.ops and own in (None, named[0] if named else name), name


def test_what_a_package_defines_is_found_behind_methods_and_in_folders_without_names(modules, tmp_path):
    definitions, _ = modules
    files = {
        "__init__.py": "from .prefill import Wrapper\n",
        "prefill.py": """\
            class Base:
                def launch(self, x):
                    return self._cached_module.launch(x)
            class Wrapper(Base):
                def run(self, x):
                    return self.launch(x)
                def forward(self, x):
                    self.x = x
                    return self.run(x)
                def ends(self):
                    return self.x
            """,
        "dsl/gemm.py": """\
            import cutlass.cute as cute
            def compiled(m):
                return cute.compile(m)
            def masked(m):
                return compiled(m)(m)
            """,
    }
    for name, text in files.items():
        path = tmp_path / "flashinfer" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    package = definitions.Package("flashinfer", tmp_path / "flashinfer")
    launches = {name: package.define(f"flashinfer.{name}", None).launches for name in ("Wrapper().run", "Wrapper().forward", "Wrapper().ends", "dsl.gemm.masked")}
    assert launches == {"Wrapper().run": True, "Wrapper().forward": True, "Wrapper().ends": False, "dsl.gemm.masked": True}


def test_the_tree_and_the_command_agree_on_the_inventory(modules):
    command = os.environ.get("DODONA_COMMAND")
    if not command:
        pytest.skip("DODONA_COMMAND names no command")
    _, inventory = modules
    rows = json.loads(subprocess.run([command, "list", "--inventory", "--json"], capture_output=True, text=True, check=True).stdout)
    tree = inventory.of_tree(ROOT)
    assert tree.counted == {row["name"]: row["source"] for row in rows}
    assert {name for name in tree.counted if name in tree.ops} == {row["name"] for row in rows if row["in"]}
    ops = json.loads(subprocess.run([command, "list", "--json"], capture_output=True, text=True, check=True).stdout)
    assert set(tree.ops) == {op["name"] for op in ops}


def bad(message, *arguments):
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr and len(done.stderr.splitlines()) == 1


def test_bad_input_is_one_clear_error(tmp_path):
    bad(f"{tmp_path / 'none'}: expected a folder with a checkout of sglang, found nothing", tmp_path / "none")
    bad(f"{tmp_path}: expected a checkout of sglang with python/sglang/srt in it", tmp_path)
    (tmp_path / "python" / "sglang" / "srt").mkdir(parents=True)
    bad("deepseek_v2.py: expected the DeepSeek model's file, found none", tmp_path)
    whole = make(tmp_path / "whole")
    bad("--package vllm=x: expected NAME=FOLDER with one of sgl_kernel, flashinfer", whole, "--package", "vllm=x")
    bad(f"{tmp_path / 'none'}: expected the folder of the Python package flashinfer", whole, "--package", f"flashinfer={tmp_path / 'none'}")
    bad("expected the Python package flashinfer", whole, "--package", f"flashinfer={tmp_path}")
    bad("expected what `dodona list --inventory --json` prints", whole, "--inventory", TOOL)
    bad("expected a map that --format json wrote", whole, "--known", TOOL)
    bad(f"{tmp_path / 'none'}: expected the folder of sgl-kernel's C++ sources", whole, "--csrc", tmp_path / "none")
    bad("cannot be written", whole, "--format", "json", "-o", tmp_path / "none" / "map.json")
    broken = whole / "python" / "sglang" / "srt" / "layers" / "norm.py"
    broken.write_text("def f(:\n")
    bad(f"{broken}:1: expected Python source, but it does not parse", whole)
    broken.write_text("x = " + "-" * 200_000 + "1\n")
    bad(f"{broken}: expected Python source, but it does not parse", whole)
    broken.unlink()
    os.mkfifo(broken)  # nobody writes into it
    bad(f"{broken}: expected a file, found none of the usual kind", whole)
    empty = make(tmp_path / "empty")
    (empty / "python" / "sglang" / "srt" / "models" / "deepseek_v2.py").write_text("")
    bad("deepseek_v2.py: expected models that EntryClass names, found none", empty)


def test_a_wheel_and_packages_beside_it_will_do(checkout, tmp_path):
    (tmp_path / "sglang").symlink_to(checkout / "python" / "sglang")
    kernels = {k["name"]: k for k in json.loads(run(tmp_path, "--format", "json").stdout)["kernels"]}
    assert kernels["rmsnorm"]["definition"] == "binary package (sgl_kernel)"
    given = run(tmp_path, "--format", "json", "--package", f"sgl_kernel={checkout / 'sgl-kernel' / 'python'}", "--csrc", checkout / "sgl-kernel" / "csrc")
    kernels = {k["name"]: k for k in json.loads(given.stdout)["kernels"]}
    assert kernels["rmsnorm"]["definition"].endswith("sgl_kernel/elementwise.py:2") and len(kernels["rmsnorm"]["registrations"]) == 3


@pytest.mark.skipif("DODONA_SGLANG_CHECKOUT" not in os.environ, reason="DODONA_SGLANG_CHECKOUT names no checkout of sglang")
def test_a_real_checkout():
    done = run(os.environ["DODONA_SGLANG_CHECKOUT"], "--format", "json")
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)
    names = {kernel["name"] for kernel in found["kernels"]}
    assert found["places"] > 500
    assert len(found["not_reached"]) <= 6  # kernels move; most of the inventory stays
    assert {"rmsnorm", "cutlass_mla_decode", "fused_moe_kernel", "trtllm_fp8_block_scale_moe", "moe_fused_gate", "verify_tree_greedy"} <= names
