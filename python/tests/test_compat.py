"""In upstream's place: packages by their names, adapters held against upstream's signatures, and what upstream's own tests rely on."""

import ast
import importlib
import importlib.util
import inspect
import json
import pathlib
import re
import sys

import numpy as np
import pytest
from upstream_calls import UpstreamCall, as_the_op_has_it, assert_returned, lines_of

import dodona
from dodona import compat
from dodona.compat import deep_gemm, flash_mla, flashinfer, sgl_kernel

MODULES = {"sgl_kernel": sgl_kernel, "flashinfer": flashinfer, "deep_gemm": deep_gemm, "flash_mla": flash_mla}
FUNCTIONS = [(package, name) for package in compat.PACKAGES for name in compat.functions(package)]
BY_NAME = [(package, name) for package, name in FUNCTIONS if package in ("sgl_kernel", "flashinfer")]  # what a case has, they take as it is


def record_of(package, newer=""):
    """The stored data, as it lies."""
    return json.loads((pathlib.Path(compat.__file__).parent / "upstream" / f"{package}{newer}.json").read_text())


@pytest.fixture
def installed(monkeypatch):
    """Both packages in upstream's place for one test."""
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in compat.PACKAGES}
    for name in before:
        monkeypatch.delitem(sys.modules, name)
    compat.install()
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in compat.PACKAGES]:
        del sys.modules[name]


# ---- the packages ----


def test_every_op_is_found_under_its_package():
    packages = {"sgl-kernel": "sgl_kernel", "flashinfer": "flashinfer", "torch": None, "triton": None, "deep_gemm": "deep_gemm", "tilelang": None}
    for op in dodona.ops():
        for source in dodona.schema(op)["sources"]:
            package = packages[source]  # a source that is none of these is a package to come
            assert package is None or op in compat.functions(package) or op in compat._package(package).within


@pytest.mark.parametrize("package", compat.PACKAGES)
def test_a_name_that_upstream_lacks_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match=f"dodona.compat.{package} has no nonsense"):
        MODULES[package].nonsense


def member(module, found, name):
    """None: it is a class on torch's, of a module for upstream's own tests, and torch is not here."""
    try:
        return getattr(found, name)
    except ModuleNotFoundError as error:
        assert error.name == "torch" and module.startswith("sgl_kernel.testing"), (module, name)
        return None


@pytest.mark.parametrize("package", compat.PACKAGES)
def test_every_public_name_of_every_module_is_there(package):
    for module, parts in record_of(package)["modules"].items():
        found = importlib.import_module(f"dodona.compat.{module}")
        for kind, names in parts.items():
            for name in names:
                if (value := member(module, found, name)) is None:
                    continue
                if kind == "functions":
                    assert callable(value) and value.__name__ == name
                if kind == "classes":
                    assert isinstance(value, type) and value.__name__ == name


@pytest.mark.parametrize("package", compat.PACKAGES)
def test_what_is_not_offered_raises_when_it_is_called_and_names_what_there_is(package):
    parts = record_of(package)["modules"]
    offered = compat.functions(package)
    own = compat._package(package).own
    for module, names in parts.items():
        found = importlib.import_module(f"dodona.compat.{module}")
        for name in {*names.get("functions", {}), *names.get("classes", {})} - set(offered):
            if (thing := member(module, found, name)) is None:
                continue
            exempt = f"{module}.{name}" in own or isinstance(thing, type) and (issubclass(thing, Exception) or hasattr(thing, "__members__"))
            if exempt:
                continue
            with pytest.raises(compat.NotOffered, match=rf"^{name}: {module}.{name} is not offered; .*{offered[0]}, {offered[1]}"):
                thing(1, 2, three=3)


def test_classes_that_are_not_offered_can_be_subclassed_and_asked_for_their_members():
    class Mine(flashinfer.sparse.VariableBlockSparseAttentionWrapper):
        pass

    with pytest.raises(NotImplementedError, match="VariableBlockSparseAttentionWrapper is not offered"):
        Mine(None)
    kinds = importlib.import_module("dodona.compat.sgl_kernel.scalar_type").scalar_types
    assert {kinds.uint4b8, kinds.uint4b8} == {kinds.uint4b8} and repr(kinds.uint4b8).endswith("scalar_types.uint4b8")


def test_enumerations_have_upstreams_values():
    assert flashinfer.RoutingMethodType.DeepSeekV3 == 2
    assert flashinfer.GatedActType is importlib.import_module("dodona.compat.flashinfer.fused_moe").GatedActType


@pytest.mark.parametrize("package", compat.PACKAGES)
def test_the_docstring_lists_what_exists(package):
    text = MODULES[package].__doc__
    assert re.search(r"Functions: (.*)\.$", text).group(1).split(", ") == compat.functions(package)


def test_code_written_against_upstream_runs(installed):
    from sgl_kernel import fused_add_rmsnorm, rmsnorm

    x, w = np.ones((2, 8), np.float32), np.ones(8, np.float32)
    assert np.allclose(rmsnorm(x, w, 1e-6), 1)
    fused_add_rmsnorm(x, x.copy(), w, 1e-6)


def test_submodules_are_there_after_install_and_give_the_same_functions(installed):
    import flashinfer
    import flashinfer.norm
    import sgl_kernel
    from flashinfer.activation import silu_and_mul
    from flashinfer.cascade import merge_state
    from sgl_kernel.utils import is_arch_support_pdl

    for path in ("decode.trtllm_batch_decode_with_kv_cache_mla", "rope.mla_rope_quantize_fp8", "norm.rmsnorm", "gemm.bmm_fp8"):
        module, name = path.split(".")
        assert getattr(getattr(flashinfer, module), name) is getattr(flashinfer, name)
    assert merge_state is flashinfer.merge_state and silu_and_mul is flashinfer.silu_and_mul
    assert sgl_kernel.testing and sgl_kernel.flash_mla.get_mla_metadata and sgl_kernel.flash_attn and is_arch_support_pdl() is False
    assert flashinfer.comm.trtllm_ar and sgl_kernel.moe.moe_fused_gate is sgl_kernel.moe_fused_gate
    with pytest.raises(ImportError):
        import sgl_kernel.nonsense  # noqa: F401


def test_versions_are_those_of_the_stored_signatures(installed):
    import flashinfer
    import sgl_kernel

    assert sgl_kernel.__version__ == sgl_kernel.version.__version__ == compat.version("sgl_kernel") == record_of("sgl_kernel")["version"]
    assert flashinfer.__version__ == compat.version("flashinfer") == record_of("flashinfer")["version"]


def test_programs_that_ask_whether_a_package_is_there_find_it(installed):
    for name in ("sgl_kernel", "flashinfer", "flashinfer.decode", "sgl_kernel.quantization.gguf"):
        assert importlib.util.find_spec(name) is not None


def test_a_package_that_is_there_is_not_replaced(monkeypatch):
    monkeypatch.setitem(sys.modules, "flashinfer", type(sys)("flashinfer"))
    with pytest.raises(RuntimeError, match="flashinfer is already imported"):
        compat.install("flashinfer")


# ---- signatures ----

ENUMERATIONS = ("torch", "SfLayout", "WeightLayout", "ActivationType", "Fp8QuantizationType")


class Names(str):
    """Stands for torch, or an enumeration, where defaults are compared by their text."""

    def __getattr__(self, name):
        return Names(f"{self}.{name}")


def stored_signature(package, name):
    """Upstream's, read from the data by Python itself; the newer version's, where the stored one has no such function."""
    modules = record_of(package)["modules"]
    if name not in modules[package]["imports"] and not any(name in parts.get("functions", {}) for parts in modules.values()):
        modules = record_of(package, ".later")["modules"]
    place = modules[package].get("imports", {}).get(name, f".{name}").rpartition(".")[2]  # one function may have two names
    texts = {parts["functions"][place] for parts in modules.values() if place in parts.get("functions", {})}
    assert len(texts) == 1, name
    head, _, returned = texts.pop().rpartition(" -> ")
    space = {name: Names(name) for name in ENUMERATIONS}
    exec(f"def f{head}: pass", space)
    return inspect.signature(space["f"]), returned


@pytest.mark.parametrize("package, name", FUNCTIONS)
def test_every_adapter_has_upstreams_parameters_in_order_with_their_kinds_and_defaults(package, name):
    theirs, _ = stored_signature(package, name)
    ours = list(inspect.signature(getattr(MODULES[package], name)).parameters.values())
    newer = later_parameters(package, name)
    for mine, wanted in zip(ours, theirs.parameters.values()):
        assert (mine.name, mine.kind) == (wanted.name, wanted.kind)
        if wanted.default is wanted.empty and newer and wanted.name not in newer:
            assert mine.default is None
            continue
        if isinstance(wanted.default, Names):
            assert str(mine.default) == wanted.default
        else:
            assert mine.default == wanted.default and type(mine.default) is type(wanted.default)
    beside = ours[len(theirs.parameters) :]
    assert {"mode", "threads"} <= {parameter.name for parameter in beside}
    goes_on = list(newer)[: len(theirs.parameters)] == list(theirs.parameters)  # the newer version's may stand at their places then
    for parameter in beside:  # our own: by keyword, and never asked for
        assert parameter.kind is parameter.KEYWORD_ONLY or (goes_on and parameter.name == list(newer)[ours.index(parameter)])
        assert parameter.default is not parameter.empty


def later_parameters(package, name):
    """Names of a newer version's parameters, where that has a signature of its own."""
    found = compat._package(package)
    text = found.record.later.get(found.record.function(name)[0], "")
    arguments = ast.parse(f"def f{text.rpartition(' -> ')[0] or '()'}: pass").body[0].args
    return [argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)]


@pytest.mark.parametrize("package, name", [(package, name) for package, name in FUNCTIONS if later_parameters(package, name)])
def test_an_adapter_takes_a_newer_versions_parameters_too(package, name):
    """At their defaults they change nothing; what our op does not know is refused by name at any other value."""
    adapter = compat._package(package).adapter(name)
    newer = later_parameters(package, name)
    assert set(newer) <= set(adapter.signature.parameters)
    beyond = {of: adapter.signature.parameters[of].default for of in newer if of not in stored_signature(package, name)[0].parameters}
    if "tile_tokens_dim" in stored_signature(package, name)[0].parameters:  # gone, and required once
        assert adapter.signature.parameters["tile_tokens_dim"].default is None
    line = next(line for line in lines_of(adapter, package) if not re.search("return_lse|do_finalize", line)).replace(" --attr record_routing=true", "")
    call = UpstreamCall(package, name, dodona.gen(line))
    _, wanted = call.run(adapter.function)
    wanted = {output: np.asarray(getattr(value, "array", value)).tobytes() for output, value in wanted.items()}

    def later(**said):
        return lambda *args, **named: adapter.function(*args, **{**said, **named})

    _, found = call.run(later(**beyond))
    assert {output: np.asarray(getattr(value, "array", value)).tobytes() for output, value in found.items()} == wanted
    for unknown in sorted(set(beyond) & set(adapter.only)):
        with pytest.raises(compat.NotOffered, match=unknown):
            call.run(later(**{unknown: "another"}))


@pytest.mark.parametrize("sparse", [False, True])
def test_pages_and_tables_of_flash_mla_may_have_room_between_them(sparse):
    name = "flash_mla_sparse_decode" if sparse else "flash_mla_with_kvcache"
    case = dodona.gen(f"{name} {dodona.schema(name)['cases'][0]}")
    given = {**case.arguments(), "head_dim_v": 512}
    if sparse:
        given.update(block_table=None, cache_seqlens=None, is_fp8_kvcache=True)

    def apart(array):
        """The same numbers, each row of the first dimension followed by room for another."""
        raw = getattr(array, "array", array)
        wide = np.zeros((raw.shape[0], raw.shape[1] + 1, *raw.shape[2:]), raw.dtype)
        wide[:, : raw.shape[1]] = raw
        spread = wide[:, : raw.shape[1]]
        return dodona.as_dtype(spread, array.dtype) if isinstance(array, dodona.Typed) else spread

    taken = inspect.signature(sgl_kernel.flash_mla_with_kvcache).parameters
    given = {key: value for key, value in given.items() if key in taken and key not in ("out", "softmax_lse")}
    wanted = sgl_kernel.flash_mla_with_kvcache(**given)
    strided = {key: apart(given[key]) for key in ("k_cache", "indices" if sparse else "block_table")}
    for found, of in zip(sgl_kernel.flash_mla_with_kvcache(**{**given, **strided}), wanted):
        assert np.asarray(getattr(found, "array", found)).tobytes() == np.asarray(getattr(of, "array", of)).tobytes()


def mla_case(queries=(2, 1, 0, 3), pages=9, heads=4):
    """Arguments of trtllm_batch_decode_with_kv_cache_mla as a newer version has them, queries one request after another."""
    rng = np.random.default_rng(8)
    normal = lambda *shape: rng.standard_normal(shape, np.float32).astype(np.float16)
    tables = rng.permutation(pages).reshape(-1)[: 2 * len(queries)].reshape(len(queries), 2).astype(np.int32)
    lengths = rng.integers(4, 64, len(queries)).astype(np.int32)
    given = {"kv_cache": normal(pages, 32, 576), "workspace_buffer": None, "qk_nope_head_dim": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    return normal(sum(queries), heads, 576), tables, lengths, {**given, "max_seq_len": 64, "bmm1_scale": 0.07}


def test_queries_of_requests_may_differ_in_number():
    queries = (2, 1, 0, 3)
    query, tables, lengths, given = mla_case(queries)
    bounds = np.concatenate([[0], np.cumsum(queries)]).astype(np.int32)
    decode = flashinfer.trtllm_batch_decode_with_kv_cache_mla
    call = {**given, "query": query, "block_tables": tables, "seq_lens": lengths, "cum_seq_lens_q": bounds}
    out, lse = decode(**call, max_q_len=5, return_lse=True)
    assert out.shape == (6, 4, 512) and lse.shape == (6, 4)
    for request, (begin, end) in enumerate(zip(bounds, bounds[1:])):
        if begin < end:
            one = {**given, "query": query[None, begin:end], "block_tables": tables[request : request + 1], "seq_lens": lengths[request : request + 1]}
            wanted, wanted_lse = decode(**one, return_lse=True)
            assert out[begin:end].tobytes() == wanted.tobytes() and lse[begin:end].tobytes() == wanted_lse.tobytes()
    into, into_lse = np.zeros_like(out), np.zeros_like(lse)
    assert decode(**call, max_q_len=5, return_lse=True, out=into, lse=into_lse)[1] is into_lse
    assert into.tobytes() == out.tobytes() and into_lse.tobytes() == lse.tobytes()
    astray, untouched = tables.copy(), np.zeros_like(out)
    astray[3] = 1 << 20  # of the last request: nor are the first ones' outputs written
    with pytest.raises(compat.Refused, match="block_tables"):
        decode(**{**call, "block_tables": astray}, max_q_len=5, out=untouched)
    assert not untouched.any()
    with pytest.raises(compat.Refused, match="max_q_len is 2"):
        decode(**call, max_q_len=2)
    with pytest.raises(compat.Refused, match="cum_seq_lens_q is"):
        decode(**{**call, "cum_seq_lens_q": bounds[:-1]}, max_q_len=5)


def test_mla_takes_tables_of_keys_and_values_and_thresholds_that_skip_nothing():
    query, tables, lengths, given = mla_case((1, 1, 1))
    decode = flashinfer.trtllm_batch_decode_with_kv_cache_mla
    call = {**given, "query": query[:, None], "seq_lens": lengths}
    wanted = decode(**call, block_tables=tables).tobytes()
    both = np.stack([tables, tables], axis=1)
    assert decode(**call, block_tables=both, uses_shared_paged_kv_idx=False, skip_softmax_threshold_scale_factor=1e-30).tobytes() == wanted
    with pytest.raises(compat.Refused, match="block_tables"):
        decode(**call, block_tables=np.stack([tables, tables[::-1]], axis=1), uses_shared_paged_kv_idx=False)
    with pytest.raises(compat.NotOffered, match="skip_softmax_threshold_scale_factor is 0.5"):
        decode(**call, block_tables=tables, skip_softmax_threshold_scale_factor=0.5)


def test_names_that_a_newer_version_moved_are_found_in_both_places():
    from dodona.compat.flashinfer import fp4_quantization, mla, quantization, tllm_enums
    from dodona.compat.flashinfer.quantization import fp4_quantization as there

    assert there.fp4_quantize is quantization.fp4_quantize is fp4_quantization.fp4_quantize is flashinfer.fp4_quantize
    assert mla.trtllm_batch_decode_with_kv_cache_mla is flashinfer.trtllm_batch_decode_with_kv_cache_mla
    assert tllm_enums.ActivationType is flashinfer.ActivationType
    with pytest.raises(compat.NotOffered):
        flashinfer.top_k_varlen(None, None, 1)


def test_nvfp4_takes_a_scale_of_16_bits():
    x, layout = np.random.default_rng(2).standard_normal((32, 64)).astype(np.float16), flashinfer.SfLayout.layout_linear
    for found, wanted in zip(*(flashinfer.nvfp4_quantize(x, np.array([3.5], kind), sfLayout=layout) for kind in (np.float16, np.float32))):
        assert np.asarray(getattr(found, "array", found)).tobytes() == np.asarray(getattr(wanted, "array", wanted)).tobytes()


def test_scales_of_mxfp8_lie_as_a_layout_says():
    x = np.random.default_rng(2).standard_normal((40, 96)).astype(np.float16)
    layouts = flashinfer.SfLayout
    for layout, how in ((layouts.layout_128x4, True), (layouts.layout_linear, False)):
        for found, wanted in zip(flashinfer.mxfp8_quantize(x, sf_swizzle_layout=layout), flashinfer.mxfp8_quantize(x, how)):
            assert np.asarray(getattr(found, "array", found)).tobytes() == np.asarray(getattr(wanted, "array", wanted)).tobytes()
    assert flashinfer.mxfp8_quantize(x, sf_swizzle_layout=layouts.layout_8x4)[1].shape == (40 * 4,)
    with pytest.raises(compat.Refused, match="sf_swizzle_layout"):
        flashinfer.mxfp8_quantize(x, sf_swizzle_layout=7)


@pytest.mark.parametrize("name", compat.operators("sgl_kernel"))
def test_every_operator_takes_what_its_schema_says(name):
    schema = next(text for text in record_of("sgl_kernel")["torch_ops"] if text.startswith(name + "("))
    words = [part.split()[-1].partition("=")[0] for part in re.search(r"\((.*)\) ->", schema).group(1).split(",")]
    adapter = compat._package("sgl_kernel").torch_adapter(name)
    assert [p.name for p in adapter.signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD] == words


def test_the_line_of_an_adapter_says_nothing_that_is_not_so():
    for package in compat.PACKAGES:
        found = compat._package(package)
        for name, line in found.lines.items():
            theirs = {*stored_signature(package, name)[0].parameters, *later_parameters(package, name)}
            assert {*line.only, *line.takes} <= theirs and (not line.names or theirs & {*line.names}), name
        for name, line in found.torch_lines.items():
            theirs = set(found.torch_adapter(name).signature.parameters)
            assert name in found.record.schemas and {*line.takes} <= theirs and (not line.names or theirs & {*line.names}), name


@pytest.mark.parametrize("package, name", BY_NAME)
def test_adapters_give_the_ops_bits_and_as_many_values_as_upstream(package, name):
    """Every case line, called as upstream's callers do. What upstream itself refuses is no call."""
    adapter = compat._package(package).adapter(name)
    ran = 0
    for line in lines_of(adapter, package):
        call = UpstreamCall(package, name, dodona.gen(line))
        try:
            returned, outputs = call.run(getattr(MODULES[package], name))
        except compat.Refused as refused:
            assert refused.code == "bad_shape" and re.search("multiple of 16", str(refused)), line
            continue
        if not re.search("return_lse|record_routing|do_finalize", line):  # which are ours
            assert_returned(adapter, returned)
        for output, wanted in call.wanted.items():
            value = outputs[output].array if isinstance(outputs[output], dodona.Typed) else np.asarray(outputs[output])
            value = as_the_op_has_it(name, value, wanted)
            assert value.tobytes() == wanted.tobytes(), (line, output)
        ran += 1
    assert ran


# ---- what upstream's own tests and callers rely on ----


def mla_decode(batch=2, heads=4, **changes):
    rng = np.random.default_rng(5)
    given = {
        "query": rng.standard_normal((batch, 1, heads, 576), np.float32).astype(np.float16),
        "kv_cache": rng.standard_normal((4, 1, 64, 576), np.float32).astype(np.float16),
        "workspace_buffer": np.zeros(64, np.int8),
        "qk_nope_head_dim": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
        "block_tables": np.array([[0, 1], [2, 3]], np.int32), "seq_lens": np.array([70, 128], np.int32), "max_seq_len": 128,
    }  # fmt: skip
    return {**given, **changes}


def test_the_decode_kernel_returns_its_output_bare():
    out = flashinfer.trtllm_batch_decode_with_kv_cache_mla(**mla_decode(), bmm1_scale=0.07)
    assert isinstance(out, np.ndarray) and out.shape == (2, 1, 4, 512)
    lse = flashinfer.trtllm_batch_decode_with_kv_cache_mla(**mla_decode(), bmm1_scale=0.07, return_lse=True)
    assert type(lse) is tuple and len(lse) == 2


def test_the_decode_kernel_takes_upstreams_order_scales_as_tensors_and_an_output_without_the_token_dimension():
    decode = flashinfer.trtllm_batch_decode_with_kv_cache_mla
    plain = decode(**mla_decode(), bmm1_scale=0.07)
    out = np.empty((2, 4, 512), plain.dtype)
    given = list(mla_decode().values())
    assert decode(*given, out, np.array([0.07], np.float32), np.array(1, np.float32), None, True, "trtllm-gen") is out
    assert out.tobytes() == plain.tobytes()
    with pytest.raises(compat.Refused, match="bmm1_scale is a tensor of float64, expected float32"):
        decode(*given, None, np.array([0.07]))
    with pytest.raises(ValueError, match="backend is 'xqa', offered is 'auto' or 'trtllm-gen'"):
        decode(*given, backend="xqa")
    with pytest.raises(NotImplementedError, match="sinks is"):
        decode(*given, sinks=[np.zeros(4, np.float32)])


def test_the_decode_kernel_reads_lists_of_tokens_as_newer_versions_have_it():
    case = dodona.gen("trtllm_batch_decode_sparse_mla B=2 Q=1 N=4 pages=4 P=32 topk=9 --attr bmm1_scale=0.1352337788608801 --attr bmm2_scale=0.5")
    args = case.arguments()
    given = [args["query"], args["kv_cache"], np.zeros(64, np.int8), 128, 512, 64, args["block_tables"], np.array([9, 9], np.int32), 9]
    scales = {"bmm1_scale": 0.1352337788608801, "bmm2_scale": 0.5}
    made = flashinfer.trtllm_batch_decode_with_kv_cache_mla(*given, **scales, sparse_mla_top_k=9)
    assert isinstance(made, np.ndarray) and made.tobytes() == np.asarray(case.run()["out"]).tobytes()
    out = np.empty((2, 4, 512), made.dtype)
    assert flashinfer.trtllm_batch_decode_with_kv_cache_mla(*given, out, **scales, sparse_mla_top_k=9) is out
    assert out.tobytes() == made.tobytes()
    with pytest.raises(compat.Refused, match="sparse_mla_top_k"):
        flashinfer.trtllm_batch_decode_with_kv_cache_mla(*given, **scales, sparse_mla_top_k=8)


@pytest.mark.parametrize("name", ["sgl_per_tensor_quant_fp8", "sgl_per_token_quant_fp8"])
def test_outputs_with_padded_rows_are_written_at_their_beginning(name):
    x = np.random.default_rng(3).standard_normal((5, 16)).astype(np.float32)

    def quantized(rows):
        codes = dodona.as_dtype(np.full((rows, 16), 0x55, np.uint8), "f8_e4m3")
        scales = np.zeros((1,) if "tensor" in name else (rows, 1), np.float32)
        getattr(sgl_kernel, name)(x, codes, scales, *([False] if "tensor" in name else []))
        return codes.array if hasattr(codes, "array") else codes, scales

    codes, scales = quantized(5)
    padded, padded_scales = quantized(9)
    assert np.array_equal(padded[:5].view(np.uint8), codes.view(np.uint8)) and (padded[5:].view(np.uint8) == 0x55).all()
    assert np.array_equal(padded_scales[: len(scales)], scales) and not padded_scales[len(scales) :].any()
    with pytest.raises(compat.Refused, match="output_q has shape"):
        quantized(4)


@pytest.mark.parametrize("as_they_lie", [lambda lengths: lengths.reshape(-1, 1, 1, 1), lambda lengths: lengths.astype(np.int64)])
def test_lengths_of_ragged_attention_have_any_dimensions_and_32_or_64_bits(as_they_lie):
    call = UpstreamCall("flashinfer", "trtllm_ragged_attention_deepseek", dodona.gen(lines_of(compat._package("flashinfer").adapter("trtllm_ragged_attention_deepseek"), "flashinfer")[0]))
    _, wanted = call.run(flashinfer.trtllm_ragged_attention_deepseek)
    wanted = {name: np.asarray(value).tobytes() for name, value in wanted.items()}
    changed = lambda *args, **named: flashinfer.trtllm_ragged_attention_deepseek(
        *[as_they_lie(arg) if i == 4 else arg for i, arg in enumerate(args)],
        **{name: as_they_lie(value) if name == "seq_lens" else value for name, value in named.items()},
    )
    assert {name: np.asarray(value).tobytes() for name, value in call.run(changed)[1].items()} == wanted


def rope(rows=3, heads=2, slots=9):
    rng = np.random.default_rng(6)
    normal = lambda *shape: rng.standard_normal(shape, np.float32).astype(np.float16)
    cache = rng.standard_normal((8, 64), np.float32)
    return np.arange(rows), normal(rows, heads * 64), normal(rows, 64), 64, cache, normal(rows, 64), normal(slots, 64), normal(slots, 64)


def test_the_rotation_writes_the_cache_that_upstreams_dataclass_names():
    positions, q, k, size, cache, value, k_buffer, v_buffer = rope()
    slots = np.array([7, 0, 2])
    fused = sgl_kernel.FusedSetKVBufferArg(value, k_buffer, v_buffer, None, None, slots)
    assert sgl_kernel.apply_rope_with_cos_sin_cache_inplace(positions, q, k, size, cache, True, fused) is None
    assert (k_buffer[slots] == k).all() and (v_buffer[slots] == value).all()
    assert inspect.signature(sgl_kernel.FusedSetKVBufferArg).parameters.keys() == {
        "value", "k_buffer", "v_buffer", "k_scale", "v_scale", "cache_loc"
    }  # fmt: skip


def test_the_rotation_refuses_what_is_no_such_argument():
    positions, q, k, size, cache, value, k_buffer, v_buffer = rope()
    slots = np.array([7, 0, 2])
    call = lambda fused: sgl_kernel.apply_rope_with_cos_sin_cache_inplace(positions, q, k, size, cache, True, fused)
    with pytest.raises(compat.Refused, match="fused_set_kv_buffer_arg is 'junk', expected a FusedSetKVBufferArg"):
        call("junk")
    with pytest.raises(AssertionError, match="k_scale"):
        call(sgl_kernel.FusedSetKVBufferArg(value, k_buffer, v_buffer, 1.0, None, slots))
    with pytest.raises(AssertionError, match="cache_loc has dtype i32, expected i64"):
        call(sgl_kernel.FusedSetKVBufferArg(value, k_buffer, v_buffer, None, None, slots.astype(np.int32)))


def test_gated_activations_of_flashinfer_take_enable_pdl():
    x = np.ones((2, 16), np.float32)
    for name in ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"):
        function = getattr(flashinfer, name)
        assert (function(x, enable_pdl=True) == function(x, None, None)).all() and (function(x) == function(x, None, False)).all()


def test_products_in_fp8_of_flashinfer_take_a_backend():
    case = dodona.gen("bmm_fp8 L=1 M=4 K=16 N=16")
    given = [value for name, value in case.arguments().items() if name in case.inputs]
    for backend in ("cublas", "cudnn", "cutlass", "auto"):
        assert flashinfer.bmm_fp8(*given, "bf16", backend=backend).tobytes() == case.run()["out"].tobytes()
    with pytest.raises(ValueError, match="backend is 'nonsense'"):
        flashinfer.bmm_fp8(*given, "bf16", None, "nonsense")


def quantize_rope(k_heads=None, **changes):
    rng = np.random.default_rng(7)
    normal = lambda *shape: rng.standard_normal(shape, np.float32).astype(np.float16)
    of_keys = () if k_heads is None else (k_heads,)
    given = dict(
        q_rope=normal(3, 8, 64), k_rope=normal(3, *of_keys, 64), q_nope=normal(3, 8, 128), k_nope=normal(3, *of_keys, 128),
        cos_sin_cache=rng.standard_normal((9, 64), np.float32), pos_ids=np.arange(3),
    )  # fmt: skip
    return {**given, **changes}


def test_the_quantized_type_is_that_of_the_outputs_where_none_is_said():
    given = quantize_rope()
    wanted = dodona.mla_rope_quantize_fp8(**given, quantize_dtype="f8_e5m2")
    if wanted[0].dtype == np.uint8:
        pytest.skip("raw bytes do not tell e5m2 from e4m3: ml_dtypes is not installed")
    names = ("q_rope_out", "k_rope_out", "q_nope_out", "k_nope_out")
    outputs = {name: np.empty_like(array) for name, array in zip(names, wanted)}
    found = flashinfer.mla_rope_quantize_fp8(**given, **outputs)
    assert all(one is output for one, output in zip(found, outputs.values()))
    assert [one.tobytes() for one in found] == [one.tobytes() for one in wanted]
    plain = dodona.mla_rope_quantize_fp8(**given)
    assert flashinfer.mla_rope_quantize_fp8(**given)[0].tobytes() == plain[0].tobytes()


def test_keys_with_heads_are_rotated_head_by_head():
    given = quantize_rope(k_heads=2, quant_scale_q=2.0, quant_scale_kv=0.5)
    q_rope, k_rope, q_nope, k_nope = flashinfer.rope_quantize_fp8(**given)
    assert k_rope.shape == (3, 2, 64) and k_nope.shape == (3, 2, 128)
    for head in range(2):
        alone = {**given, "k_rope": given["k_rope"][:, head].copy(), "k_nope": given["k_nope"][:, head].copy()}
        wanted = flashinfer.mla_rope_quantize_fp8(**alone)
        assert [wanted[0].tobytes(), wanted[2].tobytes()] == [q_rope.tobytes(), q_nope.tobytes()]
        assert wanted[1].tobytes() == k_rope[:, head].tobytes() and wanted[3].tobytes() == k_nope[:, head].tobytes()
    outputs = {"k_rope_out": np.empty_like(k_rope), "k_nope_out": np.empty_like(k_nope)}
    assert flashinfer.mla_rope_quantize_fp8(**given, **outputs)[1] is outputs["k_rope_out"]
    assert outputs["k_rope_out"].tobytes() == k_rope.tobytes()


@pytest.mark.parametrize("package, name", [("sgl_kernel", "merge_state"), ("sgl_kernel", "merge_state_v2"), ("flashinfer", "merge_state")])
def test_log_sum_exps_of_any_type_are_widened_first(package, name):
    rng = np.random.default_rng(8)
    v = rng.standard_normal((5, 8, 64), np.float32).astype(np.float16)
    s = rng.standard_normal((5, 8), np.float32).astype(np.float16)
    merge = getattr(MODULES[package], name)
    narrow, wide = merge(v, s, v[::-1].copy(), s), merge(v, s.astype(np.float32), v[::-1].copy(), s.astype(np.float32))
    assert narrow[1].dtype == np.float32 and [one.tobytes() for one in narrow] == [one.tobytes() for one in wide]


def test_a_state_is_merged_in_place_in_the_tokens_that_the_mask_marks():
    rng = np.random.default_rng(8)
    v, other = (rng.standard_normal((5, 4, 64), np.float32).astype(np.float16) for _ in range(2))
    s, s_other = (rng.standard_normal((5, 4), np.float32) for _ in range(2))
    merged, lse = flashinfer.merge_state(v, s, other, s_other)
    for mask in (None, np.array([1, 0, 1, 1, 0], np.uint8), np.array([True, False, False, True, True])):
        marked = np.ones(5, bool) if mask is None else mask.astype(bool)
        out, out_lse = v.copy(), s.copy()
        assert flashinfer.merge_state_in_place(out, out_lse, other, s_other, mask) is None
        assert (out == np.where(marked[:, None, None], merged, v)).all() and (out_lse == np.where(marked[:, None], lse, s)).all()
    half = s.astype(np.float16)
    flashinfer.merge_state_in_place(v.copy(), half, other, s_other)
    assert (half == s.astype(np.float16)).all()
    with pytest.raises(ValueError, match=r"merge_state_in_place: mask has shape \[4\], expected \[5\]"):
        flashinfer.merge_state_in_place(v, s, other, s_other, np.ones(4, np.uint8))


def test_a_block_of_tuning_runs():
    with flashinfer.autotune(True):
        pass
    with importlib.import_module("dodona.compat.flashinfer.autotuner").autotune():
        pass


def flashinfer_module(name):
    return importlib.import_module(f"dodona.compat.flashinfer.{name}")


def test_tests_that_ask_for_a_generation_run():
    utils = flashinfer_module("utils")
    assert utils.get_compute_capability("cpu") == (10, 0) and utils.device_support_pdl("cpu") is True
    answers = {name: getattr(utils, f"is_{name}_supported")("cpu") for name in ("sm90a", "sm100a", "sm100f", "sm110a", "sm120a", "sm121a")}
    assert answers == {"sm90a": True, "sm100a": True, "sm100f": True, "sm110a": False, "sm120a": False, "sm121a": False}
    assert utils.has_flashinfer_jit_cache() is True and utils.ceil_div(9, 4) == 3 and utils.round_up(9, 4) == 12


def test_functions_with_backends_have_what_upstreams_decorator_adds():
    assert flashinfer.mm_fp4.is_backend_supported("trtllm", 100) and not flashinfer.mm_fp4.is_backend_supported("b12x", 100)
    assert flashinfer.bmm_fp8.is_compute_capability_supported(100)
    case = dodona.gen("bmm_fp8 L=1 M=4 K=16 N=16")
    given = [value for name, value in case.arguments().items() if name in case.inputs]
    assert flashinfer.bmm_fp8(*given, "bf16", skip_check=True).tobytes() == flashinfer.bmm_fp8(*given, "bf16").tobytes()


def test_a_mask_of_tokens_goes_over_logits_without_rows():
    logits = np.arange(1, 11, dtype=np.float32)
    sgl_kernel.apply_token_bitmask_inplace_cuda(logits, np.array([0b1010101010], np.int32))
    assert logits.tolist() == [value if value % 2 == 0 else -np.inf for value in range(1, 11)]


def test_the_rows_of_a_mask_of_tokens_may_be_a_list():
    logits = np.ones((3, 8), np.float32)
    sgl_kernel.apply_token_bitmask_inplace_cuda(logits, np.zeros((3, 1), np.int32), [0, 2])
    assert (logits == -np.inf).all(1).tolist() == [True, False, True]


def test_a_tree_of_more_than_eight_tokens_has_a_mask_of_words():
    line = "build_tree_kernel_efficient B=2 n=80 --attr topk=4 --attr depth=4 --attr draft_token_num=20 --attr tree_mask_mode=2"
    inputs = dodona.gen(line).inputs
    given = [inputs[name] for name in ("parent_list", "selected_index", "verified_seq_len")]

    def built(mask):
        rest = [np.full(40, -1), *(np.full((2, 20), -1) for _ in range(3))]
        sgl_kernel.build_tree_kernel_efficient(*given, mask, *rest, 4, 4, 20, 2)
        return mask

    assert built(np.zeros(40, np.uint32)).tobytes() == built(np.zeros(160, np.uint8)).tobytes()


def test_rows_that_are_padded_to_four_may_be_slices_and_their_scales_have_gaps():
    case = dodona.gen("fp8_blockwise_scaled_mm M=3 N=128 K=256").arguments()
    given = [case["mat_a"], case["mat_b"], case["scales_a"], case["scales_b"], "bf16"]
    wanted = sgl_kernel.fp8_blockwise_scaled_mm(*given)

    def wider(array, shape):
        memory = np.full(shape, 0xFF, np.uint8).repeat(array.dtype.itemsize, -1).view(array.dtype)
        memory[: array.shape[0], : array.shape[1]] = array
        return memory[: array.shape[0], : array.shape[1]]

    rows, columns = wider(given[0], (3, 272)), wider(given[2].T, (2, 4)).T
    assert sgl_kernel.fp8_blockwise_scaled_mm(rows, given[1], columns, *given[3:]).tobytes() == wanted.tobytes()
    four = dodona.gen("fp8_blockwise_scaled_mm M=4 N=128 K=256").arguments()
    with pytest.raises(ValueError, match="mat_a has strides"):
        sgl_kernel.fp8_blockwise_scaled_mm(wider(four["mat_a"], (4, 272)), four["mat_b"], four["scales_a"], four["scales_b"], "bf16")


def test_flashinfer_samples_as_sgl_kernel_does_from_a_stream_that_may_be_said():
    probs = np.random.default_rng(3).dirichlet(np.ones(50), 4).astype(np.float32)
    for name, thresholds in (("min_p_sampling_from_probs", (0.1,)), ("top_p_sampling_from_probs", (0.7,)), ("top_k_top_p_sampling_from_probs", (9, 0.7))):
        for offset in (0, 8):
            wanted = getattr(sgl_kernel, name)(probs, *thresholds, philox_seed=5, philox_offset=offset)
            ours = getattr(flashinfer, name)
            assert np.array_equal(ours(probs, *thresholds, seed=5, offset=offset), wanted), name
            assert np.array_equal(ours(probs, *thresholds, seed=np.array([5]), offset=np.array([offset])), wanted), name
        rows = np.array([3, 1], np.int64)
        samples = ours(probs, *thresholds, rows, seed=5, offset=8)
        assert samples.dtype == np.int64 and np.array_equal(samples, ours(probs, *thresholds, rows.astype(np.int32), seed=5, offset=8))
        with pytest.raises(compat.Refused, match="offset is none where seed is given"):
            ours(probs, *thresholds, seed=5)
        with pytest.raises(compat.NotOffered, match=r"seed has shape \[4\], offered is one element"):
            ours(probs, *thresholds, seed=np.arange(4), offset=0)
    logits = np.log(probs)
    drawn = flashinfer.sampling.top_k_top_p_sampling_from_logits(logits, 9, 0.7, seed=5, offset=8)
    assert np.array_equal(drawn, sgl_kernel.top_k_top_p_sampling_from_logits(logits, 9, 0.7, philox_seed=5, philox_offset=8))


def test_flashinfer_keeps_the_type_of_what_it_renormalizes_and_wants_a_threshold_a_row():
    probs = np.random.default_rng(3).dirichlet(np.ones(50), 4).astype(np.float16)
    for name, threshold in (("top_k_renorm_probs", 9), ("top_k_mask_logits", 9)):
        wanted = getattr(sgl_kernel, name)(probs.astype(np.float32), threshold)
        kept = getattr(flashinfer, name)(probs, threshold)
        assert kept.dtype == np.float16 and np.array_equal(kept, wanted.astype(np.float16)), name
    for name, kind in (("top_k_renorm_probs", np.int32), ("top_p_renorm_probs", np.float32), ("min_p_sampling_from_probs", np.float32)):
        for shape, text in (((), "got a 0-dimensional tensor"), ((4, 2), "got a 2D tensor"), ((3,), "batch size mismatch")):
            with pytest.raises(compat.Refused, match=f"^{name}: .*{text}"):
                getattr(flashinfer, name)(probs, np.ones(shape, kind))


@pytest.mark.parametrize("order", ["top_k_first", "joint"])
def test_tokens_are_drawn_from_logits_as_from_their_probabilities(order):
    logits = np.random.default_rng(4).standard_normal((64, 50), np.float32)
    kept = logits >= np.sort(logits)[:, [-10]]
    drawn = sgl_kernel.top_k_top_p_sampling_from_logits(logits, 10, 0.8, None, order, philox_seed=5)
    assert drawn.dtype == np.int32 and kept[np.arange(64), drawn].all() and len(set(drawn.tolist())) > 5
    again = sgl_kernel.top_k_top_p_sampling_from_logits(logits * np.float32(1), 10, 0.8, filter_apply_order=order, philox_seed=5)
    assert (again == drawn).all()
    with pytest.raises(ValueError, match="filter_apply_order is 'nonsense'"):
        sgl_kernel.top_k_top_p_sampling_from_logits(logits, 10, 0.8, None, "nonsense")


def experts(sizes):
    """Arguments of the fp8 experts' kernel."""
    size = "--attr num_experts=4 --attr top_k=2 --attr intermediate_size=128 --attr local_num_experts=4"
    case = dodona.gen(f"trtllm_fp8_block_scale_moe {sizes} {size} --attr routing_method_type=Renormalize --without routing_bias")
    return {name: value for name, value in case.arguments().items() if value is not None}


def test_members_of_enumerations_are_the_numbers_that_they_stand_for():
    given = experts("T=3 H=128")
    wanted = dodona.trtllm_fp8_block_scale_moe(**given)
    given["weight_layout"] = flashinfer_module("fused_moe").WeightLayout.MajorK
    assert np.asarray(dodona.trtllm_fp8_block_scale_moe(**given)).tobytes() == np.asarray(wanted).tobytes()


# ---- FlashInfer's preparations of weights ----


def test_rows_are_shuffled_as_the_experts_kernel_unshuffles_them():
    """The op reads the order by itself: shuffled weights give the bits that plain ones give."""
    given = experts("T=5 H=256")
    plain = dodona.trtllm_fp8_block_scale_moe(**given)
    dealt = {}
    for name in ("gemm1_weights", "gemm2_weights"):
        weights = given[name].array if isinstance(given[name], dodona.Typed) else given[name]
        dealt[name] = np.stack([flashinfer.shuffle_matrix_a(matrix, 64) for matrix in weights])
    shuffled = dodona.trtllm_fp8_block_scale_moe(**{**given, **dealt, "use_shuffled_weight": True})
    assert np.asarray(shuffled).tobytes() == np.asarray(plain).tobytes()
    blocks = {name: np.stack([flashinfer_module("fused_moe").convert_to_block_layout(matrix, 128) for matrix in value]) for name, value in dealt.items()}
    layout = flashinfer_module("fused_moe").WeightLayout.BlockMajorK
    tiled = dodona.trtllm_fp8_block_scale_moe(**{**given, **blocks, "use_shuffled_weight": True, "weight_layout": layout})
    assert np.asarray(tiled).tobytes() == np.asarray(plain).tobytes()


def test_rows_of_both_orders():
    rows = np.arange(64)[:, None]
    assert flashinfer.shuffle_matrix_a(rows, 64)[:10, 0].tolist() == [0, 2, 4, 6, 8, 10, 12, 14, 1, 3]
    assert flashinfer.shuffle_matrix_a(rows, 128)[:10, 0].tolist() == [0, 4, 8, 12, 16, 20, 24, 28, 1, 5]
    assert flashinfer.reorder_rows_for_gated_act_gemm(rows)[:4, 0].tolist() == [0, 32, 1, 33]
    core, cache = flashinfer_module("fused_moe.core"), {}
    order = core._maybe_get_cached_w3_w1_permute_indices(cache, rows, 128)
    both = flashinfer.shuffle_matrix_a(flashinfer.reorder_rows_for_gated_act_gemm(rows), 128)
    assert (rows[order] == both).all() and core._maybe_get_cached_w3_w1_permute_indices(cache, rows, 128) is order
    ungated = core._maybe_get_cached_w3_w1_permute_indices(cache, rows, 128, is_gated_act_gemm=False)
    assert (rows[ungated] == flashinfer.shuffle_matrix_a(rows, 128)).all()
    assert (rows[core._maybe_get_cached_w3_w1_permute_indices(cache, rows, 64)] != both).any()  # another tile is another order
    assert (core.get_w2_permute_indices_with_cache(cache, rows, 128) == flashinfer.shuffle_matrix_a(rows, 128)[:, 0]).all()
    scales = np.arange(128 * 4, dtype=np.uint8).reshape(128, 4)
    assert (flashinfer.shuffle_matrix_sf_a(scales, 128) == flashinfer.block_scale_interleave(flashinfer.shuffle_matrix_a(scales, 128))).all()
    with pytest.raises(ValueError, match=r"has shape \[60, 1\], expected a matrix with a multiple of 16 rows"):
        flashinfer.shuffle_matrix_a(rows[:60], 64)


def test_transposed_scales_are_read_as_they_lie_in_memory():
    order = [p.name for p in stored_signature("flashinfer", "trtllm_fp8_block_scale_moe")[0].parameters.values()]
    call = {
        "routing_bias": None, "n_group": None, "topk_group": None, "routed_scaling_factor": None, "local_expert_offset": 0,
        **{name: value for name, value in experts("T=2 H=256").items() if name in order},
    }  # fmt: skip
    scales = call["hidden_states_scale"]
    wanted = flashinfer.trtllm_fp8_block_scale_moe(**call)
    view = np.lib.stride_tricks.as_strided(scales, scales.shape, scales.strides[::-1])
    assert not view.flags.c_contiguous
    assert np.asarray(flashinfer.trtllm_fp8_block_scale_moe(**{**call, "hidden_states_scale": view})).tobytes() == np.asarray(wanted).tobytes()


def test_positional_calls_of_both_versions_mean_the_same():
    """0.6 has dropped tile_tokens_dim, and the routing method stands in its place; taken for a tile it would be another router, silently."""
    routing = flashinfer_module("fused_moe").RoutingMethodType
    call = experts("T=3 H=128")
    names = list(stored_signature("flashinfer", "trtllm_fp8_block_scale_moe")[0].parameters)[:16]
    call = {"routing_bias": None, "n_group": None, "topk_group": None, "routed_scaling_factor": None, "local_expert_offset": 0, **call}
    first = [call[name] for name in names]

    def bits(*beyond, **named):
        return np.asarray(flashinfer.trtllm_fp8_block_scale_moe(*first, *beyond, **named)).tobytes()

    wanted = bits(routing_method_type=1)
    assert wanted != bits(routing_method_type=5)
    for older in ((None, 1), (8, 1), (16, routing.Renormalize, False, 0), (None, 1, False)):
        assert bits(*older) == wanted, older
    assert bits(8, routing_method_type=1) == wanted
    for newer in ((1,), (routing.Renormalize,), (1, False), (routing.Renormalize, False, 0, True), ("Renormalize",)):
        assert bits(*newer) == wanted, newer
    assert bits(8, False) == bits(routing_method_type=8) == bits(routing.Sigmoid) != wanted
    with pytest.raises(ValueError, match="is 8 by position, where it is tile_tokens_dim of .* routing_method_type in a newer one; give it by keyword"):
        bits(8)
    with pytest.raises(TypeError, match="multiple values for argument 'routing_method_type'"):
        bits(1, routing_method_type=1)
    with pytest.raises(TypeError, match="takes 31 positional arguments but 32 were given"):
        bits(1, False, *[None] * 14)


@pytest.mark.parametrize(
    "name, beyond, newer",
    [
        ("trtllm_bf16_moe", (1,), False), ("trtllm_bf16_moe", (None, 1), True), ("trtllm_bf16_moe", (2.5,), True),
        ("trtllm_batch_decode_with_kv_cache_mla", (None, 0.1), False), ("trtllm_batch_decode_with_kv_cache_mla", (0, None, 0.1), True),
        ("trtllm_ragged_attention_deepseek", (None,), False), ("trtllm_ragged_attention_deepseek", (np.zeros((1, 1, 1)), np.zeros((1, 1))), False),
        ("trtllm_ragged_attention_deepseek", (None, np.zeros((1, 1))), False), ("trtllm_ragged_attention_deepseek", (0.5, None), True),
        ("trtllm_ragged_attention_deepseek", (None, np.zeros((1, 1, 1))), True), ("trtllm_ragged_attention_deepseek", (None, None, None), True),
        ("cutlass_fused_moe", (8192, None), False), ("cutlass_fused_moe", (False, False, 8192), True),
        ("fp4_quantize", (False,), False), ("fp4_quantize", (False, None), True), ("fp4_quantize", (True,), None),
    ],
)  # fmt: skip
def test_positional_arguments_tell_their_version(name, beyond, newer):
    assert compat._package("flashinfer").adapter(name).line.newer(beyond, {}) is newer


def test_what_means_nothing_must_still_be_what_it_is_called(rms):
    """In versions between the two, or older ones, the place of what means nothing here is another argument's."""
    x, weight = rms["input"], rms["weight"]
    for harmless in (None, True, False, 1, np.bool_(True)):
        compat.flashinfer.rmsnorm(x, weight, 1e-6, None, harmless)
    for moved in (x, "auto", 8192, 0.5):
        with pytest.raises(compat.Refused, match="rmsnorm: enable_pdl is .*, expected None, True or False"):
            compat.flashinfer.rmsnorm(x, weight, 1e-6, None, moved)
    call = UpstreamCall("flashinfer", "trtllm_bf16_moe", dodona.gen(lines_of(compat._package("flashinfer").adapter("trtllm_bf16_moe"), "flashinfer")[0]))
    with pytest.raises(compat.Refused, match="trtllm_bf16_moe: tune_max_num_tokens is True, expected None or a whole number"):
        compat.flashinfer.trtllm_bf16_moe(**{**call.arguments, "tune_max_num_tokens": True})


@pytest.mark.parametrize("package, name", BY_NAME)
def test_what_is_no_such_argument_is_refused_by_the_functions_name_and_nothing_written(package, name):
    adapter = compat._package(package).adapter(name)
    arguments = UpstreamCall(package, name, dodona.gen(lines_of(adapter, package)[0])).arguments
    arrays = {field: getattr(value, "array", value) for field, value in arguments.items() if hasattr(getattr(value, "array", value), "shape")}
    before = {field: array.copy() for field, array in arrays.items()}
    for field, value in arguments.items():
        odd = [None, np.array(1, np.float32), np.zeros((0, 3), np.float32)] if field in arrays else [np.zeros((2, 3), np.float32), ()]
        for strange in (*odd, object(), "nonsense", -1.5):
            try:
                adapter.function(**{**arguments, field: strange})
            except dodona.Error as error:
                assert str(error).startswith(f"{name}:"), (field, strange)
                written = [other for other, array in arrays.items() if other != field and array.tobytes() != before[other].tobytes()]
                assert not written, (field, strange)
            for other, array in arrays.items():
                array[...] = before[other]


def test_states_that_cannot_both_be_written_are_left_alone():
    v, s = np.zeros((3, 2, 64), np.float32), np.ones((3, 2), np.float32)
    other = np.ones((3, 2, 64), np.float32), np.ones((3, 2), np.float32)
    s.flags.writeable = False
    with pytest.raises(compat.Refused, match="merge_state_in_place: s is read-only, and is written"):
        compat.flashinfer.merge_state_in_place(v, s, *other)
    assert not v.any()
    with pytest.raises(compat.Refused, match="merge_state_in_place: s has elements that are the same memory, and is written"):
        compat.flashinfer.merge_state_in_place(v, np.broadcast_to(s[:1], s.shape), *other)
    assert not v.any()


def test_enumerations_have_the_members_of_a_newer_version():
    core = flashinfer_module("fused_moe.core")
    assert core.RoutingMethodType.TopKSigmoid == 9 and core.ActivationType.Identity == 9 and core.RoutingMethodType.DeepSeekV3 == 2
    assert flashinfer.is_gated_activation(core.ActivationType.Swiglu) and not flashinfer.is_gated_activation(6)
    assert flashinfer_module("tllm_enums").normalize_activation_type(3) is core.ActivationType.Swiglu
    with pytest.raises(ValueError, match="is 99, expected an ActivationType"):
        flashinfer.is_gated_activation(99)


# ---- what FlashInfer's codes stand for ----


def test_codes_of_e2m1_are_numbers_again():
    codes = np.arange(256, dtype=np.uint8).reshape(2, 128)[:, :8]  # low halves 0 to 7, high halves 0 and 8
    host = flashinfer.mxfp4_dequantize_host(codes, np.array([[127], [129]], np.uint8), 16)
    assert host[0].tolist() == [0, 0, 0.5, 0, 1, 0, 1.5, 0, 2, 0, 3, 0, 4, 0, 6, 0]
    assert host[1, 2] == 2.0 and host[1, 1] == 0 and np.signbit(host[1, 1])
    x = np.random.default_rng(3).standard_normal((130, 64), np.float32).astype(np.float16)
    made, scales = flashinfer.mxfp4_quantize(x)
    assert np.abs(flashinfer.mxfp4_dequantize(made, scales) - x).max() < 1.0
    factor = np.array([448 * 6 / np.abs(x).max()], np.float32)
    for tiled in (True, False):
        made, scales = flashinfer.fp4_quantize(x, factor, 16, False, tiled)
        back = flashinfer.e2m1_and_ufp8sf_scale_to_float(made, scales, 1 / factor, 16, 1, tiled)
        assert back.shape == x.shape and np.abs(back - x).max() < 0.6 and np.abs(back - x).mean() < 0.1
    with pytest.raises(ValueError, match="global_scale_tensor is missing"):
        flashinfer.e2m1_and_ufp8sf_scale_to_float(made, scales)


@pytest.mark.parametrize("tiled", [True, False])
def test_codes_of_e4m3_are_numbers_again(tiled):
    x = np.random.default_rng(3).standard_normal((130, 160), np.float32).astype(np.float16)
    made, scales = flashinfer.mxfp8_quantize(x, tiled)
    back = flashinfer.mxfp8_dequantize_host(made, scales, tiled)
    assert back.shape == x.shape and (np.abs(back - x) <= np.abs(x) / 16 + 2.0**-6).all()


def test_every_matrix_of_a_batch_is_quantized_as_alone():
    x = np.random.default_rng(3).standard_normal((3, 20, 64), np.float32).astype(np.float16)
    factor = np.array([500], np.float32)
    codes, scales = flashinfer.nvfp4_batched_quantize(x, factor)
    for i in range(3):
        alone = flashinfer.fp4_quantize(x[i], factor, 16, False, True)
        assert (codes[i] == alone[0]).all() and (scales[i] == alone[1].reshape(-1)).all()


def test_weak_references_of_what_is_no_tensor_are_the_thing_itself():
    thing = object()
    assert sgl_kernel.weak_ref_tensor(None) is None and sgl_kernel.weak_ref_tensor(3) == 3 and sgl_kernel.weak_ref_tensor(thing) is thing
    for array in (np.zeros((1,) * 7), np.zeros(2, np.complex64), np.zeros(3, np.uint32)):
        seen = sgl_kernel.weak_ref_tensor(array)
        assert seen.ctypes.data == array.ctypes.data and seen.dtype == array.dtype and seen.shape == array.shape


def test_rows_are_quantized_by_what_they_hold_and_not_by_how_they_lie():
    x = np.random.default_rng(9).standard_normal((5, 2, 64), np.float32).astype(np.float16)
    scale = np.array([100.0], np.float32)
    turned = x.transpose(1, 0, 2)
    found, wanted = sgl_kernel.scaled_fp4_quant(turned, scale), dodona.scaled_fp4_quant(turned.copy(), scale)
    assert [one.tobytes() for one in found] == [one.tobytes() for one in wanted]
    with pytest.raises(compat.Refused, match="strides"):  # two dimensions are read as if they were contiguous: upstream reads wrong memory
        sgl_kernel.scaled_fp4_quant(np.zeros((4, 128), np.float16)[:, :64], scale)


def test_flashinfer_quantizes_by_its_own_recipe_and_gives_scales_as_bytes():
    case = dodona.gen("scaled_fp4_quant M=4 K=64 --dialect flashinfer")
    codes, scales = flashinfer.fp4_quantize(case.inputs["input"], case.inputs["input_global_scale"])
    wanted = case.golden()
    assert codes.tobytes() == wanted["output"].tobytes() and scales.tobytes() == wanted["output_scale"].tobytes()
    assert scales.dtype == np.uint8 and scales.shape == (128, 4)
    with pytest.raises(compat.Refused, match="fp4_quantize: sf_vec_size is 32, expected 16 with sf_use_ue8m0=false"):
        flashinfer.fp4_quantize(case.inputs["input"], case.inputs["input_global_scale"], sf_vec_size=32)


def test_flashinfers_product_takes_what_its_quantizer_gives():
    rng = np.random.default_rng(11)
    a, b = (rng.standard_normal((rows, 128), np.float32).astype(np.float16) for rows in (5, 64))
    one = np.ones(1, np.float32)
    (x, x_scales), (w, w_scales) = ((flashinfer.fp4_quantize(value, one)) for value in (a, b))
    out = flashinfer.mm_fp4(x, w.T, x_scales, w_scales.T, one, "f16")
    assert out.shape == (5, 64) and np.corrcoef(out.astype(np.float32).ravel(), (a.astype(np.float32) @ b.T.astype(np.float32)).ravel())[0, 1] > 0.97
    with pytest.raises(NotImplementedError, match="mm_fp4: backend is 'b12x'"):
        flashinfer.mm_fp4(x, w.T, x_scales, w_scales.T, one, "f16", backend="b12x")
    codes, scales = flashinfer.mxfp8_quantize(a)
    assert codes.shape == (5, 128) and scales.shape == (512,)
    on_host = flashinfer.mxfp8_quantize(a.astype(np.float32), alignment=256)  # upstream's host path takes f32, and looks at no alignment
    assert on_host[0].tobytes() == codes.tobytes() and on_host[1].tobytes() == scales.tobytes()


def test_flashinfer_quantizes_any_rank_columns_first_and_without_a_scale():
    x = np.random.default_rng(10).standard_normal((2, 5, 64), np.float32).astype(np.float16)
    one = np.ones(1, np.float32)
    codes, scales = flashinfer.fp4_quantize(x)
    wanted = flashinfer.fp4_quantize(x.reshape(10, 64), one)
    assert codes.shape == (2, 5, 32) and codes.tobytes() == wanted[0].tobytes() and scales.tobytes() == wanted[1].tobytes()
    turned = flashinfer.fp4_quantize(x.reshape(10, 64).T, one)
    assert turned[0].shape == (32, 10) and (turned[0].T == wanted[0]).all() and (turned[1].T == wanted[1]).all()


def test_refusals_are_caught_as_upstreams_are():
    positions, q, k, size, cache, *_ = rope()
    x = np.ones((2, 4), np.float16)
    calls = {
        "cos_sin_cache should be float32": lambda: sgl_kernel.apply_rope_with_cos_sin_cache_inplace(positions, q, k, size, cache.astype(np.float64)),
        "input has rows of 8 bytes, expected a multiple of 16 bytes": lambda: sgl_kernel.silu_and_mul(x),
        "input has dtype i32": lambda: sgl_kernel.rmsnorm(x.astype(np.int32), x[0]),
        r"weight has shape \[3\]": lambda: flashinfer.rmsnorm(x, x[0, :3].copy()),
    }
    for words, call in calls.items():
        for kind in (ValueError, TypeError, AssertionError, RuntimeError, dodona.Error):
            with pytest.raises(kind, match=words) as caught:
                call()
        assert caught.value.op and caught.value.argument and not isinstance(caught.value, NotImplementedError)


def test_what_upstream_writes_to_its_arguments_it_does_not_return():
    for name in ("concat_mla_k", "prepare_moe_input", "apply_shuffle_mul_sum", "sgl_per_token_quant_fp8", "sgl_per_tensor_quant_fp8"):
        call = UpstreamCall("sgl_kernel", name, dodona.gen(f"{name} {dodona.schema(name)['cases'][0]}"))
        assert call.run(getattr(sgl_kernel, name))[0] is None


def test_scales_of_experts_have_room_for_the_most_tokens_that_upstream_allows(monkeypatch):
    case = dodona.gen("scaled_fp4_experts_quant M=40 T=40 K=80 E=4 R=512")
    call = UpstreamCall("sgl_kernel", "scaled_fp4_experts_quant", case)
    assert sgl_kernel.scaled_fp4_experts_quant(**call.arguments)[1].shape == (65536, 8)
    monkeypatch.setenv("MODELOPT_MAX_TOKENS_PER_EXPERT", "39")
    with pytest.raises(AssertionError, match="input_tensor has 40 rows, at most 39 go with topk=1"):
        sgl_kernel.scaled_fp4_experts_quant(**call.arguments)


@pytest.mark.parametrize("package, name", FUNCTIONS)
def test_arguments_that_upstream_requires_are_required(package, name):
    theirs, _ = stored_signature(package, name)
    newer = later_parameters(package, name)  # which may do without
    required = [p.name for p in theirs.parameters.values() if p.default is p.empty and (not newer or p.name in newer)]
    for missing in required:
        with pytest.raises(TypeError, match=rf"missing 1 required positional argument: '{missing}'"):
            getattr(MODULES[package], name)(**{other: None for other in required if other != missing})


def test_words_are_copied_to_where_a_gpu_would_have_them():
    words, there = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    assert sgl_kernel.copy_to_gpu_no_ce(words, there) is None and (there == words).all()
    for wrong in (None, there[:63], there.astype(np.int64), np.zeros(72, np.int32)):
        with pytest.raises(compat.Refused, match="^copy_to_gpu_no_ce: output is .*expected int32"):
            sgl_kernel.copy_to_gpu_no_ce(words, wrong)


def test_rows_are_shuffled_into_the_shape_that_is_said():
    x, rows = np.ones((4, 8), np.float32), np.array([3, 0], np.int32)
    assert sgl_kernel.shuffle_rows(x, rows, (2, 8)).shape == (2, 8)
    with pytest.raises(RuntimeError, match=r"output_tensor_shape is \[3, 8\], expected \[2, 8\]"):
        sgl_kernel.shuffle_rows(x, rows, (3, 8))


def test_grouped_products_say_what_their_dictionary_lacks():
    case = dodona.gen(f"cutlass_fp4_group_mm {dodona.schema('cutlass_fp4_group_mm')['cases'][0]}")
    call = UpstreamCall("sgl_kernel", "cutlass_fp4_group_mm", case)
    with pytest.raises(compat.Refused, match="cutlass_fp4_group_mm: params has no .*expert_offsets"):
        sgl_kernel.cutlass_fp4_group_mm(**{**call.arguments, "params": {}})


def test_functions_of_ours_keep_their_own_parameters_behind_upstreams(rms):
    assert (sgl_kernel.rmsnorm(**rms, mode="golden", threads=1) == dodona.rmsnorm(**rms, mode="golden")).all()
    wanted = dodona.rmsnorm(**rms, weight_order="rounded")
    assert sgl_kernel.rmsnorm(**rms, weight_order="rounded").tobytes() == wanted.tobytes()


# ---- the data ----


def test_the_stored_data_is_what_the_tool_makes_of_sources(tmp_path):
    """A small package, with everything that the tool has rules for."""
    root = tmp_path / "toy"
    (root / "inner").mkdir(parents=True)
    (root / "__init__.py").write_text("from .ops import *\nfrom .inner.deep import Kind, twice as doubled\n")
    (root / "ops.py").write_text(
        "import torch\nfrom typing import overload\nLIMIT = 3\nTABLE = [torch.float]\n_hidden = 1\n"
        "@overload\ndef f(a: int) -> int: ...\n"
        "def f(a: torch.Tensor, b: float = 1e-6, *, c=torch.bfloat16) -> torch.Tensor:\n    return a\n"
        "def g(a, *rest) -> torch.Tensor:\n    def inner():\n        return 1\n    a.zero_()\n"
        "def h(a) -> None:\n    return a, a\n"
        "if torch.version.hip:\n    def only_there(x): return x\n"
        "same = f\n"
    )
    (root / "inner" / "__init__.py").write_text("")
    (root / "inner" / "deep.py").write_text(
        "import enum\nfrom dataclasses import dataclass\ntwice = lambda x: 2 * x\n"
        "class Kind(enum.IntEnum):\n    A = 1\n    B = 4\n"
        "@dataclass\nclass Fields:\n    x: int\n    y: int = 2\n"
        "class Wrapper:\n    size = 5\n    def __init__(self, n: int, m=None): pass\n    @staticmethod\n    def make(): pass\n    def run(self): pass\n"
        "class Wrong(ValueError): pass\n"
    )
    (tmp_path / "ops.cc").write_text('m.def(\n  "f(Tensor! out, Tensor a,"\n  " float b) -> ()");\n m.def("inferred", &inferred); m.def("odd", &odd);')
    (tmp_path / "ops.h").write_text("int64_t inferred(\n    int64_t rows,\n    bool wide = false);\nfptr_t odd(fptr_t x);")
    tool = pathlib.Path(__file__).parents[2] / "tools" / "upstream-signatures"
    space = {"__name__": "tool", "__file__": str(tool)}
    exec(compile(tool.read_text(), str(tool), "exec"), space)
    modules = space["described"]("toy", root)
    assert modules["toy.ops"] == {
        "functions": {
            "f": "(a, b=1e-06, *, c=torch.bfloat16) -> Tensor", "g": "(a, *rest) -> None", "h": "(a) -> ...", "only_there": "(x) -> ..."
        },
        "values": {"LIMIT": 3, "TABLE": None, "_hidden": 1},
        "imports": {"same": "toy.ops.f"},
    }  # fmt: skip
    assert modules["toy"]["imports"] == {
        "Kind": "toy.inner.deep.Kind", "LIMIT": "toy.ops.LIMIT", "TABLE": "toy.ops.TABLE", "doubled": "toy.inner.deep.twice", "f": "toy.ops.f",
        "g": "toy.ops.g", "h": "toy.ops.h", "only_there": "toy.ops.only_there", "same": "toy.ops.f"
    }  # fmt: skip
    assert modules["toy.inner.deep"]["classes"] == {
        "Kind": {"base": "IntEnum", "enum": {"A": 1, "B": 4}},
        "Fields": {"init": "(x, y=2)", "data": True},
        "Wrapper": {"init": "(n, m=None)", "members": ["make", "run", "size"]},
        "Wrong": {"base": "Exception"},
    }
    assert space["schemas"]([tmp_path / "ops.cc", tmp_path / "ops.h"]) == [
        "f(Tensor! out, Tensor a, float b) -> ()", "inferred(int _0, bool _1) -> int"
    ]  # fmt: skip


def test_the_tool_finds_what_a_newer_version_has_beyond():
    tool = pathlib.Path(__file__).parents[2] / "tools" / "upstream-signatures"
    space = {"__name__": "tool", "__file__": str(tool)}
    exec(compile(tool.read_text(), str(tool), "exec"), space)
    stored = {
        "toy": {"imports": {"f": "toy.ops.f"}},
        "toy.ops": {
            "functions": {"f": "(a) -> Tensor", "same": "(a) -> None"},
            "classes": {"Kind": {"base": "IntEnum", "enum": {"A": 1, "LAST": 2}}, "Other": {"base": "Enum", "enum": {"X": 0}}},
        },
    }
    newer = {
        "toy": {"imports": {"f": "toy.ops.inner.f", "g": "toy.deep.er.in.g"}},
        "toy.ops": {"functions": {"same": "(a) -> None", "_private": "() -> None"}},
        "toy.ops.inner": {
            "functions": {"f": "(a, b=1) -> Tensor", "h": "() -> None"},
            "classes": {"Kind": {"base": "IntEnum", "enum": {"A": 1, "B": 2, "LAST": 3}}, "Other": {"base": "Enum", "enum": {"X": 0}}},
        },
        "toy.deep.er.in": {"functions": {"g": "(x) -> None", "machinery": "() -> None"}},
    }
    signatures, enums, modules = space["beyond"](stored, newer, "toy")
    assert signatures == {"toy.ops.f": "(a, b=1) -> Tensor"}
    assert enums == {"toy.ops.Kind": {"A": 1, "B": 2, "LAST": 3}}
    assert modules == {
        "toy": {"functions": {"g": "(x) -> None"}},
        "toy.ops.inner": {
            "functions": {"h": "() -> None"},
            "imports": {"Kind": "toy.ops.Kind", "Other": "toy.ops.Other", "f": "toy.ops.f"},
        },
    }


def test_classes_of_data_hold_it():
    from dodona.compat.flashinfer.quantization.nvfp4_quantization_utils import NVFP44Over6Config

    assert NVFP44Over6Config(e4m3_max=256) == NVFP44Over6Config(256) != NVFP44Over6Config()


@pytest.mark.parametrize("package", compat.PACKAGES)
def test_the_stored_data_holds_names_and_defaults_and_nothing_else(package):
    record = record_of(package)
    for module in record["modules"].values():
        assert set(module) <= {"functions", "classes", "values", "imports"}
        for text in module.get("functions", {}).values():
            tree = ast.parse(f"def f{text.rpartition(' -> ')[0]}: pass").body[0].args
            assert not any(argument.annotation for argument in ast.walk(tree) if isinstance(argument, ast.arg))
        for known in module.get("classes", {}).values():
            assert set(known) <= {"init", "members", "base", "enum", "data"}
        for value in module.get("values", {}).values():
            assert len(repr(value)) <= 80


def test_the_mla_wrapper_plans_and_runs():
    case = dodona.gen("batch_mla_paged_attention T=5 N=4 pages=9 P=16 B=2 n=6 --attr causal=true --attr sm_scale=0.1352337788608801 --attr return_lse=true")
    args = case.arguments()
    wrapper = flashinfer.BatchMLAPagedAttentionWrapper(np.zeros(8, np.uint8), backend="fa3")
    with pytest.raises(compat.Refused, match="plan comes first"):
        wrapper.run(args["q_nope"], args["q_pe"], args["ckv_cache"], args["kpe_cache"])
    plan = [args[name] for name in ("qo_indptr", "kv_indptr", "kv_indices", "kv_len_arr")]
    wrapper.plan(*plan, 4, 512, 64, 16, True, 0.1352337788608801, None, None)
    out, lse = wrapper.run(args["q_nope"], args["q_pe"], args["ckv_cache"], args["kpe_cache"], return_lse=True)
    assert case.check(out=out, lse=lse)
    buffer = np.zeros_like(np.asarray(lse))
    assert wrapper.run(args["q_nope"], args["q_pe"], args["ckv_cache"], args["kpe_cache"], lse=buffer).tobytes() == out.tobytes()
    assert buffer.tobytes() == np.asarray(lse).tobytes()
    longer = np.append(args["kv_indptr"], np.int32(99))  # upstream looks at no more than there are requests
    wrapper.plan(plan[0], longer, *plan[2:], 4, 512, 64, 16, True, 0.1352337788608801, None, None)
    assert wrapper.run(args["q_nope"], args["q_pe"], args["ckv_cache"], args["kpe_cache"]).tobytes() == out.tobytes()
    natural = wrapper.run(args["q_nope"], args["q_pe"], args["ckv_cache"], args["kpe_cache"], return_lse=True, return_lse_base_on_e=True)[1]
    assert np.allclose(np.asarray(natural), np.asarray(lse) * np.log(2))
    with pytest.raises(compat.Refused, match="has pages of 16, expected 32 as planned"):
        wrapper.plan(*plan, 4, 512, 64, 32, True, 0.1352337788608801, None, None)
        wrapper.run(args["q_nope"], args["q_pe"], args["ckv_cache"], args["kpe_cache"])


def test_the_mla_wrapper_takes_e4m3_with_its_scales():
    case = dodona.gen(
        "batch_mla_paged_attention T=4 N=3 pages=6 P=16 B=2 n=4 --attr causal=true --attr sm_scale=0.02 --attr ckv_scale=0.3 --attr kpe_scale=0.7 --dtype ckv_cache=f8_e4m3"
    )
    args = case.arguments()
    wrapper = flashinfer.BatchMLAPagedAttentionWrapper(np.zeros(8, np.uint8), backend="fa3")
    wrapper.plan(*[args[name] for name in ("qo_indptr", "kv_indptr", "kv_indices", "kv_len_arr")], 3, 512, 64, 16, True, 0.02, None, None)
    tensors = [args[name] for name in ("q_nope", "q_pe", "ckv_cache", "kpe_cache")]
    assert case.check(out=wrapper.run(*tensors, ckv_scale=0.3, kpe_scale=0.7))
    with pytest.raises(compat.Refused, match="kpe_scale must be positive"):
        wrapper.run(*tensors, ckv_scale=0.3)


def test_the_ragged_wrapper_plans_and_runs():
    case = dodona.gen("batch_prefill_with_ragged_kv_cache Tq=5 Tk=9 N=4 Nk=4 D=192 Dv=128 B=2 --attr causal=true --attr sm_scale=0.0721687836 --attr return_lse=true")
    args = case.arguments()
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(np.zeros(8, np.uint8), "NHD", backend="fa3")
    tensors = [args[name] for name in ("q", "k", "v")]
    with pytest.raises(compat.Refused, match="plan comes first"):
        wrapper.run(*tensors)
    wrapper.plan(args["qo_indptr"], args["kv_indptr"], 4, 4, 192, head_dim_vo=128, causal=True, sm_scale=0.0721687836)
    out, lse = wrapper.run(*tensors, return_lse=True)
    assert case.check(out=out, lse=lse)
    assert [one.tobytes() for one in wrapper.run_return_lse(*tensors)] == [out.tobytes(), lse.tobytes()]
    buffer = np.zeros_like(lse)
    assert wrapper.run(*tensors, lse=buffer).tobytes() == out.tobytes() and buffer.tobytes() == lse.tobytes()
    seen = {"window_left": 1, "logits_soft_cap": 2.5}
    wrapper.plan(args["qo_indptr"], args["kv_indptr"], 4, 4, 192, head_dim_vo=128, causal=True, sm_scale=0.0721687836, **seen)
    wanted = dodona.batch_prefill_with_ragged_kv_cache(**{**args, **seen, "return_lse": False})
    assert wrapper.run(*tensors).tobytes() == np.asarray(wanted).tobytes() != out.tobytes()
    with pytest.raises(compat.Refused, match="custom_mask has 1 elements"):
        wrapper.plan(args["qo_indptr"], args["kv_indptr"], 4, 4, 192, head_dim_vo=128, custom_mask=np.ones(1, bool))
    with pytest.raises(compat.Refused, match="q has shape"):
        wrapper.plan(args["qo_indptr"], args["kv_indptr"], 8, 4, 192, head_dim_vo=128, causal=True)
        wrapper.run(*tensors)


def test_lists_of_layers_are_copied_one_to_one():
    layers = [np.zeros((4, 8), np.float32) for _ in range(2)]
    with pytest.raises(compat.Refused, match="has 2 pools for 1, expected as many"):
        sgl_kernel.transfer_kv_direct(layers, layers[:1], np.array([0]), np.array([1]), 1)
    sources = [np.ones((4, 8), np.float32), np.ones((4, 4), np.float32)]  # the second one does not fit: nor is the first one copied
    with pytest.raises(compat.Refused, match=r"has a pool of float32 \[4, 4\] beside one of float32 \[4, 8\]"):
        sgl_kernel.transfer_kv_direct(sources, layers, np.array([0]), np.array([1]), 1)
    assert not layers[0].any()


def table_of(pool):
    return np.array([layer.ctypes.data for layer in pool], np.uint64)


TABLES = [name for name in compat.functions("sgl_kernel") if name.startswith("transfer_kv_all_layer") and "direct" not in name]


def transfer_of_layers(name, pools=lambda pool: pool, **other):
    """A transfer of three layers, sources and destinations as they are and as `pools` makes them of those."""
    rng = np.random.default_rng(5)
    whole = {"lf_pf": (8, 3, 16), "lf_ph": (4, 2, 2, 3, 8)}.get(name[-5:], (3, 8, 16))
    kinds = ["_k", "_v"] if "mla" not in name else [""]
    end = "_layers" if len(whole) == 3 and whole[0] == 3 else ""
    sources = [rng.integers(0, 256, (3, 9, 16), np.uint8) for _ in kinds]
    targets = [rng.integers(0, 256, whole, np.uint8) for _ in kinds]
    call = {f"src{kind}_layers": pools(pool) for kind, pool in zip(kinds, sources)}
    call.update({f"dst{kind}{end}": pools(pool) if end else pool for kind, pool in zip(kinds, targets)})
    call.update(src_indices=np.array([8, 0, 3]), dst_indices=np.array([1, 7, 2]), item_size=16, num_layers=3)
    if not end:
        call["dst_layout_dim"] = 48
    if "ph" in name:
        call.update(page_size=2, head_num=2)
    getattr(sgl_kernel, name)(**{**call, **other})
    return sources, targets


@pytest.mark.parametrize("name", TABLES)
def test_layers_may_be_a_table_of_addresses_as_upstreams_are(name):
    for by_tensor, by_address in zip(transfer_of_layers(name), transfer_of_layers(name, table_of)):
        assert all(np.array_equal(one, other) for one, other in zip(by_tensor, by_address))
    assert not np.array_equal(transfer_of_layers(name, table_of)[1][0], transfer_of_layers(name, src_indices=np.array([1, 1, 1]))[1][0])


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    "wrong, text",
    [
        ({"item_size": 0}, "item_size is 0, expected the bytes of an item"),
        ({"num_layers": 2}, "3 addresses, expected num_layers = 2"),
        ({"dst_indices": np.array([1, -1, 2])}, "dst_indices.*-1"),
        ({"dst_layout_dim": 47}, "dst_layout_dim is 47, expected item_size times num_layers = 48"),
    ],
)
def test_tables_of_addresses_that_do_not_fit_are_refused_before_anything_is_written(name, wrong, text):
    if "dst_layout_dim" in wrong and not name.endswith(("pf", "ph")):
        return
    with pytest.raises(compat.Refused, match=text):
        transfer_of_layers(name, table_of, **wrong)
