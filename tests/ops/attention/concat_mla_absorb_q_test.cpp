#include "ops/attention/concat_mla_absorb_q.h"

#include <gtest/gtest.h>

#include "quant/element.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using helpers::all_modes, helpers::in_mode;

void fill_codes(const Tensor& tensor, std::uint64_t first) {
  for (std::int64_t i = 0; i < tensor.elements(); ++i) quant::set_bits(tensor, i, first + static_cast<std::uint64_t>(i) * 7);
}
void expect_concatenated(const ops::ConcatMlaAbsorbQ& op) {
  ASSERT_TRUE(op.out.contiguous());
  for (std::int64_t row = 0; row < op.a.size(0) * op.a.size(1); ++row)
    for (std::int64_t d = 0; d < 576; ++d)
      ASSERT_EQ(quant::get_bits(op.out, row * 576 + d),
                d < 512 ? quant::get_bits(op.a, row * 512 + d) : quant::get_bits(op.b, row * 64 + d - 512))
          << row << " " << d;
}
ErrorCode error_code(const ops::ConcatMlaAbsorbQ& op) {
  return helpers::error_from([&] { ops::run(op, in_mode(Mode::fast)); }).code();
}
ops::ConcatMlaAbsorbQ with(const Tensor& a, const Tensor& b) {
  ops::ConcatMlaAbsorbQ op;
  op.a = a;
  op.b = b;
  return op;
}

TEST(ConcatMlaAbsorbQ, LatentComesFirstThenRopeBitForBit) {
  for (const Mode mode : all_modes)
    for (const std::int64_t heads : {1, 16, 128}) {
      const Tensor a(DType::bf16, {3, heads, 512}), b(DType::bf16, {3, heads, 64});
      fill_codes(a, 0);
      fill_codes(b, 0x7F80);
      expect_concatenated(ops::run(with(a, b), in_mode(mode, 2)));
    }
}

TEST(ConcatMlaAbsorbQ, TheLatentPartMayBeATransposedProductAndTheRopePartASlice) {
  for (const Mode mode : all_modes) {
    const Tensor product(DType::bf16, {16, 5, 512}), query(DType::bf16, {5, 16, 192});
    fill_codes(product, 0);
    fill_codes(query, 1);
    expect_concatenated(ops::run(with(product.transpose(0, 1), query.slice(2, 128, 192)), in_mode(mode)));
  }
}

TEST(ConcatMlaAbsorbQ, OtherWidthsTypesAndHeadCountsAreRejected) {
  const Tensor a(DType::bf16, {2, 4, 512}), b(DType::bf16, {2, 4, 64});
  EXPECT_EQ(error_code(with(Tensor(DType::bf16, {2, 4, 256}), b)), ErrorCode::bad_shape);
  EXPECT_EQ(error_code(with(a, Tensor(DType::bf16, {2, 4, 128}))), ErrorCode::bad_shape);
  EXPECT_EQ(error_code(with(a, Tensor(DType::bf16, {2, 1, 64}))), ErrorCode::bad_shape);
  EXPECT_EQ(error_code(with(a, Tensor(DType::bf16, {3, 4, 64}))), ErrorCode::bad_shape);
  EXPECT_EQ(error_code(with(Tensor(DType::f16, {2, 4, 512}), Tensor(DType::f16, {2, 4, 64}))), ErrorCode::bad_dtype);
}

TEST(ConcatMlaAbsorbQ, BaseAddressesAreMultiplesOf16Bytes) {
  const Tensor a(DType::bf16, {2, 4, 512}), b(DType::bf16, {2, 4, 64}), wide(DType::bf16, {2, 4, 576});
  EXPECT_EQ(error_code(with(wide.slice(2, 1, 513), b)), ErrorCode::bad_alignment);
  EXPECT_EQ(error_code(with(a, wide.slice(2, 4, 68))), ErrorCode::bad_alignment);
}

TEST(ConcatMlaAbsorbQ, TheResultIsContiguous) {
  ops::ConcatMlaAbsorbQ op = with(Tensor(DType::bf16, {2, 4, 512}), Tensor(DType::bf16, {2, 4, 64}));
  op.out = make_strided(DType::bf16, {2, 4, 576}, {4 * 640, 640, 1});
  EXPECT_EQ(error_code(op), ErrorCode::bad_stride);
}

}  // namespace
}  // namespace dodona
