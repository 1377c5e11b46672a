#include "io/tensor_bytes.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dodona/error.h"

namespace dodona::io {
namespace {

bool aligned(const void* data, DType dtype) {
  const auto width = static_cast<std::uintptr_t>(std::max(bits(dtype) / 8, 1));
  return reinterpret_cast<std::uintptr_t>(data) % width == 0;
}

void check_booleans(std::span<const std::byte> bytes, const std::string& what) {
  const auto bad = std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
  if (bad != bytes.end())
    throw Error(ErrorCode::bad_file, "", "",
                what + ": element " + std::to_string(bad - bytes.begin()) + " is the byte " + std::to_string(std::to_integer<int>(*bad)) +
                    ", expected the booleans 0 and 1");
}

Dims column_major_strides(const Dims& shape) {
  Dims strides = shape;
  std::int64_t stride = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    strides[i] = stride;
    stride *= std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

}  // namespace

std::optional<std::uint64_t> checked_product(std::span<const std::int64_t> shape) {
  std::uint64_t product = 1;
  for (const std::int64_t size : shape)
    if (__builtin_mul_overflow(product, static_cast<std::uint64_t>(size), &product)) return std::nullopt;
  return product;
}

Dims to_dims(std::span<const std::int64_t> shape, const std::string& what) {
  if (shape.size() > static_cast<std::size_t>(max_rank))
    throw Error(ErrorCode::unsupported, "", "",
                what + ": " + std::to_string(shape.size()) + " dimensions, tensors here have at most " + std::to_string(max_rank));
  return Dims(shape);
}

Tensor tensor_over(std::span<const std::byte> bytes, const std::shared_ptr<const void>& owner, DType dtype, const Dims& shape, bool fortran,
                   const std::string& what) {
  // Before any stride is computed: a size of 0 lets the others be anything.
  const std::int64_t count = element_count(shape);
  constexpr std::int64_t largest_count = INT64_MAX / 64;
  if (count > largest_count || bytes.size() != static_cast<std::size_t>(bytes_for(dtype, count)))
    throw Error(ErrorCode::bad_file, "", "",
                what + ": " + std::string(name(dtype)) + " " + to_string(shape) + " in " + std::to_string(bytes.size()) + " bytes");
  if (dtype == DType::boolean) check_booleans(bytes, what);
  if (count == 0) return Tensor(dtype, shape).read_only();

  const Dims strides = fortran ? column_major_strides(shape) : contiguous_strides(shape);
  if (aligned(bytes.data(), dtype))
    // Tensor has one type of owner for writable and read-only memory.
    return {std::const_pointer_cast<void>(owner), const_cast<std::byte*>(bytes.data()), dtype, shape, strides, false};
  const Tensor copy(dtype, shape);
  std::memcpy(copy.data(), bytes.data(), bytes.size());
  return {copy.owner(), copy.data(), dtype, shape, strides, false};
}

Tensor contiguous(const Tensor& tensor, const std::string& what) {
  if (!tensor.defined()) throw Error(ErrorCode::bad_value, "", "", what + ": the tensor is undefined");
  if (tensor.contiguous()) return tensor;
  if (is_packed(tensor.dtype()) && tensor.size(-1) % 2 != 0)
    throw Error(ErrorCode::unsupported, "", "",
                what + ": strided rows of " + std::to_string(tensor.size(-1)) + " elements of 4 bits do not end at a byte");
  return tensor.clone();
}

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.data()), static_cast<std::size_t>(bytes_for(tensor.dtype(), tensor.elements()))};
}

}  // namespace dodona::io
