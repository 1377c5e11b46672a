// The core of attention beyond MLA: other widths, values apart from their keys, masks.
#include "ops/softmax/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "tests/ops/helpers.h"

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

/// One row of queries that see one key more each, as a chunk of a prompt has them.
class Chunk final : public ops::Attention {
 public:
  Tensor q, k, v;
  std::int64_t keys, window = 0;  ///< window: so many keys before its own a query sees; 0: all
  bool is_causal;

  struct Sizes {
    std::int64_t queries, keys, key_width, value_width;
  };
  Chunk(DType element, const Sizes& s, bool masked)
      : q(normal(element, {s.queries, s.key_width}, "q")),
        k(normal(element, {s.keys, s.key_width}, "k")),
        v(normal(element, {s.keys, s.value_width}, "v")),
        keys(s.keys),
        is_causal(masked) {
    rows = 1, heads = s.queries, key_width = s.key_width, value_width = s.value_width;
    type = element, scale = 0.07;
    out = Tensor(DType::f32, {heads, value_width});
    lse = Tensor(DType::f32, {heads});
  }
  std::int64_t visible(std::int64_t) const override { return keys; }
  std::int64_t visible_to(std::int64_t, std::int64_t query) const override {
    return is_causal ? std::max<std::int64_t>(0, keys - heads + 1 + query) : keys;
  }
  std::int64_t hidden_to(std::int64_t row, std::int64_t query) const override {
    return window == 0 ? 0 : std::clamp<std::int64_t>(keys - heads + query - window, 0, visible_to(row, query));
  }
  ops::QueryParts queries(std::int64_t) const override {
    return {ops::QueryPart{q.as<const std::byte>(), key_width * bits(type) / 8, key_width}, ops::QueryPart{}};
  }
  void list(std::int64_t, std::int64_t first, std::int64_t count, const std::byte** k_rows, const std::byte** v_rows) const override {
    for (std::int64_t i = 0; i < count; ++i) {
      k_rows[i] = k.as<const std::byte>() + (first + i) * key_width * bits(type) / 8;
      if (!values_in_keys) v_rows[i] = v.as<const std::byte>() + (first + i) * value_width * bits(type) / 8;
    }
  }
};

void expect_same_bits_on_all_tiers(Chunk& c, const std::string& what) {
  ops::attention_fast(c, in_mode(Mode::fast, 1, Isa::generic));
  const Tensor out = c.out.clone(), lse = c.lse.clone();
  for (const Isa isa : available_isas()) {
    ops::attention_fast(c, in_mode(Mode::fast, 2, isa));
    EXPECT_TRUE(same_bits(c.out, out) && same_bits(c.lse, lse)) << what << " " << name(isa);
  }
}
/// Elements of some places become `value`.
void sow(Tensor& t, std::int64_t step, double value) {
  for (std::int64_t i = step / 2; i < element_count(t.shape()); i += step) quant::set(t, i, value);
}

TEST(AttentionCore, TiersAgreeWhateverTheSizesAndNumbers) {
  const Chunk::Sizes sizes[] = {{1, 1, 16, 16},    {15, 17, 48, 16},    {16, 33, 192, 128}, {17, 127, 192, 48},
                                {33, 129, 96, 80}, {64, 160, 192, 128}, {70, 1100, 96, 64}, {48, 31, 576, 512}};
  for (const DType type : {DType::bf16, DType::f8_e4m3, DType::f16})
    for (const Chunk::Sizes& s : sizes)
      for (const bool masked : {false, true})
        for (const bool shared : {false, true}) {
          Chunk c(type, s, masked);
          c.values_in_keys = shared;
          const std::string what = std::string(name(type)) + " " + std::to_string(s.queries) + " queries, " + std::to_string(s.keys) +
                                   " keys, " + std::to_string(s.key_width) + (masked ? ", causal" : "") + (shared ? ", shared" : "");
          expect_same_bits_on_all_tiers(c, what);
          c.scale = 40;
          expect_same_bits_on_all_tiers(c, what + ", far apart");
          c.scale = 0.07;
          sow(c.k, 997, 0.0), sow(c.v, 13, 0.0);
          sow(c.q, 41, type == DType::bf16 ? 0x1p-130 : 0x1p-9);
          sow(c.k, 501, type == DType::bf16 ? 0x1p-128 : 0x1p-9), sow(c.v, 33, type == DType::bf16 ? 0x1p-131 : 0x1p-9);
          expect_same_bits_on_all_tiers(c, what + ", denormals");
          if (type == DType::bf16) {
            for (Tensor* t : {&c.k, &c.v})
              for (std::int64_t i = 0; i < element_count(t->shape()); ++i) quant::set(*t, i, quant::get(*t, i) * 0x1p-115);
            expect_same_bits_on_all_tiers(c, what + ", small products");
          }
          sow(c.v, 4099, infinity), sow(c.k, 9001, infinity);
          expect_same_bits_on_all_tiers(c, what + ", infinities");
          sow(c.v, 5003, std::nan("")), sow(c.k, 12007, std::nan(""));
          expect_same_bits_on_all_tiers(c, what + ", NaN");
        }
}

TEST(AttentionCore, KeysBeforeAWindowCountForNothingWhateverTheyHold) {
  for (const DType type : {DType::bf16, DType::f16})
    for (const bool causal : {false, true})
      for (const std::int64_t window : {1, 31, 128, 700, 2000})
        for (const Chunk::Sizes& s : {Chunk::Sizes{1, 3000, 64, 32}, {20, 300, 96, 64}, {70, 2500, 64, 48}, {120, 150, 64, 16}}) {
          const std::string what = std::to_string(window) + " of " + std::to_string(s.keys) + (causal ? ", causal" : "");
          Chunk all(type, s, causal);
          all.window = window;
          const std::int64_t never = all.hidden_to(0, 0);
          sow(all.v, 4099, infinity), sow(all.k, 9001, std::nan(""));
          expect_same_bits_on_all_tiers(all, what);
          const Tensor out = all.out.clone(), lse = all.lse.clone();
          for (std::int64_t i = 0; i < never * s.key_width; ++i) quant::set(all.k, i, i % 2 == 0 ? infinity : std::nan(""));
          for (std::int64_t i = 0; i < never * s.value_width; ++i) quant::set(all.v, i, i % 2 == 0 ? infinity : std::nan(""));
          ops::attention_fast(all, in_mode(Mode::fast));
          EXPECT_TRUE(same_bits(all.out, out) && same_bits(all.lse, lse)) << what << ", behind the window";
          // A query has its bits whoever is beside it.
          Chunk last(type, {1, s.keys, s.key_width, s.value_width}, causal);
          last.window = window, last.k = all.k, last.v = all.v, last.q = all.q.slice(0, s.queries - 1, s.queries);
          ops::attention_fast(last, in_mode(Mode::fast));
          EXPECT_TRUE(same_bits(last.out, all.out.slice(0, s.queries - 1, s.queries))) << what << ", the last query";
          EXPECT_TRUE(same_bits(last.lse, all.lse.slice(0, s.queries - 1, s.queries))) << what << ", the last query";
        }
}

}  // namespace
}  // namespace dodona
