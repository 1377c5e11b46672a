// A small model against what HuggingFace transformers computed from it (recorded, see the recordings' README): with the roundings between
// ops switched off, its prompt prefilled in one piece, in chunks behind prefixes and one token at a time, along every path of attention,
// must give its hidden states, its router's choices and its tokens.
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

/// The models of the repository, a V3 and a V2, and those that lie beside it.
std::vector<std::string> model_folders() {
  std::vector<std::string> found{DODONA_SOURCE_DIR "/tests/golden/_models/tiny-b", DODONA_SOURCE_DIR "/tests/golden/_models/tiny-c"};
  const fs::path beside = fs::path(DODONA_SOURCE_DIR) / "../shared/golden/_models";
  if (fs::is_directory(beside))
    for (const auto& entry : fs::directory_iterator(beside))
      if (fs::exists(entry.path() / "expected.safetensors")) found.push_back(entry.path().string());
  return found;
}

/// Tokens begin to end - 1 of a request.
struct Piece {
  std::int64_t request, begin, end;
};

/// How the model goes through a batch.
struct Way {
  AttentionPath path = AttentionPath::by_backend;
  std::int64_t prefix_chunk = 131072;
};

/// The whole model, pieces of requests at a time.
class Runner {
 public:
  Runner(const std::string& folder, Mode mode, Way way = {})
      : config_(load_config(folder)),
        source_(open_checkpoint(folder, config_)),
        recorded_(io::SafetensorsFile::open(folder + "/expected.safetensors")),
        exec_{.mode = mode, .threads = 1},  // the model is too small to share out
        model_(*source_, setting_of(way), exec_) {
    caches_ = model_.make_caches(std::vector<std::int64_t>(batch, prompt_tokens + decode_steps), 7);
    final_norm_ = widened(source_->get("model.norm.weight"));
  }

  const ModelConfig& config() const { return config_; }
  Tensor recorded(const std::string& name) const { return recorded_.tensor(name); }

  /// hidden[i] [T, H] as the recording numbers them; the last one is after the final norm.
  struct Step {
    std::vector<Tensor> hidden;
    std::vector<Tensor> topk_ids;  ///< of each layer; undefined for dense ones
    Tensor logits;
  };
  Step run(const std::vector<Piece>& pieces) {
    Step step;
    const Tensor embeddings = source_->get("model.embed_tokens.weight");
    std::vector<std::int64_t> lengths, fresh, tokens;
    for (const Piece& piece : pieces) {
      lengths.push_back(piece.end);
      fresh.push_back(piece.end - piece.begin);
      for (std::int64_t t = piece.begin; t < piece.end; ++t) tokens.push_back(token(piece.request, t));
    }
    Batch now = extend_batch(lengths, fresh);
    for (std::size_t i = 0; i < pieces.size(); ++i) now.requests[i] = pieces[i].request;
    Tensor x(DType::f32, {now.tokens(), config_.hidden_size});
    for (std::int64_t t = 0; t < now.tokens(); ++t)
      for (std::int64_t i = 0; i < config_.hidden_size; ++i)
        quant::set(x, t * config_.hidden_size + i, quant::get(embeddings, tokens[static_cast<std::size_t>(t)] * config_.hidden_size + i));
    step.hidden.push_back(x.clone());
    if (now.one_token_each()) now.forward = Forward::decode;
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
  static LayerSetting setting_of(Way way) {
    LayerSetting setting{.rounding = Rounding::off};
    setting.path = way.path;
    setting.prefix_chunk = way.prefix_chunk;
    return setting;
  }
  /// Of the prompt, then of what was decoded behind it.
  std::int64_t token(std::int64_t request, std::int64_t t) const {
    const bool prompt = t < prompt_tokens;
    const Tensor ids = recorded(prompt ? "input_ids" : "f64.decode.tokens");
    return static_cast<std::int64_t>(quant::get(ids, prompt ? request * prompt_tokens + t : request * decode_steps + t - prompt_tokens));
  }
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

/// Row `row` of `actual` [T, n] against row [request, index] of `expected` [B, T, n], within 1e-4 of its largest magnitude.
void expect_row(const Tensor& actual, std::int64_t row, const Tensor& expected, std::int64_t request, std::int64_t index,
                const std::string& what) {
  const std::int64_t n = expected.size(2), tokens = expected.size(1);
  double largest = 0, worst = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double value = quant::get(expected, (request * tokens + index) * n + i);
    largest = std::max(largest, std::fabs(value));
    worst = std::max(worst, std::fabs(quant::get(actual, row * n + i) - value));
  }
  EXPECT_LE(worst, 1e-4 * largest) << what << " of request " << request << ", token " << index;
}

void expect_choices(const Tensor& actual, std::int64_t row, const Tensor& expected, std::int64_t request, std::int64_t index,
                    const std::string& what) {
  const std::int64_t k = expected.size(1), tokens = expected.size(0) / batch;
  std::set<std::int64_t> chosen, recorded;
  for (std::int64_t j = 0; j < k; ++j) {
    chosen.insert(static_cast<std::int64_t>(quant::get(actual, row * k + j)));
    recorded.insert(static_cast<std::int64_t>(quant::get(expected, (request * tokens + index) * k + j)));
  }
  EXPECT_EQ(chosen, recorded) << what << " of request " << request << ", token " << index;
}

std::int64_t argmax(const Tensor& logits, std::int64_t row) {
  const std::int64_t n = logits.size(1);
  std::int64_t best = 0;
  for (std::int64_t i = 1; i < n; ++i)
    if (quant::get(logits, row * n + i) > quant::get(logits, row * n + best)) best = i;
  return best;
}

/// Runs the pieces as one batch, and holds each of their tokens to the recording.
void follow(Runner& runner, const std::vector<Piece>& pieces) {
  const Runner::Step step = runner.run(pieces);
  const std::int64_t layers = runner.config().num_hidden_layers;
  std::int64_t row = 0;
  for (const Piece& piece : pieces)
    for (std::int64_t t = piece.begin; t < piece.end; ++t, ++row) {
      if (t >= prompt_tokens) {
        const std::int64_t s = t - prompt_tokens;
        expect_row(step.logits, row, runner.recorded("f64.decode.logits"), piece.request, s, "decode logits");
        if (s + 1 < decode_steps)
          EXPECT_EQ(argmax(step.logits, row),
                    static_cast<std::int64_t>(quant::get(runner.recorded("f64.decode.tokens"), piece.request * decode_steps + s + 1)))
              << "request " << piece.request << ", step " << s;
        continue;
      }
      for (std::int64_t i = 0; i <= layers; ++i)
        expect_row(step.hidden[static_cast<std::size_t>(i)], row, runner.recorded("f64.hidden." + std::to_string(i)), piece.request, t,
                   "hidden " + std::to_string(i));
      for (std::int64_t layer = 0; layer < layers; ++layer)
        if (runner.config().is_moe_layer(layer))
          expect_choices(step.topk_ids[static_cast<std::size_t>(layer)], row, runner.recorded("f64.gate." + std::to_string(layer) + ".2"),
                         piece.request, t, "experts of layer " + std::to_string(layer));
      expect_row(step.logits, row, runner.recorded("f64.logits"), piece.request, t, "logits");
    }
}

/// What is decoded behind the prompt, both requests together.
void follow_decoding(Runner& runner, std::int64_t from = 0) {
  for (std::int64_t s = from; s < decode_steps; ++s)
    follow(runner, {{0, prompt_tokens + s, prompt_tokens + s + 1}, {1, prompt_tokens + s, prompt_tokens + s + 1}});
}

class RecordedModel : public ::testing::TestWithParam<std::tuple<std::string, Mode>> {
 protected:
  Runner runner(Way way = {}) const { return {std::get<0>(GetParam()), std::get<1>(GetParam()), way}; }
};

TEST_P(RecordedModel, TokensOneAtATimeGiveItsHiddenStatesItsChoicesAndItsTokens) {
  Runner r = runner();
  for (std::int64_t t = 0; t < prompt_tokens; ++t) follow(r, {{0, t, t + 1}, {1, t, t + 1}});
  follow_decoding(r);
}

TEST_P(RecordedModel, ThePromptInOnePieceGivesThemAlongEveryPath) {
  for (const AttentionPath path :
       {AttentionPath::by_backend, AttentionPath::mha, AttentionPath::mha_one_shot, AttentionPath::mha_chunked, AttentionPath::mla}) {
    // Only the paths that take a prefix go on to decode.
    Runner r = runner({path == AttentionPath::mha ? AttentionPath::by_backend : path});
    Runner whole = runner({path});
    follow(whole, {{0, 0, prompt_tokens}, {1, 0, prompt_tokens}});
    follow(r, {{0, 0, prompt_tokens}, {1, 0, prompt_tokens}});
    follow_decoding(r);
  }
}

TEST_P(RecordedModel, ThePromptInChunksBehindPrefixesGivesThemAlongEveryPath) {
  // The requests are cut at different places: prefixes of 16 and 5, then 30 and 36.
  for (const Way& way :
       {Way{AttentionPath::mha_one_shot}, Way{AttentionPath::mha_chunked}, Way{AttentionPath::mha_chunked, 14}, Way{AttentionPath::mla}}) {
    SCOPED_TRACE(std::string(name(way.path)) + ", chunks of " + std::to_string(way.prefix_chunk));
    Runner r = runner(way);
    follow(r, {{0, 0, 16}, {1, 0, 5}});
    follow(r, {{0, 16, 30}, {1, 5, 36}});
    follow(r, {{0, 30, prompt_tokens}, {1, 36, prompt_tokens}});
    follow_decoding(r);
  }
}

TEST_P(RecordedModel, ARequestDecodesBesideOneThatIsPrefilled) {
  for (const Way& way : {Way{AttentionPath::mha_one_shot}, Way{AttentionPath::mha_chunked, 20}, Way{AttentionPath::mla}}) {
    SCOPED_TRACE(name(way.path));
    Runner r = runner(way);
    follow(r, {{0, 0, prompt_tokens}});
    follow(r, {{1, 0, 20}, {0, prompt_tokens, prompt_tokens + 1}});
    follow(r, {{0, prompt_tokens + 1, prompt_tokens + 2}, {1, 20, prompt_tokens}});
    follow(r, {{1, prompt_tokens, prompt_tokens + 2}});
    follow_decoding(r, 2);
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
