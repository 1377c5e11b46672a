#include <fmt/format.h>

#include "common.h"
#include "dodona/op.h"

namespace dodona::tools {
namespace {

std::string dtypes_of(const TensorSpec& spec) {
  if (!spec.same_dtype_as.empty()) return "as " + spec.same_dtype_as;
  if (!spec.dtype_attr.empty()) return "by attribute " + spec.dtype_attr;
  std::string text;
  for (const DType type : spec.dtypes) text += (text.empty() ? "" : "|") + std::string(name(type));
  return text;
}

std::string_view direction_of(const TensorSpec& spec) {
  switch (spec.direction) {
    case Direction::in: return "in";
    case Direction::out: return "out";
    case Direction::inout: return "in place";
  }
  return "";
}

std::string traits_of(const TensorSpec& spec) {
  std::string text;
  const auto add = [&](const std::string& trait) { text += (text.empty() ? "" : ", ") + trait; };
  if (spec.optional) add("optional");
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

/// Breaks at spaces after at most `width` characters.
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

void print_text(const Op& op) {
  fmt::print("{}  ({}, {})\n\n", op.name(), name(op.info().category), name(op.info().source));
  std::vector<std::vector<std::string>> rows;
  for (const TensorSpec& spec : op.schema().tensors)
    rows.push_back({spec.name, std::string(direction_of(spec)), dtypes_of(spec), "[" + spec.shape + "]", traits_of(spec), spec.doc});
  fmt::print("{}", table({"tensor", "", "dtype", "shape", "traits", "meaning"}, rows, {false, false, false, false, false, false}));
  if (!op.schema().attrs.empty()) {
    rows.clear();
    for (const AttrSpec& spec : op.schema().attrs) {
      std::string dialect_text;
      for (const auto& [dialect, value] : spec.dialect_values)
        dialect_text += (dialect_text.empty() ? "" : ", ") + dialect + ": " + to_string(value);
      rows.push_back({spec.name, spec.required ? "required" : to_string(spec.default_value), attr_limits(spec),
                      spec.recipe    ? "recipe"
                      : spec.ignored ? "no effect"
                                     : "",
                      dialect_text, spec.doc});
    }
    fmt::print("\n{}",
               table({"attribute", "default", "accepts", "kind", "dialects", "meaning"}, rows, {false, false, false, false, false, false}));
  }
  if (!op.schema().symbols.empty()) {
    fmt::print("\nsizes\n");
    for (const SymbolSpec& spec : op.schema().symbols) fmt::print("  {}\n", symbol_rule(spec));
  }
  fmt::print("\ncontract (version {})\n{}", op.contract_version(), wrapped(op.contract(), 100, "  "));
  for (const auto& [output, input] : op.schema().properties.in_place) fmt::print("  {} may be the memory of {}.\n", output, input);
  for (const auto& symbol : op.schema().properties.rows_independent) fmt::print("  Independent along {}.\n", symbol);
  fmt::print("\nmodes:");
  for (const Mode mode : op.modes()) fmt::print(" {}", name(mode));
  fmt::print("\n");
  bool heading = false;
  for (const KnownDefect& defect : known_defects()) {
    if (defect.op != op.name()) continue;
    if (!heading) fmt::print("\nknown upstream defects\n");
    heading = true;
    fmt::print("{}", wrapped(fmt::format("{}: {}", defect.id, defect.summary), 100, "  "));
  }
  fmt::print("\ncase lines\n");
  for (const std::string& line : op.cases()) fmt::print("  {} {}\n", op.name(), line);
}

io::Json attr_json(const AttrValue& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return *whole;
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  return to_string(value);
}

void print_json(const Op& op) {
  io::Json tensors = io::Json::array(), attrs = io::Json::array(), defects = io::Json::array();
  for (const TensorSpec& spec : op.schema().tensors) {
    io::Json types = io::Json::array();
    for (const DType type : spec.dtypes) types.push_back(std::string(name(type)));
    io::Json tensor{{"name", spec.name},
                    {"direction", std::string(direction_of(spec))},
                    {"dtypes", types},
                    {"shape", spec.shape},
                    {"optional", spec.optional},
                    {"role", std::string(name(spec.role))},
                    {"layout", std::string(name(spec.layout))},
                    {"alignment", spec.alignment},
                    {"doc", spec.doc}};
    if (!spec.same_dtype_as.empty()) tensor["same_dtype_as"] = spec.same_dtype_as;
    if (!spec.dtype_attr.empty()) tensor["dtype_attr"] = spec.dtype_attr;
    if (!spec.bound.empty()) tensor["below"] = spec.bound;
    if (spec.direction != Direction::in) tensor["judge"] = std::string(name(spec.judge));
    tensors.push_back(tensor);
  }
  for (const AttrSpec& spec : op.schema().attrs) {
    io::Json attr{{"name", spec.name},         {"default", attr_json(spec.default_value)},
                  {"required", spec.required}, {"recipe", spec.recipe},
                  {"no_effect", spec.ignored}, {"doc", spec.doc}};
    if (!spec.choices.empty()) attr["choices"] = spec.choices;
    for (const auto& [dialect, value] : spec.dialect_values) attr["dialects"][dialect] = attr_json(value);
    attrs.push_back(attr);
  }
  for (const KnownDefect& defect : known_defects())
    if (defect.op == op.name())
      defects.push_back({{"id", std::string(defect.id)}, {"output", std::string(defect.output)}, {"summary", std::string(defect.summary)}});
  io::Json modes = io::Json::array();
  for (const Mode mode : op.modes()) modes.push_back(std::string(name(mode)));
  fmt::print("{}\n", io::json_text({{"name", std::string(op.name())},
                                    {"category", std::string(name(op.info().category))},
                                    {"source", std::string(name(op.info().source))},
                                    {"modes", modes},
                                    {"tensors", tensors},
                                    {"attributes", attrs},
                                    {"contract", op.contract()},
                                    {"contract_version", op.contract_version()},
                                    {"known_defects", defects},
                                    {"cases", op.cases()}},
                                   2));
}

}  // namespace

void add_info(CLI::App& app, int&) {
  auto options = std::make_shared<ExecOptions>();
  auto op = std::make_shared<std::string>();
  auto* command = app.add_subcommand("info", "Show an op: arguments, shapes, attributes, dialects, contract, known defects");
  command->add_option("OP", *op, "The op's upstream name")->required();
  options->add_json(*command);
  command->callback([options, op] {
    const Op& entry = registry().at(*op);
    options->json ? print_json(entry) : print_text(entry);
  });
}

}  // namespace dodona::tools
