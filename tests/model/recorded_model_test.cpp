// A small model against what HuggingFace transformers computed from it (recorded, see the recordings' README): with the roundings between
// ops switched off, the decode layers fed one token at a time must give its hidden states, its router's choices and its tokens.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <tuple>

#include "core/define.h"
#include "dodona/error.h"
#include "helpers.h"
#include "io/safetensors.h"
#include "model/model.h"
#include "ops/gemm/linear.h"
#include "ops/normalization/rmsnorm.h"
#include "quant/element.h"

namespace dodona::model {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t prompt_tokens = 37, decode_steps = 8, batch = 2;

/// The model of the repository, and those that lie beside it.
std::vector<std::string> model_folders() {
  std::vector<std::string> found{DODONA_SOURCE_DIR "/tests/golden/_models/tiny-b"};
  const fs::path beside = fs::path(DODONA_SOURCE_DIR) / "../shared/golden/_models";
  if (fs::is_directory(beside))
    for (const auto& entry : fs::directory_iterator(beside))
      if (fs::exists(entry.path() / "expected.safetensors")) found.push_back(entry.path().string());
  return found;
}

/// The whole model, one token of each request at a time.
class Runner {
 public:
  Runner(const std::string& folder, Mode mode)
      : config_(load_config(folder)),
        source_(open_checkpoint(folder, config_)),
        recorded_(io::SafetensorsFile::open(folder + "/expected.safetensors")),
        exec_{.mode = mode, .threads = 1},  // the model is too small to share out
        model_(*source_, {.rounding = Rounding::off}, exec_) {
    caches_ = model_.make_caches(std::vector<std::int64_t>(batch, prompt_tokens + decode_steps), 7);
    final_norm_ = widened(source_->get("model.norm.weight"));
  }

  const ModelConfig& config() const { return config_; }
  Tensor recorded(const std::string& name) const { return recorded_.tensor(name); }

  /// hidden[i] [B, H] as the recording numbers them; the last one is after the final norm.
  struct Step {
    std::vector<Tensor> hidden;
    std::vector<Tensor> topk_ids;  ///< of each layer; undefined for dense ones
    Tensor logits;
  };
  Step run(const std::vector<std::int64_t>& tokens, std::int64_t position) {
    Step step;
    const Tensor embeddings = source_->get("model.embed_tokens.weight");
    Tensor x(DType::f32, {batch, config_.hidden_size});
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t i = 0; i < config_.hidden_size; ++i)
        quant::set(x, b * config_.hidden_size + i, quant::get(embeddings, tokens[static_cast<std::size_t>(b)] * config_.hidden_size + i));
    step.hidden.push_back(x.clone());
    Batch now = decode_batch(std::vector<std::int64_t>(batch, position + 1));
    caches_.front().place(now);
    model_.run(now, x, caches_,
               {.before = [](std::int64_t, Trace& trace) { trace.keep_outputs(); },
                .after =
                    [&](std::int64_t, const LayerState& out, const Trace& trace) {
                      step.hidden.push_back(sum(out.hidden, out.residual));
                      step.topk_ids.push_back(ids_of(trace));
                    }});
    step.hidden.back() =
        ops::run(ops::Rmsnorm{.input = step.hidden.back(), .weight = final_norm_, .eps = config_.rms_norm_eps}, exec_).output;
    step.logits =
        ops::run(ops::Linear{.input = step.hidden.back(), .weight = source_->get("lm_head.weight"), .out_dtype = DType::f32}, exec_).output;
    return step;
  }

 private:
  static Tensor widened(const Tensor& tensor) {
    Tensor out(DType::f32, tensor.shape());
    quant::to_f32(tensor.dtype(), tensor.data(), out.as<float>(), tensor.elements());
    return out;
  }
  static Tensor sum(const Tensor& a, const Tensor& b) {
    Tensor out(DType::f32, a.shape());
    for (std::int64_t i = 0; i < a.elements(); ++i) out.as<float>()[i] = a.as<float>()[i] + b.as<float>()[i];
    return out;
  }
  static Tensor ids_of(const Trace& trace) {
    for (const OpRecord& record : trace.records())
      for (const auto& [name, tensor] : record.outputs)
        if (name == "topk_ids") return tensor;
    return {};
  }

  ModelConfig config_;
  std::unique_ptr<WeightSource> source_;
  io::SafetensorsFile recorded_;
  Exec exec_;
  Model model_;
  std::vector<PagedKvCache> caches_;
  Tensor final_norm_;
};

/// Each row of `actual` [B, n] against row [b, index] of `expected` [B, T, n], within 1e-4 of the row's largest magnitude.
void expect_rows(const Tensor& actual, const Tensor& expected, std::int64_t index, const std::string& what) {
  const std::int64_t n = expected.size(2), tokens = expected.size(1);
  for (std::int64_t b = 0; b < batch; ++b) {
    double largest = 0, worst = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const double value = quant::get(expected, (b * tokens + index) * n + i);
      largest = std::max(largest, std::fabs(value));
      worst = std::max(worst, std::fabs(quant::get(actual, b * n + i) - value));
    }
    EXPECT_LE(worst, 1e-4 * largest) << what << " of request " << b << ", token " << index;
  }
}

void expect_choices(const Tensor& actual, const Tensor& expected, std::int64_t index, const std::string& what) {
  const std::int64_t k = expected.size(1), tokens = expected.size(0) / batch;
  for (std::int64_t b = 0; b < batch; ++b) {
    std::set<std::int64_t> chosen, recorded;
    for (std::int64_t j = 0; j < k; ++j) {
      chosen.insert(static_cast<std::int64_t>(quant::get(actual, b * k + j)));
      recorded.insert(static_cast<std::int64_t>(quant::get(expected, (b * tokens + index) * k + j)));
    }
    EXPECT_EQ(chosen, recorded) << what << " of request " << b << ", token " << index;
  }
}

std::int64_t argmax(const Tensor& logits, std::int64_t row) {
  const std::int64_t n = logits.size(1);
  std::int64_t best = 0;
  for (std::int64_t i = 1; i < n; ++i)
    if (quant::get(logits, row * n + i) > quant::get(logits, row * n + best)) best = i;
  return best;
}

class RecordedModel : public ::testing::TestWithParam<std::tuple<std::string, Mode>> {};

TEST_P(RecordedModel, TokensOneAtATimeGiveItsHiddenStatesItsChoicesAndItsTokens) {
  const auto& [folder, mode] = GetParam();
  Runner runner(folder, mode);
  const Tensor ids = runner.recorded("input_ids");
  const std::int64_t layers = runner.config().num_hidden_layers;
  std::vector<std::int64_t> tokens(batch);
  for (std::int64_t t = 0; t < prompt_tokens; ++t) {
    for (std::int64_t b = 0; b < batch; ++b)
      tokens[static_cast<std::size_t>(b)] = static_cast<std::int64_t>(quant::get(ids, b * prompt_tokens + t));
    const Runner::Step step = runner.run(tokens, t);
    for (std::int64_t i = 0; i <= layers; ++i)
      expect_rows(step.hidden[static_cast<std::size_t>(i)], runner.recorded("f64.hidden." + std::to_string(i)), t,
                  "hidden " + std::to_string(i));
    for (std::int64_t layer = 0; layer < layers; ++layer)
      if (runner.config().is_moe_layer(layer))
        expect_choices(step.topk_ids[static_cast<std::size_t>(layer)], runner.recorded("f64.gate." + std::to_string(layer) + ".2"), t,
                       "experts of layer " + std::to_string(layer));
    expect_rows(step.logits, runner.recorded("f64.logits"), t, "logits");
  }
  const Tensor decoded = runner.recorded("f64.decode.tokens"), logits = runner.recorded("f64.decode.logits");
  for (std::int64_t s = 0; s < decode_steps; ++s) {
    for (std::int64_t b = 0; b < batch; ++b)
      tokens[static_cast<std::size_t>(b)] = static_cast<std::int64_t>(quant::get(decoded, b * decode_steps + s));
    const Runner::Step step = runner.run(tokens, prompt_tokens + s);
    expect_rows(step.logits, logits, s, "decode logits");
    for (std::int64_t b = 0; b < batch && s + 1 < decode_steps; ++b)
      EXPECT_EQ(argmax(step.logits, b), static_cast<std::int64_t>(quant::get(decoded, b * decode_steps + s + 1)))
          << "request " << b << ", step " << s;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RecordedModel,
                         ::testing::Combine(::testing::ValuesIn(model_folders()), ::testing::Values(Mode::fast, Mode::golden)),
                         [](const auto& test) {
                           std::string id = fs::path(std::get<0>(test.param)).filename().string() + "_";
                           std::replace(id.begin(), id.end(), '-', '_');
                           return id + std::string(name(std::get<1>(test.param)));
                         });

}  // namespace
}  // namespace dodona::model
