#include "model/language_model.h"

#include <algorithm>
#include <string>

#include "core/define.h"
#include "core/threads.h"
#include "dodona/error.h"
#include "io/stopwatch.h"
#include "model/layer/attention/attention.h"
#include "model/layer/experts/experts.h"
#include "model/layer/kernel_use.h"
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

/// All of them over `capacities`, in which each request comes once for each beam.
std::vector<std::int64_t> repeated(std::span<const std::int64_t> capacities, std::int64_t times) {
  std::vector<std::int64_t> all;
  for (const std::int64_t capacity : capacities) all.insert(all.end(), static_cast<std::size_t>(times), capacity);
  return all;
}

}  // namespace

LayerSetting for_any_company(LayerSetting setting) {
  setting.low_latency = false;
  setting.scale_by_token = true;
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
                             std::span<const std::int64_t> capacities, const Ranks& ranks)
    : source_(&source),
      setting_(for_any_company(setting)),
      exec_(exec),
      ranks_(ranks),
      model_(source, setting_, exec, ranks),
      capacities_(capacities.begin(), capacities.end()),
      caches_(model_.make_caches(capacities)) {
  if (config().form_of("lm_head") != WeightForm::bf16)
    throw Error(ErrorCode::unsupported, "", "lm_head", "of " + config().name + " is quantized, expected bf16");
  source.check_outer();
  const std::int64_t one = 1;
  choose_attention(config(), setting_, extend_batch({&one, 1}, {&one, 1}));
  final_norm_ = in_type(source.get("model.norm.weight"), activation_type(setting_.rounding));
}

Tensor LanguageModel::embeddings(std::span<const std::int64_t> tokens) const {
  const std::int64_t hidden = config().hidden_size, here = source_->local().vocab_size,
                     first = source_->shard().vocabulary.begin(config().vocab_size);
  Tensor rows(DType::bf16, {static_cast<std::int64_t>(tokens.size()), hidden});
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    if (tokens[t] < 0 || tokens[t] >= config().vocab_size)
      throw Error(ErrorCode::bad_value, "", "tokens",
                  "hold " + std::to_string(tokens[t]) + ", expected 0 to " + std::to_string(config().vocab_size - 1) +
                      ", the vocabulary of " + config().name);
    const auto at = static_cast<std::int64_t>(t);
    const std::int64_t row = tokens[t] - first;
    if (row >= 0 && row < here) copy(source_->rows("model.embed_tokens.weight", row, row + 1), rows.slice(0, at, at + 1));
  }
  if (ranks_.tensor != nullptr) {
    // Each row from the rank that has it.
    const Tensor all = ranks_.tensor->gather_alike(rows);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const std::int64_t owner = tokens[t] / here, at = static_cast<std::int64_t>(t);
      copy(all.slice(0, owner, owner + 1).slice(1, at, at + 1).reshape({1, hidden}), rows.slice(0, at, at + 1));
    }
  }
  return in_type(rows, activation_type(setting_.rounding));
}

namespace {

/// The batch of those tokens, without slots.
Batch batch_of(const std::vector<Extension>& extensions) {
  Batch batch;
  batch.query_starts.push_back(0);
  const bool trees = std::any_of(extensions.begin(), extensions.end(), [](const Extension& each) { return !each.parents.empty(); });
  for (const Extension& extension : extensions) {
    const auto count = static_cast<std::int64_t>(extension.tokens.size());
    const std::size_t first = batch.positions.size();
    batch.requests.push_back(extension.request);
    batch.lengths.push_back(extension.begin + count);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t parent = extension.parents.empty() ? i - 1 : extension.parents[static_cast<std::size_t>(i)];
      batch.positions.push_back(parent < 0 ? extension.begin : batch.positions[first + static_cast<std::size_t>(parent)] + 1);
      if (trees) batch.parents.push_back(parent);
    }
    batch.query_starts.push_back(batch.tokens());
  }
  return batch;
}

}  // namespace

void LanguageModel::begin_round() {
  left_ = std::move(passes_);
  passes_.clear();
  in_round_ = true;
}
void LanguageModel::end_round() {
  passes_.clear();
  left_.clear();
  in_round_ = false;
}

Tensor LanguageModel::forward(const std::vector<Extension>& extensions) {
  if (!in_round_) passes_.clear();
  const std::size_t number = passes_.size();
  const bool known = number < left_.size() && left_[number].extensions == extensions;
  if (!known) left_.clear();
  passes_.push_back(known ? left_[number] : ForwardPass{.extensions = extensions});
  ForwardPass& pass = passes_.back();
  if (pass.hidden.defined()) return pass.hidden;
  Batch batch = batch_of(extensions);
  caches_.front().place(batch);
  if (pass.layers == 0) {
    std::vector<std::int64_t> tokens;
    for (const Extension& extension : extensions) tokens.insert(tokens.end(), extension.tokens.begin(), extension.tokens.end());
    pass.state = {outer({"self.embed_tokens()", "", "", {batch.tokens()}}, [&] { return embeddings(tokens); }), {}};
  }
  Model::Hooks walk{.before = hooks.before_layer, .timed = hooks.after_layer};
  walk.after = [&](std::int64_t layer, const LayerState& state, const Trace& trace) {
    pass.layers = layer + 1;
    pass.state = state;
    if (hooks.traced) hooks.traced(layer, trace);
  };
  const LayerState last = model_.go_on(pass.layers, batch, pass.state, caches_, walk);
  pass.hidden = outer({"self.norm()", "", last.residual.defined() ? "fused_add_rmsnorm" : "rmsnorm", last.hidden.shape()},
                      [&] { return normed(last, final_norm_, config().rms_norm_eps, exec_); });
  pass.state = {};
  return pass.hidden;
}

Tensor LanguageModel::outer(const OuterOp& op, const std::function<Tensor()>& body) const {
  const io::Stopwatch clock;
  Tensor result = body();
  if (!hooks.outer) return result;
  OpRecord record{.op = std::string(op.name), .note = std::string(op.note), .kernels = std::string(op.kernel)};
  record.seconds = clock.seconds();
  record.shapes = to_string(op.input) + " -> " + to_string(result.shape());
  hooks.outer(record);
  return result;
}

Tensor LanguageModel::logits(const Tensor& hidden) const {
  return outer({"self.lm_head()", "", "linear", hidden.shape()}, [&] { return head(hidden); });
}

/// By the ranks of the last stage, each its rows of the head; all have the logits.
Tensor LanguageModel::head(const Tensor& hidden) const {
  const std::int64_t vocabulary = config().vocab_size, here = source_->local().vocab_size;
  const bool last = ranks_.stage.index == ranks_.stage.count - 1;
  Tensor all = last ? head_of_shard(hidden) : Tensor(DType::f32, {0, vocabulary});
  if (last && ranks_.tensor != nullptr) {
    const Tensor parts = ranks_.tensor->gather_alike(all);
    all = Tensor(DType::f32, {hidden.size(0), vocabulary});
    for (std::int64_t r = 0; r < parts.size(0); ++r)
      copy(parts.slice(0, r, r + 1).reshape({hidden.size(0), here}), all.slice(1, r * here, (r + 1) * here));
  }
  return ranks_.pipeline != nullptr ? ranks_.pipeline->gather(all).back() : all;
}

Tensor LanguageModel::head_of_shard(const Tensor& hidden) const {
  const std::int64_t vocabulary = source_->local().vocab_size;
  Tensor all(DType::f32, {hidden.size(0), vocabulary});
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
  return rows_of(caches_, request, tokens);
}
void LanguageModel::restore(std::int64_t request, const Tensor& rows) {
  put_rows(caches_, request, rows, capacity(request));
}
void LanguageModel::move_token(std::int64_t request, std::int64_t from, std::int64_t to) {
  for (PagedKvCache& cache : caches_) cache.move_token(request, from, to);
}

Tensor rows_of(std::span<const PagedKvCache> caches, std::int64_t request, std::int64_t tokens) {
  const std::int64_t bytes = caches.front().token_bytes();
  Tensor rows(DType::u8, {static_cast<std::int64_t>(caches.size()), tokens, bytes});
  std::byte* out = rows.as<std::byte>();
  for (const PagedKvCache& cache : caches)
    for (std::int64_t t = 0; t < tokens; ++t, out += bytes) cache.read_token(request, t, out);
  return rows;
}

void put_rows(std::span<PagedKvCache> caches, std::int64_t request, const Tensor& rows, std::int64_t capacity) {
  const std::int64_t bytes = caches.front().token_bytes();
  const Dims expected{static_cast<std::int64_t>(caches.size()), rows.shape().rank() == 3 ? rows.size(1) : 0, bytes};
  if (!(rows.shape() == expected) || rows.dtype() != DType::u8 || rows.size(1) > capacity)
    throw Error(ErrorCode::bad_shape, "", "cache", "has shape " + to_string(rows.shape()) + ", expected " + to_string(expected));
  const std::byte* from = rows.as<const std::byte>();
  for (PagedKvCache& cache : caches)
    for (std::int64_t t = 0; t < rows.size(1); ++t, from += bytes) cache.write_token(request, t, from);
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
std::int64_t shared_by(std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

/// The tokens behind the first `begin` of several paths, each path a way from the root.
struct Trie {
  std::vector<std::int64_t> tokens, parents;

  /// The node at the end of the path.
  std::int64_t add(const Path& path, std::int64_t begin) {
    std::int64_t at = -1;
    for (std::size_t d = static_cast<std::size_t>(begin); d < path.size(); ++d) at = child(at, path[d]);
    return at;
  }
  bool chain() const {
    for (std::size_t i = 0; i < parents.size(); ++i)
      if (parents[i] != static_cast<std::int64_t>(i) - 1) return false;
    return true;
  }

 private:
  std::int64_t child(std::int64_t parent, std::int64_t token) {
    for (std::size_t i = static_cast<std::size_t>(parent + 1); i < tokens.size(); ++i)
      if (parents[i] == parent && tokens[i] == token) return static_cast<std::int64_t>(i);
    tokens.push_back(token);
    parents.push_back(parent);
    return static_cast<std::int64_t>(tokens.size()) - 1;
  }
};

}  // namespace

/// The caches hold no more than begins `text`, row by row: of the last pass' tree the nodes along it move to their places.
void SpeculativeTarget::settle(std::int64_t request, std::span<const std::int64_t> text) const {
  Held& held = held_[static_cast<std::size_t>(request)];
  const auto shared = static_cast<std::size_t>(shared_by(held.text, text));
  std::int64_t at = -1;
  const std::size_t root = held.text.size();
  for (std::size_t place = root; shared == root && place < text.size(); ++place) {
    std::size_t next = static_cast<std::size_t>(at + 1);
    while (next < held.tree.size() && (held.parents[next] != at || held.tree[next] != text[place])) ++next;
    if (next == held.tree.size()) break;
    at = static_cast<std::int64_t>(next);
    if (root + next != place) model_->move_token(request, static_cast<std::int64_t>(root + next), static_cast<std::int64_t>(place));
    held.text.push_back(text[place]);
  }
  if (shared < root) held.text.resize(shared);
  held.tree.clear(), held.parents.clear();
}

void SpeculativeTarget::forward_all(std::span<const TargetQuery> asked, const Tensor& logits, const Tensor& hidden) const {
  std::vector<Extension> extensions;
  std::vector<Trie> tries;
  std::vector<std::pair<std::size_t, std::int64_t>> rows;  // query, row of the pass
  std::int64_t row = 0;
  for (std::size_t request = 0; request < held_.size(); ++request) {
    std::vector<std::size_t> mine;
    std::vector<Path> paths;
    for (std::size_t i = 0; i < asked.size(); ++i)
      if (asked[i].request == static_cast<std::int64_t>(request)) mine.push_back(i), paths.push_back(path_of(asked[i]));
    if (mine.empty()) continue;
    std::int64_t common = static_cast<std::int64_t>(paths.front().size());
    for (const Path& path : paths) common = std::min(common, shared_by(paths.front(), path));
    settle(static_cast<std::int64_t>(request), std::span(paths.front()).first(static_cast<std::size_t>(common)));
    // Each query's last token goes through the layers, whatever the caches hold of it.
    Held& held = held_[request];
    std::int64_t begin = static_cast<std::int64_t>(held.text.size());
    for (const Path& path : paths) begin = std::min(begin, static_cast<std::int64_t>(path.size()) - 1);
    held.text.resize(static_cast<std::size_t>(begin));
    Trie& trie = tries.emplace_back();
    for (std::size_t i = 0; i < mine.size(); ++i) rows.emplace_back(mine[i], row + trie.add(paths[i], begin));
    row += static_cast<std::int64_t>(trie.tokens.size());
    extensions.push_back({static_cast<std::int64_t>(request), begin, trie.tokens, trie.chain() ? Path() : trie.parents});
  }
  const Tensor states = widened(model_->forward(extensions));
  for (std::size_t i = 0; i < extensions.size(); ++i) {
    Held& held = held_[static_cast<std::size_t>(extensions[i].request)];
    if (extensions[i].parents.empty())
      held.text.insert(held.text.end(), tries[i].tokens.begin(), tries[i].tokens.end());
    else
      held.tree = tries[i].tokens, held.parents = tries[i].parents;
  }
  for (const auto& [query, at] : rows)
    std::copy_n(states.as<float>() + at * hidden_size(), hidden_size(),
                hidden.as<float>() + static_cast<std::int64_t>(query) * hidden_size());
  ask_head(hidden, logits);
}

/// Logits of the last rows.
void SpeculativeTarget::ask_head(const Tensor& hidden, const Tensor& logits) const {
  const Tensor wanted = hidden.slice(0, hidden.size(0) - logits.size(0), hidden.size(0));
  const DType type = activation_type(model_->setting().rounding);
  copy(model_->logits(type == DType::f32 ? wanted : rounded(wanted, type)), logits);
}

void SpeculativeTarget::read(std::int64_t request, std::span<const std::int64_t> prompt, std::span<float> logits,
                             const Tensor& hidden) const {
  const auto count = static_cast<std::int64_t>(prompt.size());
  for (std::int64_t begin = 0; begin < count; begin += chunk_) {
    const std::int64_t end = std::min(begin + chunk_, count);
    copy(widened(model_->forward({{request, begin, {prompt.begin() + begin, prompt.begin() + end}}})), hidden.slice(0, begin, end));
  }
  held_[static_cast<std::size_t>(request)] = {{prompt.begin(), prompt.end()}, {}, {}};
  const Tensor last(DType::f32, {1, vocabulary()});
  ask_head(hidden, last);
  std::copy_n(last.as<float>(), vocabulary(), logits.begin());
}

NextnDraft::NextnDraft(const LanguageModel& model, std::span<const std::int64_t> capacities, std::int64_t beams)
    : model_(&model),
      beams_(beams),
      capacities_(capacities.begin(), capacities.end()),
      cache_(model.config(), model.setting().cache_type(), repeated(capacities, beams)) {
  if (model.config().num_nextn_predict_layers == 0)
    throw Error(ErrorCode::unsupported, "", "--speculative", "nextn: " + model.config().name + " has no NextN layer");
  model.source().check_layer(layer());
  if (model.config().is_moe_layer(layer())) choose_experts(model.config(), setting());
}

LayerSetting NextnDraft::setting() const {
  LayerSetting setting = norms_over_layers(model_->setting(), false, false);
  setting.layer = layer();
  return with_experts_of_draft(model_->config(), std::move(setting));
}

void NextnDraft::forward(std::int64_t, std::int64_t, std::span<const float>, std::span<float>, std::span<float>) const {
  throw Error(ErrorCode::unsupported, "", "draft", "is asked for one token at a time: its cache needs to know which request's");
}

Tensor NextnDraft::run(std::span<const DraftQuery> asked) const {
  const ModelConfig& config = model_->config();
  const std::int64_t hidden = config.hidden_size, count = static_cast<std::int64_t>(asked.size());
  const Exec& exec = model_->exec();
  const DType type = activation_type(model_->setting().rounding);
  const std::string prefix = layer_prefix(layer());
  const auto norm = [&](const Tensor& x, const std::string& name, std::string_view note) {
    return model_->outer({"self." + name + "()", note, "rmsnorm", x.shape()}, [&] {
      const Tensor weight = in_type(model_->source().get(prefix + name + ".weight"), type);
      return ops::run(ops::Rmsnorm{.input = x, .weight = weight, .eps = config.rms_norm_eps}, exec).output;
    });
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
    if (!batch.requests.empty() && batch.requests.back() == row_of_beam(query)) {
      batch.lengths.back() = query.place + 1, batch.query_starts.back() = i + 1;
      continue;
    }
    batch.requests.push_back(row_of_beam(query));
    batch.lengths.push_back(query.place + 1);
    batch.query_starts.push_back(i + 1);
  }
  const Tensor both(type, {count, 2 * hidden});
  const Tensor embeddings = model_->outer({"self.embed_tokens()", "", "", {count}}, [&] { return model_->embeddings(tokens); });
  copy(norm(embeddings, "enorm", "embeddings"), both.slice(1, 0, hidden));
  copy(norm(type == DType::f32 ? states : rounded(states, type), "hnorm", "target hidden"), both.slice(1, hidden, 2 * hidden));
  const Tensor x = model_->outer({"self.eh_proj()", "", "linear", both.shape()}, [&] {
    return ops::run(ops::Linear{.input = both, .weight = model_->source().get(prefix + "eh_proj.weight"), .out_dtype = type}, exec).output;
  });
  const LayerState last = run_layer_of(batch, x);
  for (const DraftQuery& query : asked)
    if (query.beam < 0) share(query.request, query.place);
  return model_->outer(
      {"self.shared_head.norm()", "", last.residual.defined() ? "fused_add_rmsnorm" : "rmsnorm", last.hidden.shape()},
      [&] { return normed(last, in_type(model_->source().get(prefix + "shared_head.norm.weight"), type), config.rms_norm_eps, exec); });
}

/// The decoder layer, of which the target's hooks are told as of its own.
LayerState NextnDraft::run_layer_of(Batch& batch, const Tensor& x) const {
  const io::Stopwatch clock;
  const LanguageModel::Hooks& hooks = model_->hooks;
  LayerWeights weights(model_->source(), setting(), without_tracer(model_->exec()));
  const double making = clock.seconds();
  cache_.place(batch);
  Trace trace = layer_trace(weights, batch, model_->exec());
  if (hooks.before_layer)
    hooks.before_layer(layer(), trace);
  else
    trace.leave_out_statistics();
  LayerState last = run_layer(weights, batch, {x, {}}, cache_, trace, model_->ranks());
  if (hooks.traced) hooks.traced(layer(), trace);
  if (hooks.after_draft) hooks.after_draft(timing_of(layer(), weights, trace, making));
  return last;
}

/// A row of the text, which lies with beam 0, for the others.
void NextnDraft::share(std::int64_t request, std::int64_t place) const {
  std::vector<std::byte> row(static_cast<std::size_t>(cache_.token_bytes()));
  cache_.read_token(request * beams_, place, row.data());
  for (std::int64_t beam = 1; beam < beams_; ++beam) cache_.write_token(request * beams_ + beam, place, row.data());
}

Tensor NextnDraft::cached(std::int64_t request, std::int64_t tokens) const {
  return rows_of({&cache_, 1}, request * beams_, tokens);
}
void NextnDraft::restore(std::int64_t request, const Tensor& rows) {
  for (std::int64_t beam = 0; beam < beams_; ++beam)
    put_rows({&cache_, 1}, request * beams_ + beam, rows, capacities_[static_cast<std::size_t>(request)]);
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
