#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "common.h"
#include "dodona/error.h"
#include "io/atomic_file.h"
#include "oracle/actual.h"
#include "oracle/make_case.h"
#include "oracle/report.h"

namespace dodona::tools {
namespace {

struct CheckOptions : ExecOptions {
  std::string case_path, actual_path, junit, report;
  bool explain = false;
  double explain_seconds = 60;
};

std::string times(double share) {
  if (std::isinf(share)) return "no budget covers it";
  return share > 10 ? fmt::format("{:.3g} x", share) : percent(share);
}

void print_histogram(const oracle::Statistics& statistics) {
  constexpr double width = 40;
  std::size_t label = 0;
  for (const auto& bin : statistics.ulps) label = std::max(label, bin.label.size());
  // Logarithmic: one wrong element among millions must be seen.
  const double full = std::log2(1.0 + static_cast<double>(statistics.compared));
  for (const auto& bin : statistics.ulps) {
    const auto bar =
        static_cast<std::size_t>(bin.count > 0 ? std::max(1.0, width * std::log2(1.0 + static_cast<double>(bin.count)) / full) : 0);
    fmt::print("    {:>{}}  {:<40} {}\n", bin.label, label, std::string(bar, '#'), bin.count);
  }
}

void print_output(const oracle::OutputCheck& output) {
  const auto& verdict = output.verdict;
  const auto& s = output.statistics;
  const bool good = verdict.outcome == oracle::Outcome::pass || verdict.outcome == oracle::Outcome::known_defect;
  fmt::print("\n{}: {}{}   ({} {}{}, judge {})\n", verdict.name, colored(std::string(name(verdict.outcome)), good ? "32" : "31"),
             verdict.defect.empty() ? "" : " " + verdict.defect, name(output.dtype), to_string(output.shape), compared_as(output),
             name(verdict.judge));
  if (verdict.outcome == oracle::Outcome::vacuous)
    fmt::print("  nearly every element would pass as zero too: this case cannot tell right from wrong\n");
  if (verdict.failing > 0) {
    fmt::print("  failing         {} of {} elements ({})\n", verdict.failing, verdict.compared,
               percent(static_cast<double>(verdict.failing) / static_cast<double>(verdict.compared)));
    fmt::print("  where           {}\n", verdict.pattern);
    for (std::size_t i = 0; i < output.relations.size(); ++i) fmt::print("  {:<15} {}\n", i == 0 ? "what" : "", output.relations[i]);
  }
  if (verdict.compared < verdict.elements)
    fmt::print("  not compared    {} elements that the contract leaves open\n", verdict.elements - verdict.compared);
  if (verdict.judge != Judge::exact)
    fmt::print("  budget used     max {}, p99.9 {}, median {}\n", times(s.share_max), times(s.share_p999), times(s.share_median));
  fmt::print("  others say      torch.testing.assert_close {} (rtol {:g}, atol {:g}{}); relative L2 {:.3g}; cosine {:.9g}\n",
             s.assert_close.passes() ? "passes" : "fails", s.assert_close.rtol, s.assert_close.atol,
             s.assert_close.passes() ? "" : fmt::format(", {} mismatched", s.assert_close.mismatched), s.relative_l2, s.cosine);
  if (verdict.differing == 0) {
    fmt::print("  bits            all equal golden's\n");
    return;
  }
  fmt::print("  largest error   {:.4g} absolute, {:.4g} relative\n", s.max_abs, s.max_rel);
  fmt::print("  ulps from golden\n");
  print_histogram(s);
  std::vector<std::vector<std::string>> rows;
  for (const auto& element : verdict.worst) {
    const std::int64_t ulps = oracle::ulps_of(verdict, element.linear);
    rows.push_back({to_string(element.index), fmt::format("{:.9g}", element.golden), fmt::format("{:.9g}", element.actual),
                    ulps < 0 ? "NaN" : std::to_string(ulps), times(element.share)});
  }
  if (rows.empty()) return;
  fmt::print("  {}\n", verdict.failing > 0 ? "worst elements" : "elements that use most of their budget");
  const std::string text = table({"index", "golden", "actual", "ulps", "budget"}, rows, {false, true, true, true, true});
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    fmt::print("    {}\n", text.substr(at, end - at));
    at = end + 1;
  }
}

void write_text(const std::string& path, const std::string& text) {
  if (!path.empty()) io::write_file(path, std::as_bytes(std::span(text.data(), text.size())));
}

int check(const CheckOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  ExecOptions plain = options;
  plain.mode.clear();
  const Exec exec = plain.exec(Mode::golden);
  const auto mode = options.mode.empty() ? Mode::golden : parse_mode(options.mode).value_or(Mode::fast);
  if (mode == Mode::fast) throw Error(ErrorCode::bad_option, "", "--mode", "must be golden or hopper, got '" + options.mode + "'");
  oracle::Case c = oracle::load_case(options.case_path, exec.threads);
  if (options.actual_path.empty()) oracle::complete(c, exec);
  const oracle::NamedTensors actual = options.actual_path.empty() ? c.outputs : oracle::load_actual(options.actual_path, *c.op, c.inputs);
  if (actual.empty())
    throw Error(ErrorCode::bad_file, std::string(c.op->name()), c.path, "holds no outputs, and no file of actual ones is given");
  Progress progress(options.json || options.quiet);
  const oracle::ExplainOptions explaining{
      options.explain, options.explain_seconds,
      [&](std::size_t done, std::size_t total, const std::string& mistake) { progress.step(done, total, mistake); }};
  oracle::CheckResult result = oracle::check(c, actual, {mode, exec}, explaining);
  progress.finish();
  result.actual_path = options.actual_path;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  write_text(options.junit, oracle::junit_xml(result, seconds));
  write_text(options.report, oracle::html_page(result));
  const bool good = result.outcome == oracle::Outcome::pass || result.outcome == oracle::Outcome::known_defect;
  if (options.json) {
    io::Json json = oracle::to_json(result);
    json["seconds"] = seconds;
    fmt::print("{}\n", io::json_text(json, 2));
    return good ? exit_pass : exit_fail;
  }
  fmt::print("{}   (contract version {})\n", result.case_name, result.contract_version);
  for (const std::string& note : result.notes) fmt::print("note: {}\n", note);
  for (const auto& output : result.outputs) print_output(output);
  if (result.explained) {
    fmt::print("\nexplanation\n");
    for (const std::string& line : lines_of(*result.explained)) fmt::print("  {}\n", line);
  }
  fmt::print("\n{}\n", colored(std::string(name(result.outcome)), good ? "32" : "31"));
  if (!good)
    fmt::print("reproduce: {}dodona check {}{}\n", result.line.empty() ? "" : "dodona gen " + result.line + " -o CASE; ",
               result.line.empty() ? options.case_path : "CASE", options.actual_path.empty() ? "" : " " + options.actual_path);
  if (!options.report.empty()) fmt::print("report: {}\n", options.report);
  return good ? exit_pass : exit_fail;
}

}  // namespace

void add_check(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<CheckOptions>();
  auto* command = app.add_subcommand("check", "Judge a kernel's outputs for a case, and say where, how and why they are wrong");
  command->add_option("CASE", options->case_path, "A case file (dodona gen, or a recording)")->required();
  command->add_option("ACTUAL", options->actual_path,
                      "The kernel's outputs: .safetensors or .npz with the op's output names (or out.NAME), or .npy for an op with one "
                      "output; without it the outputs in the case file are judged");
  command->add_option("--mode", options->mode, "What they are held against: golden (default: budgets) or hopper (equal bits)");
  command->add_option("--junit", options->junit, "Write the verdicts as JUnit XML to this file");
  command->add_option("--report", options->report, "Write a self-contained HTML page with pictures to this file");
  command->add_flag("--explain", options->explain,
                    "On failure, replay the case under the other dialects and every applicable well-known mistake, and name those that "
                    "reproduce the outputs");
  command->add_option("--explain-seconds", options->explain_seconds, "How long to look for explanations")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  options->add_threads_and_isa(*command);
  options->add_json(*command);
  command->add_flag("-q,--quiet", options->quiet, "No progress");
  command->footer(
      "Types that NumPy lacks (bf16, f8_e4m3, f8_e5m2, f8_e8m0, f4_e2m1) may come as raw codes: uint16 or uint8 arrays of the same shape\n"
      "(torch: t.view(torch.uint16).numpy()). Missing, unknown, mistyped or misshapen outputs are an error (exit 2), not a failed "
      "verdict.\n"
      "`budget used` is the share of the slack that an element's value needs; above 100 % it is wrong, whatever a tolerance would say.");
  command->callback([options, &exit_code] { exit_code = check(*options); });
}

}  // namespace dodona::tools
