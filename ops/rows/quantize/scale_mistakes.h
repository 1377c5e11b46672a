// What kernels that store groups in fp8 get wrong about the scale, for the ops that make it by fp8_bytes.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "core/define.h"
#include "ops/rows/cache/fp8_bytes.h"

namespace dodona::ops {

struct ScaleMistake {
  std::string_view id, text;
  ScaleMade made;
};

inline constexpr std::array<ScaleMistake, 5> scale_mistake_list{{
    {"maximum-without-magnitude", "the maximum is taken of values, not of magnitudes", ScaleMade::of_values},
    {"largest-code-240", "the largest code is taken for 240, as on another vendor's e4m3", ScaleMade::for_240},
    {"largest-code-224", "the largest code is taken for 224: scales are twice as large", ScaleMade::for_224},
    {"scale-of-power-of-two", "scales are rounded up to powers of two", ScaleMade::as_power},
    {"stored-as-power-of-two", "scales are rounded up to powers of two where they are stored; codes are made with others",
     ScaleMade::stored_as_power},
}};

/// golden.operator()<made>() is an op's golden mode with scales so made.
template <class O, class Golden>
std::vector<MistakeOf<O>> scale_mistakes(const Golden& golden) {
  return [&]<std::size_t... i>(std::index_sequence<i...>) {
    return std::vector<MistakeOf<O>>{
        {scale_mistake_list[i].id, scale_mistake_list[i].text, golden.template operator()<scale_mistake_list[i].made>()}...};
  }
  (std::make_index_sequence<scale_mistake_list.size()>());
}

}  // namespace dodona::ops
