#include <fmt/format.h>

#include <filesystem>

#include "dodona/error.h"
#include "oracle/cases/generate.h"
#include "oracle/records/record.h"
#include "tools/common.h"
#include "tools/ranks/parts.h"
#include "tools/ranks/task_ranks.h"
#include "tools/trail_text.h"

namespace dodona::tools {
namespace {

struct RecordOptions : ExecOptions {
  std::string suite, folder;
  PartOption part;
};

void record(const RecordOptions& options) {
  options.part.check();
  TaskRanks ranks;
  oracle::Suite suite;
  std::optional<oracle::RecordInProgress> making;
  std::vector<std::size_t> missing;
  ranks.begin([&] {
    suite = oracle::read_suite(options.suite);
    std::optional<oracle::RecordPart> part;
    if (options.part.given()) {
      part.emplace(oracle::RecordPart{options.part.index(), options.part.count(), {}});
      part->positions = options.part.select(suite.cases);
    }
    std::string lines = options.folder + "\n";
    for (const oracle::SuiteCase& c : suite.cases) lines += to_string(c.line) + (c.tensors ? " +tensors\n" : "\n");
    if (ranks.shows()) missing = making.emplace(suite, options.folder, part).missing();
    return lines;
  });
  // Rank 0 knows what is there already; the others take what they are given.
  std::vector<double> costs;
  for (const std::size_t i : missing) costs.push_back(oracle::elements_of(to_string(suite.cases[i].line)));
  const Exec exec = options.exec();
  Progress progress(options.json || options.quiet || !ranks.shows());
  const std::size_t resumed = making ? making->resumed() : 0;
  std::size_t done = resumed;
  ranks.share(
      missing, costs, [&](std::size_t i) { return oracle::recorded_case(suite, i, options.folder, exec); },
      [&](std::size_t i, const std::string& recorded) {
        making->keep(i, recorded);
        progress.step(++done, suite.cases.size(), to_string(suite.cases[i].line));
      });
  progress.finish();
  if (!ranks.shows()) return;
  const oracle::Record made = making->finish();
  if (options.json) {
    fmt::print("{}\n", io::json_text({{"path", made.path}, {"suite", made.name}, {"cases", made.cases.size()}, {"resumed", resumed}}, 2));
    return;
  }
  std::string modes;
  for (const Mode mode : suite.modes) modes += (modes.empty() ? "" : " and ") + std::string(name(mode));
  fmt::print("{} cases recorded in {} mode{} to {}{}\n", made.cases.size(), modes, suite.modes.size() > 1 ? "s" : "", made.path,
             resumed > 0 ? fmt::format(" ({} taken over from an interrupted record)", resumed) : "");
}

int diff_trails(const std::string& a, const std::string& b, bool json) {
  std::int64_t same = 0;
  const auto difference = trail::first_difference(trail::TrailReference::open(a), trail::TrailReference::open(b), same);
  if (json) {
    fmt::print("{}\n", io::json_text({{"same", !difference.has_value()},
                                      {"equal_outputs", same},
                                      {"first_difference", difference ? to_json(*difference) : io::Json()}},
                                     2));
  } else if (!difference) {
    fmt::print("all {} outputs are the same\n", same);
  } else {
    fmt::print("{} outputs are the same, then\n", same);
    print_difference(*difference);
  }
  return difference ? exit_fail : exit_pass;
}

int diff(const std::string& a, const std::string& b, bool json) {
  for (const std::string& path : {a, b})
    if (!std::filesystem::exists(path)) throw Error(ErrorCode::bad_file, "", path, "does not exist");
  if (std::filesystem::is_regular_file(a) && std::filesystem::is_regular_file(b)) return diff_trails(a, b, json);
  std::size_t steps = 0;
  const auto difference = oracle::first_difference(a, b, steps);
  if (json) {
    io::Json report{{"same", !difference.has_value()}, {"equal_steps", steps}};
    if (difference)
      report["first_difference"] = {{"line", difference->line},
                                    {"op", difference->op},
                                    {"mode", difference->mode},
                                    {"output", difference->output},
                                    {"what", difference->what}};
    fmt::print("{}\n", io::json_text(report, 2));
  } else if (!difference) {
    fmt::print("all {} steps are the same\n", steps);
  } else {
    fmt::print("{} steps are the same, then\n  {}\n", steps, difference->line);
    if (!difference->output.empty() || !difference->mode.empty())
      fmt::print("  {}{}{}\n", difference->output, difference->output.empty() || difference->mode.empty() ? "" : ", ",
                 difference->mode.empty() ? "" : difference->mode + " mode");
    fmt::print("  {}\n", difference->what);
  }
  return difference ? exit_fail : exit_pass;
}

}  // namespace

void add_record(CLI::App& app, int&) {
  auto options = std::make_shared<RecordOptions>();
  auto* command = app.add_subcommand("record", "Record what a suite of cases gives, to be verified later");
  command->add_option("SUITE", options->suite, "The suite (JSON)")->required();
  command->add_option("-o,--output", options->folder, "The record's folder; an older record in it stays until the new one is whole")
      ->required();
  options->part.add(*command, "a record of its own, for dodona merge -o DIR to join with the other N - 1 parts' folders");
  options->add_threads_and_isa(*command);
  options->add_json(*command);
  command->add_flag("-q,--quiet", options->quiet, "No progress");
  command->footer(
      "A suite: {\"name\": \"nightly\", \"modes\": [\"fast\", \"golden\"], \"tensors\": false,\n"
      "          \"cases\": [\"rmsnorm T=1,7,64 H=7168 --seed 1..3\", {\"line\": \"bmm_fp8 L=1 M=1,16 N=512 K=512\", \"tensors\": true}]}\n"
      "Every value of a line may be a list or a range of whole numbers. Interrupted, the command takes up where it stopped when run "
      "again, also on another number of ranks (mpirun -n N dodona record ...; the folder is one that all ranks see).\n"
      "`dodona verify DIR` recomputes and compares bits; `dodona diff A B` compares two records.");
  command->callback([options] { record(*options); });
}

void add_diff(CLI::App& app, int& exit_code) {
  struct DiffOptions : ExecOptions {
    std::string a, b;
  };
  auto options = std::make_shared<DiffOptions>();
  auto* command = app.add_subcommand("diff", "Compare two records, or two trails of a layer, up to the first output that differs");
  command->add_option("A", options->a, "A record's folder, or a file that dodona layer --trail wrote")->required();
  command->add_option("B", options->b, "The other one")->required();
  options->add_json(*command);
  command->callback([options, &exit_code] { exit_code = diff(options->a, options->b, options->json); });
}

}  // namespace dodona::tools
