// Models of tensor cores against recorded steps of each.
#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "quant/element.h"
#include "quant/tensor_core/accumulate.h"
#include "quant/tensor_core/step.h"

namespace dodona::quant::tensor_core {
namespace {

struct Recording {
  const char* file;
  MmaSpec spec;
};

void PrintTo(const Recording& recording, std::ostream* stream) {
  *stream << recording.file;
}

struct Steps {
  Tensor a, b, c, d;

  std::int64_t count() const { return a.size(0); }
  std::int64_t k() const { return a.size(1); }
  const std::byte* row(const Tensor& t, std::int64_t s) const { return t.as<std::byte>() + s * k() * bits(t.dtype()) / 8; }
  float before(std::int64_t s) const { return std::bit_cast<float>(c.as<std::int32_t>()[s]); }
  std::uint32_t after(std::int64_t s) const { return std::bit_cast<std::uint32_t>(d.as<std::int32_t>()[s]); }
};

Steps read(const Recording& recording) {
  const auto file = io::SafetensorsFile::open(std::string(DODONA_SOURCE_DIR) + "/tests/golden/_hardware/tensor_core_steps/" +
                                              recording.file + ".safetensors");
  return {file.tensor("a").clone(), file.tensor("b").clone(), file.tensor("c").clone(), file.tensor("d").clone()};
}

/// The chain of steps that an instruction is, by the definition.
float by_definition(const MmaSpec& spec, const Steps& steps, std::int64_t s) {
  float accumulator = steps.before(s);
  for (std::int64_t begin = 0; begin < steps.k(); begin += spec.products) {
    std::vector<Factor> a, b;
    for (std::int64_t k = begin; k < begin + spec.products; ++k) {
      const auto factor = [&](const Tensor& t) {
        return decode_factor(spec, t.dtype(), static_cast<std::uint32_t>(load_bits(t.dtype(), steps.row(t, s), k)));
      };
      a.push_back(factor(steps.a));
      b.push_back(factor(steps.b));
    }
    accumulator = mma_step(spec, a, b, accumulator);
  }
  return accumulator;
}

float by_lanes(const MmaSpec& spec, const Steps& steps, std::int64_t s) {
  float accumulator = steps.before(s);
  accumulate(MmaRows(spec, steps.a.dtype(), steps.row(steps.a, s), 1, steps.k()),
             MmaColumns(spec, steps.b.dtype(), steps.row(steps.b, s), 1, steps.k()), 0, steps.k(), &accumulator, 1);
  return accumulator;
}

std::int64_t differing(const MmaSpec& spec, const Steps& steps) {
  std::int64_t count = 0;
  for (std::int64_t s = 0; s < steps.count(); ++s) count += std::bit_cast<std::uint32_t>(by_lanes(spec, steps, s)) != steps.after(s);
  return count;
}

class TensorCoreSteps : public testing::TestWithParam<Recording> {};

TEST_P(TensorCoreSteps, GiveTheRecordedBits) {
  const Steps steps = read(GetParam());
  ASSERT_EQ(steps.count(), 1000);
  for (std::int64_t s = 0; s < steps.count(); ++s) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(by_definition(GetParam().spec, steps, s)), steps.after(s)) << "step " << s;
    ASSERT_EQ(std::bit_cast<std::uint32_t>(by_lanes(GetParam().spec, steps, s)), steps.after(s)) << "step " << s << ", lanes";
  }
}

TEST_P(TensorCoreSteps, SeeABitOfTheAddendsAndOfTheSum) {
  const Steps steps = read(GetParam());
  MmaSpec coarser = GetParam().spec, finer = coarser, shorter = coarser;
  --coarser.addend_bits;
  if (finer.addend_bits < 25) ++finer.addend_bits;
  --shorter.sum_bits;
  EXPECT_GT(differing(coarser, steps), 20);
  if (finer != GetParam().spec) EXPECT_GT(differing(finer, steps), 20);
  EXPECT_GT(differing(shorter, steps), 20);
}

constexpr Recording recordings[] = {
    {"sm80_bf16", sm80_half}, {"sm89_e4m3", sm89_fp8},  {"sm89_e5m2", sm89_fp8},   {"sm90_bf16", half_mma},
    {"sm90_f16", half_mma},   {"sm90_e4m3", fp8_wgmma}, {"sm90_e5m2", fp8_wgmma},  {"sm90_e4m3_e5m2", fp8_wgmma},
    {"sm100_bf16", half_mma}, {"sm100_f16", half_mma},  {"sm100_e4m3", sm100_fp8}, {"sm100_e5m2", sm100_fp8},
};
INSTANTIATE_TEST_SUITE_P(Recorded, TensorCoreSteps, testing::ValuesIn(recordings),
                         [](const testing::TestParamInfo<Recording>& recording) { return std::string(recording.param.file); });

TEST(TensorCoreWindow, StepsSeeTheLowestExponentOfTheWindow) {
  for (const Recording& recording : {recordings[0], recordings[3]})
    for (const int off : {-1, 1}) {
      MmaSpec wrong = recording.spec;
      wrong.lowest_exponent += off;
      EXPECT_GT(differing(wrong, read(recording)), 0) << recording.file << " " << off;
    }
}

}  // namespace
}  // namespace dodona::quant::tensor_core
