#include "ops/rows/requantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/element.h"
#include "quant/nibble.h"

namespace dodona::ops {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
/// Of a quotient: 2 ulp.
constexpr double quotient = 4.0 * f32_eps;

struct Format {
  std::int64_t group;
  DType code, scale;
  double largest;  ///< that the largest magnitude of a group is scaled to
};
constexpr std::array<Format, 5> formats{{{0, DType::f32, DType::f32, 0},
                                         {0, DType::bf16, DType::f32, 0},
                                         {128, DType::f8_e4m3, DType::f32, 448},
                                         {0, DType::f8_e4m3, DType::f32, 0},
                                         {16, DType::f4_e2m1, DType::f8_e4m3, 6}}};
const Format& format_of(Requantizer requantizer) {
  return formats[static_cast<std::size_t>(requantizer)];
}

struct Range {
  double low, high;
};

double decoded(DType code, double x) {
  if (code == DType::f4_e2m1) return static_cast<double>(quant::e2m1_to_f32(quant::to_e2m1(x)));
  return static_cast<double>(quant::e4m3_to_f32(quant::to_e4m3_satfinite(x)));
}

double scale_of(const Format& format, double amax) {
  const auto wide = static_cast<double>(static_cast<float>(amax / format.largest));
  if (format.scale == DType::f32) return std::max(wide, flush_floor);
  return static_cast<double>(quant::e4m3_to_f32(quant::to_e4m3_satfinite(wide)));
}

/// code * scale of x / scale, a scale of 0 gives 0.
double number(const Format& format, double x, double scale) {
  return scale == 0 ? 0.0 : decoded(format.code, static_cast<double>(static_cast<float>(x / scale))) * scale;
}

/// The numbers that x with its slack may become under any of the scales, which are the format's between two of them.
struct Envelope {
  const Format& format;
  Range scale;

  /// Codes rise with what is quantized, so that the ends are where x / s is least and most.
  double least(double x) const {
    const bool negative = x < 0;
    const double by = negative ? scale.low : scale.high, reach = (1.0 + (negative ? quotient : -quotient));
    return by == 0 ? 0.0 : decoded(format.code, x / by * reach) * (negative ? scale.high : scale.low);
  }
  double most(double x) const { return -least(-x); }
};

/// How far a group's numbers may lie from those of golden mode, whose scale is `scale`.
void open_of(const Format& format, std::span<const Bounded> x, const Bounded& amax, double scale, const double* values, double* open) {
  const bool power_steps = format.scale != DType::f32;
  const double low = std::max(0.0, amax.exact - amax.slack) * (1.0 - quotient), high = (amax.exact + amax.slack) * (1.0 + quotient);
  Range scales{scale_of(format, low), scale_of(format, high)};
  if (!power_steps) scales = {std::min(scales.low, scale), std::max(scales.high, scale)};
  for (std::size_t i = 0; i < x.size(); ++i) {
    double reach = 0;
    const auto widen = [&](const Range& by) {
      const Envelope envelope{format, by};
      reach = std::max({reach, values[i] - envelope.least(x[i].exact - x[i].slack), envelope.most(x[i].exact + x[i].slack) - values[i]});
    };
    if (power_steps) {
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

void put_code(const Format& format, void* codes, std::int64_t i, double x, double scale) {
  const double scaled = scale == 0 ? 0.0 : static_cast<double>(static_cast<float>(x / scale));
  if (format.code == DType::f4_e2m1) {
    quant::set_nibble(static_cast<std::uint8_t*>(codes), i, quant::to_e2m1(scaled));
  } else {
    static_cast<std::uint8_t*>(codes)[i] = quant::to_e4m3_satfinite(scaled);
  }
}

void quantize_group(const Format& format, std::span<const Bounded> x, std::int64_t first, const RequantizedRow& row) {
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
  const double scale = format.group == 0 ? 1.0 : scale_of(format, amax.exact);
  if (row.scales != nullptr && format.group > 0) quant::store(format.scale, row.scales, first / format.group, scale);
  std::array<double, 128> values;
  for (std::size_t i = 0; i < x.size(); ++i) {
    values[i] = number(format, x[i].exact, scale);
    if (row.codes != nullptr) put_code(format, row.codes, first + static_cast<std::int64_t>(i), x[i].exact, scale);
    if (row.values != nullptr) row.values[first + static_cast<std::int64_t>(i)] = values[i];
  }
  if (row.open == nullptr) return;
  if (!known) {
    std::fill_n(row.open + first, x.size(), infinity);
  } else if (format.group == 0) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const Envelope envelope{format, {1.0, 1.0}};
      const double low = envelope.least(x[i].exact - x[i].slack), high = envelope.most(x[i].exact + x[i].slack);
      row.open[first + static_cast<std::int64_t>(i)] = x[i].slack > 0 ? std::max({0.0, values[i] - low, high - values[i]}) : 0.0;
    }
  } else {
    open_of(format, x, amax, scale, values.data(), row.open + first);
  }
}

/// Without scales: fp32 or bf16.
void round_row(DType type, std::span<const Bounded> x, const RequantizedRow& row) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Bounded rounded = type == DType::f32 ? x[i] : rounded_to(type, x[i]);
    if (row.codes != nullptr) quant::store(type, row.codes, static_cast<std::int64_t>(i), rounded.exact);
    if (row.values != nullptr) row.values[i] = rounded.exact;
    if (row.open != nullptr)
      row.open[i] = rounded.open || !std::isfinite(rounded.exact) || !std::isfinite(rounded.slack) ? infinity : rounded.slack;
  }
}

}  // namespace

std::int64_t group_of(Requantizer requantizer) {
  return format_of(requantizer).group;
}
DType code_type(Requantizer requantizer) {
  return format_of(requantizer).code;
}
DType scale_type(Requantizer requantizer) {
  return format_of(requantizer).scale;
}

void requantize(Requantizer requantizer, std::span<const Bounded> x, const RequantizedRow& row) {
  const Format& format = format_of(requantizer);
  if (requantizer == Requantizer::none || requantizer == Requantizer::bf16) return round_row(format.code, x, row);
  constexpr std::size_t most = 128;
  const std::size_t step = format.group > 0 ? static_cast<std::size_t>(format.group) : most;
  for (std::size_t first = 0; first < x.size(); first += step)
    quantize_group(format, x.subspan(first, std::min(step, x.size() - first)), static_cast<std::int64_t>(first), row);
}

void requantize(Requantizer requantizer, std::span<const float> x, const RequantizedRow& row) {
  std::vector<Bounded> wide;
  wide.reserve(x.size());
  for (const float value : x) wide.push_back({static_cast<double>(value)});
  requantize(requantizer, wide, row);
}

}  // namespace dodona::ops
