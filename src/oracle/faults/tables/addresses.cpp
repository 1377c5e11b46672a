// Faults in where a kernel looks for its inputs: strides, tables of pages, lengths, scales among tiles. The op is computed anew with what
// lies there.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "core/storage.h"
#include "oracle/cases/window.h"
#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

std::int64_t whole(const AttrValue& value) {
  return std::get<std::int64_t>(value);
}

// ---- strides

bool plain(Site s) {
  return !s.spec->storage.code && bits(s.tensor.dtype()) >= 8;
}
/// What lies beyond the end of an operand nobody knows.
void put_unknown(To t, std::int64_t i) {
  quant::set(t, i, std::numeric_limits<double>::quiet_NaN());
}
bool can_be_unknown(Site s) {
  return plain(s) && is_real(s.tensor.dtype()) && s.tensor.dtype() != DType::f8_e8m0;
}
bool rows_of_operand(Site s) {
  return can_be_unknown(s) && s.tensor.rank() >= 2 && s.tensor.stride(s.tensor.rank() - 1) == 1;
}
/// Inputs of as many dimensions whose rows lie otherwise.
Values with_other_strides(Site s) {
  Values found;
  for (const TensorSpec& spec : s.call.op.schema().tensors) {
    const Tensor* const other = s.call.inputs.find(spec.name);
    if (spec.direction == Direction::out || spec.name == s.name || spec.storage.code || other == nullptr || !other->defined() ||
        other->rank() != s.tensor.rank() || other->dtype() != s.tensor.dtype() || other->strides() == s.tensor.strides())
      continue;
    // Rows of other lengths have other strides anyway: one of the two is a slice of wider ones.
    if (other->contiguous() && s.tensor.contiguous()) continue;
    found.emplace_back(spec.name);
  }
  return found;
}
/// Elements from the first one on that lie in the tensor's memory.
std::int64_t extent(const Tensor& tensor) {
  return tensor.extent_bytes() * 8 / bits(tensor.dtype());
}
void read_at_strides_of_another(Site s, To t) {
  const Dims strides = s.call.inputs.find(word(s))->strides();
  const std::int64_t last = extent(s.tensor);
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    const Dims at = index_of(i, s.tensor.shape());
    std::int64_t offset = 0;
    for (int d = 0; d < at.rank(); ++d) offset += at[d] * strides[d];
    if (offset < last) {
      quant::set_bits(t, i, quant::load_bits(s.tensor.dtype(), s.tensor.data(), offset));
    } else {
      put_unknown(t, i);
    }
  }
}
std::string strides_in_words(Site s) {
  return s.name + ": read at the strides of " + word(s);
}

bool several_matrices(Site s) {
  return can_be_unknown(s) && s.tensor.rank() >= 3 && s.tensor.size(0) >= 2 && s.tensor.contiguous();
}
/// Heads that kernels are compiled for.
Values usual_counts(Site s) {
  Values values;
  const std::int64_t rows = s.tensor.elements() / s.tensor.size(0) / s.tensor.size(-1);
  std::set<std::int64_t> counts{8, 16, 32, 64, 128};
  // Or another size of the call: rows without their padding.
  for (const TensorSpec& spec : s.call.op.schema().tensors)
    if (const Tensor* const tensor = s.call.inputs.find(spec.name);
        spec.direction == Direction::in && tensor != nullptr && tensor->defined())
      for (int d = 0; d < tensor->rank(); ++d)
        if (2 * tensor->size(d) > rows && tensor->size(d) < rows) counts.insert(tensor->size(d));
  for (const std::int64_t count : counts)
    if (count != rows) values.emplace_back(count);
  return values;
}
void matrix_stride_of_fixed_rows(Site s, To t) {
  const std::int64_t matrix = s.tensor.elements() / s.tensor.size(0), stride = whole(*s.taken) * s.tensor.size(-1);
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    const std::int64_t from = i / matrix * stride + i % matrix;
    if (from < t.elements()) {
      quant::set_bits(t, i, quant::get_bits(s.tensor, from));
    } else {
      put_unknown(t, i);
    }
  }
}
std::string fixed_rows_in_words(Site s) {
  return s.name + ": the outermost index (request, page, batch) steps on by " + to_string(*s.taken) +
         " rows of the last dimension, whatever there are: a fixed number of heads, or rows without their padding";
}

// ---- pages and lengths

bool page_table(Site s) {
  return s.spec->role == Role::page_table && s.tensor.rank() == 2 && s.tensor.size(0) >= 2 && s.tensor.contiguous();
}
struct PagedCache {
  std::int64_t pages, tokens;  ///< of a page
};
/// The cache whose pages the table counts.
std::optional<PagedCache> cache_of(const FaultCase& call, const TensorSpec& table) {
  for (const TensorSpec& spec : call.op.schema().tensors) {
    const Tensor* const tensor = call.inputs.find(spec.name);
    if (spec.role != Role::values || spec.direction != Direction::in || tensor == nullptr || !tensor->defined() || tensor->rank() < 2)
      continue;
    const std::vector<std::string> dims = dims_of(spec.shape, tensor->rank());
    if (dims.empty() || table.bound.empty() || dims.front() != table.bound) continue;
    // A dimension of 1 beside the page's tokens is the heads of the keys.
    const std::int64_t first = tensor->size(1);
    return PagedCache{tensor->size(0), first == 1 && tensor->rank() >= 4 ? tensor->size(2) : first};
  }
  return std::nullopt;
}
std::int64_t longest(const FaultCase& call, std::int64_t requests) {
  double most = 0;
  for (const TensorSpec& spec : call.op.schema().tensors) {
    const Tensor* const tensor = call.inputs.find(spec.name);
    if ((spec.role != Role::lengths && spec.role != Role::positions) || tensor == nullptr || !tensor->defined() || tensor->rank() != 1 ||
        tensor->size(0) != requests)
      continue;
    for (std::int64_t i = 0; i < requests; ++i) most = std::max(most, quant::get(*tensor, i));
  }
  return static_cast<std::int64_t>(most);
}
/// Widths that a table is taken to have, and what a kernel finds behind its end: its last entry, or the table from its begin.
Values other_widths(Site s) {
  Values values;
  const auto cache = cache_of(s.call, *s.spec);
  if (!cache) return values;
  const std::int64_t needed = (longest(s.call, s.tensor.size(0)) + cache->tokens - 1) / std::max<std::int64_t>(cache->tokens, 1);
  std::vector<std::int64_t> widths{cache->pages};
  if (needed > 0 && needed != cache->pages) widths.push_back(needed);
  for (const std::int64_t width : widths)
    if (width != s.tensor.size(1))
      for (const char* behind : {"the last entry", "from the begin"}) values.emplace_back(std::to_string(width) + ", " + behind);
  return values;
}
void table_at_other_width(Site s, To t) {
  const std::int64_t own = s.tensor.size(1), width = std::stoll(word(s)), count = s.tensor.elements();
  const bool last = word(s).ends_with("last entry");
  gather(s.tensor, t, [&](std::int64_t i) {
    const std::int64_t from = i / own * width + i % own;
    return last ? std::min(from, count - 1) : from % count;
  });
}
std::string width_in_words(Site s) {
  const std::int64_t width = std::stoll(word(s));
  const auto cache = cache_of(s.call, *s.spec);
  return s.name + ": read with rows of " + std::to_string(width) + " entries, as many as " +
         (cache && cache->pages == width ? "the cache has pages" : "the longest request needs") + ", where they have " +
         std::to_string(s.tensor.size(1)) + "; behind its end " + word(s).substr(word(s).find(", ") + 2);
}

/// A cache whose pages a table of the call counts.
bool paged_cache(Site s) {
  if (s.spec->role != Role::values || s.spec->direction != Direction::in || s.tensor.rank() < 2 || s.tensor.size(0) < 2) return false;
  const auto& tensors = s.call.op.schema().tensors;
  const std::vector<std::string> dims = dims_of(s.spec->shape, s.tensor.rank());
  return !dims.empty() && std::any_of(tensors.begin(), tensors.end(), [&](const TensorSpec& table) {
    return table.role == Role::page_table && table.bound == dims.front() && s.call.inputs.find(table.name) != nullptr;
  });
}
/// Small caches alone: where a cut lies nobody knows.
Values first_pages_beyond(Site s) {
  constexpr std::int64_t most = 32;
  Values values;
  for (std::int64_t page = 1; page < s.tensor.size(0) && s.tensor.size(0) <= most; ++page) values.emplace_back(page);
  return values;
}
void pages_beyond_are_zeros(Site s, To t) {
  const std::int64_t page = t.elements() / t.size(0);
  for (std::int64_t i = whole(*s.taken) * page; i < t.elements(); ++i) quant::set_bits(t, i, 0);
}
std::string pages_beyond_in_words(Site s) {
  return s.name + ": pages " + to_string(*s.taken) + " and beyond are read as zeros: their offsets leave the range that loads have";
}

// ---- dimensions in another order

/// `1`: dimensions 1 and 2 are taken for one another, the memory being what it is.
Values exchangeable_dimensions(Site s) {
  Values values;
  for (std::int64_t d = 0; d + 2 < s.tensor.rank(); ++d)
    if (s.tensor.size(static_cast<int>(d)) >= 2 && s.tensor.size(static_cast<int>(d) + 1) >= 2) values.emplace_back(d);
  return values;
}
bool several_dimensions(Site s) {
  return plain(s) && s.spec->direction == Direction::in && s.tensor.rank() >= 3 && s.tensor.contiguous() && is_real(s.tensor.dtype());
}
void dimensions_exchanged(Site s, To t) {
  const int d = static_cast<int>(whole(*s.taken));
  std::int64_t inner = 1;
  for (int k = d + 2; k < s.tensor.rank(); ++k) inner *= s.tensor.size(k);
  const std::int64_t rows = s.tensor.size(d), columns = s.tensor.size(d + 1), matrix = rows * columns * inner;
  gather(s.tensor, t, [&](std::int64_t i) {
    const std::int64_t at = i % matrix, row = at / inner / columns, column = at / inner % columns;
    return i - at + (column * rows + row) * inner + at % inner;
  });
}
std::string exchanged_in_words(Site s) {
  const auto dims = dims_of(s.spec->shape, s.tensor.rank());
  const auto d = static_cast<std::size_t>(whole(*s.taken));
  const std::string names =
      d + 1 < dims.size() ? dims[d] + " and " + dims[d + 1] : "dimensions " + std::to_string(d) + " and " + std::to_string(d + 1);
  return s.name + ": " + names + " are taken to lie in the other order: heads of slots for slots of heads";
}

/// Lengths of requests: what a table has rows for, or what the role says.
bool lengths_of_requests(Site s) {
  const Category category = s.call.op.info().category;
  const bool attention = category == Category::attention || category == Category::nsa;
  return attention && is_whole(s.tensor.dtype()) && s.tensor.rank() == 1 && s.tensor.size(0) >= 2 &&
         (s.spec->role == Role::lengths || s.spec->role == Role::positions);
}
void length_of_the_longest(Site s, To t) {
  double most = 0;
  for (std::int64_t i = 0; i < t.elements(); ++i) most = std::max(most, quant::get(s.tensor, i));
  for (std::int64_t i = 0; i < t.elements(); ++i) quant::set(t, i, most);
}
/// What a kernel is made for at most: tiles, parts, pages.
Values usual_caps(Site s) {
  Values values;
  for (const std::int64_t cap : {16, 32, 64, 128, 256, 512, 1024}) {
    bool longer = false;
    for (std::int64_t i = 0; i < s.tensor.elements(); ++i) longer = longer || quant::get(s.tensor, i) > static_cast<double>(cap);
    if (longer) values.emplace_back(cap);
  }
  return values;
}
void length_capped(Site s, To t) {
  for (std::int64_t i = 0; i < t.elements(); ++i) quant::set(t, i, std::min(quant::get(s.tensor, i), static_cast<double>(whole(*s.taken))));
}
std::string capped_in_words(Site s) {
  return s.name + ": behind the first " + to_string(*s.taken) + " nothing counts, however long a request is";
}
bool positions_of_rows(Site s) {
  return s.spec->role == Role::positions && is_whole(s.tensor.dtype()) && s.tensor.rank() == 1 && s.tensor.size(0) >= 2 &&
         s.call.op.info().category == Category::rope;
}
void position_is_the_row(Site, To t) {
  for (std::int64_t i = 0; i < t.elements(); ++i) quant::set(t, i, static_cast<double>(i));
}
Values tokens_of_table(Site s) {
  Values values;
  for (const TensorSpec& spec : s.call.op.schema().tensors) {
    const Tensor* const table = s.call.inputs.find(spec.name);
    if (spec.role != Role::page_table || table == nullptr || !table->defined() || table->rank() != 2 || table->size(0) != s.tensor.size(0))
      continue;
    if (const auto cache = cache_of(s.call, spec)) values.emplace_back(table->size(1) * cache->tokens);
  }
  return values;
}
bool lengths_beside_table(Site s) {
  return is_whole(s.tensor.dtype()) && s.tensor.rank() == 1 && (s.spec->role == Role::lengths || s.spec->role == Role::positions);
}
void length_of_whole_table(Site s, To t) {
  for (std::int64_t i = 0; i < t.elements(); ++i) quant::set(t, i, static_cast<double>(whole(*s.taken)));
}
std::string whole_table_in_words(Site s) {
  return s.name + ": taken from the width of the page table: every request has " + to_string(*s.taken) + " tokens";
}

bool offsets(Site s) {
  return is_whole(s.tensor.dtype()) && (s.spec->role == Role::indptr || s.spec->role == Role::lengths);
}
Values usual_tiles(Site) {
  return {std::int64_t{16}, std::int64_t{32}, std::int64_t{64}, std::int64_t{128}};
}
/// The last offset is the end of all.
void cut_to_tiles(Site s, To t) {
  const auto tile = static_cast<double>(whole(*s.taken));
  const std::int64_t count = t.elements() - (s.spec->role == Role::indptr ? 1 : 0);
  for (std::int64_t i = 0; i < count; ++i) quant::set(t, i, std::floor(quant::get(s.tensor, i) / tile) * tile);
}
std::string cut_tiles_in_words(Site s) {
  const std::string tile = to_string(*s.taken);
  return s.name + (s.spec->role == Role::indptr
                       ? ": offsets cut to multiples of " + tile + ": rows of a group's last partial tile go to the next group"
                       : ": every length is cut to a multiple of " + tile + ": the last partial tile is left out");
}

/// Numbers that name none: those below 0, and of experts those from the call's number of them on.
std::int64_t experts_of(Site s) {
  for (const char* name : {"num_local_experts", "num_experts"})
    if (const AttrValue* const given = s.call.inputs.find_attr(name);
        s.spec->role == Role::expert_ids && given != nullptr && std::holds_alternative<std::int64_t>(*given))
      return whole(*given);
  return std::numeric_limits<std::int64_t>::max();
}
/// Of a list of rows of an operand beside it (that none of its numbers need be one of): how many there are.
std::int64_t rows_listed(Site s) {
  if (s.spec->kin.find("rows of ") != 0) return std::numeric_limits<std::int64_t>::max();
  const std::string rest = s.spec->kin.substr(8);
  const Tensor* const rows = s.call.inputs.find(rest.substr(0, rest.find_first_of(" ,")));
  return rows != nullptr && rows->defined() && rows->rank() > 0 ? rows->size(0) : std::numeric_limits<std::int64_t>::max();
}
bool is_absent(Site s, std::int64_t i) {
  const double x = quant::get(s.tensor, i);
  return x < 0 || x >= static_cast<double>(std::min(experts_of(s), rows_listed(s)));
}
bool some_absent(Site s) {
  if (!is_whole(s.tensor.dtype()) || s.spec->direction == Direction::out) return false;
  for (std::int64_t i = 0; i < s.tensor.elements(); ++i)
    if (is_absent(s, i)) return true;
  return false;
}
/// The first, or the last, as an index counts from the end of a table.
Values first_or_last(Site) {
  return {std::string("first"), std::string("last")};
}
double last_there(Site s) {
  double last = 0;
  for (std::int64_t i = 0; i < s.tensor.elements(); ++i)
    if (!is_absent(s, i)) last = std::max(last, quant::get(s.tensor, i));
  return last;
}
void absent_for_another(Site s, To t) {
  const double other = word(s) == "first" ? 0.0 : last_there(s);
  for (std::int64_t i = 0; i < t.elements(); ++i)
    if (is_absent(s, i)) quant::set(t, i, other);
}
std::string absent_in_words(Site s) {
  return s.name + ": numbers that name none (below 0, beyond the rows, experts that are not here) are not skipped, but taken for the " +
         (word(s) == "first" ? "first: orphan rows go to expert 0, padding to slot 0"
                             : "last, as an index below 0 counts from a table's end");
}

// ---- scales among tiles

bool scales_in_128x4(Site s) {
  return s.spec->role == Role::scale && scales_in_tiles(s) && scale_order(s) == ScaleOrder::swizzled_128x4 &&
         s.tensor.elements() % 512 == 0;
}
Values orders_of_rows(Site) {
  return {std::string("in order"), std::string("by fours")};
}
/// In a tile of 128 x 4 row r lies at r mod 32 * 4 + r / 32.
void scale_rows_read_otherwise(Site s, To t) {
  const bool in_order = word(s) == "in order";
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    const std::int64_t row = i % 512 / 4, right = row % 32 * 4 + row / 32, wrong = in_order ? row : row % 4 * 32 + row / 4;
    const std::int64_t tile = i / 512 * 512, column = i % 4;
    quant::set_bits(t, tile + right * 4 + column, quant::get_bits(s.tensor, tile + wrong * 4 + column));
  }
}
std::string order_in_words(Site s) {
  return s.name + ": the rows of a tile of 128 x 4 scales are looked for " +
         (word(s) == "in order" ? "one after the other" : "where rows 0, 4, 8... would lie") + ", not 0, 32, 64, 96, 1...";
}

/// Columns of scales that their operand has; the rest is padding.
std::int64_t logical_columns(Site s, const ScaleMatrices& matrices) {
  const auto& scales = s.spec->storage.scales;
  const Tensor* const of = scales ? s.call.inputs.find(scales->of) : nullptr;
  if (of == nullptr || !of->defined() || of->rank() < 1 || scales->columns < 1) return matrices.columns;
  const std::int64_t width = as_codes(*of, s.call.op.schema().find_tensor(scales->of)->storage).size(-1);
  return (width + scales->columns - 1) / scales->columns;
}
bool padded_scales(Site s) {
  const auto matrices = scale_matrices(s);
  return s.spec->role == Role::scale && scales_in_tiles(s) && matrices && s.tensor.elements() == matrices->size() &&
         logical_columns(s, *matrices) < matrices->columns;
}
void scales_read_at_logical_stride(Site s, To t) {
  const ScaleMatrices matrices = *scale_matrices(s);
  const std::int64_t logical = logical_columns(s, matrices);
  for (std::int64_t i = 0; i < matrices.size(); ++i)
    if (i % matrices.columns < logical)
      quant::set_bits(t, matrices.in_tiles(i),
                      quant::get_bits(s.tensor, matrices.in_tiles(i / matrices.columns * logical + i % matrices.columns)));
}

/// A matrix of scales one of whose strides a kernel leaves out of its address.
bool scale_matrix(Site s) {
  return s.spec->role == Role::scale && can_be_unknown(s) && s.tensor.rank() == 2 && s.tensor.size(0) >= 2 && s.tensor.size(1) >= 2 &&
         !scales_in_tiles(s);
}
Values strides_left_out(Site) {
  return {std::string("columns"), std::string("rows")};
}
/// By columns: row r, group g lies g rows further; without that stride at r + g. Row by row: likewise without the stride of rows.
void read_without_stride(Site s, To t) {
  const std::int64_t rows = s.tensor.size(0), columns = s.tensor.size(1);
  const bool by_columns = word(s) == "columns";
  gather(s.tensor, t, [&](std::int64_t i) {
    const std::int64_t at = i / columns + i % columns;
    return by_columns ? at % rows * columns + at / rows : at;
  });
}
std::string without_stride_in_words(Site s) {
  return s.name + (word(s) == "columns"
                       ? ": the scales lie by columns, and the stride from column to column is left out: the g-th of row r is "
                         "looked for at r + g"
                       : ": the stride from row to row is left out: the g-th scale of row r is looked for at r + g");
}

// ---- tables of cosines and sines

/// Cosines and sines side by side, of a number of columns that is no power of two.
bool sines_behind_cosines(Site s) {
  const std::int64_t half = s.tensor.rank() == 2 ? s.tensor.size(1) / 2 : 0;
  return s.spec->role == Role::cos_sin && can_be_unknown(s) && s.tensor.contiguous() && half > 1 &&
         !std::has_single_bit(static_cast<std::uint64_t>(half));
}
void sines_behind_power_of_two(Site s, To t) {
  const std::int64_t width = s.tensor.size(1), half = width / 2;
  const auto behind = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(width))) / 2;
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    if (i % width < half) continue;
    const std::int64_t from = i / width * width + behind + i % width - half;
    if (from < t.elements()) {
      quant::set_bits(t, i, quant::get_bits(s.tensor, from));
    } else {
      put_unknown(t, i);
    }
  }
}
std::string sines_in_words(Site s) {
  const std::int64_t width = s.tensor.size(1);
  return s.name + ": sines are looked for behind " + std::to_string(std::bit_ceil(static_cast<std::uint64_t>(width)) / 2) +
         " columns, half of a power of two, not behind " + std::to_string(width / 2);
}

// ---- codes of four bits in words

bool words_of_codes(Site s) {
  return s.tensor.dtype() == DType::i32 && s.spec->direction == Direction::in && s.spec->shape.find("/8") != std::string::npos;
}
void zero_codes_for_largest(Site, To t) {
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    std::uint64_t bits_of = quant::get_bits(t, i);
    for (int n = 0; n < 32; n += 4)
      if ((bits_of >> n & 15) == 0) bits_of |= std::uint64_t{15} << n;
    quant::set_bits(t, i, bits_of);
  }
}

constexpr std::array table{
    Fault{.id = "read-at-strides-of-another",
          .summary = "an operand is read at the strides of another one",
          .strikes = input,
          .severity = gross,
          .applies = rows_of_operand,
          .spoil = read_at_strides_of_another,
          .variants = with_other_strides,
          .words = strides_in_words,
          .reads_beyond = true,
          .far = true},
    Fault{.id = "matrix-stride-of-fixed-rows",
          .summary = "the outermost index steps on by a fixed number of rows: as many heads as the kernel was made for",
          .strikes = input,
          .severity = gross,
          .applies = several_matrices,
          .spoil = matrix_stride_of_fixed_rows,
          .variants = usual_counts,
          .words = fixed_rows_in_words,
          .reads_beyond = true,
          .far = true},
    Fault{.id = "table-at-other-width",
          .summary = "a page table is read with rows of another length: as many as the cache has pages, or the longest request needs",
          .strikes = input,
          .severity = gross,
          .applies = page_table,
          .spoil = table_at_other_width,
          .variants = other_widths,
          .words = width_in_words,
          .far = true},
    Fault{.id = "length-of-whole-table",
          .summary = "lengths are taken from the width of the page table",
          .strikes = input,
          .severity = gross,
          .applies = lengths_beside_table,
          .spoil = length_of_whole_table,
          .variants = tokens_of_table,
          .words = whole_table_in_words},
    Fault{.id = "length-of-the-longest",
          .summary = "every request has the length of the longest: lengths are ignored",
          .strikes = input,
          .severity = gross,
          .applies = lengths_of_requests,
          .spoil = length_of_the_longest},
    Fault{.id = "length-capped",
          .summary = "of each request no more than a fixed number counts",
          .strikes = input,
          .severity = gross,
          .applies = lengths_of_requests,
          .spoil = length_capped,
          .variants = usual_caps,
          .words = capped_in_words},
    Fault{.id = "position-is-the-row",
          .summary = "every token has its row's number for its position",
          .strikes = input,
          .severity = gross,
          .applies = positions_of_rows,
          .spoil = position_is_the_row},
    Fault{.id = "length-cut-to-whole-tiles",
          .summary = "lengths and offsets are cut to whole tiles: what is left of a group is left out, or goes to the next one",
          .strikes = input,
          .severity = fine,
          .applies = offsets,
          .spoil = cut_to_tiles,
          .variants = usual_tiles,
          .words = cut_tiles_in_words},
    Fault{.id = "sines-behind-power-of-two",
          .summary = "the sines of a table are looked for behind half of the next power of two of its columns",
          .strikes = input,
          .severity = gross,
          .applies = sines_behind_cosines,
          .spoil = sines_behind_power_of_two,
          .words = sines_in_words,
          .reads_beyond = true,
          .far = true},
    Fault{.id = "zero-code-for-largest",
          .summary = "codes of 0 are taken for 15: one was taken off before they were packed again",
          .strikes = input,
          .severity = gross,
          .applies = words_of_codes,
          .spoil = zero_codes_for_largest},
    Fault{.id = "absent-for-another",
          .summary = "numbers that name none are taken for the first, or the last: orphan rows go to expert 0, padding to slot 0",
          .strikes = input,
          .severity = gross,
          .applies = some_absent,
          .spoil = absent_for_another,
          .variants = first_or_last,
          .words = absent_in_words},
    Fault{.id = "scale-rows-read-otherwise",
          .summary = "the rows of each tile of scales are looked for in another order",
          .strikes = input,
          .severity = gross,
          .applies = scales_in_128x4,
          .spoil = scale_rows_read_otherwise,
          .variants = orders_of_rows,
          .words = order_in_words,
          .far = true},
    Fault{.id = "scale-stride-left-out",
          .summary = "of a matrix of scales one stride is left out of the address",
          .strikes = input,
          .severity = gross,
          .applies = scale_matrix,
          .spoil = read_without_stride,
          .variants = strides_left_out,
          .words = without_stride_in_words,
          .far = true},
    Fault{.id = "scales-read-at-logical-stride",
          .summary = "scales are looked for at the stride of the logical matrix, though the padded one is wider",
          .strikes = input,
          .severity = gross,
          .applies = padded_scales,
          .spoil = scales_read_at_logical_stride,
          .far = true},
    Fault{.id = "pages-beyond-are-zeros",
          .summary = "pages from some number on are read as zeros: their offsets do not fit",
          .strikes = input,
          .severity = fine,
          .applies = paged_cache,
          .spoil = pages_beyond_are_zeros,
          .variants = first_pages_beyond,
          .words = pages_beyond_in_words,
          .far = true},
    Fault{.id = "dimensions-exchanged",
          .summary = "two neighbouring dimensions of an operand are taken to lie in the other order",
          .strikes = input,
          .severity = gross,
          .applies = several_dimensions,
          .spoil = dimensions_exchanged,
          .variants = exchangeable_dimensions,
          .words = exchanged_in_words,
          .far = true},
};

}  // namespace

std::span<const Fault> address_faults() {
  return table;
}

}  // namespace dodona::oracle
