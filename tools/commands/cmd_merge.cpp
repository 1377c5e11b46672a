#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "dodona/error.h"
#include "io/atomic_file.h"
#include "oracle/records/record.h"
#include "tools/ranks/parts.h"

namespace dodona::tools {
namespace {

struct Part {
  std::string path;
  io::Json report;
  std::string command, list;
  std::int64_t index = 0, count = 0;
  std::vector<std::int64_t> positions;
};

[[noreturn]] void broken(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::bad_file, "", path, what);
}

Part read(const std::string& path) {
  Part part{.path = path, .report = io::read_json(path)};
  const char* const expected = "is no part of a report, expected what --part I/N --json printed";
  if (!part.report.is_object() || !part.report.contains("part")) broken(path, expected);
  try {
    const io::Json said = part.report.at("part");
    part.command = said.at("command").get<std::string>();
    part.list = said.at("list").get<std::string>();
    part.index = said.at("index").get<std::int64_t>();
    part.count = said.at("count").get<std::int64_t>();
    part.positions = said.at("positions").get<std::vector<std::int64_t>>();
    if (part.report.at(part.list).size() != part.positions.size())
      broken(path,
             "has " + std::to_string(part.report.at(part.list).size()) + " entries, expected " + std::to_string(part.positions.size()));
  } catch (const io::Json::exception&) {
    broken(path, expected);
  }
  return part;
}

/// All parts of one report, each once.
void check(std::vector<Part>& parts) {
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.index < b.index; });
  const Part& first = parts.front();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    if (part.command != first.command || part.count != first.count)
      broken(part.path, fmt::format("is part {}/{} of dodona {}, expected one of {} of dodona {}, as {}", part.index, part.count,
                                    part.command, first.count, first.command, first.path));
    if (i > 0 && parts[i - 1].index == part.index) broken(part.path, fmt::format("is part {}, as {} is", part.index, parts[i - 1].path));
  }
  for (std::int64_t index = 1; index <= first.count; ++index)
    if (index > static_cast<std::int64_t>(parts.size()) || parts[static_cast<std::size_t>(index - 1)].index != index)
      throw Error(ErrorCode::missing_argument, "", "merge",
                  fmt::format("lacks part {}/{} of dodona {}", index, first.count, first.command));
}

/// Numbers are counts, which add up; all else must be the same in every part.
io::Json joined(const std::vector<Part>& parts) {
  const Part& first = parts.front();
  io::Json report = first.report;
  report.erase("part");
  std::vector<std::pair<std::int64_t, io::Json>> entries;
  for (const Part& part : parts) {
    const io::Json& list = part.report.at(part.list);
    for (std::size_t i = 0; i < list.size(); ++i) entries.emplace_back(part.positions[i], list[i]);
    if (&part == &first) continue;
    for (auto& [key, value] : report.items()) {
      const io::Json* const theirs = part.report.contains(key) ? &part.report.at(key) : nullptr;
      if (key == part.list || key == "exit_code") continue;
      if (theirs == nullptr || theirs->is_number() != value.is_number()) broken(part.path, "has no " + key + " like " + first.path);
      if (value.is_number())
        value = value.get<std::int64_t>() + theirs->get<std::int64_t>();
      else if (*theirs != value)
        broken(part.path, "has another " + key + " than " + first.path);
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  io::Json list = io::Json::array();
  for (auto& [position, entry] : entries) list.push_back(std::move(entry));
  report[first.list] = std::move(list);
  return report;
}

std::int64_t count(const io::Json& report, const char* key) {
  return report.at(key).get<std::int64_t>();
}
int code_of_verify(const io::Json& r) {
  if (count(r, "errors") > 0 || count(r, "judged") == 0) return exit_cannot;
  return count(r, "failed") > 0 ? exit_fail : count(r, "vacuous") > 0 ? exit_cannot : exit_pass;
}
int code_of_record(const io::Json& r) {
  const std::int64_t same = count(r, "same");
  if (count(r, "different") > 0) return exit_fail;
  return same > 0 && same == static_cast<std::int64_t>(r.at("cases").size()) ? exit_pass : exit_cannot;
}
int code_of_alarms(const io::Json& r) {
  return count(r, "rejected") > 0 ? exit_fail : exit_pass;
}
int code_of_score(const io::Json& r) {
  for (const io::Json& op : r.at("ops"))
    if (count(op, "false_alarms") + count(op, "recorded_failing") > 0) return exit_fail;
  return exit_pass;
}

int merge_folders(const std::vector<std::string>& folders, const std::string& output) {
  if (output.empty()) throw Error(ErrorCode::missing_argument, "", "--output", "is missing: the folder of the joined record");
  const oracle::Record record = oracle::merge_records(folders, output);
  fmt::print("{} cases of {} parts joined in {}\n", record.cases.size(), folders.size(), record.path);
  return exit_pass;
}

int merge(const std::vector<std::string>& paths, const std::string& output) {
  if (std::any_of(paths.begin(), paths.end(), oracle::is_record)) return merge_folders(paths, output);
  std::vector<Part> parts;
  for (const std::string& path : paths) parts.push_back(read(path));
  check(parts);
  static const std::map<std::string, int (*)(const io::Json&)> codes{
      {"verify", code_of_verify}, {"verify of a record", code_of_record}, {"alarms", code_of_alarms}, {"score", code_of_score}};
  const auto code_of = codes.find(parts.front().command);
  if (code_of == codes.end()) broken(parts.front().path, "is of dodona " + parts.front().command + ", which has no parts");
  io::Json report = joined(parts);
  const int code = code_of->second(report);
  if (report.contains("exit_code")) report["exit_code"] = code;
  const std::string text = io::json_text(report, 2) + "\n";
  if (output.empty())
    fmt::print("{}", text);
  else
    io::write_file(output, std::as_bytes(std::span(text.data(), text.size())));
  return code;
}

}  // namespace

void add_merge(CLI::App& app, int& exit_code) {
  struct MergeOptions {
    std::vector<std::string> paths;
    std::string output;
  };
  auto options = std::make_shared<MergeOptions>();
  auto* command = app.add_subcommand(
      "merge", "Join the parts of a report that --part I/N --json printed, or of a record: those of one process, byte for byte");
  command->add_option("PART", options->paths, "Files with the parts' reports, or folders of a record's parts, all of them, in any order")
      ->required();
  command->add_option("-o,--output", options->output, "Write the report to this file, the record to this folder");
  command->footer("Exit code: that of the command whose report it is, run at once.");
  command->callback([options, &exit_code] { exit_code = merge(options->paths, options->output); });
}

}  // namespace dodona::tools
