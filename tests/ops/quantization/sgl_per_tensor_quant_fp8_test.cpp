// Rules of sgl_per_tensor_quant_fp8.
#include "ops/quantization/sgl_per_tensor_quant_fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "dodona/error.h"
#include "quant/e4m3.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using helpers::filled, helpers::in_mode, helpers::tensor_of;

constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

using Quantizer = ops::SglPerTensorQuantFp8;

Tensor values(DType type, const Dims& shape) {
  const Tensor x(type, shape);
  for (std::int64_t i = 0; i < x.elements(); ++i)
    quant::set(x, i, std::sin(0.7 * static_cast<double>(i)) * std::exp2(static_cast<double>(i % 9)));
  return x;
}
Tensor scale_of(float value) {
  const Tensor scale(DType::f32, {1});
  *scale.as<float>() = value;
  return scale;
}

Quantizer dynamic(const Tensor& x, Mode mode, float before = 0, const char* divide = "rcp", int threads = 2, Isa isa = default_isa()) {
  return ops::run(Quantizer{.input = x, .output_q = {}, .output_s = scale_of(before), .divide = divide}, in_mode(mode, threads, isa));
}
Quantizer with_scale(const Tensor& x, Mode mode, float scale) {
  return ops::run(Quantizer{.input = x, .output_q = {}, .output_s = scale_of(scale), .is_static = true}, in_mode(mode));
}
float scale(const Quantizer& op) {
  return *op.output_s.as<float>();
}
unsigned code(const Quantizer& op, std::int64_t i) {
  return op.output_q.as<std::uint8_t>()[i];
}
oracle::Verdict judged(const Tensor& x, float before, const Quantizer& actual) {
  Arguments inputs;
  inputs.set("input", x);
  inputs.set("output_s", scale_of(before));
  inputs.set_attr("is_static", actual.is_static);
  return oracle::judge(registry().at("sgl_per_tensor_quant_fp8"), inputs, {{"output_q", actual.output_q}, {"output_s", actual.output_s}},
                       {});
}

TEST(SglPerTensorQuantFp8, OneScaleIsThatOfTheLargestElementWhereverItIs) {
  const std::int64_t count = 3 * 16384 + 5;
  for (const Mode mode : helpers::all_modes)
    for (const std::int64_t at : {std::int64_t{0}, std::int64_t{16383}, std::int64_t{16384}, count - 1}) {
      const Tensor x = filled(DType::bf16, {count}, 0.5);
      quant::set(x, at, -3.0);
      const Quantizer op = dynamic(x, mode);
      EXPECT_EQ(scale(op), 3.0f * (1.0f / 448.0f)) << name(mode) << at;
      EXPECT_EQ(code(op, at), 0xFEu) << name(mode) << at;
      EXPECT_EQ(code(op, at == 0 ? 1 : 0), quant::to_e4m3_satfinite(0.5 * 448 / 3)) << name(mode);
    }
}

struct Before {
  const char* what;
  float before, after;
};

TEST(SglPerTensorQuantFp8, TheScaleIsRaisedNeverLowered) {
  const Tensor x = tensor_of(DType::f32, {2, 2}, {1, -448, 3, 0.25});
  const Before table[] = {{"zero", 0, 1},
                          {"smaller", 0.5, 1},
                          {"equal", 1, 1},
                          {"larger wins", 2, 2},
                          {"negative", -5, 1},
                          {"minus zero", -0.0f, 1},
                          {"infinity", infinity, infinity}};
  for (const Before& row : table)
    for (const Mode mode : helpers::all_modes) {
      const float after = scale(dynamic(x, mode, row.before));
      EXPECT_EQ(after, row.after) << row.what << " " << name(mode);
      EXPECT_FALSE(std::signbit(after)) << row.what;
    }
  EXPECT_THROW(dynamic(x, Mode::fast, nan), Error);
  EXPECT_EQ(code(dynamic(x, Mode::fast, 2), 1), quant::to_e4m3_satfinite(-224.0)) << "codes follow the scale that stays";
}

TEST(SglPerTensorQuantFp8, AStaticScaleIsReadAndNotWritten) {
  const Tensor x = tensor_of(DType::bf16, {4}, {1, -2, 1000, 0});
  for (const Mode mode : helpers::all_modes)
    for (const float given : {0.5f, 2.0f, -4.0f, infinity}) {
      const Quantizer op = with_scale(x, mode, given);
      EXPECT_EQ(scale(op), given);
      for (std::int64_t i = 0; i < 4; ++i)
        EXPECT_EQ(code(op, i), quant::to_e4m3_satfinite(quant::get(x, i) / given)) << name(mode) << given;
      EXPECT_EQ(judged(x, given, op).failing(), 0);
    }
}

TEST(SglPerTensorQuantFp8, FastEqualsGoldenToTheBit) {
  for (const DType type : {DType::bf16, DType::f16, DType::f32})
    for (const char* divide : {"rcp", "ieee"})
      for (const Dims& shape : {Dims{1}, Dims{37}, Dims{3, 100}, Dims{2, 3, 4096}, Dims{0, 8}, Dims{50000}}) {
        const Tensor x = values(type, shape);
        const Quantizer golden = dynamic(x, Mode::golden, 0, divide);
        for (const Isa isa : available_isas())
          for (const int threads : {1, 3}) {
            const Quantizer fast = dynamic(x, Mode::fast, 0, divide, threads, isa);
            EXPECT_EQ(scale(golden), scale(fast));
            EXPECT_TRUE(helpers::same_bits(golden.output_q, fast.output_q)) << name(type) << " " << to_string(shape) << " " << name(isa);
          }
      }
}

TEST(SglPerTensorQuantFp8, RowsOfAWiderTensorGiveWhatTheirCopyGives) {
  const Tensor wide = values(DType::bf16, {3, 5, 70}), part = wide.slice(2, 6, 57).slice(1, 1, 4);
  for (const Mode mode : helpers::all_modes) {
    const Quantizer op = dynamic(part, mode), copied = dynamic(part.clone(), mode);
    EXPECT_EQ(scale(op), scale(copied));
    EXPECT_TRUE(helpers::same_bits(op.output_q, copied.output_q)) << name(mode);
  }
}

TEST(SglPerTensorQuantFp8, AFirstScaleOfEpsilonBy448IsTheFloorOfTheAbsorbedMatmulsQuantizer) {
  for (const double magnitude : {3.0, 1e-13}) {
    const Tensor x = values(DType::bf16, {4, 96});
    for (std::int64_t i = 0; i < x.elements(); ++i) quant::set(x, i, quant::get(x, i) * magnitude);
    // scale = max(max |x|, 1e-12) / 448, then the product with its reciprocal.
    float amax = 1e-12f;
    for (std::int64_t i = 0; i < x.elements(); ++i) amax = std::max(amax, std::fabs(static_cast<float>(quant::get(x, i))));
    const float wanted = amax / 448.0f, reciprocal = 1.0f / wanted;
    for (const Mode mode : {Mode::golden, Mode::fast}) {
      const Quantizer op = dynamic(x, mode, 1e-12f / 448.0f, "ieee");
      EXPECT_EQ(scale(op), wanted);
      for (std::int64_t i = 0; i < x.elements(); ++i)
        ASSERT_EQ(code(op, i), quant::to_e4m3_satfinite(static_cast<float>(quant::get(x, i)) * reciprocal)) << name(mode) << i;
    }
  }
}

TEST(SglPerTensorQuantFp8, AZeroTensorGivesZerosAndThe448OfUpstreamIsAKnownDefect) {
  const Tensor x = tensor_of(DType::bf16, {2, 2}, {0.0, -0.0, 0.0, 0.0});
  for (const Mode mode : {Mode::golden, Mode::fast}) {
    const Quantizer op = dynamic(x, mode);
    EXPECT_EQ(scale(op), 0.0f);
    EXPECT_EQ(code(op, 0), 0x00u);
    EXPECT_EQ(code(op, 1), 0x80u);
  }
  const Quantizer hopper = dynamic(x, Mode::hopper);
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(code(hopper, i), 0x7Eu);
  EXPECT_EQ(judged(x, 0, hopper).outcome, oracle::Outcome::known_defect);
  hopper.output_q.as<std::uint8_t>()[3] = 0x7D;
  EXPECT_EQ(judged(x, 0, hopper).outcome, oracle::Outcome::fail);
}

TEST(SglPerTensorQuantFp8, NanIsPassedOverAndStoredAs448) {
  for (const Mode mode : helpers::all_modes) {
    const Tensor x = tensor_of(DType::f32, {4}, {nan, 1, -2, nan});
    const Quantizer op = dynamic(x, mode);
    EXPECT_EQ(scale(op), 2.0f * (1.0f / 448.0f));
    EXPECT_EQ(code(op, 0), 0x7Eu);
    EXPECT_EQ(code(op, 2), 0xFEu);
    const Quantizer infinite = dynamic(tensor_of(DType::f32, {2}, {-infinity, -1}), mode);
    EXPECT_EQ(scale(infinite), infinity);
    EXPECT_EQ(code(infinite, 0), 0x7Eu);  // inf * 0 is NaN
    EXPECT_EQ(code(infinite, 1), 0x80u);
  }
}

TEST(SglPerTensorQuantFp8, CodesFollowTheStoredScaleWithinItsLastPlace) {
  const Tensor x = values(DType::f32, {512});
  Quantizer op = dynamic(x, Mode::golden);
  const float up = std::nextafter(scale(op), infinity);
  *op.output_s.as<float>() = up;
  for (std::int64_t i = 0; i < 512; ++i) quant::set(op.output_q, i, x.as<float>()[i] * (1.0f / up));
  EXPECT_EQ(judged(x, 0, op).outcome, oracle::Outcome::pass);
  *op.output_s.as<float>() = std::nextafter(std::nextafter(up, infinity), infinity);
  EXPECT_EQ(judged(x, 0, op).outcome, oracle::Outcome::fail);
}

TEST(SglPerTensorQuantFp8, FaultsFail) {
  const Tensor x = values(DType::bf16, {8, 64});
  const Quantizer ignored = dynamic(x, Mode::fast, 0);
  EXPECT_GT(judged(x, 10, ignored).failing(), 100) << "what the scale held is overwritten";
  const Quantizer raised = dynamic(x, Mode::fast, 10);
  EXPECT_GT(judged(x, 0, raised).failing(), 100) << "the scale was not cleared";
  Quantizer written = with_scale(x, Mode::fast, 0.25);
  *written.output_s.as<float>() = scale(ignored);
  EXPECT_GE(judged(x, 0.25, written).failing(), 1) << "a static scale is written";
  Quantizer inverse = with_scale(x, Mode::fast, 4);
  *inverse.output_s.as<float>() = 0.25;
  EXPECT_GT(judged(x, 0.25, inverse).failing(), 100) << "the scale is taken for its reciprocal";
}

}  // namespace
}  // namespace dodona
