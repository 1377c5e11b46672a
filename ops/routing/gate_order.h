// Which orders of experts and groups an honest implementation may find, when their keys are known to an interval only.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace dodona::ops {

/// A sort key that an honest implementation computes somewhere in [low, high]. Equal origins give equal keys, whatever they are: the same
/// inputs go through the same arithmetic.
struct GateKey {
  double low, high;
  std::array<std::uint64_t, 2> origin;
};

/// Whether item a stands before item b in every falling order with ties to the lower index. A strict partial order.
bool stands_before(std::span<const GateKey> keys, std::int64_t a, std::int64_t b);

/// Whether `chosen` (in order) is what some keys within their intervals give: the `kept_groups` best groups, of those the best experts.
/// Groups hold equal numbers of consecutive experts.
///
/// Kept groups must be closed upward (with a group, every group that stands before it), hold the chosen experts, and hold no other expert
/// that stands before one of these. Such a set exists exactly when the upward closure of the chosen experts' groups has none of the groups
/// that must be dropped, and the sizes fit.
bool is_legitimate_choice(std::span<const GateKey> experts, std::span<const GateKey> groups, std::int64_t kept_groups,
                          std::span<const std::int64_t> chosen);

}  // namespace dodona::ops
