#include "common.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "dodona/error.h"

namespace dodona::tools {
namespace {

bool no_color() {
  const char* value = std::getenv("NO_COLOR");
  return value != nullptr && *value != '\0';
}

/// Cells of printed width; the text is ASCII but for colour codes, which the caller adds after padding.
std::string pad(const std::string& text, std::size_t width, bool right) {
  const std::string space(width > text.size() ? width - text.size() : 0, ' ');
  return right ? space + text : text + space;
}

}  // namespace

void ExecOptions::add_threads_and_isa(CLI::App& app) {
  app.add_option("--threads", threads, "Threads to use (default: DODONA_NUM_THREADS, else all processors)")->check(CLI::Range(1, 4096));
  app.add_option("--isa", isa, "Instruction-set tier: generic, v3, v4, v4_vnni or neon (default: DODONA_ISA, else the fastest)");
}

void ExecOptions::add_json(CLI::App& app) {
  app.add_flag("--json", json, "Print one JSON value instead of text");
}

Exec ExecOptions::exec(Mode default_mode) const {
  Exec exec;
  exec.mode = default_mode;
  if (threads > 0) exec.threads = threads;
  if (!isa.empty()) {
    const auto wanted = parse_isa(isa);
    const auto& available = available_isas();
    if (!wanted || std::find(available.begin(), available.end(), *wanted) == available.end()) {
      std::string known;
      for (const Isa tier : available) known += (known.empty() ? "" : ", ") + std::string(name(tier));
      throw Error(ErrorCode::bad_option, "", "--isa", "must be one of " + known + " (what this machine can run), got '" + isa + "'");
    }
    exec.isa = *wanted;
  }
  if (!mode.empty()) {
    const auto wanted = parse_mode(mode);
    if (!wanted) throw Error(ErrorCode::bad_option, "", "--mode", "must be fast, golden or hopper, got '" + mode + "'");
    exec.mode = *wanted;
  }
  return exec;
}

void CaseLineOptions::add_line_options(CLI::App& app) {
  app.add_option("--attr", attrs, "An attribute of the case line, NAME=VALUE; may be repeated")->expected(1)->take_all();
  app.add_option("--dtype", dtypes, "The element type of an argument, ARGUMENT=TYPE; may be repeated")->expected(1)->take_all();
  app.add_option("--dist", dist, "How values are drawn: normal, uniform, outliers, wide-exponent, ties, edge");
  app.add_option("--seed", seed, "Seed of the inputs (default 0)");
  app.add_option("--dialect", dialect, "Whose numerics: sglang (default), flashinfer, trtllm, deepseek");
}

std::string CaseLineOptions::text() const {
  std::string line;
  const auto add = [&](const std::string& option, const std::string& value) {
    if (!value.empty()) line += (line.empty() ? "" : " ") + (option.empty() ? "" : option + " ") + value;
  };
  for (const std::string& word : words) add("", word);
  for (const std::string& attr : attrs) add("--attr", attr);
  for (const std::string& dtype : dtypes) add("--dtype", dtype);
  add("--dist", dist);
  add("--seed", seed);
  add("--dialect", dialect);
  return line;
}

Progress::Progress(bool quiet) : enabled_(!quiet && isatty(STDERR_FILENO) != 0) {}

void Progress::step(std::size_t done, std::size_t total, const std::string& what) {
  if (!enabled_) return;
  constexpr std::size_t width = 24;
  const std::size_t filled = total > 0 ? done * width / total : 0;
  const std::string label = what.size() > 60 ? "..." + what.substr(what.size() - 57) : what;
  fmt::print(stderr, "\r[{}{}] {}/{} {:<60}", std::string(filled, '='), std::string(width - filled, ' '), done, total, label);
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::finish() {
  if (drawn_) fmt::print(stderr, "\r{:<110}\r", "");
  drawn_ = false;
}

bool use_color() {
  return isatty(STDOUT_FILENO) != 0 && !no_color();
}

std::string colored(const std::string& text, const char* code) {
  return use_color() ? fmt::format("\033[{}m{}\033[0m", code, text) : text;
}

std::string table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows,
                  const std::vector<bool>& right) {
  std::vector<std::size_t> widths;
  widths.reserve(header.size());
  for (const auto& cell : header) widths.push_back(cell.size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string out;
    for (std::size_t i = 0; i < cells.size(); ++i) out += (i > 0 ? "  " : "") + pad(cells[i], widths[i], right[i]);
    out.erase(out.find_last_not_of(' ') + 1);
    text += out + "\n";
  };
  line(header);
  std::vector<std::string> rule;
  rule.reserve(widths.size());
  for (const std::size_t width : widths) rule.emplace_back(width, '-');
  line(rule);
  for (const auto& row : rows) line(row);
  return text;
}

std::string percent(double share) {
  if (share == 0) return "0";
  if (std::isinf(share)) return "inf";
  if (share < 0.001) return "< 0.1 %";
  return fmt::format("{:.1f} %", 100 * share);
}

}  // namespace dodona::tools
