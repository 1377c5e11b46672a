#include "oracle/judge/pattern.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "core/shape_expr.h"
#include "core/storage.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

/// A relation counts when it holds for this share of the failing elements.
constexpr double nearly_all = 0.95;
/// Relations are looked for among this many failing elements, evenly taken.
constexpr std::size_t sample_limit = 20000;

std::string text(std::int64_t value) {
  return std::to_string(value);
}

struct Range {
  std::int64_t low = 0, high = -1;
  std::string text() const { return low == high ? std::to_string(low) : std::to_string(low) + ".." + std::to_string(high); }
  std::int64_t size() const { return high - low + 1; }
};

Range range_of(const std::set<std::int64_t>& values) {
  return {*values.begin(), *values.rbegin()};
}
bool dense(const std::set<std::int64_t>& values) {
  return range_of(values).size() == static_cast<std::int64_t>(values.size());
}

/// `5 in 8..15 of every 16` when the values fill half or less of a period's residues and nothing else. Some may be right by chance, or
/// open: so many in half of the places of several periods are no chance either.
std::string stripes(const std::set<std::int64_t>& values, std::int64_t extent) {
  constexpr std::size_t no_chance = 16;
  std::string partly;
  for (std::int64_t period = 2; period <= extent / 2; period *= 2) {
    std::set<std::int64_t> residues;
    for (const std::int64_t value : values) residues.insert(value % period);
    if (2 * static_cast<std::int64_t>(residues.size()) > period || !dense(residues)) continue;
    const double expected = static_cast<double>(extent) * static_cast<double>(residues.size()) / static_cast<double>(period);
    const std::string found = range_of(residues).text() + " of every " + text(period);
    if (static_cast<double>(values.size()) >= 0.9 * expected) return found;
    const bool many = values.size() >= no_chance && range_of(values).size() > period && range_of(residues).size() * 2 == period;
    if (many && partly.empty()) partly = found;
  }
  return partly;
}

/// The smallest aligned square tile that holds the box, when it is a part of the matrix in both directions.
std::string tile_of(const Range& rows, const Range& columns, std::int64_t row_total, std::int64_t width, std::size_t failing) {
  if (rows.size() == row_total || columns.size() == width) return {};
  for (const std::int64_t side : {8, 16, 32, 64, 128, 256}) {
    if (rows.low / side != rows.high / side || columns.low / side != columns.high / side) continue;
    const std::int64_t area = rows.size() * columns.size();
    if (4 * static_cast<std::int64_t>(failing) < area) return {};
    return "one tile: rows " + rows.text() + ", columns " + columns.text() + " (tile " + text(rows.low / side) + ", " +
           text(columns.low / side) + " of " + text(side) + " x " + text(side) + ")";
  }
  return {};
}

/// One index of a leading dimension holds all failures, in more than one row.
std::string leading_index(const std::vector<std::int64_t>& failing, const Dims& shape, const std::vector<std::string>& names) {
  if (shape.rank() < 3) return {};
  std::int64_t below = shape.at(-1);
  for (int d = shape.rank() - 2; d >= 0; below *= shape[d--]) {
    if (shape[d] < 2) continue;
    const std::int64_t first = failing.front() / below % shape[d];
    const bool same = std::all_of(failing.begin(), failing.end(), [&](std::int64_t i) { return i / below % shape[d] == first; });
    if (!same) continue;
    const auto at = static_cast<std::size_t>(d);
    const std::string name = at < names.size() && !names[at].empty() ? names[at] : "index of dimension " + text(d);
    return "one " + name + ": " + text(first) + " of " + text(shape[d]);
  }
  return {};
}

std::string columns_place(const std::set<std::int64_t>& columns, std::int64_t width) {
  const Range range = range_of(columns);
  if (static_cast<std::int64_t>(columns.size()) == width) return {};
  if (columns.size() == 1) return "one column: " + range.text();
  // What a tile has behind a row's end lies where the next row begins.
  for (const std::int64_t tile : {32, 64, 128, 256})
    if (dense(columns) && range.low == 0 && width % tile != 0 && width % tile + range.size() == tile && range.size() >= 8)
      return "columns " + range.text() + ", as many as a tile of " + text(tile) + " reaches beyond the end of a row of " + text(width) +
             ": stored over the next row";
  if (dense(columns)) return (range.high == width - 1 ? "the tail of the rows: columns " : "columns ") + range.text();
  const std::string period = stripes(columns, width);
  return period.empty() ? "" : "stripes: columns " + period;
}

std::string rows_place(const std::set<std::int64_t>& rows, std::int64_t total) {
  const Range range = range_of(rows);
  if (static_cast<std::int64_t>(rows.size()) == total) return {};
  if (dense(rows)) return "rows " + range.text();
  const std::string period = stripes(rows, total);
  return period.empty() ? "" : "stripes: rows " + period;
}

/// Some of the indices of a dimension, in words; empty for all of them, or for too many to name.
std::string indices_place(const std::set<std::int64_t>& indices, std::int64_t extent) {
  constexpr std::size_t few = 6;
  if (static_cast<std::int64_t>(indices.size()) == extent) return {};
  if (dense(indices)) return range_of(indices).text();
  if (std::string period = stripes(indices, extent); !period.empty()) return period;
  if (indices.size() > few) return {};
  std::string list;
  for (const std::int64_t index : indices) list += (list.empty() ? "" : ", ") + text(index);
  return list;
}

/// `head 10..15 of 16; token 3 of 7`: some indices of some dimensions hold the failures, and are filled by them.
std::string dimensions_place(const std::vector<std::int64_t>& failing, const Dims& shape, const std::vector<std::string>& names) {
  if (shape.rank() < 3) return {};
  std::string where;
  std::int64_t area = 1, below = 1;
  std::vector<std::string> parts;
  for (int d = shape.rank() - 1; d >= 0; below *= shape[d--]) {
    std::set<std::int64_t> indices;
    for (const std::int64_t i : failing) indices.insert(i / below % shape[d]);
    area *= static_cast<std::int64_t>(indices.size());
    const std::string some = indices_place(indices, shape[d]);
    if (some.empty()) continue;
    const auto at = static_cast<std::size_t>(d);
    const std::string name = d == shape.rank() - 1                     ? "columns"
                             : at < names.size() && !names[at].empty() ? names[at]
                                                                       : "index of dimension " + text(d);
    parts.push_back(name + " " + some + " (of " + text(shape[d]) + ")");
  }
  if (parts.empty() || 4 * static_cast<std::int64_t>(failing.size()) < area) return {};
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) where += (where.empty() ? "" : "; ") + *part;
  return where;
}

}  // namespace

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

std::string place_of(const std::vector<std::int64_t>& failing, std::int64_t compared, const Dims& shape,
                     const std::vector<std::string>& names) {
  if (failing.empty()) return {};
  const auto count = static_cast<std::int64_t>(failing.size());
  if (count == compared) return "every element";
  const std::int64_t width = shape.rank() > 0 ? shape.at(-1) : 1;
  const std::int64_t row_total = width > 0 && shape.rank() > 0 ? element_count(shape) / width : 1;
  std::set<std::int64_t> row_set, column_set;
  for (const std::int64_t i : failing) row_set.insert(i / width), column_set.insert(i % width);
  const Range rows = range_of(row_set), columns = range_of(column_set);
  if (count == 1) return "one element: " + to_string(index_of(failing.front(), shape));
  if (row_set.size() == 1 && row_total > 1) return "one row: " + rows.text() + ", columns " + columns.text();
  std::string leading = leading_index(failing, shape, names), column_text = columns_place(column_set, width);
  if (!leading.empty()) return column_text.empty() ? leading : leading + "; " + column_text;
  if (std::string tile = tile_of(rows, columns, row_total, width, failing.size()); !tile.empty() && column_set.size() > 1) return tile;
  if (std::string some = dimensions_place(failing, shape, names); !some.empty()) return some;
  const std::string row_text = rows_place(row_set, row_total);
  if (width == 1) return row_text.empty() ? "scattered over " + text(static_cast<std::int64_t>(row_set.size())) + " rows" : row_text;
  if (column_set.size() == 1 || (!column_text.empty() && row_text.empty())) return column_text;
  const bool filled = 4 * count >= static_cast<std::int64_t>(row_set.size() * column_set.size());
  if (!row_text.empty() && filled) return column_text.empty() ? row_text : row_text + ", " + column_text;
  const std::string where =
      text(static_cast<std::int64_t>(row_set.size())) + " rows and " + text(static_cast<std::int64_t>(column_set.size())) + " columns";
  return 100 * count <= compared ? "sporadic: " + text(count) + " elements over " + where : "scattered over " + where;
}

namespace {

struct Sample {
  std::int64_t index;
  double golden, actual;
};

std::vector<Sample> sampled(const std::vector<std::int64_t>& failing, const Tensor& golden, const Tensor& actual) {
  const std::size_t step = failing.size() / sample_limit + 1;
  std::vector<Sample> samples;
  for (std::size_t k = 0; k < failing.size(); k += step)
    samples.push_back({failing[k], quant::get(golden, failing[k]), quant::get(actual, failing[k])});
  return samples;
}

bool most(const std::vector<Sample>& samples, const std::function<bool(const Sample&)>& holds) {
  const auto count = std::count_if(samples.begin(), samples.end(), holds);
  return static_cast<double>(count) >= nearly_all * static_cast<double>(samples.size());
}

std::string number(double value) {
  std::array<char, 32> buffer;
  std::snprintf(buffer.data(), buffer.size(), "%.5g", value);
  return buffer.data();
}

/// The median of value(sample) over the samples for which it is finite; nothing when those are few.
std::optional<double> median(const std::vector<Sample>& samples, const std::function<double(const Sample&)>& value) {
  std::vector<double> values;
  for (const Sample& s : samples)
    if (const double v = value(s); std::isfinite(v)) values.push_back(v);
  if (2 * values.size() < samples.size() || values.empty()) return std::nullopt;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

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

/// Whole numbers that are golden's, counted otherwise; or that reach only so far.
std::optional<std::string> of_whole_numbers(const std::vector<Sample>& samples) {
  std::set<double> values;
  double largest = 0, farthest = 0;
  for (const Sample& s : samples) values.insert(s.actual), largest = std::max(largest, s.actual), farthest = std::max(farthest, s.golden);
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

/// Rows that are golden's, each times a factor of its own: a scale per row, or token, that is wrong or not applied.
std::optional<std::string> factor_of_each_row(const std::vector<Sample>& samples, DType type, std::int64_t width) {
  const auto rows = factors_of_rows(samples, type, width, [](const RowFactor&, std::size_t count) { return count >= 4; });
  if (!rows || rows->size() < 2) return std::nullopt;
  double least = std::numeric_limits<double>::infinity(), most_of_all = 0;
  for (const RowFactor& r : *rows) least = std::min(least, std::fabs(r.factor)), most_of_all = std::max(most_of_all, std::fabs(r.factor));
  // A common factor is another finding.
  if (most_of_all < 1.05 * least) return std::nullopt;
  return "each row has a factor of its own: " + examples_of(*rows, [](const RowFactor&) { return std::string(); });
}

/// Rows that fail in a part of their columns, where a factor of the row's own has come in: another row's, as behind a missing barrier.
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

std::optional<std::string> constant_factor(const std::vector<Sample>& samples, DType type) {
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
  return "a constant factor: actual = " + number(*factor) + " x golden" + meaning_of_factor(*factor);
}

/// Scales that are powers of two: nearly all that fail are so many powers off.
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

/// Where element i's value would come from under a displacement; -1 for nowhere.
struct Displacement {
  std::string text;
  std::function<std::int64_t(std::int64_t)> source;
};

std::vector<Displacement> displacements(const Dims& shape) {
  const std::int64_t width = shape.rank() > 0 ? shape.at(-1) : 1, total = element_count(shape);
  const std::int64_t rows = width > 0 ? total / width : 0;
  std::vector<Displacement> list;
  if (width > 1 && width % 2 == 0) {
    list.push_back(
        {"the halves of each row are swapped", [=](std::int64_t i) { return i / width * width + (i % width + width / 2) % width; }});
    list.push_back({"neighbours are swapped (even and odd columns, or nibbles)", [](std::int64_t i) { return i ^ 1; }});
    list.push_back({"pairs are laid out interleaved instead of in halves", [=](std::int64_t i) {
                      const std::int64_t c = i % width;
                      return i / width * width + c / 2 + c % 2 * (width / 2);
                    }});
    list.push_back({"pairs are laid out in halves instead of interleaved", [=](std::int64_t i) {
                      const std::int64_t c = i % width;
                      return i / width * width + (c < width / 2 ? 2 * c : 2 * (c - width / 2) + 1);
                    }});
  }
  for (const std::int64_t step : {1, -1, 2, -2, 4, -4, 8, -8, 16, -16, 32, -32, 64, -64, 128, -128}) {
    const std::string by = (step > 0 ? "+" : "") + text(step);
    if (std::abs(step) < width)
      list.push_back({"shifted along the row: actual[c] = golden[c " + by + "]", [=](std::int64_t i) {
                        const std::int64_t c = i % width + step;
                        return c >= 0 && c < width ? i + step : -1;
                      }});
    if (std::abs(step) < rows)
      list.push_back({"shifted by rows: actual[r] = golden[r " + by + "]", [=](std::int64_t i) {
                        const std::int64_t r = i / width + step;
                        return r >= 0 && r < rows ? i + step * width : -1;
                      }});
  }
  // Stored over each other, or without the padding between them: rows that are nearer to each other than they are wide.
  constexpr std::int64_t few_columns = 64;
  for (std::int64_t apart = 1; rows > 1 && apart < width; apart = apart == 1 && width > few_columns ? width : apart + 1)
    list.push_back({"rows are stored " + text(apart) + (apart == 1 ? " element" : " elements") + " apart, where they are " + text(width) +
                        " apart: at another stride, or without their padding",
                    [=](std::int64_t i) {
                      const std::int64_t row = std::min(i / apart, rows - 1), column = i - row * apart;
                      return column < width ? row * width + column : -1;
                    }});
  for (const std::int64_t parts : {2, 4, 8, 16})
    for (const std::int64_t step : {1, -1})
      if (rows > 1 && total % parts == 0 && (total / parts) % width != 0)
        list.push_back({"the " + text(parts) + " equal parts of all elements lie rotated: each is the one " +
                            (step > 0 ? "behind" : "before") + " it, as parts of ranks that are put together from the wrong one on",
                        [=](std::int64_t i) { return (i + step * (total / parts) + total) % total; }});
  if (shape.rank() >= 2 && shape.at(-2) == width && width > 1)
    list.push_back({"rows and columns are swapped (transposed)", [=](std::int64_t i) {
                      const std::int64_t block = i / (width * width), at = i % (width * width);
                      return block * width * width + at % width * width + at / width;
                    }});
  return list;
}

std::optional<std::string> displaced(const std::vector<Sample>& samples, const Tensor& golden, const Tensor& actual, const Dims& shape) {
  // Too few elements, or hardly any two different values, prove nothing.
  std::set<std::uint64_t> values;
  for (const Sample& s : samples) values.insert(quant::get_bits(actual, s.index));
  if (samples.size() < 4 || values.size() < 4) return std::nullopt;
  for (const Displacement& displacement : displacements(shape)) {
    std::size_t possible = 0, equal = 0, unwritten = 0;
    for (const Sample& s : samples) {
      const std::int64_t source = displacement.source(s.index);
      unwritten += source < 0 && s.actual == 0 ? 1 : 0;
      if (source < 0) continue;
      ++possible;
      equal += quant::get_bits(golden, source) == quant::get_bits(actual, s.index) ? 1 : 0;
    }
    if (2 * possible < samples.size() - unwritten || possible < 4 ||
        static_cast<double>(equal) < nearly_all * static_cast<double>(possible))
      continue;
    // What is swapped is wrong on both sides.
    const bool swaps = displacement.text.ends_with("swapped") || displacement.text.starts_with("neighbours are swapped");
    const auto kept = std::count_if(samples.begin(), samples.end(), [&](const Sample& s) {
      const std::int64_t source = displacement.source(s.index);
      return source >= 0 && quant::get_bits(golden, source) == quant::get_bits(actual, source);
    });
    if (!swaps || 2 * static_cast<std::size_t>(kept) < samples.size()) return displacement.text;
    if (displacement.text.starts_with("neighbours")) return "the value of the neighbour, which keeps it too: two share one";
  }
  return std::nullopt;
}

std::uint64_t row_hash(const Tensor& tensor, std::int64_t row, std::int64_t width) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (std::int64_t c = 0; c < width; ++c) hash = (hash ^ quant::get_bits(tensor, row * width + c)) * 0x100000001b3;
  return hash;
}

/// Rows that fail and are other rows of golden: each of them, and none its own.
std::optional<std::string> permuted_rows(const std::vector<std::int64_t>& failing, const Tensor& golden, const Tensor& actual) {
  const std::int64_t width = golden.rank() > 0 ? golden.size(-1) : 1;
  if (width < 4 || golden.elements() / width < 2) return std::nullopt;
  std::set<std::int64_t> rows;
  for (const std::int64_t i : failing) rows.insert(i / width);
  std::map<std::uint64_t, std::int64_t> by_hash;
  for (std::int64_t row = 0; row < golden.elements() / width; ++row) by_hash.emplace(row_hash(golden, row, width), row);
  std::string examples;
  int found = 0;
  for (const std::int64_t row : rows) {
    const std::uint64_t hash = row_hash(actual, row, width);
    const auto other = by_hash.find(hash);
    if (other == by_hash.end() || row_hash(golden, row, width) == hash) return std::nullopt;
    if (++found <= 3) examples += (found > 1 ? ", " : "") + ("row " + text(row) + " holds golden's row " + text(other->second));
  }
  return "rows of golden in another place: " + examples + (found > 3 ? "..." : "");
}

/// Rows of golden that lie where another stride of one dimension puts them.
std::optional<std::string> rows_at_another_stride(const std::vector<std::int64_t>& failing, const Tensor& golden, const Tensor& actual,
                                                  const Dims& shape) {
  const std::int64_t width = shape.rank() > 0 ? shape.at(-1) : 1;
  if (shape.rank() < 3 || width < 4) return std::nullopt;
  std::map<std::uint64_t, std::int64_t> by_hash;
  std::set<std::uint64_t> twice;
  for (std::int64_t row = 0; row < golden.elements() / width; ++row)
    if (const std::uint64_t hash = row_hash(golden, row, width); !by_hash.emplace(hash, row).second) twice.insert(hash);
  std::set<std::int64_t> rows;
  for (const std::int64_t i : failing) rows.insert(i / width);
  // Where each row of golden lies, by what it is in each dimension.
  std::map<std::int64_t, std::int64_t> lies;
  for (const std::int64_t row : rows) {
    const std::uint64_t hash = row_hash(actual, row, width);
    if (const auto other = by_hash.find(hash); other != by_hash.end() && twice.count(hash) == 0 && other->second != row)
      lies[other->second] = row;
  }
  if (lies.size() < 4 || 4 * lies.size() < rows.size()) return std::nullopt;
  std::int64_t below = 1;
  for (int d = shape.rank() - 2; d >= 0; below *= shape[d--]) {
    if (shape[d] < 2) continue;
    std::set<std::int64_t> strides;
    std::size_t agree = 0;
    for (const auto& [from, to] : lies) {
      const std::int64_t index = from / below % shape[d];
      if (index == 0) continue;
      // The first one of the dimension is where it belongs, or lies elsewhere too.
      const std::int64_t first = from - index * below;
      const auto its = lies.find(first);
      const std::int64_t apart = to - (its != lies.end() ? its->second : first);
      if (apart % index != 0) continue;
      strides.insert(apart / index), ++agree;
    }
    if (strides.size() == 1 && agree >= 3 && 2 * agree >= lies.size() && *strides.begin() != below)
      return "along dimension " + text(d) + " (of " + text(shape[d]) + ") rows are stored " + text(*strides.begin()) +
             " apart, where they are " + text(below) + " apart: at another stride";
  }
  return std::nullopt;
}

/// First element and count of the failures that `holds`.
std::optional<std::string> kind(const std::vector<std::int64_t>& failing, const Tensor& golden, const Tensor& actual, const char* what,
                                const std::function<bool(double, double)>& holds) {
  std::vector<std::int64_t> found;
  for (const std::int64_t i : failing)
    if (holds(quant::get(golden, i), quant::get(actual, i))) found.push_back(i);
  if (found.empty()) return std::nullopt;
  const std::string place = found.size() < failing.size() ? "; " + place_of(found, golden.elements(), golden.shape()) : "";
  return std::string(what) + ": " + text(static_cast<std::int64_t>(found.size())) + " elements, first at " +
         to_string(index_of(found.front(), golden.shape())) + place;
}

/// All one representable number too near to zero: cut instead of rounded.
bool truncated(const std::vector<std::int64_t>& failing, const Tensor& golden, const Tensor& actual, const std::vector<double>& exact) {
  if (exact.size() != static_cast<std::size_t>(golden.elements()) || failing.size() < 4) return false;
  const DType type = golden.dtype();
  std::size_t cut = 0;
  for (const std::int64_t i : failing) {
    const double a = quant::get(actual, i), e = exact[static_cast<std::size_t>(i)];
    const double outward = e < 0 ? quant::next_down(type, a) : quant::next_up(type, a);
    cut += std::fabs(a) <= std::fabs(e) && std::fabs(outward) > std::fabs(e) ? 1 : 0;
  }
  return static_cast<double>(cut) >= nearly_all * static_cast<double>(failing.size());
}

}  // namespace

std::vector<std::string> relations_of(const std::vector<std::int64_t>& failing, const Tensor& golden, const Tensor& actual,
                                      const std::vector<double>& exact, const Dims& shape) {
  std::vector<std::string> relations;
  const auto add = [&](const std::optional<std::string>& relation) {
    if (relation) relations.push_back(*relation);
    return relation.has_value();
  };
  if (failing.empty()) return relations;
  const DType type = golden.dtype();
  if (is_float(type)) {
    add(kind(failing, golden, actual, "NaN where golden has none", [](double g, double a) { return std::isnan(a) && !std::isnan(g); }));
    add(kind(failing, golden, actual, "no NaN where golden has one", [](double g, double a) { return std::isnan(g) && !std::isnan(a); }));
    add(kind(failing, golden, actual, "infinity where golden is finite",
             [](double g, double a) { return std::isinf(a) && std::isfinite(g); }));
  }
  const auto samples = sampled(failing, golden, actual);
  if (most(samples, [](const Sample& s) { return std::isnan(s.actual); })) return relations;
  if (most(samples, [](const Sample& s) { return s.actual == 0; })) {
    relations.emplace_back("zeros: not written, or reset");
    return relations;
  }
  if (is_float(type) && bits(type) <= 8 && samples.size() >= 4 && most(samples, [&](const Sample& s) {
        return std::fabs(s.actual) == quant::max_finite(type) && std::fabs(s.golden) < quant::max_finite(type);
      })) {
    relations.emplace_back(
        "saturated: the largest number of its sign, as a factor that overflows (a reciprocal in f16) or is infinite gives");
    return relations;
  }
  if (most(samples, [&](const Sample& s) { return quant::get_bits(golden, s.index) == quant::get_bits(actual, s.index); })) {
    relations.emplace_back(
        "golden's own bits, but not what follows from the other outputs: a scale, or a choice, that was written otherwise");
    return relations;
  }
  if (add(displaced(samples, golden, actual, shape)) || add(rows_at_another_stride(failing, golden, actual, shape)) ||
      add(permuted_rows(failing, golden, actual)))
    return relations;
  if (!is_float(type)) {
    add(of_whole_numbers(samples));
    return relations;
  }
  if (truncated(failing, golden, actual, exact)) {
    relations.emplace_back("toward zero by less than one place: truncated instead of rounded");
    return relations;
  }
  if (add(powers_off(samples, type))) return relations;
  const std::int64_t width = shape.rank() > 0 ? std::max<std::int64_t>(shape.at(-1), 1) : 1;
  if (add(factor_of_row_parts(samples, type, width)) || add(factor_of_each_row(samples, type, width))) return relations;
  if (samples.size() >= 3 && (add(constant_factor(samples, type)) || add(constant_offset(samples, type)))) return relations;
  const auto only_bf16 = [](double x) { return quant::round_to(DType::bf16, x) == x; };
  if (most(samples, [](const Sample& s) { return s.actual == -s.golden && s.golden != 0; })) {
    relations.emplace_back("the sign is wrong");
  } else if (type == DType::f32 && samples.size() >= 4 &&
             most(samples, [&](const Sample& s) { return only_bf16(s.actual) && !only_bf16(s.golden); })) {
    relations.emplace_back("fp32 that holds only bf16 values: rounded once too often");
  }
  return relations;
}

namespace {

/// The group of rows between two offsets that holds all failures.
std::optional<std::string> one_group(const std::string& argument, const Tensor& offsets, const std::set<std::int64_t>& rows,
                                     std::int64_t row_total) {
  const std::int64_t count = offsets.elements();
  if (count < 3 || static_cast<std::int64_t>(quant::get(offsets, count - 1)) != row_total) return std::nullopt;
  for (std::int64_t g = 0; g + 1 < count; ++g) {
    const auto begin = static_cast<std::int64_t>(quant::get(offsets, g)), end = static_cast<std::int64_t>(quant::get(offsets, g + 1));
    if (*rows.begin() < begin || *rows.rbegin() >= end) continue;
    if (end - begin == row_total) return std::nullopt;
    return "only group " + text(g) + " of " + text(count - 1) + " by " + argument + " (rows " + text(begin) + ".." + text(end - 1) + ")";
  }
  return std::nullopt;
}

/// The expert whose tokens are the rows that fail.
std::optional<std::string> one_expert(const std::string& argument, const Tensor& ids, const std::set<std::int64_t>& rows,
                                      std::int64_t row_total) {
  if (ids.rank() != 2 || ids.size(0) != row_total || static_cast<std::int64_t>(rows.size()) == row_total) return std::nullopt;
  const std::int64_t width = ids.size(1);
  std::map<std::int64_t, std::set<std::int64_t>> tokens;
  for (std::int64_t i = 0; i < ids.elements(); ++i) tokens[static_cast<std::int64_t>(quant::get(ids, i))].insert(i / width);
  for (const auto& [expert, its] : tokens)
    if (its == rows) return "exactly the rows of expert " + text(expert) + " by " + argument;
  return std::nullopt;
}

/// What is special of a row of numbers: nothing but zeros, a NaN, an infinity.
enum class Special { zeros, nan, infinite };
constexpr std::array<const char*, 3> special_words{"is all zeros", "holds NaN", "holds infinities"};

bool is_special(Special kind, const Tensor& tensor, std::int64_t first, std::int64_t count) {
  for (std::int64_t i = first; i < first + count; ++i) {
    const double x = quant::get(tensor, i);
    if (kind == Special::zeros && x != 0) return false;
    if (kind == Special::nan && std::isnan(x)) return true;
    if (kind == Special::infinite && std::isinf(x)) return true;
  }
  return kind == Special::zeros;
}

/// How many ways there are to choose so many of so many: a chance of one in two hundred is none.
bool is_no_chance(std::size_t some, std::size_t all) {
  const auto n = static_cast<double>(all), k = static_cast<double>(some);
  return some > 0 && some < all && std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) > std::log(200.0);
}

/// Whether the numbers of what fails all lie on one side of the others': text of the border, or nothing.
std::optional<std::string> on_one_side(const std::vector<double>& wrong, const std::vector<double>& right) {
  if (wrong.empty() || right.empty() || !is_no_chance(wrong.size(), wrong.size() + right.size())) return std::nullopt;
  const auto [low, high] = std::minmax_element(wrong.begin(), wrong.end());
  const auto [least, most_of] = std::minmax_element(right.begin(), right.end());
  if (*high < *least) return number(*high) + " or less";
  if (*low > *most_of) return number(*low) + " or more";
  return std::nullopt;
}

/// The rows that fail are exactly those whose number in an argument is large, small, or a multiple of a tile.
std::optional<std::string> by_number(const std::string& argument, const Tensor& numbers, const std::set<std::int64_t>& rows,
                                     std::int64_t row_total) {
  if (numbers.elements() != row_total || row_total < 2 || static_cast<std::int64_t>(rows.size()) == row_total) return std::nullopt;
  std::vector<double> wrong, right;
  for (std::int64_t r = 0; r < row_total; ++r) (rows.count(r) > 0 ? wrong : right).push_back(quant::get(numbers, r));
  if (const auto side = on_one_side(wrong, right)) return "exactly the rows where " + argument + " is " + *side;
  for (const int tile : {128, 64, 32, 16, 8}) {
    const auto whole = [&](double x) { return std::fmod(x, tile) == 0; };
    const bool rare = std::pow(static_cast<double>(tile), static_cast<double>(wrong.size())) > 1000;
    if (rare && std::all_of(wrong.begin(), wrong.end(), whole) && std::none_of(right.begin(), right.end(), whole))
      return "exactly the rows where " + argument + " is a multiple of " + text(tile);
  }
  return std::nullopt;
}

/// Likewise of groups of rows between offsets: their lengths; or, where rows are requests, of what each has between two offsets.
std::optional<std::string> by_length(const std::string& argument, const Tensor& offsets, const std::set<std::int64_t>& rows,
                                     std::int64_t row_total) {
  const std::int64_t groups = offsets.elements() - 1;
  if (groups < 2) return std::nullopt;
  const Tensor lengths(DType::f32, {groups});
  std::set<std::int64_t> wrong;
  const bool of_rows = groups != row_total;
  if (of_rows && static_cast<std::int64_t>(quant::get(offsets, groups)) != row_total) return std::nullopt;
  for (std::int64_t g = 0; g < groups; ++g) {
    const auto begin = static_cast<std::int64_t>(quant::get(offsets, g)), end = static_cast<std::int64_t>(quant::get(offsets, g + 1));
    quant::set(lengths, g, static_cast<double>(end - begin));
    const auto first = of_rows ? rows.lower_bound(begin) : rows.find(g);
    if (first != rows.end() && (!of_rows || *first < end)) wrong.insert(g);
  }
  const auto found = by_number("a group's length by " + argument, lengths, wrong, groups);
  if (!found) return std::nullopt;
  return of_rows ? "exactly the groups" + found->substr(found->find(" where")) : found;
}

/// The largest magnitude of so many numbers.
double magnitude(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  double most_of = 0;
  for (std::int64_t i = first; i < first + count; ++i) most_of = std::fmax(most_of, std::fabs(quant::get(tensor, i)));
  return most_of;
}

/// All failures lie in the rows, or in the groups of so many elements, of which an input of as many rows (or elements) is special, and
/// each of these fails somewhere.
std::optional<std::string> special_input(const std::string& argument, const Tensor& input, const std::vector<std::int64_t>& failing,
                                         const Dims& shape) {
  if (!is_float(input.dtype()) || input.rank() < 1 || input.elements() > 1 << 24) return std::nullopt;
  const std::int64_t width = shape.at(-1), rows = element_count(shape) / std::max<std::int64_t>(width, 1);
  const std::int64_t input_width = input.size(-1), input_rows = input.elements() / std::max<std::int64_t>(input_width, 1);
  if (input_rows != rows || rows < 1) return std::nullopt;
  for (const std::int64_t groups : {std::int64_t{1}, input_width / 128, input_width / 64, input_width / 32, input_width / 16}) {
    if (groups < 1 || input_width % groups != 0 || width % groups != 0 || (groups == 1 && rows < 2)) continue;
    std::set<std::int64_t> wrong;
    for (const std::int64_t i : failing) wrong.insert(i / (width / groups));
    const std::int64_t size = input_width / groups;
    for (std::size_t k = 0; k < special_words.size(); ++k) {
      const auto kind = static_cast<Special>(k);
      if (!is_special(kind, input, *wrong.begin() * size, size)) continue;
      std::int64_t special = 0;
      bool each = true;
      for (std::int64_t at = 0; at < rows * groups && each; ++at) {
        const bool here = is_special(kind, input, at * size, size);
        special += here ? 1 : 0;
        each = here == (wrong.count(at) > 0);
      }
      if (each && special < rows * groups)
        return "exactly the " + std::string(groups == 1 ? "rows" : "groups of " + text(size)) + " where " + argument + " " +
               special_words[k];
    }
    std::vector<double> fail, pass;
    for (std::int64_t at = 0; at < rows * groups; ++at) (wrong.count(at) > 0 ? fail : pass).push_back(magnitude(input, at * size, size));
    if (const auto side = on_one_side(fail, pass))
      return "exactly the " + std::string(groups == 1 ? "rows" : "groups of " + text(size)) + " where the largest magnitude of " +
             argument + " is " + *side;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> owners_of(const OpSchema& schema, const Arguments& inputs, const std::vector<std::int64_t>& failing,
                                   const Dims& shape) {
  std::vector<std::string> owners;
  if (failing.empty() || shape.rank() < 1 || shape.at(-1) == 0) return owners;
  const std::int64_t row_total = shape[0], below = element_count(shape) / row_total;
  std::set<std::int64_t> rows;
  for (const std::int64_t i : failing) rows.insert(i / below);
  for (const TensorSpec& spec : schema.tensors) {
    const Tensor* tensor = inputs.find(spec.name);
    if (spec.direction != Direction::in || tensor == nullptr || !tensor->defined()) continue;
    std::optional<std::string> owner;
    if (spec.role == Role::values || spec.role == Role::logits || spec.role == Role::scale)
      owner = special_input(spec.name, as_codes(*tensor, spec.storage), failing, shape);
    const bool a_number_each = spec.role == Role::positions || spec.role == Role::lengths || spec.role == Role::indices;
    if (a_number_each && !is_float(tensor->dtype()) && tensor->rank() == 1) owner = by_number(spec.name, *tensor, rows, row_total);
    if (spec.role == Role::indptr && shape[0] > 1) owner = one_group(spec.name, *tensor, rows, row_total);
    if (spec.role == Role::indptr && shape[0] > 1 && !owner) owner = by_length(spec.name, *tensor, rows, row_total);
    if (spec.role == Role::expert_ids && shape[0] > 1) owner = one_expert(spec.name, *tensor, rows, row_total);
    if (owner) owners.push_back(*owner);
  }
  return owners;
}

LogicalView logical_view(const Op& op, const TensorSpec& spec, const Dims& shape, const Arguments& inputs) {
  SymbolNames symbols;
  const ShapeExpr expression = ShapeExpr::parse(spec.shape, symbols);
  const ShapeAlternative* alternative = expression.for_rank(shape.rank());
  LogicalView view{shape, std::vector<std::string>(static_cast<std::size_t>(shape.rank()))};
  if (alternative == nullptr) return view;
  const bool heads = op.info().category == Category::attention || op.info().category == Category::rope;
  const auto word = [&](const std::string& symbol) -> std::string {
    if (symbol == "E") return "expert";
    if (symbol == "T") return "token";
    if (symbol == "L" && op.info().category == Category::gemm) return "matrix";
    if (heads && (symbol == "N" || symbol == "H" || symbol == "Nh" || symbol == "Nq" || symbol == "Nk" || symbol == "Nv")) return "head";
    return symbol;
  };
  const auto lead = static_cast<std::size_t>(shape.rank()) - std::min(alternative->dims.size(), view.names.size());
  if (lead == 1 && alternative->pack >= 0) view.names[0] = word(symbols.name(alternative->pack));
  for (std::size_t d = lead; d < view.names.size(); ++d) view.names[d] = word(alternative->dims[d - lead].text());
  // Heads side by side: the last dimension is a product with a whole-number attribute.
  if (view.names.empty() || shape.rank() == max_rank) return view;
  const std::string last = view.names.back();
  const std::size_t star = last.find('*');
  if (star == std::string::npos) return view;
  const AttrValue* attr = inputs.find_attr(last.substr(star + 1));
  const auto* width = attr != nullptr ? std::get_if<std::int64_t>(attr) : nullptr;
  if (width == nullptr || *width <= 0 || shape.at(-1) % *width != 0) return view;
  view.shape[shape.rank() - 1] = shape.at(-1) / *width;
  view.shape.push_back(*width);
  view.names.back() = word(last.substr(0, star));
  view.names.push_back(last.substr(star + 1));
  return view;
}

}  // namespace dodona::oracle
