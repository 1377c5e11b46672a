#include <fmt/format.h>

#include "common.h"
#include "dodona/op.h"
#include "op_text.h"

namespace dodona::tools {
namespace {

void print_text(const Op& op) {
  fmt::print("{}  ({}, {})\n\n", op.name(), name(op.info().category), name(op.info().source));
  std::vector<std::vector<std::string>> rows;
  for (const TensorSpec& spec : op.schema().tensors)
    rows.push_back({spec.name, std::string(direction_of(spec)), dtypes_of(spec), "[" + spec.shape + "]", traits_of(spec), spec.doc});
  fmt::print("{}", table({"tensor", "", "dtype", "shape", "traits", "meaning"}, rows, {false, false, false, false, false, false}));
  if (!op.schema().attrs.empty()) {
    rows.clear();
    for (const AttrSpec& spec : op.schema().attrs)
      rows.push_back({spec.name, spec.required ? "required" : to_string(spec.default_value), attr_limits(spec), kind_of(spec),
                      dialects_of(spec), spec.doc});
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
  fmt::print("\nmodes: {}\n", modes_of(op));
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
