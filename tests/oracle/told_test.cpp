// What the numbers of a kernel say by themselves: how often parts of a sum were counted, which scales and which weights it must have had.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "oracle/faults/told/least_squares.h"
#include "quant/element.h"
#include "replayed.h"

namespace dodona::oracle {
namespace {

using Numbers = std::function<double(std::int64_t, const Tensor&)>;

/// The op's outputs with other numbers in an operand; with `only`, in those elements of the first output alone.
Replayed kernel_with(const std::string& line, const std::string& operand, const Numbers& numbers,
                     const std::function<bool(std::int64_t)>& only = {}) {
  Replayed r{make_case(parse_case_line(line), {}, true), {}, {}, {}};
  Arguments arguments = runnable(*r.c.op, r.c.inputs);
  r.c.op->run(arguments, {});
  const NamedTensors right = outputs_of(*r.c.op, arguments);
  arguments = runnable(*r.c.op, r.c.inputs);
  const Tensor& before = *r.c.inputs.find(operand);
  const Tensor after = make_strided(before.dtype(), before.shape(), before.strides());
  for (std::int64_t i = 0; i < after.elements(); ++i) quant::set(after, i, numbers(i, before));
  arguments.set(operand, after);
  r.c.op->run(arguments, {});
  r.actual = outputs_of(*r.c.op, arguments);
  if (only) {
    Tensor& first = r.actual.front().second;
    first = first.clone();
    for (std::int64_t i = 0; i < first.elements(); ++i)
      if (!only(i)) quant::set_bits(first, i, quant::get_bits(right.front().second, i));
  }
  judge_and_explain(r);
  return r;
}

void expect_named(const Replayed& r, const std::string& text) {
  ASSERT_EQ(r.verdict.outcome, Outcome::fail) << text;
  ASSERT_FALSE(r.explained.found.empty()) << text;
  EXPECT_TRUE(r.explained.found.front().complete) << r.all();
  EXPECT_EQ(r.explained.found.front().text.rfind(text, 0), 0U) << r.all();
}

TEST(Told, EquationsAreSolvedAndSayHowWell) {
  LeastSquares equations(2);
  for (int i = 0; i < 100; ++i) equations.add({1.0, static_cast<double>(i)}, 3 + 0.5 * i, 0.1);
  const auto solution = equations.solved();
  ASSERT_TRUE(solution);
  EXPECT_NEAR(solution->x[0], 3, 1e-9);
  EXPECT_NEAR(solution->x[1], 0.5, 1e-9);
  EXPECT_LT(solution->room[1], solution->room[0]);
  EXPECT_LT(solution->room[0], 0.1);
  LeastSquares alike(2);
  for (int i = 1; i < 9; ++i) alike.add({1.0 * i, 2.0 * i}, i, 1);
  EXPECT_FALSE(alike.solved());
}

TEST(Told, PartsOfASumThatCountTwiceOrNotAtAll) {
  const auto twice = [](std::int64_t i, const Tensor& t) { return quant::get(t, i) * (i % 320 / 16 % 5 == 0 && i % 320 >= 80 ? 2 : 1); };
  expect_named(kernel_with("linear T=24 N=64 K=320", "input", twice),
               "output: of the 320 products of each sum (along K) those of indices 80..95, 160..175, 240..255 are added twice");
  const auto lost = [](std::int64_t i, const Tensor& t) { return i % 320 / 8 == 13 ? 0.0 : quant::get(t, i); };
  const Replayed r = kernel_with("linear T=24 N=64 K=320", "input", lost, [](std::int64_t i) { return i % 64 < 24; });
  expect_named(r, "output: of the 320 products of each sum (along K) those of indices 104..111 are not added");
  ASSERT_FALSE(r.explained.found.empty());
  EXPECT_NE(r.explained.found.front().text.find("where it fails: columns 0..23"), std::string::npos) << r.all();
}

TEST(Told, ScalesOfABlockThatAreAnothers) {
  const auto stale = [](std::int64_t i, const Tensor& t) { return quant::get(t, i == 5 * 4 + 2 ? i - 1 : i == 3 * 4 + 3 ? 6 : i); };
  expect_named(
      kernel_with("fp8_gemm_nt M=16 N=256 K=512", "sfa", stale),
      "sfa: other scales than the given ones multiply: row 3, block 3 has that of row 1, block 2; row 5, block 2 has that of row 5, "
      "block 1");
}

TEST(Told, KeysWithoutAWeight) {
  // Values of two keys of the first request are zeros: their weights stay in the sum.
  const auto lost = [](std::int64_t i, const Tensor& t) {
    const std::int64_t key = i / (t.size(1) * t.size(2));
    return key == 5 || key == 9 ? 0.0 : quant::get(t, i);
  };
  const Replayed r = kernel_with("batch_prefill_with_ragged_kv_cache Tq=6 Tk=40 N=4 Nk=2 D=128 Dv=128 B=1 --attr sm_scale=0.05", "v", lost);
  expect_named(r, "out: keys 5, 9 have no weight, left out");
  EXPECT_NE(r.all().find("the sum that it is divided by is that of all"), std::string::npos) << r.all();
}

TEST(Told, SplitsThatAreMergedByOtherSums) {
  // Of 100 keys in four splits, whose borders no tile of 2, 4, 8... has.
  const auto merged = [](std::int64_t i, const Tensor& t) {
    constexpr double shares[] = {1.3, 0.7, 1.1, 0.9};
    return quant::get(t, i) * shares[i / (t.size(1) * t.size(2)) / 25];
  };
  const Replayed r =
      kernel_with("batch_prefill_with_ragged_kv_cache Tq=6 Tk=100 N=4 Nk=2 D=64 Dv=64 B=1 --attr sm_scale=0.05", "v", merged);
  expect_named(r, "out: parts of the keys have weights with a factor of their own");
  EXPECT_NE(r.all().find(" keys 25..49 x 0.7"), std::string::npos) << r.all();
}

TEST(Told, WeightsOfOtherRows) {
  const auto others = [](std::int64_t i, const Tensor& t) { return quant::get(t, i == 2 ? 7 : i == 6 ? 1 : i == 4 ? 3 : i); };
  expect_named(kernel_with("fused_moe_kernel M=8 topk=1 K=128 E=2 N=40 EM=128 NB=8 --attr mul_routed_weight=true", "topk_weights", others),
               "topk_weights: rows are multiplied with other rows' numbers: row 2 with that of row 7, row 4 with that of row 3, row 6 with "
               "that of row 1");
}

TEST(Told, AFactorOfWhatIsRoundedOnTheWay) {
  const auto scaled = [](std::int64_t i, const Tensor& t) { return 2.5 * quant::get(t, i); };
  expect_named(kernel_with("deepep_post_reorder_triton_kernel R=96 D=128 T=12 topk=8", "topk_weights", scaled),
               "topk_weights: every element is 2.5 x the given one");
}

TEST(Told, SamplersThatDrawNothing) {
  Replayed r{
      make_case(parse_case_line("top_p_sampling_from_probs B=16 U=16 V=1000 --attr top_p=0.7 --attr philox_seed=5"), {}, true), {}, {}, {}};
  const Tensor& probs = *r.c.inputs.find("probs");
  const Tensor samples(DType::i32, {16});
  for (std::int64_t row = 0; row < 16; ++row) {
    std::int64_t most = 0;
    for (std::int64_t c = 1; c < 1000; ++c)
      if (quant::get(probs, row * 1000 + c) > quant::get(probs, row * 1000 + most)) most = c;
    quant::set(samples, row, static_cast<double>(most));
  }
  r.actual = {{"samples", samples}};
  judge_and_explain(r);
  expect_named(r, "samples: the most probable token of each row is taken: nothing is drawn");
}

TEST(Told, RowsOfZerosAreNoOtherRows) {
  // The first queries of a request see no key: golden has zeros for them, too, which zeros in other rows are not to be taken for.
  Replayed r{make_case(parse_case_line("batch_prefill_with_ragged_kv_cache Tq=40 Tk=40 N=4 Nk=2 D=64 Dv=64 B=2 --attr causal=true --attr "
                                       "window_left=7 --attr sm_scale=0.125"),
                       {}, true),
             {},
             {},
             {}};
  const Tensor& offsets = *r.c.inputs.find("qo_indptr");
  Arguments arguments = runnable(*r.c.op, r.c.inputs);
  r.c.op->run(arguments, {});
  r.actual = outputs_of(*r.c.op, arguments);
  const Tensor out = r.actual.front().second.clone();
  const std::int64_t end = static_cast<std::int64_t>(quant::get(offsets, 1)) - 7, width = out.elements() / out.size(0);
  for (std::int64_t i = 0; i < end * width; ++i) quant::set(out, i, 0);
  r.actual.front().second = out;
  judge_and_explain(r);
  ASSERT_EQ(r.verdict.outcome, Outcome::fail);
  EXPECT_EQ(r.find("rows-of-requests-elsewhere"), nullptr) << r.all();
}

/// A softmax whose columns have the numbers numbers(row).
Replayed softmax_with(const std::string& line, const std::function<std::vector<double>(const std::vector<double>&)>& numbers) {
  Replayed r{make_case(parse_case_line(line), {}, true), {}, {}, {}};
  const Tensor& logits = *r.c.inputs.find("logits");
  const Tensor probs = logits.clone();
  const std::int64_t width = logits.size(1);
  for (std::int64_t row = 0; row < logits.size(0); ++row) {
    std::vector<double> x;
    for (std::int64_t c = 0; c < width; ++c) x.push_back(quant::get(logits, row * width + c));
    const std::vector<double> y = numbers(x);
    for (std::int64_t c = 0; c < width; ++c) quant::set(probs, row * width + c, y[static_cast<std::size_t>(c)]);
  }
  r.actual = {{"probs", probs}};
  judge_and_explain(r);
  return r;
}

TEST(Told, SumsThatLackAWarpAndMaximaOfThreads) {
  const auto exponentials = [](const std::vector<double>& x, const std::vector<double>& most) {
    std::vector<double> y;
    for (std::size_t c = 0; c < x.size(); ++c) y.push_back(std::exp(x[c] - most[c]));
    return y;
  };
  expect_named(softmax_with("softmax B=4 V=1024",
                            [&](const std::vector<double>& x) {
                              std::vector<double> y = exponentials(x, std::vector<double>(x.size()));
                              double sum = 0;
                              for (std::size_t c = 0; c < y.size(); ++c) sum += c % 256 / 32 == 3 ? 0 : y[c];
                              for (double& e : y) e /= sum;
                              return y;
                            }),
               "probs: the sum that a row is divided by lacks the terms of columns c with (c mod 256) / 32 = 3");
  expect_named(softmax_with("softmax B=4 V=1024",
                            [&](const std::vector<double>& x) {
                              std::vector<double> most(x.size(), -1e30);
                              for (std::size_t c = 0; c < x.size(); ++c)
                                for (std::size_t k = c % 128; k < x.size(); k += 128) most[c] = std::max(most[c], x[k]);
                              std::vector<double> y = exponentials(x, most);
                              double sum = 0;
                              for (const double e : y) sum += e;
                              for (double& e : y) e /= sum;
                              return y;
                            }),
               "probs: each share of a row is taken below its own maximum");
}

/// An RMS norm whose rows are divided by root(row).
Replayed norm_with(const std::string& line, const std::function<double(const std::vector<std::vector<double>>&, std::size_t)>& root) {
  Replayed r{make_case(parse_case_line(line), {}, true), {}, {}, {}};
  Arguments arguments = runnable(*r.c.op, r.c.inputs);
  r.c.op->run(arguments, {});
  r.actual = outputs_of(*r.c.op, arguments);
  const Tensor &input = *r.c.inputs.find("input"), &weight = *r.c.inputs.find("weight");
  const std::int64_t width = input.size(1);
  std::vector<std::vector<double>> rows(static_cast<std::size_t>(input.size(0)));
  for (std::int64_t i = 0; i < input.elements(); ++i) rows[static_cast<std::size_t>(i / width)].push_back(quant::get(input, i));
  Tensor& output = r.actual.front().second;
  output = output.clone();
  for (std::int64_t i = 0; i < input.elements(); ++i)
    quant::set(output, i, quant::get(input, i) / root(rows, static_cast<std::size_t>(i / width)) * quant::get(weight, i % width));
  judge_and_explain(r);
  return r;
}

TEST(Told, MeansOfSquaresThatRowsAreDividedBy) {
  const auto squares = [](const std::vector<double>& row, const std::function<bool(std::size_t)>& counts) {
    double sum = 0;
    for (std::size_t c = 0; c < row.size(); ++c) sum += counts(c) ? row[c] * row[c] : 0;
    return sum;
  };
  const auto all = [](std::size_t) { return true; };
  using Rows = std::vector<std::vector<double>>;
  expect_named(
      norm_with("rmsnorm T=6 H=768",
                [&](const Rows& x, std::size_t r) { return std::sqrt(squares(x[r], [](std::size_t c) { return c < 384; }) / 384); }),
      "output: the mean of squares is that of the first 384 columns alone");
  expect_named(norm_with("rmsnorm T=6 H=768", [&](const Rows& x, std::size_t r) { return std::sqrt(squares(x[r], all) / 767); }),
               "output: the sum of squares is divided by 767, not by the 768 columns");
  expect_named(
      norm_with("rmsnorm T=6 H=768", [&](const Rows& x, std::size_t r) { return std::sqrt(squares(x[r == 0 ? 5 : r - 1], all) / 768); }),
      "output: each row has the mean of squares of the row before it");
  expect_named(norm_with("rmsnorm T=6 H=768",
                         [&](const Rows& x, std::size_t r) {
                           double sum = 0;
                           for (std::size_t before = 0; before <= r; ++before) sum += squares(x[before], all);
                           return std::sqrt(sum / 768);
                         }),
               "output: a row's sum of squares goes on from those of the rows before it");
  expect_named(
      norm_with("rmsnorm T=6 H=768",
                [&](const Rows& x, std::size_t r) { return std::sqrt(squares(x[r], [](std::size_t c) { return c / 64 != 3; }) / 768); }),
      "output: the sum of squares lacks columns c with c / 64 = 3");
}

TEST(Told, StridesAsIfRowsWerePadded) {
  expect_named(kernel_with("linear T=8 N=24 K=60", "weight",
                           [](std::int64_t i, const Tensor& t) {
                             const std::int64_t from = i / 60 * 64 + i % 60;
                             return from < t.elements() ? quant::get(t, from) : 0.0;
                           }),
               "weight: along N rows are looked for at a stride of 64, where they lie 60 apart: as if they were padded");
}

TEST(Told, NumbersOfAnOperandThatAreAnotherTilesOrOfNoKnownPlace) {
  const auto later_tile = [](std::int64_t i, const Tensor& t) {
    const bool lost = i / 256 >= 16 && i / 256 < 24 && i % 256 >= 64 && i % 256 < 128;
    return quant::get(t, lost ? i + 128 : i);
  };
  const Replayed tile = kernel_with("linear T=32 N=48 K=256", "input", later_tile);
  expect_named(tile, "input: along the depth (K) at 64..127 stands the tile at 192..255");
  EXPECT_NE(tile.all().find("where it fails: rows 16..23"), std::string::npos) << tile.all();
  const auto next_row = [](std::int64_t i, const Tensor& t) { return quant::get(t, i % 256 >= 192 && i < 47 * 256 ? i + 256 : i); };
  expect_named(kernel_with("linear T=16 N=48 K=256", "weight", next_row),
               "weight: along the depth (K) from 192 on stands what belongs 1 row");
  const auto anything = [](std::int64_t i, const Tensor& t) {
    return i / 512 >= 8 && i % 512 >= 448 ? std::sin(static_cast<double>(i)) : quant::get(t, i);
  };
  expect_named(kernel_with("linear T=16 N=256 K=512", "input", anything),
               "input: along the depth (K) what lies at 448..511 was not what is multiplied there");
}

/// The op's outputs, changed.
Replayed outputs_changed(const std::string& line, const std::function<void(const Arguments&, const Tensor&)>& change) {
  Replayed r{make_case(parse_case_line(line), {}, true), {}, {}, {}};
  Arguments arguments = runnable(*r.c.op, r.c.inputs);
  r.c.op->run(arguments, {});
  r.actual = outputs_of(*r.c.op, arguments);
  r.actual.front().second = r.actual.front().second.clone();
  change(r.c.inputs, r.actual.front().second);
  judge_and_explain(r);
  return r;
}

TEST(Told, OutputsThatHoldAnInput) {
  const Replayed held = outputs_changed("linear T=64 N=96 K=128", [](const Arguments& inputs, const Tensor& out) {
    for (std::int64_t row = 24; row < 32; ++row)
      for (std::int64_t c = 32; c < 64; ++c)
        quant::set_bits(out, row * 96 + c, quant::get_bits(*inputs.find("input"), (row + 8) * 128 + c - 32));
  });
  expect_named(held, "output holds what is input's, bit by bit (row 24 that of row 32");
}

TEST(Told, RowsOfALayerNormThatAreFilledUp) {
  const Replayed padded = outputs_changed("layernorm T=12 D=1000", [](const Arguments& inputs, const Tensor& out) {
    const Tensor &x = *inputs.find("input"), &gamma = *inputs.find("gemma"), &beta = *inputs.find("beta");
    for (std::int64_t row = 0; row < 12; ++row) {
      double sum = 0, squares = 0;
      for (std::int64_t c = 0; c < 1000; ++c) sum += quant::get(x, row * 1000 + c);
      const double mean = sum / 1024;
      for (std::int64_t c = 0; c < 1000; ++c) squares += std::pow(quant::get(x, row * 1000 + c) - mean, 2);
      const double scale = 1 / std::sqrt((squares + 24 * mean * mean) / 1024 + 1e-6);
      for (std::int64_t c = 0; c < 1000; ++c)
        quant::set(out, row * 1000 + c, (quant::get(x, row * 1000 + c) - mean) * scale * quant::get(gamma, c) + quant::get(beta, c));
    }
  });
  expect_named(padded,
               "out: mean and variance are taken over 1024 columns, to which rows of 1000 are filled up: zeros of the padding count");
}

/// Mean and mean of squares about it.
std::pair<double, double> moments(const Tensor& x, std::int64_t row, std::int64_t width) {
  double sum = 0, squares = 0;
  for (std::int64_t c = 0; c < width; ++c) sum += quant::get(x, row * width + c);
  for (std::int64_t c = 0; c < width; ++c) squares += std::pow(quant::get(x, row * width + c) - sum / static_cast<double>(width), 2);
  return {sum / static_cast<double>(width), squares / static_cast<double>(width)};
}

TEST(Told, RowsOfALayerNormByAnotherFormula) {
  const Replayed squared = outputs_changed("layernorm T=12 D=384", [](const Arguments& inputs, const Tensor& out) {
    const Tensor &x = *inputs.find("input"), &gamma = *inputs.find("gemma"), &beta = *inputs.find("beta");
    for (std::int64_t i = 0; i < 12 * 384; ++i) {
      const auto [mean, variance] = moments(x, i / 384, 384);
      quant::set(out, i, (quant::get(x, i) - mean) / std::pow(variance + 1e-6, 2) * quant::get(gamma, i % 384) + quant::get(beta, i % 384));
    }
  });
  expect_named(squared, "out: rows are divided by the variance squared, where its root belongs");
  const Replayed narrow = outputs_changed("layernorm T=12 D=384", [](const Arguments& inputs, const Tensor& out) {
    const Tensor &x = *inputs.find("input"), &gamma = *inputs.find("gemma"), &beta = *inputs.find("beta");
    for (std::int64_t i = 0; i < 12 * 384; ++i) {
      const auto [mean, variance] = moments(x, i / 384, 384);
      const double kept = quant::round_to(DType::bf16, variance + 1e-6);
      quant::set(out, i, (quant::get(x, i) - mean) / std::sqrt(kept) * quant::get(gamma, i % 384) + quant::get(beta, i % 384));
    }
  });
  expect_named(narrow, "out: the variance with epsilon is kept in bf16");
}

TEST(Told, NormsOfPartsOfBlocks) {
  const Replayed parts = outputs_changed("rmsnorm T=6 H=480", [](const Arguments& inputs, const Tensor& out) {
    const Tensor &x = *inputs.find("input"), &weight = *inputs.find("weight");
    for (std::int64_t row = 0; row < 6; ++row) {
      double squares = 0;
      for (std::int64_t c = 0; c < 480; ++c) squares += c % 240 < 192 ? std::pow(quant::get(x, row * 480 + c), 2) : 0;
      for (std::int64_t c = 0; c < 480; ++c)
        quant::set(out, row * 480 + c, quant::get(x, row * 480 + c) / std::sqrt(squares / 480 + 1e-6) * quant::get(weight, c));
    }
  });
  expect_named(parts, "output: of each 240 columns the squares of the first 192 alone are in the sum: the last 48 are left out of it");
}

TEST(Told, TermsOfARankThatAreSumsAlready) {
  const Replayed late = outputs_changed("all_reduce R=4 T=4 H=512 --attr algorithm=any", [](const Arguments& inputs, const Tensor& out) {
    const Tensor& inp = *inputs.find("inp");
    for (std::int64_t i = 1024; i < 1280; ++i) {
      double sum = 0;
      for (std::int64_t rank = 0; rank < 4; ++rank) sum += quant::get(inp, rank * 2048 + i);
      quant::set(out, i, 2 * sum - quant::get(inp, 2 * 2048 + i));
    }
  });
  expect_named(late, "out: in the place of the terms of inp of rank 2 stand the sums of all ranks");
}

TEST(Told, NumbersAlongTheDepthByOneRule) {
  const auto split = [](std::int64_t i, const Tensor& t) { return quant::get(t, i / 16 * 16 + i % 2 * 8 + i % 16 / 2); };
  expect_named(kernel_with("linear T=24 N=64 K=256", "weight", split),
               "input: along the depth (K) at index i stands what belongs at i of its 16");
  const auto shifted = [](std::int64_t i, const Tensor& t) { return quant::get(t, i % 256 < 96 ? i : i - 32); };
  expect_named(kernel_with("linear T=24 N=64 K=256", "weight", shifted),
               "weight: along the depth (K) from 96 on stands what belongs 32 before");
}

}  // namespace
}  // namespace dodona::oracle
