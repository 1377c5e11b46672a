// One mistake in every output: a kernel that converts several tensors converts them all alike.
#include <algorithm>
#include <array>
#include <string>

#include "oracle/faults/fault_tools.h"

namespace dodona::oracle {
namespace {

using Site = const FaultSite&;
using Values = std::vector<AttrValue>;

constexpr std::array in_every_output{"nan-beyond", "nan-for-saturated",   "saturated-from-256", "truncated",   "rounded-away",
                                     "ties-away",  "nan-for-zero-groups", "zero-without-sign",  "through-bf16"};

/// `nan-beyond=464`: the fault, and what it has in the place of the site's value.
std::string kind_of(const Placed& placed) {
  return std::string(placed.fault->id) + (placed.site.taken ? "=" + to_string(*placed.site.taken) : "");
}
std::vector<Placed> outputs_struck(Site s, std::string_view kind) {
  std::vector<Placed> found;
  for (const auto part : {output_faults(), number_faults()})
    for (const Fault& fault : part)
      if (fault.strikes == Strikes::output && kind.substr(0, kind.find('=')) == fault.id)
        for (Placed& placed : placements(fault, s.call))
          if (kind_of(placed) == kind) found.push_back(std::move(placed));
  return found;
}
Values kinds(Site s) {
  if (s.call.golden.outputs.size() < 2) return {};
  Values found;
  for (const auto part : {output_faults(), number_faults()})
    for (const Fault& fault : part) {
      if (std::find(in_every_output.begin(), in_every_output.end(), fault.id) == in_every_output.end()) continue;
      std::vector<std::string> seen;
      for (const Placed& placed : placements(fault, s.call)) seen.push_back(kind_of(placed));
      std::vector<std::string> told;
      for (const std::string& kind : seen)
        if (std::count(seen.begin(), seen.end(), kind) >= 2 && std::find(told.begin(), told.end(), kind) == told.end()) {
          told.push_back(kind);
          found.emplace_back(kind);
        }
    }
  return found;
}
GoldenRun strike_all(Site s) {
  GoldenRun run = s.call.golden;
  for (const Placed& placed : outputs_struck(s, std::get<std::string>(*s.taken))) {
    const GoldenRun one = run_with(placed, s.call.inputs);
    for (auto& [name, tensor] : run.outputs)
      if (name == placed.site.name) tensor = *find(one.outputs, name);
    if (const ReferenceOutput* const record = one.reference.find(placed.site.name))
      run.reference.output(placed.site.name, static_cast<std::int64_t>(record->exact.size())) = *record;
  }
  return run;
}
std::string in_words(Site s) {
  const std::vector<Placed> all = outputs_struck(s, std::get<std::string>(*s.taken));
  std::string names;
  for (const Placed& placed : all) names += (names.empty() ? "" : ", ") + placed.site.name;
  const std::string one = all.front().text(), prefix = all.front().site.name + ": ";
  return names + ": " + (one.starts_with(prefix) ? one.substr(prefix.size()) : one);
}
bool several(Site s) {
  return s.call.golden.outputs.size() >= 2;
}

constexpr std::array table{
    Fault{.id = "every-output",
          .summary = "all outputs are written so",
          .strikes = Strikes::call,
          .severity = Severity::fine,
          .applies = several,
          .variants = kinds,
          .words = in_words,
          .rerun = strike_all},
};

}  // namespace

std::span<const Fault> every_output_faults() {
  return table;
}

}  // namespace dodona::oracle
