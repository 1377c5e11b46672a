// The decode layer as a composition: held to plain formulas, and to what must not matter.
#include "model/decode_layer.h"

#include <cmath>
#include <limits>

#include "core/random.h"
#include "helpers.h"
#include "straight_layer.h"

namespace dodona::model {
namespace {

using testing::bytes;
using testing::expect_error;
using testing::LayerRun;
using testing::Matrix;
using testing::matrix_of;
using testing::StraightLayer;

constexpr std::uint64_t seed = 7;

/// What the tests vary.
struct Setting {
  ModelConfig config = preset("tiny");
  std::int64_t layer = 1;
  std::vector<std::int64_t> lengths{140, 1, 66};
  Rounding rounding = Rounding::bf16;
  Residual residual = Residual::fused;
  bool fused_shared = false;
  Exec exec{.mode = Mode::golden, .threads = 1};
  std::uint64_t page_seed = 0;
  bool poisoned = false;  ///< cache slots that hold no token are NaN
};

ModelConfig plain_bf16() {
  ModelConfig config = preset("tiny");
  config.quant = {};
  return config;
}
/// Attention's projections in NVFP4 too, and so the absorbed products in e4m3.
ModelConfig all_nvfp4() {
  ModelConfig config = preset("tiny");
  config.quant.exclude = {"lm_head", "*.mlp.gate"};  // 16 experts are too few rows for an NVFP4 product
  return config;
}

Tensor drawn(const char* name, const Dims& shape, DType type) {
  Tensor tensor(type, shape);
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  fill_normal(Stream(seed, name), 0, values);
  quant::from_f32(type, values.data(), tensor.data(), tensor.elements());
  return tensor;
}

PagedKvCache cache_of(const Setting& s) {
  PagedKvCache cache(s.config, activation_type(s.rounding), s.lengths, s.page_seed);
  if (s.poisoned)
    for (std::int64_t i = 0; i < cache.buffer().elements(); ++i) quant::set(cache.buffer(), i, std::numeric_limits<double>::quiet_NaN());
  cache.synthesize_history(seed, s.lengths, 1);
  return cache;
}

LayerRun run(const Setting& s, const WeightSource& source, PagedKvCache& cache) {
  const auto batch = static_cast<std::int64_t>(s.lengths.size());
  const DType type = activation_type(s.rounding);
  LayerRun result;
  result.lengths = s.lengths;
  result.hidden = drawn("hidden", {batch, s.config.hidden_size}, type);
  if (s.layer > 0) result.residual = drawn("residual", {batch, s.config.hidden_size}, type);
  LayerWeights weights(source, s.layer, s.rounding, s.fused_shared, s.exec);
  const ShapeBook book = decode_book(s.config, s.layer, batch, s.fused_shared);
  Trace trace(book, book, s.exec, true);
  result.output = decode(weights, {result.hidden, result.residual, s.lengths}, cache, s.residual, trace);
  result.records = trace.records();
  return result;
}
LayerRun run(const Setting& s, const WeightSource& source) {
  PagedKvCache cache = cache_of(s);
  return run(s, source, cache);
}

std::string output_bytes(const LayerRun& run) {
  return bytes(run.output.hidden) + bytes(run.output.residual);
}

/// A run together with the rows that the cache held before it.
LayerRun run_with_history(const Setting& s, const WeightSource& source) {
  PagedKvCache cache = cache_of(s);
  const Matrix rows = matrix_of(cache.buffer());
  std::vector<Matrix> histories;
  for (std::size_t b = 0; b < s.lengths.size(); ++b) {
    histories.emplace_back(s.lengths[b] - 1, rows.cols());
    for (Eigen::Index j = 0; j < histories[b].rows(); ++j) histories[b].row(j) = rows.row(cache.slot(static_cast<std::int64_t>(b), j));
  }
  LayerRun result = run(s, source, cache);
  result.history = std::move(histories);
  return result;
}

void follow(const Setting& s) {
  const auto source = synthetic_weights(s.config, seed, s.exec);
  const LayerRun result = run_with_history(s, *source);
  StraightLayer(*source, s.layer, s.rounding, s.fused_shared, s.residual, result).follow();
}

void follow_every_layer(const ModelConfig& config, Rounding rounding) {
  struct Case {
    std::int64_t layer;
    bool fused_shared;
    Residual residual;
  };
  for (const Case& c : {Case{0, false, Residual::pre_added}, {1, false, Residual::fused}, {1, true, Residual::pre_added}}) {
    SCOPED_TRACE("layer " + std::to_string(c.layer) + (c.fused_shared ? ", fused shared expert" : "") +
                 (c.residual == Residual::fused ? ", fused residual" : ", pre-added residual"));
    follow({.config = config, .layer = c.layer, .rounding = rounding, .residual = c.residual, .fused_shared = c.fused_shared});
  }
}

TEST(DecodeLayer, EveryOpOfTheNvfp4LayerFollowsThePlainFormulas) {
  follow_every_layer(preset("tiny"), Rounding::bf16);
  follow({.layer = 0});
}
TEST(DecodeLayer, EveryOpOfTheBf16LayerFollowsThePlainFormulas) {
  follow_every_layer(plain_bf16(), Rounding::bf16);
}
TEST(DecodeLayer, EveryOpFollowsThePlainFormulasWithAttentionInNvfp4) {
  follow_every_layer(all_nvfp4(), Rounding::bf16);
}
TEST(DecodeLayer, WithoutRoundingsTheLayerFollowsThePlainFormulasFromEndToEnd) {
  follow_every_layer(preset("tiny"), Rounding::off);
  follow({.config = plain_bf16(), .rounding = Rounding::off});
  follow({.config = all_nvfp4(), .rounding = Rounding::off});
}

TEST(DecodeLayer, AbsorbedAttentionIsAttentionOverExpandedKeysAndValues) {
  for (const Mode mode : {Mode::golden, Mode::fast}) {
    const Setting s{.rounding = Rounding::off, .exec = {.mode = mode, .threads = 1}};
    const auto source = synthetic_weights(s.config, seed, s.exec);
    const LayerRun result = run_with_history(s, *source);
    const StraightLayer straight(*source, s.layer, s.rounding, s.fused_shared, s.residual, result);
    const Matrix expected = straight.expanded_attention(), flat = straight.recorded("bmm_fp8()", "attn_output * w_vc");
    const Matrix found = Eigen::Map<const Matrix>(flat.data(), expected.rows(), expected.cols());
    for (Eigen::Index b = 0; b < expected.rows(); ++b)
      EXPECT_LE((expected.row(b) - found.row(b)).cwiseAbs().maxCoeff(), 1e-5 * expected.row(b).cwiseAbs().maxCoeff()) << "request " << b;
  }
}

TEST(DecodeLayer, ARequestAloneGivesTheBitsItGivesInABatch) {
  for (const bool fused_shared : {false, true}) {
    const Setting s{.fused_shared = fused_shared, .exec = {.mode = Mode::fast, .threads = 1}};
    const auto source = synthetic_weights(s.config, seed, s.exec);
    PagedKvCache cache = cache_of(s);
    const LayerRun together = run(s, *source, cache);
    for (std::int64_t b = 0; b < static_cast<std::int64_t>(s.lengths.size()); ++b) {
      const std::vector<std::int64_t> length{s.lengths[static_cast<std::size_t>(b)]};
      PagedKvCache alone(s.config, DType::bf16, length);
      for (std::int64_t j = 0; j + 1 < length[0]; ++j) {
        const std::int64_t from = cache.slot(b, j), to = alone.slot(0, j);
        copy(cache.buffer().slice(0, from, from + 1), alone.buffer().slice(0, to, to + 1));
      }
      LayerWeights weights(*source, s.layer, s.rounding, fused_shared, s.exec);
      const ShapeBook book = decode_book(s.config, s.layer, 1, fused_shared);
      Trace trace(book, book, s.exec);
      const LayerOutput out =
          decode(weights, {together.hidden.slice(0, b, b + 1).clone(), together.residual.slice(0, b, b + 1).clone(), length}, alone,
                 s.residual, trace);
      EXPECT_TRUE(bytes(out.hidden) == bytes(together.output.hidden.slice(0, b, b + 1))) << "request " << b;
      EXPECT_TRUE(bytes(out.residual) == bytes(together.output.residual.slice(0, b, b + 1))) << "request " << b;
      const std::int64_t here = alone.slot(0, length[0] - 1), there = cache.slot(b, length[0] - 1);
      EXPECT_TRUE(bytes(alone.buffer().slice(0, here, here + 1)) == bytes(cache.buffer().slice(0, there, there + 1))) << "request " << b;
    }
  }
}

TEST(DecodeLayer, WhereThePagesLieAndWhatUnusedSlotsHoldChangesNothing) {
  Setting s{.lengths = {300, 5, 129}, .exec = {.mode = Mode::fast, .threads = 1}};
  const auto source = synthetic_weights(s.config, seed, s.exec);
  const std::string expected = output_bytes(run(s, *source));
  for (const std::uint64_t page_seed : {1, 2}) {
    s.page_seed = page_seed;
    EXPECT_TRUE(output_bytes(run(s, *source)) == expected) << page_seed;
  }
  s.poisoned = true;
  EXPECT_TRUE(output_bytes(run(s, *source)) == expected);
}

TEST(DecodeLayer, EveryTierAndThreadCountGivesTheSameBits) {
  struct Case {
    ModelConfig config;
    std::int64_t layer;
  };
  for (const Case& c : {Case{preset("tiny"), 0}, {preset("tiny"), 1}, {plain_bf16(), 1}, {all_nvfp4(), 1}}) {
    Setting s{.config = c.config, .layer = c.layer, .lengths = {40, 1}, .exec = {.mode = Mode::fast, .threads = 1, .isa = Isa::generic}};
    const auto source = synthetic_weights(s.config, seed, {});
    const std::string expected = output_bytes(run(s, *source));
    for (const Isa isa : available_isas())
      for (const int threads : {1, 2}) {
        const bool ends = isa == available_isas().front() || isa == available_isas().back();
        if (threads == 2 && !ends) continue;
        s.exec.isa = isa;
        s.exec.threads = threads;
        EXPECT_TRUE(output_bytes(run(s, *source)) == expected) << "layer " << c.layer << ", " << name(isa) << ", threads " << threads;
      }
  }
}

TEST(DecodeLayer, InputsAreNotChangedAndTheNewTokensRowsAreWritten) {
  for (const std::int64_t layer : {0, 1})
    for (const Residual residual : {Residual::fused, Residual::pre_added}) {
      const Setting s{.layer = layer, .residual = residual, .exec = {.mode = Mode::fast, .threads = 1}};
      PagedKvCache cache = cache_of(s);
      const std::string before = bytes(cache.buffer());
      const LayerRun result = run(s, *synthetic_weights(s.config, seed, s.exec), cache);
      const Dims shape{3, s.config.hidden_size};
      EXPECT_TRUE(bytes(result.hidden) == bytes(drawn("hidden", shape, DType::bf16)));
      if (layer > 0) EXPECT_TRUE(bytes(result.residual) == bytes(drawn("residual", shape, DType::bf16)));
      const std::string after = bytes(cache.buffer());
      const std::size_t row = before.size() / static_cast<std::size_t>(cache.buffer().size(0));
      std::vector<std::int64_t> changed;
      for (std::int64_t slot = 0; slot < cache.buffer().size(0); ++slot)
        if (after.compare(static_cast<std::size_t>(slot) * row, row, before, static_cast<std::size_t>(slot) * row, row) != 0)
          changed.push_back(slot);
      std::vector<std::int64_t> expected;
      for (std::int64_t b = 0; b < 3; ++b) expected.push_back(cache.slot(b, s.lengths[static_cast<std::size_t>(b)] - 1));
      EXPECT_EQ(changed, expected);
    }
}

TEST(DecodeLayer, WhatCannotRunIsRefusedByTheNameOfTheModelOp) {
  const Setting s;
  const auto source = synthetic_weights(s.config, seed, s.exec);
  {
    PagedKvCache cache = cache_of(s);
    *cache.page_table().as<std::int32_t>() = 99;  // the first page of two: the new token's row lies in the second
    expect_error([&] { run(s, *source, cache); }, ErrorCode::bad_value, {"self.attn_mqa()", "page", "99"});
  }
  {
    PagedKvCache cache = cache_of(s);
    Setting longer = s;
    longer.lengths[2] = 1000;
    LayerWeights weights(*source, s.layer, s.rounding, false, s.exec);
    const ShapeBook book = decode_book(s.config, s.layer, 3, false);
    Trace trace(book, book, s.exec);
    const Tensor x = drawn("hidden", {3, s.config.hidden_size}, DType::bf16);
    expect_error([&] { decode(weights, {x, x, longer.lengths}, cache, s.residual, trace); }, ErrorCode::bad_value, {"1000"});
    expect_error(
        [&] {
          decode(weights, {x.slice(0, 0, 2), x, s.lengths}, cache, s.residual, trace);
        },
        ErrorCode::bad_shape, {"hidden", "[2, 256]", "[3, 256]"});
    const Tensor wide = drawn("hidden", {3, s.config.hidden_size}, DType::f32);
    expect_error(
        [&] {
          decode(weights, {wide, wide, s.lengths}, cache, s.residual, trace);
        },
        ErrorCode::bad_dtype, {"hidden", "f32", "bf16"});
    EXPECT_TRUE(trace.records().size() < 2u || trace.records().front().op == "layer()");
  }
  expect_error([&] { LayerWeights(*source, 0, Rounding::bf16, true, s.exec); }, ErrorCode::bad_option, {"fused shared expert", "dense"});
}

}  // namespace
}  // namespace dodona::model
