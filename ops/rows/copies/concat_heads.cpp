#include "ops/rows/copies/concat_heads.h"

#include <cstring>

#include "core/threads.h"
#include "quant/element.h"

namespace dodona::ops {

void concat_elements(const Tensor& left, const Tensor& right, const Tensor& out, const Exec& exec) {
  const std::int64_t inner = out.size(1), left_width = left.size(2), right_width = right.size(2), width = left_width + right_width;
  const std::int64_t right_inner = right.size(1);
  parallel_for(exec.threads, out.size(0) * inner, static_cast<double>(16 * width), [&](std::int64_t row) {
    const std::int64_t right_row = right_inner == 1 ? row / inner : row;
    for (std::int64_t d = 0; d < width; ++d) {
      const std::uint64_t code =
          d < left_width ? quant::get_bits(left, row * left_width + d) : quant::get_bits(right, right_row * right_width + d - left_width);
      quant::set_bits(out, row * width + d, code);
    }
  });
}

void concat_heads(const Tensor& left, const Tensor& right, const Tensor& out, const Exec& exec) {
  const std::int64_t bytes = bits(out.dtype()) / 8, inner = out.size(1);
  const auto left_bytes = static_cast<std::size_t>(left.size(2) * bytes), right_bytes = static_cast<std::size_t>(right.size(2) * bytes);
  const std::int64_t left_step = left.stride(1) * bytes, out_step = out.stride(1) * bytes;
  const std::int64_t right_step = right.size(1) == 1 ? 0 : right.stride(1) * bytes;
  parallel_for(exec.threads, out.size(0), static_cast<double>(inner * out.size(2)), [&](std::int64_t i) {
    const std::byte* from_left = left.as<std::byte>() + i * left.stride(0) * bytes;
    const std::byte* from_right = right.as<std::byte>() + i * right.stride(0) * bytes;
    std::byte* to = out.as<std::byte>() + i * out.stride(0) * bytes;
    for (std::int64_t j = 0; j < inner; ++j) {
      std::memcpy(to, from_left, left_bytes);
      std::memcpy(to + left_bytes, from_right, right_bytes);
      from_left += left_step;
      from_right += right_step;
      to += out_step;
    }
  });
}

}  // namespace dodona::ops
