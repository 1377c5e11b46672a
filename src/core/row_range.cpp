#include "core/row_range.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>

#include "dodona/error.h"

namespace dodona {
namespace {

std::optional<std::int64_t> number_of(std::string_view text) {
  std::int64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || read.ec != std::errc{} || read.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

RowRange parse_range(const std::string& word) {
  const std::size_t equals = word.find('='), dots = word.find("..");
  const bool whole = equals != std::string::npos && equals > 0 && dots != std::string::npos && dots > equals;
  const auto begin = whole ? number_of(std::string_view(word).substr(equals + 1, dots - equals - 1)) : std::nullopt;
  const auto end = whole ? number_of(std::string_view(word).substr(dots + 2)) : std::nullopt;
  if (!begin || !end || *begin < 0 || *begin >= *end)
    throw Error(ErrorCode::bad_option, "", "--window", "expects SYMBOL=BEGIN..END with 0 <= BEGIN < END, got '" + word + "'");
  return {word.substr(0, equals), *begin, *end};
}

}  // namespace

Window parse_window(std::string_view text) {
  Window window;
  std::istringstream stream{std::string(text)};
  for (std::string word; stream >> word;) {
    RowRange range = parse_range(word);
    if (std::any_of(window.begin(), window.end(), [&](const RowRange& other) { return other.symbol == range.symbol; }))
      throw Error(ErrorCode::bad_option, "", "--window", "names " + range.symbol + " twice");
    window.push_back(std::move(range));
  }
  return window;
}

std::string to_string(const Window& window) {
  std::string text;
  for (const RowRange& range : window)
    text += (text.empty() ? "" : " ") + range.symbol + "=" + std::to_string(range.begin) + ".." + std::to_string(range.end);
  return text;
}

}  // namespace dodona
