#include "quant/finite.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace dodona::quant {
namespace {

/// The first word that has all of those bits. A block at a time, by a loop that the compiler makes one of lanes.
template <class Word>
std::int64_t first_with(const void* base, std::int64_t n, Word bits) {
  constexpr std::int64_t block = 4096;
  const auto has = [&](std::int64_t i) {
    Word word;
    std::memcpy(&word, static_cast<const std::byte*>(base) + i * static_cast<std::int64_t>(sizeof word), sizeof word);
    return (word & bits) == bits;
  };
  for (std::int64_t begin = 0; begin < n; begin += block) {
    const std::int64_t end = std::min(begin + block, n);
    Word found = 0;
    for (std::int64_t i = begin; i < end; ++i) found |= static_cast<Word>(has(i) ? 1 : 0);
    for (std::int64_t i = begin; found != 0 && i < end; ++i)
      if (has(i)) return i;
  }
  return n;
}

}  // namespace

std::int64_t first_not_finite(DType type, const void* base, std::int64_t n) {
  switch (type) {
    case DType::f64: return first_with<std::uint64_t>(base, n, 0x7FF0'0000'0000'0000);
    case DType::f32: return first_with<std::uint32_t>(base, n, 0x7F80'0000);
    case DType::f16: return first_with<std::uint16_t>(base, n, 0x7C00);
    case DType::bf16: return first_with<std::uint16_t>(base, n, 0x7F80);
    case DType::f8_e4m3: return first_with<std::uint8_t>(base, n, 0x7F);
    case DType::f8_e5m2: return first_with<std::uint8_t>(base, n, 0x7C);
    case DType::f8_e8m0: return first_with<std::uint8_t>(base, n, 0xFF);
    default: return n;
  }
}

}  // namespace dodona::quant
