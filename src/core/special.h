// Special inputs that a case line asks for: what real kernels get wrong and random numbers never show.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace dodona {

/// In the order in which they strike: where two strike the same element the later one stands. docs/inputs.md says what each does.
enum class Special {
  zero_rows,
  tiny_rows,
  equal_rows,
  zero_groups,
  nan_rows,
  nan_elements,
  infinite_elements,
  fp8_ties,
  minus_infinite_logits,
  negative_weights,
  bf16_weights,
  empty_lse,
  one_sided_lse,
  infinite_lse,
  empty_lse_rows,
  zero_scales,
  tiny_scales,
  largest_scales,
  saturating_scales,
  fresh_scales,
  edge_lengths,
  one_group,
  short_offsets,
  absent_ids,
  repeated_ids,
  one_expert,
  shared_pages,
  first_slot,
  repeated_slots,
  stale_cache,
  stale_rows,
  gaps,
};

/// One line about each, in the order of the enumeration.
struct SpecialText {
  std::string_view name;     ///< as a case line has it: zero-rows
  std::string_view strikes;  ///< which inputs
  std::string_view summary;  ///< what becomes of them
};
std::span<const SpecialText> specials();
std::string_view name(Special special);
std::optional<Special> parse_special(std::string_view name);

}  // namespace dodona
