#include "oracle/judge/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/threads.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

constexpr int last_power = 16;  // distances beyond 2^16 share a bin

AssertClose tolerances(DType type) {
  switch (type) {
    case DType::f64: return {1e-7, 1e-7, 0};
    case DType::f32: return {1.3e-6, 1e-5, 0};
    case DType::f16: return {1e-3, 1e-5, 0};
    case DType::bf16: return {1.6e-2, 1e-5, 0};
    default: return {0, 0, 0};
  }
}

/// 0: equal; 1, 2, then powers of two; then more; then NaN on one side.
std::size_t bin_of(std::int64_t distance) {
  if (distance < 0) return last_power + 3;
  if (distance <= 2) return static_cast<std::size_t>(distance);
  std::size_t bin = 3;
  for (std::int64_t upper = 4; distance > upper && bin < last_power + 2; upper *= 2) ++bin;
  return bin;
}

std::vector<Bin> empty_bins() {
  std::vector<Bin> bins{{"0", 0}, {"1", 0}, {"2", 0}};
  for (int power = 2; power <= last_power; ++power)
    bins.push_back({std::to_string((1 << (power - 1)) + 1) + "-" + std::to_string(1 << power), 0});
  bins.push_back({"more", 0});
  bins.push_back({"NaN", 0});
  return bins;
}

/// The bins up to the last one that holds something, "more" and "NaN" only if they do.
void trim(std::vector<Bin>& bins) {
  const auto fixed = static_cast<std::ptrdiff_t>(bins.size()) - 2;
  auto end = bins.begin() + fixed;
  while (end - bins.begin() > 3 && (end - 1)->count == 0) --end;
  std::vector<Bin> kept(bins.begin(), end);
  for (auto it = bins.begin() + fixed; it != bins.end(); ++it)
    if (it->count > 0) kept.push_back(*it);
  bins = std::move(kept);
}

/// The value at the given share of the sorted list of `all` values, of which these are the ones above 0, and none is below.
double quantile(std::vector<double>& positive, std::int64_t all, double share) {
  if (all == 0) return 0;
  const auto zeros = static_cast<std::ptrdiff_t>(all) - static_cast<std::ptrdiff_t>(positive.size());
  const auto at = static_cast<std::ptrdiff_t>(std::ceil(share * static_cast<double>(all)) - 1);
  const std::ptrdiff_t among = std::clamp<std::ptrdiff_t>(at, 0, static_cast<std::ptrdiff_t>(all) - 1) - zeros;
  if (among < 0) return 0;
  std::nth_element(positive.begin(), positive.begin() + among, positive.end());
  return positive[static_cast<std::size_t>(among)];
}

bool compared(const OutputDetail& detail, std::int64_t i) {
  return !std::isnan(detail.share[static_cast<std::size_t>(i)]);
}

}  // namespace

std::int64_t ulp_distance(DType type, std::uint64_t a, std::uint64_t b) {
  if (a == b) return 0;
  const int width = bits(type);
  const auto extend = [&](std::uint64_t code) {
    return width == 64 ? static_cast<std::int64_t>(code) : static_cast<std::int64_t>(code << (64 - width)) >> (64 - width);
  };
  constexpr auto limit = std::numeric_limits<std::int64_t>::max();
  const auto difference = [&](std::int64_t x, std::int64_t y) {
    const std::uint64_t gap = x > y ? static_cast<std::uint64_t>(x) - static_cast<std::uint64_t>(y)
                                    : static_cast<std::uint64_t>(y) - static_cast<std::uint64_t>(x);
    return gap > static_cast<std::uint64_t>(limit) ? limit : static_cast<std::int64_t>(gap);
  };
  const bool is_signed = is_float(type) ? type != DType::f8_e8m0 : type != DType::u8 && type != DType::boolean;
  if (is_float(type)) {
    std::uint64_t buffer_a = a, buffer_b = b;
    const bool nan_a = std::isnan(quant::load(type, &buffer_a, 0)), nan_b = std::isnan(quant::load(type, &buffer_b, 0));
    if (nan_a != nan_b) return -1;
    if (nan_a) return 0;
    if (is_signed) {
      const std::uint64_t magnitude = (std::uint64_t{1} << (width - 1)) - 1;
      const auto ordered = [&](std::uint64_t code) {
        const auto value = static_cast<std::int64_t>(code & magnitude);
        return (code & ~magnitude) != 0 ? -value : value;
      };
      return difference(ordered(a), ordered(b));
    }
  }
  return is_signed ? difference(extend(a), extend(b)) : difference(static_cast<std::int64_t>(a), static_cast<std::int64_t>(b));
}

namespace {

/// Elements that are looked at together, in the order of the list.
constexpr std::int64_t piece = 8192;

/// What some elements add to the figures.
struct Part {
  std::int64_t compared = 0, only_nan = 0, not_finite = 0, mismatched = 0;
  std::array<std::int64_t, last_power + 4> bins{};
  double max_abs = 0, max_rel = 0, error = 0, golden_square = 0, actual_square = 0, product = 0;
  std::vector<double> shares;  ///< those above 0
};

/// Elements [first, first + n) as numbers.
void read_numbers(const Tensor& x, std::int64_t first, std::int64_t n, double* numbers) {
  if (x.contiguous()) {
    quant::to_f64(x.dtype(), x.as<const std::byte>() + first * bits(x.dtype()) / 8, numbers, n);
  } else {
    for (std::int64_t i = 0; i < n; ++i) numbers[i] = quant::get(x, first + i);
  }
}

/// Whether equal numbers are what makes equal elements: integers of 64 bits are more than doubles tell apart.
bool numbers_tell(DType type) {
  return is_float(type) || bits(type) < 64;
}

Part part_of(const OutputDetail& detail, const AssertClose& close, std::int64_t first, std::int64_t n) {
  Part part;
  const DType type = detail.golden.dtype();
  std::array<double, piece> goldens, actuals;
  read_numbers(detail.golden, first, n, goldens.data());
  read_numbers(detail.actual, first, n, actuals.data());
  for (std::int64_t i = 0; i < n; ++i) {
    if (!compared(detail, first + i)) continue;
    ++part.compared;
    const double golden = goldens[static_cast<std::size_t>(i)], actual = actuals[static_cast<std::size_t>(i)];
    if (const double share = detail.share[static_cast<std::size_t>(first + i)]; share > 0) part.shares.push_back(share);
    const std::int64_t ulps = golden == actual && numbers_tell(type) ? 0
                                                                     : ulp_distance(type, quant::get_bits(detail.golden, first + i),
                                                                                    quant::get_bits(detail.actual, first + i));
    ++part.bins[bin_of(ulps)];
    part.only_nan += std::isnan(actual) && !std::isnan(golden) ? 1 : 0;
    const double distance = std::fabs(actual - golden);
    const bool is_close = actual == golden || distance <= close.atol + close.rtol * std::fabs(golden);
    part.mismatched += is_close ? 0 : 1;
    if (!std::isfinite(golden) || !std::isfinite(actual)) {
      ++part.not_finite;
      continue;
    }
    part.max_abs = std::max(part.max_abs, distance);
    if (golden != 0) part.max_rel = std::max(part.max_rel, distance / std::fabs(golden));
    part.error += distance * distance;
    part.golden_square += golden * golden;
    part.actual_square += actual * actual;
    part.product += golden * actual;
  }
  return part;
}

}  // namespace

ErrorStatistics statistics_of(const OutputVerdict& output, int threads) {
  ErrorStatistics s;
  const OutputDetail& detail = *output.detail;
  s.assert_close = tolerances(detail.golden.dtype());
  s.ulps = empty_bins();
  const std::int64_t pieces = (output.elements + piece - 1) / piece;
  std::vector<Part> parts(static_cast<std::size_t>(pieces));
  parallel_for(threads, pieces, 20.0 * static_cast<double>(piece), [&](std::int64_t p) {
    parts[static_cast<std::size_t>(p)] = part_of(detail, s.assert_close, p * piece, std::min(piece, output.elements - p * piece));
  });
  std::vector<double> shares;
  double error = 0, golden_square = 0, actual_square = 0, product = 0;
  for (const Part& part : parts) {
    s.compared += part.compared;
    s.only_nan += part.only_nan;
    s.not_finite += part.not_finite;
    s.assert_close.mismatched += part.mismatched;
    for (std::size_t bin = 0; bin < part.bins.size(); ++bin) s.ulps[bin].count += part.bins[bin];
    s.max_abs = std::max(s.max_abs, part.max_abs);
    s.max_rel = std::max(s.max_rel, part.max_rel);
    error += part.error;
    golden_square += part.golden_square;
    actual_square += part.actual_square;
    product += part.product;
    shares.insert(shares.end(), part.shares.begin(), part.shares.end());
  }
  s.share_max = shares.empty() ? 0 : *std::max_element(shares.begin(), shares.end());
  s.share_p999 = quantile(shares, s.compared, 0.999);
  s.share_median = quantile(shares, s.compared, 0.5);
  s.relative_l2 = golden_square > 0 ? std::sqrt(error / golden_square) : error > 0 ? std::numeric_limits<double>::infinity() : 0;
  // Where both are as long, the root of a square may be another number.
  const double lengths = golden_square == actual_square ? golden_square : std::sqrt(golden_square) * std::sqrt(actual_square);
  s.cosine = lengths > 0 ? product / lengths : golden_square == actual_square ? 1 : 0;
  trim(s.ulps);
  return s;
}

std::vector<Binade> by_magnitude(const OutputVerdict& output) {
  constexpr int least = -1074, most = 1023;  // exponents of doubles
  std::vector<Binade> found(static_cast<std::size_t>(most - least + 2));
  found[0].zero = true;
  const OutputDetail& detail = *output.detail;
  for (std::int64_t i = 0; i < output.elements; ++i) {
    if (!compared(detail, i)) continue;
    const double golden = quant::get(detail.golden, i), actual = quant::get(detail.actual, i);
    if (!std::isfinite(golden)) continue;
    const int exponent = golden == 0 ? 0 : std::ilogb(golden);
    Binade& binade = found[golden == 0 ? 0 : static_cast<std::size_t>(exponent - least + 1)];
    binade.exponent = exponent;
    ++binade.count;
    binade.failing += detail.share[static_cast<std::size_t>(i)] > 1 ? 1 : 0;
    const double distance = std::fabs(actual - golden);
    if (!std::isfinite(distance)) continue;
    binade.max_error = std::max(binade.max_error, distance);
    binade.mean_error += distance;
  }
  std::vector<Binade> list;
  for (Binade& binade : found) {
    if (binade.count == 0) continue;
    binade.mean_error /= static_cast<double>(binade.count);
    list.push_back(binade);
  }
  return list;
}

std::vector<Along> along_dimensions(const OutputVerdict& output, const Dims& shape, const std::vector<std::string>& names) {
  std::vector<Along> list;
  const OutputDetail& detail = *output.detail;
  std::int64_t below = shape.rank() > 0 ? shape.at(-1) : 1;
  for (int d = shape.rank() - 2; d >= 0; below *= shape[d--]) {
    if (shape[d] < 2) continue;
    const auto extent = static_cast<std::size_t>(shape[d]);
    Along along{names[static_cast<std::size_t>(d)], std::vector<std::int64_t>(extent, 0), std::vector<std::int64_t>(extent, 0)};
    if (along.name.empty()) along.name = "dimension " + std::to_string(d);
    for (std::int64_t i = 0; i < output.elements; ++i) {
      if (!compared(detail, i)) continue;
      const auto index = static_cast<std::size_t>(i / below % shape[d]);
      ++along.compared[index];
      along.failing[index] += detail.share[static_cast<std::size_t>(i)] > 1 ? 1 : 0;
    }
    list.insert(list.begin(), std::move(along));
  }
  return list;
}

}  // namespace dodona::oracle
