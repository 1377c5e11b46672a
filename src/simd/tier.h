// Instruction-set tiers of vector code.
//
// A file `X.simd.cpp` is compiled once per tier, each time with that tier's flags and DODONA_TIER set to the tier's name.
// Everything in it must live in namespace dodona::DODONA_TIER (open it with `namespace dodona::DODONA_TIER {`), because an
// inline function compiled twice with different instruction sets would be one symbol to the linker, and it would keep the wrong one.
// For the same reason such files call no std:: templates that are not trivially inlined.
//
// A kernel is a struct with a static member template over the tier's tag, explicitly instantiated once per tier:
//   struct SumKernel { template <class Tier> static float run(const float* x, std::int64_t n); };   // header
//   namespace dodona {                                                                              // X.simd.cpp
//   template <class Tier> float SumKernel::run(const float* x, std::int64_t n) { return DODONA_TIER::sum(x, n); }
//   template float SumKernel::run<tier::DODONA_TIER>(const float*, std::int64_t);
//   }
// and is called through dispatch<SumKernel>(isa, x, n).
#pragma once

#include <utility>

#include "dodona/isa.h"

namespace dodona {

namespace tier {
struct generic {};
struct v3 {};
struct v4 {};
struct v4_vnni {};
struct neon {};
}  // namespace tier

/// Calls Kernel::run of the given tier. `isa` comes from an Exec, whose tier was checked against the CPU.
template <class Kernel, class... Args>
auto dispatch(Isa isa, Args&&... args) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::v3: return Kernel::template run<tier::v3>(std::forward<Args>(args)...);
    case Isa::v4: return Kernel::template run<tier::v4>(std::forward<Args>(args)...);
    case Isa::v4_vnni: return Kernel::template run<tier::v4_vnni>(std::forward<Args>(args)...);
#elif defined(__aarch64__)
    case Isa::neon: return Kernel::template run<tier::neon>(std::forward<Args>(args)...);
#endif
    default: return Kernel::template run<tier::generic>(std::forward<Args>(args)...);
  }
}

}  // namespace dodona
