// Elementary functions in double precision whose bits never change.
//
// They use only correctly rounded operations (+ - * /, comparisons, integer arithmetic, scaling through the exponent bits), in a fixed
// order, so a result depends neither on the C library nor on the CPU nor on the compiler. Golden values rest on them; libm's functions
// differ between versions. Needed: round to nearest, no flush to zero, no contraction (the build passes -ffp-contract=off).
//
// Special values are those of C's Annex F, but every NaN result is the one quiet NaN 0x7ff8000000000000, whatever payload came in, and
// errno and the exception flags mean nothing. Results in the subnormal range are as good as the others.
//
// Largest error seen, in units in the last place, of 4 to 6 million arguments each (3 million for pow), compared with MPFR:
//   log 0.501  log2 0.501  log1p 0.501  exp 0.514  exp2 0.518  sigmoid 0.515  pow 0.524
//   tanh 0.593  expm1 0.603  cos 0.781  sin 0.798  erf 0.825  erfc 0.848
#pragma once

namespace dodona::fixed {

double exp(double x);
double exp2(double x);
double expm1(double x);

double log(double x);
double log2(double x);
double log1p(double x);

/// For all finite arguments, however large.
double sin(double x);
double cos(double x);
struct SinCos {
  double sin, cos;
};
SinCos sincos(double x);

double tanh(double x);
/// 1 / (1 + exp(-x)), with full relative accuracy on both sides.
double sigmoid(double x);

double erf(double x);
/// 1 - erf(x), with full relative accuracy until it underflows (x = 27.2).
double erfc(double x);

/// Any base: a negative one gives a real result for integral y, else NaN.
double pow(double x, double y);

}  // namespace dodona::fixed
