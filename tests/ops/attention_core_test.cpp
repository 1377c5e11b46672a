// The core of attention beyond MLA: other widths, values apart from their keys, masks.
#include "ops/softmax/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "helpers.h"

namespace dodona {
namespace {

using namespace helpers;

constexpr std::int64_t wide = 192, narrow = 128;

/// Some query tokens over rows of keys and of values; `sees` is the mask.
class Prefill final : public ops::Attention {
 public:
  Tensor q, k, v;  ///< [tokens, heads, 192], [keys, 192], [keys, 128]
  std::vector<std::vector<std::int64_t>> seen;

  Prefill(DType element, std::int64_t tokens, std::int64_t count, std::int64_t q_heads,
          const std::function<bool(std::int64_t token, std::int64_t key)>& sees)
      : q(normal(element, {tokens, q_heads, wide}, "q")),
        k(normal(element, {count, wide}, "k")),
        v(normal(element, {count, narrow}, "v")),
        seen(static_cast<std::size_t>(tokens)) {
    rows = tokens, heads = q_heads, key_width = wide, value_width = narrow;
    type = element, scale = 0.07, out_scale = 0.5;
    out = Tensor(DType::f32, {tokens * q_heads, narrow});
    lse = Tensor(DType::f32, {tokens * q_heads});
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t j = 0; j < count; ++j)
        if (sees(t, j)) seen[static_cast<std::size_t>(t)].push_back(j);
  }

  std::int64_t visible(std::int64_t row) const override { return static_cast<std::int64_t>(keys_of(row).size()); }
  ops::QueryParts queries(std::int64_t row) const override {
    const std::int64_t bytes = bits(type) / 8;
    const std::byte* const first = q.as<const std::byte>() + row * heads * wide * bytes;
    // In two pieces, as the MLA ops have them.
    return {ops::QueryPart{first, wide * bytes, 128}, ops::QueryPart{first + 128 * bytes, wide * bytes, 64}};
  }
  void list(std::int64_t row, std::int64_t first, std::int64_t count, const std::byte** keys, const std::byte** values) const override {
    const std::int64_t bytes = bits(type) / 8;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t j = keys_of(row)[static_cast<std::size_t>(first + i)];
      keys[i] = k.as<const std::byte>() + j * wide * bytes;
      values[i] = v.as<const std::byte>() + j * narrow * bytes;
    }
  }
  const std::vector<std::int64_t>& keys_of(std::int64_t row) const { return seen[static_cast<std::size_t>(row)]; }
};

Prefill causal(DType type, std::int64_t tokens, std::int64_t keys, std::int64_t heads) {
  return {type, tokens, keys, heads, [=](std::int64_t t, std::int64_t j) { return j <= t + keys - tokens; }};
}

struct Row {
  std::vector<double> out;
  double lse = 0;
};

/// The formula as it is written, in `Real`. Keys from the last to the first, and weights rounded for their products alone.
template <class Real>
Row attended(const Prefill& p, std::int64_t row, std::int64_t head, const std::vector<std::int64_t>& keys, double scale,
             bool round_weights) {
  std::vector<Real> z;
  for (const std::int64_t j : keys) {
    Real sum = 0;
    for (std::int64_t i = wide - 1; i >= 0; --i)
      sum += static_cast<Real>(quant::get(p.q, (row * p.heads + head) * wide + i)) * static_cast<Real>(quant::get(p.k, j * wide + i));
    z.push_back(sum * static_cast<Real>(static_cast<float>(scale)));
  }
  const Real largest = *std::max_element(z.begin(), z.end());
  Real total = 0;
  std::vector<Real> sums(static_cast<std::size_t>(narrow));
  for (std::size_t n = keys.size(); n-- > 0;) {
    const Real weight = std::exp(z[n] - largest);
    total += weight;
    const Real rounded = round_weights ? static_cast<Real>(quant::round_to(p.type, weight)) : weight;
    for (std::int64_t i = 0; i < narrow; ++i)
      sums[static_cast<std::size_t>(i)] += rounded * static_cast<Real>(quant::get(p.v, keys[n] * narrow + i));
  }
  Row result;
  for (const Real sum : sums) result.out.push_back(static_cast<double>(sum / total * static_cast<Real>(p.out_scale)));
  result.lse = static_cast<double>((largest + std::log(total)) * static_cast<Real>(1.4426950408889634));
  return result;
}

/// The largest share of what golden mode leaves open that the formula needs, over all rows.
double worst_share(const Prefill& p, const Reference& reference, const std::function<Row(std::int64_t row, std::int64_t head)>& formula) {
  const ReferenceOutput &out = *reference.find("out"), &lse = *reference.find("lse");
  double worst = 0;
  const auto compare = [&](const ReferenceOutput& record, std::size_t i, double value) {
    const double distance = std::fabs(value - record.exact[i]);
    worst = std::max(worst, distance == 0 ? 0.0 : distance / record.slack[i]);
  };
  for (std::int64_t row = 0; row < p.rows; ++row)
    for (std::int64_t head = 0; head < p.heads; ++head) {
      if (p.visible(row) == 0) continue;
      const Row found = formula(row, head);
      const auto at = static_cast<std::size_t>(row * p.heads + head);
      for (std::size_t i = 0; i < found.out.size(); ++i) compare(out, at * found.out.size() + i, found.out[i]);
      compare(lse, at, found.lse);
    }
  return worst;
}

Reference judged(const Prefill& p) {
  Reference reference;
  ops::attention_golden(p, ops::WeightSum::unrounded, in_mode(Mode::golden), &reference);
  return reference;
}

TEST(AttentionCore, GoldenIsTheFormulaForOtherWidthsMasksAndSeparateValues) {
  const Prefill masked[] = {causal(DType::bf16, 5, 9, 3),
                            causal(DType::f32, 4, 4, 1),
                            causal(DType::f16, 6, 4, 2),
                            // A tree: each token sees the prefix of four and its ancestors, i, (i-1)/2...
                            {DType::bf16, 7, 11, 2, [](std::int64_t t, std::int64_t j) {
                               for (std::int64_t node = t + 1; node > 0; node /= 2)
                                 if (j == 4 + node - 1) return true;
                               return j < 4;
                             }}};
  for (const Prefill& p : masked) {
    const Reference reference = judged(p);
    for (std::int64_t row = 0; row < p.rows; ++row)
      for (std::int64_t head = 0; head < p.heads; ++head) {
        const auto at = static_cast<std::size_t>(row * p.heads + head);
        if (p.visible(row) == 0) {
          EXPECT_EQ(reference.find("lse")->exact[at], -infinity);
          continue;
        }
        const Row expected = attended<double>(p, row, head, p.keys_of(row), p.scale, false);
        for (std::size_t i = 0; i < expected.out.size(); ++i)
          ASSERT_NEAR(reference.find("out")->exact[at * expected.out.size() + i], expected.out[i], 1e-12);
        ASSERT_NEAR(reference.find("lse")->exact[at], expected.lse, 1e-12);
      }
  }
}

TEST(AttentionCore, BoundsHoldForFp32InAnotherOrderAndFailForMistakes) {
  for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
    const Prefill p = causal(type, 6, 150, 2);
    const Reference reference = judged(p);
    const auto share = [&](double scale, auto keys_of) {
      return worst_share(p, reference,
                         [&](std::int64_t row, std::int64_t head) { return attended<float>(p, row, head, keys_of(row), scale, true); });
    };
    const auto right = [&](std::int64_t row) { return p.keys_of(row); };
    EXPECT_LE(share(p.scale, right), 1.0) << name(type);
    EXPECT_GT(share(p.scale, right), 0.0) << name(type);
    EXPECT_GT(share(p.scale * std::sqrt(192.0 / 128.0), right), 10.0) << "the scale of another width";
    EXPECT_GT(share(p.scale,
                    [&](std::int64_t row) {
                      auto keys = p.keys_of(row);
                      keys.pop_back();
                      return keys;
                    }),
              10.0)
        << "a token does not see itself";
    EXPECT_GT(share(p.scale,
                    [&](std::int64_t row) {
                      auto keys = p.keys_of(row);
                      if (row + 1 < p.rows) keys.push_back(keys.back() + 1);
                      return keys;
                    }),
              10.0)
        << "a token sees the next one";
  }
}

TEST(AttentionCore, FastIsWithinTheBoundsOfGoldenOverBlocksAndSplits) {
  for (const DType type : {DType::bf16, DType::f16, DType::f32})
    for (const std::int64_t keys : {3, 129, 1100}) {
      const Prefill p = causal(type, 3, keys, 17);
      const Reference reference = judged(p);
      ops::attention_fast(p, in_mode(Mode::fast, 1, Isa::generic));
      const Tensor out = p.out.clone(), lse = p.lse.clone();
      EXPECT_LE(worst_share(p, reference,
                            [&](std::int64_t row, std::int64_t head) {
                              Row found;
                              const std::int64_t at = row * p.heads + head;
                              for (std::int64_t i = 0; i < narrow; ++i) found.out.push_back(quant::get(out, at * narrow + i));
                              found.lse = quant::get(lse, at);
                              return found;
                            }),
                1.0)
          << name(type) << " " << keys;
      for (const Isa isa : available_isas())
        for (const int threads : {1, 3}) {
          ops::attention_fast(p, in_mode(Mode::fast, threads, isa));
          EXPECT_TRUE(same_bits(p.out, out) && same_bits(p.lse, lse)) << name(type) << " " << keys << " " << name(isa);
        }
    }
}

}  // namespace
}  // namespace dodona
