// Which experts are chosen, and which orders of experts and groups an honest implementation may find when their keys are known to an
// interval only.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dodona/op.h"
#include "ops/routing/scores.h"

namespace dodona::ops {

/// The best groups by the sum of their two best keys, of those the best experts by their keys; ties go to the lower index. Groups hold
/// equal numbers of consecutive experts. One group that is kept is a choice over all experts.
struct Choice {
  DType type;                                 ///< of keys and sums
  std::int64_t groups, kept_groups, experts;  ///< experts: chosen ones
};

/// The rule itself, and mistakes of choosing kernels.
enum class ChoiceRule {
  right,
  group_by_maximum,       ///< a group's key is its best alone
  ties_to_higher_index,   ///< among experts and among groups
  dropped_count_as_zero,  ///< keys of dropped groups become 0, not -inf
  begins_at_minus_one,    ///< the search for the largest begins with expert 0 at -1, not at -inf
  begins_at_zero,         ///< likewise at 0
};

/// What upstream's maxima start from; in 16-bit types it rounds to -inf.
float lowest_key(DType type);

/// The groups that are kept, rising.
std::vector<std::int64_t> kept_groups(const Choice& choice, std::span<const float> keys, float (*add)(float, float),
                                      ChoiceRule rule = ChoiceRule::right);

/// The chosen experts, in order. `add` is the arithmetic of the sums.
std::vector<std::int64_t> choose(const Choice& choice, std::span<const float> keys, float (*add)(float, float),
                                 ChoiceRule rule = ChoiceRule::right);

// ---- what the contract leaves open

/// A sort key that an honest implementation computes somewhere in [low, high]. Equal origins give equal keys, whatever they are: the same
/// inputs go through the same arithmetic.
struct GateKey {
  double low, high;
  std::array<std::uint64_t, 2> origin;
};

/// Keys of groups of such experts.
std::vector<GateKey> group_keys(DType type, std::int64_t groups, std::span<const GateKey> experts);

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

/// Whether `chosen` is a choice whose keys, none of them negative, were masked with 0 where groups were dropped, and which holds zeros of
/// such groups or may: an expert that was not chosen has no more than 0. `kept` and `dropped` say of which chosen experts it is known that
/// their group was.
bool is_legitimate_masked_choice(std::span<const GateKey> experts, std::span<const GateKey> groups, std::int64_t kept_groups,
                                 std::span<const std::int64_t> chosen, const std::vector<bool>& kept, const std::vector<bool>& dropped);

/// The experts that the ids of a row name from position `begin` on, where they are not those that the reference has.
std::optional<std::vector<std::int64_t>> other_choice(const Tensor& ids, const ReferenceOutput& expected, std::int64_t begin,
                                                      std::int64_t count);

}  // namespace dodona::ops
