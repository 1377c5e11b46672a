"""DeepGEMM's functions in upstream's place: pairs, orders of memory, recipes and groups against the ops that they are."""

import numpy as np
import pytest

import dodona
from dodona import compat
from dodona.compat import deep_gemm

CASE = dodona.gen("fp8_gemm_nt M=5 N=40 K=256 --seed 3")
EACH = dodona.gen("fp8_gemm_nt M=5 N=40 K=256 --attr gran_n=1 --attr out_dtype=f32 --with c --seed 4")
WORDS = dodona.gen("fp8_gemm_nt M=3 N=72 K=640 --attr scale_ue8m0=true --attr gran_n=1 --dtype sfa=i32 --seed 5")
GROUPS = dodona.gen("m_grouped_fp8_gemm_nt_contiguous M=384 N=40 K=256 G=3 --seed 6")
MASKED = dodona.gen("m_grouped_fp8_gemm_nt_masked G=2 M=64 N=40 K=256 --seed 7")


def raw(value):
    return np.asarray(getattr(value, "array", value))


def codes(value):
    return dodona.as_dtype(value, "f8_e4m3")


def turned(value):
    """The same matrix, its last two dimensions the other way in memory."""
    return np.ascontiguousarray(np.swapaxes(raw(value), -1, -2))


def sides(case):
    a = case.arguments()
    return (codes(raw(a["a"]).view(np.uint8)), a["sfa"]), (codes(raw(a["b"]).view(np.uint8)), a["sfb"])


def room(case, kind="bf16"):
    shape = case.run()["d"].shape
    return np.full(shape, 7, np.float32) if kind == "f32" else dodona.as_dtype(np.full(shape, 7, np.uint16), "bf16")


def bits(value):
    return raw(value).tobytes()


def wanted(case):
    return bits(case.run()["d"])


@pytest.mark.parametrize("name", ["fp8_gemm_nt", "fp8_fp4_gemm_nt"])
def test_products_write_the_ops_bits_and_return_nothing(name):
    d = room(CASE)
    assert getattr(deep_gemm, name)(*sides(CASE), d) is None
    assert bits(d) == wanted(CASE)


@pytest.mark.parametrize("order, turn", [("nn", "b"), ("tn", "ab"), ("tt", "a")])
def test_what_a_name_says_comes_turned(order, turn):
    given = [(codes(turned(side[0]).view(np.uint8)), turned(side[1])) if of in turn else side for of, side in zip("ab", sides(CASE))]
    d = room(CASE)
    getattr(deep_gemm, f"fp8_gemm_{order}")(*given, d)
    assert bits(d) == wanted(CASE)


def test_matrices_whose_rows_are_neighbours_are_taken_too():
    (a, sfa), (b, sfb) = sides(CASE)
    d = room(CASE)
    deep_gemm.fp8_gemm_nt((codes(turned(a).T), sfa), (codes(turned(b).T), turned(sfb).T), d)
    assert bits(d) == wanted(CASE)


def test_c_is_added_also_where_it_is_d():
    d, c = room(EACH, "f32"), EACH.arguments()["c"].copy()
    deep_gemm.fp8_gemm_nt(*sides(EACH), d, c=c, recipe=(1, 1, 128))
    assert bits(d) == wanted(EACH)
    deep_gemm.fp8_gemm_nt(*sides(EACH), c, c, (1, 1, 128))
    assert bits(c) == wanted(EACH)


def test_a_recipe_may_be_that_of_each_side():
    d = room(CASE)
    deep_gemm.fp8_gemm_nt(*sides(CASE), d, recipe_a=(1, 128), recipe_b=(128, 128))
    assert bits(d) == wanted(CASE)


def test_versions_before_have_compiled_dims_behind_the_recipe():
    d = room(CASE)
    deep_gemm.fp8_gemm_nt(*sides(CASE), d, None, None, "nk", True)
    assert bits(d) == wanted(CASE)


def test_exponents_in_words_are_scales_of_each_row_or_beside_numbers():
    d = room(WORDS)
    deep_gemm.fp8_gemm_nt(*sides(WORDS), d)
    assert bits(d) == wanted(WORDS)
    (a, sfa), (b, sfb) = sides(WORDS)
    numbers = (np.ascontiguousarray(raw(sfb)).view(np.uint8).astype(np.uint32) << 23).view(np.float32)[:, :5]
    mixed = room(WORDS)
    deep_gemm.fp8_gemm_nt((a, sfa), (b, np.ascontiguousarray(numbers)), mixed, recipe=(1, 1, 128))
    assert np.allclose(*((raw(x).view(np.uint16).astype(np.uint32) << 16).view(np.float32) for x in (mixed, d)), rtol=0.01, equal_nan=True)


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"a": np.zeros((5, 256), np.uint8)}, "fp8_gemm_nt: a is uint8 \\[5, 256\\], expected a pair of codes and scales"),
        ({"a": (1, 2)}, "fp8_gemm_nt: a holds 1, expected arrays"),
        ({"b": None}, "fp8_gemm_nt: b is None, expected a pair"),
        ({"recipe": (1, 1, 64)}, "fp8_gemm_nt: recipe is \\(1, 1, 64\\), offered are"),
        ({"recipe": (1, 1, 32)}, "fp8_gemm_nt: scales of a are no powers of two"),
        ({"recipe": 128}, "fp8_gemm_nt: recipe is 128, expected"),
        ({"recipe_a": (1, 128)}, "fp8_gemm_nt: recipe is None with recipe_a=\\(1, 128\\)"),
        ({"disable_ue8m0_cast": "yes"}, "fp8_gemm_nt: disable_ue8m0_cast is 'yes', expected True or False"),
        ({"c": np.zeros((5, 40), np.float16)}, "fp8_gemm_nt: c is float16 \\[5, 40\\], expected .* as d is"),
        ({"d": np.zeros((5, 41), np.float32)}, "fp8_gemm_nt: .*d has shape \\[5, 41\\]"),
        ({"d": 3}, "fp8_gemm_nt: d is int, expected an array"),
    ],
)
def test_what_does_not_fit_is_one_error_that_names_it(changes, told):
    (a, b), d = sides(CASE), room(CASE)
    with pytest.raises(compat.Refused, match=told):
        deep_gemm.fp8_gemm_nt(**{"a": a, "b": b, "d": d, **changes})
    assert (raw(d) == 7).all()


def test_nothing_to_multiply_leaves_c_or_zeros():
    empty = (codes(np.zeros((5, 0), np.uint8)), np.zeros((5, 0), np.float32)), (codes(np.zeros((40, 0), np.uint8)), np.zeros((1, 0), np.float32))
    d = np.full((5, 40), 7, np.float32)
    deep_gemm.fp8_gemm_nt(*empty, d)
    assert not d.any()


def test_columns_of_heads_may_have_room_between_them():
    d = np.full((5, 2 * 32), 7, np.uint16)
    deep_gemm.fp8_gemm_nt_skip_head_mid(*sides(CASE), dodona.as_dtype(d, "bf16"), (12, 12, 8))
    heads, whole = d.reshape(5, 2, 32), raw(CASE.run()["d"]).view(np.uint16).reshape(5, 2, 20)
    assert (heads[:, :, :12] == whole[:, :, :12]).all() and (heads[:, :, 24:] == whole[:, :, 12:]).all() and (heads[:, :, 12:24] == 7).all()
    with pytest.raises(compat.Refused, match=r"head_splits is \(12, 12, 9\)"):
        deep_gemm.fp8_gemm_nt_skip_head_mid(*sides(CASE), dodona.as_dtype(d, "bf16"), (12, 12, 9))


def kept(values, of_row):
    return raw(values).view(np.uint16)[np.asarray(of_row) >= 0].tobytes()


@pytest.mark.parametrize("order", ["nt", "nn"])
def test_rows_of_groups_in_whole_blocks(order):
    of_row = GROUPS.arguments()["m_indices"]
    (a, b), d = sides(GROUPS), room(GROUPS)
    b = b if order == "nt" else (codes(turned(b[0]).view(np.uint8)), turned(b[1]))
    getattr(deep_gemm, f"m_grouped_fp8_gemm_{order}_contiguous")(a, b, d, of_row)
    assert kept(d, of_row) == kept(GROUPS.run()["d"], of_row)


@pytest.mark.parametrize("psum", [False, True])
def test_rows_of_groups_that_share_blocks_are_those_of_their_groups(psum):
    """Ends of groups instead of a group for each row, too."""
    (a, sfa), (b, sfb) = sides(GROUPS)
    of_row = np.array([0] * 40 + [-1] * 24 + [1] * 100 + [-1] * 28 + [2] * 192, np.int32)
    layout = np.array([40, 164, 384], np.int32) if psum else of_row
    d = room(GROUPS)
    before = deep_gemm.get_mk_alignment_for_contiguous_layout()
    deep_gemm.set_mk_alignment_for_contiguous_layout(64)
    try:
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous((a, sfa), (b, sfb), d, layout, use_psum_layout=psum)
    finally:
        deep_gemm.set_mk_alignment_for_contiguous_layout(before)
    for group in range(3):
        rows = of_row == group
        alone = dodona.as_dtype(np.empty((rows.sum(), 40), np.uint16), "bf16")
        deep_gemm.fp8_gemm_nt((codes(raw(a)[rows]), sfa[rows]), (codes(raw(b)[group]), sfb[group]), alone)
        assert raw(d)[rows].tobytes() == bits(alone)
    assert not raw(d)[of_row < 0].any()


def test_groups_that_there_are_not_are_refused():
    with pytest.raises(compat.Refused, match="names group 3 of 3"):
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(*sides(GROUPS), room(GROUPS), np.array([0] * 100 + [3] * 284, np.int32))
    with pytest.raises(compat.Refused, match="grouped_layout is int64"):
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(*sides(GROUPS), room(GROUPS), np.zeros(384, np.int64))


def test_masked_groups():
    d, count = room(MASKED), MASKED.arguments()["masked_m"]
    deep_gemm.fp8_m_grouped_gemm_nt_masked(*sides(MASKED), d, count, 64)
    for group, rows in enumerate(count):
        assert raw(d)[group, :rows].tobytes() == raw(MASKED.run()["d"]).view(np.uint16)[group, :rows].tobytes()


def test_sixteen_bits():
    case = dodona.gen("matmul_persistent M=3 N=24 K=80 --attr kernel=deep_gemm")
    a, b = (case.arguments()[name] for name in ("a", "b"))
    for name, right in (("bf16_gemm_nn", b), ("bf16_gemm_nt", turned(b))):
        d = dodona.as_dtype(np.empty((3, 24), np.uint16), "bf16")
        getattr(deep_gemm, name)(a, right, d)
        assert bits(d) == bits(case.run()["c"])
    with pytest.raises(compat.Refused, match="bf16_gemm_nt: c is float32"):
        deep_gemm.bf16_gemm_nt(a, turned(b), d, c=np.zeros((3, 24), np.float32))
    grouped = dodona.as_dtype(np.empty((3, 24), np.uint16), "bf16")
    weights = np.stack([turned(b), turned(b)])
    deep_gemm.m_grouped_bf16_gemm_nt_contiguous(a, weights, grouped, np.array([1, -1, 0], np.int32))
    assert raw(grouped)[[0, 2]].tobytes() == raw(case.run()["c"]).view(np.uint16)[[0, 2]].tobytes() and not raw(grouped)[1].any()


def test_logits_of_ranges_and_with_columns_from_their_first_key_on():
    case = dodona.gen("fp8_mqa_logits M=4 H=32 D=64 N=77 --seed 2")
    a = case.arguments()
    kv, bounds = (a["kv"], a["kv_sf"]), (a["cu_seq_len_k_start"], a["cu_seq_len_k_end"])
    logits = deep_gemm.fp8_mqa_logits(a["q"], kv, a["weights"], *bounds)
    assert bits(logits) == bits(case.run()["logits"]) == bits(deep_gemm.fp8_fp4_mqa_logits((a["q"], None), kv, a["weights"], *bounds))
    narrow = deep_gemm.fp8_mqa_logits(a["q"], kv, a["weights"], *bounds, False, 9)
    for row, (begin, end) in enumerate(zip(*bounds)):
        count = min(9, end - begin)
        assert narrow[row, :count].tobytes() == logits[row, begin : begin + count].tobytes()
    with pytest.raises(compat.Refused, match="clean_logits is True, expected False with max_seqlen_k"):
        deep_gemm.fp8_mqa_logits(a["q"], kv, a["weights"], *bounds, max_seqlen_k=9)
    with pytest.raises(compat.Refused, match="fp8_mqa_logits: kv is .*expected a pair"):
        deep_gemm.fp8_mqa_logits(a["q"], a["kv"], a["weights"], *bounds)


def test_logits_of_pages_with_a_length_for_each_query():
    case = dodona.gen("fp8_paged_mqa_logits B=2 Q=2 H=32 D=64 pages=7 W=3 --attr max_context_len=150 --attr clean_logits=true --seed 2")
    a = case.arguments()
    meta = deep_gemm.get_paged_mqa_logits_metadata(a["context_lens"], 64, 132)
    assert meta.shape == (133, 2) and (np.diff(meta[:, 0]) >= 0).all()
    given = (a["q"], a["fused_kv_cache"], a["weights"])
    one = deep_gemm.fp8_paged_mqa_logits(*given, a["context_lens"], a["block_table"], meta, 150, True)
    assert bits(one) == bits(case.run()["logits"])
    each = np.maximum(a["context_lens"][:, None] + np.array([-1, 0], np.int32), 0)
    both = deep_gemm.fp8_paged_mqa_logits(*given, each, a["block_table"], meta, 150, True)
    assert bits(both) == bits(one)


def test_scales_are_laid_as_kernels_of_the_gpu_want_them(monkeypatch):
    scales = (2.0 ** np.arange(-7, 8).reshape(5, 3)).astype(np.float32)
    for major in (9, 10):
        monkeypatch.setattr("dodona.compat._deep_gemm.get_arch_major", lambda major=major: major)
        laid = deep_gemm.transform_sf_into_required_layout(scales, 5, 384, (1, 128, 128), is_sfa=True)
        assert laid.shape == (5, 3 if major == 9 else 1) and laid.strides[-2:] == (4, 32)
        numbers = laid if major == 9 else (np.ascontiguousarray(laid).view(np.uint8)[:, :3].astype(np.uint32) << 23).view(np.float32)
        assert (numbers == scales).all()
        blocks = deep_gemm.transform_sf_into_required_layout(scales, 5 * 128, 384, (1, 128, 128), is_sfa=False)
        assert blocks.shape == ((5, 3) if major == 9 else (640, 1))
    with pytest.raises(compat.Refused, match=r"sf has shape \[5, 3\], expected \[6, 3\]"):
        deep_gemm.transform_sf_into_required_layout(scales, 6, 384, (1, 128))


def test_settings_are_kept():
    before = deep_gemm.get_num_sms()
    deep_gemm.set_num_sms(100)
    assert deep_gemm.get_num_sms() == 100
    deep_gemm.set_num_sms(before)
    assert deep_gemm.utils.layout.get_tma_aligned_size(5, 4) == 8 and deep_gemm.ceil_div(7, 2) == 4


def test_what_is_missing_says_so():
    for name in ("fp8_fp4_mega_moe", "tf32_hc_prenorm_gemm"):
        with pytest.raises(compat.NotOffered, match=f"{name} is not offered"):
            getattr(deep_gemm, name)()


@pytest.mark.parametrize("lead", [(), (3,)])
def test_scales_that_lie_as_transfers_want_them_come_back_as_they_are(lead):
    rows = np.random.default_rng(1).random((*lead, 6, 5), np.float32)
    laid = deep_gemm.get_mn_major_tma_aligned_tensor(rows)
    assert laid is not rows and laid.strides[-2:] == (4, 32) and np.array_equal(laid, rows)
    assert deep_gemm.get_mn_major_tma_aligned_tensor(laid) is laid
