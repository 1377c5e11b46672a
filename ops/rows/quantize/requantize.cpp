#include "ops/rows/quantize/requantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/rows/quantize/fp4_row.h"
#include "ops/rows/quantize/group_row.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/element.h"
#include "quant/fp32_ops.h"
#include "quant/hopper/fast_math.h"
#include "quant/nibble.h"

namespace dodona::ops {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::size_t largest_group = 128;

/// By how much scales, and arguments of codes, of honest implementations differ: of a quotient 2 ulp; of the inverse of a quotient and of
/// a product with it likewise twice; of FlashInfer's rule as fp4_quantize has it.
double units_of(ScaleRule rule) {
  return (rule == ScaleRule::quotient ? 4.0 : rule == ScaleRule::inverse ? 9.0 : 10.0) * f32_eps;
}

struct Range {
  double low, high;
};

double decoded(DType code, double x) {
  if (code == DType::f4_e2m1) return static_cast<double>(quant::e2m1_to_f32(quant::to_e2m1(x)));
  return static_cast<double>(quant::e4m3_to_f32(quant::to_e4m3_satfinite(x)));
}

bool has_e4m3_scales(const Requantizer& r) {
  return r.scale == DType::f8_e4m3;
}
double e4m3_scale(double x) {
  return static_cast<double>(quant::e4m3_to_f32(quant::to_e4m3_satfinite(x)));
}

/// A group's scale, and what its numbers are divided by or multiplied with to become codes.
struct GroupScale {
  double scale = 1;
  float by = 1;
  bool divides = false;

  /// The code's argument.
  double scaled(double x) const {
    if (divides) return scale == 0 ? 0.0 : static_cast<double>(static_cast<float>(x / static_cast<double>(by)));
    return static_cast<double>(static_cast<float>(x * static_cast<double>(by)));
  }
};

GroupScale scale_of(const Requantizer& r, double largest_magnitude) {
  if (r.group == 0) return {.by = r.encode_scale};
  const double amax = std::max(largest_magnitude, static_cast<double>(r.least_amax));
  switch (r.rule) {
    case ScaleRule::quotient: {
      const auto wide = static_cast<double>(static_cast<float>(amax / r.largest));
      const double scale = has_e4m3_scales(r) ? e4m3_scale(wide) : wide;
      return {scale, static_cast<float>(scale), true};
    }
    case ScaleRule::inverse: {
      if (r.approximate) {
        const float q = amax == 0 ? 1.0f : quant::hopper::div(static_cast<float>(r.largest), static_cast<float>(amax));
        return {static_cast<double>(quant::hopper::rcp(q)), q};
      }
      const float q = amax == 0 ? 1.0f : static_cast<float>(r.largest / amax);
      return {static_cast<double>(1.0f / q), q};
    }
    default: {
      const double scale = e4m3_scale(static_cast<double>(r.encode_scale * (static_cast<float>(amax) * quant::reciprocal_ftz(6.0f))));
      const float divisor = static_cast<float>(scale) * quant::reciprocal_ftz(r.encode_scale);
      return {scale, scale == 0 ? 0.0f : quant::reciprocal_ftz(divisor)};
    }
  }
}

/// What numbers are divided by to become codes, given a scale.
double divisor_of(const Requantizer& r, double scale) {
  return r.rule == ScaleRule::encoded ? scale / static_cast<double>(r.encode_scale) : scale;
}

/// The numbers that x with its slack may become under any scale between two of them.
struct Envelope {
  const Requantizer& r;
  Range scale;

  /// Codes rise with what is quantized, so that the ends are where x / s is least and most.
  double least(double x) const {
    const bool negative = x < 0;
    const double units = units_of(r.rule), by = divisor_of(r, negative ? scale.low : scale.high);
    return by == 0 ? 0.0 : decoded(r.code, x / by * (1.0 + (negative ? units : -units))) * (negative ? scale.high : scale.low);
  }
  double most(double x) const { return -least(-x); }
};

/// The scales that a group may have whose largest magnitude is open.
Range scales_of(const Requantizer& r, const Bounded& amax, double scale) {
  const double units = units_of(r.rule), low = std::max(0.0, amax.exact - amax.slack) * (1.0 - units),
               high = (amax.exact + amax.slack) * (1.0 + units);
  if (has_e4m3_scales(r)) return {scale_of(r, low).scale, scale_of(r, high).scale};
  // Zeros have a scale of their own, beside which there are the smallest ones.
  const auto quotient = [&](double x) {
    return std::max({static_cast<double>(static_cast<float>(std::max(x, static_cast<double>(r.least_amax)) / r.largest)), flush_floor});
  };
  return {std::min(quotient(low), scale), std::max(quotient(high), scale)};
}

/// How far a group's numbers may lie from those of golden mode, whose scale is `scale`.
void open_of(const Requantizer& r, std::span<const Bounded> x, const Bounded& amax, double scale, const double* values, double* open) {
  const Range scales = scales_of(r, amax, scale);
  for (std::size_t i = 0; i < x.size(); ++i) {
    double reach = 0;
    const auto widen = [&](const Range& by) {
      const Envelope envelope{r, by};
      reach = std::max({reach, values[i] - envelope.least(x[i].exact - x[i].slack), envelope.most(x[i].exact + x[i].slack) - values[i]});
    };
    if (has_e4m3_scales(r)) {
      // One e4m3 number after the other.
      for (double s = scales.low;; s = quant::next_up(DType::f8_e4m3, s)) {
        widen({s, s});
        if (s >= scales.high) break;
      }
    } else {
      widen(scales);
    }
    open[i] = reach;
  }
}

void put_code(DType code, void* codes, std::int64_t i, double scaled) {
  if (code == DType::f4_e2m1) {
    quant::set_nibble(static_cast<std::uint8_t*>(codes), i, quant::to_e2m1(scaled));
  } else {
    static_cast<std::uint8_t*>(codes)[i] = quant::to_e4m3_satfinite(scaled);
  }
}

/// Codes without scales: what a number times the encode scale may become.
double open_code(const Requantizer& r, const Bounded& x, double value) {
  const Bounded scaled = r.encode_scale == 1.0f ? x : rounded_f32(x * static_cast<double>(r.encode_scale));
  return scaled.slack > 0
             ? std::max({0.0, value - decoded(r.code, scaled.exact - scaled.slack), decoded(r.code, scaled.exact + scaled.slack) - value})
             : 0.0;
}

void quantize_group(const Requantizer& r, std::span<const Bounded> x, std::int64_t first, const RequantizedRow& row) {
  Bounded amax;
  double least = 0, most = 0;
  bool known = true;
  for (const Bounded& number : x) {
    const double magnitude = std::fabs(number.exact);
    known = known && !number.open && std::isfinite(magnitude) && std::isfinite(number.slack);
    amax.exact = std::max(amax.exact, magnitude);
    least = std::max(least, magnitude - number.slack);
    most = std::max(most, magnitude + number.slack);
  }
  amax.slack = std::max(amax.exact - least, most - amax.exact);
  const GroupScale by = scale_of(r, amax.exact);
  if (row.scales != nullptr && r.group > 0) quant::store(r.scale, row.scales, first / r.group, by.scale);
  std::array<double, largest_group> values;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double scaled = by.scaled(x[i].exact);
    values[i] = by.scale == 0 ? 0.0 : decoded(r.code, scaled) * by.scale;
    if (row.codes != nullptr) put_code(r.code, row.codes, first + static_cast<std::int64_t>(i), scaled);
    if (row.values != nullptr) row.values[first + static_cast<std::int64_t>(i)] = values[i];
  }
  if (row.open == nullptr) return;
  if (!known) {
    std::fill_n(row.open + first, x.size(), infinity);
  } else if (r.group == 0) {
    for (std::size_t i = 0; i < x.size(); ++i) row.open[first + static_cast<std::int64_t>(i)] = open_code(r, x[i], values[i]);
  } else {
    open_of(r, x, amax, by.scale, values.data(), row.open + first);
  }
}

/// Without codes: f32, bf16 or f16.
void round_row(const Requantizer& r, std::span<const Bounded> x, const RequantizedRow& row) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Bounded scaled = r.encode_scale == 1.0f ? x[i] : rounded_f32(x[i] * static_cast<double>(r.encode_scale));
    const Bounded rounded = r.keeps() ? scaled : rounded_to(r.code, scaled);
    if (row.codes != nullptr) quant::store(r.code, row.codes, static_cast<std::int64_t>(i), rounded.exact);
    if (row.values != nullptr) row.values[i] = rounded.exact;
    if (row.open != nullptr)
      row.open[i] = rounded.open || !std::isfinite(rounded.exact) || !std::isfinite(rounded.slack) ? infinity : rounded.slack;
  }
}

bool has_codes(const Requantizer& r) {
  return r.code == DType::f8_e4m3 || r.code == DType::f4_e2m1;
}

// ---- numbers that are what they are

/// x in f32 to codes by groups.
void quantize_floats(const Requantizer& r, std::span<const float> x, const RequantizedFloats& row, Isa isa) {
  std::vector<float> narrow;
  if (r.first != DType::f32) {
    narrow.resize(x.size());
    requantize(Requantizer{.code = r.first}, x, RequantizedFloats{.values = narrow.data()}, isa);
    x = narrow;
  }
  const auto n = static_cast<std::int64_t>(x.size()), size = r.group > 0 ? r.group : n, groups = n / std::max<std::int64_t>(1, size);
  std::vector<float> by(static_cast<std::size_t>(groups)), scales(by.size());
  bool divides = false;
  if (r.group > 0) dispatch<GroupMaximaKernel>(isa, GroupRow{x.data(), groups, size, DType::f32}, by.data());
  for (std::size_t g = 0; g < by.size(); ++g) {
    const GroupScale scale = scale_of(r, static_cast<double>(by[g]));
    by[g] = scale.by;
    scales[g] = static_cast<float>(scale.scale);
    divides = scale.divides;
    if (row.scales != nullptr && r.group > 0) quant::store(r.scale, row.scales, static_cast<std::int64_t>(g), scale.scale);
  }
  std::vector<std::uint8_t> unasked(row.codes == nullptr ? x.size() : 0);
  dispatch<ScaledCodesKernel>(
      isa, ScaledCodes{x.data(), groups, size, by.data(), divides, r.code == DType::f4_e2m1,
                       row.codes == nullptr ? unasked.data() : static_cast<std::uint8_t*>(row.codes), scales.data(), row.values});
}

/// FlashInfer's rule has a kernel of its own, over rows of 16 bits.
void encode_floats(const Requantizer& r, std::span<const float> x, const RequantizedFloats& row, Isa isa) {
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<std::uint16_t> narrow(x.size());
  quant::from_f32(r.first, x.data(), narrow.data(), n);
  dispatch<Fp4RowKernel>(isa, Fp4Row{.input = narrow.data(),
                                     .codes = static_cast<std::uint8_t*>(row.codes),
                                     .scales = static_cast<std::uint8_t*>(row.scales),
                                     .tile = 4,
                                     .blocks = n / r.group,
                                     .type = r.first,
                                     .encode_scale = r.encode_scale,
                                     .zero_by_amax = true});
}

}  // namespace

void requantize(const Requantizer& requantizer, std::span<const Bounded> x, const RequantizedRow& row) {
  std::vector<Bounded> narrow;
  if (requantizer.first != DType::f32) {
    for (const Bounded& number : x) narrow.push_back(rounded_to(requantizer.first, number));
    x = narrow;
  }
  if (!has_codes(requantizer)) return round_row(requantizer, x, row);
  const std::size_t step = requantizer.group > 0 ? static_cast<std::size_t>(requantizer.group) : largest_group;
  for (std::size_t first = 0; first < x.size(); first += step)
    quantize_group(requantizer, x.subspan(first, std::min(step, x.size() - first)), static_cast<std::int64_t>(first), row);
}

void requantize(const Requantizer& requantizer, std::span<const float> x, const RequantizedFloats& row, Isa isa) {
  if (requantizer.rule == ScaleRule::encoded) return encode_floats(requantizer, x, row, isa);
  if (has_codes(requantizer)) return quantize_floats(requantizer, x, row, isa);
  const auto n = static_cast<std::int64_t>(x.size());
  if (row.codes != nullptr) quant::from_f32(requantizer.code, x.data(), row.codes, n);
  if (row.values == nullptr) return;
  std::vector<std::byte> narrow(static_cast<std::size_t>(bytes_for(requantizer.code, n)));
  quant::from_f32(requantizer.code, x.data(), narrow.data(), n);
  quant::to_f32(requantizer.code, narrow.data(), row.values, n);
}

}  // namespace dodona::ops
