#include "ops/utility/weak_ref_tensor.h"

#include <gtest/gtest.h>

#include "quant/element.h"

namespace dodona {
namespace {

Tensor weak_ref(const Tensor& tensor, Mode mode = Mode::fast) {
  Exec exec;
  exec.mode = mode;
  ops::WeakRefTensor op;
  op.tensor = tensor;
  return ops::run(op, exec).output;
}
void expect_same_view(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.data(), b.data());
  EXPECT_EQ(a.dtype(), b.dtype());
  EXPECT_EQ(a.shape(), b.shape());
  EXPECT_EQ(a.strides(), b.strides());
}

TEST(WeakRefTensor, IsTheSameMemoryInEveryTypeAndMode) {
  for (int type = 0; type < dtype_count; ++type)
    for (const Mode mode : {Mode::golden, Mode::fast, Mode::hopper}) {
      const Tensor tensor(static_cast<DType>(type), {3, 8});
      expect_same_view(weak_ref(tensor, mode), tensor);
    }
}

TEST(WeakRefTensor, KeepsStridesAndOffsetOfAnyView) {
  const Tensor tensor(DType::bf16, {4, 6, 8});
  expect_same_view(weak_ref(tensor.transpose(0, 2)), tensor.transpose(0, 2));
  expect_same_view(weak_ref(tensor.slice(1, 2, 5).slice(2, 3, 4)), tensor.slice(1, 2, 5).slice(2, 3, 4));
  const Tensor every_third = make_strided(DType::f32, {5}, {3});
  expect_same_view(weak_ref(every_third), every_third);
}

TEST(WeakRefTensor, AcceptsScalarsManyDimensionsAndNoElements) {
  for (const Dims& shape : {Dims{}, Dims{1, 2, 1, 2, 1, 2}, Dims{0}, Dims{3, 0, 2}}) {
    const Tensor tensor(DType::f32, shape);
    expect_same_view(weak_ref(tensor), tensor);
  }
}

TEST(WeakRefTensor, WritesAreSeenBothWays) {
  const Tensor tensor(DType::f32, {4}), alias = weak_ref(tensor);
  quant::set(alias, 1, 5.0);
  EXPECT_EQ(quant::get(tensor, 1), 5.0);
  quant::set(tensor, 2, 7.0);
  EXPECT_EQ(quant::get(alias, 2), 7.0);
}

TEST(WeakRefTensor, HoldsNoShareOfTheOwnership) {
  const auto memory = std::make_shared<std::array<float, 4>>();
  const Tensor alias = [&] {
    const Tensor tensor(memory, memory->data(), DType::f32, {4}, {1}, true);
    EXPECT_EQ(memory.use_count(), 2);
    return weak_ref(tensor);
  }();
  EXPECT_EQ(memory.use_count(), 1);
  EXPECT_EQ(alias.owner(), nullptr);
  EXPECT_EQ(alias.data(), memory->data());
}

TEST(WeakRefTensor, AViewOfReadOnlyMemoryIsReadOnly) {
  EXPECT_FALSE(weak_ref(Tensor(DType::f32, {4}).read_only()).writable());
}

TEST(WeakRefTensor, TheOutputCannotBeGiven) {
  ops::WeakRefTensor op;
  op.tensor = Tensor(DType::f32, {4});
  op.output = Tensor(DType::f32, {4});
  EXPECT_THROW(ops::run(op, Exec{}), Error);
}

TEST(WeakRefTensor, ByNameTheOutputJoinsTheArguments) {
  Arguments arguments;
  const Tensor tensor(DType::i64, {2, 3});
  arguments.set("tensor", tensor);
  registry().at("weak_ref_tensor").run(arguments, Exec{});
  ASSERT_NE(arguments.find("output"), nullptr);
  expect_same_view(*arguments.find("output"), tensor);
}

}  // namespace
}  // namespace dodona
