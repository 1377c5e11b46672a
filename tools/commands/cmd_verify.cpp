#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "dodona/error.h"
#include "oracle/cases/generate.h"
#include "oracle/judge/vacuous.h"
#include "oracle/judge/verify.h"
#include "oracle/records/record.h"
#include "tools/common.h"
#include "tools/ranks/parts.h"
#include "tools/ranks/suite_parcels.h"
#include "tools/ranks/task_ranks.h"
#include "tools/sample_options.h"

namespace dodona::tools {
namespace {

struct VerifyOptions : ExecOptions {
  std::vector<std::string> paths;
  std::string op;
  bool all_cases = false;
  oracle::Sample sample;
  PartOption part;
};

std::vector<Mode> modes_of(const VerifyOptions& options) {
  if (options.mode != "all") {
    if (!options.mode.empty() && !parse_mode(options.mode))
      throw Error(ErrorCode::bad_option, "", "--mode", "must be all, " + either_of(mode_list) + ", got '" + options.mode + "'");
    return {options.mode_asked_for().value_or(Mode::golden)};
  }
  std::vector<Mode> modes{Mode::golden, Mode::fast};
  for (const Mode mode : mode_list)
    if (of_a_gpu(mode)) modes.push_back(mode);
  return modes;
}

io::Json to_json(const oracle::CaseResult& result) {
  io::Json json{{"path", result.path}, {"op", result.op}, {"case", result.name}, {"mode", std::string(name(result.mode))}};
  if (result.no_such_mode) json["outcome"] = "no such mode";
  if (!result.error.empty()) json["outcome"] = "error", json["error"] = result.error;
  if (!result.ignored.empty()) json["ignored"] = result.ignored;
  if (!result.verdict) return json;
  json["outcome"] = std::string(oracle::name(result.verdict->outcome));
  json["max_share"] = result.verdict->max_share();
  for (const auto& output : result.verdict->outputs) {
    io::Json worst = io::Json::array();
    for (const auto& element : output.worst)
      worst.push_back({{"index", std::vector<std::int64_t>(element.index.begin(), element.index.end())},
                       {"golden", element.golden},
                       {"actual", element.actual},
                       {"share", std::isfinite(element.share) ? io::Json(element.share) : io::Json("inf")}});
    io::Json entry{{"name", output.name},
                   {"judge", std::string(name(output.judge))},
                   {"outcome", std::string(oracle::name(output.outcome))},
                   {"compared", output.compared},
                   {"differing", output.differing},
                   {"failing", output.failing},
                   {"max_share", output.max_share},
                   {"worst", worst}};
    if (const auto& sample = result.samples.at(json["outputs"].size()); !sample.empty()) entry["sample"] = sample;
    if (!output.pattern.empty()) entry["pattern"] = output.pattern;
    if (!output.defect.empty()) entry["known_defect"] = output.defect;
    json["outputs"].push_back(entry);
  }
  return json;
}

std::string_view failing_how(Judge judge) {
  switch (judge) {
    case Judge::exact: return " (bits differ)";
    case Judge::grouping: return " their groups";
    default: return " the budget";
  }
}

void print_failure(const oracle::CaseResult& result) {
  fmt::print("\n{} ({} mode)\n", result.path, name(result.mode));
  if (!result.error.empty()) {
    fmt::print("  cannot judge: {}\n", result.error);
    return;
  }
  for (const auto& output : result.verdict->outputs) {
    if (output.outcome == oracle::Outcome::pass) continue;
    if (output.outcome == oracle::Outcome::vacuous) {
      fmt::print("  {}: vacuous: {}\n", output.name, why_vacuous(output));
      continue;
    }
    fmt::print("  {} ({}): {} of {} elements outside{}: {}\n", output.name, name(output.judge), output.failing, output.compared,
               failing_how(output.judge), output.pattern);
    for (const auto& element : output.worst)
      if (element.share > 1)
        fmt::print("    {} golden {:.9g}  actual {:.9g}  {}\n", to_string(element.index), element.golden, element.actual,
                   std::isfinite(element.share) ? fmt::format("{:.3g} times the budget", element.share) : "nothing is open here");
  }
  fmt::print("  reproduce: dodona verify --mode {} {}\n", name(result.mode), result.path);
}

/// The mode that a record is verified in: one, or all that it holds.
std::optional<Mode> record_mode(const VerifyOptions& options) {
  const std::string text = options.gpu.empty() ? options.mode : options.gpu;
  if (text.empty() || text == "all") return std::nullopt;
  const auto mode = parse_mode(text);
  if (!mode || of_a_gpu(*mode))
    throw Error(ErrorCode::bad_option, "", "--mode", "must be golden, fast or all for a record, got '" + text + "'");
  return mode;
}

int verify_record(const std::string& path, const VerifyOptions& options, TaskRanks& ranks) {
  const auto mode = record_mode(options);
  ExecOptions plain = options;
  plain.mode.clear(), plain.gpu.clear();
  oracle::Record record;
  std::vector<std::int64_t> positions;
  std::vector<double> costs;
  ranks.begin([&] {
    record = oracle::read_record(path);
    if (!options.op.empty()) std::erase_if(record.cases, [&](const auto& c) { return !c.line.starts_with(options.op + " "); });
    positions = options.part.select(record.cases);
    std::string lines;
    for (const auto& c : record.cases) {
      lines += c.line + "\n";
      costs.push_back(oracle::elements_of(c.line));
    }
    return lines;
  });
  Progress progress(options.quiet || options.json || !ranks.shows());
  const Exec exec = plain.exec();
  const auto results = ranks.results(
      costs, [&](std::size_t i) { return oracle::verify_case(record, i, mode, exec); },
      [&](std::size_t done, std::size_t task) { progress.step(done, costs.size(), record.cases[task].line); });
  progress.finish();
  if (!ranks.shows()) return exit_pass;
  std::map<oracle::CaseState, int> counts;
  for (const auto& result : results) ++counts[result.state];
  const int same = counts[oracle::CaseState::same], different = counts[oracle::CaseState::different];
  // Cases of an old contract were compared with nothing.
  const int exit_code = different > 0 ? exit_fail : same == static_cast<int>(results.size()) && same > 0 ? exit_pass : exit_cannot;
  if (options.json) {
    io::Json cases = io::Json::array();
    for (const auto& result : results) {
      io::Json entry{{"line", result.line}, {"state", std::string(name(result.state))}};
      if (!result.remark.empty()) entry["remark"] = result.remark;
      if (result.difference)
        entry["difference"] = {{"op", result.difference->op},
                               {"mode", result.difference->mode},
                               {"output", result.difference->output},
                               {"what", result.difference->what}};
      cases.push_back(entry);
    }
    io::Json report{{"record", path}, {"cases", cases}, {"same", same}, {"different", different}, {"exit_code", exit_code}};
    options.part.mark(report, "verify of a record", "cases", positions);
    fmt::print("{}\n", io::json_text(report, 2));
    return exit_code;
  }
  bool first = true;
  for (const auto& result : results) {
    if (result.state == oracle::CaseState::same) continue;
    fmt::print("{}{}: {}\n", first ? "first: " : "", name(result.state), result.line);
    first = false;
    if (!result.remark.empty()) fmt::print("  {}\n", result.remark);
    if (result.difference) fmt::print("  {}, {} mode: {}\n", result.difference->output, result.difference->mode, result.difference->what);
  }
  fmt::print("{}: {} of {} cases give the recorded bits", path, same, results.size());
  for (const auto& [state, count] : counts)
    if (state != oracle::CaseState::same && count > 0) fmt::print("; {} {}", count, name(state));
  fmt::print("\n");
  return exit_code;
}

/// Where the file of each result stands among all.
std::vector<std::int64_t> positions_of(const std::vector<oracle::CaseResult>& results, const std::vector<std::string>& files,
                                       const std::vector<std::int64_t>& of_files) {
  std::map<std::string, std::int64_t> at;
  for (std::size_t i = 0; i < files.size(); ++i) at[files[i]] = of_files[i];
  std::vector<std::int64_t> positions;
  for (const auto& result : results) positions.push_back(at.at(result.path));
  return positions;
}

/// Bytes to read and to judge.
double cost_of_file(const std::string& path) {
  std::error_code unreadable;
  const auto bytes = std::filesystem::file_size(path, unreadable);
  return unreadable ? 0 : static_cast<double>(bytes);
}

/// How many of each kind.
struct Tally {
  int judged = 0, failed = 0, vacuous = 0, errors = 0;

  explicit Tally(const std::vector<oracle::CaseResult>& results) {
    for (const auto& result : results) {
      if (!result.error.empty()) ++errors;
      if (!result.verdict) continue;
      ++judged;
      failed += result.verdict->outcome == oracle::Outcome::fail ? 1 : 0;
      vacuous += result.verdict->outcome == oracle::Outcome::vacuous ? 1 : 0;
    }
  }
  int exit_code() const {
    if (errors > 0 || judged == 0) return exit_cannot;
    return failed > 0 ? exit_fail : vacuous > 0 ? exit_cannot : exit_pass;
  }
};

void print_table(const std::vector<oracle::CaseResult>& results) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& row : oracle::summarize(results)) {
    std::string verdict = row.errors > 0 ? "cannot judge" : std::string(oracle::name(row.outcome));
    for (const auto& defect : row.defects) verdict += ": " + defect;
    rows.push_back({row.op, fmt::format("{}/{}", row.passed, row.cases), std::string(name(row.mode)), row.judges,
                    of_a_gpu(row.mode) ? "bits" : percent(row.max_share), verdict});
  }
  fmt::print("{}", table({"op", "cases", "mode", "judge", "budget used", "verdict"}, rows, {false, true, false, false, true, false}));
}

/// A line for each op, what is wrong in full, and the sums.
void print_results(const std::vector<oracle::CaseResult>& results, const std::vector<Mode>& modes, const oracle::Sample& sample,
                   int skipped) {
  print_table(results);
  for (const auto& result : results) {
    const bool bad =
        !result.error.empty() ||
        (result.verdict && (result.verdict->outcome == oracle::Outcome::fail || result.verdict->outcome == oracle::Outcome::vacuous));
    if (bad) print_failure(result);
  }
  for (const Mode mode : modes) {
    const bool held =
        std::any_of(results.begin(), results.end(), [mode](const auto& result) { return result.mode == mode && result.verdict; });
    if (held && !caveat(mode).empty()) fmt::print("note: {}\n", caveat(mode));
  }
  if (sample.rows > 0)
    fmt::print("\njudged: at most {} rows of each output, seed {}; nothing is said of the others\n", sample.rows, sample.seed);
  const Tally tally(results);
  const auto without_mode = std::count_if(results.begin(), results.end(), [](const auto& result) { return result.no_such_mode; });
  fmt::print("\n{} verdict{}: {} pass, {} fail", tally.judged, tally.judged == 1 ? "" : "s", tally.judged - tally.failed - tally.vacuous,
             tally.failed);
  if (tally.vacuous > 0) fmt::print(", {} vacuous", tally.vacuous);
  fmt::print("; {} case{} could not be judged", tally.errors, tally.errors == 1 ? "" : "s");
  if (without_mode > 0) fmt::print("; {} skipped, of no such mode or of another GPU", without_mode);
  if (skipped > 0) fmt::print("; {} files of ops outside the inventory", skipped);
  fmt::print("\n");
}

int verify(const VerifyOptions& options) {
  options.part.check(options.json);
  const auto records = std::count_if(options.paths.begin(), options.paths.end(), [](const auto& path) { return oracle::is_record(path); });
  if (records > 0) {
    if (options.paths.size() > 1) throw Error(ErrorCode::bad_option, "", "verify", "takes one record alone, or case files and folders");
    TaskRanks ranks;
    return verify_record(options.paths.front(), options, ranks);
  }
  std::vector<std::string> paths = options.paths;
  if (paths.empty()) paths = oracle::golden_path();
  if (paths.empty()) throw Error(ErrorCode::bad_option, "", "verify", "needs a case file or folder (or DODONA_GOLDEN_PATH)");
  if (!options.op.empty()) registry().at(options.op);
  const auto modes = modes_of(options);
  ExecOptions plain = options;
  plain.mode.clear(), plain.gpu.clear();
  const Exec exec = plain.exec();
  TaskRanks ranks;
  oracle::CaseList list;
  std::vector<std::int64_t> of_files;
  std::vector<double> costs;
  ranks.begin([&] {
    list = oracle::find_cases(paths, options.op);
    if (list.files.empty())
      throw Error(ErrorCode::bad_file, "", fmt::format("{}", fmt::join(paths, ", ")),
                  "holds no case file" + (options.op.empty() ? " of an op of the inventory" : " of " + options.op));
    of_files = options.part.select(list.files);
    std::string files;
    for (const std::string& file : list.files) {
      files += file + "\n";
      costs.push_back(cost_of_file(file));
    }
    return files;
  });
  Progress progress(options.quiet || options.json || !ranks.shows());
  const auto by_file = ranks.results(
      costs, [&](std::size_t i) { return oracle::verify_file(list.files[i], modes, exec, options.sample); },
      [&](std::size_t done, std::size_t task) { progress.step(done, costs.size(), list.files[task]); });
  progress.finish();
  if (!ranks.shows()) return exit_pass;
  std::vector<oracle::CaseResult> results;
  for (const auto& of_file : by_file) results.insert(results.end(), of_file.begin(), of_file.end());
  const Tally tally(results);
  if (options.json) {
    io::Json cases = io::Json::array();
    for (const auto& result : results) cases.push_back(to_json(result));
    io::Json report{
        {"cases", cases},         {"judged", tally.judged},          {"failed", tally.failed},        {"vacuous", tally.vacuous},
        {"errors", tally.errors}, {"unknown_ops", list.unknown_ops}, {"exit_code", tally.exit_code()}};
    options.part.mark(report, "verify", "cases", positions_of(results, list.files, of_files));
    fmt::print("{}\n", io::json_text(report, 2));
  } else {
    print_results(results, modes, options.sample, list.skipped);
  }
  return tally.exit_code();
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<VerifyOptions>();
  auto* command = app.add_subcommand("verify", "Judge recorded outputs: is this what the kernels should have returned?");
  command->add_option("PATH", options->paths,
                      "Case files, folders that are searched for them, or one record's folder (default: DODONA_GOLDEN_PATH)");
  options->add_mode(
      *command,
      "What the recording is held against: golden (default: budgets around the double-precision result), fast (the same, and our fast "
      "outputs must pass it too), the bits of the GPU that made it (hopper, blackwell, ada, ampere), all. A record: its bits in golden, "
      "fast "
      "or all modes (default)");
  command->add_option("--op", options->op, "Only this op's cases");
  add_sample(*command, options->sample);
  options->part.add(*command);
  options->add_threads_and_isa(*command);
  options->add_json(*command);
  command->add_flag("-q,--quiet", options->quiet, "No progress");
  command->callback([options, &exit_code] { exit_code = verify(*options); });
}

}  // namespace dodona::tools
