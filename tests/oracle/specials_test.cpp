// Special inputs: every one that strikes an op, by role alone, makes inputs that the op accepts, for which golden mode has an answer and
// the kernels that stand beside it pass.
#include "oracle/cases/specials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <tuple>

#include "dodona/error.h"
#include "oracle/cases/generate.h"
#include "oracle/cases/make_case.h"
#include "oracle/cases/window.h"
#include "oracle/judge/judge.h"
#include "quant/element.h"
#include "tests/errors.h"

namespace dodona::oracle {
namespace {

std::vector<std::string> ops() {
  std::vector<std::string> names;
  for (const auto& op : registry().all()) names.emplace_back(op->name());
  return names;
}

/// The specials that strike this line's inputs.
std::vector<Special> striking(const CaseLine& line) {
  std::vector<Special> found;
  for (std::size_t s = 0; s < specials().size(); ++s) {
    CaseLine one = line;
    one.specials = {static_cast<Special>(s)};
    try {
      plan_inputs(one);
      found.push_back(static_cast<Special>(s));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_option) << error.what();
    }
  }
  return found;
}

/// What an op says of its inputs itself: infinite logits, and a threshold of nothing, which it calls an error.
bool refused_by_the_op(const Op& op, Special special) {
  if (special == Special::infinite_elements) return op.name() == "top_k_mask_logits";
  return special == Special::zero_scales && (op.name() == "top_p_sampling_from_probs" || op.name() == "top_k_top_p_sampling_from_probs");
}

class EverySpecial : public testing::TestWithParam<std::string> {};

TEST_P(EverySpecial, MakesInputsThatGoldenModeAcceptsAndFastModePasses) {
  const Op& op = registry().at(GetParam());
  std::set<Special> done;
  // A line with optional arguments may have what the first lacks.
  for (const std::string& rest : op.cases()) {
    CaseLine line = parse_case_line(std::string(op.name()) + " " + rest);
    for (const Special special : striking(line)) {
      if (!done.insert(special).second) continue;
      line.specials = {special};
      SCOPED_TRACE(to_string(line));
      try {
        const Arguments inputs = generate(line);
        const GoldenRun golden = run_golden(op, inputs, {});
        Arguments arguments = runnable(op, inputs);
        op.run(arguments, {});
        const Verdict verdict = judge(op, inputs, golden, outputs_of(op, arguments), {});
        EXPECT_NE(verdict.outcome, Outcome::fail);
        EXPECT_EQ(judge(op, inputs, golden, golden.outputs, {}).outcome, verdict.outcome);
        EXPECT_FALSE(refused_by_the_op(op, special));
      } catch (const Error& error) {
        EXPECT_TRUE(refused_by_the_op(op, special) && error.code() == ErrorCode::bad_value) << error.what();
      }
    }
  }
}

/// Elements of an output that golden mode says something of, each of which may hold several codes.
std::vector<bool> specified(const Reference& reference, const std::string& output, std::int64_t elements) {
  std::vector<bool> said(static_cast<std::size_t>(elements), true);
  const ReferenceOutput* const record = reference.find(output);
  if (record == nullptr || record->unspecified.empty() || elements == 0) return said;
  const std::size_t together = record->unspecified.size() / said.size();
  for (std::size_t i = 0; i < said.size() * together; ++i)
    if (record->unspecified[i] != 0) said[i / together] = false;
  return said;
}

TEST_P(EverySpecial, WhatNoRequestHasChangesNothing) {
  const Op& op = registry().at(GetParam());
  for (const std::string& rest : op.cases())
    for (const Special special : {Special::stale_cache, Special::stale_rows}) {
      CaseLine line = parse_case_line(std::string(op.name()) + " " + rest);
      const Arguments plain = generate(line);
      line.specials.insert(special);
      std::vector<InputPlan> inputs;
      try {
        inputs = plan_inputs(line);
      } catch (const Error&) {
        continue;  // strikes nothing
      }
      const Arguments stale = generate(line);
      const Reference reference = run_golden(op, plain, {}).reference;
      for (const Mode mode : {Mode::golden, Mode::fast, Mode::hopper}) {
        if (!op.supports(plain, mode)) continue;
        SCOPED_TRACE(to_string(line) + ", " + std::string(name(mode)));
        Exec exec;
        exec.mode = mode;
        Arguments of_plain = runnable(op, plain), of_stale = runnable(op, stale);
        op.run(of_plain, exec);
        op.run(of_stale, exec);
        const NamedTensors expected = outputs_of(op, of_plain), actual = outputs_of(op, of_stale);
        for (const auto& [output, tensor] : expected) {
          const Tensor& other = *find(actual, output);
          const std::vector<bool> said = specified(reference, output, tensor.elements());
          for (std::int64_t i = 0; i < tensor.elements(); ++i)
            if (said[static_cast<std::size_t>(i)])
              ASSERT_EQ(quant::get_bits(other, i), quant::get_bits(tensor, i)) << output << ", element " << i;
        }
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Inventory, EverySpecial, testing::ValuesIn(ops()), [](const auto& param) { return param.param; });

double at(const Arguments& arguments, const char* name, std::int64_t i) {
  return quant::get(*arguments.find(name), i);
}
Arguments of(const std::string& line) {
  return generate(parse_case_line(line));
}

TEST(Specials, StrikeARowInEightAndOneForCertain) {
  for (const int rows : {1, 2, 5, 64}) {
    const Arguments plain = of("rmsnorm H=16 T=" + std::to_string(rows)),
                    struck = of("rmsnorm H=16 --special zero-rows T=" + std::to_string(rows));
    int zeros = 0;
    for (int row = 0; row < rows; ++row) {
      zeros += at(struck, "input", row * 16) == 0 ? 1 : 0;
      for (int c = 0; c < 16; ++c) {
        const double x = at(struck, "input", row * 16 + c);
        EXPECT_EQ(x, at(struck, "input", row * 16) == 0 ? 0 : at(plain, "input", row * 16 + c));
      }
    }
    EXPECT_GE(zeros, 1) << rows;
    EXPECT_LE(zeros, rows / 4 + 1) << rows;
  }
}

TEST(Specials, LeaveAllOtherInputsAndLinesAsTheyWere) {
  const Arguments plain = of("merge_state T=4 N=3 D=8"), struck = of("merge_state T=4 N=3 D=8 --special empty-lse");
  for (const char* name : {"v_a", "v_b"})
    for (std::int64_t i = 0; i < 96; ++i) EXPECT_EQ(at(plain, name, i), at(struck, name, i));
  int empty = 0;
  for (std::int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(std::isinf(at(struck, "s_a", i)), std::isinf(at(struck, "s_b", i))) << "both sides of a head";
    empty += std::isinf(at(struck, "s_a", i)) ? 1 : 0;
  }
  EXPECT_GT(empty, 0);
}

TEST(Specials, AreAllDescribedInThePageOfInputs) {
  std::ifstream file(DODONA_SOURCE_DIR "/docs/inputs.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  for (const SpecialText& special : specials())
    EXPECT_NE(page.find("| " + std::string(special.name) + " |"), std::string::npos) << special.name;
}

TEST(Specials, CombineInOneOrder) {
  const CaseLine line = parse_case_line("rmsnorm T=40 H=16 --special nan-rows --special zero-rows");
  EXPECT_EQ(to_string(line), "rmsnorm H=16 T=40 --special zero-rows --special nan-rows");
  const Arguments both = generate(line);
  int zeros = 0, nans = 0;
  for (int row = 0; row < 40; ++row) {
    zeros += at(both, "input", row * 16) == 0 ? 1 : 0;
    nans += std::isnan(at(both, "input", row * 16)) ? 1 : 0;
  }
  EXPECT_GT(zeros, 0);
  EXPECT_GT(nans, 0);
}

TEST(Specials, ThatDoNotApplyAreOneErrorThatNamesTheRoles) {
  for (const auto& [line, words] :
       {std::pair<const char*, const char*>{"rmsnorm T=2 H=8 --special empty-lse",
                                            "rmsnorm: --special empty-lse strikes log-sum-exps, of which this call has "
                                            "none: its inputs are input (values), weight (weight)"},
        {"rmsnorm T=2 H=8 --special no-such", "must be one of zero-rows, tiny-rows"},
        {"rmsnorm T=2 H=8 --special gaps --special gaps", "given twice"}}) {
    const Error error = helpers::error_from([&line = line] { of(line); });
    EXPECT_EQ(error.code(), ErrorCode::bad_option);
    EXPECT_THAT(error.what(), testing::HasSubstr(words));
  }
}

TEST(Specials, GapsHoldWhatIsNoNumber) {
  const Arguments inputs = of("rmsnorm T=3 H=8 --special gaps");
  const Tensor& input = *inputs.find("input");
  ASSERT_EQ(input.stride(0), 8 + 32);
  const auto* const memory = input.as<const std::uint16_t>();
  for (int i = 8; i < 40; ++i) EXPECT_EQ(memory[i], 0xFFFF);
}

TEST(Specials, StaleCachesHoldNoNumberWhereNoRequestLooks) {
  const std::string line = "cutlass_mla_decode B=3 N=2 pages=20 P=16 W=4 --attr sm_scale=0.1";
  const Arguments plain = of(line), stale = of(line + " --special stale-cache");
  const Tensor &lengths = *plain.find("seq_lens"), &table = *plain.find("page_table"), &cache = *stale.find("kv_c_and_k_pe_cache");
  std::set<std::int64_t> used;
  for (int b = 0; b < 3; ++b)
    for (std::int64_t k = 0; k < static_cast<std::int64_t>(quant::get(lengths, b)); ++k)
      used.insert(static_cast<std::int64_t>(quant::get(table, b * 4 + k / 16)) * 16 + k % 16);
  const std::int64_t width = cache.size(-1);
  for (std::int64_t slot = 0; slot < 320; ++slot) {
    const double first = quant::get(cache, slot * width);
    if (used.count(slot) != 0)
      EXPECT_EQ(first, at(plain, "kv_c_and_k_pe_cache", slot * width)) << slot;
    else
      EXPECT_TRUE(std::isnan(first) || first > 1e30) << slot;
  }
}

TEST(Specials, StaleRowsHoldNoNumberBehindTheirGroupsLengths) {
  for (const auto& [line, input, lengths, groups] :
       {std::tuple<std::string, const char*, const char*, int>{"silu_and_mul_masked_post_quant_fwd E=3 M=5 N=128 --seed 1", "input",
                                                               "masked_m", 3},
        {"m_grouped_fp8_gemm_nt_masked G=3 M=8 N=24 K=144", "a", "masked_m", 3},
        {"scaled_fp4_grouped_quant L=4 M=6 K=32", "input_tensor", "mask", 4},
        {"sgl_per_token_group_quant_8bit M=6 E=2 K=2048 --attr fuse_silu_and_mul=true --attr scale_ue8m0=true --attr enable_v2=true "
         "--with masked_m",
         "input", "masked_m", 2}}) {
    SCOPED_TRACE(line + ", " + input);
    const Arguments plain = of(line), stale = of(line + " --special stale-rows");
    const Tensor &before = *plain.find(input), &after = *stale.find(input);
    const std::int64_t width = before.size(-1), rows = before.elements() / width / groups;
    int poisoned = 0;
    for (std::int64_t i = 0; i < before.elements(); ++i) {
      const double x = quant::get(after, i);
      const bool there = i / width % rows < static_cast<std::int64_t>(at(plain, lengths, i / width / rows));
      if (there) ASSERT_EQ(x, quant::get(before, i)) << i;
      if (!there) ASSERT_TRUE(std::isnan(x) || x == quant::max_finite(before.dtype())) << i;
      poisoned += there ? 0 : 1;
    }
    EXPECT_GT(poisoned, 0);
  }
}

TEST(Specials, ZeroGroupsAreZeroAndTheRestOfTheirRowsIsNot) {
  const Arguments inputs = of("sgl_per_token_group_quant_fp8 M=9 K=512 --special zero-groups");
  int groups = 0;
  for (int m = 0; m < 9; ++m) {
    int zeros = 0;
    for (int g = 0; g < 4; ++g) {
      int in_group = 0;
      for (int k = 0; k < 128; ++k) in_group += at(inputs, "input", m * 512 + g * 128 + k) == 0 ? 1 : 0;
      EXPECT_THAT(in_group, testing::AnyOf(testing::Eq(128), testing::Lt(4)));
      zeros += in_group == 128 ? 1 : 0;
    }
    EXPECT_LE(zeros, 1);
    groups += zeros;
  }
  EXPECT_GT(groups, 0);
}

TEST(Specials, TinyScalesAreSuchThatAProductOfTwoIsNothing) {
  const Arguments inputs = of("fp8_blockwise_scaled_mm M=64 N=256 K=512 --special tiny-scales");
  const Tensor& scales = *inputs.find("scales_a");
  int tiny = 0;
  for (std::int64_t i = 0; i < scales.elements(); ++i) tiny += quant::get(scales, i) == double{1e-23f} ? 1 : 0;
  EXPECT_GT(tiny, 0);
  EXPECT_LT(tiny, scales.elements() / 2);
}

/// NaN in a row of another request, and an infinity: rows stand for themselves.
TEST(Specials, RowsWithoutNumbersChangeNoOtherRowOfAQuantizer) {
  for (const auto& [line, input, codes] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {"sgl_per_token_group_quant_fp8 M=9 K=256", "input", "output_q"},
           {"sgl_per_token_group_quant_8bit M=9 K=256", "input", "output_q"},
           {"sgl_per_token_group_quant_8bit M=9 K=2048 --attr fuse_silu_and_mul=true --attr scale_ue8m0=true --attr enable_v2=true",
            "input", "output_q"},
           {"sgl_per_token_group_quant_int8 M=9 K=256", "input", "output_q"},
           {"sgl_per_token_quant_fp8 M=9 K=256", "input", "output_q"},
           {"per_token_quant_int8 M=9 K=256", "x", "x_q"},
           {"scaled_fp4_quant M=9 K=256", "input", "output"},
           {"nvfp4_quantize M=9 K=256", "a", "x_q"},
           {"mxfp4_quantize M=9 K=256", "a", "x_q"},
           {"mxfp8_quantize M=9 K=256", "input", "x_q"}})
    for (const char* special : {" --special nan-rows", " --special nan-elements", " --special infinite-elements"})
      for (const Mode mode : {Mode::golden, Mode::fast, Mode::hopper}) {
        const Op& op = registry().at(line.substr(0, line.find(' ')));
        const Arguments plain = of(line), struck = of(line + special);
        if (!op.supports(plain, mode)) continue;
        SCOPED_TRACE(line + special + ", " + std::string(name(mode)));
        Exec exec;
        exec.mode = mode;
        Arguments of_plain = runnable(op, plain), of_struck = runnable(op, struck);
        op.run(of_plain, exec);
        op.run(of_struck, exec);
        const Tensor &before = *plain.find(input), &after = *struck.find(input), &expected = *of_plain.find(codes),
                     &actual = *of_struck.find(codes);
        const std::int64_t width = before.size(-1), bytes = expected.size(-1);
        int others = 0;
        for (std::int64_t m = 0; m < 9; ++m) {
          bool same = true;
          for (std::int64_t k = m * width; k < (m + 1) * width; ++k) same = same && quant::get_bits(before, k) == quant::get_bits(after, k);
          for (std::int64_t k = m * bytes; same && k < (m + 1) * bytes; ++k)
            ASSERT_EQ(quant::get_bits(actual, k), quant::get_bits(expected, k)) << k;
          others += same ? 1 : 0;
        }
        EXPECT_GT(others, 0);
        EXPECT_LT(others, 9);
      }
}

TEST(Specials, LengthsLieAtTheEdgesOfTiles) {
  const Arguments inputs = of("cutlass_mla_decode B=30 N=2 pages=200 P=16 W=6 --attr sm_scale=0.1 --special edge-lengths");
  std::set<int> found;
  for (int b = 1; b < 30; ++b) found.insert(static_cast<int>(at(inputs, "seq_lens", b)));
  EXPECT_THAT(found, testing::IsSubsetOf({1, 15, 16, 17, 31, 32, 33, 63, 64, 65}));
  EXPECT_GT(found.size(), 5u);
}

TEST(Specials, TiesAreTiesOfE4m3) {
  // A row's largest is 448 * 2^-6: all others lie halfway between two codes.
  const Arguments inputs = of("sgl_per_token_quant_fp8 M=4 K=128 --special fp8-ties");
  int rows = 0;
  for (int m = 0; m < 4; ++m) {
    if (at(inputs, "input", m * 128) != 7.0) continue;
    ++rows;
    for (int k = 1; k < 128; ++k) {
      const double scaled = at(inputs, "input", m * 128 + k) * 64;
      const double low = quant::round_to(DType::f8_e4m3, std::nextafter(scaled, 0)),
                   high = quant::round_to(DType::f8_e4m3, std::nextafter(scaled, 2 * scaled));
      EXPECT_NE(low, high);
      EXPECT_EQ(scaled, (low + high) / 2);
    }
  }
  EXPECT_GT(rows, 0);
}

// ---- windows ----

TEST(Windows, AreThoseRowsOfTheWholeCallForEveryOp) {
  for (const auto& op : registry().all())
    for (const std::string& symbol : op->schema().properties.rows_independent) {
      CaseLine whole = parse_case_line(std::string(op->name()) + " " + op->cases().front());
      if (op->name() == "dsv3_fused_a_gemm" || whole.symbols.count(symbol) == 0 || whole.symbols[symbol] < 2) continue;
      CaseLine part = whole;
      part.window = {{symbol, whole.symbols[symbol] / 2, whole.symbols[symbol]}};
      SCOPED_TRACE(to_string(part));
      const Arguments all = generate(whole), some = generate(part), expected = windowed(*op, all, part.window);
      EXPECT_EQ(digests_of(some, {}), digests_of(expected, {}));
      const NamedTensors outputs = run_golden(*op, some, {}).outputs;
      for (const auto& whole_output : run_golden(*op, all, {}).outputs) {
        // Of scales in tiles rows cannot be cut out.
        if (op->schema().find_tensor(whole_output.first)->padded) continue;
        const NamedTensors cut = windowed(*op, NamedTensors{whole_output}, part.window);
        EXPECT_EQ(digests_of({}, cut), digests_of({}, {{whole_output.first, *find(outputs, whole_output.first)}}));
      }
    }
}

TEST(Windows, OfMoreThanTwoToTheThirtySecondElementsAreMadeAlone) {
  // 4.9 * 10^9 elements: 9.8 GB, of which 16 KB are made.
  const Arguments inputs = of("rmsnorm T=600000 H=8192 --window T=524287..524289 --seed 3");
  const Tensor& input = *inputs.find("input");
  ASSERT_EQ(input.shape(), Dims({2, 8192}));
  const std::int64_t first = std::int64_t{524287} * 8192;
  ASSERT_LT(first, std::int64_t{1} << 32);
  for (std::int64_t i = 0; i < 2 * 8192; ++i)
    ASSERT_EQ(quant::get(input, i), quant::round_to(DType::bf16, normal(Stream(3, "input"), static_cast<std::uint64_t>(first + i)))) << i;
}

TEST(Windows, ShowOffsetsThatOverflow) {
  // A kernel that counts elements in 32 bits: row 524288 of 8192 begins at 2^32, which it takes for the first row.
  const std::string line = "rmsnorm T=600000 H=8192 --seed 3 --window T=";
  const Case right = make_case(parse_case_line(line + "524288..524289"), {}, true);
  const Case wrong = make_case(parse_case_line(line + "0..1"), {}, true);
  NamedTensors actual = wrong.outputs;
  EXPECT_EQ(judge(*right.op, right.inputs, actual, {}).outcome, Outcome::fail);
  EXPECT_EQ(judge(*right.op, right.inputs, right.outputs, {}).outcome, Outcome::pass);
}

TEST(Windows, ThatCannotBeAreRefused) {
  for (const auto& [line, words] : {std::pair<const char*, const char*>{"rmsnorm T=4 H=8 --window H=0..4", "independent along T"},
                                    {"rmsnorm T=4 H=8 --window T=2..9", "beyond the 4 rows"},
                                    {"rmsnorm T=4 H=8 --window T=2..2", "0 <= BEGIN < END"},
                                    {"rmsnorm T=4 H=8 --window T=0..1 --window T=1..2", "names T twice"}}) {
    const Error error = helpers::error_from([&line = line] { of(line); });
    EXPECT_THAT(error.what(), testing::HasSubstr(words));
  }
}

}  // namespace
}  // namespace dodona::oracle
