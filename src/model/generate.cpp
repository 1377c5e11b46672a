#include "model/generate.h"

#include <algorithm>

#include "core/random.h"
#include "dodona/error.h"

namespace dodona::model {
namespace {

using Tokens = std::vector<std::int64_t>;

const GenerateRequest& checked(const ModelConfig& config, const GenerateRequest& request, const Exec& exec) {
  if (of_a_gpu(exec.mode))
    throw Error(ErrorCode::unsupported, "", "mode",
                "is " + std::string(name(exec.mode)) +
                    ", expected fast or golden: a GPU's bits depend on how many tokens go together, these tokens do not");
  const auto fail = [](const char* option, const std::string& message) { throw Error(ErrorCode::bad_value, "", option, message); };
  if (request.max_new < 1) fail("--max-new", "is " + std::to_string(request.max_new) + ", expected 1 or more");
  if (request.chunk < 1) fail("--chunk", "is " + std::to_string(request.chunk) + ", expected 1 or more");
  if (request.end_token < -1 || request.end_token >= config.vocab_size)
    fail("--end-token", "is " + std::to_string(request.end_token) + ", expected 0 to " + std::to_string(config.vocab_size - 1) +
                            ", the vocabulary of " + config.name + ", or -1 for none");
  if (request.prompts.empty()) fail("prompts", "are none, expected at least one");
  for (const Tokens& prompt : request.prompts) {
    if (prompt.empty()) fail("prompt", "is empty, expected at least one token");
    for (const std::int64_t token : prompt)
      if (token < 0 || token >= config.vocab_size)
        fail("prompt", "holds token " + std::to_string(token) + ", expected 0 to " + std::to_string(config.vocab_size - 1) +
                           ", the vocabulary of " + config.name);
    const auto length = static_cast<std::int64_t>(prompt.size());
    if (length + request.max_new > config.max_position_embeddings)
      fail("prompt", "of " + std::to_string(length) + " tokens and " + std::to_string(request.max_new) + " new ones go beyond the " +
                         std::to_string(config.max_position_embeddings) + " positions of " + config.name);
  }
  return request;
}

/// Tokens that a step may emit too many, and the nodes of the next tree.
std::int64_t room_of_drafts(const GenerateRequest& request) {
  return request.draft_steps == 0 ? 2 : request.draft_steps + 1 + std::max(request.nodes(), request.draft_steps + 1);
}

/// Room for every token, and for the nodes of a tree.
Tokens capacities_of(const ModelConfig& config, const GenerateRequest& request) {
  Tokens capacities;
  for (const Tokens& prompt : request.prompts)
    capacities.push_back(
        std::min(static_cast<std::int64_t>(prompt.size()) + request.max_new + room_of_drafts(request), config.max_position_embeddings));
  return capacities;
}

Tensor coins_of(std::int32_t seed, const std::string& name, const Dims& shape) {
  Tensor coins(DType::f32, shape);
  fill_uniform(Stream(static_cast<std::uint64_t>(static_cast<std::uint32_t>(seed)), name), 0,
               {coins.as<float>(), static_cast<std::size_t>(coins.elements())});
  for (std::int64_t i = 0; i < coins.elements(); ++i) coins.as<float>()[i] = 1.0f - coins.as<float>()[i];
  return coins;
}

}  // namespace

namespace {

/// And of one request more, of one token, where a rank may have to idle.
Tokens with_room_to_idle(Tokens capacities, const Ranks& ranks) {
  if (ranks.own_tokens) capacities.push_back(1);
  return capacities;
}

}  // namespace

Generation::Generation(const WeightSource& source, const LayerSetting& setting, const GenerateRequest& request, const Exec& exec,
                       const Ranks& ranks)
    : request_(checked(source.config(), request, exec)),
      params_(normalized(request.sampling, source.config().vocab_size)),
      exec_(exec),
      model_(source, setting, exec, with_room_to_idle(capacities_of(source.config(), request), ranks), ranks),
      texts_(request.prompts.size()),
      cached_(request.prompts.size(), 0) {
  if (request.draft_steps == 0) return;
  if (ranks.own_tokens)
    throw Error(ErrorCode::unsupported, "", "--speculative",
                "with --dp-attention: ranks whose drafts are accepted or not would pass through the experts a different number of times");
  if (params_.min_p > 0) throw Error(ErrorCode::unsupported, "", "--min-p", "is no filter of speculative decoding, upstream's neither");
  for (const Tokens& prompt : request.prompts)
    if (static_cast<std::int64_t>(prompt.size()) + request.max_new + room_of_drafts(request) > source.config().max_position_embeddings)
      throw Error(ErrorCode::bad_value, "", "prompt", "and new tokens leave no positions for a draft");
  check_setting(speculation(), source.config().vocab_size);
  if (request.draft_topk > 1 && source.config().sparse())
    throw Error(
        ErrorCode::unsupported, "", "--speculative-eagle-topk",
        "is " + std::to_string(request.draft_topk) + ", but the indexer of " + source.config().name + " knows no draft trees: expected 1");
  target_.emplace(model_, static_cast<std::int64_t>(request.prompts.size()), request.chunk);
  draft_.emplace(model_, capacities_of(source.config(), request), request.draft_topk);
}

std::int64_t Generation::total(std::size_t r) const {
  return static_cast<std::int64_t>(request_.prompts[r].size() + texts_[r].size());
}
bool Generation::finished(std::size_t r) const {
  const Tokens& text = texts_[r];
  return static_cast<std::int64_t>(text.size()) >= request_.max_new || (!text.empty() && text.back() == request_.end_token);
}
std::int64_t Generation::token_at(std::size_t r, std::int64_t i) const {
  const auto at = static_cast<std::size_t>(i), prompt = request_.prompts[r].size();
  return at < prompt ? request_.prompts[r][at] : texts_[r][at - prompt];
}

bool Generation::done() const {
  for (std::size_t r = 0; r < texts_.size(); ++r)
    if (!finished(r)) return false;
  return true;
}

std::int64_t Generation::rounds_left() const {
  std::int64_t rounds = 0;
  for (std::size_t r = 0; r < texts_.size(); ++r) {
    if (finished(r)) continue;
    const std::int64_t waiting = total(r) - cached_[r];
    rounds = std::max(rounds,
                      (waiting + request_.chunk - 1) / request_.chunk + request_.max_new - static_cast<std::int64_t>(texts_[r].size()) - 1);
  }
  return rounds;
}

/// Every request draws alone, from a stream of its own: which tokens it gets does not depend on who else is there.
void Generation::draw(const Tensor& hidden, const std::vector<std::size_t>& requests, const std::vector<std::int64_t>& rows) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::size_t r = requests[i];
    const Tensor logits = model_.logits(hidden.slice(0, rows[i], rows[i] + 1));
    SamplingRequest one{params_, texts_[r], total(r) - 1};
    one.params.seed = static_cast<std::int32_t>(static_cast<std::uint32_t>(request_.seed) + static_cast<std::uint32_t>(r));
    apply_logits_bias(logits, {one}, {}, exec_);
    const DrawStream stream{*one.params.seed, 4 * static_cast<std::int64_t>(texts_[r].size())};
    texts_[r].push_back(*sample(logits, {one}, stream, exec_).tokens.as<std::int32_t>());
  }
}

void Generation::round(const std::function<void(const LayerTiming&)>& behind_layer) {
  model_.hooks.after_layer = behind_layer;
  model_.begin_round();
  if (request_.draft_steps > 0) {
    step();
    return model_.end_round();
  }
  std::int64_t room = request_.chunk, row = 0;
  std::vector<Extension> extensions;
  std::vector<std::size_t> drawing;
  std::vector<std::int64_t> rows;
  for (std::size_t r = 0; r < texts_.size() && room > 0; ++r) {
    if (finished(r)) continue;
    const std::int64_t count = std::min(total(r) - cached_[r], room);
    Extension& extension = extensions.emplace_back(Extension{static_cast<std::int64_t>(r), cached_[r], {}});
    for (std::int64_t i = 0; i < count; ++i) extension.tokens.push_back(token_at(r, cached_[r] + i));
    room -= count, row += count;
    if (cached_[r] + count == total(r)) drawing.push_back(r), rows.push_back(row - 1);
  }
  const Tensor hidden = model_.forward(extensions);
  for (const Extension& extension : extensions)
    cached_[static_cast<std::size_t>(extension.request)] += static_cast<std::int64_t>(extension.tokens.size());
  draw(hidden, drawing, rows);
  model_.end_round();
  ++steps_;
}

SpeculativeSetting Generation::speculation() const {
  const bool greedy = params_.top_k == 1;
  return {.steps = request_.draft_steps,
          .topk = request_.draft_topk,
          .draft_tokens = request_.nodes(),
          .temperature = greedy ? 0 : params_.temperature,
          .top_k = greedy || params_.top_k >= model_.config().vocab_size ? 0 : params_.top_k,
          .top_p = greedy ? 1 : params_.top_p,
          .end_token = request_.end_token,
          .most_new = request_.max_new};
}

std::int64_t Generation::most_tokens() const {
  std::int64_t most = 0;
  for (std::size_t r = 0; r < texts_.size(); ++r) most = std::max(most, model_.capacity(static_cast<std::int64_t>(r)));
  return most;
}

void Generation::idle() {
  model_.hooks.after_layer = {};
  model_.forward({{static_cast<std::int64_t>(texts_.size()), 0, {0}}});
}

void Generation::step() {
  const auto requests = static_cast<std::int64_t>(texts_.size());
  if (!decoder_) {
    const Tensor first = coins_of(request_.seed, "first", {requests});
    decoder_.emplace(*target_, *draft_, speculation(), request_.prompts, most_tokens(),
                     std::span<const float>(first.as<float>(), static_cast<std::size_t>(requests)), exec_);
  } else {
    const std::string name = "step " + std::to_string(steps_);
    const SpeculativeStep step = decoder_->step(
        {coins_of(request_.seed, name + " nodes", {requests, request_.nodes()}), coins_of(request_.seed, name + " last", {requests})});
    for (const auto& each : step.requests) accepted_ += each.accepted;
  }
  before_ = decoder_->state();
  ++steps_;
  for (std::size_t r = 0; r < texts_.size(); ++r) {
    texts_[r] = decoder_->text(static_cast<std::int64_t>(r));
    if (static_cast<std::int64_t>(texts_[r].size()) > request_.max_new) texts_[r].resize(static_cast<std::size_t>(request_.max_new));
  }
}

/// Rows that the caches hold of a request, or that a pass is about to write.
std::int64_t Generation::rows(std::size_t r) const {
  std::int64_t rows = target_ ? target_->held(static_cast<std::int64_t>(r)).rows() : cached_[r];
  for (const ForwardPass& pass : model_.passes())
    for (const Extension& extension : pass.extensions)
      if (extension.request == static_cast<std::int64_t>(r))
        rows = std::max(rows, extension.begin + static_cast<std::int64_t>(extension.tokens.size()));
  return rows;
}

namespace {

std::string numbered(const std::string& name, std::size_t i) {
  return name + "." + std::to_string(i);
}

void put_pass(GenerateState& state, const ForwardPass& pass, const std::string& name) {
  state.put(name + ".progress", {pass.layers, static_cast<std::int64_t>(pass.extensions.size())});
  for (std::size_t i = 0; i < pass.extensions.size(); ++i) {
    const Extension& extension = pass.extensions[i];
    const std::string part = numbered(name, i);
    state.put(part + ".place", Tokens{extension.request, extension.begin});
    state.put(part + ".tokens", extension.tokens);
    if (!extension.parents.empty()) state.put(part + ".parents", extension.parents);
  }
  if (pass.hidden.defined()) return state.put(name + ".gave", pass.hidden);
  if (pass.state.hidden.defined()) state.put(name + ".hidden", pass.state.hidden);
  if (pass.state.residual.defined()) state.put(name + ".residual", pass.state.residual);
}

ForwardPass get_pass(const GenerateState& state, const std::string& name) {
  const auto numbers = [&](const std::string& what, std::size_t least) {
    Tokens found = state.numbers(name + what);
    if (found.size() < least) throw Error(ErrorCode::bad_value, "", "state", name + what + " is too short");
    return found;
  };
  const auto tensor = [&](const std::string& what) { return state.has(name + what) ? state.tensor(name + what) : Tensor(); };
  const Tokens progress = numbers(".progress", 2);
  ForwardPass pass{.layers = progress[0], .state = {tensor(".hidden"), tensor(".residual")}, .hidden = tensor(".gave")};
  for (std::int64_t i = 0; i < progress[1]; ++i) {
    const std::string part = "." + std::to_string(i);
    const Tokens place = numbers(part + ".place", 2);
    pass.extensions.push_back({place[0], place[1], numbers(part + ".tokens", 1)});
    if (state.has(name + part + ".parents")) pass.extensions.back().parents = state.numbers(name + part + ".parents");
  }
  return pass;
}

}  // namespace

GenerateState Generation::state() const {
  GenerateState state;
  state.put("counts", {static_cast<std::int64_t>(texts_.size()), steps_, accepted_, static_cast<std::int64_t>(model_.passes().size())});
  state.put("cached", cached_);
  for (std::size_t r = 0; r < texts_.size(); ++r) {
    state.put(numbered("text", r), texts_[r]);
    state.put(numbered("rows", r), model_.cached(static_cast<std::int64_t>(r), rows(r)));
  }
  for (std::size_t i = 0; i < model_.passes().size(); ++i) put_pass(state, model_.passes()[i], numbered("pass", i));
  if (!target_) return state;
  for (std::size_t r = 0; r < texts_.size(); ++r) {
    const auto& held = target_->held(static_cast<std::int64_t>(r));
    state.put(numbered("held", r), held.text);
    state.put(numbered("held.tree", r), held.tree);
    state.put(numbered("held.parents", r), held.parents);
  }
  for (std::size_t r = 0; r < before_.texts.size(); ++r) {
    state.put(numbered("decoded", r), before_.texts[r]);
    const auto count = static_cast<std::int64_t>(request_.prompts[r].size() + before_.texts[r].size()) - 1;
    state.put(numbered("draft", r),
              draft_->cached(static_cast<std::int64_t>(r), std::min(count, model_.capacity(static_cast<std::int64_t>(r)))));
  }
  if (before_.hidden.defined()) {
    state.put("draft.hidden", before_.hidden);
    state.put("draft.topk_p", before_.topk_p);
    state.put("draft.topk_index", before_.topk_index);
  }
  return state;
}

void Generation::resume(const GenerateState& state) {
  const auto refuse = [](const std::string& message) { throw Error(ErrorCode::bad_value, "", "state", message); };
  const Tokens counts = state.numbers("counts"), cached = state.numbers("cached");
  if (counts.size() != 4 || counts[0] != static_cast<std::int64_t>(texts_.size()) || cached.size() != texts_.size())
    refuse("holds another number of requests");
  std::vector<Tokens> texts;
  for (std::size_t r = 0; r < texts_.size(); ++r) {
    texts.push_back(state.numbers(numbered("text", r)));
    const auto most = static_cast<std::int64_t>(request_.prompts[r].size() + texts[r].size());
    if (cached[r] < 0 || cached[r] > most || static_cast<std::int64_t>(texts[r].size()) > request_.max_new)
      refuse("holds more tokens of request " + std::to_string(r) + " than are asked for");
  }
  std::vector<ForwardPass> passes;
  for (std::int64_t i = 0; i < counts[3]; ++i) passes.push_back(get_pass(state, numbered("pass", static_cast<std::size_t>(i))));
  for (std::size_t r = 0; r < texts_.size(); ++r) model_.restore(static_cast<std::int64_t>(r), state.tensor(numbered("rows", r)));
  model_.take_up(std::move(passes));
  texts_ = std::move(texts), cached_ = cached;
  steps_ = counts[1], accepted_ = counts[2];
  if (!target_) return;
  for (std::size_t r = 0; r < texts_.size(); ++r)
    target_->hold(static_cast<std::int64_t>(r), {state.numbers(numbered("held", r)), state.numbers(numbered("held.tree", r)),
                                                 state.numbers(numbered("held.parents", r))});
  if (!state.has(numbered("decoded", 0))) return;
  for (std::size_t r = 0; r < texts_.size(); ++r) {
    before_.texts.push_back(state.numbers(numbered("decoded", r)));
    draft_->restore(static_cast<std::int64_t>(r), state.tensor(numbered("draft", r)));
  }
  if (state.has("draft.hidden"))
    before_ = {std::move(before_.texts), state.tensor("draft.hidden"), state.tensor("draft.topk_p"), state.tensor("draft.topk_index")};
  decoder_.emplace(*target_, *draft_, speculation(), request_.prompts, before_, most_tokens(), exec_);
}

}  // namespace dodona::model
