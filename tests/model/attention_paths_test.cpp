// Attention along every path: held to attention written out, to each other, to upstream's dispatch, and to what must not matter.
#include <Eigen/Dense>
#include <cmath>
#include <limits>

#include "core/random.h"
#include "helpers.h"
#include "model/layer/attention/attention.h"
#include "model/layer/decoder.h"
#include "model/run.h"
#include "quant/element.h"
#include "straight_layer.h"

namespace dodona::model {
namespace {

using testing::bytes;
using testing::drawn;
using testing::expect_error;
using testing::Matrix;
using testing::matrix_of;
using Values = std::vector<std::int64_t>;

constexpr std::uint64_t seed = 11;

/// Requests of `lengths` tokens, the last `fresh` of each new.
struct Step {
  Values lengths{140, 9, 66}, fresh{10, 9, 1};
  Forward forward = Forward::extend;
  AttentionPath path = AttentionPath::by_backend;
  std::string backend = "flashinfer";
  std::int64_t prefix_chunk = 131072;
  Rounding rounding = Rounding::off;
  Exec exec{.mode = Mode::golden, .threads = 1};
  std::uint64_t page_seed = 0;
  bool poisoned = false;
  ModelConfig config = [] {
    ModelConfig c = preset("tiny");
    c.quant = {};
    return c;
  }();

  LayerSetting setting() const {
    LayerSetting setting{.layer = 1, .rounding = rounding};
    setting.backend = backend;
    setting.path = path;
    setting.prefix_chunk = prefix_chunk;
    return setting;
  }
  Batch batch() const {
    Batch batch = extend_batch(lengths, fresh);
    batch.forward = forward;
    return batch;
  }
};

struct Ran {
  std::vector<OpRecord> records;
  LayerState output;
  std::vector<Matrix> cached;  ///< of each request: all its rows, the new ones too

  Tensor of(const std::string& op, const std::string& label = "") const {
    // The last one of the name: what chunks were merged to.
    Tensor found;
    for (const OpRecord& record : records)
      if (record.op == op)
        for (const auto& [name, tensor] : record.outputs)
          if (label.empty() ? &tensor == &record.outputs.front().second : name == label) found = tensor;
    return found;
  }
  /// What attention gives before o_proj, [T, Nh * Dv].
  Matrix attended(const ModelConfig& config) const {
    Tensor o = of("merge_state_v2()");
    if (!o.defined()) o = of("self.attn_mha()");
    if (!o.defined())
      for (const OpRecord& record : records)
        if (record.note == "attn_output * w_vc") o = record.outputs.front().second;
    const Matrix flat = matrix_of(o);
    return Eigen::Map<const Matrix>(flat.data(), flat.size() / config.o_columns(), config.o_columns());
  }
};

Ran run(const Step& s) {
  const auto source = synthetic_weights(s.config, seed, s.exec);
  const DType type = activation_type(s.rounding);
  PagedKvCache cache(s.config, type, s.lengths, s.page_seed);
  if (s.poisoned)
    for (std::int64_t i = 0; i < cache.buffer().elements(); ++i) quant::set(cache.buffer(), i, std::numeric_limits<double>::quiet_NaN());
  Batch batch = s.batch();
  Values history;
  for (std::int64_t r = 0; r < batch.size(); ++r) history.push_back(batch.prefix(r) + 1);
  cache.synthesize_history(seed, history, 1);
  cache.place(batch);
  LayerWeights weights(*source, s.setting(), s.exec);
  Trace trace = layer_trace(weights, batch, s.exec);
  trace.keep_outputs();
  const Dims shape{batch.tokens(), s.config.hidden_size};
  Ran ran;
  ran.output = run_layer(weights, batch, {drawn(seed, "hidden", shape, type), drawn(seed, "residual", shape, type)}, cache, trace);
  ran.records = trace.records();
  const Matrix rows = matrix_of(cache.buffer());
  for (std::int64_t b = 0; b < batch.size(); ++b) {
    Matrix& of_b = ran.cached.emplace_back(s.lengths[static_cast<std::size_t>(b)], rows.cols());
    for (Eigen::Index j = 0; j < of_b.rows(); ++j) of_b.row(j) = rows.row(cache.slot(b, j));
  }
  return ran;
}

/// Attention written out in double from the run's rotated queries and cached rows: keys and values of every head expanded, each new token
/// seeing those up to itself. And how much of an output element the roundings of an honest path may be, see `allowed`.
struct WrittenOut {
  Matrix out, allowed;
};

/// `unit` is that of what passes from op to op, 2^-9 for bf16; of the two ways the larger sum counts. Scores: q_nope * w_kc is rounded, or
/// k_nope, and weights e^s are off by e^(2 delta). Outputs: weights are rounded for their product with the values, values are or the sum of
/// latents, and so is what comes out.
WrittenOut written_out(const Step& s, const Ran& ran, double unit) {
  const ModelConfig& c = s.config;
  const auto source = synthetic_weights(c, seed, s.exec);
  const Matrix w = matrix_of(source->get("model.layers.1.self_attn.kv_b_proj.weight"));
  const Matrix q = matrix_of(ran.of("self.q_b_proj()")), q_pe = matrix_of(ran.of("self.rotary_emb()", "q_pe"));
  const Eigen::Index heads = c.num_attention_heads, nope = c.qk_nope_head_dim, v_dim = c.v_head_dim, latent = c.kv_lora_rank;
  WrittenOut result{Matrix(q.rows(), heads * v_dim), Matrix(q.rows(), heads * v_dim)};
  const Batch batch = s.batch();
  Eigen::Index t = 0;
  for (std::int64_t b = 0; b < batch.size(); ++b) {
    const Matrix& rows = ran.cached[static_cast<std::size_t>(b)];
    const Matrix latents = rows.leftCols(latent), keys_pe = rows.rightCols(c.qk_rope_head_dim);
    for (std::int64_t i = 0; i < batch.tokens_of(b); ++i, ++t)
      for (Eigen::Index h = 0; h < heads; ++h) {
        const Eigen::Index seen = batch.prefix(b) + i + 1;
        const Matrix w_k = w.middleRows(h * (nope + v_dim), nope), w_v = w.middleRows(h * (nope + v_dim) + nope, v_dim);
        const Eigen::RowVectorXd q_nope = q.row(t).segment(h * c.qk_head_dim(), nope), rotated = q_pe.row(t * heads + h);
        const Matrix x = latents.topRows(seen);
        const Eigen::VectorXd scores =
            c.softmax_scale() * ((x * (w_k.transpose() * q_nope.transpose())) + keys_pe.topRows(seen) * rotated.transpose());
        const Eigen::VectorXd weights = (scores.array() - scores.maxCoeff()).exp(), p = weights / weights.sum();
        result.out.row(t).segment(h * v_dim, v_dim) = (w_v * (x.transpose() * p)).transpose();
        const Eigen::VectorXd q_abs = w_k.transpose() * q_nope.transpose(), o_latent = x.transpose() * p, o = w_v * o_latent;
        const Matrix k = x * w_k.transpose(), v = x * w_v.transpose();
        const double absorbed = (x.cwiseAbs() * q_abs.cwiseAbs()).maxCoeff();
        const double expanded = (k.cwiseAbs() * q_nope.cwiseAbs().transpose()).maxCoeff();
        const double delta = c.softmax_scale() * unit * std::max(absorbed, expanded);
        const Eigen::VectorXd weighed = v.cwiseAbs().transpose() * p, projected = w_v.cwiseAbs() * o_latent.cwiseAbs();
        const Eigen::VectorXd allowed = std::expm1(2 * delta) * weighed + unit * (2 * weighed + projected + o.cwiseAbs());
        result.allowed.row(t).segment(h * v_dim, v_dim) = allowed.transpose();
      }
  }
  return result;
}

constexpr AttentionPath with_prefix[] = {AttentionPath::mha_one_shot, AttentionPath::mha_chunked, AttentionPath::mla};

TEST(AttentionPaths, WithoutRoundingsEveryPathIsAttentionWrittenOut) {
  for (const Mode mode : {Mode::golden, Mode::fast})
    for (const AttentionPath path : with_prefix)
      for (const std::int64_t chunk : {131072, 96, 7}) {
        if (path != AttentionPath::mha_chunked && chunk != 131072) continue;
        SCOPED_TRACE(std::string(name(path)) + ", chunks of " + std::to_string(chunk));
        const Step s{.path = path, .prefix_chunk = chunk, .exec = {.mode = mode, .threads = 1}};
        const Ran ran = run(s);
        const Matrix expected = written_out(s, ran, 0).out, found = ran.attended(s.config);
        for (Eigen::Index t = 0; t < expected.rows(); ++t)
          EXPECT_LE((expected.row(t) - found.row(t)).cwiseAbs().maxCoeff(), 1e-5 * expected.row(t).cwiseAbs().maxCoeff()) << "token " << t;
      }
}

TEST(AttentionPaths, WithoutAPrefixPlainMhaIsAttentionWrittenOut) {
  for (const char* backend : {"flashinfer", "triton"})
    for (const AttentionPath path : {AttentionPath::mha, AttentionPath::mha_one_shot, AttentionPath::mha_chunked, AttentionPath::mla}) {
      const Step s{.lengths = {33, 1, 70}, .fresh = {33, 1, 70}, .path = path, .backend = backend};
      const Ran ran = run(s);
      const Matrix expected = written_out(s, ran, 0).out, found = ran.attended(s.config);
      EXPECT_LE((expected - found).cwiseAbs().maxCoeff(), 1e-5 * expected.cwiseAbs().maxCoeff()) << name(path);
    }
}

TEST(AttentionPaths, InBf16EveryPathAndBackendIsWithinWhatItsRoundingsComeTo) {
  struct Case {
    AttentionPath path;
    const char* backend;
    Forward forward;
    Values lengths, fresh;
  };
  const Values mixed{140, 9, 66}, parts{10, 9, 1}, whole{33, 1, 70}, even{140, 9, 66}, four{4, 4, 4}, one{1, 1, 1};
  double tightest = 0;
  for (const Case& c : {Case{AttentionPath::mha, "flashinfer", Forward::extend, whole, whole},
                        {AttentionPath::mha, "triton", Forward::extend, whole, whole},
                        {AttentionPath::mha_one_shot, "flashinfer", Forward::extend, mixed, parts},
                        {AttentionPath::mha_chunked, "trtllm_mla", Forward::extend, mixed, parts},
                        {AttentionPath::mla, "cutlass_mla", Forward::extend, mixed, parts},
                        {AttentionPath::mla, "flashinfer", Forward::extend, mixed, parts},
                        {AttentionPath::mla, "triton", Forward::extend, mixed, parts},
                        {AttentionPath::mla, "trtllm_mla", Forward::verify, even, four},
                        {AttentionPath::mla, "flashmla", Forward::verify, even, four},
                        {AttentionPath::mla, "triton", Forward::verify, even, four},
                        {AttentionPath::mla, "cutlass_mla", Forward::decode, even, one},
                        {AttentionPath::mla, "trtllm_mla", Forward::decode, even, one},
                        {AttentionPath::mla, "flashmla", Forward::decode, even, one},
                        {AttentionPath::mla, "flashinfer", Forward::decode, even, one},
                        {AttentionPath::mla, "triton", Forward::decode, even, one}}) {
    SCOPED_TRACE(std::string(name(c.path)) + " of " + c.backend);
    const Step s{.lengths = c.lengths,
                 .fresh = c.fresh,
                 .forward = c.forward,
                 .path = c.path,
                 .backend = c.backend,
                 .prefix_chunk = 60,
                 .rounding = Rounding::bf16,
                 .exec = {.mode = Mode::fast, .threads = 1}};
    const Ran ran = run(s);
    const WrittenOut expected = written_out(s, ran, 0x1p-9);
    const Matrix found = ran.attended(s.config);
    for (Eigen::Index t = 0; t < found.rows(); ++t)
      for (Eigen::Index i = 0; i < found.cols(); ++i)
        ASSERT_LE(std::fabs(found(t, i) - expected.out(t, i)), expected.allowed(t, i)) << "token " << t << ", element " << i;
    tightest = std::max(tightest, ((found - expected.out).cwiseAbs().array() / expected.allowed.array()).maxCoeff());
  }
  EXPECT_GT(tightest, 0.02);  // a bound that nothing comes near says nothing
}

/// Upstream's kernel rotates with a table in bf16, so the rotated parts are off by two roundings of either factor.
TEST(AttentionPaths, TheKernelThatRotatesGivesWhatMlaGivesUpToTheRoundingOfItsTable) {
  Step s{.lengths = {140, 9, 66},
         .fresh = {1, 1, 1},
         .forward = Forward::decode,
         .rounding = Rounding::bf16,
         .exec = {.mode = Mode::fast, .threads = 1}};
  const Ran mla = run(s);
  s.path = AttentionPath::mla_fused_rope;
  const Ran fused = run(s);
  const Matrix a = mla.attended(s.config), b = fused.attended(s.config);
  EXPECT_LE((a - b).cwiseAbs().maxCoeff(), 0.02 * a.cwiseAbs().maxCoeff());
  EXPECT_GT((a - b).cwiseAbs().maxCoeff(), 0);
  // The cache ends up with rotated rows: within two roundings of the parts of mla's.
  for (std::size_t r = 0; r < mla.cached.size(); ++r) {
    const Matrix x = mla.cached[r].bottomRows(1), y = fused.cached[r].bottomRows(1);
    EXPECT_TRUE(x.leftCols(s.config.kv_lora_rank) == y.leftCols(s.config.kv_lora_rank));
    EXPECT_LE((x - y).cwiseAbs().maxCoeff(), 0x1p-6 * x.rightCols(s.config.qk_rope_head_dim).cwiseAbs().maxCoeff());
  }
}

// ---- what must not matter

std::string output_bytes(const Ran& ran) {
  return bytes(ran.output.hidden) + bytes(ran.output.residual);
}

TEST(AttentionPaths, ThreadsTiersPagesAndUnusedSlotsChangeNothing) {
  for (const AttentionPath path : with_prefix) {
    const Step s{.path = path, .prefix_chunk = 40, .rounding = Rounding::bf16, .exec = {.mode = Mode::fast, .threads = 1}};
    const std::string expected = output_bytes(run(s));
    for (const int threads : {2, 5}) {
      Step other = s;
      other.exec.threads = threads;
      EXPECT_TRUE(output_bytes(run(other)) == expected) << name(path) << ", " << threads << " threads";
    }
    for (const Isa isa : available_isas()) {
      Step other = s;
      other.exec.isa = isa;
      EXPECT_TRUE(output_bytes(run(other)) == expected) << name(path) << ", " << name(isa);
    }
    Step other = s;
    other.page_seed = 3;
    other.poisoned = true;
    EXPECT_TRUE(output_bytes(run(other)) == expected) << name(path);
  }
}

TEST(AttentionPaths, ThePlanHasTheOpsShapesAndKernelsOfTheRun) {
  for (const AttentionPath path : with_prefix) {
    const Step s{.path = path, .prefix_chunk = 40, .rounding = Rounding::bf16, .exec = {.mode = Mode::fast, .threads = 1}};
    LayerRequest request{.config = s.config, .setting = s.setting(), .lengths = s.lengths, .new_tokens = s.fresh, .forward = s.forward};
    const Plan plan = plan_layer(request);
    std::vector<OpRecord> ops;
    for (const OpRecord& record : run(s).records)
      if (!record.group) ops.push_back(record);
    ASSERT_EQ(plan.ops.size(), ops.size()) << name(path);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      EXPECT_EQ(plan.ops[i].op, ops[i].op);
      EXPECT_EQ(plan.ops[i].shapes, ops[i].shapes);
      EXPECT_NE(ops[i].kernels.find(plan.ops[i].kernels), std::string::npos) << ops[i].op << " ran " << ops[i].kernels;
      if (ops[i].op != "self.experts()" && ops[i].op != "layer()") EXPECT_EQ(plan.ops[i].work.bytes, ops[i].work.bytes) << ops[i].op;
    }
  }
}

// ---- dispatch

TEST(AttentionPaths, TheDispatchIsUpstreams) {
  const ModelConfig config = preset("r1-nvfp4");
  const auto goes = [&](const char* backend, Forward forward, const Values& lengths, const Values& fresh) {
    LayerSetting setting;
    setting.backend = backend;
    Batch batch = extend_batch(lengths, fresh);
    batch.forward = forward;
    const AttentionChoice choice = choose_attention(config, setting, batch);
    return std::string(name(choice.path)) + " " + std::string(choice.kernel());
  };
  const std::string ragged = " trtllm_ragged_attention_deepseek", paged = " batch_mla_paged_attention";
  struct Row {
    const char* backend;
    std::string without_prefix, short_prefix, long_prefix, far_prefix, decode, verify;
  };
  const std::string chunked = "mha-chunked" + ragged, fi_ragged = " batch_prefill_with_ragged_kv_cache";
  const std::string shot = "mha-one-shot" + fi_ragged, fi_chunked = "mha-chunked" + fi_ragged;
  for (const Row& row : {Row{"triton", "mha extend_attention_fwd", "mla extend_attention_fwd", "mla extend_attention_fwd",
                             "mla extend_attention_fwd", "mla decode_attention_fwd", "mla extend_attention_fwd"},
                         {"fa3", shot, "mla" + paged, shot, fi_chunked, "mla" + paged, "mla" + paged},
                         {"flashinfer", shot, "mla" + paged, shot, fi_chunked, "mla" + paged, "mla" + paged},
                         {"flashmla", shot, "mla" + paged, shot, fi_chunked, "mla flash_mla_with_kvcache", "mla flash_mla_with_kvcache"},
                         {"cutlass_mla", chunked, "mla" + paged, chunked, chunked, "mla cutlass_mla_decode", "mla" + paged},
                         {"trtllm_mla", chunked, chunked, chunked, chunked, "mla trtllm_batch_decode_with_kv_cache_mla",
                          "mla trtllm_batch_decode_with_kv_cache_mla"}}) {
    EXPECT_EQ(goes(row.backend, Forward::extend, {300, 20}, {300, 20}), row.without_prefix) << row.backend;
    EXPECT_EQ(goes(row.backend, Forward::extend, {8200, 20}, {9, 20}), row.short_prefix) << row.backend << ": 8191 cached tokens";
    EXPECT_EQ(goes(row.backend, Forward::extend, {8201, 20}, {9, 20}), row.long_prefix) << row.backend << ": 8192 cached tokens";
    EXPECT_EQ(goes(row.backend, Forward::extend, {131000, 73}, {9, 73}), row.far_prefix) << row.backend << ": 131073 tokens";
    EXPECT_EQ(goes(row.backend, Forward::decode, {300, 20}, {1, 1}), row.decode) << row.backend;
    EXPECT_EQ(goes(row.backend, Forward::verify, {300, 20}, {4, 4}), row.verify) << row.backend;
  }
  EXPECT_EQ(goes("flashinfer", Forward::extend, {131000, 72}, {9, 72}), shot) << "131072 tokens";
  // V3.2's attention chooses among latents.
  LayerSetting setting;
  setting.backend = "trtllm_mla";
  EXPECT_EQ(choose_attention(preset("deepseek_v32"), setting, extend_batch(Values{300}, Values{300})).path, AttentionPath::mla);
}

TEST(AttentionPaths, WhatAPathOrABackendCannotTakeIsRefused) {
  const Step s;
  const auto refuses = [&](const Step& step, ErrorCode code, const std::vector<std::string>& parts) {
    expect_error([&] { choose_attention(step.config, step.setting(), step.batch()); }, code, parts);
  };
  Step step = s;
  step.path = AttentionPath::mha;
  refuses(step, ErrorCode::bad_option, {"path", "mha", "195 cached tokens"});
  step.path = AttentionPath::mla_fused_rope;
  refuses(step, ErrorCode::bad_option, {"mla-fused-rope", "one new token"});
  step.fresh = {1, 1, 1};
  refuses(step, ErrorCode::unsupported, {"mla-fused-rope", "roundings are off"});
  step = s;
  step.backend = "fa9";
  refuses(step, ErrorCode::bad_option, {"backend", "fa9", "trtllm_mla"});
  step = s;
  step.backend = "triton";
  step.rounding = Rounding::bf16;
  step.path = AttentionPath::mha_chunked;
  refuses(step, ErrorCode::unsupported, {"mha-chunked", "triton", "prefixes"});
  step = s;
  step.forward = Forward::verify;
  step.backend = "trtllm_mla";
  refuses(step, ErrorCode::unsupported, {"trtllm_batch_decode_with_kv_cache_mla", "as many new tokens"});
  step = s;
  step.config = preset("tiny-v32");
  step.rounding = Rounding::bf16;
  step.path = AttentionPath::mha_one_shot;
  refuses(step, ErrorCode::bad_option, {"mha-one-shot", "indexer"});
  Batch none;
  expect_error([&] { choose_attention(s.config, s.setting(), none); }, ErrorCode::bad_value, {"batch requests", "none"});
}

TEST(AttentionPaths, PhasesSayHowManyTokensAreNew) {
  const PhaseOptionNames names{"--phase", "--prefix-len", "--draft-tokens"};
  const Values lengths{40, 17};
  const auto fresh = [&](const char* phase, const Values& prefix, std::optional<std::int64_t> draft = {}) {
    return phases_of(phase, lengths, prefix, draft, names).new_tokens;
  };
  EXPECT_EQ(fresh("decode", {}), (Values{1, 1}));
  EXPECT_EQ(fresh("prefill", {}), (Values{40, 17}));
  EXPECT_EQ(fresh("prefill", {39, 0}), (Values{1, 17}));
  EXPECT_EQ(fresh("extend", {16}), (Values{24, 1}));
  EXPECT_EQ(fresh("verify", {}), (Values{4, 4}));
  EXPECT_EQ(fresh("verify", {}, 17), (Values{17, 17}));
  const auto refuses = [&](const char* phase, const Values& prefix, std::optional<std::int64_t> draft,
                           const std::vector<std::string>& parts) {
    expect_error([&] { fresh(phase, prefix, draft); }, ErrorCode::bad_option, parts);
  };
  refuses("warm", {}, {}, {"--phase", "warm", "prefill, extend, decode or verify"});
  refuses("decode", {3}, {}, {"--prefix-len", "decode"});
  refuses("extend", {}, {}, {"--prefix-len", "missing"});
  refuses("extend", {1, 2, 3}, {}, {"--prefix-len", "3 values"});
  refuses("extend", {17}, {}, {"--prefix-len", "request 1", "0 to 16"});
  refuses("prefill", {-1}, {}, {"--prefix-len", "-1"});
  refuses("prefill", {}, 4, {"--draft-tokens", "prefill"});
  refuses("verify", {}, 18, {"--draft-tokens", "request 1", "17 tokens"});
  refuses("verify", {}, 0, {"--draft-tokens", "0"});
}

}  // namespace
}  // namespace dodona::model
