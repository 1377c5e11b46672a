// Products of e4m3 with int4 by a matrix unit: its sums of bytes of digits are exact, so the bits are those of vectors, and so is all that
// is made ready for them. Blocks of rows that digits do not hold are left to vectors.
//
// The unit is a parameter, so that tests run all of this with a model of its instructions.
#pragma once

#include "ops/tiles/panel_i8/panel_i8.h"

namespace dodona::ops {

struct DigitsUnit {
  void (*multiply)(const I8Tile& tile);
  /// Fewer rows are left to vectors, which take no time for those that are not there.
  std::int64_t least_rows;
};
/// What kernels of a tier use, or nullptr.
const DigitsUnit* digits_unit(Isa isa);

/// i8_multiply of e4m3_i4 with a unit, or with none.
void digits_multiply_by(const DigitsUnit* unit, const I8Product& product, const Exec& exec);

/// The CPU's, for digits_unit: nothing on tiers that have none.
struct DigitsAmxKernel {
  template <class Tier>
  static DigitsUnit run();
};

}  // namespace dodona::ops
