#include "core/fixed_math.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#if defined(__FAST_MATH__)
#error "fixed_math.cpp cannot keep its promise under -ffast-math"
#endif
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

namespace dodona::fixed {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// ---- Numbers of about 106 bits: the sum hi + lo, with |lo| at most half a unit in the last place of hi ----

struct Double2 {
  double hi, lo;
};

/// a + b exactly. Needs |a| >= |b| or a = 0.
constexpr Double2 fast_two_sum(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

/// a + b exactly.
constexpr Double2 two_sum(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

/// Cuts a into two halves of at most 26 bits (Veltkamp). |a| < 2^996.
constexpr Double2 halves(double a) {
  const double scaled = a * 0x1.0000002p27;
  const double top = scaled - (scaled - a);
  return {top, a - top};
}

/// a * b exactly, unless it comes near the ends of the exponent range (Dekker).
constexpr Double2 two_product(double a, double b) {
  const double product = a * b;
  const Double2 x = halves(a), y = halves(b);
  return {product, ((x.hi * y.hi - product) + x.hi * y.lo + x.lo * y.hi) + x.lo * y.lo};
}

constexpr Double2 add(Double2 a, Double2 b) {
  const Double2 sum = two_sum(a.hi, b.hi);
  return fast_two_sum(sum.hi, sum.lo + (a.lo + b.lo));
}

constexpr Double2 multiply(Double2 a, double b) {
  const Double2 product = two_product(a.hi, b);
  return fast_two_sum(product.hi, product.lo + a.lo * b);
}

constexpr Double2 multiply(Double2 a, Double2 b) {
  const Double2 product = two_product(a.hi, b.hi);
  return fast_two_sum(product.hi, product.lo + (a.hi * b.lo + a.lo * b.hi));
}

constexpr Double2 divide(Double2 a, Double2 b) {
  const double quotient = a.hi / b.hi;
  const Double2 back = two_product(quotient, b.hi);
  const double rest = ((a.hi - back.hi) - back.lo + a.lo) - quotient * b.lo;
  return fast_two_sum(quotient, rest / b.hi);
}

constexpr Double2 kLn2{0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
constexpr Double2 kInverseLn2{0x1.71547652b82fep+0, 0x1.777d0ffda0d24p-56};
constexpr Double2 kHalfPi{0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54};
constexpr Double2 kTwoOverSqrtPi{0x1.20dd750429b6dp+0, 0x1.1ae3a914fed80p-56};

/// The multiple of `unit` (a power of two) next to x, for |x| < 2^51 unit, and what is left of x.
constexpr Double2 split_at(Double2 x, double unit) {
  const double shift = 0x1.8p52 * unit;
  const double hi = (x.hi + shift) - shift;
  return {hi, (x.hi - hi) + x.lo};
}

// ---- Bits ----

std::uint64_t bits_of(double x) {
  return std::bit_cast<std::uint64_t>(x);
}
double absolute(double x) {
  return std::bit_cast<double>(bits_of(x) & ~(std::uint64_t{1} << 63));
}
bool is_negative(double x) {
  return (bits_of(x) >> 63) != 0;
}
/// -x or x. Branchless, as is choose: signs and quadrants are too random for a branch predictor.
double with_sign(double x, bool negative) {
  return std::bit_cast<double>(bits_of(x) ^ static_cast<std::uint64_t>(negative) << 63);
}

double choose(bool first, double a, double b) {
  const std::uint64_t mask = std::uint64_t{0} - static_cast<std::uint64_t>(first);
  return std::bit_cast<double>((bits_of(a) & mask) | (bits_of(b) & ~mask));
}

/// 2^k for a k whose power is a normal number.
double power_of_two(int k) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(k + 1023) << 52);
}

/// (x.hi + x.lo) 2^k with one rounding, also where the result is subnormal. |x.hi| in [2^-80, 2], or up to 2^550 for k < -900; -1100 < k <
/// 1030.
double scale(Double2 x, int k) {
  if (k > 1000) return x.hi * power_of_two(k - 1000) * 0x1p1000;
  if (k >= -900) return x.hi * power_of_two(k);
  const double unit = power_of_two(-1074 - k);  // becomes the least subnormal
  if (absolute(x.hi) < 0x1p52 * unit) {
    const double shift = with_sign(0x1p52 * unit, is_negative(x.hi));  // sums with it are rounded to multiples of unit
    const Double2 sum = fast_two_sum(shift, x.hi);
    x.hi = (sum.hi + (sum.lo + x.lo)) - shift;
  }
  return x.hi * power_of_two(k + 200) * 0x1p-200;
}

// ---- Exponentials ----
//
// exp(x) = 2^k 2^(i/64) exp(r) with |r| <= ln2/128, the middle factor from a table, the last from its Taylor series.

constexpr int kExpSteps = 64;

constexpr std::array<Double2, kExpSteps> make_powers() {
  const Double2 x = multiply(kLn2, 1.0 / kExpSteps);
  Double2 root{1, 0};  // exp(x) by Horner: 1 + x/1 (1 + x/2 (1 + x/3 (...)))
  for (int n = 16; n > 0; --n) root = add({1, 0}, divide(multiply(root, x), {static_cast<double>(n), 0}));
  std::array<Double2, kExpSteps> powers{};
  powers[0] = {1, 0};
  for (std::size_t i = 1; i < kExpSteps; ++i) powers[i] = multiply(powers[i - 1], root);
  return powers;
}

/// kPowers[i] = 2^(i/64).
constexpr std::array<Double2, kExpSteps> kPowers = make_powers();

/// The number (hi + lo) 2^k, hi in (0.01, 2), |lo| < 0.006 hi.
struct Scaled {
  double hi, lo;
  int k;
};

/// x to the next integer, as a double and as an int. |x| < 2^31.
struct Rounded {
  double value;
  int integer;
};
Rounded round_to_integer(double x) {
  constexpr double kShift = 0x1.8p52;
  const double shifted = x + kShift;
  return {shifted - kShift, static_cast<int>(static_cast<std::uint32_t>(bits_of(shifted)))};
}

/// 2^(n/64) exp(r), |r| <= 0.0055. Relative error of hi + lo: about 2^-60.
Scaled exp_scaled_reduced(int n, double r) {
  const double p = r + r * r * (1.0 / 2 + r * (1.0 / 6 + r * (1.0 / 24 + r * (1.0 / 120 + r * (1.0 / 720)))));
  const Double2 power = kPowers[static_cast<std::size_t>(n & (kExpSteps - 1))];
  return {power.hi, power.lo + power.hi * p, n >> 6};
}

/// exp(x + x_lo), |x| < 800, |x_lo| at most about a unit in the last place of x.
Scaled exp_scaled(double x, double x_lo) {
  constexpr Double2 kStep = split_at(multiply(kLn2, 1.0 / kExpSteps), 0x1p-42);  // n * kStep.hi is exact for n < 2^17
  const Rounded n = round_to_integer(x * (kExpSteps * kInverseLn2.hi));
  return exp_scaled_reduced(n.integer, (x - n.value * kStep.hi) - (n.value * kStep.lo - x_lo));
}

double value(Scaled x) {
  return scale(fast_two_sum(x.hi, x.lo), x.k);
}

/// For |x.k| < 1000.
Double2 as_double2(Scaled x) {
  const double factor = power_of_two(x.k);
  return fast_two_sum(x.hi * factor, x.lo * factor);
}

constexpr double kExpOverflow = 710;    // exp(x) is infinite from here on
constexpr double kExpUnderflow = -746;  // and zero up to here

/// exp(x) - 1 for |x| <= 50, relative error about 2^-57.
Double2 expm1_double2(double x) {
  if (absolute(x) < 0.1) {
    double p = 1.0 / 39916800;
    for (const double coefficient :
         {1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2}) {
      p = coefficient + x * p;
    }
    return fast_two_sum(x, x * x * p);
  }
  const Scaled e = exp_scaled(x, 0);
  const double factor = power_of_two(e.k);
  const Double2 sum = two_sum(e.hi * factor, -1.0);
  return fast_two_sum(sum.hi, sum.lo + e.lo * factor);
}

// ---- Logarithms ----
//
// x = 2^k m with m in [0.6875, 1.375); log x = k ln2 - log c + log(1 + r), r = m c - 1, where c is near 1/m, has 11 bits and is
// exactly 1 on both sides of m = 1; log(1 + r) from its Taylor series.

constexpr std::uint64_t kMantissaStart = 0x3fe6000000000000;  // 0.6875
constexpr int kLogSteps = 128;
constexpr double kLogUnit = 0x1p-42;  // k ln2 - log c, cut to multiples of this, is exact for |k| < 1100

struct LogStep {
  double c;          // about 1 / m, a multiple of 2^-10
  double minus_log;  // -log c = minus_log + minus_log_lo, the first a multiple of kLogUnit
  double minus_log_lo;
};

/// -log c = 2 artanh z = 2 (z + z^3/3 + z^5/5 + ...), z = (1 - c) / (1 + c), |z| < 0.19.
constexpr Double2 minus_log(double c) {
  const Double2 z = divide({1 - c, 0}, {1 + c, 0});
  const Double2 square = multiply(z, z);
  Double2 sum{0, 0};
  for (int n = 43; n > 0; n -= 2) sum = add(multiply(sum, square), divide({1, 0}, {static_cast<double>(n), 0}));
  return multiply(multiply(sum, z), 2);
}

constexpr std::array<LogStep, kLogSteps> make_log_steps() {
  std::array<LogStep, kLogSteps> steps{};
  for (int i = 0; i < kLogSteps; ++i) {
    // 80 steps of 1/256 from 0.6875 to 1, then 48 of 1/128 from 1 to 1.375: the top seven bits of the mantissa.
    const double middle = i < 80 ? 0.6875 + (i + 0.5) / 256 : 1 + (i - 80 + 0.5) / 128;
    const bool beside_one = i == 79 || i == 80;
    const double c = beside_one ? 1.0 : split_at({1 / middle, 0}, 0x1p-10).hi;
    const Double2 parts = split_at(minus_log(c), kLogUnit);
    steps[static_cast<std::size_t>(i)] = {c, parts.hi, parts.lo};
  }
  return steps;
}

constexpr std::array<LogStep, kLogSteps> kLogStepTable = make_log_steps();

struct LogReduced {
  int k;
  LogStep step;
  Double2 r;  // exact: |r| < 2^-7
};

/// For positive finite x + x_lo, |x_lo| at most half a unit in the last place of x.
LogReduced log_reduce(double x, double x_lo) {
  int k = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    k = -54;
  }
  const std::uint64_t bits = bits_of(x);
  const std::uint64_t offset = bits - kMantissaStart;
  const int exponent = static_cast<int>(static_cast<std::int64_t>(offset) >> 52);
  const LogStep& step = kLogStepTable[(offset >> 45) & (kLogSteps - 1)];
  const std::uint64_t mantissa = bits - (static_cast<std::uint64_t>(exponent) << 52);
  const double top = std::bit_cast<double>(mantissa & ~((std::uint64_t{1} << 27) - 1));
  const double rest = std::bit_cast<double>(mantissa) - top;
  Double2 r = two_sum(top * step.c - 1, rest * step.c);
  if (x_lo != 0) r = fast_two_sum(r.hi, r.lo + x_lo * power_of_two(-exponent) * step.c);
  return {k + exponent, step, r};
}

/// head + head_lo + log(1 + r). `head` is 0 or larger than |r|. Relative error about 2^-68.
Double2 log_sum(double head, double head_lo, Double2 r) {
  const double x = r.hi;
  const Double2 square = two_product(x, x);
  double cubic = 1.0 / 9;
  for (const double coefficient : {-1.0 / 8, 1.0 / 7, -1.0 / 6, 1.0 / 5, -1.0 / 4, 1.0 / 3}) cubic = coefficient + x * cubic;
  cubic *= square.hi * x;
  const Double2 first = fast_two_sum(head, x);
  const Double2 second = fast_two_sum(first.hi, -0.5 * square.hi);
  const double small = head_lo + (r.lo - 0.5 * square.lo - x * r.lo);
  return fast_two_sum(second.hi, first.lo + second.lo + small + cubic);
}

Double2 natural_log(const LogReduced& x) {
  constexpr Double2 kLn2Split = split_at(kLn2, kLogUnit);
  return log_sum(x.k * kLn2Split.hi + x.step.minus_log, x.k * kLn2Split.lo + x.step.minus_log_lo, x.r);
}

/// True, and the result, when x is not a positive finite number.
bool log_special(double x, double& result) {
  if (x > 0 && x < kInf) return false;
  result = x == 0 ? -kInf : x == kInf ? kInf : kNan;
  return true;
}

// ---- Sine and cosine ----

struct Quadrant {
  Double2 r;   // |r| <= pi/4
  unsigned q;  // x = q pi/2 + r, modulo 2 pi
};

/// The binary digits of 2/pi after 64 zeros: the 64 digits of word w weigh 2^(63 - 64 w) and downwards.
constexpr std::array<std::uint64_t, 20> kTwoOverPi{
    0,
    0xa2f9836e4e441529,
    0xfc2757d1f534ddc0,
    0xdb6295993c439041,
    0xfe5163abdebbc561,
    0xb7246e3a424dd2e0,
    0x06492eea09d1921c,
    0xfe1deb1cb129a73e,
    0xe88235f52ebb4484,
    0xe99c7026b45f7e41,
    0x3991d639835339f4,
    0x9c845f8bbdf9283b,
    0x1ff897ffde05980f,
    0xef2f118b5a0a6d1f,
    0x6d367ecf27cb09b7,
    0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b,
    0x3d0739f78a5292ea,
    0x6bfb5fb11f8d5d08,
    0x56033046fc7b6bab,
};

__extension__ using Uint128 = unsigned __int128;

/// x = M 2^e with a 53-bit integer M. Of the product x * 2/pi only the value modulo 4 matters, so digits of 2/pi that weigh 4 or more
/// after the shift by e are left out (Payne and Hanek). 192 further digits are kept; no double comes closer than 2^-62 to a
/// multiple of pi/2, so the remainder has at least 64 good bits. For pi/4 < x < infinity.
Quadrant reduce_by_half_pi(double x) {
  const std::uint64_t bits = bits_of(x);
  const std::uint64_t mantissa = (bits & 0xfffffffffffff) | 0x10000000000000;
  const unsigned first = static_cast<unsigned>(bits >> 52) - 1075 + 62;  // place of the digit that weighs 2 after the shift
  const unsigned word = first / 64, shift = first % 64;
  const auto digits = [&](unsigned w) { return shift == 0 ? kTwoOverPi[w] : kTwoOverPi[w] << shift | kTwoOverPi[w + 1] >> (64 - shift); };

  // The product in units of whole turns, modulo 1: 128 bits after the binary point.
  const Uint128 turns = (static_cast<Uint128>(mantissa * digits(word)) << 64) + static_cast<Uint128>(mantissa) * digits(word + 1) +
                        (static_cast<Uint128>(mantissa) * digits(word + 2) >> 64);
  const Uint128 rounded = turns + (static_cast<Uint128>(1) << 125);
  const auto q = static_cast<unsigned>(rounded >> 126);
  Uint128 rest = turns - (static_cast<Uint128>(q) << 126);  // in [-1/8, 1/8) of a turn
  const bool negative = (rest >> 127) != 0;
  if (negative) rest = -rest;

  const auto top = static_cast<std::uint64_t>(rest >> 64);
  const int zeros = top != 0 ? std::countl_zero(top) : 64;
  rest <<= zeros;
  const auto hi = static_cast<double>(static_cast<std::uint64_t>(rest >> 75));
  const auto lo = static_cast<double>(static_cast<std::uint64_t>(rest >> 22) & 0x1fffffffffffff);
  const double unit = power_of_two(22 - 126 - zeros);  // of lo, in quarter turns
  const Double2 quarters = fast_two_sum(hi * 0x1p53 * unit, lo * unit);
  const Double2 r = multiply(quarters, kHalfPi);
  return negative ? Quadrant{{-r.hi, -r.lo}, q} : Quadrant{r, q};
}

constexpr double kShortReductionEnd = 0x1p20;

/// The same for x < 2^20, good while |r| > 2^-20: pi/2 is cut into 33 + 20 + 53 digits, so that n times the first two is exact (Cody and
/// Waite).
Quadrant reduce_short(double x) {
  constexpr double kTwoOverPiRounded = 0x1.45f306dc9c883p-1;
  constexpr double kFirst = split_at(kHalfPi, 0x1p-32).hi, kSecond = kHalfPi.hi - kFirst;
  const Rounded n = round_to_integer(x * kTwoOverPiRounded);
  const Double2 r = two_sum(x - n.value * kFirst, -(n.value * kSecond));
  return {fast_two_sum(r.hi, r.lo - n.value * kHalfPi.lo), static_cast<unsigned>(n.integer)};
}

Quadrant reduce(double magnitude) {
  constexpr double kQuarterPi = 0x1.921fb54442d18p-1;
  if (magnitude <= kQuarterPi) return {{magnitude, 0}, 0};
  if (magnitude < kShortReductionEnd) {
    const Quadrant reduced = reduce_short(magnitude);
    if (absolute(reduced.r.hi) > 0x1p-20) return reduced;
  }
  return reduce_by_half_pi(magnitude);
}

/// sin(r) = r - r^3/3! + ... - r^15/15! + r^17/17!.
double sin_kernel(Double2 r) {
  const double z = r.hi * r.hi;
  double p = 1.0 / 355687428096000;
  for (const double coefficient :
       {-1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6}) {
    p = coefficient + z * p;
  }
  return r.hi + (r.lo * (1 - 0.5 * z) + r.hi * z * p);
}

/// cos(r) = 1 - r^2/2 + r^4/4! - ... + r^16/16!. The rounding of r^2 would show, so its low part is kept.
double cos_kernel(Double2 r) {
  const Double2 z = two_product(r.hi, r.hi);
  double p = 1.0 / 20922789888000;
  for (const double coefficient : {-1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24}) {
    p = coefficient + z.hi * p;
  }
  const Double2 head = fast_two_sum(1, -0.5 * z.hi);
  return head.hi + (head.lo + (z.hi * z.hi * p - (0.5 * z.lo + r.hi * r.lo)));
}

bool swaps(unsigned quadrant) {
  return (quadrant & 1) != 0;
}
bool sin_is_negative(unsigned quadrant) {
  return (quadrant & 2) != 0;
}
bool cos_is_negative(unsigned quadrant) {
  return ((quadrant + 1) & 2) != 0;
}

// ---- The error function ----
//
// Up to 1/2 the Taylor series of erf. Beyond, erfc(x) = exp(-x^2) w(x), and w(x) = exp(x^2) erfc(x), smooth and slow, from its Taylor
// series about the middle of the piece that x falls into (eight pieces per power of two, from 1/2 to 28).

constexpr double kErfSmall = 0.5;
constexpr double kErfcUnderflow = 27.3;  // erfc(x) is zero from here on
constexpr int kErfcPieces = 46;
constexpr int kErfcDegree = 14;

struct ErfcPiece {
  double constant_lo;
  std::array<double, kErfcDegree + 1> coefficients;
};

/// Coefficient n of the Taylor series of w about x is (-2)^n J_n with J_n = exp(x^2) i^n erfc(x), the repeated integrals of erfc, for which
///   J_(n-2) = 2 x J_(n-1) + 2 n J_n   and   J_(-1) = 2/sqrt(pi).
/// All terms are positive, so the ratios q_n = J_n / J_(n-1) = 1 / (2 x + 2 (n+1) q_(n+1)) are stable when taken downwards from a
/// large n, where they may start from zero.
constexpr ErfcPiece make_erfc_piece(double x) {
  const int start = 40 + static_cast<int>(320 / (x * x));
  std::array<Double2, kErfcDegree + 1> ratios{};
  Double2 ratio{0, 0};
  for (int n = start; n >= 0; --n) {
    ratio = divide({1, 0}, add({2 * x, 0}, multiply(ratio, 2.0 * (n + 1))));
    if (n <= kErfcDegree) ratios[static_cast<std::size_t>(n)] = ratio;
  }
  ErfcPiece piece{};
  Double2 coefficient = multiply(ratios[0], kTwoOverSqrtPi);
  piece.constant_lo = coefficient.lo;
  for (std::size_t n = 0; n <= kErfcDegree; ++n) {
    piece.coefficients[n] = coefficient.hi;
    if (n < kErfcDegree) coefficient = multiply(multiply(coefficient, ratios[n + 1]), -2);
  }
  return piece;
}

constexpr double erfc_piece_middle(int i) {
  double octave = kErfSmall;
  for (int n = i / 8; n > 0; --n) octave *= 2;
  return octave * (1 + (i % 8 + 0.5) / 8);
}

constexpr std::array<ErfcPiece, kErfcPieces> make_erfc_pieces() {
  std::array<ErfcPiece, kErfcPieces> pieces{};
  for (int i = 0; i < kErfcPieces; ++i) pieces[static_cast<std::size_t>(i)] = make_erfc_piece(erfc_piece_middle(i));
  return pieces;
}

constexpr std::array<ErfcPiece, kErfcPieces> kErfcPieceTable = make_erfc_pieces();

/// erfc(x) for 1/2 <= x < kErfcUnderflow, relative error of hi + lo about 2^-57.
Scaled erfc_scaled(double x) {
  const std::uint64_t bits = bits_of(x);
  const ErfcPiece& piece = kErfcPieceTable[static_cast<std::size_t>((bits - bits_of(kErfSmall)) >> 49)];
  const std::uint64_t half_piece = std::uint64_t{1} << 48;
  const double d = x - std::bit_cast<double>((bits & ~(2 * half_piece - 1)) | half_piece);
  double p = piece.coefficients[kErfcDegree];
  for (std::size_t n = kErfcDegree - 1; n > 0; --n) p = piece.coefficients[n] + d * p;
  const Double2 w = fast_two_sum(piece.coefficients[0], piece.constant_lo + d * p);

  const Double2 square = two_product(x, x);
  const Scaled e = exp_scaled(-square.hi, -square.lo);
  const Double2 product = multiply(fast_two_sum(e.hi, e.lo), w);
  return {product.hi, product.lo, e.k};
}

/// erf(x) for |x| < 1/2: 2/sqrt(pi) x (1 - x^2/3 + x^4/10 - ...), term n = (-1)^n / (n! (2n+1)).
Double2 erf_double2(double x) {
  const double z = x * x;
  double p = -1.0 / 11975040000;
  for (const double coefficient : {1.0 / 918086400, -1.0 / 76204800, 1.0 / 6894720, -1.0 / 685440, 1.0 / 75600, -1.0 / 9360, 1.0 / 1320,
                                   -1.0 / 216, 1.0 / 42, -1.0 / 10, 1.0 / 3}) {
    p = coefficient + z * p;
  }
  // At the end of the range p z is 0.08 of the sum; its own rounding is the largest error there is.
  const Double2 head = two_product(x, kTwoOverSqrtPi.hi);
  return fast_two_sum(head.hi, head.lo + x * kTwoOverSqrtPi.lo - head.hi * (z * p));
}

// ---- Powers ----

enum class Parity { none, even, odd };

/// Whether y is an integer, and which kind. y is finite.
Parity parity(double y) {
  if (absolute(y) >= 0x1p53) return Parity::even;
  if (y != std::floor(y)) return Parity::none;
  return (static_cast<std::int64_t>(y) & 1) != 0 ? Parity::odd : Parity::even;
}

/// x^y for x > 0 finite, y finite and not 0.
double pow_positive(double x, double y) {
  const Double2 log_x = natural_log(log_reduce(x, 0));
  const double estimate = y * log_x.hi;
  if (estimate >= kExpOverflow) return kInf;
  if (estimate <= kExpUnderflow) return 0;
  if (absolute(estimate) < 0x1p-60) return 1;
  // Where |y| > 2^990 the product is so large that it was caught above, for |log x| >= 2^-53 or log x = 0.
  const Double2 product = two_product(y, log_x.hi);
  return value(exp_scaled(product.hi, product.lo + y * log_x.lo));
}

}  // namespace

double exp(double x) {
  if (!(x < kExpOverflow)) return x >= kExpOverflow ? kInf : kNan;
  if (x < kExpUnderflow) return 0;
  return value(exp_scaled(x, 0));
}

double exp2(double x) {
  if (!(x < 1024)) return x >= 1024 ? kInf : kNan;
  if (x <= -1075) return 0;
  const Rounded n = round_to_integer(x * kExpSteps);
  return value(exp_scaled_reduced(n.integer, (x - n.value * (1.0 / kExpSteps)) * kLn2.hi));
}

double expm1(double x) {
  if (x != x) return kNan;
  if (absolute(x) < 0x1p-54) return x;
  if (x < -38) return -1;
  if (x > 50) return exp(x);
  return expm1_double2(x).hi;
}

double log(double x) {
  double result = 0;
  if (log_special(x, result)) return result;
  return natural_log(log_reduce(x, 0)).hi;
}

double log2(double x) {
  double result = 0;
  if (log_special(x, result)) return result;
  const LogReduced reduced = log_reduce(x, 0);
  const Double2 log_mantissa = log_sum(reduced.step.minus_log, reduced.step.minus_log_lo, reduced.r);
  return add({static_cast<double>(reduced.k), 0}, multiply(log_mantissa, kInverseLn2)).hi;
}

double log1p(double x) {
  if (absolute(x) < 0x1p-54) return x;
  const double sum = 1 + x;
  double result = 0;
  if (log_special(sum, result)) return result;
  return natural_log(log_reduce(sum, x < 0x1p60 ? two_sum(1, x).lo : 0)).hi;
}

double sin(double x) {
  return sincos(x).sin;
}
double cos(double x) {
  return sincos(x).cos;
}

SinCos sincos(double x) {
  const double magnitude = absolute(x);
  if (!(magnitude < kInf)) return {kNan, kNan};
  if (magnitude < 0x1p-27) return {x, 1};
  const auto [r, q] = reduce(magnitude);
  const double s = sin_kernel(r), c = cos_kernel(r);
  return {with_sign(choose(swaps(q), c, s), sin_is_negative(q) != is_negative(x)), with_sign(choose(swaps(q), s, c), cos_is_negative(q))};
}

double tanh(double x) {
  const double magnitude = absolute(x);
  if (!(magnitude < 22)) return x != x ? kNan : with_sign(1, is_negative(x));
  if (magnitude < 0x1p-28) return x;
  const Double2 e = expm1_double2(2 * magnitude);
  return with_sign(divide(e, add(e, {2, 0})).hi, is_negative(x));
}

double sigmoid(double x) {
  if (x != x) return kNan;
  if (x > 38) return 1;
  if (x < -45) return exp(x);
  const Double2 e = as_double2(exp_scaled(-absolute(x), 0));
  return divide(x < 0 ? e : Double2{1, 0}, add({1, 0}, e)).hi;
}

double erf(double x) {
  const double magnitude = absolute(x);
  if (!(magnitude < 6)) return x != x ? kNan : with_sign(1, is_negative(x));
  if (magnitude < kErfSmall) {
    if (x == 0) return x;
    // Tiny arguments would lose the low part of the product to underflow.
    if (magnitude < 0x1p-500) return scale(multiply(kTwoOverSqrtPi, x * 0x1p1000), -1000);
    return erf_double2(x).hi;
  }
  const Double2 complement = as_double2(erfc_scaled(magnitude));
  const Double2 sum = fast_two_sum(1, -complement.hi);
  return with_sign(sum.hi + (sum.lo - complement.lo), is_negative(x));
}

double erfc(double x) {
  if (x != x) return kNan;
  if (x >= kErfcUnderflow) return 0;
  if (x <= -6) return 2;
  if (absolute(x) < 0x1p-60) return 1;
  if (absolute(x) < kErfSmall) {
    const Double2 e = erf_double2(x);
    const Double2 sum = fast_two_sum(1, -e.hi);
    return sum.hi + (sum.lo - e.lo);
  }
  const Scaled tail = erfc_scaled(absolute(x));
  if (x > 0) return value(tail);
  const Double2 complement = as_double2(tail);
  const Double2 sum = fast_two_sum(2, -complement.hi);
  return sum.hi + (sum.lo - complement.lo);
}

double pow(double x, double y) {
  if (y == 0 || x == 1) return 1;
  if (x != x || y != y) return kNan;
  const double magnitude = absolute(x);
  if (absolute(y) == kInf) {
    if (magnitude == 1) return 1;
    return (magnitude > 1) == (y > 0) ? kInf : 0;
  }
  const Parity kind = parity(y);
  const bool negative = is_negative(x) && kind == Parity::odd;
  if (magnitude == 0) return with_sign(y > 0 ? 0 : kInf, negative);
  if (magnitude == kInf) return with_sign(y > 0 ? kInf : 0, negative);
  if (x < 0 && kind == Parity::none) return kNan;
  return with_sign(pow_positive(magnitude, y), negative);
}

}  // namespace dodona::fixed
