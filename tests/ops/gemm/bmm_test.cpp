// Rules of bmm.
#include "ops/gemm/bmm.h"

#include <gtest/gtest.h>

#include "dodona/error.h"
#include "quant/element.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using helpers::in_mode;

double wave(std::int64_t i) {
  return static_cast<double>((i * 7 + i / 5) % 13 - 6) / 4;
}

void fill(const Tensor& t, std::int64_t seed) {
  for (std::int64_t i = 0; i < t.elements(); ++i) quant::set(t, i, wave(seed * i + seed));
}

/// The exact product, by the plainest loop.
double plain(const ops::Bmm& op, std::int64_t l, std::int64_t m, std::int64_t n) {
  const std::int64_t rows = op.mat1.size(1), k = op.mat1.size(2), columns = op.mat2.size(2);
  double sum = 0;
  for (std::int64_t i = 0; i < k; ++i) sum += quant::get(op.mat1, (l * rows + m) * k + i) * quant::get(op.mat2, (l * k + i) * columns + n);
  return sum;
}

void expect_plain(const ops::Bmm& op, const Tensor& out, const std::string& what) {
  const std::int64_t rows = out.size(1), columns = out.size(2);
  for (std::int64_t i = 0; i < out.elements(); ++i)
    ASSERT_EQ(quant::get(out, i), quant::round_to(out.dtype(), plain(op, i / (rows * columns), i / columns % rows, i % columns))) << what;
}

TEST(Bmm, BothOrdersOfMat2GiveTheExactProduct) {
  for (const DType type : {DType::bf16, DType::f16, DType::f32})
    for (const std::int64_t m : {1, 3, 8})
      for (const std::int64_t n : {1, 17, 40})
        for (const std::int64_t k : {1, 16, 33, 80}) {
          ops::Bmm op{.mat1 = Tensor(DType::bf16, {2, m, k}), .mat2 = Tensor(type, {2, k, n}), .out = {}, .out_dtype = DType::f32};
          fill(op.mat1, 3), fill(op.mat2, 5);
          const Tensor by_rows = ops::run(op, in_mode(Mode::fast)).out;
          expect_plain(op, by_rows, "dense along N");
          op.mat2 = op.mat2.transpose(1, 2).clone().transpose(1, 2);
          const Tensor by_columns = ops::run(op, in_mode(Mode::fast)).out;
          expect_plain(op, by_columns, "dense along K");
        }
}

TEST(Bmm, BitsDoNotDependOnTheOrderOfMat2) {
  ops::Bmm op{.mat1 = Tensor(DType::f32, {1, 7, 1100}), .mat2 = Tensor(DType::bf16, {1, 1100, 35}), .out = {}, .out_dtype = DType::f32};
  for (std::int64_t i = 0; i < op.mat1.elements(); ++i) quant::set(op.mat1, i, 1.0 / static_cast<double>(i + 3));
  for (std::int64_t i = 0; i < op.mat2.elements(); ++i) quant::set(op.mat2, i, 1.0 / (static_cast<double>(i % 101) - 50.5));
  const Tensor by_rows = ops::run(op, in_mode(Mode::fast)).out;
  op.mat2 = op.mat2.transpose(1, 2).clone().transpose(1, 2);
  const Tensor by_columns = ops::run(op, in_mode(Mode::fast)).out;
  for (std::int64_t i = 0; i < by_rows.elements(); ++i) EXPECT_EQ(quant::get_bits(by_rows, i), quant::get_bits(by_columns, i));
}

TEST(Bmm, AbsorbsThroughTheViewsThatAttentionHas) {
  // q [B, H, D + R] without its rotary part, heads first; w_kc [H, D, C] stored [H, C, D]; out the heads-first view of [B, H, C].
  const std::int64_t b = 3, h = 4, d = 32, rotary = 16, c = 48;
  for (const DType type : {DType::bf16, DType::f32}) {
    const Tensor q(type, {b, h, d + rotary}), weight(DType::bf16, {h, c, d}), latent(type, {b, h, c});
    fill(q, 3), fill(weight, 5);
    const ops::Bmm op{
        .mat1 = q.slice(2, 0, d).transpose(0, 1), .mat2 = weight.transpose(1, 2), .out = latent.transpose(0, 1), .out_dtype = type};
    for (const Mode mode : {Mode::fast, Mode::golden}) {
      for (std::int64_t i = 0; i < latent.elements(); ++i) quant::set(latent, i, 99.0);
      ops::run(op, in_mode(mode));
      for (std::int64_t i = 0; i < latent.elements(); ++i) {
        double sum = 0;
        for (std::int64_t k = 0; k < d; ++k)
          sum += quant::get(q, i / c * (d + rotary) + k) * quant::get(weight, (i / c % h * c + i % c) * d + k);
        ASSERT_EQ(quant::get(latent, i), quant::round_to(type, sum)) << name(mode) << ' ' << i;
      }
    }
  }
}

TEST(Bmm, AMat2WithGapsBothWaysIsRefused) {
  ops::Bmm op{.mat1 = Tensor(DType::bf16, {2, 3, 8}), .mat2 = make_strided(DType::bf16, {2, 8, 5}, {200, 20, 2}), .out = {}};
  EXPECT_THROW(ops::run(op, in_mode(Mode::fast)), Error);
  op.mat2 = make_strided(DType::bf16, {2, 8, 5}, {200, 20, 1});
  EXPECT_NO_THROW(ops::run(op, in_mode(Mode::fast)));
}

TEST(Bmm, OneRowHasTheBitsItHasAmongOthers) {
  ops::Bmm op{.mat1 = Tensor(DType::f32, {2, 70, 40}), .mat2 = Tensor(DType::bf16, {2, 40, 33}), .out = {}, .out_dtype = DType::f32};
  for (std::int64_t i = 0; i < op.mat1.elements(); ++i) quant::set(op.mat1, i, 1.0 / static_cast<double>(i + 3));
  fill(op.mat2, 5);
  const Tensor all = ops::run(op, in_mode(Mode::fast)).out;
  for (const std::int64_t row : {0, 63, 64, 69}) {
    auto alone = op;
    alone.mat1 = op.mat1.slice(1, row, row + 1);
    const Tensor one = ops::run(alone, in_mode(Mode::fast)).out;
    for (std::int64_t l = 0; l < 2; ++l)
      for (std::int64_t n = 0; n < 33; ++n) EXPECT_EQ(quant::get_bits(one, l * 33 + n), quant::get_bits(all, (l * 70 + row) * 33 + n));
  }
}

}  // namespace
}  // namespace dodona
