// Faults of limits: lengths one too large, filters that keep everything.
#include <array>
#include <string>

#include "oracle/faults/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

// ---- lengths

bool lengths_of_requests(Site s) {
  const Category category = s.call.op.info().category;
  return s.spec->direction == Direction::in && is_whole(s.tensor.dtype()) && s.tensor.rank() == 1 && s.tensor.size(0) >= 2 &&
         (s.spec->role == Role::lengths || s.spec->role == Role::positions) &&
         (category == Category::attention || category == Category::nsa);
}
/// Of every request, where there is room: the longest too.
void one_more(Site, To t) {
  each(t, [](double x) { return x + 1; });
}

// ---- filters

bool number_of_kept(Site s) {
  return s.call.op.info().category == Category::sampling && std::holds_alternative<std::int64_t>(s.value) &&
         s.name.find("top_k") != std::string::npos;
}
Values all_of_a_row(Site s) {
  for (const TensorSpec& spec : s.call.op.schema().tensors)
    if (const Tensor* const tensor = s.call.inputs.find(spec.name);
        (spec.role == Role::probs || spec.role == Role::logits) && tensor != nullptr && tensor->defined() && tensor->rank() >= 1)
      return {tensor->size(-1)};
  return {};
}

constexpr Strikes in = Strikes::input, attribute = Strikes::attribute;
constexpr Severity fine = Severity::fine;

constexpr std::array table{
    Fault{.id = "every-length-one-more",
          .summary = "every length is one too large: a mask off by one, each query sees one key more",
          .strikes = in,
          .severity = fine,
          .applies = lengths_of_requests,
          .spoil = one_more},
    Fault{.id = "filter-not-applied",
          .summary = "everything is kept, nothing is cut",
          .strikes = attribute,
          .severity = fine,
          .applies = number_of_kept,
          .variants = all_of_a_row},
};

}  // namespace

std::span<const Fault> limit_faults() {
  return table;
}

}  // namespace dodona::oracle
