// Faults composed of which entries of a list of numbers (slots, pages, rows, positions, experts), and what stands in their place: another
// entry's number, a number beside it, none. Tried where no mistake that has a name of its own reproduces the outputs.
#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/storage.h"
#include "oracle/faults/composed.h"
#include "oracle/faults/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;
using Site = const FaultSite&;
using To = const Tensor&;
using Values = std::vector<AttrValue>;

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
/// `mod 32`: the entry i mod 32; `inverse 0`; `plus 1`: its number and 1; `pages 16`: pages of 16 where the bound says how many they have.
Values other_entries(Site s) {
  Values values;
  const auto add = [&](const char* how, std::int64_t n) { values.emplace_back(how + std::string(" ") + std::to_string(n)); };
  const std::int64_t width = width_of(s);
  if (s.tensor.rank() == 1 && is_permutation(s.tensor)) add("inverse", 0);
  for (const std::int64_t step : {1, -1, 2, -2, 3, -3, 4, -4, 8, -8, 16, -16})
    if (std::abs(step) < width) add("shift", step);
  for (const std::int64_t p : {2, 4, 8, 16, 32})
    if (p < width) add("first", p);
  for (const std::int64_t p : {8, 16, 32, 64, 128, 256})
    if (p < width) add("mod", p), add("end", p), add("from", p);
  for (const std::int64_t n : {1, -1}) add("plus", n);
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
    if (how == "end") taken = at < n ? own : -1;
    if (how == "from") taken = at < n ? -1 : own;
    if (how == "plus") taken = own + (own >= 0 ? n : 0);
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
  if (how == "end") return name + "entries from " + n + " on are left out: the first " + n + " of a row alone count";
  if (how == "from") return name + "the first " + n + " entries of a row are left out";
  if (how == "plus") return name + (n == "1" ? "each number is one too large" : "each number is one too small");
  return name + "slots are taken apart into pages of " + n + ", where a page has " + std::to_string(slots_of_page(s));
}

constexpr std::array table{
    Fault{.id = "entries-otherwise",
          .summary = "entries of a list of numbers are other ones, or name none",
          .strikes = Strikes::input,
          .severity = Severity::fine,
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
