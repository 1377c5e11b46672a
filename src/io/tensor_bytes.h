// Tensors as the bytes that files hold: row-major, packed, little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "dodona/tensor.h"

namespace dodona::io {

/// Product of the sizes, or nothing if it does not fit 64 bits. Sizes are not negative.
std::optional<std::uint64_t> checked_product(std::span<const std::int64_t> shape);

/// The sizes as Dims. Throws Error(unsupported) if there are more than `max_rank`; `what` names the tensor.
Dims to_dims(std::span<const std::int64_t> shape, const std::string& what);

/// A read-only tensor over `bytes`, which `owner` keeps alive (no owner: the caller does). Where `bytes` lie unaligned for the
/// element type, or are empty, the tensor owns a copy instead. `bytes` must be exactly as long as shape and dtype say;
/// column-major order when `fortran`. Throws Error(bad_file) if a boolean is neither 0 nor 1; `what` names the tensor.
Tensor tensor_over(std::span<const std::byte> bytes, const std::shared_ptr<const void>& owner, DType dtype, const Dims& shape, bool fortran,
                   const std::string& what);

/// `tensor` itself if it is contiguous, otherwise a contiguous copy. Throws Error(bad_value) if it is undefined.
Tensor contiguous(const Tensor& tensor, const std::string& what);
/// The bytes of a contiguous tensor.
std::span<const std::byte> bytes_of(const Tensor& tensor);

}  // namespace dodona::io
