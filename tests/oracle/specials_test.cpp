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

#include "dodona/error.h"
#include "oracle/cases/generate.h"
#include "oracle/cases/make_case.h"
#include "oracle/cases/window.h"
#include "oracle/judge/judge.h"
#include "quant/element.h"

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

INSTANTIATE_TEST_SUITE_P(Ops, EverySpecial, testing::ValuesIn(ops()), [](const auto& param) { return param.param; });

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
    try {
      of(line);
      ADD_FAILURE() << line;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_option);
      EXPECT_THAT(error.what(), testing::HasSubstr(words));
    }
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
    try {
      of(line);
      ADD_FAILURE() << line;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(words));
    }
  }
}

}  // namespace
}  // namespace dodona::oracle
