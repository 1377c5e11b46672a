// The indexer as a whole: whom it chooses, and attention over those.
#include "model/layer/attention/indexer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "core/define.h"
#include "core/random.h"
#include "helpers.h"
#include "ops/attention/cutlass_mla_decode.h"
#include "ops/nsa/fused_store_index_k_cache.h"
#include "ops/nsa/get_index_k_scale_buffer.h"
#include "quant/element.h"

namespace dodona::model {
namespace {

constexpr std::int64_t heads = 32, width = 128, topk = 2048, pages_each = 50;

Tensor drawn(DType type, const Dims& shape, const char* name, double factor = 1) {
  Tensor t(type, shape);
  for (std::int64_t i = 0; i < t.elements(); ++i)
    quant::set(t, i, factor * static_cast<double>(normal(Stream(7, name), static_cast<std::uint64_t>(i))));
  return t;
}
Exec fast(int threads = 2) {
  Exec exec;
  exec.mode = Mode::fast;
  exec.threads = threads;
  return exec;
}
Projection projection(const ModelConfig&, std::int64_t rows, std::int64_t columns, const char* name) {
  Projection p{.method = &bf16_method, .weight = {}};
  p.weight.module = name;
  p.weight.rows = rows;
  p.weight.columns = columns;
  p.weight.weight = drawn(DType::bf16, {rows, columns}, name, 1 / std::sqrt(static_cast<double>(columns)));
  p.method->prepare(p, fast());
  return p;
}

/// Requests of these lengths, the last token of each new, with pages dealt out
/// from the last to the first.
struct Requests {
  ModelConfig config = preset("tiny");
  IndexerWeights weights;
  IndexerStep step;
  Tensor index_k;

  explicit Requests(const std::vector<std::int64_t>& lengths) {
    const auto count = static_cast<std::int64_t>(lengths.size());
    weights = {projection(config, heads * width, config.q_lora_rank, "wq_b"), projection(config, width, config.hidden_size, "wk"),
               drawn(DType::f32, {width}, "k_norm"), drawn(DType::f32, {width}, "k_norm.bias", 0.1),
               drawn(DType::bf16, {heads, config.hidden_size}, "weights_proj", 0.1)};
    step.x = drawn(DType::bf16, {count, config.hidden_size}, "x");
    step.q_lora = drawn(DType::bf16, {count, config.q_lora_rank}, "q_lora");
    step.slots = Tensor(DType::i64, {count});
    step.pages = Tensor(DType::i32, {count, pages_each});
    step.token_slots = Tensor(DType::i32, {count, pages_each * 64});
    const std::int64_t pages = count * pages_each;
    index_k = Tensor(DType::u8, {pages, 8448});
    Tensor slots(DType::i64, {pages * 64});
    std::iota(slots.as<std::int64_t>(), slots.as<std::int64_t>() + pages * 64, 0);
    ops::run(
        ops::FusedStoreIndexKCache{
            .key = drawn(DType::bf16, {pages * 64, width}, "history"), .index_k_with_scale = index_k, .out_cache_loc = slots},
        fast());
    for (std::int64_t b = 0; b < count; ++b) {
      for (std::int64_t w = 0; w < pages_each; ++w)
        step.pages.as<std::int32_t>()[b * pages_each + w] = static_cast<std::int32_t>(pages - 1 - (b * pages_each + w));
      for (std::int64_t i = 0; i < pages_each * 64; ++i)
        step.token_slots.as<std::int32_t>()[b * pages_each * 64 + i] =
            step.pages.as<std::int32_t>()[b * pages_each + i / 64] * 64 + static_cast<std::int32_t>(i % 64);
      const std::int64_t position = lengths[static_cast<std::size_t>(b)] - 1;
      step.positions.push_back(position);
      step.slots.as<std::int64_t>()[b] = slot(b, position);
    }
  }
  std::int64_t slot(std::int64_t b, std::int64_t token) const {
    return step.token_slots.as<const std::int32_t>()[b * pages_each * 64 + token];
  }
  Indexed run(int threads = 2) const { return index_tokens(config, weights, step, index_k, fast(threads)); }
};
std::vector<std::int64_t> chosen(const Indexed& indexed, std::int64_t b) {
  const auto* const row = indexed.selected.as<const std::int32_t>() + b * topk;
  return {row, row + topk};
}

TEST(Indexer, UpTo2048TokensAreAllChosenInOrder) {
  const Requests requests({1, 700, 2048});
  const Indexed indexed = requests.run();
  for (const auto& [b, length] : {std::pair{0, 1}, {1, 700}, {2, 2048}})
    for (std::int64_t i = 0; i < topk; ++i)
      ASSERT_EQ(chosen(indexed, b)[static_cast<std::size_t>(i)], i < length ? requests.slot(b, i) : -1) << b << " " << i;
}

TEST(Indexer, OfMoreTokensThoseWithTheLargestExactScoresAreChosen) {
  const std::int64_t length = 3000;
  const Requests requests({length, 2049});
  const Indexed indexed = requests.run();
  // Scores in double from the codes that were stored, the new token's among
  // them.
  Tensor pages(DType::i32, {pages_each});
  std::copy_n(requests.step.pages.as<const std::int32_t>(), pages_each, pages.as<std::int32_t>());
  const auto keys = ops::run(ops::GetIndexKScaleBuffer{.buf = requests.index_k, .page_indices = pages, .seq_len = length}, fast());
  std::vector<double> scores;
  double noise = 0;
  for (std::int64_t n = 0; n < length; ++n) {
    double score = 0, magnitude = 0;
    for (std::int64_t h = 0; h < heads; ++h) {
      double product = 0;
      for (std::int64_t d = 0; d < width; ++d)
        product += quant::get(indexed.q_codes, h * width + d) * quant::load(DType::f8_e4m3, keys.index_k.as<std::byte>() + n * width, d);
      const double weight = quant::get(indexed.head_weights, h);
      score += weight * std::max(0.0, product);
      magnitude += std::fabs(weight * product);
    }
    const double scale = quant::load(DType::f32, keys.index_k_scale.as<std::byte>() + 4 * n, 0);
    scores.push_back(score * scale);
    noise = std::max(noise, magnitude * scale * 1e-5);
  }
  std::vector<double> falling = scores;
  std::sort(falling.begin(), falling.end(), std::greater<>());
  const double bound = falling[topk - 1];
  const std::vector<std::int64_t> row = chosen(indexed, 0);
  const std::set<std::int64_t> members(row.begin(), row.end());
  EXPECT_EQ(members.size(), static_cast<std::size_t>(topk));
  std::int64_t close = 0;
  for (std::int64_t n = 0; n < length; ++n) {
    const double score = scores[static_cast<std::size_t>(n)];
    close += std::fabs(score - bound) <= noise ? 1 : 0;
    if (score > bound + noise) EXPECT_EQ(members.count(requests.slot(0, n)), 1u) << n;
    if (score < bound - noise) EXPECT_EQ(members.count(requests.slot(0, n)), 0u) << n;
  }
  EXPECT_LT(close, 10) << "the bound leaves almost nothing open";
}

TEST(Indexer, TheNewKeyIsStoredBeforeItIsScored) {
  const Requests requests({1, 700});
  const Indexed indexed = requests.run();
  const std::int64_t slot = requests.slot(1, 699);
  EXPECT_EQ(
      std::memcmp(requests.index_k.as<std::byte>() + slot / 64 * 8448 + slot % 64 * width, indexed.k_codes.as<std::byte>() + width, width),
      0);
  double score = 0;
  for (std::int64_t h = 0; h < heads; ++h) {
    double product = 0;
    for (std::int64_t d = 0; d < width; ++d) product += quant::get(indexed.q_codes, h * width + d) * quant::get(indexed.k_codes, d);
    score += quant::get(indexed.head_weights, h) * std::max(0.0, product);
  }
  score *= quant::get(indexed.k_scales, 0);
  EXPECT_NEAR(quant::get(indexed.logits, 0), score, 1e-5 * std::fabs(score) + 1e-5);
}

TEST(Indexer, RowsDoNotDependOnTheBatchOrTheThreads) {
  const Requests together({2500, 100});
  const Indexed both = together.run(2), again = together.run(1);
  EXPECT_EQ(testing::bytes(both.selected), testing::bytes(again.selected));
  EXPECT_EQ(testing::bytes(both.head_weights), testing::bytes(again.head_weights));
}

TEST(Indexer, AttentionOverAllTokensIsAttentionOverTheCache) {
  const Requests requests({300, 1000});
  const Indexed indexed = requests.run();
  const std::int64_t slots = requests.index_k.size(0) * 64;
  const Tensor cache = drawn(DType::bf16, {slots, 1, 576}, "cache"), q_nope = drawn(DType::bf16, {2, 4, 512}, "q_nope", 0.1),
               q_pe = drawn(DType::bf16, {2, 4, 64}, "q_pe");
  const Tensor sparse = attend_selected(q_nope, q_pe, cache, indexed.selected, 0.07, fast());
  Tensor lengths(DType::i32, {2});
  lengths.as<std::int32_t>()[0] = 300, lengths.as<std::int32_t>()[1] = 1000;
  const Tensor dense = ops::run(ops::CutlassMlaDecode{.q_nope = q_nope,
                                                      .q_pe = q_pe,
                                                      .kv_c_and_k_pe_cache = cache.reshape({slots / 64, 64, 576}),
                                                      .seq_lens = lengths,
                                                      .page_table = requests.step.pages,
                                                      .workspace = Tensor(DType::u8, {0}),
                                                      .sm_scale = 0.07},
                                fast())
                           .out;
  EXPECT_EQ(testing::bytes(sparse), testing::bytes(dense));
}

}  // namespace
}  // namespace dodona::model
