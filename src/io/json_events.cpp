#include "io/json_events.h"

#include <algorithm>
#include <array>
#include <vector>

namespace dodona::io {
namespace {

/// Characters of a string that stand for themselves.
constexpr std::array<bool, 256> plain_characters = [] {
  std::array<bool, 256> plain{};
  for (std::size_t c = 0x20; c < 0x80; ++c) plain[c] = c != '"' && c != '\\';
  return plain;
}();

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
    if (at('{') || at('[')) return begin_container();
    if (at('"')) return string() && events_.string(text_);
    return number();
  }

  bool begin_container() {
    open_.push_back(*next_++);
    first_ = true;
    return open_.back() == '{' ? events_.start_object() : events_.start_array();
  }

  /// Into text_.
  bool string() {
    if (!take('"')) return false;
    const char* const begin = next_;
    while (next_ != end_ && plain_characters[static_cast<unsigned char>(*next_)]) ++next_;
    text_ = {begin, next_};
    return take('"');
  }

  /// What else a number may have behind its digits, no container goes on with.
  bool number() {
    constexpr std::ptrdiff_t most_digits = 18;  // that surely fit
    const char* const begin = next_;
    std::uint64_t whole = 0;
    for (; next_ != end_ && *next_ >= '0' && *next_ <= '9' && next_ - begin < most_digits; ++next_)
      whole = whole * 10 + static_cast<std::uint64_t>(*next_ - '0');
    const std::ptrdiff_t digits = next_ - begin;
    return digits > 0 && (digits == 1 || *begin != '0') && events_.number(whole);
  }

  const char *next_, *end_;
  JsonEvents& events_;
  std::vector<char> open_;  ///< brackets
  bool first_ = true;       ///< nothing has come yet in the innermost container
  std::string_view text_;
};

}  // namespace

bool read_events(std::string_view text, JsonEvents& events) {
  return EventReader(text, events).read();
}

}  // namespace dodona::io
