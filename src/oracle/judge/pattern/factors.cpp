#include "oracle/judge/pattern/factors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "oracle/judge/pattern.h"
#include "quant/element.h"

namespace dodona::oracle {

std::string meaning_of_factor(double factor) {
  struct Named {
    double factor;
    const char* meaning;
  };
  constexpr double ln2 = 0.6931471805599453;
  static constexpr std::array<Named, 14> known{{{-1.0, "the sign is wrong"},
                                                {0.5, "half"},
                                                {2.0, "double"},
                                                {ln2, "ln 2: a logarithm in the other base"},
                                                {1 / ln2, "log2 e: a logarithm in the other base"},
                                                {2.5, "the routed scaling factor of V3, once too often"},
                                                {0.4, "the routed scaling factor of V3 is missing"},
                                                {6.25, "the routed scaling factor of V3 twice too often"},
                                                {448.0, "the largest e4m3 value: a scale and its inverse"},
                                                {1 / 448.0, "the largest e4m3 value: a scale and its inverse"},
                                                {448.0 / 240, "the largest code is taken for 240, not 448"},
                                                {448.0 / 256, "the largest code is taken for 256, not 448"},
                                                {127.0 / 128, "the largest code is taken for 128, not 127"},
                                                {240.0 / 448, "the largest code is taken for 448, not 240"}}};
  for (const Named& named : known)
    if (std::fabs(factor - named.factor) <= 0.004 * std::fabs(named.factor)) return std::string(" (") + named.meaning + ")";
  return {};
}

namespace pattern {
namespace {

/// Whether numbers of this type are fine enough to know a relation that holds to a few units in the last place from a chance: of 4 or 8
/// bits, 2 units are 6 to 50 %, and nearly any factor fits.
bool is_fine(DType type) {
  return bits(type) > 8;
}

bool scaled_by(const Sample& s, double factor, DType type) {
  const double expected = factor * s.golden;
  return std::fabs(s.actual - expected) <= 2 * quant::ulp(type, expected) + 2 * std::fabs(factor) * quant::ulp(type, s.golden);
}

/// A row's failing elements, golden's times `factor`.
struct RowFactor {
  std::int64_t row, first, last;  ///< columns
  double factor;
};

/// One for each row that fails, where all rows have `enough` samples and one factor each.
template <class Enough>
std::optional<std::vector<RowFactor>> factors_of_rows(const std::vector<Sample>& samples, DType type, std::int64_t width,
                                                      const Enough& enough) {
  if (!is_fine(type)) return std::nullopt;
  std::map<std::int64_t, std::vector<Sample>> rows;
  for (const Sample& s : samples) rows[s.index / width].push_back(s);
  std::vector<RowFactor> found;
  for (const auto& [row, its] : rows) {
    const RowFactor r{row, its.front().index % width, its.back().index % width, 0};
    if (!enough(r, its.size())) return std::nullopt;
    const auto factor = median(its, [](const Sample& s) { return s.golden != 0 ? s.actual / s.golden : NAN; });
    if (!factor || *factor == 0 || !most(its, [&](const Sample& s) { return scaled_by(s, *factor, type); })) return std::nullopt;
    found.push_back({r.row, r.first, r.last, *factor});
  }
  return found;
}

/// The first three of them: where they are, and what.
template <class Place>
std::string examples_of(const std::vector<RowFactor>& rows, const Place& place) {
  std::string examples;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, rows.size()); ++i)
    examples += (i > 0 ? ", " : "") + ("row " + text(rows[i].row) + place(rows[i]) + " = " + number(rows[i].factor) + " x golden's");
  return examples + (rows.size() > 3 ? "..." : "");
}

}  // namespace

std::optional<std::string> of_whole_numbers(const std::vector<Sample>& samples) {
  std::set<double> values;
  double largest = 0, farthest = 0;
  for (const Sample& s : samples) values.insert(s.actual), largest = std::max(largest, s.actual), farthest = std::max(farthest, s.golden);
  const auto as_float = [](double x) {
    const auto value = static_cast<float>(x);
    std::int32_t bits_of = 0;
    std::memcpy(&bits_of, &value, sizeof bits_of);
    return static_cast<double>(bits_of);
  };
  // No whole number that is meant as one is its own bits as fp32.
  if (samples.size() >= 4 && most(samples, [&](const Sample& s) { return s.golden != 0 && s.actual == as_float(s.golden); }))
    return "the bits of fp32 numbers: golden's are stored as floating ones in a tensor of whole ones";
  if (samples.size() < 4 || values.size() < 4) return std::nullopt;
  for (double p = 2; p <= 0x1p24; p *= 2) {
    const std::string n = text(static_cast<std::int64_t>(p));
    if (most(samples, [&](const Sample& s) { return s.golden >= 0 && s.actual == std::fmod(s.golden, p); }))
      return "golden's numbers modulo " + n + ": those from " + n + " on are counted from 0 again";
    if (most(samples, [&](const Sample& s) { return s.golden >= 0 && s.actual == std::floor(s.golden / p); }))
      return "golden's numbers over " + n + ": of what " + n + " make one";
    if (most(samples, [&](const Sample& s) { return s.actual == s.golden * p; })) return "golden's numbers times " + n;
    // Numbers are skipped that golden has; of a few small ones it says nothing.
    constexpr std::size_t many = 8;
    if (values.size() >= many && largest < p && 2 * largest > p && farthest >= p &&
        most(samples, [&](const Sample& s) { return s.golden >= p || s.actual != s.golden; }) && p >= 64)
      return "none is " + n + " or more, and golden's reach to " + text(static_cast<std::int64_t>(farthest)) + ": only the first " + n +
             " are looked at";
  }
  const double offset = samples.front().actual - samples.front().golden;
  if (most(samples, [&](const Sample& s) { return s.actual - s.golden == offset; }))
    return "a constant offset: actual = golden " + std::string(offset < 0 ? "- " : "+ ") + number(std::fabs(offset));
  return std::nullopt;
}

std::optional<std::string> sums_begun_anew(const std::vector<std::int64_t>& failing, const Tensor& golden, const Tensor& actual) {
  constexpr std::size_t enough = 4;
  const std::int64_t width = golden.rank() > 0 ? golden.size(-1) : 0;
  if (width < 8 || failing.size() < enough) return std::nullopt;
  const auto at = [&](std::int64_t i) { return quant::get(golden, i); };
  std::set<double> values;
  for (const std::int64_t i : failing) values.insert(quant::get(actual, i));
  if (values.size() < enough) return std::nullopt;
  const auto holds = [&](const auto& expected) {
    return std::all_of(failing.begin(), failing.end(), [&](std::int64_t i) {
      const auto value = expected(i, i % width);
      return value && quant::get(actual, i) == *value;
    });
  };
  const std::int64_t first =
      *std::min_element(failing.begin(), failing.end(), [&](std::int64_t a, std::int64_t b) { return a % width < b % width; }) % width;
  const std::string from = first > 1 ? "from number " + text(first) + " on " : "";
  using Value = std::optional<double>;
  if (holds([&](std::int64_t i, std::int64_t c) { return c > 0 ? Value(at(i) - at(i - 1)) : std::nullopt; }) ||
      holds([&](std::int64_t i, std::int64_t c) { return c + 1 < width ? Value(at(i + 1) - at(i)) : Value(quant::get(actual, i)); }))
    return from + "counts of their own, which are not added up: differences of golden's running sums";
  for (std::int64_t block = 1024; block >= 4; block /= 2) {
    if (block >= width) continue;
    const auto anew = [&](std::int64_t before) {
      return holds([&, before](std::int64_t i, std::int64_t c) {
        const std::int64_t begins = c / block * block;
        return begins - before >= 0 && begins > 0 ? Value(at(i) - at(i - c + begins - before)) : std::nullopt;
      });
    };
    if (anew(0) || anew(1)) return "running sums begin anew with each " + text(block) + " numbers: the sum of those before is not added";
  }
  return std::nullopt;
}

std::optional<std::string> factor_of_each_row(const std::vector<Sample>& samples, DType type, std::int64_t width) {
  const auto rows = factors_of_rows(samples, type, width, [](const RowFactor&, std::size_t count) { return count >= 4; });
  if (!rows || rows->size() < 2) return std::nullopt;
  double least = std::numeric_limits<double>::infinity(), most_of_all = 0;
  for (const RowFactor& r : *rows) least = std::min(least, std::fabs(r.factor)), most_of_all = std::max(most_of_all, std::fabs(r.factor));
  // A common factor is another finding.
  if (most_of_all < 1.05 * least) return std::nullopt;
  return "each row has a factor of its own: " + examples_of(*rows, [](const RowFactor&) { return std::string(); });
}

std::optional<std::string> factor_of_row_parts(const std::vector<Sample>& samples, DType type, std::int64_t width) {
  const auto rows = factors_of_rows(
      samples, type, width, [&](const RowFactor& r, std::size_t count) { return count >= 8 && 2 * (r.last - r.first + 1) <= width; });
  if (!rows || rows->size() < 2) return std::nullopt;
  double least = std::numeric_limits<double>::infinity(), most_of_all = 0;
  for (const RowFactor& r : *rows) least = std::min(least, r.factor), most_of_all = std::max(most_of_all, r.factor);
  if (most_of_all - least < 0.004) return std::nullopt;
  return "parts of rows have a factor that is not their row's, such as the next row's where a barrier is missing: " +
         examples_of(*rows, [](const RowFactor& r) { return ", columns " + text(r.first) + ".." + text(r.last); });
}

namespace {

/// A sum that is taken for a mean, or the other way round, of a row's numbers.
std::string meaning_by_width(double factor, std::int64_t width) {
  constexpr std::int64_t least = 16;
  if (width < least) return {};
  const auto size = static_cast<double>(width);
  const std::string columns = text(width) + " columns of a row: ";
  const auto is = [&](double x) { return std::fabs(factor - x) <= 0.004 * x; };
  if (is(1 / std::sqrt(size))) return " (1 / the root of the " + columns + "a sum of squares is taken for their mean)";
  if (is(std::sqrt(size))) return " (the root of the " + columns + "divided by them twice)";
  if (is(1 / size)) return " (1 / the " + columns + "divided by them once too often)";
  if (is(size)) return " (the " + columns + "a sum is not divided by them)";
  return {};
}

}  // namespace

std::optional<std::string> constant_factor(const std::vector<Sample>& samples, DType type, std::int64_t width) {
  if (!is_fine(type)) return std::nullopt;
  const auto factor = median(samples, [](const Sample& s) { return s.golden != 0 ? s.actual / s.golden : NAN; });
  if (!factor || *factor == 0 || std::fabs(*factor - 1) < 1e-3) return std::nullopt;
  // Of a few elements alone whatever is near is a factor.
  if (samples.size() < 16 && std::fabs(*factor - 1) < 4 * quant::ulp(type, 1.0)) return std::nullopt;
  const bool holds = most(samples, [&](const Sample& s) { return scaled_by(s, *factor, type); });
  // Errors of a place or two follow any factor near 1: it must leave less than half of the error.
  double with = 0, without = 0;
  for (const Sample& s : samples)
    if (std::isfinite(s.actual) && std::isfinite(s.golden))
      with += std::fabs(s.actual - *factor * s.golden), without += std::fabs(s.actual - s.golden);
  if (!holds || with > 0.5 * without) return std::nullopt;
  return "a constant factor: actual = " + number(*factor) + " x golden" +
         (meaning_of_factor(*factor).empty() ? meaning_by_width(*factor, width) : meaning_of_factor(*factor));
}

std::optional<std::string> powers_off(const std::vector<Sample>& samples, DType type) {
  if (type != DType::f8_e8m0 || samples.size() < 4) return std::nullopt;
  const auto factor = median(samples, [](const Sample& s) { return s.actual / s.golden; });
  if (!factor || *factor == 1 || !most(samples, [&](const Sample& s) { return s.actual == *factor * s.golden; })) return std::nullopt;
  const double powers = std::log2(*factor);
  return "scales are " + number(std::fabs(powers)) + (std::fabs(powers) == 1 ? " power" : " powers") + " of two too " +
         (powers > 0 ? "large, as a largest code taken for less (256, 240), or a maximum rounded up, gives"
                     : "small, as a largest code taken for more, or a maximum cut to the power below, gives");
}

std::optional<std::string> constant_offset(const std::vector<Sample>& samples, DType type) {
  if (!is_fine(type)) return std::nullopt;
  const auto offset = median(samples, [](const Sample& s) { return s.actual - s.golden; });
  if (!offset || *offset == 0) return std::nullopt;
  double largest = 0;
  const bool holds = most(samples, [&](const Sample& s) {
    const double room = 2 * quant::ulp(type, s.golden) + 2 * quant::ulp(type, s.actual);
    largest = std::max(largest, room);
    return std::fabs(s.actual - s.golden - *offset) <= room;
  });
  // An offset of the size of the rounding is none.
  if (!holds || std::fabs(*offset) < 4 * largest) return std::nullopt;
  return "a constant offset: actual = golden " + std::string(*offset < 0 ? "- " : "+ ") + number(std::fabs(*offset));
}

}  // namespace pattern
}  // namespace dodona::oracle
