#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>

#include "dodona/error.h"
#include "io/safetensors.h"
#include "io/sha256.h"
#include "oracle/cases/case_file.h"
#include "oracle/cases/generate.h"
#include "quant/element.h"
#include "tools/common.h"
#include "tools/output_files.h"

namespace dodona::tools {
namespace {

struct RunOptions : ExecOptions, CaseLineOptions {
  std::string output;
};

struct Range {
  double minimum = INFINITY, maximum = -INFINITY;
  std::int64_t not_finite = 0;
};

Range range_of(const Tensor& tensor) {
  Range range;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const double value = quant::get(tensor, i);
    if (!std::isfinite(value)) {
      ++range.not_finite;
      continue;
    }
    range.minimum = std::min(range.minimum, value);
    range.maximum = std::max(range.maximum, value);
  }
  return range;
}

/// A case file, or a case line.
oracle::Case open_case(const RunOptions& options, int threads) {
  const auto& words = options.words;
  if (words.size() == 1 && (std::filesystem::exists(words[0]) || words[0].ends_with(".safetensors")))
    return oracle::load_case(words[0], threads);
  const CaseLine line = parse_case_line(options.text());
  refuse_variants(line, "a run");
  oracle::Case c;
  c.op = &registry().at(line.op);
  c.name = to_string(line);
  c.inputs = oracle::generate(line, threads);
  return c;
}

void run(const RunOptions& options) {
  check_output_files({{"--output", options.output}}, options.words);
  const Exec exec = options.exec();
  const oracle::Case c = open_case(options, exec.threads);
  Arguments arguments = oracle::runnable(*c.op, c.inputs);
  const auto begin = std::chrono::steady_clock::now();
  c.op->run(arguments, exec);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const auto outputs = oracle::outputs_of(*c.op, arguments);
  if (!options.output.empty()) {
    io::Metadata metadata{{"op", std::string(c.op->name())}, {"case", c.name}, {"mode", std::string(name(exec.mode))}};
    io::write_safetensors(options.output, outputs, metadata);
  }
  if (options.json) {
    io::Json list = io::Json::array();
    for (const auto& [output, tensor] : outputs)
      list.push_back({{"name", output},
                      {"dtype", std::string(name(tensor.dtype()))},
                      {"shape", std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end())},
                      {"sha256", io::to_hex(io::tensor_digest(tensor))}});
    fmt::print("{}\n", io::json_text({{"op", std::string(c.op->name())},
                                      {"case", c.name},
                                      {"mode", std::string(name(exec.mode))},
                                      {"isa", std::string(name(exec.isa))},
                                      {"threads", exec.threads},
                                      {"seconds", seconds},
                                      {"outputs", list}},
                                     2));
    return;
  }
  fmt::print("{}\n{} mode, {} tier, {} thread{}, {:.3f} ms\n\n", c.name, name(exec.mode), name(exec.isa), exec.threads,
             exec.threads == 1 ? "" : "s", seconds * 1e3);
  std::vector<std::vector<std::string>> rows;
  for (const auto& [output, tensor] : outputs) {
    const Range range = range_of(tensor);
    const bool any = range.minimum <= range.maximum;
    rows.push_back({output, std::string(name(tensor.dtype())), to_string(tensor.shape()), any ? fmt::format("{:.6g}", range.minimum) : "-",
                    any ? fmt::format("{:.6g}", range.maximum) : "-", std::to_string(range.not_finite),
                    io::to_hex(io::tensor_digest(tensor)).substr(0, 16)});
  }
  fmt::print("{}", table({"output", "dtype", "shape", "min", "max", "not finite", "sha256"}, rows,
                         {false, false, false, true, true, true, false}));
  if (!options.output.empty()) fmt::print("written to {}\n", options.output);
}

}  // namespace

void add_run(CLI::App& app, int&) {
  auto options = std::make_shared<RunOptions>();
  auto* command = app.add_subcommand("run", "Run an op on a case and show its outputs");
  command->add_option("CASE", options->words, "A case file, or a case line: OP SYM=N... with the options below")->required();
  options->add_line_options(*command);
  options->add_mode(*command, "fast (default), golden, or a GPU's bits: hopper, blackwell, ada, ampere");
  command->add_option("-o,--output", options->output, "Write the outputs to this safetensors file");
  options->add_threads_and_isa(*command);
  options->add_json(*command);
  command->callback([options] { run(*options); });
}

}  // namespace dodona::tools
