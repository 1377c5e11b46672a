// Rules of cutlass_fp4_group_mm, and of the grouped product with packed weights.
#include "ops/moe/grouped/cutlass_fp4_group_mm.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "core/random.h"
#include "dodona/error.h"
#include "ops/gemm/cutlass_scaled_fp4_mm.h"
#include "oracle/judge/judge.h"
#include "quant/swizzle.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"
#include "tests/ops/ints.h"

namespace dodona {
namespace {

using helpers::in_mode, helpers::ints;

constexpr Mode both_modes[] = {Mode::golden, Mode::fast};

template <class T>
Tensor list(DType type, const Dims& shape, const std::vector<T>& values) {
  const Tensor t(type, shape);
  std::memcpy(t.data(), values.data(), sizeof(T) * values.size());
  return t;
}
Tensor bytes(DType type, const Dims& shape, const char* name, std::uint64_t below) {
  const Tensor t(type, shape);
  const Stream stream(11, name);
  for (std::int64_t i = 0; i < t.elements(); ++i)
    t.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(word(stream, static_cast<std::uint64_t>(i)) % below);
  return t;
}

constexpr std::int64_t n = 96, k = 160, m = 150;
const std::vector<float> alphas{0.5f, 3.0f, -1.0f, 0.01f};
const std::vector<std::int32_t> first_rows{0, 5, 5, 136}, counts{5, 0, 130, 13}, first_scales{128, 256, 256, 512};

/// Four experts, the second one empty; row 135 and the last row belong to nobody.
ops::CutlassFp4GroupMm call() {
  std::vector<std::int32_t> sizes;
  for (const std::int32_t count : counts) sizes.insert(sizes.end(), {count, static_cast<std::int32_t>(n), static_cast<std::int32_t>(k)});
  return {.a_fp4 = bytes(DType::u8, {m, k / 2}, "a", 256),
          .b_fp4 = bytes(DType::u8, {4, n, k / 2}, "b", 256),
          .a_blockscale = bytes(DType::f8_e4m3, {640, 12}, "as", 0x7F),
          .b_blockscale = bytes(DType::f8_e4m3, {4, 128, 12}, "bs", 0x7F),
          .alphas = list(DType::f32, {4}, alphas),
          .ab_strides = list(DType::i64, {4}, std::vector<std::int64_t>(4, k)),
          .c_strides = list(DType::i64, {4}, std::vector<std::int64_t>(4, n)),
          .problem_sizes = list(DType::i32, {4, 3}, sizes),
          .expert_offsets = ints(first_rows),
          .blockscale_offsets = ints(first_scales),
          .out = {}};
}

/// The bits of the single product for one expert.
Tensor alone(const ops::CutlassFp4GroupMm& op, std::size_t e, const Exec& exec) {
  const auto i = static_cast<std::int64_t>(e);
  const auto single = ops::run(
      ops::CutlassScaledFp4Mm{.a = op.a_fp4.slice(0, first_rows[e], first_rows[e] + counts[e]),
                              .b = op.b_fp4.slice(0, i, i + 1).reshape({n, k / 2}),
                              .block_scale_a = op.a_blockscale.slice(0, first_scales[e], first_scales[e] + quant::align(counts[e], 128)),
                              .block_scale_b = op.b_blockscale.slice(0, i, i + 1).reshape({128, 12}),
                              .alpha = list(DType::f32, {1}, std::vector<float>{alphas[e]}),
                              .out = {},
                              .out_dtype = op.out_dtype},
      exec);
  return single.out;
}

void expect_experts_alone(const ops::CutlassFp4GroupMm& op, const Exec& exec, const Tensor& out) {
  for (const std::size_t e : {0u, 2u, 3u})
    EXPECT_EQ(
        0, std::memcmp(out.as<std::uint16_t>() + first_rows[e] * n, alone(op, e, exec).data(), static_cast<std::size_t>(counts[e] * n * 2)))
        << "expert " << e;
}

TEST(CutlassFp4GroupMm, EveryExpertIsTheSingleProduct) {
  for (const DType type : {DType::bf16, DType::f16})
    for (const Mode mode : both_modes) {
      auto op = call();
      op.out_dtype = type;
      expect_experts_alone(op, in_mode(mode), ops::run(op, in_mode(mode)).out);
    }
}

TEST(CutlassFp4GroupMm, OnlyExpertsWithRowsNeedWeights) {
  auto op = call();
  const Tensor codes = op.b_fp4, scales = op.b_blockscale, offsets = op.expert_offsets;
  op.b_fp4 = op.b_blockscale = Tensor();
  for (const Isa isa : available_isas()) {
    const Exec exec = in_mode(Mode::fast, 2, isa);
    std::vector<Prepared> alone;
    for (std::int64_t e = 0; e < 4; ++e)
      alone.push_back(
          ops::prepare(ops::CutlassFp4GroupMm{.b_fp4 = codes.slice(0, e, e + 1), .b_blockscale = scales.slice(0, e, e + 1)}, exec));
    const Prepared::Place visited[] = {{0, &alone[0]}, {2, &alone[2]}, {3, &alone[3]}};
    const auto out = ops::run(op, exec, Prepared::gather(4, visited)).out;
    auto raw = op;
    raw.b_fp4 = codes, raw.b_blockscale = scales;
    expect_experts_alone(raw, exec, out);
    const Error error = helpers::error_from([&] { ops::run(op, exec, Prepared::gather(4, std::span(visited).first(2))); });
    EXPECT_STREQ(error.what(),
                 ("cutlass_fp4_group_mm: prepared holds no weights of expert 3, which has " + std::to_string(counts[3]) + " rows").c_str());
  }
}

TEST(CutlassFp4GroupMm, WithoutSizesAndScaleOffsetsGroupsFollowOneAnother) {
  auto op = call();
  op.ab_strides = op.c_strides = op.problem_sizes = op.blockscale_offsets = {};
  op.expert_offsets = ints({0, 20, 20, 149});
  auto explicit_op = op;
  explicit_op.problem_sizes = list(DType::i32, {4, 3}, std::vector<std::int32_t>{20, 96, 160, 0, 96, 160, 129, 96, 160, 1, 96, 160});
  explicit_op.blockscale_offsets = ints({0, 128, 128, 384});
  for (const Mode mode : both_modes) {
    const auto a = ops::run(op, in_mode(mode)).out, b = ops::run(explicit_op, in_mode(mode)).out;
    EXPECT_EQ(0, std::memcmp(a.data(), b.data(), m * n * 2)) << name(mode);
  }
}

TEST(CutlassFp4GroupMm, RowsOfNobodyAreZeroAndNotCompared) {
  for (const Mode mode : both_modes) {
    auto op = call();
    op.out = Tensor(DType::bf16, {m, n});
    std::memset(op.out.data(), 0x5A, m * n * 2);
    op = ops::run(op, in_mode(mode));
    auto* out = op.out.as<std::uint16_t>();
    EXPECT_EQ(out[135 * n + 7], 0);
    EXPECT_EQ(out[149 * n], 0);
    out[135 * n + 7] = out[149 * n] = 0x4242;
    Arguments inputs;
    for (const auto& [key, tensor] : {std::pair{"a_fp4", op.a_fp4},
                                      {"b_fp4", op.b_fp4},
                                      {"a_blockscale", op.a_blockscale},
                                      {"b_blockscale", op.b_blockscale},
                                      {"alphas", op.alphas},
                                      {"problem_sizes", op.problem_sizes},
                                      {"expert_offsets", op.expert_offsets},
                                      {"blockscale_offsets", op.blockscale_offsets}})
      inputs.set(key, tensor);
    const Op& entry = registry().at("cutlass_fp4_group_mm");
    EXPECT_EQ(oracle::judge(entry, inputs, {{"out", op.out}}, {}).outcome, oracle::Outcome::pass);
    out[134 * n] ^= 0x0100;
    EXPECT_EQ(oracle::judge(entry, inputs, {{"out", op.out}}, {}).failing(), 1);
  }
}

TEST(CutlassFp4GroupMm, GroupsThatDoNotFitAreErrors) {
  const auto expect = [](const auto& change, const std::string& text) {
    auto op = call();
    change(op);
    const std::string error = helpers::error_of(op);
    EXPECT_NE(error.find("cutlass_fp4_group_mm: " + text), std::string::npos) << error;
  };
  using Call = ops::CutlassFp4GroupMm;
  expect([](Call& op) { op.expert_offsets = ints({0, 5, 4, 136}); }, "expert_offsets holds 4 at element 2, expected rising offsets");
  expect([](Call& op) { op.expert_offsets = ints({0, 5, 5, 151}); }, "expert_offsets holds 151 at element 3");
  expect([](Call& op) { op.expert_offsets = ints({0, 5, 5, 134}); }, "problem_sizes gives expert 3 the 13 rows from 134");
  expect([](Call& op) { op.expert_offsets = ints({0, 5, 5, 138}); }, "problem_sizes gives expert 3 the 13 rows from 138");
  expect([](Call& op) { op.problem_sizes.as<std::int32_t>()[3] = -1; }, "problem_sizes holds -1 at element 3");
  expect([](Call& op) { op.problem_sizes.as<std::int32_t>()[4] = 97; }, "problem_sizes holds 97 at element 4, expected N = 96");
  expect([](Call& op) { op.problem_sizes.as<std::int32_t>()[8] = 96; }, "problem_sizes holds 96 at element 8, expected K = 160");
  expect(
      [](Call& op) {
        op.blockscale_offsets = ints({128, 256, 256, 500});
      },
      "blockscale_offsets holds 500 at element 3, expected a multiple");
  expect(
      [](Call& op) {
        op.blockscale_offsets = ints({128, 256, 256, 384});
      },
      "blockscale_offsets holds 384 at element 3, expected from 512");
  expect([](Call& op) { op.blockscale_offsets = ints({128, 256, 256, 640}); }, "blockscale_offsets holds 640 at element 3");
  expect([](Call& op) { op.ab_strides.as<std::int64_t>()[2] = 80; }, "ab_strides holds 80 at element 2, expected 160");
  expect([](Call& op) { op.c_strides = list(DType::i64, {3}, std::vector<std::int64_t>(3, n)); }, "c_strides has shape [3]");
}

}  // namespace
}  // namespace dodona
