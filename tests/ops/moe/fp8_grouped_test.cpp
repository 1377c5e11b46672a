// Rules of the grouped fp8 products with scales of blocks.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "dodona/error.h"
#include "ops/gemm/fp8_blockwise_scaled_mm.h"
#include "ops/moe/grouped/es_fp8_blockwise_scaled_grouped_mm.h"
#include "ops/moe/grouped/fp8_blockwise_scaled_grouped_mm.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"
#include "tests/ops/ints.h"

namespace dodona {
namespace {

using namespace helpers;

constexpr std::int64_t n = 256, k = 384, m = 150;
/// The second expert is empty; row 135 and the last row belong to nobody.
const std::vector<std::int32_t> first_rows{0, 5, 5, 136}, counts{5, 0, 130, 13};

Tensor scales(const Dims& shape, const char* name) {
  Tensor t(DType::f32, shape);
  oracle::fill(t, Role::scale, 0, "normal", 3, name);
  return t;
}

template <class Call>
class Fp8Grouped : public testing::Test {
 protected:
  static Call call() {
    std::vector<std::int32_t> sizes;
    for (const std::int32_t count : counts) sizes.insert(sizes.end(), {count, static_cast<std::int32_t>(n), static_cast<std::int32_t>(k)});
    Call op;
    op.a = normal(DType::f8_e4m3, {m, k}, "a");
    op.b = normal(DType::f8_e4m3, {4, n, k}, "b").transpose(1, 2);
    op.scales_a = scales({m, k / 128}, "scales_a");
    op.scales_b = scales({4, n / 128, k / 128}, "scales_b").transpose(1, 2);
    op.problem_sizes = ints({4, 3}, sizes);
    op.expert_offsets = ints({4}, first_rows);
    return op;
  }

  /// The single product of the rows and the weight of one expert, in one chain of blocks.
  static Tensor alone(const Call& op, std::size_t e, const Exec& exec) {
    const auto i = static_cast<std::int64_t>(e);
    const auto rows = [e](const Tensor& t) { return t.slice(0, first_rows[e], first_rows[e] + counts[e]); };
    const auto weight = [i](const Tensor& t) {
      const Tensor stored = t.transpose(1, 2).slice(0, i, i + 1);
      return stored.reshape({stored.size(1), stored.size(2)}).transpose(0, 1);
    };
    ops::Fp8BlockwiseScaledMm single{.mat_a = rows(op.a),
                                     .mat_b = weight(op.b),
                                     .scales_a = rows(op.scales_a).transpose(0, 1).clone().transpose(0, 1),
                                     .scales_b = weight(op.scales_b)};
    single.out_dtype = op.out_dtype;
    single.kernel = "deep_gemm";
    return ops::run(single, exec).out;
  }

  static bool is_alone(const Call& op, std::size_t e, const Exec& exec, const Tensor& out) {
    return std::memcmp(out.as<std::uint16_t>() + first_rows[e] * n, alone(op, e, exec).data(),
                       static_cast<std::size_t>(counts[e] * n * 2)) == 0;
  }
};

using Calls = testing::Types<ops::Fp8BlockwiseScaledGroupedMm, ops::EsFp8BlockwiseScaledGroupedMm>;
TYPED_TEST_SUITE(Fp8Grouped, Calls);

TYPED_TEST(Fp8Grouped, EveryExpertIsTheSingleProduct) {
  for (const DType type : {DType::bf16, DType::f16})
    for (const Mode mode : {Mode::golden, Mode::fast}) {
      auto op = this->call();
      op.out_dtype = type;
      const Tensor out = ops::run(op, in_mode(mode)).output;
      for (const std::size_t e : {0u, 2u, 3u}) EXPECT_TRUE(this->is_alone(op, e, in_mode(mode), out)) << "expert " << e;
    }
}

/// Two blocks whose sums cancel but for what is rounded: the product of the scales, or nothing before the last addition.
TYPED_TEST(Fp8Grouped, OnHopperTheSpecializedKernelMultipliesUpToSixtyFourRowsWithOneScaleAfterTheOther) {
  constexpr bool specialized = std::is_same_v<TypeParam, ops::EsFp8BlockwiseScaledGroupedMm>;
  for (const std::int64_t rows : {1, 32, 33, 64, 65, 128, 129}) {
    TypeParam op;
    op.a = filled(DType::f8_e4m3, {rows, 256}, 1.0);
    const Tensor weight = filled(DType::f8_e4m3, {1, 128, 256}, 1.0);
    for (std::int64_t i = 0; i < 128 * 256; ++i)
      if (i % 256 >= 128) quant::set(weight, i, -1.0);
    op.b = weight.transpose(1, 2);
    op.scales_a = filled(DType::f32, {rows, 2}, 1 + 0x1p-13);
    op.scales_b = filled(DType::f32, {1, 1, 2}, 1 + 0x1p-13).transpose(1, 2);
    op.expert_offsets = ints({1}, {0});
    const Tensor out = ops::run(op, in_mode(Mode::hopper)).output;
    EXPECT_EQ(quant::get(out, (rows - 1) * 128), specialized && rows <= 64 ? -0x1p-19 : 0.0) << rows << " rows";
  }
}

TYPED_TEST(Fp8Grouped, RowsOfNobodyAreZeroAndNotCompared) {
  for (const Mode mode : all_modes) {
    auto op = this->call();
    op.output = filled(DType::bf16, {m, n}, 7.0);
    const Tensor out = ops::run(op, in_mode(mode)).output;
    for (const std::int64_t row : {std::int64_t{135}, m - 1})
      for (std::int64_t j = 0; j < n; ++j) ASSERT_EQ(quant::get(out, row * n + j), 0.0) << name(mode);
    EXPECT_NE(quant::get(out, 134 * n), 7.0);
  }
}

TYPED_TEST(Fp8Grouped, OneExpertMayHaveAllRowsAndOthersNone) {
  auto op = this->call();
  op.problem_sizes = {};
  op.expert_offsets = ints({4}, {0, 0, 150, 150});
  for (const Mode mode : all_modes) {
    auto whole = this->call();
    whole.problem_sizes = ints({4, 3}, {0, 256, 384, 150, 256, 384, 0, 256, 384, 0, 256, 384});
    whole.expert_offsets = ints({4}, {0, 0, 150, 150});
    EXPECT_TRUE(same_bits(ops::run(op, in_mode(mode)).output, ops::run(whole, in_mode(mode)).output)) << name(mode);
  }
}

TYPED_TEST(Fp8Grouped, GroupsThatDoNotFitAreErrors) {
  const auto expect = [&](const auto& change, const std::string& text) {
    auto op = this->call();
    change(op);
    const std::string error = error_of(op);
    EXPECT_NE(error.find(std::string(TypeParam::info.name) + ": " + text), std::string::npos) << error;
  };
  expect([](auto& op) { op.expert_offsets = ints({4}, {0, 5, 4, 136}); }, "expert_offsets holds 4 at element 2, expected rising offsets");
  expect([](auto& op) { op.expert_offsets = ints({4}, {1, 5, 5, 136}); }, "expert_offsets holds 1 at element 0, expected 0");
  expect([](auto& op) { op.expert_offsets = ints({4}, {0, 5, 5, 151}); }, "expert_offsets holds 151 at element 3");
  expect([](auto& op) { op.expert_offsets = ints({4}, {0, 5, 5, 138}); }, "problem_sizes gives expert 3 the 13 rows from 138");
  expect([](auto& op) { op.problem_sizes.template as<std::int32_t>()[3] = -1; }, "problem_sizes holds -1 at element 3");
  expect([](auto& op) { op.problem_sizes.template as<std::int32_t>()[4] = 128; }, "problem_sizes holds 128 at element 4, expected N = 256");
  expect([](auto& op) { op.problem_sizes.template as<std::int32_t>()[8] = 256; }, "problem_sizes holds 256 at element 8, expected K = 384");
  expect([](auto& op) { op.a = normal(DType::f8_e4m3, {m, 320}, "a"); }, "b has shape [4, 384, 256], expected [E, K, N]");
  expect([](auto& op) { op.stride_a = filled(DType::i64, {4}, 128); }, "stride_a holds 128 at element 0, expected 384");
}

}  // namespace
}  // namespace dodona
