// Intel's matrix tiles (AMX): whether this process may use them, and what their configuration looks like.
//
// They are no tier: vector code beside them is that of v4_vnni. A kernel that has a use for them asks amx_facts(), and multiplies with
// vectors where they are not to be had. The sums of bytes that they make are exact (simd/amx_tiles.h), and those of bf16 in an order that
// vectors follow (simd/bf16_pairs.h), so the bits are those of vectors.
#pragma once

#include <cstdint>
#include <string_view>

#include "dodona/isa.h"

namespace dodona {

struct AmxFacts {
  bool cpu = false;      ///< has AMX-TILE, AMX-INT8 and AMX-BF16, with eight tiles of 16 rows of 64 bytes
  bool granted = false;  ///< the operating system saves tiles, and let this process use them
  bool wanted = true;    ///< DODONA_AMX is not 0
  bool in_use() const { return cpu && granted && wanted; }
};
/// Asked once; the kernel's permission is asked for only where the CPU has tiles and DODONA_AMX is not 0. Throws bad_option if DODONA_AMX
/// is neither 0 nor 1, or is 1 where tiles cannot be used.
const AmxFacts& amx_facts();
/// Whether kernels of this tier use tiles: v4_vnni where they are in use. Those below it are without, as each tier is without what is
/// above.
bool uses_amx(Isa isa);
/// `in use`, or why not, for readers.
std::string_view text(const AmxFacts& facts);

/// Rows and bytes of a row of each tile, as `ldtilecfg` reads them. All zero: tiles in their initial state.
struct alignas(64) TileShapes {
  std::uint8_t palette = 0, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  constexpr void set(int tile, int rows_of_it, int bytes_of_a_row) {
    palette = 1;
    rows[tile] = static_cast<std::uint8_t>(rows_of_it);
    row_bytes[tile] = static_cast<std::uint16_t>(bytes_of_a_row);
  }
};
static_assert(sizeof(TileShapes) == 64);

}  // namespace dodona
