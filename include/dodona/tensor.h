// Tensors: a typed, strided view that may own its memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dodona/dtype.h"

namespace dodona {

inline constexpr int max_rank = 6;

/// Up to `max_rank` sizes or strides, held in place.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values);
  explicit Dims(std::span<const std::int64_t> values);

  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return values_[static_cast<std::size_t>(i)]; }
  std::int64_t& operator[](int i) { return values_[static_cast<std::size_t>(i)]; }
  /// Negative `i` counts from the end.
  std::int64_t at(int i) const { return values_[static_cast<std::size_t>(i < 0 ? i + rank_ : i)]; }
  const std::int64_t* begin() const { return values_.data(); }
  const std::int64_t* end() const { return values_.data() + rank_; }
  void push_back(std::int64_t value);
  bool operator==(const Dims& other) const;

 private:
  std::array<std::int64_t, max_rank> values_{};
  int rank_ = 0;
};

/// Product of the sizes (1 for rank 0). Throws bad_shape on negative sizes and on overflow of 2^62.
std::int64_t element_count(const Dims& shape);
/// Row-major strides, in elements.
Dims contiguous_strides(const Dims& shape);
/// `[4, 7168]`
std::string to_string(const Dims& dims);

/// A typed view of memory. Copying a Tensor copies the view; views of one allocation share its ownership.
/// Strides are in elements. Packed types (f4_e2m1, i4) are contiguous along the last dimension, whose size counts elements.
class Tensor {
 public:
  /// An undefined tensor: stands for an optional argument that was not given.
  Tensor() = default;
  /// Owning, 64-byte aligned, contiguous, zero-filled. Throws out_of_memory.
  Tensor(DType dtype, const Dims& shape);
  /// Non-owning view of `data`.
  Tensor(void* data, DType dtype, const Dims& shape);
  Tensor(void* data, DType dtype, const Dims& shape, const Dims& strides);
  /// Read-only view: ops refuse to write it.
  Tensor(const void* data, DType dtype, const Dims& shape);
  Tensor(const void* data, DType dtype, const Dims& shape, const Dims& strides);
  /// A view of memory that `owner` keeps alive.
  Tensor(std::shared_ptr<void> owner, void* data, DType dtype, const Dims& shape, const Dims& strides, bool writable);

  /// Owning as above, with indeterminate contents: what is about to be filled need not be cleared first.
  static Tensor uninitialized(DType dtype, const Dims& shape);

  bool defined() const { return defined_; }
  DType dtype() const { return dtype_; }
  const Dims& shape() const { return shape_; }
  const Dims& strides() const { return strides_; }
  int rank() const { return shape_.rank(); }
  /// Size of dimension `i`; negative counts from the end.
  std::int64_t size(int i) const { return shape_.at(i); }
  std::int64_t stride(int i) const { return strides_.at(i); }
  std::int64_t elements() const;
  bool writable() const { return writable_; }
  bool contiguous() const;

  void* data() const { return data_; }
  /// Typed pointer to the first element; the caller has checked the dtype.
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  const std::shared_ptr<void>& owner() const { return owner_; }

  /// Bytes from the first to one past the last addressed element; 0 when empty.
  std::int64_t extent_bytes() const;

  /// A view over part of dimension `dim`.
  Tensor slice(int dim, std::int64_t begin, std::int64_t end) const;
  Tensor transpose(int a, int b) const;
  /// Same memory, other shape; needs a contiguous tensor.
  Tensor reshape(const Dims& shape) const;
  /// Same bytes as another element type of equal width.
  Tensor bitcast(DType dtype) const;
  /// The same memory without its ownership.
  Tensor unowned() const;
  Tensor read_only() const;
  /// Owning contiguous copy.
  Tensor clone() const;
  /// Offset in elements of the element with row-major logical index `linear`.
  std::int64_t offset(std::int64_t linear) const;

 private:
  std::shared_ptr<void> owner_;
  void* data_ = nullptr;
  Dims shape_, strides_;
  DType dtype_ = DType::f32;
  bool defined_ = false;
  bool writable_ = true;
};

/// Indices of the element with this row-major logical index.
Dims index_of(std::int64_t linear, const Dims& shape);

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
/// nullptr when absent.
const Tensor* find(const NamedTensors& tensors, std::string_view name);

/// Owning tensor with the given strides (elements); elements between rows are filled with `gap` bytes.
/// Reproduces the layout of a slice of a wider tensor. Throws bad_stride on negative strides.
Tensor make_strided(DType dtype, const Dims& shape, const Dims& strides, std::byte gap = std::byte{0});
/// Copies values; shapes and dtypes must be equal, strides may differ.
void copy(const Tensor& from, const Tensor& to);

}  // namespace dodona
