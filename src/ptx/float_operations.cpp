// Arithmetic of fp32 and fp64. NaN results of fp32 are 0x7FFFFFFF, as the machine has them.
#include <array>
#include <cmath>

#include "ptx/lanes.h"
#include "ptx/rounding.h"
#include "quant/hopper/fast_math.h"
#include "quant/hopper/sine.h"
#include "quant/hopper/triton.h"

namespace dodona::ptx {
namespace {

namespace hopper = quant::hopper;
using u32 = std::uint32_t;

u32 bits(float x) {
  return std::bit_cast<u32>(x);
}
float of_bits(u32 x) {
  return std::bit_cast<float>(x);
}

/// [0, 1]; NaN is 0.
float saturated(float x) {
  return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}

struct Add {
  static float nearest(float a, float b) { return canonical(a + b); }
  static float flushed(float a, float b) { return hopper::add(a, b); }
  static TwoSum exact(float a, float b) { return two_sum(a, b); }
};
struct Sub {
  static float nearest(float a, float b) { return canonical(a - b); }
  static float flushed(float a, float b) { return hopper::sub(a, b); }
  static TwoSum exact(float a, float b) { return two_sum(a, -static_cast<double>(b)); }
};
struct Mul {
  static float nearest(float a, float b) { return canonical(a * b); }
  static float flushed(float a, float b) { return hopper::mul(a, b); }
  static TwoSum exact(float a, float b) { return {static_cast<double>(a) * b, 0}; }
};
struct Fma {
  static float nearest(float a, float b, float c) { return canonical(std::fma(a, b, c)); }
  static float flushed(float a, float b, float c) { return hopper::fma(a, b, c); }
  static TwoSum exact(float a, float b, float c) { return two_sum(static_cast<double>(a) * b, c); }
};
struct Div {
  static float nearest(float a, float b) { return canonical(a / b); }
  static float flushed(float a, float b) { return hopper::ftz(canonical(hopper::ftz(a) / hopper::ftz(b))); }
  /// The quotient in double, and the sign of what is left of it.
  static TwoSum exact(float a, float b) {
    const double q = static_cast<double>(a) / b;
    if (!std::isfinite(q) || q == 0) return {q, 0};
    const double left = std::fma(-q, static_cast<double>(b), static_cast<double>(a));
    return {q, left == 0 ? 0 : std::copysign(std::fabs(q) * 0x1p-54, (left > 0) == (b > 0) ? 1.0 : -1.0)};
  }
};
struct Rcp {
  static float nearest(float a) { return Div::nearest(1.0f, a); }
  static float flushed(float a) { return Div::flushed(1.0f, a); }
  static TwoSum exact(float a) { return Div::exact(1.0f, a); }
};
struct Sqrt {
  static float nearest(float a) { return canonical(std::sqrt(a)); }
  static float flushed(float a) { return canonical(std::sqrt(hopper::ftz(a))); }
  static TwoSum exact(float a) {
    const double r = std::sqrt(static_cast<double>(a));
    if (!std::isfinite(r) || r == 0) return {r, 0};
    const double left = std::fma(-r, r, static_cast<double>(a));
    return {r, left == 0 ? 0 : std::copysign(r * 0x1p-54, left)};
  }
};

template <class F, Rounding rounding, bool flushes, bool saturates, class... A>
float arithmetic(A... a) {
  float r;
  if constexpr (rounding != Rounding::nearest) {
    r = rounded<rounding>(flushes ? F::exact(hopper::ftz(a)...) : F::exact(a...));
    if (flushes) r = hopper::ftz(r);
  } else if constexpr (flushes) {
    r = F::flushed(a...);
  } else {
    r = F::nearest(a...);
  }
  return saturates ? saturated(r) : r;
}

/// By rounding, flushing and saturation.
template <class F, class... A>
constexpr std::array<Operation, 16> forms() {
  using enum Rounding;
  return {operation<arithmetic<F, nearest, false, false, A...>>(""), operation<arithmetic<F, nearest, false, true, A...>>(""),
          operation<arithmetic<F, nearest, true, false, A...>>(""),  operation<arithmetic<F, nearest, true, true, A...>>(""),
          operation<arithmetic<F, zero, false, false, A...>>(""),    operation<arithmetic<F, zero, false, true, A...>>(""),
          operation<arithmetic<F, zero, true, false, A...>>(""),     operation<arithmetic<F, zero, true, true, A...>>(""),
          operation<arithmetic<F, down, false, false, A...>>(""),    operation<arithmetic<F, down, false, true, A...>>(""),
          operation<arithmetic<F, down, true, false, A...>>(""),     operation<arithmetic<F, down, true, true, A...>>(""),
          operation<arithmetic<F, up, false, false, A...>>(""),      operation<arithmetic<F, up, false, true, A...>>(""),
          operation<arithmetic<F, up, true, false, A...>>(""),       operation<arithmetic<F, up, true, true, A...>>("")};
}
struct Arithmetic {
  std::string_view name;
  std::array<Operation, 16> forms;
};
constexpr Arithmetic arithmetics[] = {{"add", forms<Add, float, float>()},
                                      {"sub", forms<Sub, float, float>()},
                                      {"mul", forms<Mul, float, float>()},
                                      {"fma", forms<Fma, float, float, float>()},
                                      {"mad", forms<Fma, float, float, float>()},
                                      {"div", forms<Div, float, float>()},
                                      {"rcp", forms<Rcp, float>()},
                                      {"sqrt", forms<Sqrt, float>()}};

float flush_if(float x, bool flushes) {
  return flushes ? hopper::ftz(x) : x;
}
/// maxNum of IEEE; of zeros the positive one is larger.
template <bool flushes, bool nan_wins>
float larger(float x, float y) {
  const float a = flush_if(x, flushes), b = flush_if(y, flushes);
  if (a != a) return nan_wins ? hopper::canonical_nan() : canonical(b);
  if (b != b) return nan_wins ? hopper::canonical_nan() : a;
  return a > b ? a : b > a ? b : of_bits(bits(a) & bits(b));
}
template <bool flushes, bool nan_wins>
float smaller(float x, float y) {
  const float a = flush_if(x, flushes), b = flush_if(y, flushes);
  if (a != a) return nan_wins ? hopper::canonical_nan() : canonical(b);
  if (b != b) return nan_wins ? hopper::canonical_nan() : a;
  return a < b ? a : b < a ? b : of_bits(bits(a) | bits(b));
}
template <bool flushes, bool nan_wins, bool of_max>
float by_magnitude(float a, float b) {
  const float x = of_bits(bits(a) & 0x7FFFFFFFu), y = of_bits(bits(b) & 0x7FFFFFFFu);
  const float r = of_max ? larger<flushes, nan_wins>(x, y) : smaller<flushes, nan_wins>(x, y);
  return of_bits(bits(r) | ((bits(a) ^ bits(b)) & 0x80000000u));
}
template <bool flushes>
float negated(float x) {
  return of_bits(bits(flush_if(x, flushes)) ^ 0x80000000u);
}
template <bool flushes>
float magnitude(float x) {
  return of_bits(bits(flush_if(x, flushes)) & 0x7FFFFFFFu);
}
float copysign_of(float sign, float x) {
  return of_bits((bits(sign) & 0x80000000u) | (bits(x) & 0x7FFFFFFFu));
}

float div_approx(float a, float b) {
  return hopper::triton::div(a, b);
}
float div_approx_flushed(float a, float b) {
  return hopper::div(a, b);
}
float div_full_flushed(float a, float b) {
  return hopper::ftz(hopper::triton::div(hopper::ftz(a), hopper::ftz(b)));
}
/// A quotient that a sum follows: its last product and the sum round once.
float div_full_add(float a, float b, float c) {
  const float magnitude_of_b = std::fabs(b);
  const float scale = magnitude_of_b > 0x1p126f ? 0.25f : magnitude_of_b < 0x1p-126f ? 0x1p24f : 1.0f;
  return canonical(std::fma(a * scale, hopper::rcp(b * scale), c));
}
/// A divisor that the compiler knows: multiplied with the correctly rounded reciprocal.
float div_constant(float a, float b) {
  return canonical(a * (1.0f / b));
}

bool test_finite(float x) {
  return std::isfinite(x);
}
bool test_infinite(float x) {
  return std::isinf(x);
}
bool test_number(float x) {
  return x == x;
}
bool test_notanumber(float x) {
  return x != x;
}
bool test_normal(float x) {
  return std::isnormal(x);
}
bool test_subnormal(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL;
}

double add64(double a, double b) {
  return a + b;
}
double sub64(double a, double b) {
  return a - b;
}
double mul64(double a, double b) {
  return a * b;
}
double fma64(double a, double b, double c) {
  return std::fma(a, b, c);
}
double div64(double a, double b) {
  return a / b;
}
double rcp64(double a) {
  return 1.0 / a;
}
double sqrt64(double a) {
  return std::sqrt(a);
}
double max64(double a, double b) {
  return a != a   ? b
         : b != b ? a
         : a > b  ? a
         : b > a  ? b
                  : std::bit_cast<double>(std::bit_cast<std::uint64_t>(a) & std::bit_cast<std::uint64_t>(b));
}
double min64(double a, double b) {
  return a != a   ? b
         : b != b ? a
         : a < b  ? a
         : b < a  ? b
                  : std::bit_cast<double>(std::bit_cast<std::uint64_t>(a) | std::bit_cast<std::uint64_t>(b));
}
double neg64(double a) {
  return -a;
}
double abs64(double a) {
  return std::fabs(a);
}
double copysign64(double sign, double x) {
  return std::copysign(x, sign);
}

constexpr Operation table[] = {
    operation<larger<false, false>>("max.f32"),
    operation<larger<true, false>>("max.ftz.f32"),
    operation<larger<false, true>>("max.NaN.f32"),
    operation<larger<true, true>>("max.ftz.NaN.f32"),
    operation<smaller<false, false>>("min.f32"),
    operation<smaller<true, false>>("min.ftz.f32"),
    operation<smaller<false, true>>("min.NaN.f32"),
    operation<smaller<true, true>>("min.ftz.NaN.f32"),
    operation<by_magnitude<false, false, true>>("max.xorsign.abs.f32"),
    operation<by_magnitude<false, false, false>>("min.xorsign.abs.f32"),
    operation<negated<false>>("neg.f32"),
    operation<negated<true>>("neg.ftz.f32"),
    operation<magnitude<false>>("abs.f32"),
    operation<magnitude<true>>("abs.ftz.f32"),
    operation<copysign_of>("copysign.f32"),
    operation<hopper::ex2_denormal>("ex2.approx.f32"),
    operation<hopper::ex2>("ex2.approx.ftz.f32"),
    operation<hopper::lg2_denormal>("lg2.approx.f32"),
    operation<hopper::lg2>("lg2.approx.ftz.f32"),
    operation<hopper::rcp_denormal>("rcp.approx.f32"),
    operation<hopper::rcp>("rcp.approx.ftz.f32"),
    operation<hopper::rsqrt_denormal>("rsqrt.approx.f32"),
    operation<hopper::rsqrt>("rsqrt.approx.ftz.f32"),
    operation<hopper::sqrt_denormal>("sqrt.approx.f32"),
    operation<hopper::sqrt>("sqrt.approx.ftz.f32"),
    operation<hopper::tanh>("tanh.approx.f32"),
    operation<hopper::sin>("sin.approx.f32"),
    operation<hopper::sin>("sin.approx.ftz.f32"),
    operation<hopper::cos>("cos.approx.f32"),
    operation<hopper::cos>("cos.approx.ftz.f32"),
    operation<hopper::triton::div>("div.full.f32"),
    operation<div_full_flushed>("div.full.ftz.f32"),
    operation<div_approx>("div.approx.f32"),
    operation<div_approx_flushed>("div.approx.ftz.f32"),
    operation<div_full_add>("div.full.add.f32"),
    operation<div_constant>("div.constant.f32"),
    operation<test_finite>("testp.finite.f32"),
    operation<test_infinite>("testp.infinite.f32"),
    operation<test_number>("testp.number.f32"),
    operation<test_notanumber>("testp.notanumber.f32"),
    operation<test_normal>("testp.normal.f32"),
    operation<test_subnormal>("testp.subnormal.f32"),
    operation<add64>("add.f64"),
    operation<add64>("add.rn.f64"),
    operation<sub64>("sub.f64"),
    operation<sub64>("sub.rn.f64"),
    operation<mul64>("mul.f64"),
    operation<mul64>("mul.rn.f64"),
    operation<fma64>("fma.rn.f64"),
    operation<fma64>("mad.rn.f64"),
    operation<div64>("div.rn.f64"),
    operation<rcp64>("rcp.rn.f64"),
    operation<sqrt64>("sqrt.rn.f64"),
    operation<max64>("max.f64"),
    operation<min64>("min.f64"),
    operation<neg64>("neg.f64"),
    operation<abs64>("abs.f64"),
    operation<copysign64>("copysign.f64"),
};

// ---- comparisons: a form that ends in u is also true where a NaN is compared

template <class T, bool unordered, bool less, bool equal, bool greater>
bool compare(T a, T b) {
  if (a != a || b != b) return unordered;
  return (less && a < b) || (equal && a == b) || (greater && a > b);
}
template <bool unordered, bool less, bool equal, bool greater>
bool compare_flushed(float a, float b) {
  return compare<float, unordered, less, equal, greater>(hopper::ftz(a), hopper::ftz(b));
}
template <bool unordered, bool less, bool equal, bool greater>
constexpr std::array<Operation, 3> comparison() {
  return {operation<compare<float, unordered, less, equal, greater>>(""), operation<compare_flushed<unordered, less, equal, greater>>(""),
          operation<compare<double, unordered, less, equal, greater>>("")};
}
struct Comparison {
  std::string_view name;
  std::array<Operation, 3> of_f32_flushed_f64;
};
constexpr Comparison comparisons[] = {
    {"eq", comparison<false, false, true, false>()}, {"ne", comparison<false, true, false, true>()},
    {"lt", comparison<false, true, false, false>()}, {"le", comparison<false, true, true, false>()},
    {"gt", comparison<false, false, false, true>()}, {"ge", comparison<false, false, true, true>()},
    {"equ", comparison<true, false, true, false>()}, {"neu", comparison<true, true, false, true>()},
    {"ltu", comparison<true, true, false, false>()}, {"leu", comparison<true, true, true, false>()},
    {"gtu", comparison<true, false, false, true>()}, {"geu", comparison<true, false, true, true>()},
    {"num", comparison<false, true, true, true>()},  {"nan", comparison<true, false, false, false>()},
};

const Operation* find_comparison(std::string_view rest) {
  const std::size_t dot = rest.find('.');
  if (dot == std::string_view::npos) return nullptr;
  const std::string_view name = rest.substr(0, dot), type = rest.substr(dot + 1);
  const int form = type == "f32" ? 0 : type == "ftz.f32" ? 1 : type == "f64" ? 2 : -1;
  if (form < 0) return nullptr;
  for (const Comparison& c : comparisons)
    if (c.name == name) return &c.of_f32_flushed_f64[static_cast<std::size_t>(form)];
  return nullptr;
}

/// `name{.rnd}{.ftz}{.sat}.f32`.
const Operation* find_arithmetic(std::string_view opcode) {
  const std::size_t dot = opcode.find('.');
  if (dot == std::string_view::npos) return nullptr;
  for (const Arithmetic& a : arithmetics) {
    if (a.name != opcode.substr(0, dot)) continue;
    std::string_view rest = opcode.substr(dot);
    const auto take = [&](std::string_view what) {
      if (!rest.starts_with(what)) return false;
      rest.remove_prefix(what.size());
      return true;
    };
    std::size_t form = take(".rz") ? 4 : take(".rm") ? 8 : take(".rp") ? 12 : 0;
    if (form == 0) take(".rn");
    if (take(".ftz")) form += 2;
    if (take(".sat")) form += 1;
    return rest == ".f32" ? &a.forms[form] : nullptr;
  }
  return nullptr;
}

}  // namespace

const Operation* find_float(std::string_view opcode) {
  if (opcode.starts_with("setp.")) return find_comparison(opcode.substr(5));
  if (const Operation* found = find_in(table, opcode)) return found;
  return find_arithmetic(opcode);
}

}  // namespace dodona::ptx
