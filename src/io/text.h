// Text from strangers: names and headers of files that somebody else wrote.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dodona::io {

/// Position of the first byte that is not part of well-formed UTF-8 (overlong forms, surrogates and code points above
/// U+10FFFF are ill-formed), or npos.
std::size_t first_invalid_utf8(std::string_view text);

/// `text` in single quotes, fit for an error message: control characters and ill-formed bytes as \xNN, and all but the first
/// `limit` bytes left out. A hostile name can neither drive the terminal nor flood it.
std::string quote(std::string_view text, std::size_t limit = 80);

/// "line 3, column 7" of the byte at `offset`, both counted from 1, columns in bytes.
std::string line_and_column(std::string_view text, std::size_t offset);

}  // namespace dodona::io
