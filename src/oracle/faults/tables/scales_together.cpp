// Faults of the numbers that scale a call, several of them at once: not handed on, one in another's place, the other way round. One alone
// is fitted; of two neither is found by itself.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "oracle/faults/tables/composed.h"
#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

/// An attribute called a scale, or a tensor that holds one.
struct ScaleNumber {
  std::string name;
  double value = 1;
  bool attribute = false;
};
std::vector<ScaleNumber> scale_numbers(Site s) {
  std::vector<ScaleNumber> found;
  for (const AttrSpec& spec : s.call.op.schema().attrs) {
    const AttrValue* const given = s.call.inputs.find_attr(spec.name);
    if (given == nullptr || spec.recipe || spec.name.find("scale") == std::string::npos || !std::holds_alternative<double>(*given))
      continue;
    if (const double value = std::get<double>(*given); value > 0 && value != 1) found.push_back({std::string(spec.name), value, true});
  }
  for (const TensorSpec& spec : s.call.op.schema().tensors) {
    const Tensor* const tensor = s.call.inputs.find(spec.name);
    if (spec.direction == Direction::in && spec.role == Role::scale && tensor != nullptr && tensor->defined() && is_real(tensor->dtype()) &&
        bits(tensor->dtype()) >= 16 && tensor->elements() >= 1 && tensor->elements() <= most_elements)
      found.push_back({spec.name, tensor->elements() == 1 ? quant::get(*tensor, 0) : 0, false});
  }
  constexpr std::size_t few = 6;
  if (found.size() > few) found.resize(few);
  return found;
}
/// `one a,b`: both count as 1; `over a,b`: they divide; `swap a,b`: each stands in the other's place.
Values together(Site s) {
  Values values;
  const std::vector<ScaleNumber> numbers = scale_numbers(s);
  std::string all;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    all += (all.empty() ? "" : ",") + numbers[i].name;
    for (std::size_t j = i + 1; j < numbers.size(); ++j) {
      const std::string pair = numbers[i].name + "," + numbers[j].name;
      values.emplace_back("one " + pair), values.emplace_back("over " + pair);
      if (numbers[i].value > 0 && numbers[j].value > 0 && numbers[i].value != numbers[j].value) values.emplace_back("swap " + pair);
    }
  }
  if (numbers.size() > 2) values.emplace_back("one " + all), values.emplace_back("over " + all);
  return values;
}
std::vector<std::string> names_of(Site s) {
  std::vector<std::string> names;
  for (std::string rest = rest_of(word(s)); !rest.empty();) {
    const std::size_t comma = rest.find(',');
    names.push_back(rest.substr(0, comma));
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
  }
  return names;
}
void take_together(Site s, Arguments& inputs) {
  const std::string how = first_of(word(s));
  const std::vector<std::string> names = names_of(s);
  const std::vector<ScaleNumber> numbers = scale_numbers(s);
  for (std::size_t k = 0; k < names.size(); ++k) {
    const auto own = std::find_if(numbers.begin(), numbers.end(), [&](const ScaleNumber& n) { return n.name == names[k]; });
    const auto other =
        std::find_if(numbers.begin(), numbers.end(), [&](const ScaleNumber& n) { return n.name == names[names.size() - 1 - k]; });
    const auto changed = [&](double x) { return how == "one" ? 1.0 : how == "over" ? (x != 0 ? 1 / x : x) : other->value; };
    if (own->attribute) {
      inputs.set_attr(own->name, changed(own->value));
      continue;
    }
    const Tensor& before = *s.call.inputs.find(own->name);
    const Tensor after = make_strided(before.dtype(), before.shape(), before.strides());
    for (std::int64_t i = 0; i < after.elements(); ++i) put(after, i, changed(quant::get(before, i)));
    inputs.set(own->name, after);
  }
}
std::string together_in_words(Site s) {
  std::string names;
  for (const std::string& name : names_of(s)) names += (names.empty() ? "" : ", ") + name;
  const std::string how = first_of(word(s));
  return names + (how == "one"    ? ": count as 1: they are not applied, not handed on"
                  : how == "over" ? ": divide where they should multiply, or the other way round"
                                  : ": each stands in the other's place");
}

constexpr std::array table{
    Fault{.id = "scales-together",
          .summary = "several scales of the call are not applied, or the other way round",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = together,
          .recall = take_together,
          .words = together_in_words,
          .far = true},
};

}  // namespace

std::span<const Fault> scales_together_faults() {
  return table;
}

}  // namespace dodona::oracle
