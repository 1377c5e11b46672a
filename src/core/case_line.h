// One line of text names a case everywhere: `fused_add_rmsnorm T=64 H=7168 --seed 7 --dialect flashinfer`.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/row_range.h"
#include "core/special.h"
#include "dodona/op.h"

namespace dodona {

struct CaseLine {
  std::string op;
  std::map<std::string, std::int64_t> symbols;  ///< T=64
  Arguments attrs;                              ///< --attr eps=1e-5 (tensors unused)
  std::map<std::string, DType> dtypes;          ///< --dtype input=f16
  std::set<std::string> with, without;          ///< --with expert_map, --without bias: optional arguments
  std::uint64_t seed = 0;                       ///< --seed 7
  std::string dialect;                          ///< --dialect flashinfer; empty for the default
  std::string dist = "normal";                  ///< --dist normal|uniform|outliers|wide-exponent|ties|edge
  std::set<Special> specials;                   ///< --special zero-rows
  std::vector<std::string> variants;            ///< --variant other-sentinel:ids=0: another upstream's documented behaviour
  Window window;                                ///< --window T=0..8: these rows of the call alone
};

/// Parses `OP SYM=N... [--attr k=v] [--dtype arg=t] [--with arg] [--without arg] [--dist D] [--special S] [--variant V] [--window SYM=A..B]
/// [--seed N] [--dialect D]`. Numbers, true/false and words become typed values; the schema converts them further. Throws Error
/// (bad_option) naming the word that does not fit.
CaseLine parse_case_line(std::string_view text);
/// The line that parses back to the same case; defaults are left out.
std::string to_string(const CaseLine& line);
/// Recipe attributes of the line's dialect, then the line's own attributes over them. Throws bad_option for an unknown dialect.
Arguments attributes_of(const CaseLine& line, const OpSchema& schema);
/// Throws bad_option where the line has variants: `who` cannot follow them.
void refuse_variants(const CaseLine& line, std::string_view who);
/// The value that `text` reads as: a whole number, a number, true/false, else a word. What `spec` wants as a word is one, whatever else it
/// could be: `nan`.
AttrValue parse_attr_value(std::string_view text, const AttrSpec* spec = nullptr);

}  // namespace dodona
