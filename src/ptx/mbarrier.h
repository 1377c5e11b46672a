// A barrier in shared memory: 64 bits of our own making, counts of arrivals and of bytes that are on their way.
#pragma once

#include "ptx/assembler.h"
#include "ptx/machine.h"

namespace dodona::ptx {

/// Bytes of an asynchronous copy have come: the barrier at this shared address may open.
void complete_bytes(Machine& m, std::uint64_t address, std::uint32_t bytes, int lane, const Instruction& i);
void arrive(Machine& m, std::uint64_t address, std::uint32_t count, int lane, const Instruction& i);

}  // namespace dodona::ptx
