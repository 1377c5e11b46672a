// NumPy's .npy format, versions 1.0, 2.0 and 3.0: a magic string, a Python dict of descr, fortran_order and shape, the data.
// Source: NumPy Enhancement Proposal 1 and the documentation of numpy.lib.format.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dodona/tensor.h"
#include "io/mapped_file.h"

namespace dodona::io {

/// Bytes of header that are read at most, as in NumPy.
inline constexpr std::size_t max_npy_header = 10'000;

/// Types without a portable descr (bf16, f8, f4, i4) are written as unsigned integers of their width, `<u2` or `|u1`; a reader must be told
/// what they are. This is the type to keep beside the file and to give back as `override`, or nothing where descr says it all.
std::optional<DType> npy_side_dtype(DType dtype);

/// Reads a file. Column-major files give tensors with column-major strides. The tensor is read-only; it shares the file's memory and its
/// ownership where that is aligned, and owns a copy otherwise.
/// `override` is the type of elements that descr stores as integers or void (V) of the same width; for f4_e2m1 and i4, which lie two to a
/// byte, the last dimension is doubled.
/// Throws Error(bad_file) on anything that violates the format, Error(unsupported) on what it allows and tensors here are not:
/// pickled objects (never read), big-endian numbers, complex, text, dates, structures, <u2 <u4 <u8 without `override`, more than 6
/// dimensions, and Error(bad_dtype) where `override` does not fit descr.
Tensor read_npy(const std::string& path, std::optional<DType> override = std::nullopt, Access access = Access::map);
/// The same for a file in memory, which `owner` keeps alive; without an owner the caller does.
Tensor npy_from_bytes(std::span<const std::byte> bytes, const std::shared_ptr<const void>& owner = {}, const std::string& source = "npy",
                      std::optional<DType> override = std::nullopt);

/// Writes version 1.0, row-major, data on a 64-byte boundary; see npy_side_dtype. The file appears whole or not at all.
/// Throws Error(bad_value) for an undefined tensor, or rows of f4_e2m1 or i4 that do not end at a byte.
void write_npy(const std::string& path, const Tensor& tensor);
/// The same in memory.
std::vector<std::byte> npy_bytes(const Tensor& tensor);

}  // namespace dodona::io
