#include "model/language_model.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "core/define.h"
#include "core/threads.h"
#include "dodona/error.h"
#include "model/layer/values.h"
#include "model/weights/tensor_list.h"
#include "ops/gemm/linear.h"
#include "ops/normalization/fused_add_rmsnorm.h"
#include "ops/normalization/rmsnorm.h"
#include "quant/element.h"

namespace dodona::model {
namespace {

/// Rows of the head that are in memory at a time.
constexpr std::int64_t head_rows = 8192;

Tensor in_type(const Tensor& bf16, DType type) {
  return type == DType::bf16 ? bf16 : widened(bf16);
}

/// [layers, tokens, row]: rows that a request's tokens have.
template <class Visit>
void each_row(std::span<const PagedKvCache> caches, std::int64_t request, std::int64_t tokens, const Visit& visit) {
  for (std::size_t layer = 0; layer < caches.size(); ++layer)
    for (std::int64_t t = 0; t < tokens; ++t) {
      const Tensor& buffer = caches[layer].buffer();
      const std::int64_t bytes = bytes_for(buffer.dtype(), buffer.size(2));
      visit(static_cast<std::int64_t>(layer) * tokens + t, buffer.as<std::byte>() + caches[layer].slot(request, t) * bytes, bytes);
    }
}

}  // namespace

LayerSetting for_any_company(LayerSetting setting) {
  setting.low_latency = false;
  setting.path = AttentionPath::mla;
  return setting;
}

Tensor normed(const LayerState& state, const Tensor& weight, double eps, const Exec& exec) {
  if (!state.residual.defined()) return ops::run(ops::Rmsnorm{.input = state.hidden, .weight = weight, .eps = eps}, exec).output;
  return ops::run(ops::FusedAddRmsnorm{.input = state.hidden.clone(), .residual = state.residual.clone(), .weight = weight, .eps = eps},
                  exec)
      .input;
}

LanguageModel::LanguageModel(const WeightSource& source, const LayerSetting& setting, const Exec& exec,
                             std::span<const std::int64_t> capacities)
    : source_(&source),
      setting_(for_any_company(setting)),
      exec_(exec),
      model_(source, setting_, exec),
      capacities_(capacities.begin(), capacities.end()),
      caches_(model_.make_caches(capacities)) {
  if (config().form_of("lm_head") != WeightForm::bf16)
    throw Error(ErrorCode::unsupported, "", "lm_head", "of " + config().name + " is quantized, expected bf16");
  final_norm_ = in_type(source.get("model.norm.weight"), activation_type(setting_.rounding));
}

Tensor LanguageModel::embeddings(std::span<const std::int64_t> tokens) const {
  const std::int64_t hidden = config().hidden_size;
  Tensor rows(DType::bf16, {static_cast<std::int64_t>(tokens.size()), hidden});
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    if (tokens[t] < 0 || tokens[t] >= config().vocab_size)
      throw Error(ErrorCode::bad_value, "", "tokens",
                  "hold " + std::to_string(tokens[t]) + ", expected 0 to " + std::to_string(config().vocab_size - 1) +
                      ", the vocabulary of " + config().name);
    const auto at = static_cast<std::int64_t>(t);
    copy(source_->rows("model.embed_tokens.weight", tokens[t], tokens[t] + 1), rows.slice(0, at, at + 1));
  }
  return in_type(rows, activation_type(setting_.rounding));
}

Tensor LanguageModel::forward(std::span<const Extension> extensions) {
  Batch batch;
  std::vector<std::int64_t> tokens;
  batch.query_starts.push_back(0);
  for (const Extension& extension : extensions) {
    batch.requests.push_back(extension.request);
    batch.lengths.push_back(extension.begin + static_cast<std::int64_t>(extension.tokens.size()));
    for (std::int64_t at = extension.begin; at < batch.lengths.back(); ++at) batch.positions.push_back(at);
    tokens.insert(tokens.end(), extension.tokens.begin(), extension.tokens.end());
    batch.query_starts.push_back(batch.tokens());
  }
  const Tensor x = outer("self.embed_tokens()", "", batch.tokens(), [&] { return embeddings(tokens); });
  caches_.front().place(batch);
  Model::Hooks walk{.before = hooks.before_layer, .timed = hooks.after_layer};
  if (hooks.traced) walk.after = [this](std::int64_t layer, const LayerState&, const Trace& trace) { hooks.traced(layer, trace); };
  const LayerState last = model_.run(batch, x, caches_, walk);
  return outer("self.norm()", last.residual.defined() ? "fused_add_rmsnorm" : "rmsnorm", batch.tokens(),
               [&] { return normed(last, final_norm_, config().rms_norm_eps, exec_); });
}

/// Runs an op that is around the layers, and tells of it.
Tensor LanguageModel::outer(std::string_view op, std::string_view kernel, std::int64_t tokens, const std::function<Tensor()>& body) const {
  const auto begin = std::chrono::steady_clock::now();
  Tensor result = body();
  if (!hooks.outer) return result;
  OpRecord record{.op = std::string(op), .kernels = std::string(kernel)};
  record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::string rows = std::to_string(tokens), width = std::to_string(config().hidden_size);
  record.shapes = (op == "self.embed_tokens()" ? "[" + rows + "]" : "[" + rows + ", " + width + "]") + " -> " + to_string(result.shape());
  hooks.outer(record);
  return result;
}

Tensor LanguageModel::logits(const Tensor& hidden) const {
  return outer("self.lm_head()", "linear", hidden.size(0), [&] { return head(hidden); });
}

Tensor LanguageModel::head(const Tensor& hidden) const {
  const std::int64_t vocabulary = config().vocab_size;
  const Tensor all(DType::f32, {hidden.size(0), vocabulary});
  const DType type = activation_type(setting_.rounding);
  for (std::int64_t begin = 0; begin < vocabulary; begin += head_rows) {
    const std::int64_t end = std::min(begin + head_rows, vocabulary);
    const Tensor part =
        ops::run(ops::Linear{.input = hidden, .weight = source_->rows("lm_head.weight", begin, end), .out_dtype = type}, exec_).output;
    copy(type == DType::f32 ? part : widened(part), all.slice(1, begin, end));
  }
  return all;
}

Tensor LanguageModel::cached(std::int64_t request, std::int64_t tokens) const {
  const Tensor& buffer = caches_.front().buffer();
  Tensor rows(buffer.dtype(), {static_cast<std::int64_t>(caches_.size()), tokens, buffer.size(2)});
  each_row(caches_, request, tokens,
           [&](std::int64_t row, const std::byte* at, std::int64_t bytes) { std::copy_n(at, bytes, rows.as<std::byte>() + row * bytes); });
  return rows;
}

void LanguageModel::restore(std::int64_t request, const Tensor& rows) {
  const Tensor& buffer = caches_.front().buffer();
  const Dims expected{static_cast<std::int64_t>(caches_.size()), rows.shape().rank() == 3 ? rows.size(1) : 0, buffer.size(2)};
  if (!(rows.shape() == expected) || rows.dtype() != buffer.dtype() || rows.size(1) > capacity(request))
    throw Error(ErrorCode::bad_shape, "", "cache", "has shape " + to_string(rows.shape()) + ", expected " + to_string(expected));
  each_row(caches_, request, rows.size(1),
           [&](std::int64_t row, std::byte* at, std::int64_t bytes) { std::copy_n(rows.as<std::byte>() + row * bytes, bytes, at); });
}

// ---- speculative decoding

void SpeculativeTarget::forward(std::span<const CachedToken> seen, std::span<float> logits, std::span<float> hidden) const {
  const TargetQuery query{0, {seen.begin(), seen.end()}};
  const Tensor all_logits(DType::f32, {1, vocabulary()}), all_hidden(DType::f32, {1, hidden_size()});
  forward_all({&query, 1}, all_logits, all_hidden);
  std::copy_n(all_logits.as<float>(), vocabulary(), logits.begin());
  std::copy_n(all_hidden.as<float>(), hidden_size(), hidden.begin());
}

namespace {

using Path = std::vector<std::int64_t>;

/// Tokens from the first to the last.
Path path_of(const TargetQuery& query) {
  Path path(query.seen.size());
  for (const CachedToken& token : query.seen) path.at(static_cast<std::size_t>(token.position)) = token.token;
  return path;
}
std::int64_t shared_by(const Path& a, const Path& b) {
  const std::size_t most = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(most), b.begin()).first - a.begin();
}
bool begins(const Path& path, const Path& start) {
  return shared_by(path, start) == static_cast<std::int64_t>(start.size());
}

}  // namespace

void SpeculativeTarget::forward_all(std::span<const TargetQuery> asked, const Tensor& logits, const Tensor& hidden) const {
  std::vector<Path> paths;
  for (const TargetQuery& query : asked) paths.push_back(path_of(query));
  std::vector<bool> answered(asked.size(), false);
  while (std::find(answered.begin(), answered.end(), false) != answered.end()) {
    // Of each request the longest path that is left, and the queries along it.
    std::vector<std::size_t> longest(cached_.size(), asked.size());
    for (std::size_t i = 0; i < asked.size(); ++i) {
      std::size_t& best = longest[static_cast<std::size_t>(asked[i].request)];
      if (!answered[i] && (best == asked.size() || paths[i].size() > paths[best].size())) best = i;
    }
    std::vector<Extension> extensions;
    std::vector<std::pair<std::size_t, std::int64_t>> along;  // query, row of the pass
    std::int64_t row = 0;
    for (std::size_t request = 0; request < cached_.size(); ++request) {
      if (longest[request] == asked.size()) continue;
      const Path& path = paths[longest[request]];
      std::int64_t begin = shared_by(cached_[request], path);
      std::vector<std::size_t> mine;
      for (std::size_t i = 0; i < asked.size(); ++i)
        if (!answered[i] && asked[i].request == static_cast<std::int64_t>(request) && begins(path, paths[i])) {
          mine.push_back(i);
          begin = std::min(begin, static_cast<std::int64_t>(paths[i].size()) - 1);
        }
      for (const std::size_t i : mine) {
        along.emplace_back(i, row + static_cast<std::int64_t>(paths[i].size()) - 1 - begin);
        answered[i] = true;
      }
      extensions.push_back({static_cast<std::int64_t>(request), begin, std::span(path).subspan(static_cast<std::size_t>(begin))});
      row += static_cast<std::int64_t>(path.size()) - begin;
    }
    const Tensor states = widened(model_->forward(extensions));
    for (const Extension& extension : extensions) {
      const auto request = static_cast<std::size_t>(extension.request);
      cached_[request] = paths[longest[request]];
    }
    for (const auto& [query, at] : along)
      std::copy_n(states.as<float>() + at * hidden_size(), hidden_size(),
                  hidden.as<float>() + static_cast<std::int64_t>(query) * hidden_size());
  }
  const std::int64_t first = hidden.size(0) - logits.size(0);
  const Tensor wanted = hidden.slice(0, first, hidden.size(0));
  const DType type = activation_type(model_->setting().rounding);
  copy(model_->logits(type == DType::f32 ? wanted : rounded(wanted, type)), logits);
}

NextnDraft::NextnDraft(const LanguageModel& model, std::span<const std::int64_t> capacities)
    : model_(&model), cache_(model.config(), model.setting().cache_type(), capacities) {
  if (model.config().num_nextn_predict_layers == 0)
    throw Error(ErrorCode::unsupported, "", "--speculative", "nextn: " + model.config().name + " has no NextN layer");
}

void NextnDraft::forward(std::int64_t, std::int64_t, std::span<const float>, std::span<float>, std::span<float>) const {
  throw Error(ErrorCode::unsupported, "", "draft", "is asked for one token at a time: its cache needs to know which request's");
}

Tensor NextnDraft::run(std::span<const DraftQuery> asked) const {
  const ModelConfig& config = model_->config();
  const std::int64_t layer = config.num_hidden_layers, hidden = config.hidden_size, count = static_cast<std::int64_t>(asked.size());
  const Exec& exec = model_->exec();
  const DType type = activation_type(model_->setting().rounding);
  const std::string prefix = layer_prefix(layer);
  const auto norm = [&](const Tensor& x, const std::string& name) {
    const Tensor weight = in_type(model_->source().get(prefix + name + ".weight"), type);
    return ops::run(ops::Rmsnorm{.input = x, .weight = weight, .eps = config.rms_norm_eps}, exec).output;
  };
  Batch batch;
  batch.query_starts.push_back(0);
  std::vector<std::int64_t> tokens;
  const Tensor states(DType::f32, {count, hidden});
  for (std::int64_t i = 0; i < count; ++i) {
    const DraftQuery& query = asked[static_cast<std::size_t>(i)];
    tokens.push_back(query.token);
    std::copy(query.hidden.begin(), query.hidden.end(), states.as<float>() + i * hidden);
    batch.positions.push_back(query.place);
    if (!batch.requests.empty() && batch.requests.back() == query.request) {
      batch.lengths.back() = query.place + 1, batch.query_starts.back() = i + 1;
      continue;
    }
    batch.requests.push_back(query.request);
    batch.lengths.push_back(query.place + 1);
    batch.query_starts.push_back(i + 1);
  }
  const Tensor both(type, {count, 2 * hidden});
  copy(norm(model_->embeddings(tokens), "enorm"), both.slice(1, 0, hidden));
  copy(norm(type == DType::f32 ? states : rounded(states, type), "hnorm"), both.slice(1, hidden, 2 * hidden));
  const Tensor x =
      ops::run(ops::Linear{.input = both, .weight = model_->source().get(prefix + "eh_proj.weight"), .out_dtype = type}, exec).output;
  LayerSetting setting = model_->setting();
  setting.layer = layer;
  LayerWeights weights(model_->source(), setting, exec);
  cache_.place(batch);
  Trace trace = layer_trace(weights, batch, exec);
  const LayerState last = run_layer(weights, batch, {x, {}}, cache_, trace);
  return normed(last, in_type(model_->source().get(prefix + "shared_head.norm.weight"), type), config.rms_norm_eps, exec);
}

void NextnDraft::forward_all(std::span<const DraftQuery> asked, const Tensor& logits, const Tensor& next_hidden) const {
  const Tensor states = run(asked), wide = widened(states);
  const std::int64_t hidden = model_->config().hidden_size;
  const Tensor wanted(states.dtype(), {logits.size(0), hidden});
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    copy(states.slice(0, at, at + 1), wanted.slice(0, asked[i].row, asked[i].row + 1));
    std::copy_n(wide.as<float>() + at * hidden, hidden, next_hidden.as<float>() + asked[i].row * hidden);
  }
  copy(model_->logits(wanted), logits);
}

}  // namespace dodona::model
