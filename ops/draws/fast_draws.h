// Fast mode of the ops that cut rows of probabilities and draw from them: passes over the row, and over ever fewer of its elements.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/philox.h"
#include "dodona/exec.h"
#include "ops/draws/renorm.h"
#include "ops/draws/rounds.h"

namespace dodona::ops {

/// What of a row is kept and what it is divided by, as exact_renorm has it, from sums in fp32 blocks. No full sort.
Renorm fast_cut(std::span<const float> row, const Cut& cut, const Exec& exec);
/// The row cut and divided; `streamed`: written past the caches.
void fast_renorm(std::span<const float> row, const Cut& cut, float* to, bool streamed, const Exec& exec);
/// The largest of a row's numbers that fewer than `count` are larger than; -infinity where there are no more than count numbers. NaN counts
/// for nothing.
float kth_largest(std::span<const float> row, std::int64_t count, const Exec& exec);

/// A token of the row, after a cut where there is one.
std::int64_t fast_rejection(std::span<const float> row, const std::optional<Cut>& cut, const Acceptance& accepts, PhiloxStream stream,
                            const Exec& exec);
std::int64_t fast_above(std::span<const float> row, const Bar& bar, PhiloxStream stream, const Exec& exec);

/// The largest float that is not above x: y > x holds for the same floats y as y > float_below(x).
float float_below(double x);
/// The largest of the row, at least 0; NaN is passed over.
float largest_of(std::span<const float> row, Isa isa);

/// Throws where upstream's search for a threshold would never end: the row holds infinity.
void require_finite(std::span<const float> row, std::int64_t number, const char* argument);

}  // namespace dodona::ops
