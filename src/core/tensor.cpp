#include "dodona/tensor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

#include "core/pages.h"
#include "dodona/error.h"

namespace dodona {
namespace {

constexpr std::int64_t largest_count = std::int64_t{1} << 62;

[[noreturn]] void fail(ErrorCode code, const std::string& message) {
  throw Error(code, "", "", message);
}

/// 64-byte aligned. Large tensors are read once and in order, where small pages cost a fault and a walk of the page table each.
std::shared_ptr<void> allocate(std::int64_t bytes) {
  constexpr std::size_t line = 64;
  const auto size = static_cast<std::size_t>(bytes > 0 ? bytes : 1);
  std::shared_ptr<void> memory = size >= least_pages && tensors_share_pages
                                     ? take_pages(size)
                                     : std::shared_ptr<void>(std::aligned_alloc(line, (size + line - 1) / line * line), std::free);
  if (!memory) fail(ErrorCode::out_of_memory, "cannot allocate " + std::to_string(bytes) + " bytes, more memory than is left");
  return memory;
}

/// Refuses what lies beyond any memory, so that arithmetic with addresses, sizes and counts of bits cannot overflow: strides whose last
/// element does, and sizes that do even where a stride of 0 makes little memory of them.
void check_reach(const Dims& shape, const Dims& strides) {
  constexpr std::int64_t farthest = std::int64_t{1} << 56;
  for (const std::int64_t size : shape)
    if (size > farthest) fail(ErrorCode::bad_shape, "shape " + to_string(shape) + " has a size beyond any memory");
  if (element_count(shape) > farthest) fail(ErrorCode::bad_shape, "shape " + to_string(shape) + " has more elements than any memory");
  std::int64_t reach = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    std::int64_t step = 0;
    if (shape[i] > 1 && (__builtin_mul_overflow(shape[i] - 1, strides[i], &step) || __builtin_add_overflow(reach, step, &reach) ||
                         reach > farthest || reach < -farthest))
      fail(ErrorCode::bad_stride, "strides " + to_string(strides) + " reach beyond any memory for shape " + to_string(shape));
  }
}

/// Address arithmetic in bits, because packed types have two elements a byte.
std::int64_t byte_offset(DType dtype, std::int64_t element) {
  return element * bits(dtype) / 8;
}

}  // namespace

Dims::Dims(std::initializer_list<std::int64_t> values) : Dims(std::span<const std::int64_t>(values.begin(), values.size())) {}
Dims::Dims(std::span<const std::int64_t> values) {
  for (const std::int64_t value : values) push_back(value);
}
void Dims::push_back(std::int64_t value) {
  if (rank_ == max_rank) fail(ErrorCode::bad_shape, "more than " + std::to_string(max_rank) + " dimensions");
  values_[static_cast<std::size_t>(rank_++)] = value;
}
bool Dims::operator==(const Dims& other) const {
  if (rank_ != other.rank_) return false;
  for (int i = 0; i < rank_; ++i)
    if ((*this)[i] != other[i]) return false;
  return true;
}

std::int64_t element_count(const Dims& shape) {
  std::int64_t count = 1;
  bool empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) fail(ErrorCode::bad_shape, "negative size in shape " + to_string(shape));
    if (size == 0) {
      empty = true;
    } else if (count > largest_count / size) {
      fail(ErrorCode::bad_shape, "shape " + to_string(shape) + " has too many elements");
    } else {
      count *= size;
    }
  }
  return empty ? 0 : count;
}

Dims contiguous_strides(const Dims& shape) {
  element_count(shape);  // refuses what would overflow
  Dims strides = shape;
  std::int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= shape[i] > 0 ? shape[i] : 1;
  }
  return strides;
}

std::string to_string(const Dims& dims) {
  std::string text = "[";
  for (int i = 0; i < dims.rank(); ++i) text += (i ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

Tensor::Tensor(DType dtype, const Dims& shape) : Tensor(uninitialized(dtype, shape)) {
  std::memset(data_, 0, static_cast<std::size_t>(bytes_for(dtype, elements())));
}
Tensor Tensor::uninitialized(DType dtype, const Dims& shape) {
  std::shared_ptr<void> owner = allocate(bytes_for(dtype, element_count(shape)));
  void* data = owner.get();
  return {std::move(owner), data, dtype, shape, contiguous_strides(shape), true};
}

Tensor::Tensor(void* data, DType dtype, const Dims& shape) : Tensor({}, data, dtype, shape, contiguous_strides(shape), true) {}
Tensor::Tensor(void* data, DType dtype, const Dims& shape, const Dims& strides) : Tensor({}, data, dtype, shape, strides, true) {}
Tensor::Tensor(const void* data, DType dtype, const Dims& shape) : Tensor(data, dtype, shape, contiguous_strides(shape)) {}
// The view is marked read-only: validation refuses it as an output.
Tensor::Tensor(const void* data, DType dtype, const Dims& shape, const Dims& strides)
    : Tensor({}, const_cast<void*>(data), dtype, shape, strides, false) {}

Tensor::Tensor(std::shared_ptr<void> owner, void* data, DType dtype, const Dims& shape, const Dims& strides, bool writable)
    : owner_(std::move(owner)), data_(data), shape_(shape), strides_(strides), dtype_(dtype), defined_(true), writable_(writable) {
  if (shape.rank() != strides.rank())
    fail(ErrorCode::bad_stride, "shape " + to_string(shape) + " and strides " + to_string(strides) + " differ in rank");
  check_reach(shape, strides);
}

std::int64_t Tensor::elements() const {
  return element_count(shape_);
}

bool Tensor::contiguous() const {
  std::int64_t expected = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape_[i] == 0) return true;
    if (shape_[i] != 1 && strides_[i] != expected) return false;
    expected *= shape_[i];
  }
  return true;
}

std::int64_t Tensor::extent_bytes() const {
  if (!defined_ || elements() == 0) return 0;
  std::int64_t last = 0;
  for (int i = 0; i < rank(); ++i) last += (shape_[i] - 1) * strides_[i];
  return bytes_for(dtype_, last + 1);
}

Tensor Tensor::slice(int dim, std::int64_t begin, std::int64_t end) const {
  if (dim < 0) dim += rank();
  if (dim < 0 || dim >= rank() || begin < 0 || begin > end || end > shape_[dim])
    fail(ErrorCode::bad_shape, "cannot slice [" + std::to_string(begin) + ", " + std::to_string(end) + ") out of " + to_string(shape_));
  Tensor view = *this;
  view.shape_[dim] = end - begin;
  const std::int64_t offset = begin * strides_[dim];
  if (is_packed(dtype_) && offset % 2 != 0) fail(ErrorCode::bad_alignment, "a slice of packed elements must begin at a byte");
  view.data_ = static_cast<std::byte*>(data_) + byte_offset(dtype_, offset);
  return view;
}

Tensor Tensor::transpose(int a, int b) const {
  Tensor view = *this;
  const auto axis = [&](int i) { return i < 0 ? i + rank() : i; };
  std::swap(view.shape_[axis(a)], view.shape_[axis(b)]);
  std::swap(view.strides_[axis(a)], view.strides_[axis(b)]);
  return view;
}

Tensor Tensor::reshape(const Dims& shape) const {
  if (!contiguous() || element_count(shape) != elements())
    fail(ErrorCode::bad_shape, "cannot view " + to_string(shape_) + " as " + to_string(shape));
  Tensor view = *this;
  view.shape_ = shape;
  view.strides_ = contiguous_strides(shape);
  return view;
}

Tensor Tensor::bitcast(DType dtype) const {
  if (bits(dtype) != bits(dtype_))
    fail(ErrorCode::bad_dtype, "cannot reinterpret " + std::string(name(dtype_)) + " as " + std::string(name(dtype)));
  Tensor view = *this;
  view.dtype_ = dtype;
  return view;
}

Tensor Tensor::unowned() const {
  Tensor view = *this;
  view.owner_.reset();
  return view;
}

Tensor Tensor::read_only() const {
  Tensor view = *this;
  view.writable_ = false;
  return view;
}

Tensor Tensor::clone() const {
  Tensor result = uninitialized(dtype_, shape_);
  copy(*this, result);
  return result;
}

std::int64_t Tensor::offset(std::int64_t linear) const {
  if (contiguous()) return linear;
  std::int64_t result = 0;
  for (int i = rank() - 1; i >= 0; --i) {
    result += linear % shape_[i] * strides_[i];
    linear /= shape_[i];
  }
  return result;
}

Dims index_of(std::int64_t linear, const Dims& shape) {
  Dims index = shape;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    index[d] = shape[d] > 0 ? linear % shape[d] : 0;
    linear = shape[d] > 0 ? linear / shape[d] : 0;
  }
  return index;
}

const Tensor* find(const NamedTensors& tensors, std::string_view name) {
  for (const auto& [key, tensor] : tensors)
    if (key == name) return &tensor;
  return nullptr;
}

Tensor make_strided(DType dtype, const Dims& shape, const Dims& strides, std::byte gap) {
  if (shape.rank() != strides.rank())
    fail(ErrorCode::bad_stride, "shape " + to_string(shape) + " and strides " + to_string(strides) + " differ in rank");
  check_reach(shape, strides);
  std::int64_t last = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    if (strides[i] < 0) fail(ErrorCode::bad_stride, "negative stride in " + to_string(strides));
    if (shape[i] > 0) last += (shape[i] - 1) * strides[i];
  }
  const std::int64_t bytes = bytes_for(dtype, element_count(shape) == 0 ? 0 : last + 1);
  auto owner = allocate(bytes);
  std::memset(owner.get(), static_cast<int>(gap), static_cast<std::size_t>(bytes));
  void* data = owner.get();
  return {std::move(owner), data, dtype, shape, strides, true};
}

namespace {

/// Element by element, the last two dimensions in squares: memory may go along either of them.
template <class Element>
void copy_elements(const Tensor& from, const Tensor& to) {
  constexpr std::int64_t side = 32;
  const bool plane = from.rank() > 1;
  const std::int64_t rows = plane ? from.size(-2) : 1, columns = from.size(-1), together = rows * columns;
  const std::int64_t from_row = plane ? from.stride(-2) : 0, to_row = plane ? to.stride(-2) : 0;
  const std::int64_t from_column = from.stride(-1), to_column = to.stride(-1);
  for (std::int64_t first = 0; first < from.elements(); first += together) {
    const auto* const source = from.as<const std::byte>() + from.offset(first) * static_cast<std::int64_t>(sizeof(Element));
    auto* const target = to.as<std::byte>() + to.offset(first) * static_cast<std::int64_t>(sizeof(Element));
    for (std::int64_t row = 0; row < rows; row += side)
      for (std::int64_t column = 0; column < columns; column += side)
        for (std::int64_t i = row; i < std::min(rows, row + side); ++i)
          for (std::int64_t j = column; j < std::min(columns, column + side); ++j)
            std::memcpy(target + (i * to_row + j * to_column) * static_cast<std::int64_t>(sizeof(Element)),
                        source + (i * from_row + j * from_column) * static_cast<std::int64_t>(sizeof(Element)), sizeof(Element));
  }
}

}  // namespace

void copy(const Tensor& from, const Tensor& to) {
  if (from.dtype() != to.dtype() || !(from.shape() == to.shape()))
    fail(ErrorCode::bad_shape, "cannot copy " + std::string(name(from.dtype())) + " " + to_string(from.shape()) + " to " +
                                   std::string(name(to.dtype())) + " " + to_string(to.shape()));
  const std::int64_t count = from.elements();
  if (count == 0) return;
  const auto* source = static_cast<const std::byte*>(from.data());
  auto* target = static_cast<std::byte*>(to.data());
  if (from.contiguous() && to.contiguous()) {
    std::memmove(target, source, static_cast<std::size_t>(bytes_for(from.dtype(), count)));
    return;
  }
  const std::int64_t width = from.rank() > 0 ? from.size(-1) : 1;
  const bool dense_rows = from.rank() > 0 && (width == 1 || (from.stride(-1) == 1 && to.stride(-1) == 1));
  if (is_packed(from.dtype()) && (!dense_rows || width % 2 != 0))
    fail(ErrorCode::bad_stride, "packed elements must lie in whole bytes, contiguous along the last dimension");
  if (!dense_rows) {
    switch (bits(from.dtype())) {
      case 8: return copy_elements<std::uint8_t>(from, to);
      case 16: return copy_elements<std::uint16_t>(from, to);
      case 32: return copy_elements<std::uint32_t>(from, to);
      default: return copy_elements<std::uint64_t>(from, to);
    }
  }
  const std::int64_t run = width;
  const auto run_bytes = static_cast<std::size_t>(bytes_for(from.dtype(), run));
  for (std::int64_t i = 0; i < count; i += run)
    std::memcpy(target + byte_offset(to.dtype(), to.offset(i)), source + byte_offset(from.dtype(), from.offset(i)), run_bytes);
}

}  // namespace dodona
