// sin.approx and cos.approx of an H100, to the bit: one table, evaluated like the other functions (special.h).
//
// The argument is multiplied with 0.15915494 (1 / 2 pi, 0x3E22F983), cut toward zero: turns. Of those the whole ones are dropped and 25
// bits kept, two of the quadrant and 23 inside it, of the magnitude; odd quadrants, and the cosine, count from the other end (one's
// complement). v is in units of 2^-37, and cut to 24 significant bits.
//
// Source: PTX ISA `sin.approx`, `cos.approx` as compute capability 9.0 does them, which has one form for both with and without `.ftz`.
#pragma once

namespace dodona::quant::hopper {

float sin(float x);
float cos(float x);

}  // namespace dodona::quant::hopper
