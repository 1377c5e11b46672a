// Faults in which row of an operand belongs to what: rows that are looked for at another number of the call, in blocks or in turn, not at
// all beyond a count; rows and columns taken for one another; whole numbers kept in too few bits. The op is computed anew.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>

#include "core/storage.h"
#include "oracle/cases/window.h"
#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

// ---- rows by another number

/// Whole numbers of as many elements: of experts.
const Tensor* ids_of_slots(Site s) {
  for (const TensorSpec& spec : s.call.op.schema().tensors)
    if (const Tensor* const ids = s.call.inputs.find(spec.name);
        spec.role == Role::expert_ids && ids != nullptr && ids->defined() && ids->shape() == s.tensor.shape())
      return ids;
  return nullptr;
}
bool has_rows(Site s) {
  return s.spec->direction == Direction::in && !s.spec->storage.code && bits(s.tensor.dtype()) >= 8 && s.tensor.rank() >= 1 &&
         s.tensor.size(0) >= 2 && s.tensor.elements() <= most_elements;
}
std::int64_t at(const Tensor& numbers, std::int64_t i) {
  return static_cast<std::int64_t>(quant::get(numbers, i));
}
bool distinct(const Tensor& numbers, std::int64_t below) {
  std::set<std::int64_t> seen;
  for (std::int64_t i = 0; i < numbers.elements(); ++i)
    if (const std::int64_t row = at(numbers, i); row >= below || (row >= 0 && !seen.insert(row).second)) return false;
  return true;
}
/// Elements that share a number of `numbers`: those of a row where there are as many rows, else each alone; 0 where neither fits.
std::int64_t unit_of(Site s, std::int64_t count) {
  if (count == s.tensor.size(0)) return s.tensor.elements() / count;
  return s.tensor.rank() >= 2 && count == s.tensor.elements() ? 1 : 0;
}
/// `at ids`: element i is the one at ids[i]; `of ids`: what belongs to number i is looked for at i, not at ids[i].
Values other_numbers(Site s) {
  Values values;
  for (const TensorSpec& spec : s.call.op.schema().tensors) {
    const Tensor* const numbers = s.call.inputs.find(spec.name);
    if (spec.direction == Direction::out || spec.name == s.name || numbers == nullptr || !numbers->defined() ||
        !is_whole(numbers->dtype()) || numbers->elements() < 2)
      continue;
    const std::int64_t count = numbers->elements();
    if (unit_of(s, count) > 0) values.emplace_back("at " + spec.name);
    if (numbers->rank() == 1 && count <= s.tensor.size(0) && distinct(*numbers, s.tensor.size(0))) values.emplace_back("of " + spec.name);
  }
  return values;
}
void rows_by_another_number(Site s, To t) {
  const Tensor& numbers = *s.call.inputs.find(rest_of(word(s)));
  const std::int64_t count = numbers.elements();
  if (word(s).starts_with("at ")) {
    const std::int64_t unit = unit_of(s, count);
    return gather(s.tensor, t, [&](std::int64_t i) {
      const std::int64_t row = at(numbers, i / unit);
      return row >= 0 && row < count ? row * unit + i % unit : i;
    });
  }
  const std::int64_t unit = s.tensor.elements() / s.tensor.size(0);
  for (std::int64_t i = 0; i < count * unit; ++i)
    if (const std::int64_t row = at(numbers, i / unit); row >= 0) quant::set_bits(t, row * unit + i % unit, quant::get_bits(s.tensor, i));
}
std::string another_number_in_words(Site s) {
  const std::string name = rest_of(word(s));
  return word(s).starts_with("at ") ? s.name + ": row i is looked for at " + name + "[i], not at i"
                                    : s.name + ": what belongs to row " + name + "[i] is looked for at i, the place in " + name;
}

/// Sizes of the call's arguments below that of the first dimension.
std::vector<std::int64_t> smaller_counts(Site s) {
  std::set<std::int64_t> counts;
  for (const TensorSpec& spec : s.call.op.schema().tensors) {
    const Tensor* tensor = s.call.inputs.find(spec.name);
    if (tensor == nullptr || !tensor->defined()) tensor = find(s.call.golden.outputs, spec.name);
    for (int d = 0; tensor != nullptr && tensor->defined() && d < tensor->rank(); ++d)
      if (tensor->size(d) >= 2 && tensor->size(d) < s.tensor.size(0)) counts.insert(tensor->size(d));
  }
  constexpr std::size_t most = 6;
  std::vector<std::int64_t> found(counts.begin(), counts.end());
  if (found.size() > most) found.resize(most);
  return found;
}
bool floats_in_rows(Site s) {
  return has_rows(s) && is_real(s.tensor.dtype());
}
/// `4 div`: rows in blocks of 4 share one; `4 mod`: in turn; `4 end`: those from number 4 on are zeros.
Values ways_of_counts(Site s) {
  Values values;
  for (const std::int64_t count : smaller_counts(s))
    for (const char* const way : {" end", " div", " mod"})
      if (way != std::string(" div") || s.tensor.size(0) % count == 0) values.emplace_back(std::to_string(count) + way);
  return values;
}
void rows_by_a_count(Site s, To t) {
  const std::int64_t count = std::stoll(word(s)), unit = s.tensor.elements() / s.tensor.size(0);
  const std::string way = rest_of(word(s));
  if (way == "end") {
    for (std::int64_t i = count * unit; i < t.elements(); ++i) quant::set_bits(t, i, 0);
    return;
  }
  gather(s.tensor, t, [&](std::int64_t i) {
    const std::int64_t row = i / unit;
    return (way == "div" ? row / count : row % count) * unit + i % unit;
  });
}
std::string count_in_words(Site s) {
  const std::string count = std::to_string(std::stoll(word(s))), way = rest_of(word(s));
  if (way == "end")
    return s.name + ": rows from " + count + " on are skipped: their numbers are held against another count of the call, of " +
           std::to_string(s.tensor.size(0)) + " rows";
  return s.name + (way == "div" ? ": row i is looked for at i / " : ": row i is looked for at i mod ") + count;
}

// ---- several operands by the same numbers

/// Numbers that say which row each output has of all operands with as many rows: `indices,top_p`: of top_p the outputs have theirs in turn.
struct Chosen {
  const TensorSpec* numbers;
  std::vector<std::string> operands;
};
std::vector<Chosen> chosen_rows(Site s) {
  std::vector<Chosen> found;
  for (const TensorSpec& spec : s.call.op.schema().tensors) {
    const Tensor* const numbers = s.call.inputs.find(spec.name);
    if (spec.direction != Direction::in || spec.bound.empty() || numbers == nullptr || !numbers->defined() || numbers->rank() != 1 ||
        !is_whole(numbers->dtype()))
      continue;
    Chosen chosen{&spec, {}};
    for (const TensorSpec& other : s.call.op.schema().tensors) {
      const Tensor* const tensor = s.call.inputs.find(other.name);
      if (other.direction != Direction::in || tensor == nullptr || !tensor->defined() || tensor->rank() < 1 || other.storage.code) continue;
      const auto dims = dims_of(other.shape, tensor->rank());
      if (!dims.empty() && dims.front() == spec.bound) chosen.operands.push_back(other.name);
    }
    if (chosen.operands.size() >= 2) found.push_back(std::move(chosen));
  }
  return found;
}
Values operands_in_turn(Site s) {
  Values values;
  for (const Chosen& chosen : chosen_rows(s))
    for (const std::string& operand : chosen.operands) values.emplace_back(operand + " " + chosen.numbers->name);
  return values;
}
void take_in_turn(Site s, Arguments& inputs) {
  const std::string operand = word(s).substr(0, word(s).find(' ')), name = rest_of(word(s));
  const Tensor numbers = s.call.inputs.find(name)->clone();
  for (const Chosen& chosen : chosen_rows(s)) {
    if (chosen.numbers->name != name) continue;
    for (const std::string& other : chosen.operands) {
      const Tensor& tensor = *s.call.inputs.find(other);
      Dims shape = tensor.shape();
      const std::int64_t rows = shape[0], unit = tensor.elements() / std::max<std::int64_t>(rows, 1);
      shape[0] = numbers.elements();
      const Tensor taken(tensor.dtype(), shape);
      for (std::int64_t i = 0; i < taken.elements(); ++i) {
        const std::int64_t row = other == operand ? i / unit % rows : at(numbers, i / unit);
        quant::set_bits(taken, i, quant::get_bits(tensor, row * unit + i % unit));
      }
      inputs.set(other, taken);
    }
  }
  for (std::int64_t i = 0; i < numbers.elements(); ++i) quant::set(numbers, i, static_cast<double>(i));
  inputs.set(name, numbers);
}
std::string in_turn_in_words(Site s) {
  const std::string operand = word(s).substr(0, word(s).find(' ')), name = rest_of(word(s));
  return operand + ": output i has row i of it, in turn, not row " + name + "[i]";
}

// ---- rows and columns

bool matrix_of_numbers(Site s) {
  return has_rows(s) && is_real(s.tensor.dtype()) && s.spec->role != Role::scale && s.tensor.rank() == 2 && s.tensor.size(1) >= 2;
}
Values other_orders(Site) {
  return {std::string("lies"), std::string("read")};
}
void other_order(Site s, To t) {
  const std::int64_t rows = s.tensor.size(0), columns = s.tensor.size(1);
  const bool lies = word(s) == "lies";
  gather(s.tensor, t, [&](std::int64_t i) { return lies ? i % rows * columns + i / rows : i % columns * rows + i / columns; });
}
std::string other_order_in_words(Site s) {
  return s.name + (word(s) == "lies" ? ": lies column by column, and is read row by row as if it were packed"
                                     : ": read column by column, though it lies row by row");
}
bool several_matrices(Site s) {
  return has_rows(s) && s.tensor.rank() >= 3 && s.tensor.size(1) >= 2;
}
void first_of_each_matrix(Site s, To t) {
  const std::int64_t matrix = s.tensor.elements() / s.tensor.size(0), unit = matrix / s.tensor.size(1);
  gather(s.tensor, t, [&](std::int64_t i) { return i / matrix * matrix + i % unit; });
}

// ---- one of several

/// Ranks, experts, requests: few enough to try each.
bool few_matrices(Site s) {
  constexpr std::int64_t most = 16;
  return has_rows(s) && is_real(s.tensor.dtype()) && s.tensor.rank() >= 3 && s.tensor.size(0) <= most;
}
/// `3 zero`: number 3 counts as zeros; `3 twice`.
Values one_each(Site s) {
  Values values;
  for (std::int64_t i = 0; i < s.tensor.size(0); ++i)
    for (const char* const how : {" zero", " twice"}) values.emplace_back(std::to_string(i) + how);
  return values;
}
void one_otherwise(Site s, To t) {
  const std::int64_t unit = s.tensor.elements() / s.tensor.size(0), first = std::stoll(word(s)) * unit;
  const bool twice = rest_of(word(s)) == "twice";
  for (std::int64_t i = first; i < first + unit; ++i) put(t, i, twice ? 2 * quant::get(s.tensor, i) : 0.0);
}
std::string one_in_words(Site s) {
  const auto dims = dims_of(s.spec->shape, s.tensor.rank());
  return s.name + ": number " + std::to_string(std::stoll(word(s))) + " along " + (dims.empty() ? "dimension 0" : dims.front()) +
         " (rank, expert, request) " +
         (rest_of(word(s)) == "twice" ? "counts twice" : "is left out: zeros stand for it, as if it were not there yet");
}

// ---- columns of one tile

bool tiles_of_columns(Site s) {
  return s.spec->direction == Direction::in && s.tensor.rank() >= 2 && s.tensor.elements() <= most_elements &&
         (s.spec->role == Role::values || s.spec->role == Role::weight) && s.tensor.size(-1) >= 64;
}
Values usual_tiles(Site s) {
  Values values;
  for (const std::int64_t tile : {32, 64, 128, 256})
    if (s.tensor.size(-1) > tile && s.tensor.size(-1) % tile == 0) values.emplace_back(tile);
  return values;
}
void first_tile_everywhere(Site s, To t) {
  const std::int64_t tile = std::get<std::int64_t>(*s.taken);
  gather_rows(s.tensor, t, [&](const Rows& r, std::int64_t row, std::int64_t c) { return r.at(row, c % tile); });
}
std::string first_tile_in_words(Site s) {
  return s.name + ": column c is looked for at c mod " + to_string(*s.taken) + ": every tile, or group, is the first one";
}

// ---- slots of tokens

/// Weights of a token's slots; ids of as many slots beside them say which experts they are of.
bool weights_of_slots(Site s) {
  constexpr std::int64_t most_slots = 32;
  return has_rows(s) && is_real(s.tensor.dtype()) && s.spec->role != Role::logits && s.tensor.rank() >= 2 && s.tensor.size(-1) >= 2 &&
         s.tensor.size(-1) <= most_slots && s.call.op.info().category == Category::moe && ids_of_slots(s) != nullptr;
}
/// `slot first`: that slot of each token is left out; `expert 3`: those of that expert are; `expert 3 twice`.
Values slots_left_out(Site s) {
  Values values{std::string("slot first"), std::string("slot last")};
  std::set<std::int64_t> experts;
  const Tensor& ids = *ids_of_slots(s);
  for (std::int64_t i = 0; i < ids.elements(); ++i)
    if (at(ids, i) >= 0) experts.insert(at(ids, i));
  if (experts.empty()) return values;
  for (const std::int64_t expert : {*experts.begin(), *experts.rbegin()})
    for (const char* const twice : {"", " twice"}) values.emplace_back("expert " + std::to_string(expert) + twice);
  return values;
}
void slots_otherwise(Site s, To t) {
  const Tensor& ids = *ids_of_slots(s);
  const std::int64_t width = s.tensor.size(-1);
  const bool by_slot = word(s).starts_with("slot "), twice = word(s).ends_with("twice");
  const std::int64_t wanted = by_slot ? (word(s) == "slot first" ? 0 : width - 1) : std::stoll(rest_of(word(s)));
  for (std::int64_t i = 0; i < t.elements(); ++i)
    if ((by_slot ? i % width : at(ids, i)) == wanted) quant::set(t, i, twice ? 2 * quant::get(s.tensor, i) : 0.0);
}
std::string slots_in_words(Site s) {
  if (word(s).starts_with("slot ")) return s.name + ": the " + rest_of(word(s)) + " slot of each token is left out";
  const std::string expert = std::to_string(std::stoll(rest_of(word(s))));
  return s.name + ": what expert " + expert + (word(s).ends_with("twice") ? " adds is added twice" : " adds is left out");
}

// ---- the next one's

/// What a kernel has of each request, rank, expert or page: a matrix, a list of numbers, a number.
bool one_of_each(Site s) {
  const bool numbers =
      is_whole(s.tensor.dtype()) && (s.spec->role == Role::lengths || s.spec->role == Role::page_table || s.tensor.rank() >= 2);
  return s.spec->direction == Direction::in && s.tensor.rank() >= 1 && s.tensor.size(0) >= 2 && s.tensor.elements() <= most_elements &&
         (numbers || s.tensor.rank() >= 3);
}
/// The first and the last have none before and behind them: the other end's, or their own.
Values neighbours(Site s) {
  if (s.tensor.size(0) == 2) return {std::string("next"), std::string("previous own"), std::string("next own")};
  return {std::string("next"), std::string("previous"), std::string("next own"), std::string("previous own")};
}
void of_the_neighbour(Site s, To t) {
  const std::int64_t count = s.tensor.size(0), unit = s.tensor.elements() / count, step = word(s).starts_with("next") ? 1 : -1;
  const bool own = word(s).ends_with("own");
  gather(s.tensor, t, [&](std::int64_t i) {
    const std::int64_t to = i / unit + step;
    return (own ? std::clamp<std::int64_t>(to, 0, count - 1) : (to + count) % count) * unit + i % unit;
  });
}
std::string neighbour_in_words(Site s) {
  const auto dims = dims_of(s.spec->shape, s.tensor.rank());
  return s.name + ": that of the " + (word(s).starts_with("next") ? "next" : "one before") + " along " +
         (dims.empty() ? "dimension 0" : dims.front()) + " (request, rank, expert, page) is taken for each" +
         (word(s).ends_with("own") ? ", but for the one at the end" : "");
}

// ---- offsets

/// By their role, or by what they hold: numbers that rise from 0.
bool offsets(Site s) {
  if (s.spec->direction != Direction::in || !is_whole(s.tensor.dtype()) || s.tensor.rank() != 1 || s.tensor.size(0) < 3) return false;
  if (s.spec->role == Role::indptr) return true;
  for (std::int64_t i = 0; i + 1 < s.tensor.elements(); ++i)
    if (at(s.tensor, i) > at(s.tensor, i + 1)) return false;
  return at(s.tensor, 0) == 0 && at(s.tensor, s.tensor.elements() - 1) > 1;
}
Values other_offsets(Site) {
  return {std::string("one row each"), std::string("evenly"), std::string("twice")};
}
void offsets_of_their_own(Site s, To t) {
  const std::int64_t count = t.elements() - 1;
  const double end = quant::get(s.tensor, count);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto number = static_cast<double>(i);
    if (word(s) == "twice") {
      quant::set(t, i, 2 * quant::get(s.tensor, i));
      continue;
    }
    quant::set(t, i, word(s) == "evenly" ? std::floor(number * end / static_cast<double>(count)) : std::min(number, end));
  }
}
std::string offsets_in_words(Site s) {
  if (word(s) == "twice") return s.name + ": where a group begins is counted twice: groups behind the first lie twice as far on";
  return s.name + (word(s) == "evenly" ? ": groups are taken to be equally large, whatever the offsets say"
                                       : ": row i is taken to be of group i, the last one having what is left: offsets are not looked at");
}

// ---- pages of codes and scales

/// Tokens of a page have their codes one behind the other, and their scales behind those: [pages, tokens, ..., D+4] bytes.
bool page_of_codes(const TensorSpec& spec, const Tensor& tensor) {
  return tensor.dtype() == DType::u8 && tensor.rank() >= 3 && tensor.contiguous() && tensor.size(1) >= 2 && tensor.size(-1) > 4 &&
         spec.shape.ends_with("+4");
}
bool pages(Site s) {
  return page_of_codes(*s.spec, s.tensor);
}
/// Where byte i of a page lies if each token has its scale behind its codes.
std::int64_t place_by_token(const Tensor& tensor, std::int64_t i) {
  const std::int64_t width = tensor.size(-1), tokens = tensor.elements() / tensor.size(0) / width, codes = tokens * (width - 4);
  const std::int64_t page = i / (tokens * width) * tokens * width, in_page = i - page;
  return page + (in_page < codes ? in_page / (width - 4) * width + in_page % (width - 4)
                                 : (in_page - codes) / 4 * width + width - 4 + (in_page - codes) % 4);
}
/// Pages are as far apart as their codes are long.
void pages_of_codes_alone(Site s, To t) {
  const std::int64_t page = s.tensor.elements() / s.tensor.size(0), width = s.tensor.size(-1), stride = page / width * (width - 4);
  gather(s.tensor, t, [&](std::int64_t i) { return i / page * stride + i % page; });
}
void read_token_by_token(Site s, To t) {
  gather(s.tensor, t, [&](std::int64_t i) { return place_by_token(s.tensor, i); });
}

// ---- whole numbers

bool whole_numbers(Site s) {
  return s.spec->direction == Direction::in && is_whole(s.tensor.dtype()) && s.tensor.elements() >= 1;
}
double kept_in(const std::string& type, double x) {
  if (type == "i32 pairs") return x;
  if (type == "bf16") return quant::round_to(DType::bf16, x);
  if (type == "f16") return quant::round_to(DType::f16, x);
  const auto whole = static_cast<std::int64_t>(x);
  if (type == "i8") return static_cast<std::int8_t>(whole);
  if (type == "u8") return static_cast<std::uint8_t>(whole);
  return type == "i16" ? static_cast<double>(static_cast<std::int16_t>(whole)) : static_cast<double>(static_cast<std::uint16_t>(whole));
}
Values narrow_types(Site s) {
  Values values;
  for (const char* const type : {"bf16", "f16", "u8", "i8", "u16", "i16"}) {
    bool changes = false;
    for (std::int64_t i = 0; i < s.tensor.elements() && !changes; ++i) {
      const double x = quant::get(s.tensor, i);
      changes = x >= 0 && kept_in(type, x) != x;
    }
    if (changes) values.emplace_back(std::string(type));
  }
  if (s.tensor.dtype() == DType::i64 && s.tensor.contiguous() && s.tensor.elements() >= 2) values.emplace_back(std::string("i32 pairs"));
  return values;
}
/// Rows of what the numbers are below, where an argument has so many; else no end.
double end_of(Site s) {
  for (const TensorSpec& spec : s.call.op.schema().tensors)
    if (const Tensor* const tensor = s.call.inputs.find(spec.name);
        !s.spec->bound.empty() && tensor != nullptr && tensor->defined() && tensor->rank() >= 1)
      if (const auto dims = dims_of(spec.shape, tensor->rank()); !dims.empty() && dims.front() == s.spec->bound)
        return static_cast<double>(tensor->size(0));
  return INFINITY;
}
void kept_narrow(Site s, To t) {
  if (word(s) == "i32 pairs") {
    for (std::int64_t i = 0; i < t.elements(); ++i) quant::set(t, i, quant::load(DType::i32, s.tensor.data(), i));
    return;
  }
  const double last = end_of(s) - 1;
  for (std::int64_t i = 0; i < t.elements(); ++i)
    if (const double x = quant::get(s.tensor, i); x >= 0) quant::set(t, i, std::min(kept_in(word(s), x), last));
}
std::string narrow_in_words(Site s) {
  if (word(s) == "i32 pairs")
    return s.name + ": read as i32, 32 bits each, though it has 64: every second number is the upper half of another";
  return s.name + (word(s) == "bf16" || word(s) == "f16" ? ": whole numbers are rounded to " : ": whole numbers are kept in ") + word(s) +
         (word(s) == "bf16"  ? ", which has all of them up to 256 alone"
          : word(s) == "f16" ? ", which has all of them up to 2048 alone"
                             : ", and wrap");
}

/// Lengths whose last tile, or page, is full.
bool lengths(Site s) {
  return is_whole(s.tensor.dtype()) && s.spec->direction == Direction::in &&
         (s.spec->role == Role::lengths || s.spec->role == Role::positions) && s.tensor.rank() == 1 &&
         s.call.op.info().category == Category::attention;
}
/// `16 full`: a tile more where the last one is full; `16 all`: whole tiles, and one more where that is full.
Values tiles_one_more(Site) {
  Values values;
  for (const char* const tile : {"16", "32", "64", "128"})
    for (const char* const which : {" full", " all"}) values.emplace_back(std::string(tile) + which);
  return values;
}
void a_tile_more(Site s, To t) {
  const auto tile = static_cast<double>(std::stoll(word(s)));
  const bool all = rest_of(word(s)) == "all";
  each(t, [&](double x) {
    if (x <= 0) return x;
    return std::fmod(x, tile) == 0 ? x + tile : all ? std::ceil(x / tile) * tile : x;
  });
}
std::string a_tile_more_in_words(Site s) {
  const std::string tile = std::to_string(std::stoll(word(s)));
  return s.name + ": lengths that are multiples of " + tile + " count a whole tile or page more" +
         (rest_of(word(s)) == "all" ? ", others the rest of theirs" : "") + ": what is stale there counts";
}

bool coins(Site s) {
  return s.spec->role == Role::coins && s.spec->direction == Direction::in;
}
void all_zeros(Site, To t) {
  each(t, [](double) { return 0.0; });
}

constexpr std::array table{
    Fault{.id = "rows-by-another-number",
          .summary = "rows are looked for at another number of the call",
          .strikes = input,
          .severity = fine,
          .applies = has_rows,
          .spoil = rows_by_another_number,
          .variants = other_numbers,
          .words = another_number_in_words,
          .far = true},
    Fault{.id = "rows-in-turn",
          .summary = "of one of the operands that outputs choose rows of they have them in turn",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = operands_in_turn,
          .recall = take_in_turn,
          .words = in_turn_in_words,
          .far = true},
    Fault{.id = "other-order-of-dimensions",
          .summary = "a matrix that lies by columns is read row by row, or the other way round",
          .strikes = input,
          .severity = fine,
          .applies = matrix_of_numbers,
          .spoil = other_order,
          .variants = other_orders,
          .words = other_order_in_words,
          .far = true},
    Fault{.id = "first-of-each-matrix",
          .summary = "each matrix's first row (request's first query, tree's root) is used for all of its rows",
          .strikes = input,
          .severity = fine,
          .applies = several_matrices,
          .spoil = first_of_each_matrix},
    Fault{.id = "one-otherwise",
          .summary = "one of several matrices (ranks, experts, requests) is left out or counts twice",
          .strikes = input,
          .severity = fine,
          .applies = few_matrices,
          .spoil = one_otherwise,
          .variants = one_each,
          .words = one_in_words},
    Fault{.id = "first-tile-everywhere",
          .summary = "columns are counted within their tile: every tile is the first one",
          .strikes = input,
          .severity = fine,
          .applies = tiles_of_columns,
          .spoil = first_tile_everywhere,
          .variants = usual_tiles,
          .words = first_tile_in_words},
    Fault{.id = "slots-otherwise",
          .summary = "one slot of each token, or one expert, is left out or counts twice",
          .strikes = input,
          .severity = fine,
          .applies = weights_of_slots,
          .spoil = slots_otherwise,
          .variants = slots_left_out,
          .words = slots_in_words},
    Fault{.id = "of-the-neighbour",
          .summary = "what belongs to a request (rank, expert, page) is the next one's, or that of the one before",
          .strikes = input,
          .severity = fine,
          .applies = one_of_each,
          .spoil = of_the_neighbour,
          .variants = neighbours,
          .words = neighbour_in_words,
          .far = true},
    Fault{.id = "offsets-not-looked-at",
          .summary = "groups of rows are one row each, or equally large, whatever the offsets say",
          .strikes = input,
          .severity = fine,
          .applies = offsets,
          .spoil = offsets_of_their_own,
          .variants = other_offsets,
          .words = offsets_in_words,
          .far = true},
    Fault{.id = "read-token-by-token",
          .summary = "a page holds all codes and then all scales, and is read token by token, each with its scale behind its codes",
          .strikes = input,
          .severity = gross,
          .applies = pages,
          .spoil = read_token_by_token,
          .reads_beyond = true,
          .far = true},
    Fault{.id = "pages-of-codes-alone",
          .summary = "pages are taken to be as far apart as their codes are long: the scales are left out of the stride",
          .strikes = input,
          .severity = gross,
          .applies = pages,
          .spoil = pages_of_codes_alone,
          .reads_beyond = true,
          .far = true},
    Fault{.id = "whole-numbers-narrowed",
          .summary = "whole numbers are kept in a type that does not hold them",
          .strikes = input,
          .severity = fine,
          .applies = whole_numbers,
          .spoil = kept_narrow,
          .variants = narrow_types,
          .words = narrow_in_words,
          .reads_beyond = true},
    Fault{.id = "length-of-a-tile-more",
          .summary = "lengths that fill their last tile, or page, count one more",
          .strikes = input,
          .severity = fine,
          .applies = lengths,
          .spoil = a_tile_more,
          .variants = tiles_one_more,
          .words = a_tile_more_in_words},
    Fault{.id = "coins-zero", .summary = "all coins are 0", .strikes = input, .severity = fine, .applies = coins, .spoil = all_zeros},
    Fault{.id = "rows-by-a-count",
          .summary = "rows are looked for in blocks or in turn of another count of the call, or not beyond it",
          .strikes = input,
          .severity = fine,
          .applies = floats_in_rows,
          .spoil = rows_by_a_count,
          .variants = ways_of_counts,
          .words = count_in_words,
          .far = true,
          .unlikely = true},
};

}  // namespace

std::span<const Fault> row_faults() {
  return table;
}

}  // namespace dodona::oracle
