// Faults composed of which part of a dimension, and how often what lies there counts: not, as one, twice, as its neighbour; and of pages
// and slots whose extent is taken for another. Like those of another index they are tried where no mistake that has a name of its own
// reproduces the outputs.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "core/storage.h"
#include "oracle/cases/window.h"
#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

// ---- a part of a dimension

/// `1 last 2 twice`: along dimension 1 the last two count twice. Parts: `first n`, `last n`, `behind n`, what lies behind the first n.
struct PartOfDimension {
  int dim = 0;
  std::string which, how;
  std::int64_t n = 1, extent = 1;

  static PartOfDimension of(const std::string& text, const Dims& shape) {
    const int dim = std::stoi(text);
    const std::string part = rest_of(text), count = rest_of(part);
    return {dim, first_of(part), rest_of(count), std::stoll(count), shape[dim]};
  }
  bool holds(std::int64_t i) const { return which == "first" ? i < n : which == "last" ? i >= extent - n : i >= n; }
  std::string words(const std::string& symbol) const {
    const std::string few = n == 1 ? "" : " " + std::to_string(n);
    return "along " + symbol + " the " +
           (which == "first"  ? "first" + few
            : which == "last" ? "last" + few
                              : "ones behind the first" + few);
  }
};
struct WayToCount {
  const char *how, *words;
};
constexpr std::array ways_to_count{
    WayToCount{"twice", " twice: what belongs to it is added once more"}, WayToCount{"one", " as 1: it is not applied there"},
    WayToCount{"squared", " squared: it is applied once more"}, WayToCount{"before", " as the one before it, which was not moved on"},
    WayToCount{"next", " as the one behind it"}};

bool is_scale(Site s) {
  return s.spec->role == Role::scale || s.spec->storage.scales.has_value();
}
bool has_parts(Site s) {
  // Numbers of few bits have no double.
  const bool doubles = bits(s.tensor.dtype()) >= 16 || s.tensor.dtype() == DType::f8_e8m0;
  return s.spec->direction == Direction::in && s.tensor.rank() >= 1 && s.tensor.elements() <= most_elements && is_real(s.tensor.dtype()) &&
         doubles && !s.spec->storage.code && (is_scale(s) || s.spec->role == Role::values || s.spec->role == Role::weight);
}
/// A few: of long dimensions tiles.
std::vector<std::string> parts_of(std::int64_t extent, bool scale) {
  std::vector<std::string> parts;
  std::set<std::string> seen;
  const auto add = [&](const char* which, std::int64_t n) {
    const std::string text = which + std::string(" ") + std::to_string(n);
    if (n >= 1 && n < extent && seen.insert(text).second) parts.push_back(text);
  };
  constexpr std::int64_t many = 64;
  if (scale || extent < many)
    for (const char* const which : {"last", "first", "behind"}) add(which, 1);
  if (extent >= many)
    for (const std::int64_t tile : {32, 64, 128, 256})
      for (const char* const which : {"last", "first", "behind"}) add(which, tile);
  if (extent % 2 == 0) add("behind", extent / 2), add("first", extent / 2);
  return parts;
}
Values parts_otherwise(Site s) {
  Values values;
  for (int d = 0; d < s.tensor.rank(); ++d)
    for (const std::string& part : parts_of(s.tensor.size(d), is_scale(s)))
      for (const WayToCount& way : ways_to_count)
        if (is_scale(s) || way.how == std::string("twice")) values.emplace_back(std::to_string(d) + " " + part + " " + way.how);
  return values;
}
void count_part_otherwise(Site s, To t) {
  const PartOfDimension part = PartOfDimension::of(word(s), s.tensor.shape());
  std::int64_t below = 1;
  for (int d = part.dim + 1; d < s.tensor.rank(); ++d) below *= s.tensor.size(d);
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    const std::int64_t index = i / below % part.extent;
    if (!part.holds(index)) continue;
    const std::int64_t step = part.how == "before" ? -1 : part.how == "next" ? 1 : 0;
    if (step != 0) {
      if (index + step >= 0 && index + step < part.extent) quant::set_bits(t, i, quant::get_bits(s.tensor, i + step * below));
      continue;
    }
    const double x = quant::get(s.tensor, i);
    put(t, i, part.how == "twice" ? 2 * x : part.how == "one" ? 1.0 : x * x);
  }
}
std::string words_of_way(const std::string& how) {
  for (const WayToCount& way : ways_to_count)
    if (way.how == how) return way.words;
  return {};
}
std::string part_in_words(Site s) {
  const PartOfDimension part = PartOfDimension::of(word(s), s.tensor.shape());
  return s.name + ": " + part.words(symbol_of(s, part.dim)) + (part.n == 1 && part.which != "behind" ? " counts" : " count") +
         words_of_way(part.how);
}
std::optional<ChangedIndices> changed_part(Site s) {
  const PartOfDimension part = PartOfDimension::of(word(s), s.tensor.shape());
  ChangedIndices found{symbol_of(s, part.dim), std::vector<bool>(static_cast<std::size_t>(part.extent))};
  for (std::int64_t i = 0; i < part.extent; ++i) found.changed[static_cast<std::size_t>(i)] = part.holds(i);
  return found;
}

// ---- of all scales that have the dimension

const Fault& one_part() {
  static const Fault& found =
      *std::find_if(part_faults().begin(), part_faults().end(), [](const Fault& fault) { return fault.id == "part-counted-otherwise"; });
  return found;
}
/// `K/128 last 1 one`: what each scale's own variant is called but for the dimension, which is known by its symbol.
std::string common_name(Site scale, const std::string& own) {
  return symbol_of(scale, std::stoi(own)) + " " + rest_of(own);
}
/// What two operands or more have in common.
Values parts_of_every_scale(Site s) {
  std::map<std::string, std::set<std::string>> names;
  std::vector<std::string> order;
  for (const FaultSite& scale : input_sites(s.call)) {
    if (!is_scale(scale) || !has_parts(scale)) continue;
    for (const AttrValue& own : parts_otherwise(scale)) {
      const std::string name = common_name(scale, std::get<std::string>(own));
      if (names[name].empty()) order.push_back(name);
      names[name].insert(scale.name);
    }
  }
  Values values;
  for (const std::string& name : order)
    if (names[name].size() >= 2) values.emplace_back(name);
  return values;
}
std::vector<Placed> struck_together(Site s) {
  std::vector<Placed> found;
  for (FaultSite& scale : input_sites(s.call)) {
    if (!is_scale(scale) || !has_parts(scale)) continue;
    for (int d = 0; d < scale.tensor.rank() && !scale.taken; ++d)
      if (const std::string own = std::to_string(d) + " " + rest_of(word(s)); common_name(scale, own) == word(s)) scale.taken = own;
    if (scale.taken) found.push_back({&one_part(), scale});
  }
  return found;
}
void count_every_part_otherwise(Site s, Arguments& inputs) {
  for (const Placed& placed : struck_together(s)) inputs.set(placed.site.name, *inputs_with(placed).find(placed.site.name));
}
std::string every_part_in_words(Site s) {
  std::string names;
  const std::vector<Placed> all = struck_together(s);
  for (const Placed& placed : all) names += (names.empty() ? "" : ", ") + placed.site.name;
  const std::string one = part_in_words(all.front().site);
  return names + one.substr(all.front().site.name.size());
}

// ---- one of all

bool several_scales(Site s) {
  return s.spec->direction == Direction::in && is_scale(s) && is_real(s.tensor.dtype()) && bits(s.tensor.dtype()) >= 16 &&
         s.tensor.elements() >= 2 && s.tensor.elements() <= most_elements;
}
Values extremes(Site) {
  return {std::string("largest"), std::string("least")};
}
void extreme_for_all(Site s, To t) {
  const bool largest = word(s) == "largest";
  double found = quant::get(s.tensor, 0);
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    const double x = quant::get(s.tensor, i);
    found = largest ? std::max(found, x) : std::min(found, x);
  }
  each(t, [&](double) { return found; });
}
std::string extreme_in_words(Site s) {
  return s.name + ": the " + word(s) + " one of all is used for each: one scale, where each has its own";
}

// ---- pages, and slots of tokens

/// Numbers of slots whose end is so many pages times their tokens: `pages*64`.
std::int64_t tokens_of_pages(Site s) {
  const std::size_t star = s.spec->bound.find('*');
  if (s.spec->direction != Direction::in || !is_whole(s.tensor.dtype()) || star == std::string::npos) return 0;
  const std::string tokens = s.spec->bound.substr(star + 1);
  return !tokens.empty() && tokens.find_first_not_of("0123456789") == std::string::npos ? std::stoll(tokens) : 0;
}
bool slots_of_pages(Site s) {
  return tokens_of_pages(s) >= 2;
}
void slots_for_pages(Site s, To t) {
  const auto tokens = static_cast<double>(tokens_of_pages(s));
  each(t, [&](double slot) { return slot * tokens; });
}
std::string slot_in_words(Site s) {
  return s.name + ": a slot's number is taken for a page's: slot s lies where page s begins, as if pages held one token, not " +
         std::to_string(tokens_of_pages(s));
}

bool pages_in_use(Site s) {
  return s.spec->direction == Direction::in && s.spec->role == Role::page_table && s.tensor.rank() == 2 && s.tensor.size(1) >= 2;
}
/// So many pages in one.
Values larger_pages(Site) {
  return {std::int64_t{2}, std::int64_t{4}};
}
/// What lies behind the last page is taken from the first on: nobody knows.
void as_larger_pages(Site s, To t) {
  const std::int64_t in_one = std::get<std::int64_t>(*s.taken), width = s.tensor.size(1);
  std::int64_t pages = 0;
  for (const TensorSpec& spec : s.call.op.schema().tensors)
    if (const Tensor* const tensor = s.call.inputs.find(spec.name); tensor != nullptr && tensor->defined() && tensor->rank() >= 3 &&
                                                                    !dims_of(spec.shape, tensor->rank()).empty() &&
                                                                    dims_of(spec.shape, tensor->rank()).front() == s.spec->bound)
      pages = tensor->size(0);
  for (std::int64_t i = 0; i < t.elements() && pages > 0; ++i) {
    const std::int64_t at = i % width, page = static_cast<std::int64_t>(quant::get(s.tensor, i - at + at / in_one));
    quant::set(t, i, static_cast<double>((page * in_one + at % in_one) % pages));
  }
}
std::string larger_pages_in_words(Site s) {
  const std::string in_one = to_string(*s.taken);
  return s.name + ": a page is taken to hold " + in_one + " times as many tokens as it does: page p begins where page " + in_one +
         " p does, and the table is asked for every " + in_one + " pages once";
}

/// Numbers of a token's few slots, however they lie.
std::int64_t slots_of_tokens(Site s) {
  const bool numbers = s.spec->direction == Direction::in && is_real(s.tensor.dtype()) && s.tensor.rank() >= 1 && s.tensor.rank() <= 2;
  const auto dims = numbers ? dims_of(s.spec->shape, s.tensor.rank()) : std::vector<std::string>{};
  if (dims.empty()) return 0;
  const std::string tokens = dims.front().substr(0, dims.front().find('*'));
  constexpr std::int64_t most = 32;
  for (const auto& [name, tensor] : s.call.golden.outputs) {
    const auto own = dims_of(s.call.op.schema().find_tensor(name)->shape, tensor.rank());
    if (own.empty() || own.front() != tokens || tensor.size(0) < 2 || s.tensor.elements() % tensor.size(0) != 0) continue;
    const std::int64_t slots = s.tensor.elements() / tensor.size(0);
    return slots >= 2 && slots <= most ? slots : 0;
  }
  return 0;
}
bool has_slots(Site s) {
  return slots_of_tokens(s) > 0;
}
void slots_overlap(Site s, To t) {
  const std::int64_t slots = slots_of_tokens(s);
  gather(s.tensor, t, [&](std::int64_t i) { return i / slots + i % slots; });
}
std::string overlap_in_words(Site s) {
  return s.name + ": a token's " + std::to_string(slots_of_tokens(s)) +
         " slots are looked for at its number, at a stride of one: tokens' slots overlap";
}

constexpr std::array table{
    Fault{.id = "part-counted-otherwise",
          .summary = "a part of a dimension counts twice, as one, or as its neighbour",
          .strikes = input,
          .severity = fine,
          .applies = has_parts,
          .spoil = count_part_otherwise,
          .variants = parts_otherwise,
          .words = part_in_words,
          .far = true,
          .changes = changed_part},
    Fault{.id = "part-of-every-scale-counted-otherwise",
          .summary = "a part of a dimension of all scales counts twice, as one, or as its neighbour",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = parts_of_every_scale,
          .recall = count_every_part_otherwise,
          .words = every_part_in_words,
          .far = true},
    Fault{.id = "extreme-for-all",
          .summary = "the largest scale of all, or the least, is used for each",
          .strikes = input,
          .severity = fine,
          .applies = several_scales,
          .spoil = extreme_for_all,
          .variants = extremes,
          .words = extreme_in_words,
          .far = true},
    Fault{.id = "slots-for-pages",
          .summary = "a slot's number is taken for that of a page",
          .strikes = input,
          .severity = fine,
          .applies = slots_of_pages,
          .spoil = slots_for_pages,
          .words = slot_in_words,
          .far = true},
    Fault{.id = "pages-taken-for-larger",
          .summary = "pages are taken to hold several times as many tokens as they do",
          .strikes = input,
          .severity = fine,
          .applies = pages_in_use,
          .spoil = as_larger_pages,
          .variants = larger_pages,
          .words = larger_pages_in_words,
          .far = true},
    Fault{.id = "slots-of-tokens-overlap",
          .summary = "slots of a token are looked for at the token's number",
          .strikes = input,
          .severity = fine,
          .applies = has_slots,
          .spoil = slots_overlap,
          .words = overlap_in_words,
          .far = true},
};

}  // namespace

std::span<const Fault> part_faults() {
  return table;
}

}  // namespace dodona::oracle
