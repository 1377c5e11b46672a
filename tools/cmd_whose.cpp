#include <fmt/format.h>

#include <filesystem>

#include "common.h"
#include "core/case_line.h"
#include "dodona/error.h"
#include "oracle/cases/generate.h"
#include "oracle/cases/make_case.h"
#include "oracle/cases/window.h"
#include "oracle/judge/actual.h"
#include "oracle/schedules/whose.h"

namespace dodona::tools {
namespace {

struct WhoseOptions : ExecOptions {
  std::string case_text, outputs;
  std::vector<std::string> window;
  double seconds = 60;
  bool ops = false;
};

/// A file, or else a line: the inputs are all that is asked of either.
oracle::Case case_of(const std::string& text, int threads) {
  if (std::filesystem::exists(text)) return oracle::load_case(text, threads);
  if (text.find('=') == std::string::npos && text.find(' ') == std::string::npos)
    throw Error(ErrorCode::bad_file, "", text, "does not exist, and is no case line");
  const CaseLine line = parse_case_line(text);
  oracle::Case c;
  c.op = &registry().at(line.op);
  c.line = to_string(line);
  c.inputs = oracle::generate(line, threads);
  return c;
}

int exit_code_of(oracle::WhoseAnswer answer) {
  return answer == oracle::WhoseAnswer::named ? exit_pass : exit_fail;
}

int list_ops() {
  for (const oracle::Variety& variety : oracle::varieties()) fmt::print("{:<40} {}\n", variety.op, fmt::join(variety.by, ", "));
  return exit_pass;
}

int whose(const WhoseOptions& options) {
  if (options.ops) return list_ops();
  if (options.case_text.empty()) throw Error(ErrorCode::bad_option, "", "CASE", "is missing: a case file, or a case line in quotes");
  const Exec exec = options.exec(Mode::golden);
  oracle::Case c = case_of(options.case_text, exec.threads);
  std::string window;
  for (const std::string& range : options.window) window += range + " ";
  c.inputs = oracle::windowed(*c.op, c.inputs, oracle::parse_window(window));
  const oracle::NamedTensors actual = options.outputs.empty() ? c.outputs : oracle::load_actual(options.outputs, *c.op, c.inputs);
  if (actual.empty())
    throw Error(ErrorCode::bad_file, std::string(c.op->name()), options.case_text, "holds no outputs, and no file of them is given");
  Progress progress(options.json || options.quiet);
  const oracle::Whose answer = oracle::whose(
      *c.op, c.inputs, actual,
      {exec, options.seconds, [&](std::size_t done, std::size_t total, const std::string& what) { progress.step(done, total, what); }});
  progress.finish();
  if (options.json) {
    fmt::print("{}\n", io::json_text(oracle::to_json(answer), 2));
  } else {
    fmt::print("{}{}\n", oracle::text_of(answer), oracle::name(answer.answer));
  }
  return exit_code_of(answer.answer);
}

}  // namespace

void add_whose(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<WhoseOptions>();
  auto* command = app.add_subcommand("whose", "Which kernel made these numbers? Tries every schedule of the op, bit by bit");
  command->add_option("CASE", options->case_text, "A case file, or a case line in quotes: the inputs that the kernel was given");
  command->add_option("OUTPUTS", options->outputs,
                      "What it gave, as for `dodona check`; without it the outputs in the case file are asked about");
  command->add_option("--window", options->window,
                      "OUTPUTS holds these rows of the call alone: T=0..8 (repeatable; sizes that `dodona info OP` calls independent)");
  command->add_option("--seconds", options->seconds, "How long to look")->capture_default_str()->check(CLI::NonNegativeNumber);
  options->add_threads_and_isa(*command);
  options->add_json(*command);
  command->add_flag("-q,--quiet", options->quiet, "No progress");
  command->add_flag("--ops", options->ops, "Name the ops with more than one schedule and what those differ in, and exit");
  command->footer(
      "A schedule is a value for each recipe attribute that the op leaves to its kernel (`dodona info OP`: split_k, chunk_order, "
      "accumulator,\n"
      "kernel...) in a mode whose bits are a GPU's; --ops lists the ops that have several. Exit code 0: one schedule gives every bit (or "
      "several\n"
      "that no inputs tell apart, or that differ in chunk_order alone, which a rounding to 16 bits hides); 1: none does, or these outputs "
      "do not\n"
      "tell several apart, and the answer says which and how many elements might; 2: bad input, or an op with one schedule only.\n"
      "That no schedule gives the bits accuses nobody: the kernel may be one that is not known here.");
  command->callback([options, &exit_code] { exit_code = whose(*options); });
}

}  // namespace dodona::tools
