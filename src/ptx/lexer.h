// Words of a PTX text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dodona::ptx {

enum class TokenKind { word, integer, f32, f64, text, mark, end };

/// A word is an opcode with all its modifiers, a directive, a register or a name: whatever holds together by letters, dots and `::`.
struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;         ///< of a word, a mark (one character) or a quoted text
  std::uint64_t value = 0;  ///< of a number: its bits
  int line = 0;
  std::size_t begin = 0;  ///< in the text
};

/// Comments left out; the last token is `end`. Throws bad_file.
std::vector<Token> read_tokens(std::string_view text, const std::string& name);

}  // namespace dodona::ptx
