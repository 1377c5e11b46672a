// Arithmetic of fp16 and bf16, alone and in pairs: one rounding of the exact result; denormals are kept, NaN results are 0x7FFF.
#include <array>
#include <cmath>

#include "ptx/lanes.h"
#include "ptx/rounding.h"
#include "quant/half.h"
#include "quant/hopper/special.h"

namespace dodona::ptx {
namespace {

namespace hopper = quant::hopper;
using u16 = std::uint16_t;
using u32 = std::uint32_t;

struct OfF16 {
  static double value(u16 code) { return quant::f16_to_f32(code); }
  static u16 nearest(double x) { return quant::f64_to_f16(x); }
  static u16 cut(float x) {
    const u16 code = quant::f32_to_f16(x);
    if (x != x) return 0x7FFF;
    if ((code & 0x7FFF) == infinity && std::fabs(x) >= 0x1p16f) return code;
    return std::fabs(quant::f16_to_f32(code)) > std::fabs(x) ? static_cast<u16>(code - 1) : code;
  }
  static constexpr u16 infinity = 0x7C00, one = 0x3C00;
};
struct OfBf16 {
  static double value(u16 code) { return quant::bf16_to_f32(code); }
  static u16 nearest(double x) { return quant::f64_to_bf16(x); }
  static u16 cut(float x) { return x != x ? u16{0x7FFF} : static_cast<u16>(std::bit_cast<u32>(x) >> 16); }
  static constexpr u16 infinity = 0x7F80, one = 0x3F80;
};
constexpr u16 nan_code = 0x7FFF;

template <class T>
bool is_nan(u16 code) {
  return (code & 0x7FFF) > T::infinity;
}
template <class T>
u16 sum(double a, double b) {
  return T::nearest(to_odd(two_sum(a, b)));
}

template <class T>
u16 add(u16 a, u16 b) {
  return sum<T>(T::value(a), T::value(b));
}
template <class T>
u16 sub(u16 a, u16 b) {
  return sum<T>(T::value(a), -T::value(b));
}
template <class T>
u16 mul(u16 a, u16 b) {
  return T::nearest(T::value(a) * T::value(b));
}
template <class T>
u16 fma(u16 a, u16 b, u16 c) {
  return sum<T>(T::value(a) * T::value(b), T::value(c));
}
template <class T>
u16 relu(u16 r) {
  return is_nan<T>(r) ? nan_code : (r & 0x8000) != 0 ? u16{0} : r;
}
template <class T>
u16 fma_relu(u16 a, u16 b, u16 c) {
  return relu<T>(fma<T>(a, b, c));
}
template <class T>
u16 saturated(u16 r) {
  return is_nan<T>(r) || (r & 0x8000) != 0 ? u16{0} : r > T::one ? T::one : r;
}
template <class T>
u16 add_sat(u16 a, u16 b) {
  return saturated<T>(add<T>(a, b));
}
template <class T>
u16 mul_sat(u16 a, u16 b) {
  return saturated<T>(mul<T>(a, b));
}
template <class T>
u16 fma_sat(u16 a, u16 b, u16 c) {
  return saturated<T>(fma<T>(a, b, c));
}
template <class T, bool of_max, bool nan_wins>
u16 extreme(u16 a, u16 b) {
  if (is_nan<T>(a)) return nan_wins || is_nan<T>(b) ? nan_code : b;
  if (is_nan<T>(b)) return nan_wins ? nan_code : a;
  const double x = T::value(a), y = T::value(b);
  if (x == y) return of_max ? a & b : a | b;
  return (x > y) == of_max ? a : b;
}
template <class T>
u16 larger(u16 a, u16 b) {
  return extreme<T, true, false>(a, b);
}
template <class T>
u16 smaller(u16 a, u16 b) {
  return extreme<T, false, false>(a, b);
}
template <class T>
u16 larger_nan(u16 a, u16 b) {
  return extreme<T, true, true>(a, b);
}
template <class T>
u16 smaller_nan(u16 a, u16 b) {
  return extreme<T, false, true>(a, b);
}
template <class T>
u16 negated(u16 a) {
  return a ^ 0x8000;
}
template <class T>
u16 magnitude(u16 a) {
  return a & 0x7FFF;
}
/// The flushing function of fp32, cut toward zero: so an H100 has it for every code.
template <class T>
u16 ex2(u16 a) {
  return T::cut(hopper::ex2(static_cast<float>(T::value(a))));
}
template <class T>
u16 tanh(u16 a) {
  return T::cut(hopper::tanh(static_cast<float>(T::value(a))));
}

template <u16 (*f)(u16)>
u32 pair(u32 a) {
  return static_cast<u32>(f(static_cast<u16>(a >> 16))) << 16 | f(static_cast<u16>(a));
}
template <u16 (*f)(u16, u16)>
u32 pair(u32 a, u32 b) {
  return static_cast<u32>(f(static_cast<u16>(a >> 16), static_cast<u16>(b >> 16))) << 16 | f(static_cast<u16>(a), static_cast<u16>(b));
}
template <u16 (*f)(u16, u16, u16)>
u32 pair(u32 a, u32 b, u32 c) {
  return static_cast<u32>(f(static_cast<u16>(a >> 16), static_cast<u16>(b >> 16), static_cast<u16>(c >> 16))) << 16 |
         f(static_cast<u16>(a), static_cast<u16>(b), static_cast<u16>(c));
}

/// f16, bf16, f16x2, bf16x2.
struct Row {
  std::string_view name;
  std::array<Operation, 4> forms;
};
template <u16 (*f16)(u16), u16 (*bf16)(u16)>
constexpr Row of_one(std::string_view name) {
  constexpr u32 (*f16x2)(u32) = pair<f16>;
  constexpr u32 (*bf16x2)(u32) = pair<bf16>;
  return {name, {operation<f16>(""), operation<bf16>(""), operation<f16x2>(""), operation<bf16x2>("")}};
}
template <u16 (*f16)(u16, u16), u16 (*bf16)(u16, u16)>
constexpr Row of_two(std::string_view name) {
  constexpr u32 (*f16x2)(u32, u32) = pair<f16>;
  constexpr u32 (*bf16x2)(u32, u32) = pair<bf16>;
  return {name, {operation<f16>(""), operation<bf16>(""), operation<f16x2>(""), operation<bf16x2>("")}};
}
template <u16 (*f16)(u16, u16, u16), u16 (*bf16)(u16, u16, u16)>
constexpr Row of_three(std::string_view name) {
  constexpr u32 (*f16x2)(u32, u32, u32) = pair<f16>;
  constexpr u32 (*bf16x2)(u32, u32, u32) = pair<bf16>;
  return {name, {operation<f16>(""), operation<bf16>(""), operation<f16x2>(""), operation<bf16x2>("")}};
}

constexpr Row table[] = {
    of_two<add<OfF16>, add<OfBf16>>("add"),
    of_two<sub<OfF16>, sub<OfBf16>>("sub"),
    of_two<mul<OfF16>, mul<OfBf16>>("mul"),
    of_three<fma<OfF16>, fma<OfBf16>>("fma"),
    of_three<fma_relu<OfF16>, fma_relu<OfBf16>>("fma.relu"),
    of_two<add_sat<OfF16>, add_sat<OfBf16>>("add.sat"),
    of_two<mul_sat<OfF16>, mul_sat<OfBf16>>("mul.sat"),
    of_three<fma_sat<OfF16>, fma_sat<OfBf16>>("fma.sat"),
    of_two<larger<OfF16>, larger<OfBf16>>("max"),
    of_two<smaller<OfF16>, smaller<OfBf16>>("min"),
    of_two<larger_nan<OfF16>, larger_nan<OfBf16>>("max.NaN"),
    of_two<smaller_nan<OfF16>, smaller_nan<OfBf16>>("min.NaN"),
    of_one<negated<OfF16>, negated<OfBf16>>("neg"),
    of_one<magnitude<OfF16>, magnitude<OfBf16>>("abs"),
    of_one<ex2<OfF16>, ex2<OfBf16>>("ex2.approx"),
    of_one<ex2<OfF16>, ex2<OfBf16>>("ex2.approx.ftz"),
    of_one<tanh<OfF16>, tanh<OfBf16>>("tanh.approx"),
};

template <class T, bool unordered, bool less, bool equal, bool greater>
bool compare(u16 a, u16 b) {
  if (is_nan<T>(a) || is_nan<T>(b)) return unordered;
  const double x = T::value(a), y = T::value(b);
  return (less && x < y) || (equal && x == y) || (greater && x > y);
}
struct Comparison {
  std::string_view name;
  Operation f16, bf16;
};
template <bool unordered, bool less, bool equal, bool greater>
constexpr Comparison comparison(std::string_view name) {
  return {name, operation<compare<OfF16, unordered, less, equal, greater>>(""),
          operation<compare<OfBf16, unordered, less, equal, greater>>("")};
}
constexpr Comparison comparisons[] = {
    comparison<false, false, true, false>("eq"), comparison<false, true, false, true>("ne"),   comparison<false, true, false, false>("lt"),
    comparison<false, true, true, false>("le"),  comparison<false, false, false, true>("gt"),  comparison<false, false, true, true>("ge"),
    comparison<true, false, true, false>("equ"), comparison<true, true, false, true>("neu"),   comparison<true, true, false, false>("ltu"),
    comparison<true, true, true, false>("leu"),  comparison<true, false, false, true>("gtu"),  comparison<true, false, true, true>("geu"),
    comparison<false, true, true, true>("num"),  comparison<true, false, false, false>("nan"),
};

}  // namespace

const Operation* find_half(std::string_view opcode) {
  const std::size_t last = opcode.rfind('.');
  if (last == std::string_view::npos) return nullptr;
  constexpr std::array<std::string_view, 4> types{"f16", "bf16", "f16x2", "bf16x2"};
  std::size_t form = 0;
  while (form < types.size() && types[form] != opcode.substr(last + 1)) ++form;
  if (form == types.size()) return nullptr;
  std::string name(opcode.substr(0, last));
  if (name.starts_with("setp.")) {
    for (const Comparison& c : comparisons)
      if (c.name == name.substr(5)) return form == 0 ? &c.f16 : form == 1 ? &c.bf16 : nullptr;
    return nullptr;
  }
  if (const std::size_t rn = name.find(".rn"); rn != std::string::npos) name.erase(rn, 3);
  for (const Row& row : table)
    if (row.name == name) return &row.forms[form];
  return nullptr;
}

}  // namespace dodona::ptx
