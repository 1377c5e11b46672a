// The Python dict literal in the header of an npy file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dodona::io {

struct NpyHeader {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

/// Parses a dict of exactly 'descr' (a string), 'fortran_order' (True or False) and 'shape' (a tuple of sizes), in any order, and nothing
/// after it but blanks. Nothing is evaluated. Throws Error(bad_file) naming `source` and the column; Error(unsupported) where descr is a
/// list, the layout of a structure.
NpyHeader parse_npy_header(std::string_view text, const std::string& source);

}  // namespace dodona::io
