#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "io/json.h"
#include "io/safetensors.h"
#include "ops/about.h"
#include "ops/kernels.h"
#include "oracle/cases/case_file.h"
#include "oracle/judge/verify.h"
#include "oracle/report/schema_json.h"
#include "pages.h"
#include "speed.h"
#include "tools/op_text.h"

namespace dodona::tools {
namespace {

/// Recordings of one op that came the same way: what they are, and how many.
using Evidence = std::map<std::string, int>;

std::string field(const io::Json& provenance, const char* key) {
  return io::get_string_or(provenance, key, "", "provenance");
}

/// Which of upstream's kernels it was: a commit, else the package that ships it.
std::string release_of(const io::Json& provenance) {
  if (const std::string commit = field(provenance, "commit"); !commit.empty()) return " at " + commit.substr(0, 12);
  for (const char* key : {"package", "binary", "upstream"})
    if (const std::string release = field(provenance, key); !release.empty())
      return (field(provenance, "repo").empty() ? ": " : " of ") + release;
  return "";
}

/// A recording's origin in words, from its metadata.
std::string origin_of(const std::string& path) {
  const auto file = io::SafetensorsFile::open(path);
  const auto found = file.metadata().find("provenance");
  if (found == file.metadata().end() || found->second.empty()) return "of unstated origin";
  const io::Json provenance = io::parse_json(found->second, path + " provenance");
  const std::string kind = field(provenance, "kind"), source = field(provenance, "repo");
  const std::string from = (source.empty() ? "" : fmt::format(": {} `{}`", source, field(provenance, "file"))) + release_of(provenance);
  if (kind == "gpu-kernel") {
    std::string made = fmt::format("recorded from the GPU kernel on {}{}", field(provenance, "device"), from);
    if (const std::string cuda = field(provenance, "cuda"); !cuda.empty()) made += "; CUDA " + cuda;
    if (const std::string build = field(provenance, "build"); !build.empty()) made += "; " + build;
    return made;
  }
  if (kind == "upstream-test-reference") return "evaluated from the reference of upstream's own test" + from;
  if (kind == "formula") return "evaluated from the formula, apart from the library";
  return kind + from;
}

std::map<std::string, Evidence> evidence_in(const std::string& folder) {
  std::map<std::string, Evidence> evidence;
  if (folder.empty()) return evidence;
  for (const std::string& path : oracle::find_cases({folder}).files) ++evidence[oracle::case_op(path)][origin_of(path)];
  return evidence;
}

int cases_of(const Evidence& evidence) {
  int cases = 0;
  for (const auto& [origin, count] : evidence) cases += count;
  return cases;
}

/// Text as it stands in a cell of a Markdown table.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '*' || c == '_' || c == '<' || c == '>' || c == '[' || c == ']') out += '\\';
    out += c;
  }
  return out;
}

/// The same with `code` as it is.
std::string prose(const std::string& text) {
  std::string out;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('`', at), text.size());
    const std::string part = text.substr(at, end - at);
    out += inside ? part : cell(part);
    if (end < text.size()) out += '`';
    inside = !inside;
    at = end + 1;
  }
  return out;
}

std::string code(const std::string& text) {
  if (text.empty()) return "";
  std::string out = "`";
  for (const char c : text) out += c == '|' ? "\\|" : std::string(1, c);
  return out + "`";
}

std::string row(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& text : cells) line += text.empty() ? " |" : " " + text + " |";
  return line + "\n";
}

std::string header(const std::vector<std::string>& cells) {
  return row(cells) + row(std::vector<std::string>(cells.size(), "---"));
}

/// `rmsnorm(input, weight, *, eps=1e-06) -> output`: inputs in the order of the schema, attributes by name.
std::string signature(const Op& op) {
  std::string arguments, outputs;
  const auto add = [](std::string& list, const std::string& item) { list += (list.empty() ? "" : ", ") + item; };
  for (const TensorSpec& spec : op.schema().tensors) {
    if (spec.direction != Direction::out || spec.given) add(arguments, spec.name + (spec.optional ? "=None" : ""));
    if (spec.direction != Direction::in) add(outputs, spec.name);
  }
  bool starred = false;
  for (const AttrSpec& spec : op.schema().attrs) {
    if (!std::exchange(starred, true)) add(arguments, "*");
    add(arguments, spec.required ? spec.name : spec.name + "=" + to_string(spec.default_value));
  }
  return wrapped(fmt::format("{}({}) -> {}", op.name(), arguments, outputs.empty() ? "nothing" : outputs), 118, "    ").substr(4);
}

std::string speed_table(const std::vector<SpeedRow>& rows) {
  if (rows.empty()) return "\nSpeed: not measured.\n";
  std::string table = "\nSpeed:\n\n" + header({"case line", "mode", "threads", "data", "time", "rate", "share of limit", "peer"});
  for (const SpeedRow& speed : rows)
    table += row({code(speed.line), speed.mode, std::to_string(speed.threads), speed.data, time_text(speed.seconds), speed.rate,
                  speed.share, speed.peer});
  return table;
}

std::string section(const Op& op, const Evidence& evidence, const std::vector<SpeedRow>& speeds) {
  std::string page = fmt::format("### {}\n\n", op.name());
  if (const std::string text(ops::about(op.name())); !text.empty()) page += wrapped(prose(text), 150, "") + "\n";
  page += fmt::format("{}, {}. Modes: {}. Judges: {}.\n\n```\n{}```\n\n", name(op.info().category), to_string(op.info().sources),
                      modes_of(op), judges_of(op), signature(op));
  page += header({"tensor", "", "dtype", "shape", "traits", "meaning"});
  for (const TensorSpec& spec : op.schema().tensors)
    page += row({code(spec.name), std::string(oracle::direction_name(spec)), cell(dtypes_of(spec)), code("[" + spec.shape + "]"),
                 cell(traits_of(spec)), cell(meaning_of(spec))});
  if (!op.schema().attrs.empty()) {
    page += "\n" + header({"attribute", "default", "accepts", "kind", "dialects", "meaning"});
    for (const AttrSpec& spec : op.schema().attrs)
      page += row({code(spec.name), spec.required ? "required" : code(to_string(spec.default_value)), cell(attr_limits(spec)),
                   kind_of(spec), cell(dialects_of(spec)), cell(spec.doc)});
  }
  if (!op.schema().symbols.empty()) {
    page += "\nSizes:";
    bool first = true;
    for (const SymbolSpec& spec : op.schema().symbols) page += (std::exchange(first, false) ? " " : "; ") + code(symbol_rule(spec));
    page += ".\n";
  }
  page += fmt::format("\nContract, version {}:\n\n```text\n{}```\n", op.contract_version(), wrapped(op.contract(), 118, ""));
  for (const auto& [output, input] : op.schema().properties.in_place)
    page += fmt::format("\n{} may be the memory of {}.\n", code(output), code(input));
  for (const auto& symbol : op.schema().properties.rows_independent) page += fmt::format("\nIndependent along {}.\n", code(symbol));
  if (!op.schema().properties.prepared.empty())
    page += fmt::format("\nFast mode takes {} prepared.\n", code(fmt::format("{}", fmt::join(op.schema().properties.prepared, ", "))));
  for (const KnownDefect& defect : op.defects())
    page += fmt::format("\nKnown upstream defect {}: {}\n", code(std::string(defect.id)), defect.summary);
  for (const KernelMistake& mistake : op.mistakes())
    page += fmt::format("\nMistake that kernels make, {}: {}.\n", code(std::string(mistake.id)), mistake.text);
  page += "\nEvidence:";
  if (evidence.empty()) page += " no recorded case in this repository.\n";
  for (const auto& [origin, count] : evidence) page += fmt::format("\n- {} case{} {}", count, count == 1 ? "" : "s", origin);
  if (!evidence.empty()) page += "\n";
  page += speed_table(speeds);
  page += "\nCase lines:\n\n```\n";
  for (const std::string& line : op.cases()) page += fmt::format("{} {}\n", op.name(), line);
  return page + "```\n";
}

}  // namespace

std::string ops_page(const std::string& recordings, const std::string& speed_file) {
  const Speeds speeds = read_speeds(speed_file);
  const auto speeds_of = [&](const Op& op) {
    const auto found = speeds.of_op.find(std::string(op.name()));
    return found == speeds.of_op.end() ? std::vector<SpeedRow>{} : found->second;
  };
  const auto evidence = evidence_in(recordings);
  const auto evidence_of = [&](const Op& op) {
    const auto found = evidence.find(std::string(op.name()));
    return found == evidence.end() ? Evidence{} : found->second;
  };
  std::string page =
      "# Ops\n\nMade by `tools/docs` from the inventory and from the recordings in `tests/golden`; do not edit. Shapes, roles, judges and\n"
      "dialects are explained in [numerics.md](numerics.md) and [inputs.md](inputs.md); `dodona info OP` prints the same on a "
      "terminal.\n\n";
  if (!speeds.machine.empty())
    page += "Speeds are those of one run of `tools/bench` (" + speeds.machine +
            "). F: fp32 multiply-adds, R: reading memory, C: copying it, U: changing it in place; \"cold\" data come from memory, \"warm\" "
            "ones from a\ncache. Golden mode serves judging, not speed.\n\n";
  page += ops::kernels_in_words() + "\n\n";
  page += header({"op", "category", "source", "modes", "judges", "recorded cases"});
  for (const auto& op : registry().all())
    page += row({fmt::format("[{}](#{})", cell(std::string(op->name())), op->name()), cell(std::string(name(op->info().category))),
                 cell(to_string(op->info().sources)), modes_of(*op), judges_of(*op), std::to_string(cases_of(evidence_of(*op)))});
  std::vector<Category> categories;
  for (const auto& op : registry().all())
    if (std::find(categories.begin(), categories.end(), op->info().category) == categories.end()) categories.push_back(op->info().category);
  for (const Category category : categories) {
    page += fmt::format("\n## {}\n", name(category));
    for (const auto& op : registry().all())
      if (op->info().category == category) page += "\n" + section(*op, evidence_of(*op), speeds_of(*op));
  }
  return page;
}

}  // namespace dodona::tools
