// Machine code as a disassembler writes it (cuobjdump -sass, nvdisasm): what of it decides roundings.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dodona::ptx {

struct MachineCode {
  std::vector<std::string> instructions;  ///< "FFMA R5, R4, R5, R7", with predicates, without idle ones
  /// "fma.f32", "mul.f16x2"...: products, sums and both together. An FFMA or HFMA2 that adds nothing is a product, one that multiplies with
  /// 1 is a sum: ptxas shares them out over the units so.
  std::map<std::string, std::uint64_t> counts;
};

/// By function. Throws bad_file for text that has none.
std::map<std::string, MachineCode, std::less<>> read_sass(std::string_view text, const std::string& name);

}  // namespace dodona::ptx
