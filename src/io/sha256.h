// SHA-256, for digests of files and tensors. Source: FIPS 180-4.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "dodona/tensor.h"

namespace dodona::io {

using Sha256Digest = std::array<std::uint8_t, 32>;

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void update(std::span<const std::byte> bytes);
  /// The digest of everything so far. The object can go on taking bytes.
  Sha256Digest digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Sha256Digest sha256(std::span<const std::byte> bytes);
/// 64 lower-case hexadecimal digits.
std::string to_hex(const Sha256Digest& digest);

/// Digest of dtype, shape and values: SHA-256 of the line `bf16 [4, 7168]\n` followed by the row-major bytes. Strides do not matter. In an
/// odd count of packed elements the unused half of the last byte counts as 0. Throws Error(bad_value) for an undefined tensor.
Sha256Digest tensor_digest(const Tensor& tensor);

}  // namespace dodona::io
