// QServe products: where weights, scales and zero points lie, what wraps, and what the epilogues round.
#include <gtest/gtest.h>

#include <cstring>

#include "dodona/error.h"
#include "ops/gemm/qserve_w4a8_per_chn_gemm.h"
#include "ops/gemm/qserve_w4a8_per_group_gemm.h"
#include "quant/qserve.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;
using ops::QserveW4a8PerChnGemm;
using ops::QserveW4a8PerGroupGemm;

/// Row i has its one at k = i, so that output (i, n) is weight (n, i).
Tensor unit_rows(std::int64_t k) {
  Tensor rows = filled(DType::i8, {k, k}, 0);
  for (std::int64_t i = 0; i < k; ++i) quant::set(rows, i * k + i, 1);
  return rows;
}
/// A code for every place, without a pattern.
std::uint8_t code_at(std::int64_t n, std::int64_t k) {
  return static_cast<std::uint8_t>((n * 2654435761u + static_cast<std::uint64_t>(k) * 40503u) >> 5 & 0xF);
}
Tensor packed_kernel(std::int64_t n, std::int64_t k) {
  std::vector<std::uint8_t> values, packed(static_cast<std::size_t>(n * k / 2));
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t i = 0; i < k; ++i) values.push_back(code_at(j, i));
  quant::pack_qserve(values, n, k, packed);
  Tensor kernel(DType::i8, {n, k / 2});
  std::memcpy(kernel.data(), packed.data(), packed.size());
  return kernel;
}

TEST(QservePerChannel, EachWeightIsReadFromItsTile) {
  constexpr std::int64_t n = 128, k = 256;
  const QserveW4a8PerChnGemm op{.in_feats = unit_rows(k),
                                .kernel = packed_kernel(n, k),
                                .wscales = filled(DType::f16, {n, 1}, 1),
                                .ascales = filled(DType::f16, {k, 1}, 1),
                                .w_szs = filled(DType::f16, {n}, 0),
                                .a_ssums = filled(DType::f16, {k, 1}, 0)};
  for (const Mode mode : all_modes) {
    const Tensor out = ops::run(op, in_mode(mode)).out_feats;
    for (std::int64_t e = 0; e < n * k; ++e) ASSERT_EQ(quant::get(out, e), code_at(e % n, e / n)) << name(mode) << e;
  }
}

TEST(QservePerChannel, ZeroPointsAreTakenOffInOneRoundingWithTheLastProduct) {
  QserveW4a8PerChnGemm op{.in_feats = filled(DType::i8, {1, 128}, 0),
                          .kernel = filled(DType::i8, {64, 64}, 0x11),
                          .wscales = filled(DType::f16, {64}, 1231 * 0x1p-11),
                          .ascales = filled(DType::f16, {1}, 1271 * 0x1p-11),
                          .w_szs = filled(DType::f16, {64}, 1129 * 0x1p-11),
                          .a_ssums = filled(DType::f16, {1}, 0x1.094p+6)};
  quant::set(op.in_feats, 0, 98);
  // The product with ascales has 31 bits; what fp32 drops of them, or of the other product, decides.
  for (const Mode mode : {Mode::fast, Mode::hopper})
    EXPECT_EQ(quant::get(ops::run(op, in_mode(mode)).out_feats, 5), 0x1.ca4p-11) << name(mode);
}

TEST(QservePerGroup, WeightsWrapAndChannelsArePermutedInsideThirtyTwo) {
  constexpr std::int64_t n = 64, k = 256;
  std::vector<std::int8_t> scales, zeros, stored(static_cast<std::size_t>(n * k / 128));
  for (std::int64_t e = 0; e < n * k / 128; ++e) {
    scales.push_back(static_cast<std::int8_t>(e * 7 % 18));
    zeros.push_back(static_cast<std::int8_t>(e * 37 + 11));
  }
  QserveW4a8PerGroupGemm op{.in_feats = unit_rows(k),
                            .kernel = packed_kernel(n, k),
                            .zeros = Tensor(DType::i8, {k / 128, n}),
                            .scales_i8 = Tensor(DType::i8, {k / 128, n}),
                            .wscales = filled(DType::f16, {n}, 1),
                            .ascales = filled(DType::f16, {k}, 1)};
  quant::permute_qserve_scales(scales, k / 128, n, stored);
  std::memcpy(op.scales_i8.data(), stored.data(), stored.size());
  quant::permute_qserve_scales(zeros, k / 128, n, stored);
  std::memcpy(op.zeros.data(), stored.data(), stored.size());
  for (const Mode mode : all_modes) {
    const Tensor out = ops::run(op, in_mode(mode)).out_feats;
    for (std::int64_t e = 0; e < n * k; ++e) {
      const auto at = static_cast<std::size_t>(e / n / 128 * n + e % n);
      const int wide = code_at(e % n, e / n) * scales[at] + zeros[at];
      ASSERT_EQ(quant::get(out, e), (wide + 128 + 256) % 256 - 128) << name(mode) << e;
    }
  }
}

TEST(QservePerGroup, AScaleWhoseProductsLeaveTheirByteIsRefused) {
  QserveW4a8PerGroupGemm op{.in_feats = filled(DType::i8, {1, 128}, 1),
                            .kernel = filled(DType::i8, {64, 64}, 0x11),
                            .zeros = filled(DType::i8, {1, 64}, 0),
                            .scales_i8 = filled(DType::i8, {1, 64}, 17),
                            .wscales = filled(DType::f16, {64}, 1),
                            .ascales = filled(DType::f16, {1}, 1)};
  for (const Mode mode : all_modes) EXPECT_EQ(quant::get(ops::run(op, in_mode(mode)).out_feats, 63), 128 * 17) << name(mode);
  quant::set(op.scales_i8, 40, 18);
  EXPECT_THROW(ops::run(op, in_mode(Mode::fast)), Error);
  EXPECT_THROW(ops::prepare(QserveW4a8PerGroupGemm{.kernel = op.kernel, .zeros = op.zeros, .scales_i8 = op.scales_i8}, Exec{}), Error);
  quant::set(op.scales_i8, 40, -1);
  EXPECT_THROW(ops::run(op, in_mode(Mode::golden)), Error);
}

TEST(Qserve, WhereKernelsLeaveColumnsUnwrittenThereIsNoHopperMode) {
  const auto supported = [](std::int64_t m, std::int64_t n) {
    const NamedOp op{"qserve_w4a8_per_chn_gemm"};
    const Arguments inputs = op.case_of("M=" + std::to_string(m) + " N=" + std::to_string(n) + " K=128");
    return op.op().supports(oracle::runnable(op.op(), inputs), Mode::hopper);
  };
  EXPECT_TRUE(supported(256, 64));
  EXPECT_TRUE(supported(257, 128));
  EXPECT_FALSE(supported(257, 64));
}

}  // namespace
}  // namespace dodona
