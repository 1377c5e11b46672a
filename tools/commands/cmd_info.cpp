#include <fmt/format.h>

#include "dodona/op.h"
#include "ops/about.h"
#include "oracle/report/schema_json.h"
#include "tools/common.h"
#include "tools/op_text.h"

namespace dodona::tools {
namespace {

void print_text(const Op& op) {
  fmt::print("{}  ({}, {})\n\n", op.name(), name(op.info().category), to_string(op.info().sources));
  if (const std::string text(ops::about(op.name())); !text.empty()) fmt::print("{}\n", wrapped(text, 100, "  "));
  std::vector<std::vector<std::string>> rows;
  for (const TensorSpec& spec : op.schema().tensors)
    rows.push_back(
        {spec.name, std::string(oracle::direction_name(spec)), dtypes_of(spec), "[" + spec.shape + "]", traits_of(spec), meaning_of(spec)});
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
  if (!op.schema().properties.prepared.empty())
    fmt::print("  Fast mode takes {} prepared.\n", fmt::join(op.schema().properties.prepared, ", "));
  fmt::print("\nmodes: {}\n", modes_of(op));
  for (const Mode mode : op.modes())
    if (!caveat(mode).empty()) fmt::print("{}", wrapped(std::string(caveat(mode)), 100, "  "));
  if (!op.defects().empty()) fmt::print("\nknown upstream defects\n");
  for (const KnownDefect& defect : op.defects()) fmt::print("{}", wrapped(fmt::format("{}: {}", defect.id, defect.summary), 100, "  "));
  const auto mistakes = op.mistakes();
  if (!mistakes.empty()) fmt::print("\nmistakes that kernels make\n");
  for (const KernelMistake& mistake : mistakes) fmt::print("{}", wrapped(fmt::format("{}: {}", mistake.id, mistake.text), 100, "  "));
  fmt::print("\ncase lines\n");
  for (const std::string& line : op.cases()) fmt::print("  {} {}\n", op.name(), line);
}

}  // namespace

void add_info(CLI::App& app, int&) {
  auto options = std::make_shared<ExecOptions>();
  auto op = std::make_shared<std::string>();
  auto* command = app.add_subcommand(
      "info", "Show an op: what it computes, arguments, shapes, attributes, dialects, contract, known defects and mistakes");
  command->add_option("OP", *op, "The op's upstream name")->required();
  options->add_json(*command);
  command->callback([options, op] {
    const Op& entry = registry().at(*op);
    options->json ? fmt::print("{}\n", io::json_text(oracle::schema_json(entry), 2)) : print_text(entry);
  });
}

}  // namespace dodona::tools
