// Little-endian numbers in byte strings, and where written bytes go.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace dodona::io {

// All formats here are little-endian, and tensors are written and viewed as they lie in memory.
static_assert(std::endian::native == std::endian::little, "Dodona runs on little-endian machines");

/// The number at `offset`, at any alignment; the caller has checked the size.
template <class T>
T load_le(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

template <class T>
void append_le(std::vector<std::byte>& bytes, T value) {
  const auto* raw = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), raw, raw + sizeof(T));
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline void append(std::vector<std::byte>& bytes, std::span<const std::byte> more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

/// Takes the next bytes of something that is being written.
using Sink = std::function<void(std::span<const std::byte>)>;

}  // namespace dodona::io
