// Special inputs of a case line: which inputs each strikes, by role alone, and what it makes of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/case_line.h"
#include "core/random.h"
#include "dodona/op.h"
#include "oracle/cases/generate.h"

namespace dodona::oracle {

/// Gives each planned input the specials of the line that strike it. Throws bad_option for one that strikes none of them.
void place_specials(const Op& op, const CaseLine& line, std::vector<InputPlan>& inputs);

/// What specials make of the numbers of one input while it is filled: a pure function of (seed, argument, special, element).
class StruckNumbers {
 public:
  StruckNumbers(const InputPlan& input, std::uint64_t seed);
  bool none() const { return strikes_.empty(); }
  /// Element `i` of the whole tensor, drawn as `value`; `drawn(k)` is what was drawn for element k.
  double operator()(std::int64_t i, double value, const std::function<double(std::int64_t)>& drawn) const;

 private:
  struct Strike {
    Special special;
    InputDraw draw;
  };
  std::vector<Strike> strikes_;
  std::int64_t rows_, width_;
  DType type_;
};

/// Specials of ids, lengths and offsets, once they are filled.
void strike_ids(const Tensor& tensor, const InputPlan& input, std::uint64_t seed);
/// Of a cache, once its table is there: what lies where no request looks.
void make_stale(const Tensor& cache, const InputPlan& input, const Arguments& arguments, std::uint64_t seed);
/// The rows as slices of wider ones, all bits of the gaps set: NaN, or -1.
Tensor with_gaps(const Tensor& tensor);

}  // namespace dodona::oracle
