#include "ops/tiles/fp4_multiply.h"

#include <vector>

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

void fp4_pack(const Fp4Weights& raw, std::byte* out, const Exec& exec) {
  i8_pack(I8Format::nvfp4, raw, out, exec);
}

}  // namespace dodona::ops
