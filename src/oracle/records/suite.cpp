#include "oracle/records/suite.h"

#include <charconv>
#include <set>

#include "dodona/error.h"
#include "io/json.h"
#include "oracle/cases/generate.h"

namespace dodona::oracle {
namespace {

constexpr std::size_t max_lines = 100'000;

[[noreturn]] void fail(const std::string& word, const std::string& why) {
  throw Error(ErrorCode::bad_option, "", word, why);
}

bool whole_number(std::string_view text, std::int64_t& value) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  return read.ec == std::errc{} && read.ptr == text.data() + text.size();
}

/// `1,4..6,9` as 1 4 5 6 9; words are left as they are.
std::vector<std::string> values_of(const std::string& word, std::string_view list) {
  std::vector<std::string> values;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    const std::string_view part = list.substr(at, comma - at);
    at = comma + 1;
    if (part.empty()) fail(word, "has an empty value in its list");
    const std::size_t dots = part.find("..");
    std::int64_t first = 0, last = 0;
    if (dots == std::string_view::npos || !whole_number(part.substr(0, dots), first) || !whole_number(part.substr(dots + 2), last)) {
      values.emplace_back(part);
      continue;
    }
    // Unsigned: from one end of the range to the other is more than a signed number holds.
    const std::uint64_t steps = static_cast<std::uint64_t>(last) - static_cast<std::uint64_t>(first);
    if (last < first || steps >= max_lines) fail(word, "has an impossible range " + std::string(part));
    for (std::uint64_t step = 0; step <= steps; ++step) values.push_back(std::to_string(first + static_cast<std::int64_t>(step)));
  }
  return values;
}

/// A word as the texts that it stands for: NAME=LIST after a size or an option of that form, LIST after the others.
std::vector<std::string> alternatives(const std::string& word, const std::string& option) {
  // The dots of a window are no list of values.
  if (word.starts_with("--") || option == "--window") return {word};
  const bool nameless = option == "--dist" || option == "--special" || option == "--seed" || option == "--dialect";
  const std::size_t equals = nameless ? std::string::npos : word.find('=');
  const std::string head = equals == std::string::npos ? "" : word.substr(0, equals + 1);
  // The op's name has neither list nor value.
  if (head.empty() && option.empty()) return {word};
  std::vector<std::string> texts;
  for (const std::string& value : values_of(word, std::string_view(word).substr(head.size()))) texts.push_back(head + value);
  return texts;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = text.find_first_not_of(" \t\n", at);
    if (begin == std::string_view::npos) break;
    at = std::min(text.find_first_of(" \t\n", begin), text.size());
    words.emplace_back(text.substr(begin, at - begin));
  }
  return words;
}

Mode mode_of(const std::string& text, const std::string& path) {
  const auto mode = parse_mode(text);
  if (!mode || of_a_gpu(*mode)) throw Error(ErrorCode::bad_file, "", path, "has a mode '" + text + "', expected fast or golden");
  return *mode;
}

}  // namespace

std::vector<CaseLine> expand_lines(std::string_view text) {
  std::vector<std::string> lines{""};
  std::string option;
  for (const std::string& word : words_of(text)) {
    std::vector<std::string> longer;
    const auto texts = alternatives(word, option);
    if (lines.size() * texts.size() > max_lines) fail(word, "makes more than " + std::to_string(max_lines) + " cases of one line");
    for (const std::string& line : lines)
      for (const std::string& value : texts) longer.push_back(line + (line.empty() ? "" : " ") + value);
    lines = std::move(longer);
    option = word.starts_with("--") ? word : "";
  }
  std::vector<CaseLine> expanded;
  expanded.reserve(lines.size());
  for (const std::string& line : lines) {
    expanded.push_back(parse_case_line(line));
    refuse_variants(expanded.back(), "a suite");
  }
  return expanded;
}

Suite read_suite(const std::string& path) {
  const io::Json json = io::read_json(path);
  Suite suite;
  suite.name = io::get_string_or(json, "name", "", path);
  for (const auto& [key, value] : json.items())
    if (key != "name" && key != "modes" && key != "tensors" && key != "cases")
      throw Error(ErrorCode::bad_file, "", path, "has an unknown field '" + key + "', expected name, modes, tensors and cases");
  const bool tensors = io::get_bool_or(json, "tensors", false, path);
  if (io::find_field(json, "modes", path) != nullptr) {
    for (const std::string& mode : io::get_strings(json, "modes", path)) suite.modes.push_back(mode_of(mode, path));
  } else {
    suite.modes = {Mode::fast, Mode::golden};
  }
  std::set<std::string> seen;
  for (const io::Json& entry : io::get_array(json, "cases", path)) {
    const std::string text = entry.is_string() ? entry.get<std::string>() : io::get_string(entry, "line", path + " cases");
    const bool its_tensors = entry.is_object() ? io::get_bool_or(entry, "tensors", tensors, path + " cases") : tensors;
    try {
      for (CaseLine& line : expand_lines(text)) {
        plan_inputs(line);
        if (!seen.insert(to_string(line)).second) fail(to_string(line), "stands twice in the suite");
        suite.cases.push_back({std::move(line), its_tensors});
      }
    } catch (const Error& error) {
      throw Error(ErrorCode::bad_file, "", path, "has the case '" + text + "': " + error.what());
    }
  }
  if (suite.cases.empty() || suite.modes.empty()) throw Error(ErrorCode::bad_file, "", path, "names no cases or no modes");
  return suite;
}

}  // namespace dodona::oracle
