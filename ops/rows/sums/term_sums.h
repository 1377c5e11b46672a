// Sums over the experts of a token in golden mode: what is open of one element's sum of few terms.
#pragma once

#include <cmath>
#include <limits>

#include "ops/base/bounded.h"

namespace dodona::ops {

inline bool is_denormal(double x) {
  return x != 0 && std::fabs(x) < flush_floor;
}

/// One element's terms: their sum, also as kernels add them in fp32 one by one, and the magnitudes of the finite ones.
struct TermSum {
  double sum = 0, magnitude = 0;
  float in_order = 0;
  bool flushable = false;  ///< a term or a partial sum in that order is denormal

  void add(double term) {
    sum += term;
    if (std::isfinite(term)) magnitude += std::fabs(term);
    in_order += static_cast<float>(term);
    flushable = flushable || is_denormal(term) || is_denormal(in_order);
  }
};

/// What all elements have in common.
struct TermSums {
  double factor = 1;  ///< of the sums, an fp32 number
  double count = 0;   ///< of terms
  bool flushes = true, any_order = true;
  double unit = f32_eps;                               ///< the largest relative error of an addition
  double largest = std::numeric_limits<float>::max();  ///< finite number that a partial sum may be

  /// The sum times the factor before its last rounding.
  Bounded bounded(const TermSum& terms) const {
    const double exact = any_order ? terms.sum * factor : static_cast<double>(terms.in_order * static_cast<float>(factor));
    // Infinity times a denormal is infinity, or NaN once the denormal is flushed.
    const bool may_be_nan = (flushes && ((is_denormal(factor) && !std::isfinite(terms.sum)) || (std::isinf(factor) && terms.flushable))) ||
                            (std::isinf(factor) && sign_is_open(terms));
    return {exact, slack(terms, exact), may_be_nan || (any_order && may_overflow(terms))};
  }

 private:
  /// Whether some order of the terms has a partial sum beyond the largest.
  bool may_overflow(const TermSum& terms) const { return terms.magnitude * (1.0 + roundings() * unit) > largest; }

  /// count - 1 additions (the first one, to zero, is exact), and the product.
  double roundings() const { return count - 1 + (factor == 1 ? 0 : 1); }

  /// Whether some order of the terms has a sum of zero, or of the other sign: of a product with zero that is the sign.
  bool sign_is_open(const TermSum& terms) const {
    return any_order && Bounded{terms.sum, (count - 1) * unit * terms.magnitude}.reaches_zero();
  }

  double slack(const TermSum& terms, double exact) const {
    const double scaled = terms.magnitude * std::fabs(factor);
    double open = any_order ? roundings() * unit * scaled : 0.0;
    if (factor == 0 && sign_is_open(terms)) open = 0x1p-149;
    if (!flushes) return open;
    // Each term and each partial sum below 2^-126 may be flushed: a change far below that of one rounding unless all are small. Where
    // the order is fixed, roundings are open only behind something flushed.
    if (any_order ? terms.magnitude < 0x1p-90 && terms.magnitude > 0 : terms.flushable) {
      open += 2.0 * count * flush_floor * std::fabs(factor) + (any_order ? 0.0 : roundings() * unit * scaled);
      if (exact == 0) open = std::fmax(open, flush_floor);
    }
    if (is_denormal(factor) || may_flush(exact)) open += std::fabs(exact);
    return open;
  }
};

}  // namespace dodona::ops
