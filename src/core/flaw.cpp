#include "core/flaw.h"

#include <limits>

#include "core/fixed_math.h"

namespace dodona {

double unshifted_exponential(double x) {
  const double value = fixed::exp(x);
  return value > static_cast<double>(std::numeric_limits<float>::max()) ? std::numeric_limits<double>::infinity()
         : value < 0x1p-150                                             ? 0.0
                                                                        : value;
}

}  // namespace dodona
