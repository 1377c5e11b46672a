#include "speed.h"

#include <fmt/format.h>

#include <cctype>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "io/json.h"

namespace dodona::tools {
namespace {

std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> parts(1);
  for (const char c : name) c == '/' ? static_cast<void>(parts.emplace_back()) : parts.back().push_back(c);
  return parts;
}

/// Whether a symbol and its value begin there: "H=7168".
bool begins_symbol(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size() && std::isalnum(static_cast<unsigned char>(text[i]))) ++i;
  return i > 0 && i < text.size() && text[i] == '=';
}

double number(const io::Json& row, const std::string& key) {
  return io::get_double_or(row, key, 0.0);
}

double seconds_of(const io::Json& row, const std::string& where) {
  const std::string unit = io::get_string(row, "time_unit", where);
  return number(row, "real_time") * (unit == "ns" ? 1e-9 : unit == "us" ? 1e-6 : unit == "ms" ? 1e-3 : 1.0);
}

/// What the run says of itself: instruction set and the limits for each number of threads.
std::string machine_of(const io::Json& context, const std::string& where) {
  std::string text =
      fmt::format("{} processors at {:.0f} MHz, instruction set {}, {}", number(context, "num_cpus"), number(context, "mhz_per_cpu"),
                  io::get_string(context, "isa", where), io::get_string(context, "date", where).substr(0, 10));
  for (const auto& [key, value] : context.items()) {
    const auto at = key.find(" threads:");
    if (at == std::string::npos || !value.is_string()) continue;
    const auto unit = key.find('_');
    text += fmt::format("; {} = {:.0f} {}/s on {} thread(s)", key.substr(0, unit), std::strtod(value.get<std::string>().c_str(), nullptr),
                        key.substr(unit + 1, at - unit - 3), key.substr(at + 9));
  }
  return text;
}

void add_row(const io::Json& json, const std::string& where, Speeds& speeds) {
  std::vector<std::string> parts = parts_of(io::get_string(json, "name", where));
  SpeedRow row;
  row.mode = "fast";
  if (parts.front() == "golden") row.mode = "golden", parts.erase(parts.begin());
  if (parts.size() > 2 && parts[2] == "packed") row.mode = "fast, packed", parts.erase(parts.begin() + 2);
  if (parts.size() < 3 || !parts[2].starts_with("threads:") || json.contains("error_occurred")) return;
  row.line = words_of(parts[1]);
  row.threads = static_cast<int>(std::strtol(parts[2].c_str() + 8, nullptr, 10));
  row.data = io::get_string_or(json, "label", "", where);
  row.seconds = seconds_of(json, where);
  for (const char* unit : {"GFLOP/s", "GOP/s", "GB/s"})
    if (json.contains(unit)) row.rate = fmt::format("{:.3g} {}", number(json, unit), unit);
  for (const char* limit : {"F", "V", "C", "U", "R"})
    if (const double share = number(json, fmt::format("share_of_{}", limit)); share > 0) row.share = fmt::format("{:.2g} {}", share, limit);
  if (const double peer = number(json, "eigen_ms"); peer > 0) row.peer = "Eigen " + time_text(peer * 1e-3);
  speeds.of_op[parts[0]].push_back(std::move(row));
}

}  // namespace

std::string time_text(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.3g} us", seconds * 1e6)
         : seconds < 1  ? fmt::format("{:.3g} ms", seconds * 1e3)
                        : fmt::format("{:.3g} s", seconds);
}

std::string words_of(const std::string& name) {
  std::string words;
  bool options = false;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const std::string_view rest = std::string_view(name).substr(i);
    const bool option = rest.starts_with("_--");
    const bool value = words.ends_with("--attr") || words.ends_with("--dtype") || words.ends_with("--dialect") ||
                       words.ends_with("--dist") || words.ends_with("--special") || words.ends_with("--window") ||
                       words.ends_with("--with") || words.ends_with("--without");
    const bool blank = rest.front() == '_' && (option || value || (!options && begins_symbol(rest.substr(1))));
    options = options || option || (i == 0 && rest.starts_with("--"));
    words += blank ? ' ' : name[i];
  }
  return words;
}

Speeds read_speeds(const std::string& path) {
  Speeds speeds;
  if (path.empty()) return speeds;
  const io::Json json = io::read_json(path);
  speeds.machine = machine_of(io::get_object(json, "context", path), path);
  for (const io::Json& row : io::get_array(json, "benchmarks", path)) add_row(row, path, speeds);
  return speeds;
}

}  // namespace dodona::tools
