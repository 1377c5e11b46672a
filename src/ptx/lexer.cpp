#include "ptx/lexer.h"

#include <bit>
#include <charconv>
#include <cstdlib>

#include "dodona/error.h"

namespace dodona::ptx {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool begins_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%' || c == '.';
}

class Lexer {
 public:
  Lexer(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  std::vector<Token> read() {
    std::vector<Token> tokens;
    while (skip_blanks()) {
      const std::size_t begin = place_;
      tokens.push_back(next());
      tokens.back().begin = begin;
    }
    tokens.push_back({TokenKind::end, "", 0, line_, place_});
    return tokens;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::bad_file, "", name_, "line " + std::to_string(line_) + ": " + what);
  }
  char at(std::size_t ahead = 0) const { return place_ + ahead < text_.size() ? text_[place_ + ahead] : '\0'; }
  bool starts(std::string_view what) const { return text_.substr(place_, what.size()) == what; }

  bool skip_blanks() {
    while (place_ < text_.size()) {
      if (at() == '\n') {
        ++line_;
        ++place_;
      } else if (at() == ' ' || at() == '\t' || at() == '\r' || at() == '\0') {
        ++place_;
      } else if (starts("//")) {
        while (place_ < text_.size() && at() != '\n') ++place_;
      } else if (starts("/*")) {
        const std::size_t end = text_.find("*/", place_ + 2);
        if (end == std::string_view::npos) fail("a comment does not end");
        for (; place_ < end + 2; ++place_) line_ += at() == '\n';
      } else {
        return true;
      }
    }
    return false;
  }

  Token next() {
    if (at() == '"') return quoted();
    if (is_digit(at()) || (at() == '.' && is_digit(at(1)))) return number();
    if (begins_word(at())) return word();
    constexpr std::string_view marks = ",;:{}[]()@!+-|=<>*/&~?^";
    if (marks.find(at()) == std::string_view::npos) fail(std::string("'") + at() + "' belongs to no PTX");
    return {TokenKind::mark, std::string(1, text_[place_++]), 0, line_, 0};
  }

  Token quoted() {
    const std::size_t begin = ++place_;
    while (place_ < text_.size() && at() != '"' && at() != '\n') ++place_;
    if (at() != '"') fail("a quoted text does not end");
    return {TokenKind::text, std::string(text_.substr(begin, place_++ - begin)), 0, line_, 0};
  }

  Token word() {
    const std::size_t begin = place_++;
    const bool directive = text_[begin] == '.';  // `.reg.b32` is two
    while ((begins_word(at()) && !(directive && at() == '.')) || is_digit(at()) ||
           (starts("::") && (begins_word(at(2)) || is_digit(at(2)))))
      place_ += at() == ':' ? 2 : 1;
    return {TokenKind::word, std::string(text_.substr(begin, place_ - begin)), 0, line_, 0};
  }

  std::uint64_t whole(std::size_t begin, std::size_t end, int base) {
    std::uint64_t value = 0;
    const auto [stop, error] = std::from_chars(text_.data() + begin, text_.data() + end, value, base);
    if (error != std::errc() || stop != text_.data() + end) fail("'" + std::string(text_.substr(begin, end - begin)) + "' is no number");
    return value;
  }

  Token number() {
    const std::size_t begin = place_;
    while (begins_word(at()) || is_digit(at()) || ((at() == '-' || at() == '+') && is_decimal_exponent(begin))) ++place_;
    std::size_t end = place_;
    const char second = begin + 1 < end ? text_[begin + 1] : '\0';
    if (text_[begin] == '0' && (second == 'f' || second == 'F')) {
      if (end - begin != 10) fail("0f has 8 digits");
      return {TokenKind::f32, "", whole(begin + 2, end, 16), line_, 0};
    }
    if (text_[begin] == '0' && (second == 'd' || second == 'D')) {
      if (end - begin != 18) fail("0d has 16 digits");
      return {TokenKind::f64, "", whole(begin + 2, end, 16), line_, 0};
    }
    if (text_[end - 1] == 'U') --end;
    if (second == 'x' || second == 'X') return {TokenKind::integer, "", whole(begin + 2, end, 16), line_, 0};
    if (second == 'b' || second == 'B') return {TokenKind::integer, "", whole(begin + 2, end, 2), line_, 0};
    const std::string_view digits = text_.substr(begin, end - begin);
    if (digits.find_first_of(".eE") != std::string_view::npos) {
      double value = 0;
      const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (error != std::errc() || stop != digits.data() + digits.size()) fail("'" + std::string(digits) + "' is no number");
      return {TokenKind::f64, "", std::bit_cast<std::uint64_t>(value), line_, 0};
    }
    if (digits.size() > 1 && digits[0] == '0') return {TokenKind::integer, "", whole(begin, end, 8), line_, 0};
    return {TokenKind::integer, "", whole(begin, end, 10), line_, 0};
  }
  bool is_decimal_exponent(std::size_t begin) const {
    const char before = text_[place_ - 1];
    return (before == 'e' || before == 'E') && (place_ - begin < 2 || (text_[begin + 1] != 'x' && text_[begin + 1] != 'X'));
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t place_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<Token> read_tokens(std::string_view text, const std::string& name) {
  return Lexer(text, name).read();
}

}  // namespace dodona::ptx
