// Models of tensor cores against recorded steps of each: they give the recorded bits, and no wrong rule does.
#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "quant/element.h"
#include "tests/quant/random_steps.h"

namespace dodona::steps {
namespace {

const std::string folder = std::string(DODONA_SOURCE_DIR) + "/tests/golden/_hardware/tensor_core_steps/";

struct Step {
  Codes a, b;
  std::uint32_t before, after;
};

struct Recording {
  const Format* format;
  Tensor a, b;  ///< [steps, k], or two codes a byte
  std::vector<Step> steps;
};

std::vector<std::uint32_t> numbers_of(const Tensor& t, std::int64_t s, int k) {
  std::vector<std::uint32_t> numbers;
  const bool pairs = t.size(1) != k;
  for (std::int64_t i = 0; i < t.size(1); ++i) {
    const auto bits = static_cast<std::uint32_t>(quant::load_bits(t.dtype(), t.data(), s * t.size(1) + i));
    numbers.push_back(pairs ? bits & 15 : bits);
    if (pairs) numbers.push_back(bits >> 4);
  }
  return numbers;
}

Recording read(const Format& format) {
  const auto file = io::SafetensorsFile::open(folder + std::string(format.name) + ".safetensors");
  Recording recording{&format, file.tensor("a").clone(), file.tensor("b").clone(), {}};
  const Tensor c = file.tensor("c").clone(), d = file.tensor("d").clone();
  for (std::int64_t s = 0; s < recording.a.size(0); ++s) {
    Step step{{numbers_of(recording.a, s, format.k()), {}},
              {numbers_of(recording.b, s, format.k()), {}},
              static_cast<std::uint32_t>(c.as<std::int32_t>()[s]),
              static_cast<std::uint32_t>(d.as<std::int32_t>()[s])};
    for (int i = 0; i < format.scales(); ++i) {
      step.a.scales.push_back(file.tensor("scale_a").as<std::uint8_t>()[s * format.scales() + i]);
      step.b.scales.push_back(file.tensor("scale_b").as<std::uint8_t>()[s * format.scales() + i]);
    }
    recording.steps.push_back(step);
  }
  return recording;
}

/// Step s in the first of sixteen lanes.
std::uint32_t by_lanes(const Recording& recording, std::size_t s, Isa isa) {
  const Step& step = recording.steps[s];
  const auto line = [s](const Tensor& codes) {
    const auto bytes = static_cast<std::ptrdiff_t>(codes.size(1) * bits(codes.dtype()) / 8);
    const auto* const begin = codes.as<std::uint8_t>() + static_cast<std::ptrdiff_t>(s) * bytes;
    return std::vector<std::uint8_t>(begin, begin + bytes);
  };
  const Batch batch{1, 1, line(recording.a), line(recording.b), step.a.scales, step.b.scales, {step.before}};
  return std::bit_cast<std::uint32_t>(by_library(*recording.format, batch, isa)[0]);
}

int caught(const Recording& recording, const Rules& rules) {
  int count = 0;
  for (const Step& step : recording.steps) count += by_integers(*recording.format, step.a, step.b, step.before, rules) != step.after;
  return count;
}

class TensorCoreSteps : public testing::TestWithParam<Format> {};

TEST_P(TensorCoreSteps, GiveTheRecordedBits) {
  const Recording recording = read(GetParam());
  ASSERT_EQ(recording.steps.size(), 2000U);
  for (std::size_t s = 0; s < recording.steps.size(); ++s) {
    const Step& step = recording.steps[s];
    ASSERT_EQ(by_definition(GetParam(), step.a, step.b, step.before), step.after) << "step " << s;
    for (const Isa isa : available_isas()) ASSERT_EQ(by_lanes(recording, s, isa), step.after) << "step " << s << ", " << name(isa);
    ASSERT_EQ(by_integers(GetParam(), step.a, step.b, step.before), step.after) << "step " << s << ", integers";
  }
}

// ---- wrong rules

/// By the names of the recordings' README.
const std::map<std::string, Rules>& wrong_rules() {
  static const std::map<std::string, Rules> rules{
      {"addend cut 1 bit coarser", {.addend_bits = -1}},
      {"addend cut 1 bit finer", {.addend_bits = 1}},
      {"floor exponent -1", {.floor = -1}},
      {"floor exponent +1", {.floor = 1}},
      {"no floor exponent", {.no_floor = true}},
      {"e5m2 inf/NaN codes finite", {.e5m2_all_finite = true}},
      {"e4m3 NaN code = 480", {.e4m3_all_finite = true}},
      {"denormal factor normalized", {.normalized_factors = true}},
      {"denormal accumulator normalized", {.normalized_accumulator = true}},
      {"denormal factors = 0", {.flushed_factors = true}},
      {"denormal accumulator = 0", {.flushed_accumulator = true}},
      {"addends cut toward -inf", {.floor_addends = true}},
      {"addends rounded half up", {.rounded_addends = true}},
      {"-0 kept", {.minus_zero = true}},
      {"sum rounded toward -inf", {.floor_sum = true}},
      {"sum rounded to nearest even", {.nearest_sum = true}},
      {"-0 from underflow", {.minus_zero_from_underflow = true}},
      {"overflow saturates", {.saturates = true}},
      {"denormal results = 0", {.flushed_results = true}},
      {"inf - inf = inf", {.infinities_of_both_signs_are_one = true}},
      {"NaN 7FC00000", {.nan = 0x7FC00000u}},
      {"inf * 0 = 0", {.infinity_times_zero_is_zero = true}},
      {"zero factors count in E", {.zero_factors_in_e = true}},
      {"E from value of product", {.value_of_product_in_e = true}},
      {"scale NaN ignored", {.scale_nan_ignored = true}},
      {"accumulator joins E only if 20 above", {.far_accumulator_only = true}},
      {"ue4m3 sign used", {.scale_sign = true}},
      {"scale significand in E", {.scale_significand_in_e = true}},
      {"cancelled group not in E", {.cancelled_group_out = true}},
      {"zero group and zero scale in E", {.zero_group_in_e = true, .zero_scale_in_e = true}},
      {"group value's exponent in E", {.value_of_group_in_e = true}},
      {"zero scale in E (only)", {.zero_scale_in_e = true}},
      {"zero group in E (only)", {.zero_group_in_e = true}},
      {"groups of 8", {.group = 8}},
      {"other chain length", {}},  // by the instruction
  };
  return rules;
}

Rules rules_of(const std::string& rule, const Format& format) {
  Rules rules = wrong_rules().at(rule);
  if (rule == "other chain length") rules.link = format.integers.link == format.k() ? format.k() / 2 : format.k();
  return rules;
}

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(' '), last = text.find_last_not_of(' ');
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream stream(line.substr(1));
  for (std::string cell; std::getline(stream, cell, '|');) cells.push_back(trimmed(cell));
  return cells;
}

/// The README's table: by rule, the files that catch it.
std::map<std::string, std::vector<std::string>> caught_rules() {
  std::ifstream readme(folder + "README.md");
  std::map<std::string, std::vector<std::string>> rules;
  std::vector<std::string> files;
  for (std::string line; std::getline(readme, line);) {
    if (line.rfind("| wrong rule |", 0) == 0) {
      for (const std::string& cell : cells_of(line)) {
        std::string file = "sm" + cell;
        std::replace(file.begin(), file.end(), ' ', '_');
        files.push_back(file);
      }
    } else if (!files.empty() && line.rfind("| ", 0) == 0 && line.rfind("| ---", 0) != 0) {
      const auto cells = cells_of(line);
      for (std::size_t i = 1; i < cells.size(); ++i)
        if (!cells[i].empty()) rules[cells[0]].push_back(files[i]);
    }
  }
  return rules;
}

TEST(TensorCoreRules, EveryWrongRuleOfTheTableIsPlanted) {
  const auto table = caught_rules();
  EXPECT_EQ(table.size(), wrong_rules().size());
  for (const auto& [rule, files] : table) {
    EXPECT_EQ(wrong_rules().count(rule), 1U) << rule;
    for (const std::string& file : files) EXPECT_NE(find(file), nullptr) << file;
  }
}

TEST_P(TensorCoreSteps, CatchTheWrongRulesThatTheTableSays) {
  const Recording recording = read(GetParam());
  int rules = 0;
  for (const auto& [rule, files] : caught_rules()) {
    if (std::find(files.begin(), files.end(), GetParam().name) == files.end()) continue;
    ++rules;
    EXPECT_GT(caught(recording, rules_of(rule, GetParam())), 0) << rule;
  }
  EXPECT_GE(rules, 16);
}

/// With a bit less of the addends, and of the sum.
template <class Spec>
std::vector<Spec> shorter(const Spec& spec) {
  std::vector<Spec> specs{spec, spec};
  --specs[0].addend_bits;
  --specs[1].sum_bits;
  return specs;
}

TEST_P(TensorCoreSteps, SeeABitOfTheModelsRow) {
  const Recording recording = read(GetParam());
  const auto expect_seen = [&](const Format& wrong) {
    int differing = 0;
    for (const Step& step : recording.steps) differing += by_definition(wrong, step.a, step.b, step.before) != step.after;
    EXPECT_GT(differing, 20);
  };
  Format wrong = GetParam();
  if (wrong.fp4 != nullptr)
    for (const tc::Fp4Spec& spec : shorter(*GetParam().fp4)) expect_seen((wrong.fp4 = &spec, wrong));
  if (wrong.unit != nullptr)
    for (const tc::MmaSpec& spec : shorter(*GetParam().unit)) expect_seen((wrong.unit = &spec, wrong));
}

INSTANTIATE_TEST_SUITE_P(Recorded, TensorCoreSteps, testing::ValuesIn(formats),
                         [](const testing::TestParamInfo<Format>& format) { return std::string(format.param.name); });

}  // namespace
}  // namespace dodona::steps
