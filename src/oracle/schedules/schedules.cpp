#include "oracle/schedules/schedules.h"

#include <algorithm>
#include <cmath>

#include "dodona/error.h"
#include "oracle/cases/case_file.h"

namespace dodona::oracle {
namespace {

/// A whole number with more values than this is no schedule.
constexpr double most_values = 256;

const AttrValue& value_of(const AttrSpec& spec, const Arguments& inputs) {
  const AttrValue* given = inputs.find_attr(spec.name);
  return given != nullptr ? *given : spec.default_value;
}

/// The values to try of a recipe attribute: the call's own first. One that only a budget follows makes no other bits.
std::vector<AttrValue> values_of(const AttrSpec& spec, const Arguments& inputs) {
  std::vector<AttrValue> values{value_of(spec, inputs)};
  const auto add = [&](AttrValue value) {
    if (to_string(value) != to_string(values.front())) values.push_back(std::move(value));
  };
  if (!spec.recipe || spec.ignored) return values;
  for (const std::string& choice : spec.choices) add(choice);
  if (std::holds_alternative<bool>(spec.default_value)) add(false), add(true);
  if (std::holds_alternative<std::int64_t>(spec.default_value) && spec.maximum - spec.minimum < most_values)
    for (auto value = static_cast<std::int64_t>(spec.minimum); static_cast<double>(value) <= spec.maximum; ++value) add(value);
  return values;
}

/// Whether the op has such a schedule for these arguments.
bool allowed(const Op& op, const Arguments& inputs, const Schedule& schedule) {
  try {
    Arguments arguments = runnable(op, schedule.of(inputs));
    op.prepare(arguments);
    return op.supports(arguments, schedule.mode);
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

Arguments Schedule::of(const Arguments& inputs) const {
  Arguments arguments = inputs;
  for (const auto& [attr, value] : attrs) arguments.set_attr(attr, value);
  return arguments;
}

std::string name(const Schedule& schedule, bool with_machine) {
  std::string text = with_machine ? std::string(dodona::name(schedule.mode)) : "";
  for (const auto& [attr, value] : schedule.attrs) text += (text.empty() ? "" : " ") + attr + "=" + to_string(value);
  return text;
}

std::string line_options(const Schedule& schedule, const Op& op) {
  std::string text;
  for (const auto& [attr, value] : schedule.attrs)
    if (to_string(value) != to_string(op.schema().find_attr(attr)->default_value))
      text += (text.empty() ? "" : " ") + ("--attr " + attr + "=" + to_string(value));
  return text;
}

std::vector<Mode> gpu_modes(const Op& op) {
  std::vector<Mode> modes = op.modes();
  std::erase_if(modes, [](Mode mode) { return mode == Mode::fast || mode == Mode::golden; });
  return modes;
}

std::vector<Schedule> schedules_of(const Op& op, const Arguments& inputs) {
  const std::vector<Mode> modes = gpu_modes(op);
  if (modes.empty()) throw Error(ErrorCode::unsupported, std::string(op.name()), "", "has no schedules: no mode of it has a GPU's bits");
  std::vector<Schedule> schedules;
  for (const Mode mode : modes) schedules.push_back({mode, {}});
  for (const AttrSpec& spec : op.schema().attrs) {
    const std::vector<AttrValue> values = values_of(spec, inputs);
    if (values.size() < 2) continue;
    std::vector<Schedule> longer;
    for (const Schedule& schedule : schedules)
      for (const AttrValue& value : values) {
        longer.push_back(schedule);
        longer.back().attrs.emplace_back(spec.name, value);
      }
    schedules = std::move(longer);
  }
  std::erase_if(schedules, [&](const Schedule& schedule) { return !allowed(op, inputs, schedule); });
  if (schedules.size() < 2)
    throw Error(ErrorCode::unsupported, std::string(op.name()), "",
                schedules.empty()
                    ? "has no schedules for this call: no mode of it gives a GPU's bits for such arguments"
                    : "has one schedule only for this call" + (name(schedules[0]).empty() ? "" : " (" + name(schedules[0]) + ")") +
                          ": `dodona check --mode " + std::string(dodona::name(schedules[0].mode)) + "` says whether the bits are its own");
  return schedules;
}

}  // namespace dodona::oracle
