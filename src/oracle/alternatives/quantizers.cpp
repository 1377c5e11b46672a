#include <cmath>
#include <limits>

#include "oracle/alternatives/families.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/element.h"

namespace dodona::oracle::alternatives {
namespace {

constexpr std::int64_t block_size = 16;
constexpr float least_normal = 0x1p-126f;

/// 1/x, denormals as zeros, rounded to nearest; `strided`: the next float up, as far as an approximate reciprocal may be.
float reciprocal(float x, Way way) {
  const auto flushed = [](float y) { return std::fabs(y) < least_normal ? std::copysign(0.0f, y) : y; };
  const float nearest = flushed(1.0f / flushed(x));
  if (way != Way::strided || nearest == 0 || !std::isfinite(nearest)) return nearest;
  return std::nextafter(nearest, std::copysign(std::numeric_limits<float>::infinity(), nearest));
}

/// NaN counts where there is nothing else.
float largest_magnitude(std::span<const float> x) {
  float largest = std::numeric_limits<float>::quiet_NaN();
  for (const float value : x)
    if (!(std::fabs(value) <= largest) && !std::isnan(value)) largest = std::fabs(value);
  return largest;
}

/// Offset of a row's block scale in tiles of 128 x 4.
std::int64_t tile_offset(std::int64_t row, std::int64_t block, std::int64_t blocks) {
  const std::int64_t tile = row / 128 * ((blocks + 3) / 4) + block / 4;
  return tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + block % 4;
}

struct Fp4Output {
  const Tensor &codes, &scales;
  std::int64_t row, scale_row;
  bool zero_by_amax;
  Way way;
};

void quantize_fp4_row(std::span<const float> x, float encode_scale, const Fp4Output& out) {
  const auto width = static_cast<std::int64_t>(x.size()), blocks = width / block_size;
  auto* const codes = out.codes.as<std::uint8_t>() + out.row * width / 2;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const auto block = x.subspan(static_cast<std::size_t>(b * block_size), block_size);
    const float amax = largest_magnitude(block);
    const std::uint8_t code = quant::to_e4m3_satfinite(static_cast<double>(encode_scale * (amax * (1.0f / 6.0f))));
    out.scales.as<std::uint8_t>()[tile_offset(out.scale_row, b, blocks)] = code;
    const float scale = quant::e4m3_to_f32(code);
    const bool zero = (out.zero_by_amax ? amax : scale) == 0;
    const float factor = zero ? 0.0f : reciprocal(scale * reciprocal(encode_scale, out.way), out.way);
    for (std::int64_t i = 0; i < block_size; i += 2) {
      const unsigned even = quant::to_e2m1(static_cast<double>(block[static_cast<std::size_t>(i)] * factor));
      const unsigned odd = quant::to_e2m1(static_cast<double>(block[static_cast<std::size_t>(i) + 1] * factor));
      codes[(b * block_size + i) / 2] = static_cast<std::uint8_t>(even | odd << 4);
    }
  }
}

}  // namespace

bool scaled_fp4_quant(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor& input = call.tensor("input");
  const std::vector<float> x = floats(input);
  const auto width = static_cast<std::size_t>(input.size(-1));
  const float encode_scale = floats(call.tensor("input_global_scale"))[0];
  for (std::size_t row = 0; width > 0 && row < x.size() / width; ++row) {
    const auto m = static_cast<std::int64_t>(row);
    quantize_fp4_row(std::span(x).subspan(row * width, width), encode_scale,
                     {call.tensor("output"), call.tensor("output_scale"), m, m, call.is("zero_block", "amax"), call.way});
  }
  return true;
}

bool scaled_fp4_experts_quant(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor& input = call.tensor("input_tensor");
  const std::vector<float> x = floats(input), encode_scales = floats(call.tensor("input_global_scale"));
  const std::vector<std::int64_t> offsets = integers(call.tensor("expert_offsets"));
  const auto width = static_cast<std::size_t>(input.size(1));
  std::int64_t scale_row = 0;
  for (std::size_t e = 0; e + 1 < offsets.size(); ++e) {
    if (call.find("blockscale_offsets") != nullptr) scale_row = integers(call.tensor("blockscale_offsets"))[e];
    for (std::int64_t r = offsets[e]; r < offsets[e + 1]; ++r) {
      const auto source =
          static_cast<std::size_t>(call.find("expert_map") != nullptr ? quant::get(call.tensor("expert_map"), r) : static_cast<double>(r));
      quantize_fp4_row(std::span(x).subspan(source * width, width), encode_scales[e],
                       {call.tensor("output"), call.tensor("output_scales"), r, scale_row + r - offsets[e], false, call.way});
    }
    scale_row += (offsets[e + 1] - offsets[e] + 127) / 128 * 128;
  }
  return true;
}

namespace {

float largest_of(std::span<const float> values) {
  float amax = 0;
  for (const float value : values)
    if (std::fabs(value) > amax) amax = std::fabs(value);
  return amax;
}

/// reversed: divides by 448, and values by the scale; strided: multiplies by reciprocals.
float fp8_scale(float amax, Way way) {
  return way == Way::strided ? amax * (1.0f / 448.0f) : amax / 448.0f;
}
void store_codes(const Tensor& codes, std::size_t first, std::span<const float> values, float scale, Way way) {
  for (std::size_t k = 0; k < values.size(); ++k) {
    float v = scale == 0 ? values[k] * 0.0f : way == Way::strided ? values[k] * (1.0f / scale) : values[k] / scale;
    if (std::isnan(v)) v = 448.0f;
    store_fp8(codes, static_cast<std::int64_t>(first + k), v);
  }
}

}  // namespace

bool sgl_per_token_quant_fp8(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor &input = call.tensor("input"), &codes = call.tensor("output_q"), &scales = call.tensor("output_s");
  const std::vector<float> x = floats(input);
  const auto width = static_cast<std::size_t>(input.size(1));
  for (std::size_t row = 0; row < static_cast<std::size_t>(input.size(0)); ++row) {
    const auto values = std::span(x).subspan(row * width, width);
    const float scale = fp8_scale(largest_of(values), call.way);
    store(scales, static_cast<std::int64_t>(row), scale);
    store_codes(codes, row * width, values, scale, call.way);
  }
  return true;
}

bool sgl_per_tensor_quant_fp8(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor& scale = call.tensor("output_s");
  const std::vector<float> x = floats(call.tensor("input"));
  const float before = floats(scale)[0], needed = fp8_scale(largest_of(x), call.way);
  if (!call.flag("is_static") && !(before > needed)) store(scale, 0, needed);
  store_codes(call.tensor("output_q"), 0, x, floats(scale)[0], call.way);
  return true;
}

}  // namespace dodona::oracle::alternatives
