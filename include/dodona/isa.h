// Instruction-set tiers that vector code is compiled for.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace dodona {

/// Instruction-set tiers, in order; each one includes those before it on the same architecture.
enum class Isa {
  generic,  ///< scalar code with std::fma
  v3,       ///< x86-64-v3: AVX2, FMA, F16C
  v4,       ///< x86-64-v4: AVX-512 F/BW/DQ/VL/CD
  v4_vnni,  ///< v4 with AVX512-VNNI
  neon,     ///< AArch64 Advanced SIMD
};
inline constexpr int isa_count = 5;
std::string_view name(Isa isa);
std::optional<Isa> parse_isa(std::string_view text);

/// Tiers that this build contains and this CPU (and operating system) can run, slowest first.
const std::vector<Isa>& available_isas();
/// The fastest available tier, or what `DODONA_ISA` names. Throws bad_option if that one is unknown or cannot run here.
Isa default_isa();

}  // namespace dodona
