// The decode layer as a composition: held to plain formulas, and to what must not matter.
#include "model/layer/decoder.h"

#include <cmath>
#include <limits>

#include "core/random.h"
#include "helpers.h"
#include "straight_layer.h"

namespace dodona::model {
namespace {

using testing::bytes;
using testing::drawn;
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

  LayerSetting setting() const { return {layer, rounding, residual, fused_shared}; }
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

PagedKvCache cache_of(const Setting& s) {
  PagedKvCache cache(s.config, activation_type(s.rounding), s.lengths, s.page_seed);
  if (s.poisoned)
    for (std::int64_t i = 0; i < cache.buffer().elements(); ++i) quant::set(cache.buffer(), i, std::numeric_limits<double>::quiet_NaN());
  cache.synthesize_history(seed, s.lengths, 1);
  return cache;
}

/// One step for all requests of the cache.
Batch step_of(std::span<const std::int64_t> lengths, const PagedKvCache& cache) {
  Batch batch = decode_batch(lengths);
  cache.place(batch);
  return batch;
}

LayerRun run(const Setting& s, const WeightSource& source, PagedKvCache& cache) {
  const Batch batch = step_of(s.lengths, cache);
  const DType type = activation_type(s.rounding);
  LayerRun result;
  result.lengths = s.lengths;
  result.hidden = drawn(seed, "hidden", {batch.tokens(), s.config.hidden_size}, type);
  if (!is_first_layer(s.config, s.layer)) result.residual = drawn(seed, "residual", {batch.tokens(), s.config.hidden_size}, type);
  LayerWeights weights(source, s.setting(), s.exec);
  Trace trace = layer_trace(weights, batch, s.exec);
  trace.keep_outputs();
  result.output = run_layer(weights, batch, {result.hidden, result.residual}, cache, trace);
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
      const Batch batch = step_of(length, alone);
      LayerWeights weights(*source, s.setting(), s.exec);
      Trace trace = layer_trace(weights, batch, s.exec);
      const LayerState out = run_layer(
          weights, batch, {together.hidden.slice(0, b, b + 1).clone(), together.residual.slice(0, b, b + 1).clone()}, alone, trace);
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
      EXPECT_TRUE(bytes(result.hidden) == bytes(drawn(seed, "hidden", shape, DType::bf16)));
      if (layer > 0) EXPECT_TRUE(bytes(result.residual) == bytes(drawn(seed, "residual", shape, DType::bf16)));
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
    PagedKvCache torn = cache_of(s);
    *torn.page_table().as<std::int32_t>() = 99;  // the first page of two: the new token's row lies in the second
    expect_error([&] { run(s, *source, torn); }, ErrorCode::bad_value, {"self.attn_mqa()", "page", "99"});
  }
  PagedKvCache cache = cache_of(s);
  const Batch batch = step_of(s.lengths, cache);
  LayerWeights weights(*source, s.setting(), s.exec);
  const Tensor x = drawn(seed, "hidden", {3, s.config.hidden_size}, DType::bf16),
               wide = drawn(seed, "hidden", {3, s.config.hidden_size}, DType::f32);
  const auto refuses = [&](const Batch& what, const LayerState& state, ErrorCode code, const std::vector<std::string>& parts) {
    Trace trace = layer_trace(weights, what, s.exec);
    expect_error([&] { run_layer(weights, what, state, cache, trace); }, code, parts);
    EXPECT_TRUE(trace.records().empty());
  };
  Batch longer = batch;
  longer.lengths[2] = 1000;
  refuses(longer, {x, x}, ErrorCode::bad_value, {"batch lengths", "1000", "request 2"});
  refuses(batch, {x.slice(0, 0, 2), x}, ErrorCode::bad_shape, {"hidden", "[2, 256]", "[3, 256]"});
  refuses(batch, {wide, wide}, ErrorCode::bad_dtype, {"hidden", "f32", "bf16"});
  refuses(batch, {x, {}}, ErrorCode::missing_argument, {"residual", "layer 1"});
  Setting first = s;
  first.layer = 0;
  LayerWeights dense(*source, first.setting(), s.exec);
  Trace trace = layer_trace(dense, batch, s.exec);
  expect_error([&] { run_layer(dense, batch, {x, x}, cache, trace); }, ErrorCode::missing_argument, {"residual", "layer 0"});
  first.fused_shared = true;
  expect_error([&] { LayerWeights(*source, first.setting(), s.exec); }, ErrorCode::bad_option, {"fused_shared_expert", "dense"});
}

TEST(DecodeLayer, AKernelThatIsNotTheBooksIsRefused) {
  const Setting s;
  const auto source = synthetic_weights(s.config, seed, s.exec);
  PagedKvCache cache = cache_of(s);
  const Batch batch = step_of(s.lengths, cache);
  LayerWeights weights(*source, s.setting(), s.exec);
  LayerSetting other = s.setting();
  other.residual = Residual::pre_added;
  const ShapeBook book = layer_book(*source, other, batch);
  Trace trace(book, book, s.exec);
  const Tensor x = drawn(seed, "hidden", {3, s.config.hidden_size}, DType::bf16);
  expect_error(
      [&] {
        run_layer(weights, batch, {x, x}, cache, trace);
      },
      ErrorCode::unsupported, {"self.input_layernorm()", "ran fused_add_rmsnorm", "expects rmsnorm"});
}

TEST(DecodeLayer, MakingExpertsIsTimedOnce) {
  const Setting s;
  const auto source = synthetic_weights(s.config, seed, s.exec);
  LayerWeights weights(*source, s.setting(), s.exec);
  EXPECT_EQ(weights.touching_seconds(), 0);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(weights.experts()), 0);
  rows.front() = 1;
  weights.touch(rows, s.exec);
  const double one = weights.touching_seconds();
  EXPECT_GT(one, 0);
  weights.touch(rows, s.exec);
  EXPECT_EQ(weights.touching_seconds(), one);
  weights.touch_kv_b(s.exec);
  EXPECT_GT(weights.touching_seconds(), one);
}

/// A plan of the same step: what each op is, and nothing computed.
std::vector<OpRecord> planned(const Setting& s, const Batch& batch) {
  const auto source = planned_weights(s.config);
  LayerWeights weights(*source, s.setting(), s.exec);
  PagedKvCache cache = PagedKvCache::planned(s.config, weights.type(), s.lengths);
  const Tensor x = cache.buffer().slice(0, 0, batch.tokens()).slice(2, 0, 1);
  const Tensor state(x.data(), weights.type(), {batch.tokens(), s.config.hidden_size});
  Trace trace = layer_trace(weights, batch, s.exec, Trace::Bodies::leave_out);
  run_layer(weights, batch, {state, is_first_layer(s.config, s.layer) ? Tensor() : state}, cache, trace);
  return trace.records();
}

TEST(DecodeLayer, ThePlanIsTheRunWithoutItsBodies) {
  const std::vector<Setting> settings{{.layer = 0},
                                      {},
                                      {.fused_shared = true},
                                      {.rounding = Rounding::off},
                                      {.residual = Residual::pre_added},
                                      {.config = plain_bf16()},
                                      {.config = plain_bf16(), .fused_shared = true},
                                      {.config = all_nvfp4()},
                                      {.config = all_nvfp4(), .rounding = Rounding::off},
                                      {.layer = 3}};
  for (Setting s : settings) {
    // One request: what it chooses and what a plan takes for granted are as many experts.
    s.lengths = {130};
    const LayerRun result = run(s, *synthetic_weights(s.config, seed, s.exec));
    const std::vector<OpRecord> plan = planned(s, decode_batch(s.lengths));
    ASSERT_EQ(plan.size(), result.records.size());
    for (std::size_t i = 0; i < plan.size(); ++i) {
      const OpRecord &a = plan[i], &b = result.records[i];
      SCOPED_TRACE(b.op + " " + b.note + " of layer " + std::to_string(s.layer));
      EXPECT_EQ(a.op, b.op);
      EXPECT_EQ(a.note, b.note);
      EXPECT_EQ(a.depth, b.depth);
      EXPECT_EQ(a.group, b.group);
      EXPECT_EQ(a.shapes, b.shapes);
      EXPECT_EQ(a.work.bytes, b.work.bytes);
      EXPECT_EQ(a.work.flops, b.work.flops);
      EXPECT_EQ(a.work.int8_ops, b.work.int8_ops);
      EXPECT_EQ(a.work.weight_bytes, b.work.weight_bytes);
      EXPECT_EQ(a.seconds, 0);
      if (!a.group) EXPECT_NE(b.kernels.find(a.kernels), std::string::npos) << a.kernels << " in " << b.kernels;
    }
  }
}

}  // namespace
}  // namespace dodona::model
