// What atomics make of the number that is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dodona::ptx {

/// What is stored, of the old number and the operands.
using Change = std::uint64_t (*)(std::uint64_t old, std::uint64_t b, std::uint64_t c);
/// Of an operation ("add") and a type ("f32"); nullptr: there is none.
Change find_change(std::string_view name, std::string_view type);
/// Of a bulk operation on numbers of a type and its size. Sums of fp32 keep denormals, in global memory too.
Change find_bulk_change(std::string_view name, std::string_view type, std::size_t bytes);

}  // namespace dodona::ptx
