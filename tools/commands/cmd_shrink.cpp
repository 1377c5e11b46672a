#include <fmt/format.h>

#include <filesystem>

#include "dodona/error.h"
#include "io/command.h"
#include "io/temporary_folder.h"
#include "io/text.h"
#include "oracle/cases/make_case.h"
#include "oracle/faults/shrink.h"
#include "oracle/faults/variants.h"
#include "oracle/judge/actual.h"
#include "oracle/report/check.h"
#include "tools/common.h"
#include "tools/interrupt.h"

namespace dodona::tools {
namespace {

namespace fs = std::filesystem;

struct ShrinkOptions : ExecOptions {
  std::string case_path, command, output, format = "npz";
  double timeout = 60;
  int max_runs = 200;
};

std::string with_paths(std::string command, const std::string& case_path, const std::string& actual_path) {
  const bool placed = command.find("{case}") != std::string::npos || command.find("{out}") != std::string::npos;
  if (!placed) return command + " " + io::shell_quoted(case_path) + " " + io::shell_quoted(actual_path);
  for (const auto& [mark, path] : {std::pair<std::string, std::string>("{case}", case_path), {"{out}", actual_path}})
    for (std::size_t at = 0; (at = command.find(mark, at)) != std::string::npos;) {
      const std::string quoted = io::shell_quoted(path);
      command.replace(at, mark.size(), quoted);
      at += quoted.size();
    }
  return command;
}

constexpr const char* interrupted_before_the_end = "the smallest line was not found";

/// Runs the command on the case of `line`. Throws Error when it gives nothing that can be judged.
oracle::CheckResult judged(const CaseLine& line, const ShrinkOptions& options, const io::TemporaryFolder& place, const Interrupt& interrupt,
                           const Exec& exec) {
  const oracle::Case c = oracle::make_variant_case(line, exec);
  const std::string case_path = place.file("case.safetensors"), actual_path = place.file("actual." + options.format);
  oracle::save_case(c, case_path);
  fs::remove(actual_path);
  const io::CommandResult result = io::run_command(with_paths(options.command, case_path, actual_path), options.timeout, Interrupt::asked);
  interrupt.check(interrupted_before_the_end);
  const std::string tail = result.output.empty() ? "" : "; it printed " + io::quote(result.output, 300);
  if (result.timed_out)
    throw Error(ErrorCode::bad_option, "", "the command", fmt::format("was not done after {:g} s on {}{}", options.timeout, c.line, tail));
  if (result.status != 0)
    throw Error(ErrorCode::bad_option, "", "the command", fmt::format("failed with status {} on {}{}", result.status, c.line, tail));
  if (!fs::exists(actual_path)) throw Error(ErrorCode::bad_option, "", "the command", "wrote no " + actual_path + " on " + c.line + tail);
  return oracle::check(c, oracle::load_actual(actual_path, *c.op, c.inputs), {Mode::golden, exec});
}

int shrink(const ShrinkOptions& options) {
  if (options.format != "npz" && options.format != "npy" && options.format != "safetensors")
    throw Error(ErrorCode::bad_option, "", "--format", "must be npz, npy or safetensors, got '" + options.format + "'");
  const Exec exec = options.exec(Mode::golden);
  const oracle::Case given = oracle::load_case(options.case_path, exec.threads);
  if (given.line.empty())
    throw Error(ErrorCode::unsupported, std::string(given.op->name()), options.case_path,
                "is a recording: only generated cases (dodona gen) can be shrunk");
  const io::TemporaryFolder place("dodona-shrink");
  const Interrupt interrupt;
  const CaseLine first = parse_case_line(given.line);
  oracle::CheckResult worst = judged(first, options, place, interrupt, exec);
  if (worst.outcome != oracle::Outcome::fail) {
    fmt::print("{}\nthe command's outputs do not fail here: {}\n", given.line, name(worst.outcome));
    return exit_cannot;
  }
  Progress progress(options.json || options.quiet);
  std::size_t done = 0;
  std::string last_error;
  const auto attempt = [&](const CaseLine& line) {
    interrupt.check(interrupted_before_the_end);
    progress.step(done++, static_cast<std::size_t>(options.max_runs), to_string(line));
    try {
      oracle::CheckResult result = judged(line, options, place, interrupt, exec);
      if (result.outcome != oracle::Outcome::fail) return oracle::Trial::passes;
      worst = std::move(result);
      return oracle::Trial::fails;
    } catch (const Error& error) {
      last_error = error.what();
      return oracle::Trial::unusable;
    }
  };
  const oracle::Shrunk shrunk = oracle::shrink(first, attempt, options.max_runs);
  interrupt.check(interrupted_before_the_end);
  progress.finish();
  const std::string line = to_string(shrunk.line);
  if (!options.output.empty()) oracle::save_case(oracle::make_variant_case(shrunk.line, exec), options.output);
  if (options.json) {
    io::Json outputs = io::Json::array();
    for (const auto& output : worst.outputs)
      outputs.push_back({{"name", output.verdict.name},
                         {"failing", output.verdict.failing},
                         {"pattern", output.verdict.pattern},
                         {"relations", output.relations}});
    fmt::print(
        "{}\n",
        io::json_text(
            {{"from", given.line}, {"line", line}, {"runs", shrunk.runs + 1}, {"unusable", shrunk.unusable}, {"outputs", outputs}}, 2));
    return exit_fail;
  }
  fmt::print("{}\n", line);
  for (const auto& output : worst.outputs) {
    if (output.verdict.failing == 0) continue;
    fmt::print("  {}: {} of {} elements fail: {}\n", output.verdict.name, output.verdict.failing, output.verdict.compared,
               output.verdict.pattern);
    for (const std::string& relation : output.relations) fmt::print("    {}\n", relation);
  }
  fmt::print("from {}\nin {} runs", given.line, shrunk.runs + 1);
  if (shrunk.unusable > 0) fmt::print(", of which {} gave nothing to judge (the last: {})", shrunk.unusable, last_error);
  fmt::print("{}\n", shrunk.stopped ? "; stopped at --max-runs" : "");
  if (!options.output.empty()) fmt::print("written to {}\n", options.output);
  return exit_fail;
}

}  // namespace

void add_shrink(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ShrinkOptions>();
  auto* command = app.add_subcommand("shrink", "Find the smallest sizes and simplest inputs for which a kernel still fails");
  command->add_option("CASE", options->case_path, "A generated case (dodona gen) for which the command's outputs fail")->required();
  command
      ->add_option(
          "COMMAND", options->command,
          "A shell command that reads the case file {case} and writes the outputs to {out}; without these marks both paths are appended")
      ->required();
  command->add_option("--format", options->format, "What the command writes: npz, npy or safetensors")->capture_default_str();
  command->add_option("--timeout", options->timeout, "Seconds that one run may take")->capture_default_str()->check(above_zero());
  command->add_option("--max-runs", options->max_runs, "Runs of the command at most")->capture_default_str()->check(above_zero());
  command->add_option("-o,--output", options->output, "Write the smallest case to this file");
  options->add_threads_and_isa(*command);
  options->add_json(*command);
  command->add_flag("-q,--quiet", options->quiet, "No progress");
  command->footer(
      "Exit code 1 with the smallest failing line; 2 when the command fails, hangs or writes nothing on CASE itself, or its outputs pass.\n"
      "Lines for which the command gives nothing to judge are passed over and counted.");
  command->callback([options, &exit_code] { exit_code = shrink(*options); });
}

}  // namespace dodona::tools
