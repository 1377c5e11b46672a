#include <algorithm>
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

/// e4m3 to nearest; powers of two upwards, those of 2^-127 and less as 2^-127.
void store_fp4_scale(const Tensor& scales, std::int64_t at, float value) {
  if (scales.dtype() == DType::f8_e4m3) return store_fp8(scales, at, value);
  int exponent = -127;
  if (value > 0x1p-127f && std::isfinite(value)) {
    exponent = std::ilogb(value);
    if (std::ldexp(1.0f, exponent) != value) ++exponent;
  }
  quant::set_bits(scales, at, static_cast<std::uint64_t>(std::isnan(value) ? 255 : std::isinf(value) ? 254 : exponent + 127));
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

namespace {

/// What a row is multiplied with, of its largest magnitude: that times the base, or as builds without fast math come to it.
float row_scale(float amax, float base, Way way) {
  return way == Way::strided && amax > 0 ? 1.0f / ((1.0f / base) / amax) : amax * base;
}

/// Blocks of any size and layout, e4m3 and powers of two.
bool quantize_fp4(const Call& call, const Tensor& input, bool powers, float encode_scale_of_all) {
  if (call.way == Way::tensor_core) return false;
  const Tensor &codes = call.tensor("x_q"), &scales = call.tensor("sf");
  std::vector<float> x = floats(input);
  const bool bytes = input.dtype() == DType::f8_e4m3;
  if (bytes)
    for (float& value : x) value = rounded(DType::f16, value * (6.0f * reciprocal(encode_scale_of_all, call.way)));
  const bool by_row = call.op.schema().find_attr("per_token_activation") != nullptr && call.flag("per_token_activation");
  const std::int64_t width = input.size(-1), size = powers ? 32 : 16, blocks = width / size, across = (blocks + 3) / 4;
  for (std::int64_t b = 0; b < static_cast<std::int64_t>(x.size()) / size; ++b) {
    const auto block = std::span(x).subspan(static_cast<std::size_t>(b * size), static_cast<std::size_t>(size));
    const std::int64_t r = b / blocks, c = b % blocks;
    float encode_scale = encode_scale_of_all;
    if (by_row) {
      const float own =
          row_scale(largest_magnitude(std::span(x).subspan(static_cast<std::size_t>(r * width), static_cast<std::size_t>(width))),
                    encode_scale_of_all, call.way);
      store(call.tensor("per_token_scale"), r, own);
      encode_scale = own > 0 ? reciprocal(own, call.way) : 1.0f;
    }
    const std::int64_t at = !call.flag("is_sf_swizzled_layout") ? b
                            : call.flag("is_sf_8x4_layout")     ? (r / 8 * across + c / 4) * 32 + r % 8 * 4 + c % 4
                                                                : tile_offset(r, c, blocks);
    const float amax = largest_magnitude(block), sixth = amax * (1.0f / 6.0f), value = powers && !bytes ? sixth : encode_scale * sixth;
    store_fp4_scale(scales, at, value);
    const float scale = static_cast<float>(quant::get(scales, at));
    float factor = powers ? 1.0f / scale : reciprocal(scale * reciprocal(encode_scale, call.way), call.way);
    if (bytes) factor = encode_scale * reciprocal(scale, call.way);
    if (amax == 0 || (bytes && value == 0)) factor = 0;
    for (std::int64_t i = 0; i < size; i += 2) {
      const unsigned even = quant::to_e2m1(static_cast<double>(block[static_cast<std::size_t>(i)] * factor));
      const unsigned odd = quant::to_e2m1(static_cast<double>(block[static_cast<std::size_t>(i) + 1] * factor));
      codes.as<std::uint8_t>()[(b * size + i) / 2] = static_cast<std::uint8_t>(even | odd << 4);
    }
  }
  return true;
}

}  // namespace

bool fp4_quantize(const Call& call) {
  const float scale = call.find("global_scale") != nullptr ? floats(call.tensor("global_scale"))[0] : 1.0f;
  return quantize_fp4(call, call.tensor("input"), call.flag("sf_use_ue8m0"),
                      call.flag("is_global_scale_inversed") ? reciprocal(scale, call.way) : scale);
}
bool mxfp4_quantize(const Call& call) {
  return quantize_fp4(call, call.tensor("a"), true, 1.0f);
}
bool nvfp4_quantize(const Call& call) {
  const Tensor& a = call.tensor("a");
  if (!call.flag("do_shuffle")) return quantize_fp4(call, a, false, floats(call.tensor("a_global_sf"))[0]);
  Tensor shuffled = a.clone();
  const std::int64_t width = a.size(-1);
  for (std::int64_t e = 0; e < a.elements(); ++e) {
    const std::int64_t row = e / width, in_block = row % 32;
    quant::set_bits(shuffled, (row - in_block + in_block % 4 * 8 + in_block / 4) * width + e % width, quant::get_bits(a, e));
  }
  return quantize_fp4(call, shuffled, false, floats(call.tensor("a_global_sf"))[0]);
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

/// Groups of rows, as many of each as the mask says. With silu a row is gate and up.
bool grouped_fp4_quant(const Call& call, bool silu) {
  if (call.way == Way::tensor_core) return false;
  const Tensor &input = call.tensor("input_tensor"), &output = call.tensor("output"), &scales = call.tensor("output_scales");
  const std::vector<float> x = floats(input), encode_scales = floats(call.tensor("input_global_scale"));
  const std::vector<std::int64_t> mask = integers(call.tensor("mask"));
  const auto width = static_cast<std::size_t>(2 * output.size(2)), wide = static_cast<std::size_t>(input.size(2));
  for (std::size_t g = 0; g < mask.size(); ++g)
    for (std::int64_t r = 0; r < mask[g]; ++r) {
      const std::int64_t row = static_cast<std::int64_t>(g) * output.size(1) + r;
      const auto source = std::span(x).subspan(static_cast<std::size_t>(row) * wide, wide);
      std::vector<float> values(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(width));
      for (std::size_t k = 0; silu && k < width; ++k) {
        const float gate = values[k], power = exp(-gate);
        values[k] =
            rounded(input.dtype(), (call.way == Way::strided ? gate * (1.0f / (1.0f + power)) : gate / (1.0f + power)) * source[width + k]);
      }
      quantize_fp4_row(values, encode_scales[g], {output, scales, row, static_cast<std::int64_t>(g) * scales.size(1) + r, false, call.way});
    }
  return true;
}

}  // namespace

bool scaled_fp4_grouped_quant(const Call& call) {
  return grouped_fp4_quant(call, false);
}

bool silu_and_mul_scaled_fp4_grouped_quant(const Call& call) {
  return grouped_fp4_quant(call, true);
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

bool per_token_quant_int8(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor &input = call.tensor("x"), &codes = call.tensor("x_q");
  const std::vector<float> x = floats(input);
  const auto width = static_cast<std::size_t>(input.size(-1));
  const std::size_t rows = width > 0 ? x.size() / width : 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const auto values = std::span(x).subspan(row * width, width);
    const float amax = std::fmax(largest_of(values), 1e-10f);
    store(call.tensor("scales"), static_cast<std::int64_t>(row), call.way == Way::strided ? amax * (1.0f / 127.0f) : amax / 127.0f);
    if (call.find("x_sum") != nullptr)
      store(call.tensor("x_sum"), static_cast<std::int64_t>(row),
            call.way == Way::strided ? strided_sum(values, 32) : reversed_sum(values));
    for (std::size_t k = 0; k < width; ++k) {
      const float v = call.way == Way::strided ? values[k] * (127.0f * (1.0f / amax)) : values[k] * (127.0f / amax);
      store(codes, static_cast<std::int64_t>(row * width + k), std::isnan(v) ? 0.0f : std::round(v));
    }
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

namespace {

/// silu(gate) and its product with up, each rounded to the input's type.
std::vector<float> products_of_halves(const Tensor& input, Way way) {
  const std::vector<float> x = floats(input);
  const auto width = static_cast<std::size_t>(input.size(-1) / 2);
  std::vector<float> products;
  for (std::size_t row = 0; width > 0 && row < x.size() / (2 * width); ++row)
    for (std::size_t k = 0; k < width; ++k) {
      const float gate = x[row * 2 * width + k], divisor = 1.0f + exp(-gate);
      const float silu = rounded(input.dtype(), way == Way::strided ? gate * (1.0f / divisor) : gate / divisor);
      products.push_back(rounded(input.dtype(), silu * x[row * 2 * width + width + k]));
    }
  return products;
}

/// Byte `i` of words of i32, in logical order.
void store_byte(const Tensor& words, std::int64_t i, int exponent) {
  const std::uint64_t word = quant::get_bits(words, i / 4), byte = static_cast<std::uint8_t>(exponent + 127);
  quant::set_bits(words, i / 4, (word & ~(std::uint64_t{0xFF} << (i % 4 * 8))) | byte << (i % 4 * 8));
}

struct GroupCodes {
  float divisor, factor;  ///< one of them is 1
};

void store_group(const Tensor& codes, std::int64_t first, std::span<const float> group, const GroupCodes& by) {
  for (std::size_t k = 0; k < group.size(); ++k) {
    const auto at = first + static_cast<std::int64_t>(k);
    const float value = group[k] / by.divisor * by.factor;
    if (codes.dtype() == DType::f8_e4m3) {
      store_fp8(codes, at, std::isnan(value) ? -448.0f : value);
    } else {
      store(codes, at, std::isnan(value) ? -128.0f : std::trunc(std::fmin(std::fmax(value, -128.0f), 127.0f)));
    }
  }
}

bool group_quant(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor &codes = call.tensor("output_q"), &scales = call.tensor("output_s");
  const bool fused = call.flag("fuse_silu_and_mul"), powers = call.flag("scale_ue8m0"), second = call.flag("enable_v2");
  const std::vector<float> x = fused ? products_of_halves(call.tensor("input"), call.way) : floats(call.tensor("input"));
  const auto size = static_cast<std::size_t>(call.integer("group_size"));
  const std::int64_t width = codes.size(-1), groups = width / static_cast<std::int64_t>(size);
  const auto largest = static_cast<float>(call.number("fp8_max")), eps = static_cast<float>(call.number("eps"));
  for (std::int64_t w = 0; powers && w < scales.elements(); ++w) quant::set_bits(scales, w, 0);
  for (std::size_t g = 0; g < x.size() / size; ++g) {
    const auto group = std::span(x).subspan(g * size, size);
    const float amax = std::fmax(largest_of(group), eps), inverse = 1.0f / largest;
    // Dividing and multiplying with the reciprocal are one another's alternative in version 1; version 2 multiplies.
    const float s = second || call.way == Way::strided ? amax * inverse : amax / largest;
    GroupCodes by{1.0f, 1.0f};
    if (powers) {
      const float bounded = second ? s : std::fmax(s, 1e-10f);
      int e = static_cast<int>(std::ceil(second ? 0.0f : log2(bounded)));
      if (second) {
        e = std::ilogb(bounded);
        if (std::ldexp(1.0f, e) != bounded) ++e;
      }
      by.divisor = std::ldexp(1.0f, e);
      const auto row = static_cast<std::int64_t>(g) / groups;
      store_byte(scales, row * 4 * scales.size(-1) + static_cast<std::int64_t>(g) % groups, e);
    } else {
      store(scales, static_cast<std::int64_t>(g), s);
      if (second) {
        by.factor = call.way == Way::strided ? largest * (1.0f / amax) : largest / amax;
      } else if (call.way == Way::strided) {
        by.factor = 1.0f / s;
      } else {
        by.divisor = s;
      }
    }
    store_group(codes, static_cast<std::int64_t>(g * size), group, by);
  }
  return true;
}

}  // namespace

bool sgl_per_token_group_quant_8bit(const Call& call) {
  return group_quant(call);
}
bool sgl_per_token_group_quant_fp8(const Call& call) {
  return group_quant(call);
}
bool sgl_per_token_group_quant_int8(const Call& call) {
  return group_quant(call);
}

/// Divides by the scale, or by 448 through its reciprocal.
bool quantize_k_cache(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor &input = call.tensor("cache_k"), &output = call.tensor("output");
  const std::vector<float> x = floats(input);
  for (std::size_t row = 0; row < x.size() / 576; ++row) {
    const auto put = [&](std::size_t at, std::uint64_t byte) {
      quant::set_bits(output, static_cast<std::int64_t>(row * 656 + at), byte & 0xFF);
    };
    for (std::size_t g = 0; g < 4; ++g) {
      float largest = 0;
      for (std::size_t k = 0; k < 128; ++k) largest = std::fmax(largest, std::fabs(x[row * 576 + g * 128 + k]));
      const float scale = call.way == Way::strided ? largest * (1.0f / 448.0f) : largest / 448.0f;
      const auto bits = std::bit_cast<std::uint32_t>(scale);
      for (std::size_t i = 0; i < 4; ++i) put(512 + 4 * g + i, bits >> (8 * i));
      for (std::size_t k = 0; k < 128; ++k) {
        const float value = x[row * 576 + g * 128 + k];
        put(g * 128 + k, quant::to_e4m3_satfinite(static_cast<double>(call.way == Way::strided ? value * (1.0f / scale) : value / scale)));
      }
    }
    for (std::size_t k = 0; k < 64; ++k) {
      const std::uint64_t code = quant::get_bits(input, static_cast<std::int64_t>(row * 576 + 512 + k));
      put(528 + 2 * k, code);
      put(529 + 2 * k, code >> 8);
    }
  }
  return true;
}

namespace {

/// A row of one expert: a copy, or codes of groups of 128 with their scales.
struct DispatchedRow {
  const Call& call;
  const Tensor& x;
  std::size_t token, row;

  void write(std::span<const float> values) const {
    const Tensor& out = call.tensor("packed_recv_x");
    const std::size_t first = row * values.size();
    if (!call.flag("use_fp8")) {
      for (std::size_t i = 0; i < values.size(); ++i)
        quant::set_bits(out, static_cast<std::int64_t>(first + i),
                        quant::get_bits(x, static_cast<std::int64_t>(token * values.size() + i)));
      return;
    }
    const Tensor& scales = call.tensor("packed_recv_x_scales");
    const auto stored = static_cast<std::size_t>(scales.size(2));
    for (std::size_t g = 0; g < values.size() / 128; ++g) {
      const auto group = values.subspan(g * 128, 128);
      const float amax = std::fmax(largest_of(group), 1e-4f), s = amax * (1.0f / 448.0f);
      GroupCodes by{1.0f, 1.0f};
      const int e = std::ilogb(s) + (std::ldexp(1.0f, std::ilogb(s)) != s ? 1 : 0);
      if (call.flag("round_scale")) {
        by.divisor = std::ldexp(1.0f, e);
      } else {
        by.factor = call.way == Way::strided ? 448.0f * (1.0f / amax) : 448.0f / amax;
      }
      if (call.flag("use_ue8m0")) {
        store_byte(scales, static_cast<std::int64_t>(row * 4 * stored + g), e);
      } else {
        store(scales, static_cast<std::int64_t>(row * stored + g), call.flag("round_scale") ? by.divisor : s);
      }
      store_group(out, static_cast<std::int64_t>(first + g * 128), group, by);
    }
  }
};

}  // namespace

/// strided: the last rank and the last token first.
bool deepep_low_latency_dispatch(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor& x = call.tensor("x");
  const std::vector<float> values = floats(x);
  const std::vector<std::int64_t> ids = integers(call.tensor("topk_idx"));
  const auto ranks = static_cast<std::size_t>(x.size(0)), tokens = static_cast<std::size_t>(x.size(1)),
             width = static_cast<std::size_t>(x.size(2));
  const std::size_t topk = ids.size() / std::max<std::size_t>(ranks * tokens, 1),
                    experts = static_cast<std::size_t>(call.integer("num_experts"));
  const auto room = static_cast<std::size_t>(call.tensor("packed_recv_src_info").size(1));
  if (call.flag("use_ue8m0"))
    for (std::int64_t w = 0; w < call.tensor("packed_recv_x_scales").elements(); ++w)
      quant::set_bits(call.tensor("packed_recv_x_scales"), w, 0);
  const auto nth = [&](std::size_t i, std::size_t n) { return call.way == Way::strided ? n - 1 - i : i; };
  for (std::size_t e = 0; e < experts; ++e) {
    std::size_t next = 0;
    for (std::size_t i = 0; i < ranks; ++i) {
      const std::size_t r = nth(i, ranks), begin = next;
      for (std::size_t j = 0; j < tokens; ++j) {
        const std::size_t t = r * tokens + nth(j, tokens);
        // A row for each slot: an expert that is named twice receives two.
        for (std::size_t k = t * topk; k < (t + 1) * topk; ++k) {
          if (ids[k] != static_cast<std::int64_t>(e)) continue;
          const std::size_t row = e * room + next++;
          DispatchedRow{call, x, t, row}.write(std::span(values).subspan(t * width, width));
          quant::set(call.tensor("packed_recv_src_info"), static_cast<std::int64_t>(row), static_cast<double>(t - r * tokens));
        }
      }
      quant::set_bits(call.tensor("packed_recv_layout_range"), static_cast<std::int64_t>(e * ranks + r),
                      static_cast<std::uint64_t>(begin) << 32 | (next - begin));
    }
    quant::set(call.tensor("packed_recv_count"), static_cast<std::int64_t>(e), static_cast<double>(next));
  }
  return true;
}

bool deepep_low_latency_dispatch_nvfp4(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor &x = call.tensor("x"), &codes = call.tensor("packed_recv_x"), &scales = call.tensor("packed_recv_x_scales");
  const std::vector<float> values = floats(x);
  const float encode_scale = floats(call.tensor("x_global_scale"))[0];
  const std::vector<std::int64_t> ids = integers(call.tensor("topk_idx"));
  const std::int64_t ranks = x.size(0), tokens = x.size(1), room = codes.size(1), topk = call.tensor("topk_idx").size(2);
  for (std::int64_t e = 0; e < codes.size(0); ++e) {
    std::int64_t next = 0;
    // strided: the last rank first.
    for (std::int64_t i = 0; i < ranks; ++i) {
      const std::int64_t r = call.way == Way::strided ? ranks - 1 - i : i, begin = next;
      for (std::int64_t k = r * tokens * topk; k < (r + 1) * tokens * topk; ++k) {
        if (ids[static_cast<std::size_t>(k)] != e) continue;
        const auto width = static_cast<std::size_t>(x.size(2)), token = static_cast<std::size_t>(k / topk);
        quantize_fp4_row(std::span(values).subspan(token * width, width), encode_scale,
                         {codes, scales, e * room + next, e * scales.size(1) + next, false, call.way});
        quant::set(call.tensor("packed_recv_src_info"), e * room + next++, static_cast<double>(k / topk % tokens));
      }
      quant::set_bits(call.tensor("packed_recv_layout_range"), e * ranks + r,
                      static_cast<std::uint64_t>(begin) << 32 | static_cast<std::uint64_t>(next - begin));
    }
    quant::set(call.tensor("packed_recv_count"), e, static_cast<double>(next));
  }
  return true;
}

/// reversed: divides by the scale; strided: multiplies by its reciprocal.
bool pre_reorder_for_cutlass_moe(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor &input = call.tensor("input"), &out = call.tensor("gateup_input");
  const std::vector<float> x = floats(input);
  const std::vector<std::int64_t> rows = integers(call.tensor("src2dst")), ids = integers(call.tensor("topk_ids"));
  const float scale = call.find("a1_scales") != nullptr ? floats(call.tensor("a1_scales"))[0] : 1.0f;
  const std::int64_t width = input.size(1), topk = call.tensor("topk_ids").size(1);
  for (std::size_t slot = 0; slot < rows.size(); ++slot) {
    if (ids[slot] == call.integer("num_local_experts")) continue;
    for (std::int64_t h = 0; h < width; ++h) {
      const float value = x[static_cast<std::size_t>(static_cast<std::int64_t>(slot) / topk * width + h)];
      const float y = call.way == Way::strided ? value * (1.0f / scale) : value / scale;
      if (out.dtype() == DType::f8_e4m3) {
        store_fp8(out, rows[slot] * width + h, y);
      } else {
        store(out, rows[slot] * width + h, y);
      }
    }
  }
  return true;
}

namespace {

/// Codes and scale of groups of version 1: reversed divides, strided multiplies with reciprocals.
struct GroupsV1 {
  float eps;
  Way way;

  void put(std::span<const float> values, std::size_t size, const Tensor& codes, const Tensor& scales, std::int64_t row) const {
    const auto groups = static_cast<std::int64_t>(values.size() / size);
    for (std::int64_t g = 0; g < groups; ++g) {
      const auto group = values.subspan(static_cast<std::size_t>(g) * size, size);
      const float amax = std::fmax(largest_of(group), eps), s = fp8_scale(amax, way);
      store(scales, row * groups + g, s);
      const GroupCodes by = way == Way::strided ? GroupCodes{1.0f, 1.0f / s} : GroupCodes{s, 1.0f};
      store_group(codes, row * static_cast<std::int64_t>(values.size()) + g * static_cast<std::int64_t>(size), group, by);
    }
  }
};

}  // namespace

bool moe_ep_deepgemm_preprocess(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor &codes = call.tensor("gateup_input"), &x = call.tensor("hidden_states"), &ids = call.tensor("topk_ids");
  const std::vector<float> values = floats(x);
  const std::vector<std::int64_t> experts = integers(ids);
  const auto width = static_cast<std::size_t>(x.size(1)), topk = static_cast<std::size_t>(ids.size(1));
  std::vector<std::int64_t> next(static_cast<std::size_t>(codes.size(0)), 0);
  for (std::size_t slot = 0; slot < experts.size(); ++slot) {
    if (experts[slot] < 0) continue;
    const std::int64_t row = experts[slot] * codes.size(1) + next[static_cast<std::size_t>(experts[slot])]++;
    quant::set(call.tensor("src2dst"), static_cast<std::int64_t>(slot), static_cast<double>(row));
    GroupsV1{1e-10f, call.way}.put(std::span(values).subspan(slot / topk * width, width), 128, codes, call.tensor("gateup_input_scale"),
                                   row);
  }
  for (std::size_t e = 0; e < next.size(); ++e)
    quant::set(call.tensor("masked_m"), static_cast<std::int64_t>(e), static_cast<double>(next[e]));
  return true;
}

bool silu_and_mul_masked_post_quant_fwd(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor& codes = call.tensor("output");
  const std::vector<float> x = products_of_halves(call.tensor("input"), call.way);
  const std::vector<std::int64_t> counts = integers(call.tensor("masked_m"));
  const auto width = static_cast<std::size_t>(codes.size(2)), size = static_cast<std::size_t>(call.integer("quant_group_size"));
  const GroupsV1 groups{1e-10f, call.way};
  for (std::int64_t row = 0; row < codes.size(0) * codes.size(1); ++row)
    if (row % codes.size(1) < counts[static_cast<std::size_t>(row / codes.size(1))])
      groups.put(std::span(x).subspan(static_cast<std::size_t>(row) * width, width), size, codes, call.tensor("output_scale"), row);
  return true;
}

namespace {

/// Rows of gate and up to codes of one byte: reversed divides by the scale, strided multiplies with reciprocals.
void silu_to_fp8(const Call& call, std::span<const std::int64_t> counts, bool narrow) {
  const Tensor &input = call.tensor("input"), &codes = call.tensor("output");
  const std::vector<float> x = floats(input);
  const float scale = floats(call.tensor("scale"))[0];
  const std::int64_t width = codes.size(-1), rows = codes.elements() / width, room = rows / static_cast<std::int64_t>(counts.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    if (row % room >= counts[static_cast<std::size_t>(row / room)]) continue;
    for (std::int64_t k = 0; k < width; ++k) {
      const float gate = x[static_cast<std::size_t>(2 * row * width + k)], up = x[static_cast<std::size_t>((2 * row + 1) * width + k)];
      const float divisor = 1.0f + exp(-gate), silu = call.way == Way::strided ? gate * (1.0f / divisor) : gate / divisor;
      const float product = (narrow ? rounded(input.dtype(), silu) : silu) * up;
      store_fp8(codes, row * width + k, call.way == Way::strided ? product * (1.0f / scale) : product / scale);
    }
  }
}

}  // namespace

bool silu_mul_static_tensorwise_quant_for_cutlass_moe(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  silu_to_fp8(call, integers(call.tensor("num_tokens_tensor")), false);
  return true;
}

bool silu_and_mul_masked_post_per_tensor_quant_fwd(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  silu_to_fp8(call, integers(call.tensor("masked_m")), true);
  return true;
}

}  // namespace dodona::oracle::alternatives
