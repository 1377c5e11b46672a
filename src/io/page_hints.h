// What is wanted of memory, told to the kernel.
#pragma once

#include <cstddef>
#include <span>

namespace dodona::io {

/// Hints about the pages under `bytes`, made for files in memory: they change nothing that is read, whatever memory it is, and may do
/// nothing. `soon`: read them ahead. `not_soon`: pages that lie wholly in it may be given back; a file has them still.
enum class Wanted { soon, not_soon };
void hint(std::span<const std::byte> bytes, Wanted wanted);

}  // namespace dodona::io
