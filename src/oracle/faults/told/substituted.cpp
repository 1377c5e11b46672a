#include "oracle/faults/told/substituted.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/storage.h"
#include "dodona/error.h"
#include "oracle/faults/tables/fault_tools.h"
#include "oracle/faults/told/units.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

/// One operand's dimension.
struct Member {
  const FaultSite* site;
  int dim;
};

/// Runs that differ in one number.
struct Family {
  std::vector<Member> members;
  enum class Kind { index, further, number, more, element } kind;
  std::string symbol;                 ///< of the dimension
  std::vector<std::int64_t> numbers;  ///< of each run
};

Tensor copy_of(const Tensor& tensor) {
  if (tensor.contiguous()) return tensor.clone();
  Tensor result = make_strided(tensor.dtype(), tensor.shape(), tensor.strides());
  copy(tensor, result);
  return result;
}

/// The operand with each index along the dimension looked for at from(index).
template <class From>
Tensor read_at(const FaultCase& call, const Member& member, const From& from) {
  const FaultSite& site = *member.site;
  const Tensor changed = copy_of(*call.inputs.find(site.name)), codes = as_codes(changed, site.spec->storage);
  const std::int64_t extent = site.tensor.size(member.dim);
  std::int64_t below = 1;
  for (int d = member.dim + 1; d < site.tensor.rank(); ++d) below *= site.tensor.size(d);
  for (std::int64_t i = 0; i < codes.elements(); ++i) {
    const std::int64_t index = i / below % extent, source = from(index);
    if (source != index) quant::set_bits(codes, i, quant::get_bits(site.tensor, i + (source - index) * below));
  }
  return changed;
}

Arguments inputs_of(const FaultCase& call, const Family& family, std::int64_t number) {
  Arguments inputs = call.inputs;
  for (const Member& member : family.members) {
    const FaultSite& site = *member.site;
    if (family.symbol.empty()) {
      const Tensor changed = copy_of(*call.inputs.find(site.name)), codes = as_codes(changed, site.spec->storage);
      for (std::int64_t i = 0; i < codes.elements(); ++i)
        if (family.kind == Family::Kind::element)
          quant::set_bits(codes, i, quant::get_bits(site.tensor, number));
        else
          quant::set(codes, i, static_cast<double>(number) + (family.kind == Family::Kind::more ? quant::get(codes, i) : 0));
      inputs.set(site.name, changed);
      continue;
    }
    const std::int64_t extent = site.tensor.size(member.dim);
    inputs.set(site.name, read_at(call, member, [&](std::int64_t index) {
                 return family.kind == Family::Kind::further ? ((index + number) % extent + extent) % extent : number;
               }));
  }
  return inputs;
}

// ---- what can be struck

bool holds_numbers(const FaultSite& site) {
  const Role role = site.spec->role;
  return is_whole(site.tensor.dtype()) && site.tensor.elements() <= most_elements &&
         (role == Role::lengths || role == Role::positions || role == Role::expert_ids || role == Role::page_table ||
          role == Role::indices);
}

/// Dimensions whose index says to whom a number belongs. The last one of plain numbers is what rows are made of.
void add_members(const FaultSite& site, std::map<std::string, std::vector<Member>>& by_symbol) {
  const Role role = site.spec->role;
  if (role == Role::indptr || site.tensor.elements() > most_elements) return;
  const bool plain = role == Role::values || role == Role::weight || role == Role::cos_sin || role == Role::logits;
  const auto dims = dims_of(site.spec->shape, site.tensor.rank());
  if (static_cast<int>(dims.size()) != site.tensor.rank()) return;
  for (int d = 0; d < site.tensor.rank(); ++d)
    if (site.tensor.size(d) >= 2 && !(plain && site.tensor.rank() >= 2 && d == site.tensor.rank() - 1))
      by_symbol[dims[static_cast<std::size_t>(d)]].push_back({&site, d});
}

/// Of operands that share a dimension: each alone, two of them, all.
std::vector<std::vector<Member>> choices_of(const std::vector<Member>& members) {
  std::vector<std::vector<Member>> found;
  for (const Member& member : members) found.push_back({member});
  constexpr std::size_t few = 5;
  if (members.size() > 2 && members.size() <= few)
    for (std::size_t a = 0; a < members.size(); ++a)
      for (std::size_t b = a + 1; b < members.size(); ++b) found.push_back({members[a], members[b]});
  if (members.size() >= 2) found.push_back(members);
  return found;
}

std::vector<Family> families_of(const std::vector<FaultSite>& sites) {
  constexpr std::int64_t most_indices = 32, most_numbers = 96;
  std::vector<Family> found;
  std::map<std::string, std::vector<Member>> by_symbol;
  for (const FaultSite& site : sites) add_members(site, by_symbol);
  for (const auto& [symbol, members] : by_symbol)
    for (const std::vector<Member>& choice : choices_of(members)) {
      std::int64_t extent = choice.front().site->tensor.size(choice.front().dim);
      for (const Member& member : choice) extent = std::min(extent, member.site->tensor.size(member.dim));
      Family all_at{choice, Family::Kind::index, symbol, {}}, further{choice, Family::Kind::further, symbol, {}};
      for (std::int64_t i = 0; i < extent && extent <= most_indices; ++i) all_at.numbers.push_back(i);
      for (std::int64_t by = 1; by < extent && by <= 512; by *= 2) further.numbers.insert(further.numbers.end(), {by, -by});
      if (!all_at.numbers.empty()) found.push_back(std::move(all_at));
      found.push_back(std::move(further));
    }
  for (const FaultSite& site : sites) {
    if (!holds_numbers(site)) continue;
    std::set<std::int64_t> numbers;
    for (std::int64_t i = 0; i < site.tensor.elements() && std::ssize(numbers) < most_numbers / 2; ++i)
      for (const int by : {-1, 0, 1}) numbers.insert(static_cast<std::int64_t>(quant::get(site.tensor, i)) + by);
    for (std::int64_t n = 0; std::ssize(numbers) < most_numbers && n < most_numbers; ++n) numbers.insert(n);
    std::erase_if(numbers, [](std::int64_t n) { return n < 0; });
    found.push_back({{{&site, 0}}, Family::Kind::number, "", {numbers.begin(), numbers.end()}});
    Family more{{{&site, 0}}, Family::Kind::more, "", {}};
    for (std::int64_t by = 1; by <= 128; by < 8 ? ++by : by *= 2) more.numbers.insert(more.numbers.end(), {by, -by});
    found.push_back(std::move(more));
  }
  for (const FaultSite& site : sites) {
    if (site.tensor.rank() < 2 || site.tensor.elements() > most_numbers || !is_real(site.tensor.dtype())) continue;
    Family family{{{&site, 0}}, Family::Kind::element, "", {}};
    for (std::int64_t i = 0; i < site.tensor.elements(); ++i) family.numbers.push_back(i);
    found.push_back(std::move(family));
  }
  return found;
}

// ---- what the runs give

struct Failing {
  const OutputVerdict* output;
  LogicalView view;
  std::vector<Bits> matches;
  std::vector<std::int64_t> elements;  ///< that some run gives
};

bool any(const Bits& bits) {
  return std::any_of(bits.begin(), bits.end(), [](std::uint64_t word) { return word != 0; });
}
/// Leaves those that no run gives out where they are nothing: zeros or NaN of a part that such a call does not judge. Whether enough is
/// left.
bool leave_out_nothing(Failing& failing) {
  const auto& elements = failing.output->detail->failing;
  std::vector<Bits> kept;
  failing.elements.clear();
  for (std::size_t e = 0; e < elements.size(); ++e) {
    const double x = quant::get(failing.output->detail->actual, elements[e]);
    if (!any(failing.matches[e])) {
      if (x != 0 && !std::isnan(x)) return false;
      continue;
    }
    kept.push_back(std::move(failing.matches[e]));
    failing.elements.push_back(elements[e]);
  }
  failing.matches = std::move(kept);
  return 2 * failing.elements.size() > elements.size();
}

/// Outputs whose failing elements say enough: several finite numbers that are not 0.
std::optional<std::vector<Failing>> failing_outputs(const FaultCase& call, const Verdict& verdict) {
  constexpr std::size_t most = std::size_t{1} << 17, enough = 8, values_enough = 4;
  std::vector<Failing> found;
  for (const OutputVerdict& output : verdict.outputs) {
    if (output.failing == 0) continue;
    if (output.detail == nullptr || output.detail->failing.size() > most || output.detail->failing.size() < enough) return std::nullopt;
    std::set<std::uint64_t> values;
    for (const std::int64_t i : output.detail->failing)
      if (const double x = quant::get(output.detail->actual, i); values.size() < values_enough && std::isfinite(x) && x != 0)
        values.insert(quant::get_bits(output.detail->actual, i));
    const TensorSpec& spec = *call.op.schema().find_tensor(output.name);
    if (values.size() < values_enough) return std::nullopt;
    LogicalView view = logical_view(call.op, spec, output.detail->golden.shape(), call.inputs);
    if (element_count(view.shape) != output.detail->golden.elements() || static_cast<int>(view.names.size()) != view.shape.rank())
      return std::nullopt;
    found.push_back({&output, std::move(view), {}, {}});
  }
  return found.empty() ? std::nullopt : std::optional(std::move(found));
}

/// Whether every element that fails has a run that gives it.
bool match(const FaultCase& call, const Family& family, const NamedTensors& actual, const JudgeOptions& options,
           std::vector<Failing>& outputs, const std::function<bool()>& time_is_up) {
  const std::size_t words = (family.numbers.size() + 63) / 64;
  for (Failing& failing : outputs) failing.matches.assign(failing.output->detail->failing.size(), Bits(words));
  for (std::size_t run = 0; run < family.numbers.size(); ++run) {
    if (time_is_up()) return false;
    try {
      const Arguments inputs = inputs_of(call, family, family.numbers[run]);
      const Verdict other = judge(call.op, inputs, run_golden(call.op, inputs, call.exec), actual, options);
      for (Failing& failing : outputs) {
        const auto same = std::find_if(other.outputs.begin(), other.outputs.end(),
                                       [&, &name = failing.output->name](const auto& o) { return o.name == name; });
        if (same == other.outputs.end() || same->detail == nullptr) return false;
        const auto& elements = failing.output->detail->failing;
        const std::set<std::int64_t> still(same->detail->failing.begin(), same->detail->failing.end());
        for (std::size_t e = 0; e < elements.size(); ++e)
          if (still.count(elements[e]) == 0 && !std::isnan(same->detail->share[static_cast<std::size_t>(elements[e])]))
            failing.matches[e][run / 64] |= std::uint64_t{1} << run % 64;
      }
    } catch (const Error&) {
      continue;  // a number that this call does not have
    }
  }
  return std::all_of(outputs.begin(), outputs.end(), leave_out_nothing);
}

/// What a reader calls it.
std::string dimension_in_words(const Op& op, const std::string& symbol) {
  if (symbol == "E") return "E (experts)";
  if (symbol == "G") return "G (groups)";
  if (symbol.starts_with("R") && op.info().category == Category::utility) return symbol + " (ranks)";
  if (op.info().category != Category::attention && op.info().category != Category::rope) return symbol;
  return symbol == "N" || symbol == "H" || symbol == "Nk" || symbol == "Nq" ? symbol + " (heads)" : symbol;
}

std::string words_of(const Op& op, const Family& family) {
  const std::string symbol = dimension_in_words(op, family.symbol);
  std::string names;
  for (const Member& member : family.members) names += (names.empty() ? "" : ", ") + member.site->name;
  switch (family.kind) {
    case Family::Kind::number: return names + ": other numbers than the given ones count: ";
    case Family::Kind::more: return names + ": numbers count as so many more than they are: ";
    case Family::Kind::element: return names + ": one number of it, counted through its memory, is used for all: ";
    case Family::Kind::further: return names + ": along " + symbol + " other indices are read, so many further than their own: ";
    case Family::Kind::index: break;
  }
  return names + ": along " + symbol + " another index is read than its own: ";
}

}  // namespace

std::optional<Substituted> substituted(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                       const JudgeOptions& options, const std::function<bool()>& time_is_up) {
  auto outputs = failing_outputs(call, verdict);
  if (!outputs) return std::nullopt;
  JudgeOptions detailed = options;
  detailed.details = true;
  const std::vector<FaultSite> sites = input_sites(call);
  for (const Family& family : families_of(sites)) {
    if (!match(call, family, actual, detailed, *outputs, time_is_up)) continue;
    Explanation found{"another-index-or-number", words_of(call.op, family)};
    std::string parts;
    bool by_rule = true;
    for (const Failing& failing : *outputs) {
      const auto assignment = assigned(failing.elements, failing.matches, std::ssize(family.numbers), failing.view);
      if (!assignment) break;
      const Told told = words_of(*assignment, family.numbers, failing.view);
      by_rule = by_rule && told.by_rule;
      parts += (parts.empty() ? "" : "; ") + (outputs->size() > 1 ? failing.output->name + ": " : "") + told.words;
      found.outputs.push_back(failing.output->name);
      found.failing += std::ssize(failing.output->detail->failing) - std::ssize(failing.elements);
    }
    if (found.outputs.size() != outputs->size()) continue;
    found.text += parts + "; where it fails: " + outputs->front().output->pattern;
    found.complete = found.failing == 0;
    if (!found.complete) {
      found.outputs.clear();
      found.part = "what fails and is neither 0 nor NaN (but for " + std::to_string(found.failing) + " elements)";
    }
    return Substituted{std::move(found), by_rule};
  }
  return std::nullopt;
}

}  // namespace dodona::oracle
