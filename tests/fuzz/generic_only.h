// Included before everything else where the fuzzer's library is compiled: vector code there is the generic tier alone, whatever the
// machine.
#pragma once

#include <utility>

#include "dodona/exec.h"

#pragma push_macro("__x86_64__")
#undef __x86_64__
#pragma push_macro("__aarch64__")
#undef __aarch64__
#include "simd/tier.h"
#pragma pop_macro("__aarch64__")
#pragma pop_macro("__x86_64__")
