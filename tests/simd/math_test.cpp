// The functions of simd/math.h stay within one unit in the last place of the correctly rounded result.
#include <mpfr.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "tests/simd/probe.h"

namespace dodona::simd_tests {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

struct Function {
  ProbeOp op;
  double (*reference)(double);
};
const Function functions[] = {
    {ProbeOp::exp, [](double x) { return std::exp(x); }},
    {ProbeOp::exp2, [](double x) { return std::exp2(x); }},
    {ProbeOp::log, [](double x) { return std::log(x); }},
    {ProbeOp::log2, [](double x) { return std::log2(x); }},
    {ProbeOp::sigmoid, [](double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }},
    {ProbeOp::tanh, [](double x) { return std::tanh(x); }},
    {ProbeOp::erf, [](double x) { return std::erf(x); }},
    {ProbeOp::rsqrt, [](double x) { return 1 / std::sqrt(x); }},
};

/// Floats in order of value, one apart from their neighbours; both zeros are 0.
std::int64_t place(float x) {
  const std::uint32_t u = bits(x);
  const auto magnitude = static_cast<std::int64_t>(u & 0x7FFFFFFFu);
  return (u >> 31) != 0 ? -magnitude : magnitude;
}

/// Steps between two results; 2^40 where only one is NaN or two zeros differ in sign.
std::int64_t distance(float got, float expected) {
  constexpr std::int64_t wrong = std::int64_t{1} << 40;
  if (std::isnan(got) || std::isnan(expected)) return std::isnan(got) == std::isnan(expected) ? 0 : wrong;
  if (got == 0 && expected == 0 && std::signbit(got) != std::signbit(expected)) return wrong;
  return std::abs(place(got) - place(expected));
}

/// Around every special word, where the functions over- or underflow or their arguments are split anew, and where an exhaustive sweep
/// found their largest errors.
std::vector<std::uint32_t> critical_points() {
  std::vector<std::uint32_t> points;
  for (const std::uint32_t word : samples::special)
    for (std::uint32_t i = 0; i < 64; ++i) points.push_back(word - 32 + i);
  constexpr float edges[] = {88.72284f, 87.33655f, 103.97208f, 128.0f, 126.0f,  149.0f,     150.0f,     0.34657359f, 1.0397208f, 9.0109f,
                             8.6643f,   16.6355f,  17.3287f,   3.92f,  3.8325f, 0.7071068f, 1.4142135f, 1.3333334f,  0.6666667f};
  constexpr float worst[] = {0x1.765026p+2f, 0x1.f9fc6ap+6f, 0x1.55b146p+0f, 0x1.5b442ep+0f,  0x1.5f7ecp+0f,
                             0x1.216512p+2f, 0x1.588c46p-3f, 0x1.c83edap-3f, 0x1.019566p-126f};
  std::vector<float> centres(std::begin(edges), std::end(edges));
  centres.insert(centres.end(), std::begin(worst), std::end(worst));
  for (const float centre : centres) {
    for (int i = -32; i < 32; ++i) {
      points.push_back(bits(centre) + static_cast<std::uint32_t>(i));
      points.push_back((bits(centre) + static_cast<std::uint32_t>(i)) ^ 0x80000000u);
    }
  }
  return points;
}

/// x over all words from `first` in steps of `stride`.
std::vector<std::uint32_t> strided(std::uint32_t first, std::uint32_t stride) {
  std::vector<std::uint32_t> points;
  for (std::uint64_t word = first; word < std::uint64_t{1} << 32; word += stride) points.push_back(static_cast<std::uint32_t>(word));
  return points;
}

TEST(Math, IsWithinOneUnitOfDoublePrecisionOverAllFloats) {
  auto points = strided(1, 2011);
  const auto critical = critical_points();
  points.insert(points.end(), critical.begin(), critical.end());
  for (const Function& f : functions) {
    const auto got = map<float>(f.op, best(), points);
    std::int64_t worst = 0;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const auto expected = static_cast<float>(f.reference(from_bits(points[i])));
      const std::int64_t d = distance(got[i], expected);
      if (d > worst) {
        worst = d;
        EXPECT_LE(d, 1) << info_of(f.op).name << '(' << from_bits(points[i]) << ") gave " << got[i] << ", not " << expected;
      }
    }
  }
}

/// The function correctly rounded (through 200 bits, which no tie of these functions survives).
class Exact {
 public:
  Exact() {
    mpfr_init2(x_, 200);
    mpfr_init2(y_, 200);
  }
  ~Exact() {
    mpfr_clear(x_);
    mpfr_clear(y_);
  }
  Exact(const Exact&) = delete;
  Exact& operator=(const Exact&) = delete;

  float operator()(ProbeOp op, float x) {
    mpfr_set_flt(x_, x, MPFR_RNDN);
    switch (op) {
      case ProbeOp::exp: mpfr_exp(y_, x_, MPFR_RNDN); break;
      case ProbeOp::exp2: mpfr_exp2(y_, x_, MPFR_RNDN); break;
      case ProbeOp::log: mpfr_log(y_, x_, MPFR_RNDN); break;
      case ProbeOp::log2: mpfr_log2(y_, x_, MPFR_RNDN); break;
      case ProbeOp::tanh: mpfr_tanh(y_, x_, MPFR_RNDN); break;
      case ProbeOp::erf: mpfr_erf(y_, x_, MPFR_RNDN); break;
      case ProbeOp::rsqrt: mpfr_rec_sqrt(y_, x_, MPFR_RNDN); break;
      default:  // sigmoid
        mpfr_neg(y_, x_, MPFR_RNDN);
        mpfr_exp(y_, y_, MPFR_RNDN);
        mpfr_add_ui(y_, y_, 1, MPFR_RNDN);
        mpfr_ui_div(y_, 1, y_, MPFR_RNDN);
    }
    return mpfr_get_flt(y_, MPFR_RNDN);
  }

 private:
  mpfr_t x_, y_;
};

TEST(Math, IsWithinOneUnitOfTheCorrectlyRoundedResult) {
  auto points = strided(3, 524309);
  const auto critical = critical_points();
  points.insert(points.end(), critical.begin(), critical.end());
  Exact exact;
  for (const Function& f : functions) {
    const auto got = map<float>(f.op, best(), points);
    for (std::size_t i = 0; i < points.size(); ++i) {
      const float x = from_bits(points[i]);
      // tanh and erf of large arguments need exponents that MPFR walks through slowly; they are 1 there.
      if (std::abs(x) > 1e6f && f.op != ProbeOp::log && f.op != ProbeOp::log2 && f.op != ProbeOp::rsqrt) continue;
      // 1/sqrt(-0) is -infinity in IEEE, +infinity in MPFR.
      if (x == 0 && f.op == ProbeOp::rsqrt) continue;
      ASSERT_LE(distance(got[i], exact(f.op, x)), 1) << info_of(f.op).name << '(' << x << ") gave " << got[i];
    }
  }
}

void expect_exactly(ProbeOp op, const std::vector<float>& x, const std::vector<float>& expected) {
  const auto got = map<float>(op, best(), x);
  for (std::size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(distance(got[i], expected[i]), 0) << info_of(op).name << '(' << x[i] << ") = " << got[i];
}

TEST(Math, LimitsAndSpecialValues) {
  const std::vector<float> x{0.0f, -0.0f, infinity, -infinity, nan, -1000.0f, 1000.0f};
  expect_exactly(ProbeOp::exp, x, {1, 1, infinity, 0, nan, 0, infinity});
  expect_exactly(ProbeOp::exp2, x, {1, 1, infinity, 0, nan, 0, infinity});
  expect_exactly(ProbeOp::sigmoid, x, {0.5f, 0.5f, 1, 0, nan, 0, 1});
  expect_exactly(ProbeOp::tanh, x, {0.0f, -0.0f, 1, -1, nan, -1, 1});
  expect_exactly(ProbeOp::erf, x, {0.0f, -0.0f, 1, -1, nan, -1, 1});
  const std::vector<float> z{0.0f, -0.0f, infinity, -infinity, nan, -1e-45f, 1.0f};
  expect_exactly(ProbeOp::log, z, {-infinity, -infinity, infinity, nan, nan, nan, 0});
  expect_exactly(ProbeOp::log2, z, {-infinity, -infinity, infinity, nan, nan, nan, 0});
  expect_exactly(ProbeOp::rsqrt, z, {infinity, -infinity, 0, nan, nan, nan, 1});
}

TEST(Math, PowersOfTwoAreExact) {
  std::vector<float> x, power;
  for (int e = -149; e < 128; ++e) {
    x.push_back(static_cast<float>(e));
    power.push_back(std::ldexp(1.0f, e));
  }
  EXPECT_EQ(map<float>(ProbeOp::exp2, best(), x), power);
  EXPECT_EQ(map<float>(ProbeOp::log2, best(), power), x);
}

TEST(Math, DenormalResultsAreNotFlushed) {
  const std::vector<float> x{-100.0f, -103.0f};
  for (const ProbeOp op : {ProbeOp::exp, ProbeOp::sigmoid})
    for (const float y : map<float>(op, best(), x)) EXPECT_TRUE(y > 0 && y < std::numeric_limits<float>::min()) << y;
}

}  // namespace
}  // namespace dodona::simd_tests
