#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <utility>

#include "oracle/judge/verify.h"
#include "oracle/trust/alarms.h"
#include "oracle/trust/audit.h"
#include "tools/common.h"
#include "tools/ranks/parts.h"
#include "tools/ranks/suite_parcels.h"
#include "tools/ranks/task_ranks.h"

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

/// The counts of an op's audit.
struct Injected {
  int all = 0, caught = 0, customary = 0;
};
void fields(auto& parcel, Injected& i) {
  parcel(i.all, i.caught, i.customary);
}

/// One of three kinds of work: the faults of an op, its false alarms, a recorded file.
struct Task {
  const Op* op = nullptr;
  int cases = 0;  ///< that may raise false alarms; 0: the faults
  std::string file = {};
  double cost = 0;

  std::string text() const { return op == nullptr ? file : fmt::format("{}{}", op->name(), cases > 0 ? fmt::format(" {}", cases) : ""); }
};
struct Done {
  Injected injected;
  oracle::Alarms alarms;
  std::vector<oracle::CaseResult> recorded;
};
void fields(auto& parcel, Done& d) {
  parcel(d.injected, d.alarms, d.recorded);
}

Done carried_out(const Task& task, const Exec& exec) {
  Done done;
  if (task.op == nullptr) {
    done.recorded = oracle::verify_file(task.file, {Mode::golden}, exec);
  } else if (task.cases > 0) {
    done.alarms = oracle::raise_alarms(*task.op, task.cases, 0, exec);
  } else {
    const oracle::Audit audit = oracle::audit_op(*task.op, exec);
    done.injected = {audit.injected(), audit.caught(), audit.customary()};
  }
  return done;
}

/// The recorded files first, then two tasks for each op.
std::vector<Task> tasks_of(const std::vector<std::string>& files, const std::vector<const Op*>& ops, const std::vector<int>& counts) {
  // Faults of an op are injected into some lines, dozens into each.
  constexpr double injections = 300;
  std::vector<Task> tasks;
  for (const std::string& file : files) tasks.push_back({.file = file, .cost = static_cast<double>(std::filesystem::file_size(file))});
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const double elements = oracle::elements_of(*ops[i]);
    tasks.push_back({.op = ops[i], .cost = elements * injections});
    tasks.push_back({.op = ops[i], .cases = counts[i], .cost = elements * counts[i]});
  }
  return tasks;
}

std::string recorded_share(const oracle::OpSummary& summary) {
  if (summary.cases == 0) return "";
  return summary.max_share > 0 ? percent(summary.max_share) : "bits";
}

int score(const ScoreOptions& options) {
  options.part.check(options.json);
  const Exec exec = options.exec();
  TaskRanks ranks;
  std::vector<const Op*> ops;
  std::vector<int> counts;
  std::vector<std::int64_t> positions;
  std::vector<Task> tasks;
  std::size_t files = 0;
  ranks.begin([&] {
    const std::vector<int> all = oracle::share_out(options.cases);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!options.part.takes(i)) continue;
      positions.push_back(static_cast<std::int64_t>(i));
      ops.push_back(registry().all()[i].get());
      counts.push_back(all[i]);
    }
    std::vector<std::string> recorded;
    if (!options.recordings.empty()) recorded = oracle::find_cases(options.recordings).files;
    files = recorded.size();
    tasks = tasks_of(recorded, ops, counts);
    std::string text;
    for (const Task& task : tasks) text += task.text() + "\n";
    return text;
  });
  std::vector<double> costs;
  for (const Task& task : tasks) costs.push_back(task.cost);
  Progress progress(options.json || options.quiet || !ranks.shows());
  const std::vector<Done> found = ranks.results(
      costs, [&](std::size_t i) { return carried_out(tasks[i], exec); },
      [&](std::size_t done, std::size_t task) { progress.step(done, tasks.size(), tasks[task].text()); });
  progress.finish();
  if (!ranks.shows()) return exit_pass;
  std::vector<oracle::CaseResult> results;
  for (std::size_t i = 0; i < files; ++i) results.insert(results.end(), found[i].recorded.begin(), found[i].recorded.end());
  std::map<std::string, oracle::OpSummary> of_gpus;
  for (auto& summary : oracle::summarize(results)) of_gpus[summary.op] = std::move(summary);
  io::Json list = io::Json::array();
  fmt::print(
      "{}",
      options.json
          ? ""
          : "| op | faults injected | caught by our judges | by customary checks | honest outputs | rejected | largest share of budget | "
            "recorded outputs | rejected | largest share of budget |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: "
            "|\n");
  int injected = 0, caught = 0, customary = 0, cases = 0, rejected = 0, recordings = 0, failing = 0;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Op& op = *ops[i];
    const Injected& audit = found[files + 2 * i].injected;
    const oracle::Alarms& alarms = found[files + 2 * i + 1].alarms;
    const oracle::OpSummary gpu = of_gpus[std::string(op.name())];
    recordings += gpu.cases, failing += gpu.cases - gpu.passed;
    injected += audit.all, caught += audit.caught, customary += audit.customary;
    cases += alarms.cases, rejected += alarms.rejected();
    if (options.json) {
      list.push_back({{"op", std::string(op.name())},
                      {"injected", audit.all},
                      {"caught", audit.caught},
                      {"customary", audit.customary},
                      {"cases", alarms.cases},
                      {"false_alarms", alarms.rejected()},
                      {"max_share", alarms.max_share()},
                      {"recorded", gpu.cases},
                      {"recorded_failing", gpu.cases - gpu.passed},
                      {"recorded_max_share", gpu.max_share}});
    } else {
      fmt::print("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", op.name(), audit.all, audit.caught, audit.customary, alarms.cases,
                 alarms.rejected(), largest_share(alarms), gpu.cases, gpu.cases - gpu.passed, recorded_share(gpu));
    }
  }
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
