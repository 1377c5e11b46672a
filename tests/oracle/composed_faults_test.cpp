// Kernels that look along one dimension of an operand at another index: no mistake has a name for them, where and how do together.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "quant/element.h"
#include "replayed.h"

namespace dodona::oracle {
namespace {

/// `t` with what index map(i) of a dimension has in the place of index i; -1 is zero.
Tensor looked_up(const Tensor& t, int dim, const std::function<std::int64_t(std::int64_t)>& map) {
  const Tensor changed = t.clone();
  std::int64_t below = 1;
  for (int d = dim + 1; d < t.rank(); ++d) below *= t.size(d);
  for (std::int64_t at = 0; at < t.elements(); ++at) {
    const std::int64_t index = at / below % t.size(dim), from = map(index);
    quant::set_bits(changed, at, from < 0 ? 0 : quant::get_bits(t, at + (from - index) * below));
  }
  return changed;
}

struct Looked {
  std::string line, operand;
  int dim;
  std::function<std::int64_t(std::int64_t)> map;
  std::string text;
};

Replayed kernel_that_looks(const Looked& l) {
  Replayed r{make_case(parse_case_line(l.line), {}, true), {}, {}, {}};
  Arguments arguments = runnable(*r.c.op, r.c.inputs);
  arguments.set(l.operand, looked_up(*r.c.inputs.find(l.operand), l.dim, l.map));
  r.c.op->run(arguments, {});
  r.actual = outputs_of(*r.c.op, arguments);
  judge_and_explain(r);
  return r;
}

TEST(ComposedFaults, AnIndexOfOneDimensionThatIsLookedForElsewhereIsNamed) {
  const auto first_of_8 = [](std::int64_t i) { return i / 8 * 8; };
  const auto first_of_4 = [](std::int64_t i) { return i / 4 * 4; };
  const auto half = [](std::int64_t i) { return i / 2; };
  const auto next_64 = [](std::int64_t i) { return i + 64 < 256 ? i + 64 : i; };
  const auto mod_32 = [](std::int64_t i) { return i % 32; };
  const auto half_as_far = [](std::int64_t i) { return i / 128 * 64 + i % 128; };
  for (const Looked& l :
       {Looked{"rmsnorm T=4 H=512", "weight", 0, first_of_8, "weight: along H the first of each 8 is used for all of them"},
        {"linear T=8 N=64 K=256", "weight", 0, half, "weight: along N index i is looked for at i / 2: as if groups were 2 times as large"},
        {"linear T=8 N=64 K=256", "weight", 1, next_64, "weight: along K each tile of 64 is the next one"},
        {"int8_scaled_mm M=8 N=64 K=256", "mat_a", 1, half_as_far,
         "mat_a: along K each tile of 128 is looked for half as far on as it lies"},
        {"bmm L=8 M=4 N=64 K=128", "mat1", 0, first_of_4, "mat1: along L the first of each 4 is used for all of them"},
        {"qserve_w4a8_per_chn_gemm M=12 N=128 K=128", "w_szs", 0, mod_32, "w_szs: along N index i is looked for at i mod 32"},
        {"int8_scaled_mm M=8 N=64 K=128", "scales_b", 0, half, "scales_b: along N index i is looked for at i / 2"}}) {
    const Replayed r = kernel_that_looks(l);
    ASSERT_EQ(r.verdict.outcome, Outcome::fail) << l.text;
    ASSERT_FALSE(r.explained.found.empty()) << l.text;
    EXPECT_TRUE(r.explained.found.front().complete) << r.all();
    EXPECT_EQ(r.explained.found.front().text.rfind(l.text, 0), 0U) << r.all();
  }
}

TEST(ComposedFaults, AListThatIsNotLookedAtIsNamed) {
  Replayed r{
      make_case(parse_case_line("decode_attention_fwd B=3 N=4 Nk=2 S=200 n=90 D=64 --attr v_head_dim=64 --attr sm_scale=0.125"), {}, true),
      {},
      {},
      {}};
  Arguments arguments = runnable(*r.c.op, r.c.inputs);
  const Tensor places = r.c.inputs.find("kv_indices")->clone();
  for (std::int64_t i = 0; i < places.elements(); ++i) quant::set(places, i, static_cast<double>(i));
  arguments.set("kv_indices", places);
  r.c.op->run(arguments, {});
  r.actual = outputs_of(*r.c.op, arguments);
  judge_and_explain(r);
  ASSERT_EQ(r.verdict.outcome, Outcome::fail);
  ASSERT_FALSE(r.explained.found.empty());
  EXPECT_EQ(r.explained.found.front().text, "kv_indices: the list is not looked at: entry i is taken to be i") << r.all();
}

TEST(ComposedFaults, AMistakeThatHasANameKeepsIt) {
  const Replayed r = kernel_that_looks({"linear T=8 N=64 K=256", "weight", 1, [](std::int64_t i) { return i < 128 ? i : -1; }, ""});
  ASSERT_EQ(r.verdict.outcome, Outcome::fail);
  ASSERT_FALSE(r.explained.found.empty());
  EXPECT_EQ(r.explained.found.front().text, "input: the last 128 of the summed columns are not added") << r.all();
}

/// A kernel that is honest but for one operand, or its answer.
struct Wrong {
  std::string line;
  std::function<void(const Case&, Arguments&)> spoil;
  std::function<void(const Case&, NamedTensors&)> rewrite;
  std::string text;
};
Replayed kernel_that_is(const Wrong& w) {
  Replayed r{make_case(parse_case_line(w.line), {}, true), {}, {}, {}};
  Arguments arguments = runnable(*r.c.op, r.c.inputs);
  if (w.spoil) w.spoil(r.c, arguments);
  r.c.op->run(arguments, {});
  r.actual = outputs_of(*r.c.op, arguments);
  if (w.rewrite) w.rewrite(r.c, r.actual);
  judge_and_explain(r);
  return r;
}
/// Numbers of an argument by value(index, number).
auto changed(const std::string& name, const std::function<double(std::int64_t, const Tensor&)>& value) {
  return [=](const Case& c, Arguments& arguments) {
    const Tensor& before = *c.inputs.find(name);
    const Tensor after = make_strided(before.dtype(), before.shape(), before.strides());
    for (std::int64_t i = 0; i < after.elements(); ++i) quant::set(after, i, value(i, before));
    arguments.set(name, after);
  };
}
/// Rows of the first output by row(values of all rows).
auto rewritten(const std::function<std::vector<double>(const Tensor&)>& values) {
  return [=](const Case&, NamedTensors& outputs) {
    Tensor& output = outputs.front().second;
    const std::vector<double> all = values(output);
    output = output.clone();
    for (std::int64_t i = 0; i < output.elements(); ++i) quant::set(output, i, all[static_cast<std::size_t>(i)]);
  };
}

TEST(ComposedFaults, APartOfADimensionThatCountsOtherwiseIsNamed) {
  const auto last_as_one = [](std::int64_t columns, bool by_row) {
    return [=](std::int64_t i, const Tensor& t) {
      const std::int64_t at = by_row ? i / columns : i % columns, count = by_row ? t.size(0) : t.size(1);
      return at == count - 1 ? 1.0 : quant::get(t, i);
    };
  };
  for (const Wrong& w : {Wrong{"fp8_blockwise_scaled_mm M=16 N=128 K=384",
                               [&](const Case&c, Arguments&a) {
                                 changed("scales_a", last_as_one(3, false))(c, a);
                                 changed("scales_b", last_as_one(1, true))(c, a);
                               },
                               {},
                               "scales_a, scales_b: along K/128 the last counts as 1: it is not applied there"},
                         {"fp8_blockwise_scaled_mm M=16 N=128 K=384",
                          changed("scales_a", [](std::int64_t i, const Tensor&t) { return quant::get(t, i) * (i % 3 > 0 ? 2 : 1); }),
                          {},
                          "scales_a: along K/128 the ones behind the first count twice"},
                         {"ep_gather R=40 D=128 T=9 topk=6",
                          changed("recv_topk_weight", [](std::int64_t i, const Tensor&t) { return i % 6 == 5 ? quant::get(t, i) : 0.0; }),
                          {},
                          "recv_topk_weight: along topk nothing counts before index 5: the last one alone is left"},
                         {"apply_shuffle_mul_sum M=6 topk=4 R=24 D=96",
                          changed("factors", [](std::int64_t i, const Tensor&t) { return quant::get(t, i / 4 + i % 4); }),
                          {},
                          "factors: a token's 4 slots are looked for at its number"},
                         {"awq_dequantize K=64 N=64 G=2",
                          changed("qzeros", [](std::int64_t, const Tensor&) { return -2004318072.0; }),
                          {},
                          "qzeros: every zero point is taken for 8"}}) {
    const Replayed r = kernel_that_is(w);
    ASSERT_EQ(r.verdict.outcome, Outcome::fail) << w.text;
    ASSERT_FALSE(r.explained.found.empty()) << w.text;
    EXPECT_TRUE(r.explained.found.front().complete) << r.all();
    EXPECT_EQ(r.explained.found.front().text.rfind(w.text, 0), 0U) << r.all();
  }
}

/// Likewise with a whole operand as it is read.
Replayed kernel_that_reads(const std::string& line, const std::string& operand,
                           const std::function<void(const Tensor&, const Tensor&)>& read) {
  Replayed r{make_case(parse_case_line(line), {}, true), {}, {}, {}};
  Arguments arguments = runnable(*r.c.op, r.c.inputs);
  const Tensor& before = *r.c.inputs.find(operand);
  const Tensor after = before.clone();
  read(before, after);
  arguments.set(operand, after);
  r.c.op->run(arguments, {});
  r.actual = outputs_of(*r.c.op, arguments);
  judge_and_explain(r);
  return r;
}
void expect_first(const Replayed& r, const std::string& text) {
  ASSERT_EQ(r.verdict.outcome, Outcome::fail) << text;
  ASSERT_FALSE(r.explained.found.empty()) << text;
  EXPECT_TRUE(r.explained.found.front().complete) << r.all();
  EXPECT_EQ(r.explained.found.front().text.rfind(text, 0), 0U) << r.all();
}

TEST(ComposedFaults, EntriesOfAListOfPagesThatAreTakenForOthersAreNamed) {
  const std::string line = "cutlass_mla_decode B=4 N=2 pages=24 P=16 W=8 --attr sm_scale=0.0721687836";
  const auto number = [](const Tensor& t, std::int64_t i) { return quant::get(t, i); };
  expect_first(kernel_that_reads(line, "page_table",
                                 [&](const Tensor& before, const Tensor& after) {
                                   for (std::int64_t i = 1; i < after.elements(); i += 2)
                                     quant::set(after, i, std::fmod(number(before, i - 1) + 1, 24));
                                 }),
               "page_table: entries of each 2 are taken to follow the first of them");
  expect_first(kernel_that_reads(line, "page_table",
                                 [&](const Tensor& before, const Tensor& after) {
                                   for (std::int64_t i = 0; i < after.elements(); ++i) quant::set(after, i, number(before, i / 8 * 8));
                                 }),
               "page_table: the first entry of a row is used for all of it");
  expect_first(kernel_that_reads(line, "page_table",
                                 [&](const Tensor& before, const Tensor& after) {
                                   for (std::int64_t i = 0; i < after.elements(); ++i) {
                                     const std::int64_t from = i / 8 * 16 + i % 8;
                                     quant::set(after, i, from < after.elements() ? number(before, from) : 5);
                                   }
                                 }),
               "page_table: rows of the list are looked for 16 entries apart");
}

TEST(ComposedFaults, AnglesThatAreLookedForElsewhereAreNamed) {
  const std::string line = "rotary_embedding T=9 P=64 R=32 Nq=4 Nk=2 --attr head_size=64 --dtype query=f32";
  const auto from_place = [](const std::function<std::int64_t(std::int64_t, std::int64_t)>& place) {
    return [place](const Tensor& before, const Tensor& after) {
      for (std::int64_t i = 0; i < after.elements(); ++i)
        quant::set_bits(after, i, quant::get_bits(before, place(i / 32, i % 32) % after.elements()));
    };
  };
  expect_first(kernel_that_reads(line, "cos_sin_cache",
                                 from_place([](std::int64_t row, std::int64_t c) { return row * 32 + c / 16 * 16 + c % 16 * 2; })),
               "cos_sin_cache: the angle of pair i is looked for at 2 i");
  expect_first(kernel_that_reads(line, "cos_sin_cache", from_place([](std::int64_t row, std::int64_t c) { return row * 64 + c; })),
               "cos_sin_cache: rows are looked for at a stride of 64, where they lie 32 apart");
}

TEST(ComposedFaults, WhatAnAccumulatorStillHoldsIsNamed) {
  const auto divided_by = [](const std::function<bool(std::int64_t)>& counts) {
    return [=](const Tensor& probs) {
      std::vector<double> values;
      const std::int64_t width = probs.size(1);
      for (std::int64_t i = 0; i < probs.elements(); ++i) {
        double sum = 0;
        for (std::int64_t c = 0; c < width; ++c) sum += counts(c) ? quant::get(probs, i / width * width + c) : 0;
        values.push_back(quant::get(probs, i) / sum);
      }
      return values;
    };
  };
  const auto carried = [](const Tensor& sums) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < sums.elements(); ++i) values.push_back(quant::get(sums, i) + (i >= 256 ? values[i - 256] : 0));
    return values;
  };
  const auto apart = [](const Tensor& rows) {
    std::vector<double> values(static_cast<std::size_t>(rows.elements()));
    const std::int64_t width = rows.size(2), heads = rows.size(1), count = rows.elements() / width;
    for (std::int64_t row = 0; row < count; ++row)
      if (const std::int64_t to = row / 4 * 4 + row % 4 * heads; to < count)
        for (std::int64_t c = 0; c < width; ++c) values[static_cast<std::size_t>(to * width + c)] = quant::get(rows, row * width + c);
    return values;
  };
  for (const Wrong& w : {Wrong{"softmax B=8 V=256",
                               {},
                               rewritten(divided_by([](std::int64_t c) { return c < 192; })),
                               "probs: the sum that a row is divided by is that of the first 192 columns alone"},
                         {"softmax B=8 V=100",
                          {},
                          rewritten(divided_by([](std::int64_t c) { return c < 96; })),
                          "probs: the sum that a row is divided by lacks the last partial tile of "},
                         {"moe_sum T=9 topk=5 D=128 --dtype input_tensor=f32",
                          {},
                          rewritten(carried),
                          "output_tensor: sums are not set back to zero: a row begins with what the row 2 rows before it left"},
                         {"decode_attention_fwd B=3 N=8 Nk=2 S=40 n=30 D=64 --attr v_head_dim=64 --attr sm_scale=0.125",
                          {},
                          rewritten(apart),
                          "o: tiles of 4 rows begin where they should, but their rows are stored 8 apart"}}) {
    const Replayed r = kernel_that_is(w);
    ASSERT_EQ(r.verdict.outcome, Outcome::fail) << w.text;
    ASSERT_FALSE(r.explained.found.empty()) << w.text;
    EXPECT_TRUE(r.explained.found.front().complete) << r.all();
    EXPECT_EQ(r.explained.found.front().text.rfind(w.text, 0), 0U) << r.all();
  }
}

}  // namespace
}  // namespace dodona::oracle
