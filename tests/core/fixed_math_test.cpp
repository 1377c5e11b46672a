#include "core/fixed_math.h"

#include <gtest/gtest.h>
#include <mpfr.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "core/philox.h"

namespace dodona {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kMax = std::numeric_limits<double>::max();
constexpr double kTiniest = std::numeric_limits<double>::denorm_min();
constexpr double kPi = 3.141592653589793238462643;
constexpr double kLn2 = 0.693147180559945309417232;

std::uint64_t bits_of(double x) {
  return std::bit_cast<std::uint64_t>(x);
}

// ---- The functions, where they are tried, and how far off they may be ----

using Unary = double (*)(double);

/// Arguments are drawn uniformly from [low, high]; or, `by_exponent`, with uniform exponent from that of low to that of high, and of either
/// sign when low is negative.
struct Range {
  double low, high;
  bool by_exponent = false;
};

struct Function {
  std::string name;
  Unary fixed;
  Unary libm;
  double most_ulps;  // the header's figure, rounded up a little
  std::vector<Range> ranges;
  std::vector<double> seams;  // arguments where the method changes
  std::uint64_t digest;       // of results over `ranges`
};

double libm_sigmoid(double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}

/// first, first + step, ..., n numbers.
std::vector<double> grid(double first, double step, int n) {
  std::vector<double> points;
  for (int i = 0; i < n; ++i) points.push_back(first + i * step);
  return points;
}

std::vector<double> joined(std::initializer_list<std::vector<double>> lists) {
  std::vector<double> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

/// First the double that comes closest to a multiple of pi/2.
const std::vector<double> kNearMultiplesOfHalfPi{
    0x1.6ac5b262ca1ffp+849, 0x1.921fb54442d18p+0, 0x1.921fb54442d18p+1, 0x1.6ac5b262ca1ffp+40, kMax, 0x1p40, 0x1p1023};

const std::vector<Function>& functions() {
  static const auto exp_seams = joined({grid(-90.5 * kLn2 / 64, kLn2 / 64, 182), {-708.4, -745.1, 709.78, 745.0, 0.1, -0.1}});
  static const auto log_seams = joined({grid(0.6875, 1.0 / 256, 81), grid(1 + 1.0 / 128, 1.0 / 128, 48), {0x1p-1022, 2, 0.5}});
  static const auto log1p_seams =
      joined({grid(0.6875 - 1, 1.0 / 256, 81), grid(1.0 / 128, 1.0 / 128, 48), {0x1p-54, 0x1p53, 0x1p54, 0x1p60, -0.5}});
  static const auto trig_seams = joined({grid(kPi / 4, kPi / 4, 400),
                                         grid(kPi / 2 + 0x1p-20, kPi / 2, 400),
                                         grid(667500 * kPi / 2 - 0x1p-20, kPi / 2, 100),
                                         {0x1p20, 0x1p-27},
                                         kNearMultiplesOfHalfPi});
  static const auto erf_seams =
      joined({grid(0.5, 1.0 / 16, 8), grid(1, 1.0 / 8, 8), grid(2, 1.0 / 4, 8), grid(4, 1.0 / 2, 4), {0x1p-500, 0x1p-960, -0.5, -1, -4}});
  static const auto erfc_seams = joined({erf_seams, grid(6, 0.5, 4), grid(8, 1, 8), grid(16, 2, 6), {26.54, 27.2, -5.9, 0x1p-60}});
  static const std::vector<Function> table{
      {"exp",
       fixed::exp,
       std::exp,
       0.52,
       {{-1, 1}, {-40, 40}, {-708, 709.7}, {-746, -708}, {-0x1p-60, 1, true}},
       exp_seams,
       0x40938acd123fe779},
      {"exp2",
       fixed::exp2,
       std::exp2,
       0.52,
       {{-1, 1}, {-60, 60}, {-1022, 1023.9}, {-1075, -1022}, {-0x1p-60, 1, true}},
       grid(-2, 1.0 / 128, 512),
       0xed4b093bcd5afd46},
      {"expm1",
       fixed::expm1,
       std::expm1,
       0.61,
       {{-0.11, 0.11}, {-1, 1}, {-40, 52}, {0, 709.7}, {-kTiniest, 1, true}},
       exp_seams,
       0xcd961371f351ba45},
      {"log", fixed::log, std::log, 0.51, {{0.98, 1.02}, {0.5, 2}, {0, 1000}, {kTiniest, kMax, true}}, log_seams, 0xc6c61bd3708a1387},
      {"log2", fixed::log2, std::log2, 0.51, {{0.98, 1.02}, {0.5, 2}, {0, 1000}, {kTiniest, kMax, true}}, log_seams, 0x26b6a96d14fb763b},
      {"log1p",
       fixed::log1p,
       std::log1p,
       0.51,
       {{-0.02, 0.02}, {-1, 1}, {0, 1000}, {kTiniest, kMax, true}, {-kTiniest, 0.5, true}},
       log1p_seams,
       0x5847c106d33dc384},
      {"sin",
       fixed::sin,
       std::sin,
       0.80,
       {{-0.8, 0.8}, {0, 2 * kPi}, {-1000, 1000}, {0, 163840}, {0, 0x1p40}, {-kTiniest, kMax, true}},
       trig_seams,
       0x75881102ba80fa7f},
      {"cos",
       fixed::cos,
       std::cos,
       0.79,
       {{-0.8, 0.8}, {0, 2 * kPi}, {-1000, 1000}, {0, 163840}, {0, 0x1p40}, {-kTiniest, kMax, true}},
       trig_seams,
       0x68606086d8acc},
      {"tanh",
       fixed::tanh,
       std::tanh,
       0.60,
       {{-0.06, 0.06}, {-1, 1}, {-22.5, 22.5}, {-kTiniest, 1, true}},
       joined({exp_seams, {0.05, 22}}),
       0x8eb5a9642ee5d655},
      {"sigmoid",
       fixed::sigmoid,
       libm_sigmoid,
       0.52,
       {{-1, 1}, {-46, 40}, {-708, -37}, {-746, -708}, {-0x1p-60, 1, true}},
       joined({exp_seams, {-45, 38}}),
       0x22b0df107e25508c},
      {"erf", fixed::erf, std::erf, 0.83, {{-0.5, 0.5}, {-6, 6}, {0.49, 1}, {-kTiniest, 1, true}}, erf_seams, 0x3b609cebef83d327},
      {"erfc",
       fixed::erfc,
       std::erfc,
       0.85,
       {{-0.5, 0.5}, {0.49, 6}, {-6.5, -0.49}, {6, 26.54}, {26.54, 27.3}, {-0x1p-60, 1, true}},
       erfc_seams,
       0x281b8a217f3c6cad},
  };
  return table;
}

/// Arguments drawn from a range by a fixed seed; no libm, so that everyone draws the same.
class Arguments {
 public:
  explicit Arguments(std::uint64_t seed) : stream_(seed, 0, 0) {}

  double next(const Range& range) {
    const double u = unit();
    if (!range.by_exponent) return range.low + (range.high - range.low) * u;
    const int from = std::ilogb(range.low), to = std::ilogb(range.high);
    const int exponent = from + static_cast<int>(stream_.next() % static_cast<unsigned>(to - from + 1));
    const double magnitude = std::ldexp(1 + u, exponent);
    return range.low < 0 && (stream_.next() & 1) != 0 ? -magnitude : magnitude;
  }

  /// For x^y: results over the whole range; bases near 1 with large exponents; the frequencies of rotary embeddings.
  void next_power(int kind, double& x, double& y) {
    const double exponent = next({-745, 709.7});
    x = kind == 0 ? next({0x1p-1000, 0x1p1000, true}) : kind == 1 ? 1 + next({-0x1p-50, 0.25, true}) : 10000;
    y = kind == 2 ? next({-1, 0}) : exponent / fixed::log(x);
  }

 private:
  double unit() {
    const std::uint64_t high = stream_.next();
    return static_cast<double>((high << 32 | stream_.next()) >> 11) * 0x1p-53;
  }

  PhiloxStream stream_;
};

// ---- The same bits everywhere ----

class Digest {
 public:
  void add(double x) {
    for (int shift = 0; shift < 64; shift += 8) state_ = (state_ ^ ((bits_of(x) >> shift) & 0xff)) * 0x100000001b3;
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325;
};

TEST(FixedMath, BitsAreTheRecordedOnes) {
  for (const Function& function : functions()) {
    Arguments arguments(1);
    Digest digest;
    for (const Range& range : function.ranges) {
      for (int i = 0; i < 10000; ++i) digest.add(function.fixed(arguments.next(range)));
    }
    for (const double x : function.seams) digest.add(function.fixed(x));
    EXPECT_EQ(digest.value(), function.digest) << function.name << std::hex << " 0x" << digest.value();
  }
}

TEST(FixedMath, PowBitsAreTheRecordedOnes) {
  Arguments arguments(2);
  Digest digest;
  for (int i = 0; i < 30000; ++i) {
    double x = 0, y = 0;
    arguments.next_power(i % 3, x, y);
    digest.add(fixed::pow(x, y));
  }
  EXPECT_EQ(digest.value(), 0x53af51f37318b608) << std::hex << "0x" << digest.value();
}

// ---- Accuracy ----

/// A step along the doubles, counted; for two finite doubles of one sign.
double steps_between(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) == std::isnan(b) ? 0 : kInf;
  if (a == b) return 0;
  if ((a < 0) != (b < 0)) return kInf;
  const std::uint64_t x = bits_of(std::fabs(a)), y = bits_of(std::fabs(b));
  return static_cast<double>(x > y ? x - y : y - x);
}

TEST(FixedMath, AgreesWithTheCLibraryToAFewUnits) {
  for (const Function& function : functions()) {
    Arguments arguments(3);
    for (const Range& range : function.ranges) {
      for (int i = 0; i < 5000; ++i) {
        const double x = arguments.next(range);
        ASSERT_LE(steps_between(function.fixed(x), function.libm(x)), 4) << function.name << " at " << std::hexfloat << x;
      }
    }
  }
}

class Exact {
 public:
  Exact() { mpfr_init2(value_, 128); }
  ~Exact() { mpfr_clear(value_); }
  Exact(const Exact&) = delete;
  Exact& operator=(const Exact&) = delete;
  mpfr_ptr get() { return value_; }

 private:
  mpfr_t value_;
};

int mpfr_sigmoid(mpfr_ptr result, mpfr_srcptr x, mpfr_rnd_t rounding) {
  mpfr_neg(result, x, rounding);
  mpfr_exp(result, result, rounding);
  mpfr_add_ui(result, result, 1, rounding);
  return mpfr_ui_div(result, 1, result, rounding);
}

using MpfrFunction = int (*)(mpfr_ptr, mpfr_srcptr, mpfr_rnd_t);

MpfrFunction mpfr_function(const std::string& name) {
  static const std::vector<std::pair<std::string, MpfrFunction>> table{
      {"exp", mpfr_exp}, {"exp2", mpfr_exp2}, {"expm1", mpfr_expm1}, {"log", mpfr_log},         {"log2", mpfr_log2}, {"log1p", mpfr_log1p},
      {"sin", mpfr_sin}, {"cos", mpfr_cos},   {"tanh", mpfr_tanh},   {"sigmoid", mpfr_sigmoid}, {"erf", mpfr_erf},   {"erfc", mpfr_erfc},
  };
  return std::find_if(table.begin(), table.end(), [&](const auto& entry) { return entry.first == name; })->second;
}

/// |got - exact| in units in the last place that a double of exact's magnitude has. Spoils `exact`.
double ulps_off(double got, mpfr_ptr exact) {
  if (mpfr_zero_p(exact)) return got == 0 ? 0 : kInf;
  const long exponent = std::max<long>(mpfr_get_exp(exact), -1021) - 53;
  if (std::isinf(got)) {  // right where the exact value rounds to it
    const double nearest = mpfr_get_d(exact, MPFR_RNDN);
    return nearest == got ? 0 : kInf;
  }
  mpfr_sub_d(exact, exact, got, MPFR_RNDN);
  mpfr_mul_2si(exact, exact, -exponent, MPFR_RNDN);
  return std::fabs(mpfr_get_d(exact, MPFR_RNDN));
}

/// Arguments per range. DODONA_FIXED_MATH_ARGUMENTS asks for more than a test run should take, and for a report.
int arguments_per_range(int usual) {
  const char* wish = std::getenv("DODONA_FIXED_MATH_ARGUMENTS");
  return wish != nullptr ? std::atoi(wish) : usual;
}

struct Worst {
  double ulps = 0, x = 0;

  void take(const Function& function, double argument) {
    static Exact exact;
    mpfr_set_d(exact.get(), argument, MPFR_RNDN);
    mpfr_function(function.name)(exact.get(), exact.get(), MPFR_RNDN);
    const double error = ulps_off(function.fixed(argument), exact.get());
    if (!(error <= ulps)) *this = {error, argument};
  }
};

TEST(FixedMath, StaysWithinItsStatedErrorAgainstMpfr) {
  const int count = arguments_per_range(1500);
  for (const Function& function : functions()) {
    Arguments arguments(17);
    Worst worst;
    for (const Range& range : function.ranges) {
      for (int i = 0; i < count; ++i) worst.take(function, arguments.next(range));
    }
    EXPECT_LE(worst.ulps, function.most_ulps) << function.name << " at " << std::hexfloat << worst.x;
    if (count > 10000) std::printf("%-8s %.4f at %a\n", function.name.c_str(), worst.ulps, worst.x);
  }
}

TEST(FixedMath, IsAsGoodWhereTheMethodChanges) {
  for (const Function& function : functions()) {
    Worst worst;
    for (const double seam : function.seams) {
      double below = seam, above = seam;
      for (int i = 0; i < 3; ++i) {
        worst.take(function, below);
        worst.take(function, above);
        below = std::nextafter(below, -kInf);
        above = std::min(std::nextafter(above, kInf), kMax);
      }
    }
    EXPECT_LE(worst.ulps, function.most_ulps) << function.name << " at " << std::hexfloat << worst.x;
  }
}

TEST(FixedMath, PowStaysWithinItsStatedErrorAgainstMpfr) {
  const int count = arguments_per_range(5000);
  Exact exact, exponent;
  Arguments arguments(18);
  double worst = 0, worst_x = 0, worst_y = 0;
  for (int i = 0; i < 3 * count; ++i) {
    double x = 0, y = 0;
    arguments.next_power(i % 3, x, y);
    mpfr_set_d(exact.get(), x, MPFR_RNDN);
    mpfr_set_d(exponent.get(), y, MPFR_RNDN);
    mpfr_pow(exact.get(), exact.get(), exponent.get(), MPFR_RNDN);
    const double error = ulps_off(fixed::pow(x, y), exact.get());
    if (!(error <= worst)) worst = error, worst_x = x, worst_y = y;
  }
  EXPECT_LE(worst, 0.53) << std::hexfloat << worst_x << " " << worst_y;
  if (count > 10000) std::printf("pow      %.4f at %a %a\n", worst, worst_x, worst_y);
}

// ---- Special values, as in C's Annex F ----

struct Special {
  Unary function;
  double argument, result;
};

TEST(FixedMath, SpecialValuesAreThoseOfC) {
  const std::vector<Special> table{
      {fixed::exp, 0.0, 1},
      {fixed::exp, -0.0, 1},
      {fixed::exp, kInf, kInf},
      {fixed::exp, -kInf, 0.0},
      {fixed::exp, 0x1.62e42fefa39efp+9, 0x1.fffffffffff2ap+1023},
      {fixed::exp, 0x1.62e42fefa39f0p+9, kInf},
      {fixed::exp, kMax, kInf},
      {fixed::exp, -kMax, 0.0},
      {fixed::exp, -745.13321910194110, kTiniest},
      {fixed::exp, -745.13321910194122, 0.0},
      {fixed::exp, kTiniest, 1},
      {fixed::exp2, -0.0, 1},
      {fixed::exp2, kInf, kInf},
      {fixed::exp2, -kInf, 0.0},
      {fixed::exp2, 1024, kInf},
      {fixed::exp2, -1074, kTiniest},
      {fixed::exp2, -1075, 0.0},
      {fixed::exp2, -0x1.0cbffffffffffp+10, kTiniest},
      {fixed::expm1, 0.0, 0.0},
      {fixed::expm1, -0.0, -0.0},
      {fixed::expm1, kInf, kInf},
      {fixed::expm1, -kInf, -1},
      {fixed::expm1, 710, kInf},
      {fixed::expm1, -kTiniest, -kTiniest},
      {fixed::log, 1, 0.0},
      {fixed::log, 0.0, -kInf},
      {fixed::log, -0.0, -kInf},
      {fixed::log, kInf, kInf},
      {fixed::log, -kTiniest, kNan},
      {fixed::log, -kInf, kNan},
      {fixed::log2, 1, 0.0},
      {fixed::log2, 0.0, -kInf},
      {fixed::log2, -0.0, -kInf},
      {fixed::log2, kInf, kInf},
      {fixed::log2, -1, kNan},
      {fixed::log1p, 0.0, 0.0},
      {fixed::log1p, -0.0, -0.0},
      {fixed::log1p, -1, -kInf},
      {fixed::log1p, -1.0000000000000002, kNan},
      {fixed::log1p, kInf, kInf},
      {fixed::log1p, -kInf, kNan},
      {fixed::log1p, kTiniest, kTiniest},
      {fixed::sin, 0.0, 0.0},
      {fixed::sin, -0.0, -0.0},
      {fixed::sin, kInf, kNan},
      {fixed::sin, -kInf, kNan},
      {fixed::sin, kTiniest, kTiniest},
      {fixed::cos, -0.0, 1},
      {fixed::cos, kInf, kNan},
      {fixed::tanh, 0.0, 0.0},
      {fixed::tanh, -0.0, -0.0},
      {fixed::tanh, kInf, 1},
      {fixed::tanh, -kInf, -1},
      {fixed::tanh, -kTiniest, -kTiniest},
      {fixed::sigmoid, 0.0, 0.5},
      {fixed::sigmoid, -0.0, 0.5},
      {fixed::sigmoid, kInf, 1},
      {fixed::sigmoid, -kInf, 0.0},
      {fixed::sigmoid, kMax, 1},
      {fixed::sigmoid, -745, kTiniest},
      {fixed::sigmoid, -746, 0.0},
      {fixed::erf, 0.0, 0.0},
      {fixed::erf, -0.0, -0.0},
      {fixed::erf, kInf, 1},
      {fixed::erf, -kInf, -1},
      {fixed::erf, kTiniest, kTiniest},
      {fixed::erfc, 0.0, 1},
      {fixed::erfc, -0.0, 1},
      {fixed::erfc, kInf, 0.0},
      {fixed::erfc, -kInf, 2},
      {fixed::erfc, kMax, 0.0},
      {fixed::erfc, -kMax, 2},
      {fixed::erfc, 27.226, kTiniest},
      {fixed::erfc, 27.2263, 0.0},
  };
  for (const Special& special : table) {
    const double got = special.function(special.argument);
    EXPECT_EQ(bits_of(got), bits_of(special.result))
        << "entry " << &special - table.data() << ": " << std::hexfloat << special.argument << " gave " << got;
  }
}

TEST(FixedMath, EveryNanIsTheOneQuietNan) {
  const double payload = std::bit_cast<double>(std::uint64_t{0xfff8000000001234});
  for (const Function& function : functions()) EXPECT_EQ(bits_of(function.fixed(payload)), 0x7ff8000000000000) << function.name;
  EXPECT_EQ(bits_of(fixed::sincos(payload).sin), 0x7ff8000000000000);
  EXPECT_EQ(bits_of(fixed::sincos(kInf).cos), 0x7ff8000000000000);
  EXPECT_EQ(bits_of(fixed::pow(payload, 2)), 0x7ff8000000000000);
  EXPECT_EQ(bits_of(fixed::pow(2, payload)), 0x7ff8000000000000);
}

TEST(FixedMath, PowSpecialValuesAreThoseOfC) {
  const std::vector<double> values{0.0,       -0.0,  1,      -1,         0.5,         -0.5,   2,          -2,    3,
                                   -3,        1.5,   -1.5,   kInf,       -kInf,       kNan,   kMax,       -kMax, kTiniest,
                                   -kTiniest, 1e300, -1e300, 0x1p52 + 1, -0x1p52 - 1, 0x1p53, 0x1p53 + 2, 1e-300};
  for (const double x : values) {
    for (const double y : values) {
      const double got = fixed::pow(x, y), want = std::pow(x, y);
      const bool ordinary = std::isfinite(want) && want != 0;  // then it may be a near tie
      EXPECT_TRUE(ordinary ? steps_between(got, want) <= 1 : bits_of(got) == bits_of(std::isnan(want) ? kNan : want))
          << std::hexfloat << x << " " << y << ": " << got << " " << want;
    }
  }
}

// ---- Exact results and identities ----

TEST(FixedMath, PowersOfTwoAreExactBothWays) {
  for (int k = -1074; k < 1024; ++k) {
    const double power = std::ldexp(1.0, k);
    ASSERT_EQ(fixed::exp2(k), power) << k;
    ASSERT_EQ(fixed::log2(power), k);
    ASSERT_EQ(fixed::pow(2, k), power) << k;
  }
}

TEST(FixedMath, PowIsExactWhereTheResultIsADouble) {
  double power = 1;
  for (int n = 0; n <= 22; ++n, power *= 10) EXPECT_EQ(fixed::pow(10, n), power) << n;
  for (int i = 1; i < 5000; ++i) {
    const double square = static_cast<double>(i) * i;
    ASSERT_EQ(fixed::pow(i, 2), square);
    ASSERT_EQ(fixed::pow(square, 0.5), i);
    ASSERT_EQ(fixed::pow(-i, 3), -square * i);
    ASSERT_EQ(fixed::pow(i, 1), i);
  }
}

TEST(FixedMath, SincosGivesTheBitsOfSinAndCos) {
  Arguments arguments(4);
  for (int i = 0; i < 20000; ++i) {
    const double x = arguments.next({-kTiniest, kMax, true});
    const fixed::SinCos both = fixed::sincos(x);
    ASSERT_EQ(bits_of(both.sin), bits_of(fixed::sin(x)));
    ASSERT_EQ(bits_of(both.cos), bits_of(fixed::cos(x)));
  }
}

TEST(FixedMath, OddFunctionsAreOddAndCosIsEven) {
  Arguments arguments(5);
  for (int i = 0; i < 20000; ++i) {
    const double x = arguments.next({-0x1p-40, 0x1p40, true});
    for (const Unary odd : {fixed::sin, fixed::tanh, fixed::erf}) ASSERT_EQ(bits_of(odd(-x)), bits_of(-odd(x))) << x;
    ASSERT_EQ(bits_of(fixed::cos(-x)), bits_of(fixed::cos(x))) << x;
  }
}

TEST(FixedMath, NothingLeavesItsRange) {
  Arguments arguments(6);
  for (int i = 0; i < 20000; ++i) {
    const double x = arguments.next({-0x1p-40, 0x1p10, true});
    for (const Unary bounded : {fixed::sin, fixed::cos, fixed::tanh, fixed::erf}) ASSERT_LE(std::fabs(bounded(x)), 1) << x;
    ASSERT_LE(fixed::sigmoid(x), 1) << x;
    ASSERT_GE(fixed::erfc(x), 0) << x;
    ASSERT_LE(fixed::erfc(x), 2) << x;
    ASSERT_GE(fixed::expm1(x), -1) << x;
  }
}

}  // namespace
}  // namespace dodona
