#include "core/case_line.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "dodona/error.h"

namespace dodona {
namespace {

constexpr std::string_view distributions[] = {"normal", "uniform", "outliers", "wide-exponent", "ties", "edge"};

[[noreturn]] void fail(const std::string& op, const std::string& word, const std::string& why) {
  throw Error(ErrorCode::bad_option, op, word, why);
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t at = 0;
  while (at < text.size()) {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n')) ++at;
    const std::size_t begin = at;
    while (at < text.size() && text[at] != ' ' && text[at] != '\t' && text[at] != '\n') ++at;
    if (at > begin) words.push_back(text.substr(begin, at - begin));
  }
  return words;
}

template <class T>
bool parse_number(std::string_view text, T& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc{} && result.ptr == text.data() + text.size();
}

std::pair<std::string, std::string_view> key_value(const std::string& op, std::string_view option, std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) fail(op, std::string(option), "needs NAME=VALUE, got '" + std::string(text) + "'");
  return {std::string(text.substr(0, equals)), text.substr(equals + 1)};
}

std::string names_of_specials() {
  std::string names;
  for (const SpecialText& text : specials()) names += (names.empty() ? "" : ", ") + std::string(text.name);
  return names;
}

}  // namespace

AttrValue parse_attr_value(std::string_view text, const AttrSpec* spec) {
  if (spec != nullptr && std::holds_alternative<std::string>(spec->default_value)) return std::string(text);
  if (text == "true" || text == "True") return true;
  if (text == "false" || text == "False") return false;
  if (std::int64_t whole = 0; parse_number(text, whole)) return whole;
  if (double real = 0; parse_number(text, real)) return real;
  return std::string(text);
}

CaseLine parse_case_line(std::string_view text) {
  const auto words = words_of(text);
  if (words.empty()) fail("", "", "the case line is empty, expected OP SYM=N...");
  for (const std::string_view word : words)
    if (std::any_of(word.begin(), word.end(), [](unsigned char c) { return c < ' ' || c == 0x7F; }))
      fail("", "", "the case line holds a control character, expected text");
  CaseLine line;
  line.op = words[0];
  const Op* op = registry().find(line.op);
  if (line.op.starts_with("-")) fail("", line.op, "stands where the op's name is expected");
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (!word.starts_with("--")) {
      const auto [name, value] = key_value(line.op, word, word);
      std::int64_t size = 0;
      if (!parse_number(value, size) || size < 0)
        fail(line.op, name, "must be a size (a whole number, at least 0), got '" + std::string(value) + "'");
      if (!line.symbols.emplace(name, size).second) fail(line.op, name, "is given twice");
      continue;
    }
    if (i + 1 == words.size()) fail(line.op, std::string(word), "needs a value");
    const std::string_view value = words[++i];
    if (word == "--attr") {
      const auto [name, attr] = key_value(line.op, word, value);
      if (line.attrs.find_attr(name) != nullptr) fail(line.op, name, "is given twice");
      line.attrs.set_attr(name, parse_attr_value(attr, op != nullptr ? op->schema().find_attr(name) : nullptr));
    } else if (word == "--dtype") {
      const auto [name, type] = key_value(line.op, word, value);
      const auto dtype = parse_dtype(type);
      if (!dtype) fail(line.op, name, "has an unknown dtype '" + std::string(type) + "'");
      if (!line.dtypes.emplace(name, *dtype).second) fail(line.op, name, "has its dtype twice");
    } else if (word == "--with" || word == "--without") {
      const std::string argument(value);
      if (line.with.count(argument) + line.without.count(argument) > 0) fail(line.op, argument, "is asked for or left out twice");
      (word == "--with" ? line.with : line.without).insert(argument);
    } else if (word == "--seed") {
      if (!parse_number(value, line.seed)) fail(line.op, "--seed", "must be a whole number, got '" + std::string(value) + "'");
    } else if (word == "--dialect") {
      line.dialect = value;
    } else if (word == "--dist") {
      if (std::find(std::begin(distributions), std::end(distributions), value) == std::end(distributions))
        fail(line.op, "--dist", "must be one of normal, uniform, outliers, wide-exponent, ties, edge, got '" + std::string(value) + "'");
      line.dist = value;
    } else if (word == "--special") {
      const auto special = parse_special(value);
      if (!special) fail(line.op, "--special", "must be one of " + names_of_specials() + ", got '" + std::string(value) + "'");
      if (!line.specials.insert(*special).second) fail(line.op, "--special", std::string(value) + " is given twice");
    } else if (word == "--variant") {
      if (std::find(line.variants.begin(), line.variants.end(), value) != line.variants.end())
        fail(line.op, "--variant", std::string(value) + " is given twice");
      line.variants.emplace_back(value);
    } else if (word == "--window") {
      line.window = parse_window(to_string(line.window) + " " + std::string(value));
    } else {
      fail(line.op, std::string(word), "is not an option of a case line");
    }
  }
  return line;
}

std::string to_string(const CaseLine& line) {
  std::string text = line.op;
  for (const auto& [symbol, value] : line.symbols) text += " " + symbol + "=" + std::to_string(value);
  for (const auto& [argument, dtype] : line.dtypes) text += " --dtype " + argument + "=" + std::string(name(dtype));
  for (const auto& [attr, value] : line.attrs.attrs) text += " --attr " + attr + "=" + to_string(value);
  for (const std::string& argument : line.with) text += " --with " + argument;
  for (const std::string& argument : line.without) text += " --without " + argument;
  if (line.dist != "normal") text += " --dist " + line.dist;
  for (const Special special : line.specials) text += " --special " + std::string(name(special));
  for (const std::string& variant : line.variants) text += " --variant " + variant;
  for (const RowRange& range : line.window) text += " --window " + to_string(Window{range});
  if (line.seed != 0) text += " --seed " + std::to_string(line.seed);
  if (!line.dialect.empty()) text += " --dialect " + line.dialect;
  return text;
}

void refuse_variants(const CaseLine& line, std::string_view who) {
  if (!line.variants.empty())
    fail(line.op, "--variant", std::string(who) + " knows none: outputs are checked against them (dodona gen, dodona check)");
}

Arguments attributes_of(const CaseLine& line, const OpSchema& schema) {
  Arguments result;
  if (!line.dialect.empty()) {
    const auto known = dialects();
    if (std::find(known.begin(), known.end(), line.dialect) == known.end()) {
      std::string names;
      for (const auto dialect : known) names += (names.empty() ? "" : ", ") + std::string(dialect);
      fail(line.op, "--dialect", "must be one of " + names + ", got '" + line.dialect + "'");
    }
    for (const AttrSpec& spec : schema.attrs)
      for (const auto& [dialect, value] : spec.dialect_values)
        if (dialect == line.dialect) result.set_attr(spec.name, value);
  }
  for (const auto& [attr, value] : line.attrs.attrs) result.set_attr(attr, value);
  return result;
}

}  // namespace dodona
