#include <fmt/format.h>

#include <map>
#include <utility>

#include "common.h"
#include "oracle/judge/verify.h"
#include "oracle/trust/alarms.h"
#include "oracle/trust/audit.h"
#include "parts.h"

namespace dodona::tools {
namespace {

struct ScoreOptions : ExecOptions {
  int cases = 10500;
  std::vector<std::string> recordings;
  PartOption part;
};

/// Nothing used means that all of them had the same bits, or codes.
std::string largest_share(const oracle::Alarms& alarms) {
  return alarms.max_share() > 0 ? percent(alarms.max_share()) : "bits";
}

/// What golden mode makes of the recorded outputs of each op that has some.
std::map<std::string, oracle::OpSummary> recorded(const std::vector<std::string>& paths, const Exec& exec) {
  std::map<std::string, oracle::OpSummary> found;
  if (paths.empty()) return found;
  for (auto& summary : oracle::summarize(oracle::verify(oracle::find_cases(paths).files, {Mode::golden}, exec)))
    found[summary.op] = std::move(summary);
  return found;
}

std::string recorded_share(const oracle::OpSummary& summary) {
  if (summary.cases == 0) return "";
  return summary.max_share > 0 ? percent(summary.max_share) : "bits";
}

int score(const ScoreOptions& options) {
  options.part.check(options.json);
  const Exec exec = options.exec();
  const std::vector<int> counts = oracle::share_out(options.cases);
  auto of_gpus = recorded(options.recordings, exec);
  Progress progress(options.json || options.quiet);
  io::Json list = io::Json::array();
  fmt::print(
      "{}",
      options.json
          ? ""
          : "| op | faults injected | caught by our judges | by customary checks | honest outputs | rejected | largest share of budget | "
            "recorded outputs | rejected | largest share of budget |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: "
            "|\n");
  std::vector<std::int64_t> positions;
  int injected = 0, caught = 0, customary = 0, cases = 0, rejected = 0, recordings = 0, failing = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (!options.part.takes(i)) continue;
    positions.push_back(static_cast<std::int64_t>(i));
    const Op& op = *registry().all()[i];
    progress.step(i, counts.size(), std::string(op.name()));
    const oracle::Audit audit = oracle::audit_op(op, exec);
    const oracle::Alarms alarms = oracle::raise_alarms(op, counts[i], 0, exec);
    const oracle::OpSummary gpu = of_gpus[std::string(op.name())];
    recordings += gpu.cases, failing += gpu.cases - gpu.passed;
    injected += audit.injected(), caught += audit.caught(), customary += audit.customary();
    cases += alarms.cases, rejected += alarms.rejected();
    if (options.json) {
      list.push_back({{"op", std::string(op.name())},
                      {"injected", audit.injected()},
                      {"caught", audit.caught()},
                      {"customary", audit.customary()},
                      {"cases", alarms.cases},
                      {"false_alarms", alarms.rejected()},
                      {"max_share", alarms.max_share()},
                      {"recorded", gpu.cases},
                      {"recorded_failing", gpu.cases - gpu.passed},
                      {"recorded_max_share", gpu.max_share}});
    } else {
      fmt::print("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", op.name(), audit.injected(), audit.caught(), audit.customary(),
                 alarms.cases, alarms.rejected(), largest_share(alarms), gpu.cases, gpu.cases - gpu.passed, recorded_share(gpu));
    }
  }
  progress.finish();
  if (options.json) {
    io::Json report{{"ops", list}};
    options.part.mark(report, "score", "ops", positions);
    fmt::print("{}\n", io::json_text(report, 2));
  } else {
    fmt::print("| all | {} | {} | {} | {} | {} | | {} | {} | |\n", injected, caught, customary, cases, rejected, recordings, failing);
  }
  return rejected + failing > 0 ? exit_fail : exit_pass;
}

}  // namespace

void add_score(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ScoreOptions>();
  auto* command = app.add_subcommand(
      "score",
      "One Markdown table: faults caught (dodona audit), false alarms (dodona alarms) and recorded outputs (dodona verify), op by op");
  command->add_option("--cases", options->cases, "Cases of all ops together that may raise false alarms")
      ->check(CLI::Range(1, 10000000))
      ->capture_default_str();
  command->add_option("--recordings", options->recordings,
                      "Files and folders of recorded cases to judge as well (default: DODONA_GOLDEN_PATH)");
  options->part.add(*command);
  options->add_threads_and_isa(*command);
  options->add_json(*command);
  command->add_flag("-q,--quiet", options->quiet, "No progress");
  command->callback([options, &exit_code] {
    if (options->recordings.empty()) options->recordings = oracle::golden_path();
    exit_code = score(*options);
  });
}

}  // namespace dodona::tools
