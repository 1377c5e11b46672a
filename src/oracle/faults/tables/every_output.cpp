// One mistake in every output: a kernel that converts several tensors converts them all alike.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

constexpr std::array in_every_output{"nan-beyond", "nan-for-saturated",   "saturated-from-256", "truncated",    "rounded-away",
                                     "ties-away",  "nan-for-zero-groups", "zero-without-sign",  "through-bf16", "rounded-twice"};

/// `nan-beyond=464`: the fault, and what it has in the place of the site's value.
std::string kind_of(const Placed& placed) {
  return std::string(placed.fault->id) + (placed.site.taken ? "=" + to_string(*placed.site.taken) : "");
}
std::vector<Placed> outputs_struck(Site s, std::string_view kind) {
  std::vector<Placed> found;
  for (const auto part : {output_faults(), number_faults()})
    for (const Fault& fault : part)
      if (fault.strikes == output && kind.substr(0, kind.find('=')) == fault.id)
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

// ---- rows of nothing

/// Rows of the output that golden mode has as nothing but zeros, or of minus infinities alone.
std::vector<bool> rows_of_nothing(const Tensor& tensor, bool by_element) {
  const Rows rows(tensor);
  const std::int64_t width = by_element ? 1 : rows.width;
  std::vector<bool> nothing(static_cast<std::size_t>(width > 0 ? tensor.elements() / width : 0), true);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const double x = quant::get(tensor, i);
    if (!(by_element ? std::isinf(x) && x < 0 : x == 0)) nothing[static_cast<std::size_t>(i / width)] = false;
  }
  return nothing;
}
bool is_logarithm(Site s, const std::string& name) {
  const Role role = s.call.op.schema().find_tensor(name)->role;
  return role == Role::lse_base_2 || role == Role::lse_base_e;
}
bool some_rows_of_nothing(Site s) {
  const Category category = s.call.op.info().category;
  if (category != Category::attention && category != Category::moe) return false;
  for (const auto& [name, tensor] : s.call.golden.outputs) {
    if (!is_float(tensor.dtype()) || bits(tensor.dtype()) < 16 || tensor.rank() < 2 || is_logarithm(s, name)) continue;
    const std::vector<bool> nothing = rows_of_nothing(tensor, false);
    const auto count = std::count(nothing.begin(), nothing.end(), true);
    if (count > 0 && 2 * count <= static_cast<std::ptrdiff_t>(nothing.size())) return true;
  }
  return false;
}
/// What was in memory before: anything.
GoldenRun leave_rows_of_nothing(Site s) {
  GoldenRun run = s.call.golden;
  for (auto& [name, tensor] : run.outputs) {
    if (!is_float(tensor.dtype()) || bits(tensor.dtype()) < 16 || tensor.rank() < 2) continue;
    const std::vector<bool> nothing = rows_of_nothing(tensor, is_logarithm(s, name));
    const std::int64_t width = nothing.empty() ? 1 : tensor.elements() / static_cast<std::int64_t>(nothing.size());
    tensor = tensor.clone();
    std::vector<std::uint8_t>& open = run.reference.output(name, tensor.elements()).unspecified;
    open.resize(static_cast<std::size_t>(tensor.elements()));
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      if (nothing[static_cast<std::size_t>(i / width)]) {
        quant::set(tensor, i, std::numeric_limits<double>::quiet_NaN());
        open[static_cast<std::size_t>(i)] = 1;
      }
  }
  return run;
}
std::string nothing_in_words(Site s) {
  return s.call.op.info().category == Category::attention
             ? "the outputs of queries without keys are not written: they have to be zeros, and their log-sum-exps -inf"
             : "rows without anything that is added up are not written: they have to be zeros";
}

constexpr std::array table{
    Fault{.id = "rows-of-nothing-unwritten",
          .summary = "rows for which there is nothing to compute (no keys, no experts) are not written, though they have to be zeros",
          .strikes = call,
          .severity = gross,
          .applies = some_rows_of_nothing,
          .words = nothing_in_words,
          .reads_beyond = true,
          .rerun = leave_rows_of_nothing},
    Fault{.id = "every-output",
          .summary = "all outputs are written so",
          .strikes = call,
          .severity = fine,
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
