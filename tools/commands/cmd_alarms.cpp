#include <fmt/format.h>

#include "dodona/error.h"
#include "oracle/trust/alarms.h"
#include "tools/common.h"
#include "tools/ranks/parts.h"
#include "tools/ranks/suite_parcels.h"
#include "tools/ranks/task_ranks.h"

namespace dodona::tools {
namespace {

constexpr int default_cases = 10500;  ///< of all ops together
constexpr std::size_t shown = 3;      ///< false alarms of an op that are listed

struct AlarmsOptions : ExecOptions {
  std::string op;
  int cases = default_cases;
  std::uint64_t seed = 0;
  PartOption part;
};

std::string share_of(const oracle::Alarms& alarms, oracle::Producer producer) {
  return alarms.of(producer).outputs > 0 ? percent(alarms.of(producer).max_share) : "-";
}

std::vector<std::string> cells(const std::string& name, const oracle::Alarms& alarms) {
  std::vector<std::string> row{name, std::to_string(alarms.cases), std::to_string(alarms.rejected()), std::to_string(alarms.vacuous)};
  for (const oracle::Producer producer : oracle::producers) row.push_back(share_of(alarms, producer));
  return row;
}

io::Json to_json(const Op& op, const oracle::Alarms& alarms) {
  io::Json made = io::Json::array(), rejected = io::Json::array();
  for (const oracle::Producer producer : oracle::producers) {
    const oracle::ProducerTally& tally = alarms.of(producer);
    if (tally.outputs > 0)
      made.push_back({{"producer", std::string(oracle::name(producer))},
                      {"outputs", tally.outputs},
                      {"max_share", tally.max_share},
                      {"case", tally.line}});
  }
  for (const oracle::FalseAlarm& alarm : alarms.false_alarms)
    rejected.push_back({{"producer", std::string(oracle::name(alarm.producer))},
                        {"case", alarm.line},
                        {"output", alarm.output},
                        {"pattern", alarm.pattern}});
  return {{"op", std::string(op.name())}, {"cases", alarms.cases}, {"rejected", alarms.rejected()},
          {"vacuous", alarms.vacuous},    {"producers", made},     {"false_alarms", rejected}};
}

void print_details(const Op& op, const oracle::Alarms& alarms, bool all) {
  for (std::size_t i = 0; i < alarms.false_alarms.size() && (all || i < shown); ++i) {
    const oracle::FalseAlarm& alarm = alarms.false_alarms[i];
    fmt::print("{}: {} {} in {}, {}: {}\n", colored("FALSE ALARM", "31"), op.name(), oracle::name(alarm.producer), alarm.output,
               alarm.pattern, alarm.line);
  }
  if (!all) return;
  for (const oracle::Producer producer : oracle::producers)
    if (const oracle::ProducerTally& tally = alarms.of(producer); tally.max_share > 0)
      fmt::print("largest share of {}: {} in {}\n", oracle::name(producer), percent(tally.max_share), tally.line);
  for (const std::string& line : alarms.vacuous_lines) fmt::print("vacuous: {}\n", line);
}

int raise(const AlarmsOptions& options) {
  options.part.check(options.json);
  const Exec exec = options.exec();
  TaskRanks ranks;
  std::vector<std::pair<const Op*, int>> tasks;
  std::vector<std::int64_t> positions;
  std::vector<double> costs;
  ranks.begin([&] {
    if (options.op.empty()) {
      const std::vector<int> counts = oracle::share_out(options.cases);
      for (std::size_t i = 0; i < counts.size(); ++i) tasks.emplace_back(registry().all()[i].get(), counts[i]);
    } else {
      tasks.emplace_back(&registry().at(options.op), options.cases);
    }
    positions = options.part.select(tasks);
    std::string text = std::to_string(options.seed) + "\n";
    for (const auto& [op, count] : tasks) {
      text += fmt::format("{} {}\n", op->name(), count);
      costs.push_back(oracle::elements_of(*op) * count);
    }
    return text;
  });
  Progress progress(options.json || options.quiet || !ranks.shows());
  const auto found = ranks.results(
      costs,
      [&](std::size_t i) {
        const auto& [op, count] = tasks[i];
        return oracle::raise_alarms(*op, count, options.seed, exec, [&, name = std::string(op->name()), total = count](int done) {
          if (ranks.alone()) progress.step(static_cast<std::size_t>(done), static_cast<std::size_t>(total), name);
        });
      },
      [&](std::size_t done, std::size_t task) {
        if (!ranks.alone()) progress.step(done, tasks.size(), std::string(tasks[task].first->name()));
      });
  progress.finish();
  if (!ranks.shows()) return exit_pass;
  io::Json list = io::Json::array();
  std::vector<std::vector<std::string>> rows;
  int rejected = 0, cases = 0;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    rejected += found[i].rejected();
    cases += found[i].cases;
    rows.push_back(cells(std::string(tasks[i].first->name()), found[i]));
    if (options.json) list.push_back(to_json(*tasks[i].first, found[i]));
  }
  const int exit_code = rejected > 0 ? exit_fail : exit_pass;
  if (options.json) {
    io::Json report{{"cases", cases}, {"rejected", rejected}, {"ops", list}, {"exit_code", exit_code}};
    options.part.mark(report, "alarms", "ops", positions);
    fmt::print("{}\n", io::json_text(report, 2));
    return exit_code;
  }
  std::vector<std::string> header{"op", "cases", "rejected", "vacuous"};
  for (const oracle::Producer producer : oracle::producers) header.emplace_back(oracle::name(producer));
  fmt::print("{}{} cases, {} rejected; of each producer the largest share of the budget\n",
             table(header, rows, {false, true, true, true, true, true, true, true}), cases, rejected);
  for (std::size_t i = 0; i < tasks.size(); ++i) print_details(*tasks[i].first, found[i], tasks.size() == 1);
  return exit_code;
}

}  // namespace

void add_alarms(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<AlarmsOptions>();
  auto* command =
      app.add_subcommand("alarms", "Judge outputs that are right, made in other ways: is any rejected, and how much budget do they use?");
  command->add_option("OP", options->op, "Only this op, with all that is to be said of it (default: every op)");
  command->add_option("--cases", options->cases, "Cases, of all ops together")->check(CLI::Range(1, 10000000))->capture_default_str();
  command->add_option("--seed", options->seed, "Other cases")->capture_default_str();
  options->part.add(*command);
  options->add_threads_and_isa(*command);
  options->add_json(*command);
  command->add_flag("-q,--quiet", options->quiet, "No progress");
  command->footer(
      "Outputs come from fast mode, from plain fp32 loops in two other orders of summation, from sums as tensor cores add, from "
      "hopper\n"
      "mode and from blackwell mode. Exit code 1 when any is rejected.");
  command->callback([options, &exit_code] { exit_code = raise(*options); });
}

}  // namespace dodona::tools
