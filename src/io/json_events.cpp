#include "io/json_events.h"

#include <algorithm>
#include <array>
#include <vector>

#include "io/json.h"

namespace dodona::io {
namespace {

/// Characters of a string that stand for themselves; the others end it, or need a second look.
constexpr std::array<bool, 256> plain_characters = [] {
  std::array<bool, 256> plain{};
  for (std::size_t c = 0x20; c < 0x80; ++c) plain[c] = c != '"' && c != '\\';
  return plain;
}();

/// Reads brackets, plain strings and whole numbers, of which headers are made, by itself, and leaves every other string and number to
/// nlohmann's reader, which takes a second for each 100 MB.
class EventReader {
 public:
  EventReader(std::string_view text, JsonEvents& events) : next_(text.data()), end_(text.data() + text.size()), events_(events) {}

  bool read() {
    skip_space();
    if (!at('{') || !begin_container()) return false;
    while (!open_.empty())
      if (!step()) return false;
    skip_space();
    return next_ == end_;
  }

 private:
  bool at(char c) const { return next_ != end_ && *next_ == c; }
  bool take(char c) {
    if (!at(c)) return false;
    ++next_;
    return true;
  }
  void skip_space() {
    while (at(' ') || at('\n') || at('\t') || at('\r')) ++next_;
  }

  /// What comes next in the innermost container: its end, or a member or element with the comma before it.
  bool step() {
    const bool object = open_.back() == '{';
    skip_space();
    if (take(object ? '}' : ']')) {
      open_.pop_back();
      first_ = false;
      return object ? events_.end_object() : events_.end_array();
    }
    if (!first_) {
      if (!take(',')) return false;
      skip_space();
    }
    first_ = false;
    if (object) {
      if (!string() || !events_.key(text_)) return false;
      skip_space();
      if (!take(':')) return false;
      skip_space();
    }
    return value();
  }

  bool value() {
    if (next_ == end_) return false;
    switch (*next_) {
      case '{':
      case '[': return begin_container();
      case '"': return string() && events_.string(text_);
      case 'n': return word("null") && events_.null();
      case 't': return word("true") && events_.boolean(true);
      case 'f': return word("false") && events_.boolean(false);
      default: return number();
    }
  }

  bool begin_container() {
    open_.push_back(*next_++);
    first_ = true;
    return open_.back() == '{' ? events_.start_object() : events_.start_array();
  }

  bool word(std::string_view expected) {
    if (!std::string_view(next_, end_).starts_with(expected)) return false;
    next_ += expected.size();
    return true;
  }

  /// Into text_.
  bool string() {
    const char* const begin = next_;
    if (!take('"')) return false;
    skip_plain();
    if (at('"')) {
      text_.assign(begin + 1, next_++);
      return true;
    }
    for (; next_ != end_ && *next_ != '"'; ++next_)
      if (*next_ == '\\' && ++next_ == end_) return false;
    if (!take('"')) return false;
    Json value = Json::parse(begin, next_, nullptr, false);
    if (!value.is_string()) return false;
    text_ = std::move(value.get_ref<std::string&>());
    return true;
  }
  void skip_plain() {
    while (next_ != end_ && plain_characters[static_cast<unsigned char>(*next_)]) ++next_;
  }

  bool number() {
    const char* const begin = next_;
    std::uint64_t whole = 0;
    for (; next_ != end_ && *next_ >= '0' && *next_ <= '9'; ++next_) whole = whole * 10 + static_cast<std::uint64_t>(*next_ - '0');
    constexpr std::ptrdiff_t most_digits = 18;  // that surely fit
    const std::ptrdiff_t digits = next_ - begin;
    next_ = std::find_if_not(next_, end_,
                             [](char c) { return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'; });
    if (next_ - begin == digits && digits > 0 && digits <= most_digits && (digits == 1 || *begin != '0'))
      return events_.number_unsigned(whole);
    const Json value = Json::parse(begin, next_, nullptr, false);
    if (value.is_number_unsigned()) return events_.number_unsigned(value.get<std::uint64_t>());
    if (value.is_number_integer()) return events_.number_integer(value.get<std::int64_t>());
    return value.is_number_float() && events_.number_float(value.get<double>());
  }

  const char *next_, *end_;
  JsonEvents& events_;
  std::vector<char> open_;  ///< brackets
  bool first_ = true;       ///< nothing has come yet in the innermost container
  std::string text_;
};

}  // namespace

bool read_events(std::string_view text, JsonEvents& events) {
  return EventReader(text, events).read();
}

}  // namespace dodona::io
