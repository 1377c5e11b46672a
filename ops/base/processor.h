// What is known of this processor beside its instructions. It decides on speed alone, never on bits.
#pragma once

namespace dodona::ops {

/// Whether products of subnormal numbers take no longer than others.
inline bool subnormals_are_free() {
#if defined(__x86_64__)
  static const bool amd = __builtin_cpu_is("amd") != 0;
  return amd;
#else
  return true;
#endif
}

/// Whether a vector of sixteen lanes is carried out as two of eight (Zen 4): multiply-adds leave time for what widens their factors.
inline bool wide_vectors_are_split() {
#if defined(__x86_64__)
  static const bool zen_4 = __builtin_cpu_is("amdfam19h") != 0;
  return zen_4;
#else
  return false;
#endif
}

}  // namespace dodona::ops
