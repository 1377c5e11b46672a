#include <fmt/format.h>

#include "core/case_line.h"
#include "dodona/error.h"
#include "oracle/cases/make_case.h"
#include "oracle/faults/variants.h"
#include "oracle/judge/actual.h"
#include "tools/common.h"

namespace dodona::tools {
namespace {

struct GenOptions : ExecOptions, CaseLineOptions {
  std::string output, outputs, provenance;
  bool compact = false;
};

/// The case that the options ask for: golden mode's, or of outputs that a kernel gave.
oracle::Case case_of(const GenOptions& options) {
  const CaseLine line = parse_case_line(options.text());
  const Exec exec = options.exec(Mode::golden);
  if (options.outputs.empty()) {
    if (!options.provenance.empty())
      throw Error(ErrorCode::bad_option, "", "--provenance", "is of outputs that a kernel gave: needs --outputs");
    return oracle::make_variant_case(line, exec, options.compact);
  }
  refuse_variants(line, "a recording");
  CaseLine whole = line;
  whole.window.clear();
  oracle::Case c = oracle::recorded_case(whole, line.window, exec.threads);
  c.outputs = oracle::load_actual(options.outputs, *c.op, c.inputs);
  c.provenance = options.provenance;
  if (!c.provenance.empty() && !io::parse_json(c.provenance, "--provenance").is_object())
    throw Error(ErrorCode::bad_option, "", "--provenance", "is no JSON object");
  return c;
}

void gen(const GenOptions& options) {
  const oracle::Case c = case_of(options);
  oracle::save_case(c, options.output);
  if (options.json) {
    fmt::print("{}\n", io::json_text({{"line", c.line},
                                      {"path", options.output},
                                      {"compact", c.compact},
                                      {"contract_version", c.contract_version},
                                      {"digests", io::Json(c.digests)}},
                                     2));
    return;
  }
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const std::string& stored, const Tensor& tensor) {
    const auto digest = c.digests.find(stored);
    rows.push_back({stored, std::string(name(tensor.dtype())), to_string(tensor.shape()),
                    digest == c.digests.end() ? "" : digest->second.substr(0, 16)});
  };
  for (const auto& [argument, tensor] : c.inputs.tensors) add("in." + argument, tensor);
  for (const auto& [output, tensor] : c.outputs) add("out." + output, tensor);
  fmt::print("{}\n{}", c.line, table({"tensor", "dtype", "shape", "sha256"}, rows, {false, false, false, false}));
  fmt::print("written to {}{}\n", options.output,
             c.recorded() ? " (line, digests and the kernel's outputs)"
             : c.compact  ? " (line and digests only)"
                          : "");
}

}  // namespace

void add_gen(CLI::App& app, int&) {
  auto options = std::make_shared<GenOptions>();
  auto* command = app.add_subcommand("gen", "Make a case file: inputs, golden outputs and budgets");
  command->add_option("LINE", options->words, "OP SYM=N..., with the options below; sizes as `dodona info OP` names them")->required();
  options->add_line_options(*command);
  command->add_option("-o,--output", options->output, "The case file to write (safetensors)")->required();
  command->add_flag("--compact", options->compact, "Store the line and digests only; whoever reads the file makes the tensors anew");
  command->add_option(
      "--outputs", options->outputs,
      "Store these outputs, which a kernel gave for the line's inputs (a file as for `dodona check`), instead of golden's: a "
      "recording of line, digests and outputs; with --window, of these rows of the line's whole call");
  command->add_option("--provenance", options->provenance, "What is known of the outputs' origin, a JSON object: kind, device, kernel...");
  options->add_threads_and_isa(*command);
  options->add_json(*command);
  command->footer(
      "The same line gives the same file on every machine, thread count and instruction set. In the file: in.ARGUMENT, out.OUTPUT "
      "(golden);\n"
      "where the contract leaves room, exact.OUTPUT (before its rounding) and slack.OUTPUT: an output is right when it is the rounding of\n"
      "some number within the slack of the exact one. open.OUTPUT marks elements that the contract says nothing of.");
  command->callback([options] { gen(*options); });
}

}  // namespace dodona::tools
