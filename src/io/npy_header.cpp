#include "io/npy_header.h"

#include "dodona/error.h"
#include "io/text.h"

namespace dodona::io {
namespace {

class Parser {
 public:
  Parser(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  NpyHeader header() {
    NpyHeader result;
    bool have_descr = false;
    bool have_order = false;
    bool have_shape = false;
    expect('{', "a dict");
    while (!accept('}')) {
      const std::string key = string("a key");
      expect(':', "':'");
      if (key == "descr") {
        once(have_descr, key);
        result.descr = descr();
      } else if (key == "fortran_order") {
        once(have_order, key);
        result.fortran_order = boolean();
      } else if (key == "shape") {
        once(have_shape, key);
        result.shape = sizes();
      } else {
        fail("unexpected key " + quote(key) + ", expected descr, fortran_order and shape");
      }
      if (accept('}')) break;
      expect(',', "',' or '}'");
    }
    skip_blanks();
    if (position_ != text_.size()) fail("unexpected text after the dict");
    if (!have_descr || !have_order || !have_shape)
      fail(std::string("key '") + (!have_descr ? "descr" : !have_order ? "fortran_order" : "shape") + "' is missing");
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& message, ErrorCode code = ErrorCode::bad_file) const {
    throw Error(code, "", "", source_ + ": header, column " + std::to_string(position_ + 1) + ": " + message);
  }

  char peek() const { return position_ < text_.size() ? text_[position_] : '\0'; }
  void skip_blanks() {
    while (position_ < text_.size() && std::string_view(" \t\r\n\f").find(text_[position_]) != std::string_view::npos) ++position_;
  }
  bool accept(char c) {
    skip_blanks();
    if (position_ == text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }
  void expect(char c, const char* what) {
    if (!accept(c)) fail(std::string("expected ") + what);
  }
  void once(bool& seen, const std::string& key) {
    if (seen) fail("key " + quote(key) + " occurs twice");
    seen = true;
  }

  std::string string(const char* what) {
    skip_blanks();
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail(std::string("expected ") + what + " in quotes");
    const std::size_t begin = ++position_;
    while (position_ < text_.size() && text_[position_] != quote) {
      if (text_[position_] == '\\' || text_[position_] == '\n') fail("escapes and line breaks in strings are not read");
      ++position_;
    }
    if (position_ == text_.size()) fail("a string does not end");
    return std::string(text_.substr(begin, position_++ - begin));
  }
  std::string descr() {
    skip_blanks();
    if (peek() == '[' || peek() == '(') fail("arrays of structures cannot be read", ErrorCode::unsupported);
    return string("descr");
  }
  bool boolean() {
    skip_blanks();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(position_, word.size()) == word) {
        position_ += word.size();
        return value;
      }
    }
    fail("expected True or False");
  }
  std::int64_t size() {
    skip_blanks();
    if (peek() == '-') fail("negative size in shape");
    if (peek() < '0' || peek() > '9') fail("expected a size");
    std::int64_t value = 0;
    for (; peek() >= '0' && peek() <= '9'; ++position_)
      if (__builtin_mul_overflow(value, std::int64_t{10}, &value) || __builtin_add_overflow(value, std::int64_t{peek() - '0'}, &value))
        fail("a size does not fit 64 bits");
    if (peek() == 'L') ++position_;  // a long integer of Python 2
    return value;
  }
  std::vector<std::int64_t> sizes() {
    std::vector<std::int64_t> result;
    expect('(', "a tuple");
    while (!accept(')')) {
      result.push_back(size());
      if (accept(')')) {
        if (result.size() == 1) fail("(n) is a number, a shape of one dimension is written (n,)");
        break;
      }
      expect(',', "',' or ')'");
    }
    return result;
  }

  std::string_view text_;
  const std::string& source_;
  std::size_t position_ = 0;
};

}  // namespace

NpyHeader parse_npy_header(std::string_view text, const std::string& source) {
  return Parser(text, source).header();
}

}  // namespace dodona::io
