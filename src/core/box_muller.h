// One pair of normal numbers from two random words, see core/random.h.
#pragma once

#include <array>
#include <cstdint>

namespace dodona {

/// fp32 of radius * cos(angle) and of radius * sin(angle), as core/random.h defines them, to the bit: computed by short series, and by
/// box_muller_exact() where their error could change a rounding.
std::array<float, 2> box_muller(std::uint32_t radius_word, std::uint32_t angle_word);
/// The definition itself.
std::array<float, 2> box_muller_exact(std::uint32_t radius_word, std::uint32_t angle_word);

}  // namespace dodona
