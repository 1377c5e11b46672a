// A token of MLA's cache in fp8, 656 bytes: 512 e4m3 codes of the latent, an fp32 scale for each 128 of them, and 64 bf16 elements of the
// rotated part as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "dodona/exec.h"

namespace dodona::ops {

inline constexpr std::int64_t k_cache_nope = 512, k_cache_rope = 64, k_cache_group = 128, k_cache_groups = k_cache_nope / k_cache_group;
inline constexpr std::int64_t k_cache_scales_at = k_cache_nope, k_cache_rope_at = k_cache_nope + 4 * k_cache_groups;
inline constexpr std::int64_t k_cache_row_bytes = k_cache_rope_at + 2 * k_cache_rope;
static_assert(k_cache_row_bytes == 656);

inline float k_cache_scale(const std::byte* row, std::int64_t group) {
  float scale;
  std::memcpy(&scale, row + k_cache_scales_at + 4 * group, sizeof scale);
  return scale;
}
inline void set_k_cache_scale(std::byte* row, std::int64_t group, float scale) {
  std::memcpy(row + k_cache_scales_at + 4 * group, &scale, sizeof scale);
}

/// What a code is multiplied with: its scale, or as FlashMLA has it that rounded to bf16.
enum class KCacheScales { f32, bf16 };
/// The row as 576 elements of bf16: bf16(fl32(code * scale)), then the rotated part bit for bit.
void dequantize_k_cache_row(const std::byte* row, std::byte* out, Isa isa, KCacheScales scales = KCacheScales::f32);

/// Rows of case lines, `count` of them: codes of any number but NaN, scales from 2^-8 up over so many powers of two, ordinary rotated
/// parts.
void draw_k_cache_rows(std::byte* rows, std::int64_t count, std::uint64_t seed, std::string_view argument, std::uint64_t powers = 16);

}  // namespace dodona::ops
