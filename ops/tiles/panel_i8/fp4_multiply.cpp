#include "ops/tiles/panel_i8/fp4_multiply.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "quant/swizzle.h"

namespace dodona::ops {

void fp4_multiply(std::span<const Fp4Group> groups, const Tensor& a, const Tensor& a_scales, const Tensor& out, const Exec& exec,
                  I8Format format) {
  constexpr static float quarter = 0.25f;  // of products of doubled codes
  std::vector<I8Group> all;
  all.reserve(groups.size());
  for (const Fp4Group& group : groups)
    all.push_back({group.row,
                   group.rows,
                   group.scale_row,
                   group.weights,
                   {.steps = {{.values = &quarter}, {.values = &group.alpha}},
                    .count = 2,
                    .out_type = out.dtype(),
                    .out = out.as<std::byte>(),
                    .out_stride = out.size(1)}});
  i8_multiply({.format = format,
               .groups = all,
               .rows = a.size(0),
               .k = a.size(1) * 2,
               .codes = a.as<std::uint8_t>(),
               .scales = a_scales.as<std::uint8_t>(),
               .scale_columns = a_scales.size(1)},
              exec);
}

void fp4_pack(const Fp4Weights& raw, std::byte* out, const Exec& exec, I8Format format) {
  i8_pack(format, raw, out, exec);
}

void fp4_unpack(const Fp4Weights& packed, std::uint8_t* codes, std::uint8_t* scales, I8Format format) {
  constexpr auto tiles = quant::ScaleLayout::swizzled_128x4;
  const std::int64_t steps = i8_steps(packed.k), step_bytes = i8_step_bytes(format), block = i8_scale_block(format);
  const std::int64_t columns = packed.k / block, of_step = i8_step / block;
  std::fill_n(scales, quant::padded_size(tiles, packed.n, columns).elements(), std::uint8_t{0});
  for (std::int64_t n = 0; n < packed.n; ++n)
    for (std::int64_t s = 0; s < steps; ++s) {
      const std::int64_t lane = n % i8_panel_columns;
      const std::uint8_t* const step = packed.packed + (n / i8_panel_columns * steps + s) * step_bytes;
      for (std::int64_t k = s * i8_step; k < std::min(packed.k, (s + 1) * i8_step); k += 8)
        std::memcpy(codes + (n * packed.k + k) / 2, step + k % i8_step * 8 + lane * 4, 4);
      for (std::int64_t j = s * of_step; j < std::min(columns, (s + 1) * of_step); ++j)
        scales[quant::scale_offset(tiles, n, j, columns)] = step[512 + j % of_step * i8_panel_columns + lane];
    }
}

}  // namespace dodona::ops
