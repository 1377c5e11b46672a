// Faults composed of which entries of a list of numbers (slots, pages, rows, positions, experts), and what stands in their place: another
// entry's number, a number beside it, none. Tried where no mistake that has a name of its own reproduces the outputs.
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/storage.h"
#include "oracle/faults/rewritten.h"
#include "oracle/faults/tables/composed.h"
#include "oracle/faults/tables/fault_tools.h"
#include "quant/sizes.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

bool list_of_numbers(Site s) {
  constexpr std::int64_t most = 1 << 20;
  return s.spec->direction == Direction::in && is_whole(s.tensor.dtype()) && !s.spec->storage.code && s.tensor.rank() >= 1 &&
         s.tensor.elements() >= 2 && s.tensor.elements() <= most &&
         (s.spec->role == Role::indices || s.spec->role == Role::positions || s.spec->role == Role::page_table ||
          s.spec->role == Role::expert_ids);
}
std::int64_t width_of(Site s) {
  return s.tensor.size(-1);
}
std::int64_t number_at(const Tensor& numbers, std::int64_t i) {
  return static_cast<std::int64_t>(quant::get(numbers, i));
}
/// A permutation of 0 to n - 1.
bool is_permutation(const Tensor& numbers) {
  std::set<std::int64_t> seen;
  for (std::int64_t i = 0; i < numbers.elements(); ++i)
    if (const std::int64_t x = number_at(numbers, i); x < 0 || x >= numbers.elements() || !seen.insert(x).second) return false;
  return true;
}

/// `end 64`: entries of a row from 64 on name none; `from 64`: those before; `shift 3`: the entry 3 behind; `first 4`: the first of each 4;
/// `mod 32`: the entry i mod 32; `over 16`: the entry i / 16; `run 2`: of each 2 the first and what follows it; `own 4`: its number and
/// i mod 4; `inverse 0`; `plus 1`: its number and 1; `zero 2`: the first two of a row are 0; `pages 16`: pages of 16 where the bound says
/// how many they have. Of lists of several rows `rows-over 2`: the row b / 2; `rows-shift 1`: the row behind. `itself 0`: entry i is i, the
/// list is not looked at; `itself 1`: of lists of several rows i is counted on from row to row.
Values other_entries(Site s) {
  Values values;
  const auto add = [&](const char* how, std::int64_t n) { values.emplace_back(how + std::string(" ") + std::to_string(n)); };
  const std::int64_t width = width_of(s);
  if (s.tensor.rank() == 1 && is_permutation(s.tensor)) add("inverse", 0);
  for (const std::int64_t step : {1, -1, 2, -2, 3, -3, 4, -4, 8, -8, 16, -16})
    if (std::abs(step) < (width > 2 ? width - 1 : width)) add("shift", step);  // beyond, all entries are the first or the last one
  for (const std::int64_t p : {2, 4, 8, 16, 32})
    if (p < width) add("first", p), add("over", p);
  // A table of slots in the place of one of pages: all that is asked for lies in the first page.
  if (s.tensor.rank() >= 2 && width >= 2) add("over", width);
  for (const std::int64_t p : {2, 4, 8, 16, 32})
    if (p <= width) add("run", p), add("own", p);
  if (width >= 2) add("run", width), add("own", width);
  if (s.tensor.rank() >= 2 && s.tensor.elements() / width >= 2) {
    for (const std::int64_t step : {1, -1}) add("rows-shift", step);
    for (const std::int64_t p : {2, 4, 8})
      if (p <= s.tensor.elements() / width) add("rows-over", p);
  }
  for (const std::int64_t p : {2, 4, 8, 16, 32, 64, 128, 256})
    if (p < width) add("mod", p), add("end", p), add("from", p);
  for (const std::int64_t p : numbers_of(s.call))
    if (p < width) add("mod", p), add("first", p), add("over", p), add("run", p), add("own", p);
  for (const std::int64_t n : {1, -1}) add("plus", n);
  for (const std::int64_t n : {1, 2, 4, 8})
    if (n < width) add("zero", n);
  add("itself", 0);
  if (s.tensor.elements() > width) add("itself", 1);
  const std::size_t star = s.spec->bound.find('*');
  if (star != std::string::npos && s.tensor.rank() == 1)
    for (const std::int64_t p : {1, 2, 4, 8, 16, 32, 64, 128, 256}) add("pages", p);
  return values;
}
/// Slots of a page, where the bound of the numbers is so many pages of them: a number, or an attribute's.
std::int64_t slots_of_page(Site s) {
  const std::size_t star = s.spec->bound.find('*');
  if (star == std::string::npos) return 0;
  const std::string slots = s.spec->bound.substr(star + 1);
  if (!slots.empty() && slots.find_first_not_of("0123456789") == std::string::npos) return std::stoll(slots);
  const AttrValue* given = s.call.inputs.find_attr(slots);
  for (const AttrSpec& spec : s.call.op.schema().attrs)
    if (given == nullptr && spec.name == slots) given = &spec.default_value;
  if (given != nullptr && std::holds_alternative<std::int64_t>(*given)) return std::get<std::int64_t>(*given);
  return 0;
}
void take_other_entries(Site s, To t) {
  const std::string how = first_of(word(s));
  const std::int64_t n = std::stoll(rest_of(word(s))), width = width_of(s), slots = slots_of_page(s);
  if (how == "inverse") {
    for (std::int64_t i = 0; i < t.elements(); ++i) quant::set(t, number_at(s.tensor, i), static_cast<double>(i));
    return;
  }
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    const std::int64_t at = i % width, own = number_at(s.tensor, i);
    const auto entry = [&](std::int64_t from) { return number_at(s.tensor, i - at + std::clamp<std::int64_t>(from, 0, width - 1)); };
    std::int64_t taken = own;
    if (how == "shift") taken = entry(at + n);
    if (how == "first") taken = entry(at / n * n);
    if (how == "mod") taken = entry(at % n);
    if (how == "over") taken = entry(at / n);
    if (how == "run") taken = entry(at / n * n) + at % n;
    if (how == "own") taken = own + (own >= 0 ? at % n : 0);
    if (how == "rows-over" || how == "rows-shift") {
      const std::int64_t rows = s.tensor.elements() / width, row = i / width;
      taken = number_at(s.tensor, (how == "rows-over" ? row / n : std::clamp<std::int64_t>(row + n, 0, rows - 1)) * width + at);
    }
    if (how == "end") taken = at < n ? own : -1;
    if (how == "from") taken = at < n ? -1 : own;
    if (how == "plus") taken = own + (own >= 0 ? n : 0);
    if (how == "zero") taken = at < n ? 0 : own;
    if (how == "itself") taken = own < 0 ? own : n == 0 ? at : i;
    if (how == "pages" && slots > 0) taken = own / n * slots + own % n;
    quant::set(t, i, static_cast<double>(taken));
  }
}
std::string other_entries_in_words(Site s) {
  const std::string how = first_of(word(s)), n = rest_of(word(s)), name = s.name + ": ";
  if (how == "inverse") return name + "the inverse permutation is taken: where entry i says n, n is taken to say i";
  if (how == "shift")
    return name + (n.starts_with("-") ? "entry i is the one " + n.substr(1) + " before it" : "entry i is the one " + n + " behind it") +
           ": the list is shifted";
  if (how == "first") return name + "the first of each " + n + " entries is used for all of them";
  if (how == "mod") return name + "entry i is looked for at i mod " + n + ": every " + n + " are the first " + n;
  if (how == "over" && std::stoll(n) >= width_of(s))
    return name + "the first entry of a row is used for all of it: entry i is looked for at i / " + n + " or more";
  if (how == "over") return name + "entry i is looked for at i / " + n;
  if (how == "run") return name + "entries of each " + n + " are taken to follow the first of them: to be adjacent, consecutive numbers";
  if (how == "own") return name + "i mod " + n + " is added to entry i: what it names lies so much further, an offset that counts twice";
  if (how == "rows-over") return name + "row b of the list is looked for at b / " + n;
  if (how == "rows-shift") return name + "row b of the list is the one " + (n == "1" ? "behind" : "before") + " it";
  if (how == "end") return name + "entries from " + n + " on are left out: the first " + n + " of a row alone count";
  if (how == "from") return name + "the first " + n + " entries of a row are left out";
  if (how == "zero") return name + "the first " + (n == "1" ? "entry" : n + " entries") + " of each row is taken for 0, not looked at";
  if (how == "itself")
    return name + "the list is not looked at: entry i is taken to be i" + (n == "0" ? "" : ", counted on from row to row");
  if (how == "plus") return name + (n == "1" ? "each number is one too large" : "each number is one too small");
  return name + "slots are taken apart into pages of " + n + ", where a page has " + std::to_string(slots_of_page(s));
}

// ---- rows of a list at another width

bool rows_of_numbers(Site s) {
  return list_of_numbers(s) && s.tensor.rank() == 2 && s.tensor.size(0) >= 2 && s.tensor.contiguous();
}
Values widths_of_rows(Site s) {
  const std::int64_t own = width_of(s);
  std::set<std::int64_t> widths{own - 1, own + 1, 2 * own, own / 2, 1};
  for (const std::int64_t padding : {2, 4, 8, 16, 32, 64, 128}) widths.insert(quant::align(own, padding));
  for (std::int64_t power = 1; power <= 4 * own; power *= 2)
    if (2 * power > own) widths.insert(power);
  Values values;
  for (const std::int64_t width : widths)
    if (width >= 1 && width != own) values.emplace_back(width);
  return values;
}
/// What lies behind the end of the list is a number of it: that of the least, or that of the largest.
GoldenRun with_other_widths(Site s) {
  const std::int64_t own = width_of(s), width = std::get<std::int64_t>(*s.taken), count = s.tensor.elements();
  std::int64_t least = std::numeric_limits<std::int64_t>::max(), most = 0;
  for (std::int64_t i = 0; i < count; ++i)
    if (const std::int64_t x = number_at(s.tensor, i); x >= 0) least = std::min(least, x), most = std::max(most, x);
  const auto run_with = [&](std::int64_t beyond) {
    const Tensor changed = s.tensor.clone();
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t from = i / own * width + i % own;
      quant::set(changed, i, static_cast<double>(from < count ? number_at(s.tensor, from) : beyond));
    }
    Arguments inputs = s.call.inputs;
    inputs.set(s.name, changed);
    return run_golden(s.call.op, inputs, s.call.exec);
  };
  GoldenRun run = run_with(least);
  if ((s.tensor.size(0) - 1) * width + own > count) leave_differences_open(run, run_with(most));
  return run;
}
std::string widths_in_words(Site s) {
  return s.name + ": rows of the list are looked for " + to_string(*s.taken) + " entries apart, as if they were so wide, where they have " +
         std::to_string(width_of(s));
}
void at_another_width(Site s, To t) {
  const std::int64_t own = width_of(s), width = std::get<std::int64_t>(*s.taken), count = s.tensor.elements();
  for (std::int64_t i = 0; i < count; ++i)
    quant::set(t, i, static_cast<double>(number_at(s.tensor, std::min(i / own * width + i % own, count - 1))));
}

// ---- groups that are padded

/// Offsets of groups of rows, of an operand and an output alike.
bool offsets_of_groups(Site s) {
  return s.spec->direction == Direction::in && s.spec->role == Role::indptr && is_whole(s.tensor.dtype()) && s.tensor.rank() == 1 &&
         s.tensor.elements() >= 2;
}
Values padded_groups(Site) {
  return {std::int64_t{2}, std::int64_t{4}, std::int64_t{8}, std::int64_t{16}, std::int64_t{32}, std::int64_t{64}, std::int64_t{128}};
}
/// As many rows as there are: what does not fit is the last group's, or nobody's.
void begin_behind_padding(Site s, To t) {
  const std::int64_t unit = std::get<std::int64_t>(*s.taken), count = s.tensor.elements(), last = number_at(s.tensor, count - 1);
  std::int64_t begin = 0;
  // Offsets end with the number of rows, or with where the last group begins.
  for (std::int64_t g = 0; g < count; ++g) {
    quant::set(t, g, static_cast<double>(std::min(begin, std::max(last, number_at(s.tensor, g)))));
    if (g + 1 < count) begin += quant::align(number_at(s.tensor, g + 1) - number_at(s.tensor, g), unit);
  }
}
std::string padding_in_words(Site s) {
  return s.name + ": groups are taken to be padded to a multiple of " + to_string(*s.taken) +
         " rows, which they are not: those behind begin too late, and rows are another group's, or expert's";
}

// ---- an expert that a token names twice

/// Experts of tokens, of which a token names one again, and what each of its choices counts.
struct Repeats {
  std::string ids, counts;
};
std::vector<Repeats> repeats_of(const FaultCase& call) {
  std::vector<Repeats> found;
  for (const TensorSpec& spec : call.op.schema().tensors) {
    const Tensor* const ids = call.inputs.find(spec.name);
    if (spec.direction != Direction::in || ids == nullptr || !ids->defined() || !is_whole(ids->dtype()) || ids->rank() != 2) continue;
    bool again = false;
    for (std::int64_t i = 0; i < ids->elements() && !again; ++i)
      for (std::int64_t k = i / ids->size(1) * ids->size(1); k < i && !again; ++k)
        again = number_at(*ids, i) >= 0 && number_at(*ids, k) == number_at(*ids, i);
    if (!again) continue;
    for (const TensorSpec& other : call.op.schema().tensors)
      if (const Tensor* const counts = call.inputs.find(other.name); other.direction == Direction::in && counts != nullptr &&
                                                                     counts->defined() && is_float(counts->dtype()) &&
                                                                     counts->shape() == ids->shape())
        found.push_back({spec.name, other.name});
  }
  return found;
}
Values some_of_repeats(Site s) {
  Values values;
  for (const Repeats& repeats : repeats_of(s.call))
    for (const char* const how : {" again", " first", " all"}) values.emplace_back(repeats.ids + " " + repeats.counts + how);
  return values;
}
void leave_repeats_out(Site s, Arguments& inputs) {
  const std::string how = rest_of(rest_of(word(s))), name = first_of(rest_of(word(s)));
  const Tensor &ids = *s.call.inputs.find(first_of(word(s))), &counts = *s.call.inputs.find(name), changed = counts.clone();
  for (std::int64_t i = 0; i < ids.elements(); ++i) {
    const std::int64_t row = i / ids.size(1) * ids.size(1);
    bool before = false, behind = false;
    for (std::int64_t k = row; k < row + ids.size(1); ++k) {
      const bool same = number_at(ids, k) == number_at(ids, i);
      before = before || (same && k < i), behind = behind || (same && k > i);
    }
    if (how == "again" ? before : how == "first" ? behind && !before : before || behind) quant::set(changed, i, 0);
  }
  inputs.set(name, changed);
}
std::string repeats_in_words(Site s) {
  const std::string how = rest_of(rest_of(word(s))), of = first_of(word(s)) + ": of an expert that a token names twice ";
  if (how == "again")
    return of + "the first pair alone counts: the second, repeated one is left out, as a search that ends at the first hit does it";
  if (how == "first") return of + "the last pair alone counts: the first one is written over, left out";
  return of + "no pair counts";
}

constexpr std::array table{
    Fault{.id = "groups-taken-as-padded",
          .summary = "groups of rows are taken to be padded",
          .strikes = input,
          .severity = fine,
          .applies = offsets_of_groups,
          .spoil = begin_behind_padding,
          .variants = padded_groups,
          .words = padding_in_words,
          .far = true},
    Fault{.id = "repeated-experts",
          .summary = "of an expert that a token names twice one pair alone counts",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = some_of_repeats,
          .recall = leave_repeats_out,
          .words = repeats_in_words},
    Fault{.id = "list-at-another-width",
          .summary = "rows of a list of numbers are looked for at another distance",
          .strikes = input,
          .severity = fine,
          .applies = rows_of_numbers,
          .spoil = at_another_width,
          .variants = widths_of_rows,
          .words = widths_in_words,
          .reads_beyond = true,
          .far = true,
          .rerun = with_other_widths},
    Fault{.id = "entries-otherwise",
          .summary = "entries of a list of numbers are other ones, or name none",
          .strikes = input,
          .severity = fine,
          .applies = list_of_numbers,
          .spoil = take_other_entries,
          .variants = other_entries,
          .words = other_entries_in_words,
          .far = true},
};

}  // namespace

std::span<const Fault> list_faults() {
  return table;
}

}  // namespace dodona::oracle
