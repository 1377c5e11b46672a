#include "op_text.h"

#include <fmt/format.h>

#include <cmath>

namespace dodona::tools {

std::string dtypes_of(const TensorSpec& spec) {
  if (!spec.dtype_attr.empty()) return "by attribute " + spec.dtype_attr;
  std::string text = spec.same_dtype_as.empty() ? "" : "as " + spec.same_dtype_as;
  for (const DType type : spec.dtypes) text += (text.empty() ? "" : "|") + std::string(name(type));
  return text;
}

std::string traits_of(const TensorSpec& spec) {
  std::string text;
  const auto add = [&](const std::string& trait) { text += (text.empty() ? "" : ", ") + trait; };
  if (spec.optional) add(spec.on_request ? "optional, on request" : "optional");
  if (spec.role != Role::values) add(std::string(name(spec.role)) + (spec.bound.empty() ? "" : " below " + spec.bound));
  if (spec.layout != Layout::rows) add(std::string(name(spec.layout)));
  if (spec.alignment > 1) add(fmt::format("{}-byte aligned", spec.alignment));
  if (spec.direction != Direction::in) add("judge " + std::string(name(spec.judge)));
  if (spec.may_stray) add("others are legal");
  if (spec.given) add("given by the caller");
  if (!spec.when.empty()) add("made when " + spec.when);
  if (spec.padded) add("has padding");
  if (!spec.view_of.empty()) add("a view of " + spec.view_of);
  return text;
}

std::string meaning_of(const TensorSpec& spec) {
  std::string text = spec.doc;
  if (const std::string stored = to_string(spec.storage); !stored.empty()) text += "; " + stored;
  if (!spec.kin.empty()) text += "; case lines make it: " + spec.kin;
  return text;
}

std::string attr_limits(const AttrSpec& spec) {
  if (!spec.choices.empty()) return fmt::format("{}", fmt::join(spec.choices, "|"));
  std::string text;
  for (const DType type : spec.dtypes) text += (text.empty() ? "" : "|") + std::string(name(type));
  if (!text.empty()) return text;
  if (std::isfinite(spec.maximum)) return fmt::format("{} to {}", to_string(AttrValue(spec.minimum)), to_string(AttrValue(spec.maximum)));
  return std::isfinite(spec.minimum) ? "at least " + to_string(AttrValue(spec.minimum)) : "";
}

std::string symbol_rule(const SymbolSpec& spec) {
  if (!spec.choices.empty()) return fmt::format("{} is {}", spec.name, fmt::join(spec.choices, " or "));
  std::string text = spec.name + ":";
  if (spec.multiple_of > 1) text += fmt::format(" a multiple of {}", spec.multiple_of);
  if (spec.minimum > 0) text += fmt::format(" at least {}", spec.minimum);
  return text;
}

std::string wrapped(const std::string& text, std::size_t width, const std::string& indent) {
  std::string out, line;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!line.empty() && line.size() + 1 + word.size() > width) out += indent + line + "\n", line.clear();
    line += (line.empty() ? "" : " ") + word;
    at = end + 1;
  }
  return out + indent + line + "\n";
}

std::string kind_of(const AttrSpec& spec) {
  return spec.recipe ? "recipe" : spec.ignored ? "no effect" : "";
}

std::string dialects_of(const AttrSpec& spec) {
  std::string text;
  for (const auto& [dialect, value] : spec.dialect_values) text += (text.empty() ? "" : ", ") + dialect + ": " + to_string(value);
  return text;
}

std::string modes_of(const Op& op) {
  std::string text;
  for (const Mode mode : op.modes()) text += (text.empty() ? "" : " ") + std::string(name(mode));
  return text;
}

std::string judges_of(const Op& op) {
  std::string text;
  for (const TensorSpec& spec : op.schema().tensors) {
    const std::string judge(name(spec.judge));
    if (spec.direction != Direction::in && text.find(judge) == std::string::npos) text += (text.empty() ? "" : ", ") + judge;
  }
  return text;
}

}  // namespace dodona::tools
