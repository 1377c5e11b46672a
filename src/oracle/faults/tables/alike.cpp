// Faults of several inputs at once, which none of them shows by itself: the same mistake made with each, as where one piece of code reads
// keys and values, or a factor and what is added; and optional inputs that are none of them handed on.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "oracle/faults/tables/composed.h"
#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

// ---- one mistake, made with several

/// What could be made of each input alone, by what it is called but for the input: `read-as-other-type=bf16`. `beyond`: what reads beyond
/// an end, of which not all is known.
std::map<std::string, std::vector<Placed>> placed_by_name(const FaultCase& call, bool beyond) {
  std::map<std::string, std::vector<Placed>> found;
  for (const auto part : {input_faults(), address_faults(), row_faults(), number_faults(), stride_faults()})
    for (const Fault& fault : part) {
      if (fault.strikes != Strikes::input || fault.reads_beyond != beyond) continue;
      for (Placed& placed : placements(fault, call)) {
        if (placed.site.spec->direction != Direction::in) continue;
        found[std::string(fault.id) + (placed.site.taken ? "=" + to_string(*placed.site.taken) : "")].push_back(std::move(placed));
      }
    }
  return found;
}
/// Inputs that one piece of code reads: of one type, and as many dimensions. Offsets and ids have a meaning of their own each.
bool alike(const FaultSite& a, const FaultSite& b) {
  return a.tensor.dtype() == b.tensor.dtype() && a.tensor.rank() == b.tensor.rank() && is_real(a.tensor.dtype());
}
/// `read-as-other-type=bf16 gemma,beta`.
template <bool beyond>
Values several_alike(Site s) {
  Values values;
  for (const auto& [name, all] : placed_by_name(s.call, beyond)) {
    constexpr std::size_t most = 3;
    if (all.size() < 2 || name.find(' ') != std::string::npos) continue;
    for (std::size_t a = 0; a < all.size() && all.size() <= most; ++a)
      for (std::size_t b = a + 1; b < all.size(); ++b)
        if (alike(all[a].site, all[b].site)) values.emplace_back(name + " " + all[a].site.name + "," + all[b].site.name);
  }
  return values;
}
template <bool beyond>
std::vector<Placed> struck_alike(Site s) {
  const std::string name = first_of(word(s)), both = rest_of(word(s)), first = both.substr(0, both.find(',')),
                    second = both.substr(both.find(',') + 1);
  std::vector<Placed> found;
  auto all = placed_by_name(s.call, beyond);
  for (Placed& placed : all[name])
    if (placed.site.name == first || placed.site.name == second) found.push_back(std::move(placed));
  return found;
}
template <bool beyond>
void strike_alike(Site s, Arguments& inputs) {
  for (const Placed& placed : struck_alike<beyond>(s)) inputs.set(placed.site.name, *inputs_with(placed).find(placed.site.name));
}
template <bool beyond>
std::string alike_in_words(Site s) {
  const std::vector<Placed> all = struck_alike<beyond>(s);
  const std::string one = all.front().text();
  std::string names;
  for (const Placed& placed : all) names += (names.empty() ? "" : ", ") + placed.site.name;
  const std::size_t colon = one.find(": ");
  return names + (colon == std::string::npos ? ": " + one : one.substr(colon));
}

// ---- not handed on

std::vector<std::string> optional_inputs(const FaultCase& call) {
  std::vector<std::string> names;
  for (const TensorSpec& spec : call.op.schema().tensors)
    if (const Tensor* const tensor = call.inputs.find(spec.name);
        spec.optional && spec.direction == Direction::in && tensor != nullptr && tensor->defined())
      names.push_back(spec.name);
  return names;
}
/// One alone, two, and all.
Values not_handed_on(Site s) {
  const std::vector<std::string> names = optional_inputs(s.call);
  Values values;
  std::string all;
  for (std::size_t i = 0; i < names.size(); ++i) {
    values.emplace_back(names[i]);
    all += (all.empty() ? "" : ",") + names[i];
    for (std::size_t j = i + 1; j < names.size(); ++j) values.emplace_back(names[i] + "," + names[j]);
  }
  if (names.size() > 2) values.emplace_back(all);
  return values;
}
void leave_out(Site s, Arguments& inputs) {
  const std::string wanted = "," + word(s) + ",";
  std::erase_if(inputs.tensors, [&](const auto& tensor) { return wanted.find("," + tensor.first + ",") != std::string::npos; });
}
std::string not_handed_on_in_words(Site s) {
  return word(s) + ": not handed on: the call is that without " + (word(s).find(',') == std::string::npos ? "it" : "them");
}

constexpr std::array table{
    Fault{.id = "optional-inputs-left-out",
          .summary = "optional inputs are not handed on",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = not_handed_on,
          .recall = leave_out,
          .words = not_handed_on_in_words,
          .far = true},
    Fault{.id = "several-inputs-alike",
          .summary = "two inputs are struck by the same mistake",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = several_alike<false>,
          .recall = strike_alike<false>,
          .words = alike_in_words<false>,
          .far = true},
    Fault{.id = "several-inputs-alike-beyond",
          .summary = "two inputs are struck by the same mistake, and read beyond their ends",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = several_alike<true>,
          .recall = strike_alike<true>,
          .words = alike_in_words<true>,
          .reads_beyond = true,
          .far = true},
};

}  // namespace

std::span<const Fault> alike_faults() {
  return table;
}

}  // namespace dodona::oracle
