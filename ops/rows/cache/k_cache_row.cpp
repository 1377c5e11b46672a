#include "ops/rows/cache/k_cache_row.h"

#include <array>
#include <bit>

#include "core/random.h"
#include "ops/rows/copies/convert_row.h"
#include "quant/e4m3.h"
#include "quant/element.h"

namespace dodona::ops {

void dequantize_k_cache_row(const std::byte* row, std::byte* out, Isa isa, KCacheScales scales) {
  std::array<float, static_cast<std::size_t>(k_cache_group)> values;
  for (std::int64_t g = 0; g < k_cache_groups; ++g) {
    float scale = k_cache_scale(row, g);
    if (scales == KCacheScales::bf16) scale = static_cast<float>(quant::round_to(DType::bf16, static_cast<double>(scale)));
    const std::byte* const codes = row + g * k_cache_group;
    std::byte* const to = out + 2 * g * k_cache_group;
    // Which NaN comes of a NaN is what the scalar functions below say.
    if (dispatch<ConvertRowKernel>(isa, ConvertRow{codes, to, k_cache_group, DType::f8_e4m3, DType::bf16, scale})) continue;
    quant::to_f32(DType::f8_e4m3, codes, values.data(), k_cache_group);
    for (float& value : values) value *= scale;
    quant::from_f32(DType::bf16, values.data(), to, k_cache_group);
  }
  std::memcpy(out + 2 * k_cache_nope, row + k_cache_rope_at, 2 * k_cache_rope);
}

void draw_k_cache_rows(std::byte* rows, std::int64_t count, std::uint64_t seed, std::string_view argument, std::uint64_t powers) {
  const InputDraw draw(seed, argument);
  for (std::int64_t r = 0; r < count; ++r) {
    std::byte* const row = rows + r * k_cache_row_bytes;
    const std::int64_t first = r * k_cache_row_bytes;
    for (std::int64_t i = 0; i < k_cache_nope; ++i) {
      const auto code = static_cast<unsigned>(draw.below(first + i, 254));
      row[i] = static_cast<std::byte>(code < 0x7F ? code : code + 1);
    }
    for (std::int64_t g = 0; g < k_cache_groups; ++g) {
      const std::int64_t at = first + k_cache_scales_at + 4 * g;
      const auto power = static_cast<std::uint32_t>(127 - 8 + draw.below(at, powers)),
                 fraction = static_cast<std::uint32_t>(draw.below_again(at, 1024));
      set_k_cache_scale(row, g, std::bit_cast<float>(power << 23 | fraction << 13));
    }
    for (std::int64_t i = 0; i < k_cache_rope; ++i) {
      const std::int64_t at = k_cache_rope_at + 2 * i;
      const std::uint64_t bits = 0x3C00 + draw.below(first + at, 0x400) + (draw.below_again(first + at, 2) << 15);
      quant::store_bits(DType::bf16, row + at, 0, bits);
    }
  }
}

}  // namespace dodona::ops
