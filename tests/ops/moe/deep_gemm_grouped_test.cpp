// Rules of DeepGEMM's grouped fp8 products: whose weight a row takes, and which rows are nobody's.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "dodona/error.h"
#include "ops/gemm/fp8_gemm_nt.h"
#include "ops/moe/grouped/m_grouped_fp8_gemm_nt_contiguous.h"
#include "ops/moe/grouped/m_grouped_fp8_gemm_nt_masked.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"
#include "tests/ops/ints.h"

namespace dodona {
namespace {

using namespace helpers;

constexpr std::int64_t n = 136, k = 272;
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

Tensor scales(const Dims& shape, const char* name) {
  Tensor t(DType::f32, shape);
  oracle::fill(t, Role::scale, 0, "normal", 3, name);
  return t;
}
Tensor matrix(const Tensor& stack, std::int64_t g) {
  return stack.slice(0, g, g + 1).reshape({stack.size(1), stack.size(2)});
}

/// The dense product of some rows with one weight.
Tensor alone(const Tensor& a, const Tensor& sfa, const Tensor& b, const Tensor& sfb, const Exec& exec) {
  return ops::run(ops::Fp8GemmNt{.a = a, .sfa = sfa, .b = b, .sfb = sfb}, exec).d;
}
bool same_rows(const Tensor& out, std::int64_t row, const Tensor& rows) {
  return std::memcmp(out.as<std::uint16_t>() + row * n, rows.data(), static_cast<std::size_t>(rows.elements() * 2)) == 0;
}
bool are_zero(const Tensor& out, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin * n; i < end * n; ++i)
    if (quant::get(out, i) != 0) return false;
  return true;
}

/// Two blocks of rows: 5 of group 2 and padding, then 70 of group 0 and padding.
ops::MGroupedFp8GemmNtContiguous contiguous() {
  std::vector<std::int32_t> indices(210, -1);
  for (std::size_t i = 0; i < 5; ++i) indices[i] = 2;
  for (std::size_t i = 128; i < 198; ++i) indices[i] = 0;
  return {.a = normal(DType::f8_e4m3, {210, k}, "a"),
          .sfa = scales({210, 3}, "sfa"),
          .b = normal(DType::f8_e4m3, {3, n, k}, "b"),
          .sfb = scales({3, 2, 3}, "sfb"),
          .d = filled(DType::bf16, {210, n}, 9.0),
          .m_indices = ints(indices)};
}

TEST(DeepGemmGrouped, ContiguousRowsAreTheDenseProductOfTheirGroup) {
  for (const Mode mode : all_modes) {
    const auto op = contiguous();
    const Exec exec = in_mode(mode);
    const Tensor out = ops::run(op, exec).d;
    const auto rows = [&](std::int64_t begin, std::int64_t end, std::int64_t g) {
      return alone(op.a.slice(0, begin, end), op.sfa.slice(0, begin, end), matrix(op.b, g), matrix(op.sfb, g), exec);
    };
    EXPECT_TRUE(same_rows(out, 0, rows(0, 5, 2))) << name(mode);
    EXPECT_TRUE(same_rows(out, 128, rows(128, 198, 0))) << name(mode);
    EXPECT_TRUE(are_zero(out, 5, 128) && are_zero(out, 198, 210)) << name(mode);
  }
}

TEST(DeepGemmGrouped, MaskedRowsAreTheDenseProductOfTheirGroup) {
  for (const Mode mode : all_modes) {
    const ops::MGroupedFp8GemmNtMasked op{.a = normal(DType::f8_e4m3, {3, 64, k}, "a"),
                                          .sfa = scales({3, 64, 3}, "sfa"),
                                          .b = normal(DType::f8_e4m3, {3, n, k}, "b"),
                                          .sfb = scales({3, 2, 3}, "sfb"),
                                          .d = filled(DType::bf16, {3, 64, n}, 9.0),
                                          .masked_m = ints({64, 0, 4})};
    const Exec exec = in_mode(mode);
    const Tensor out = ops::run(op, exec).d;
    const std::int64_t counts[] = {64, 0, 4};
    for (const std::int64_t g : {0, 1, 2}) {
      if (counts[g] > 0)
        EXPECT_TRUE(same_rows(out, g * 64,
                              alone(matrix(op.a, g).slice(0, 0, counts[g]), matrix(op.sfa, g).slice(0, 0, counts[g]), matrix(op.b, g),
                                    matrix(op.sfb, g), exec)))
            << name(mode) << " group " << g;
      EXPECT_TRUE(are_zero(out, g * 64 + counts[g], g * 64 + 64)) << name(mode) << " group " << g;
    }
  }
}

TEST(DeepGemmGrouped, ScalesOfRowsThatDoNotCountMayBeAnything) {
  const auto set = [](const Tensor& sfa, std::int64_t row) {
    sfa.as<float>()[sfa.offset(3 * row + 1)] = std::numeric_limits<float>::quiet_NaN();
  };
  const auto fails_with = [](const auto& op, const std::string& words) {
    const std::string message = error_of(op);
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  for (const Mode mode : all_modes) {
    const auto plain = contiguous();
    const auto stale = contiguous();
    for (const std::int64_t row : {5, 127, 209}) set(stale.sfa, row);
    EXPECT_TRUE(same_bits(ops::run(plain, in_mode(mode)).d, ops::run(stale, in_mode(mode)).d)) << name(mode);

    const auto masked = [] {
      return ops::MGroupedFp8GemmNtMasked{.a = normal(DType::f8_e4m3, {3, 64, k}, "a"),
                                          .sfa = scales({3, 64, 3}, "sfa"),
                                          .b = normal(DType::f8_e4m3, {3, n, k}, "b"),
                                          .sfb = scales({3, 2, 3}, "sfb"),
                                          .d = filled(DType::bf16, {3, 64, n}, 9.0),
                                          .masked_m = ints({64, 0, 4})};
    };
    const auto good = masked(), behind = masked();
    for (const std::int64_t row : {64, 127, 132, 191}) set(behind.sfa, row);
    EXPECT_TRUE(same_bits(ops::run(good, in_mode(mode)).d, ops::run(behind, in_mode(mode)).d)) << name(mode);
  }
  const auto op = contiguous();
  set(op.sfa, 4);
  fails_with(op, "sfa holds NaN at element 13, expected a scale");
  const auto last = ops::MGroupedFp8GemmNtMasked{.a = normal(DType::f8_e4m3, {1, 2, k}, "a"),
                                                 .sfa = scales({1, 2, 3}, "sfa"),
                                                 .b = normal(DType::f8_e4m3, {1, n, k}, "b"),
                                                 .sfb = scales({1, 2, 3}, "sfb"),
                                                 .masked_m = ints({2})};
  set(last.sfa, 1);
  fails_with(last, "sfa holds NaN at element 4, expected a scale");
}

TEST(DeepGemmGrouped, AnH100sTilesDoNotReachOverAGroup) {
  const auto masked = [](std::int64_t m, const std::vector<std::int32_t>& counts, std::int64_t expected = 1) {
    return ops::MGroupedFp8GemmNtMasked{.a = normal(DType::f8_e4m3, {2, m, k}, "a"),
                                        .sfa = scales({2, m, 3}, "sfa"),
                                        .b = normal(DType::f8_e4m3, {2, n, k}, "b"),
                                        .sfb = scales({2, 2, 3}, "sfb"),
                                        .masked_m = ints(counts),
                                        .expected_m = expected};
  };
  EXPECT_THROW(ops::run(masked(5, {1, 0}), in_mode(Mode::hopper)), Error);
  // Where more than 64 rows are expected, tiles may have 128.
  EXPECT_NO_THROW(ops::run(masked(64, {1, 0}, 64), in_mode(Mode::hopper)));
  EXPECT_THROW(ops::run(masked(64, {1, 0}, 65), in_mode(Mode::hopper)), Error);
  EXPECT_NO_THROW(ops::run(masked(128, {1, 0}, 300), in_mode(Mode::hopper)));
  EXPECT_NO_THROW(ops::run(masked(5, {0, 5}), in_mode(Mode::hopper)));
  EXPECT_NO_THROW(ops::run(masked(64, {1, 0}), in_mode(Mode::hopper)));
  EXPECT_NO_THROW(ops::run(masked(5, {1, 0}), in_mode(Mode::golden)));
}

TEST(DeepGemmGrouped, ATileThatOverrunsItsGroupLeavesZerosAndNoOtherNumber) {
  const NamedOp op{"m_grouped_fp8_gemm_nt_masked"};
  const Arguments a = op.case_of("G=2 M=8 N=24 K=256 --seed 3");
  oracle::NamedTensors outputs = op.outputs(a, in_mode(Mode::golden));
  const Tensor d = outputs[0].second;
  const std::int64_t place = 8 * 24 + 5;  // of group 1
  ASSERT_GT(quant::get(*a.find("masked_m"), 0), 0);
  ASSERT_GT(quant::get(*a.find("masked_m"), 1), 0);
  for (const auto& [x, outcome] :
       {std::pair{0.0, oracle::Outcome::known_defect}, {1e4, oracle::Outcome::fail}, {nan, oracle::Outcome::fail}}) {
    quant::set(d, place, x);
    EXPECT_EQ(oracle::judge(op.op(), a, outputs, {}).outcome, outcome) << x;
  }
}

TEST(DeepGemmGrouped, IndicesThatDoNotFitAreOneErrorEach) {
  const auto with_index = [](std::size_t at, std::int32_t value) {
    auto op = contiguous();
    op.m_indices.as<std::int32_t>()[at] = value;
    return error_of(op);
  };
  EXPECT_NE(with_index(3, 3).find("m_grouped_fp8_gemm_nt_contiguous: m_indices holds 3 at element 3, expected -1 for padding"),
            std::string::npos);
  EXPECT_NE(with_index(3, -2).find("m_indices holds -2 at element 3"), std::string::npos);
  EXPECT_NE(with_index(4, 1).find("m_indices holds 1 at element 4, expected 2 or -1: a block of 128 rows"), std::string::npos);
  EXPECT_NE(with_index(209, 0).find("m_indices holds 0 at element 209, expected -1: a block of 128 rows"), std::string::npos);
  EXPECT_EQ(with_index(4, -1), "");
  const ops::MGroupedFp8GemmNtMasked masked{.a = normal(DType::f8_e4m3, {1, 2, k}, "a"),
                                            .sfa = scales({1, 2, 3}, "sfa"),
                                            .b = normal(DType::f8_e4m3, {1, n, k}, "b"),
                                            .sfb = scales({1, 2, 3}, "sfb"),
                                            .masked_m = ints({3})};
  EXPECT_THROW(ops::run(masked, in_mode(Mode::fast)), Error);
}

}  // namespace
}  // namespace dodona
