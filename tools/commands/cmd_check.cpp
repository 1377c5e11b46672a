#include <fmt/format.h>

#include <chrono>

#include "dodona/error.h"
#include "io/atomic_file.h"
#include "oracle/cases/make_case.h"
#include "oracle/judge/actual.h"
#include "oracle/judge/same_bits.h"
#include "oracle/report/report.h"
#include "oracle/report/report_text.h"
#include "tools/common.h"
#include "tools/output_files.h"
#include "tools/sample_options.h"

namespace dodona::tools {
namespace {

struct CheckOptions : ExecOptions {
  std::vector<std::string> same_bits;
  bool progress = false;
  std::string case_path, actual_path, junit, report;
  bool explain = false;
  double explain_seconds = 60;
  oracle::Sample sample;
};

void write_text(const std::string& path, const std::string& text) {
  if (!path.empty()) io::write_file(path, std::as_bytes(std::span(text.data(), text.size())));
}

/// Of a case of some rows of a line's call: outputs of all its rows will do too.
Window window_of(const oracle::Case& c) {
  return c.line.empty() ? Window{} : parse_case_line(c.line).window;
}

/// Of several runs' outputs: are they the same to the bit?
int compare_bits(const CheckOptions& options) {
  if (!options.case_path.empty())
    throw Error(ErrorCode::bad_option, "", "--same-bits", "compares files with each other: no case is judged");
  std::vector<oracle::NamedTensors> runs;
  for (const std::string& path : options.same_bits) runs.push_back(oracle::load_outputs(path));
  const oracle::SameBits result = oracle::same_bits(runs);
  if (options.json)
    fmt::print("{}\n", io::json_text(oracle::to_json(result, options.same_bits), 2));
  else
    fmt::print("{}", oracle::text_of(result, options.same_bits));
  return result.same() ? exit_pass : exit_fail;
}

int check(const CheckOptions& options) {
  if (!options.same_bits.empty()) return compare_bits(options);
  if (options.case_path.empty()) throw Error(ErrorCode::bad_option, "", "CASE", "is required, or --same-bits FILE FILE...");
  const auto begin = std::chrono::steady_clock::now();
  check_output_files({{"--junit", options.junit}, {"--report", options.report}}, {options.case_path, options.actual_path});
  const Exec exec = options.exec(Mode::golden);
  const Mode mode = exec.mode;
  if (mode == Mode::fast)
    throw Error(ErrorCode::bad_option, "", "--mode", "must be " + either_of(std::span(mode_list).subspan(1)) + ", got 'fast'");
  oracle::Case c = oracle::load_case(options.case_path, exec.threads);
  if (options.actual_path.empty()) oracle::complete(c, exec);
  const oracle::NamedTensors actual =
      options.actual_path.empty() ? c.outputs : oracle::load_actual(options.actual_path, *c.op, c.inputs, window_of(c));
  if (actual.empty())
    throw Error(ErrorCode::bad_file, std::string(c.op->name()), c.path, "holds no outputs, and no file of actual ones is given");
  Progress progress(options.quiet || (options.json && !options.progress), options.progress, 1.0);
  const oracle::ExplainOptions explaining{
      options.explain, options.explain_seconds,
      [&](std::size_t done, std::size_t total, const std::string& mistake) { progress.step(done, total, mistake); }};
  oracle::CheckResult result = oracle::check(c, actual, {mode, exec}, explaining, options.sample);
  progress.finish();
  result.actual_path = options.actual_path;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  write_text(options.junit, oracle::junit_xml(result, seconds));
  if (!options.report.empty()) write_text(options.report, oracle::html_page(result));
  const bool good = result.outcome == oracle::Outcome::pass || result.outcome == oracle::Outcome::known_defect;
  const int exit_code = good ? exit_pass : result.outcome == oracle::Outcome::vacuous ? exit_cannot : exit_fail;
  if (options.json) {
    io::Json json = oracle::to_json(result);
    json["seconds"] = seconds;
    fmt::print("{}\n", io::json_text(json, 2));
    return exit_code;
  }
  fmt::print("{}", oracle::report_text(result, use_color()));
  if (!good)
    fmt::print("reproduce: {}dodona check {}{}\n", result.line.empty() ? "" : "dodona gen " + result.line + " -o CASE; ",
               result.line.empty() ? options.case_path : "CASE", options.actual_path.empty() ? "" : " " + options.actual_path);
  if (!options.report.empty()) fmt::print("report: {}\n", options.report);
  return exit_code;
}

}  // namespace

void add_check(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<CheckOptions>();
  auto* command = app.add_subcommand("check", "Judge a kernel's outputs for a case, and say where, how and why they are wrong");
  command->add_option("CASE", options->case_path, "A case file (dodona gen, or a recording)");
  command->add_option("ACTUAL", options->actual_path,
                      "The kernel's outputs: .safetensors or .npz with the op's output names (or out.NAME), or .npy for an op with one "
                      "output; without it the outputs in the case file are judged");
  options->add_mode(*command, "What they are held against: golden (default: budgets), or equal bits with hopper, blackwell, ada, ampere");
  command->add_option("--junit", options->junit, "Write the verdicts as JUnit XML to this file");
  command->add_option("--report", options->report, "Write a self-contained HTML page with pictures to this file");
  command->add_flag("--explain", options->explain,
                    "On failure, replay the case under the other dialects and every applicable well-known mistake, and name those that "
                    "reproduce the outputs; then with other indices, numbers and functions of each operand, part by part");
  command->add_option("--explain-seconds", options->explain_seconds, "How long to look for explanations")
      ->capture_default_str()
      ->check(not_below_zero());
  command
      ->add_option(
          "--same-bits", options->same_bits,
          "Instead of judging a case: do these files (.safetensors, .npz, .npy), outputs of several runs, hold the same bits? Names "
          "those that disagree, the first element and where they differ. Runs in other batches may have more rows: the first "
          "rows, which all have, are compared")
      ->expected(2, 1000);
  add_sample(*command, options->sample);
  options->add_threads_and_isa(*command);
  options->add_json(*command);
  command->add_flag("-q,--quiet", options->quiet, "No progress");
  command->add_flag("--progress", options->progress,
                    "Progress of an explanation that takes more than a second, on stderr even where that is no terminal");
  command->footer(
      "Types that NumPy lacks (bf16, f8_e4m3, f8_e5m2, f8_e8m0, f4_e2m1) may come as raw codes: uint16 or uint8 arrays of the same shape\n"
      "(torch: t.view(torch.uint16).numpy()). Missing, unknown, mistyped or misshapen outputs are an error (exit 2), not a failed "
      "verdict. A vacuous verdict, of which nothing or next to nothing could fail, exits with 2 too.\n"
      "`budget used` is the share of the slack that an element's value needs; above 100 % it is wrong, whatever a tolerance would say.");
  command->callback([options, &exit_code] { exit_code = check(*options); });
}

}  // namespace dodona::tools
