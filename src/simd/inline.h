// Vector code is inlined by force: a function that stayed out of line would pass its vectors through memory, and its symbol could be
// merged with one that was compiled for another instruction set. The generic tier has no vector registers to lose, and compiles much
// faster when it may leave functions whole.
#pragma once

#if DODONA_TIER_generic
#define DODONA_INLINE inline
#else
#define DODONA_INLINE inline __attribute__((always_inline))
#endif
