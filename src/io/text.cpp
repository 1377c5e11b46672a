#include "io/text.h"

#include <algorithm>

namespace dodona::io {
namespace {

unsigned byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

/// Length of the well-formed sequence at `i`, 0 if there is none (table 3-7 of the Unicode standard).
std::size_t sequence_length(std::string_view text, std::size_t i) {
  const unsigned lead = byte_at(text, i);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (length > text.size() - i) return 0;
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte_at(text, i + 1) < low || byte_at(text, i + 1) > high) return 0;
  for (std::size_t k = 2; k < length; ++k)
    if ((byte_at(text, i + k) & 0xC0) != 0x80) return 0;
  return length;
}

bool is_control(std::string_view text, std::size_t i) {
  const unsigned c = byte_at(text, i);
  if (c < 0x20 || c == 0x7F) return true;
  return c == 0xC2 && byte_at(text, i + 1) < 0xA0;  // U+0080 to U+009F, which some terminals obey
}

void append_escaped(std::string& out, unsigned byte) {
  constexpr char digits[] = "0123456789abcdef";
  out += "\\x";
  out += digits[byte >> 4];
  out += digits[byte & 15];
}

}  // namespace

std::size_t first_invalid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = sequence_length(text, i);
    if (length == 0) return i;
    i += length;
  }
  return std::string_view::npos;
}

std::string quote(std::string_view text, std::size_t limit) {
  std::string out = "'";
  std::size_t i = 0;
  while (i < text.size()) {
    const std::size_t length = sequence_length(text, i);
    const std::size_t step = std::max<std::size_t>(length, 1);
    if (i + step > limit) break;
    if (length == 0 || is_control(text, i)) {
      for (std::size_t k = 0; k < step; ++k) append_escaped(out, byte_at(text, i + k));
    } else {
      out += text.substr(i, length);
    }
    i += step;
  }
  out += "'";
  if (i < text.size()) out += "... (" + std::to_string(text.size()) + " bytes)";
  return out;
}

std::string line_and_column(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = 1 + before.size() - (newline == std::string_view::npos ? 0 : newline + 1);
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

}  // namespace dodona::io
