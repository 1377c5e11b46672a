// Which memory an opcode means.
#pragma once

#include "ptx/assembler.h"

namespace dodona::ptx {

/// Space::none is the generic one.
inline Space space_of(const Opcode& op) {
  for (const std::string_view part : op.parts) {
    if (part == "global") return Space::global;
    if (part == "shared" || part == "shared::cta" || part == "shared::cluster") return Space::shared;
    if (part == "local") return Space::local;
    if (part == "const") return Space::constant;
    if (part == "param" || part == "param::entry" || part == "param::func") return Space::parameter;
  }
  return Space::none;
}

/// What st.async and red.async do behind their bytes: an mbarrier hears of them.
void assemble_completion(Assembler& a, const Operand& barrier, std::size_t bytes);

/// Read and written a number at a time, whatever its alignment.
inline std::uint64_t load_bytes(const std::byte* from, std::size_t bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, from, bytes);
  return value;
}

}  // namespace dodona::ptx
