// Well-known mistakes of kernels, as data: each says what the kernel must have had in the place of what it should have had.
//
// They follow from the schema alone: attributes set otherwise, dialects, and by role of each argument halves swapped, pairs laid out
// otherwise, logarithms in the other base, scales transposed, inverted, ignored or in another layout, cosine and sine exchanged, ids off by
// one, nibbles swapped, the end of the contracted dimension dropped. An op needs no code of its own for any of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "oracle/case_file.h"

namespace dodona::oracle {

struct Mistake {
  std::string id;    ///< `attr:gate_order=up_gate`, `halves-swapped:input`
  std::string text;  ///< what happened, for a reader
  /// Turns the call into the one that the kernel made: other inputs, or the actual outputs with the mistake undone. Tensors are replaced,
  /// never written through.
  std::function<void(Arguments& inputs, NamedTensors& actual)> apply;
};

/// Those that apply to this call, the likeliest first.
std::vector<Mistake> mistakes_of(const Op& op, const Arguments& inputs, const NamedTensors& actual);

}  // namespace dodona::oracle
