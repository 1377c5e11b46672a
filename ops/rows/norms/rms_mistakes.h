// What kernels that normalize rows get wrong about the factor 1/rms, for the ops that have one.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "core/define.h"
#include "ops/rows/norms/root_mean_square.h"

namespace dodona::ops {

struct RmsMistake {
  std::string_view id, text;
  RmsFactorOf factor;
  bool may_hide;
};

inline constexpr std::array<RmsMistake, 6> rms_mistake_list{{
    {"mean-over-padded-width", "the mean of squares is taken over the width padded to a power of two", rms_factor_of_padded_row, false},
    {"eps-outside-root", "epsilon is added to the root mean square, not under the root", rms_factor_eps_outside, true},
    {"factor-in-bf16", "1/rms is rounded to bf16 before it multiplies", rms_factor_in_bf16, true},
    {"squares-added-in-bf16", "the sum of squares is accumulated in bf16", rms_factor_of_squares_in_bf16, true},
    {"squares-added-in-f16", "the sum of squares is accumulated in fp16, which ends at 65504", rms_factor_of_squares_in_f16, true},
    {"tail-left-out", "columns behind the last whole 128 are left out of the sum of squares", rms_factor_without_tail, true},
}};

/// Of an op with weight_bias: only FlashInfer's kernel has one.
inline Refusal no_bias_in(const std::string& kernel) {
  return {"weight_bias", "is not zero, which has no hopper mode with kernel=" + kernel + ": flashinfer's alone adds it"};
}

/// The first `count` of them for an op, behind its `own`: golden.operator()<factor>() is its golden mode with another factor.
template <class O, std::size_t count = rms_mistake_list.size(), class Golden>
std::vector<MistakeOf<O>> rms_mistakes(const Golden& golden, std::vector<MistakeOf<O>> own = {}) {
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    (own.push_back({rms_mistake_list[i].id, rms_mistake_list[i].text, golden.template operator()<rms_mistake_list[i].factor>(),
                    rms_mistake_list[i].may_hide}),
     ...);
  }
  (std::make_index_sequence<count>());
  return own;
}

}  // namespace dodona::ops
