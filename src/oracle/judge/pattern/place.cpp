// Where the failing elements lie.
#include <algorithm>
#include <set>
#include <vector>

#include "oracle/judge/pattern.h"
#include "oracle/judge/pattern/samples.h"

namespace dodona::oracle {
namespace {

using pattern::text;

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

/// `96..111 of every 112` when the values are the same part of every period and nothing else.
std::string equal_runs(const std::set<std::int64_t>& values, std::int64_t extent) {
  std::vector<Range> runs;
  for (const std::int64_t value : values)
    if (!runs.empty() && runs.back().high + 1 == value) {
      runs.back().high = value;
    } else {
      runs.push_back({value, value});
    }
  // Of two a chance, but where they are long.
  if (runs.size() < 2 || (runs.size() == 2 && runs[0].size() < 4)) return {};
  const std::int64_t period = runs[1].low - runs[0].low, length = runs[0].size();
  // The last period may end within its part; a whole one in which nothing fails is one too many.
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const bool cut = r + 1 == runs.size() && runs[r].high + 1 == extent && runs[r].size() < length;
    if (runs[r].low != runs[0].low + static_cast<std::int64_t>(r) * period || (runs[r].size() != length && !cut)) return {};
  }
  const bool everywhere = runs[0].low < period && runs.back().low + period >= extent;
  return everywhere && 2 * length <= period ? runs[0].text() + " of every " + text(period) : "";
}

/// `5 in 8..15 of every 16` when the values fill half or less of a period's residues and nothing else. Some may be right by chance, or
/// open: so many in half of the places of several periods are no chance either.
std::string stripes(const std::set<std::int64_t>& values, std::int64_t extent) {
  if (std::string equal = equal_runs(values, extent); !equal.empty()) return equal;
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
    // Many that fail from one end of a tile to the other and nowhere else are no chance, however few of its elements they are.
    constexpr std::size_t no_chance = 256;
    const std::int64_t area = rows.size() * columns.size();
    if (4 * static_cast<std::int64_t>(failing) < area && (failing < no_chance || area != side * side)) return {};
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

/// `2, 6`; empty for more than may be named.
std::string list_of_few(const std::set<std::int64_t>& values, std::size_t few) {
  std::string list;
  for (const std::int64_t value : values) list += (list.empty() ? "" : ", ") + text(value);
  return values.size() > few ? "" : list;
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
  if (!period.empty()) return "stripes: rows " + period;
  constexpr std::size_t few = 4;
  const std::string list = list_of_few(rows, few);
  return list.empty() ? "" : "rows " + list;
}

/// Some of the indices of a dimension, in words; empty for all of them, or for too many to name.
std::string indices_place(const std::set<std::int64_t>& indices, std::int64_t extent) {
  if (static_cast<std::int64_t>(indices.size()) == extent) return {};
  if (dense(indices)) return range_of(indices).text();
  if (std::string period = stripes(indices, extent); !period.empty()) return period;
  constexpr std::size_t few = 6;
  return list_of_few(indices, few);
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

}  // namespace dodona::oracle
