#include "dodona/tensor.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "core/call.h"
#include "dodona/error.h"
#include "tests/errors.h"

namespace dodona {
namespace {

template <class F>
ErrorCode code_of(F&& f) {
  return helpers::error_from(f).code();
}

TEST(Tensor, OwnsAlignedZeroedMemory) {
  const Tensor t(DType::bf16, {3, 5});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data()) % 64, 0u);
  EXPECT_TRUE(t.contiguous());
  for (int i = 0; i < 15; ++i) EXPECT_EQ(t.as<std::uint16_t>()[i], 0);
}

TEST(Tensor, AbsurdSizesAreErrorsNotCrashes) {
  EXPECT_EQ(code_of([] { Tensor(DType::f32, {std::int64_t{1} << 40, std::int64_t{1} << 40}); }), ErrorCode::bad_shape);
  EXPECT_EQ(code_of([] { Tensor(DType::f32, {-1}); }), ErrorCode::bad_shape);
  EXPECT_EQ(code_of([] { Tensor(DType::u8, {std::int64_t{1} << 61}); }), ErrorCode::out_of_memory);
  EXPECT_EQ(code_of([] { Dims({1, 1, 1, 1, 1, 1, 1}); }), ErrorCode::bad_shape);
}

TEST(Tensor, SlicesAndTransposesShareMemory) {
  const Tensor t(DType::f32, {4, 6});
  t.as<float>()[2 * 6 + 3] = 9;
  const Tensor slice = t.slice(1, 3, 5);
  EXPECT_EQ(slice.as<float>()[slice.offset(2 * 2)], 9);
  EXPECT_FALSE(slice.contiguous());
  const Tensor swapped = t.transpose(0, 1);
  EXPECT_EQ(swapped.as<float>()[swapped.offset(3 * 4 + 2)], 9);
  EXPECT_EQ(slice.owner(), t.owner());
}

TEST(Tensor, PackedTypesTakeHalfABytePerElement) {
  const Tensor t(DType::f4_e2m1, {3, 4});
  EXPECT_EQ(t.extent_bytes(), 6);
  EXPECT_EQ(static_cast<std::byte*>(t.slice(0, 1, 2).data()) - static_cast<std::byte*>(t.data()), 2);
  EXPECT_EQ(code_of([&] { t.slice(1, 1, 3); }), ErrorCode::bad_alignment);
}

TEST(Tensor, CopyHonoursStridesOnBothSides) {
  const Tensor from = make_strided(DType::i16, {2, 3}, {8, 2}), to(DType::i16, {2, 3});
  for (std::int64_t i = 0; i < 6; ++i) from.as<std::int16_t>()[from.offset(i)] = static_cast<std::int16_t>(i + 1);
  copy(from, to);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(to.as<std::int16_t>()[i], i + 1);
}

TEST(Tensor, CopyTurnsMatricesOfAnyElementSize) {
  for (const DType type : {DType::u8, DType::bf16, DType::i32, DType::i64}) {
    const auto bytes = static_cast<std::size_t>(bits(type) / 8);
    const Tensor from = make_strided(type, {3, 37, 70}, {3000, 1, 40}), to(type, {3, 37, 70});
    for (std::int64_t i = 0; i < from.elements(); ++i) std::memcpy(from.as<std::byte>() + from.offset(i) * bits(type) / 8, &i, bytes);
    copy(from, to);
    for (std::int64_t i = 0; i < to.elements(); ++i)
      ASSERT_EQ(std::memcmp(to.as<std::byte>() + i * bits(type) / 8, &i, bytes), 0) << name(type) << " element " << i;
  }
}

TEST(Tensor, OverflowingStridesAreRejected) {
  EXPECT_EQ(code_of([] { make_strided(DType::u8, {1 << 20, 2}, {std::int64_t{1} << 60, 1}); }), ErrorCode::bad_stride);
  EXPECT_EQ(code_of([] { make_strided(DType::u8, {2}, {-1}); }), ErrorCode::bad_stride);
}

TEST(Tensor, SizesBeyondAnyMemoryAreRefusedEvenWhereAStrideOfZeroNeedsLittle) {
  float one = 0;
  constexpr std::int64_t huge = std::int64_t{1} << 60, half = std::int64_t{1} << 30;
  EXPECT_EQ(code_of([&] { Tensor(&one, DType::f32, {huge}, {0}); }), ErrorCode::bad_shape);
  EXPECT_EQ(code_of([&] { Tensor(&one, DType::f32, {0, huge}, {0, 0}); }), ErrorCode::bad_shape);
  EXPECT_EQ(code_of([&] { Tensor(&one, DType::f32, {half, half}, {0, 0}); }), ErrorCode::bad_shape);
  EXPECT_EQ(Tensor(&one, DType::f32, {half}, {0}).elements(), half);
}

TEST(Tensor, SharedMemoryIsFoundAndInterleavedSlicesAreNot) {
  const Tensor wide(DType::bf16, {4, 10});
  const Tensor left = wide.slice(1, 0, 6), right = wide.slice(1, 6, 10), middle = wide.slice(1, 5, 7);
  EXPECT_FALSE(share_memory(left, right));
  EXPECT_TRUE(share_memory(left, middle));
  EXPECT_TRUE(share_memory(right, middle));
  EXPECT_FALSE(share_memory(left, Tensor(DType::bf16, {4, 6})));
}

}  // namespace
}  // namespace dodona
