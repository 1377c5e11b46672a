#include "oracle/schedules/schedules.h"

#include <algorithm>
#include <cmath>

#include "core/case_line.h"
#include "dodona/error.h"
#include "ops/sums/split_k.h"
#include "oracle/cases/case_file.h"
#include "oracle/cases/generate.h"
#include "oracle/cases/window.h"

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

/// Splits of K by other names.
bool repeats_another(const Op& op, const Arguments& inputs, const Schedule& schedule) {
  const AttrSpec* const block = op.schema().find_attr("block_k");
  if (block == nullptr || op.schema().find_attr("split_k") == nullptr) return false;
  const auto is = [](const auto& word) { return [word](const auto& attr) { return attr.first == word; }; };
  const auto value = [&](const char* attr) -> const AttrValue& {
    return std::find_if(schedule.attrs.begin(), schedule.attrs.end(), is(std::string_view(attr)))->second;
  };
  ops::SplitK split{.split_k = std::get<std::int64_t>(value("split_k")),
                    .chunk_order = std::get<std::string>(value("chunk_order")),
                    .block_k = std::get<std::string>(value("block_k"))};
  if (op.schema().find_attr("chunks") != nullptr) split.chunks = std::get<std::string>(value("chunks"));
  return !ops::is_simplest(split, rows_along(op, inputs, "K"), block->choices);
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

/// Attributes that are not the call's own.
std::ptrdiff_t distance(const Schedule& schedule, const Op& op, const Arguments& inputs) {
  return std::count_if(schedule.attrs.begin(), schedule.attrs.end(), [&](const auto& attr) {
    return to_string(attr.second) != to_string(value_of(*op.schema().find_attr(attr.first), inputs));
  });
}

}  // namespace

Arguments Schedule::of(const Arguments& inputs) const {
  Arguments arguments = inputs;
  for (const auto& [attr, value] : attrs) arguments.set_attr(attr, value);
  return arguments;
}

std::string name(const Schedule& schedule, const Op& op, bool with_machine) {
  std::string text;
  for (const auto& [attr, value] : schedule.attrs)
    if (to_string(value) != to_string(op.schema().find_attr(attr)->default_value))
      text += (text.empty() ? "" : " ") + attr + "=" + to_string(value);
  if (text.empty() && !schedule.attrs.empty()) text = schedule.attrs.front().first + "=" + to_string(schedule.attrs.front().second);
  const std::string machine = with_machine ? std::string(dodona::name(schedule.mode)) : "";
  return machine + (machine.empty() || text.empty() ? "" : " ") + text;
}

std::string line_options(const Schedule& schedule, const Op& op) {
  std::string text;
  for (const auto& [attr, value] : schedule.attrs)
    if (to_string(value) != to_string(op.schema().find_attr(attr)->default_value))
      text += (text.empty() ? "" : " ") + ("--attr " + attr + "=" + to_string(value));
  return text;
}

bool is_fine(std::string_view attr) {
  return attr == "chunk_order";
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
  std::erase_if(schedules,
                [&](const Schedule& schedule) { return repeats_another(op, inputs, schedule) || !allowed(op, inputs, schedule); });
  std::stable_sort(schedules.begin(), schedules.end(),
                   [&](const Schedule& a, const Schedule& b) { return distance(a, op, inputs) < distance(b, op, inputs); });
  if (schedules.size() < 2)
    throw Error(ErrorCode::unsupported, std::string(op.name()), "",
                schedules.empty()
                    ? "has no schedules for this call: no mode of it gives a GPU's bits for such arguments"
                    : "has one schedule only for this call" + (schedules[0].attrs.empty() ? "" : " (" + name(schedules[0], op) + ")") +
                          ": `dodona check --mode " + std::string(dodona::name(schedules[0].mode)) + "` says whether the bits are its own");
  return schedules;
}

namespace {

/// Adds what these schedules differ in.
void widen(Variety& variety, const std::vector<Schedule>& schedules) {
  const auto add = [&](const std::string& name) {
    if (std::find(variety.by.begin(), variety.by.end(), name) == variety.by.end()) variety.by.push_back(name);
  };
  const Schedule& first = schedules.front();
  const auto differ = [&](const auto& part) {
    return std::any_of(schedules.begin(), schedules.end(), [&](const Schedule& schedule) { return part(schedule) != part(first); });
  };
  if (differ([](const Schedule& schedule) { return schedule.mode; })) add("machine");
  for (std::size_t i = 0; i < first.attrs.size(); ++i)
    if (differ([i](const Schedule& schedule) { return schedule.attrs[i]; })) add(first.attrs[i].first);
  variety.most = std::max(variety.most, schedules.size());
}

}  // namespace

std::vector<Variety> varieties() {
  std::vector<Variety> all;
  for (const auto& op : registry().all()) {
    Variety variety{std::string(op->name()), {}, 0};
    for (const std::string& line : op->cases()) {
      try {
        widen(variety, schedules_of(*op, generate(parse_case_line(variety.op + " " + line))));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::unsupported) throw;
      }
    }
    if (variety.most > 1) all.push_back(std::move(variety));
  }
  return all;
}

}  // namespace dodona::oracle
