// What ptxas may read as one fused multiplication and addition: `mul` and `add` or `sub` of floats without a rounding.
//
// ptxas makes one `fma` of a sum whose operand is a product of the same stretch of statements (no label and no branch between), of the same
// type and flushing, if the product is then used nowhere else: each of its uses is such a sum. Of two products the first goes into the sum,
// one that is used once before one that is used more often. It looks through moves and negations. (ptxas 12.8 to 13.0, read off its code.)
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "dodona/ptx.h"
#include "ptx/syntax.h"

namespace dodona::ptx {

/// A sum and the product that may go into it.
struct Absorption {
  std::size_t product = 0, sum = 0;  ///< statements
  std::size_t operand = 1;           ///< of the sum: 1 or 2
  bool negated = false;              ///< between the product and the sum
  bool kept[2] = {};                 ///< factors whose registers change between the two
  bool customary = false;            ///< ptxas does it
  bool other_goes_in = false;        ///< ptxas takes the sum's other operand, a quotient or another product
};

/// Every sum that is left open, in the order of the text.
std::vector<Absorption> open_sums(const Function& f);
OpenReading told(const Function& f, const Absorption& a);

/// `div.full`, which ptxas makes a product with the reciprocal (of a constant: the correctly rounded one), and then `add` or `sub` without
/// a rounding: the product and the sum become one `fma`. An H100 does so.
void contract_quotients(Function& f);
/// Sums whose places (OpenReading::place) are named become fma.
void fuse_sums(Function& f, const std::vector<std::size_t>& places);
/// The module's text with readings written out: the sums of `fused` are fma, those of `apart` have a rounding, the others stay as they are.
std::string text_with(const std::string& text, const Syntax& syntax, const std::vector<std::size_t>& fused,
                      const std::vector<std::size_t>& apart);

}  // namespace dodona::ptx
