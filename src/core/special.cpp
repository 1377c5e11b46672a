#include "core/special.h"

#include <algorithm>
#include <array>

namespace dodona {
namespace {

constexpr std::string_view rows = "rows of values and logits", logits = "logits", weights = "weights, and biases of logits",
                           lse = "log-sum-exps", scales = "scales", one_scale = "scales of one element";

constexpr std::array<SpecialText, 32> texts{{
    {"zero-rows", rows, "all zeros"},
    {"tiny-rows", rows, "2^-8 of what they were"},
    {"equal-rows", rows, "every element is the row's first"},
    {"zero-groups", rows, "zeros in the 128 columns, from a multiple of 128 on, that one of its elements lies in"},
    {"nan-rows", rows, "nothing but NaN"},
    {"nan-elements", rows, "one element is NaN"},
    {"infinite-elements", rows, "one element is infinite, of either sign"},
    {"fp8-ties", "rows of values that are quantized", "halfway between two codes of e4m3 once they are divided by the group's scale"},
    {"minus-infinite-logits", logits, "-inf for one element in eight"},
    {"negative-weights", weights, "4 less: with such a bias chosen scores are negative"},
    {"bf16-weights", weights, "rounded to bf16, so that it may be read as that"},
    {"empty-lse", lse, "-inf for one element in eight, of all log-sum-exps alike"},
    {"one-sided-lse", lse, "-inf for one element in eight of each"},
    {"infinite-lse", lse, "+inf for one element in eight of each"},
    {"empty-lse-rows", lse, "-inf in all of a token's heads, of all log-sum-exps alike"},
    {"zero-scales", scales, "0 for one element in eight"},
    {"tiny-scales", scales, "1e-23 for one element in eight; f32 and bf16"},
    {"largest-scales", scales, "448, or the type's largest number if that is less, for one element in eight"},
    {"saturating-scales", one_scale, "4096 times what it was"},
    {"fresh-scales", "scales of one element that the call itself sets", "0, as callers have it before they call"},
    {"edge-lengths", "lengths, positions and offsets", "at the edges of tiles and pages: 1, 15 to 17, 31 to 33, 63 to 65, 127 to 129"},
    {"one-group", "offsets with a known end", "one group has all the rows, the others none"},
    {"short-offsets", "offsets into rows that need not all be somebody's", "they end a quarter before the rows do"},
    {"absent-ids", "expert ids that may be none", "-1 for one element in eight"},
    {"repeated-ids", "expert ids", "the second of a row is the first once more"},
    {"one-expert", "expert ids", "every row has the ids of the first"},
    {"shared-pages", "page tables", "every row has the pages of the first"},
    {"first-slot", "indices and page tables", "the first is 0"},
    {"repeated-slots", "indices that may repeat", "the second is the first once more"},
    {"stale-cache", "caches of pages or slots", "NaN and the type's largest number where no request looks"},
    {"stale-rows", "rows of groups of which a length says how many there are", "NaN and the type's largest number where there are none"},
    {"gaps", "arguments that may be strided", "rows are a slice of wider ones, with NaN between them"},
}};

}  // namespace

std::span<const SpecialText> specials() {
  return texts;
}

std::string_view name(Special special) {
  return texts[static_cast<std::size_t>(special)].name;
}

std::optional<Special> parse_special(std::string_view name) {
  const auto found = std::find_if(texts.begin(), texts.end(), [&](const SpecialText& text) { return text.name == name; });
  if (found == texts.end()) return std::nullopt;
  return static_cast<Special>(found - texts.begin());
}

}  // namespace dodona
