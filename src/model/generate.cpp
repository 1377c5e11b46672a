#include "model/generate.h"

#include <algorithm>

#include "core/random.h"
#include "dodona/error.h"
#include "io/safetensors.h"

namespace dodona::model {
namespace {

using Tokens = std::vector<std::int64_t>;

const GenerateRequest& checked(const ModelConfig& config, const GenerateRequest& request) {
  const auto fail = [](const char* option, const std::string& message) { throw Error(ErrorCode::bad_value, "", option, message); };
  if (request.max_new < 1) fail("--max-new", "is " + std::to_string(request.max_new) + ", expected 1 or more");
  if (request.chunk < 1) fail("--chunk", "is " + std::to_string(request.chunk) + ", expected 1 or more");
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

/// Room for every token, and for the nodes of a tree.
Tokens capacities_of(const ModelConfig& config, const GenerateRequest& request) {
  Tokens capacities;
  for (const Tokens& prompt : request.prompts)
    capacities.push_back(std::min(static_cast<std::int64_t>(prompt.size()) + request.max_new + 2 * (request.draft_steps + 1),
                                  config.max_position_embeddings));
  return capacities;
}

Tensor coins_of(std::int32_t seed, const std::string& name, const Dims& shape) {
  const Tensor coins(DType::f32, shape);
  fill_uniform(Stream(static_cast<std::uint64_t>(static_cast<std::uint32_t>(seed)), name), 0,
               {coins.as<float>(), static_cast<std::size_t>(coins.elements())});
  for (std::int64_t i = 0; i < coins.elements(); ++i) coins.as<float>()[i] = 1.0f - coins.as<float>()[i];
  return coins;
}

}  // namespace

Generation::Generation(const WeightSource& source, const LayerSetting& setting, const GenerateRequest& request, const Exec& exec)
    : request_(checked(source.config(), request)),
      params_(normalized(request.sampling, source.config().vocab_size)),
      exec_(exec),
      model_(source, setting, exec, capacities_of(source.config(), request)),
      texts_(request.prompts.size()),
      cached_(request.prompts.size(), 0) {
  if (request.draft_steps == 0) return;
  if (params_.min_p > 0) throw Error(ErrorCode::unsupported, "", "--min-p", "is no filter of speculative decoding, upstream's neither");
  for (const Tokens& prompt : request.prompts)
    if (static_cast<std::int64_t>(prompt.size()) + request.max_new + 2 * (request.draft_steps + 1) >
        source.config().max_position_embeddings)
      throw Error(ErrorCode::bad_value, "", "prompt", "and new tokens leave no positions for a draft");
  target_.emplace(model_, static_cast<std::int64_t>(request.prompts.size()));
  draft_.emplace(model_, capacities_of(source.config(), request));
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
  if (request_.draft_steps > 0) return step();
  std::int64_t room = request_.chunk, row = 0;
  std::vector<Tokens> tokens;
  std::vector<Extension> extensions;
  std::vector<std::size_t> drawing;
  std::vector<std::int64_t> rows;
  tokens.reserve(texts_.size());
  for (std::size_t r = 0; r < texts_.size() && room > 0; ++r) {
    if (finished(r)) continue;
    const std::int64_t count = std::min(total(r) - cached_[r], room);
    tokens.emplace_back();
    for (std::int64_t i = 0; i < count; ++i) tokens.back().push_back(token_at(r, cached_[r] + i));
    extensions.push_back({static_cast<std::int64_t>(r), cached_[r], tokens.back()});
    room -= count, row += count;
    if (cached_[r] + count == total(r)) drawing.push_back(r), rows.push_back(row - 1);
  }
  const Tensor hidden = model_.forward(extensions);
  for (const Extension& extension : extensions)
    cached_[static_cast<std::size_t>(extension.request)] += static_cast<std::int64_t>(extension.tokens.size());
  draw(hidden, drawing, rows);
  ++steps_;
}

void Generation::step() {
  const auto requests = static_cast<std::int64_t>(texts_.size());
  const std::int64_t nodes = request_.draft_steps + 1;
  if (!decoder_) {
    const bool greedy = params_.top_k == 1;
    const SpeculativeSetting setting{.steps = request_.draft_steps,
                                     .topk = 1,
                                     .draft_tokens = nodes,
                                     .temperature = greedy ? 0 : params_.temperature,
                                     .top_k = greedy || params_.top_k >= model_.config().vocab_size ? 0 : params_.top_k,
                                     .top_p = greedy ? 1 : params_.top_p,
                                     .end_token = request_.end_token,
                                     .most_new = request_.max_new};
    std::int64_t most = 0;
    for (std::int64_t r = 0; r < requests; ++r) most = std::max(most, model_.capacity(r));
    const Tensor first = coins_of(request_.seed, "first", {requests});
    decoder_.emplace(*target_, *draft_, setting, request_.prompts, most,
                     std::span<const float>(first.as<float>(), static_cast<std::size_t>(requests)), exec_);
  } else {
    const std::string name = "step " + std::to_string(steps_);
    const SpeculativeStep step =
        decoder_->step({coins_of(request_.seed, name + " nodes", {requests, nodes}), coins_of(request_.seed, name + " last", {requests})});
    for (const auto& each : step.requests) accepted_ += each.accepted;
  }
  ++steps_;
  for (std::size_t r = 0; r < texts_.size(); ++r) {
    texts_[r] = decoder_->text(static_cast<std::int64_t>(r));
    if (static_cast<std::int64_t>(texts_[r].size()) > request_.max_new) texts_[r].resize(static_cast<std::size_t>(request_.max_new));
  }
}

GenerateState Generation::state() const {
  GenerateState state{texts_, cached_, {}};
  for (std::size_t r = 0; r < texts_.size(); ++r) state.rows.push_back(model_.cached(static_cast<std::int64_t>(r), cached_[r]));
  return state;
}

void Generation::resume(const GenerateState& state) {
  const auto refuse = [](const std::string& message) { throw Error(ErrorCode::bad_value, "", "state", message); };
  if (request_.draft_steps > 0) refuse("is of plain decoding: a draft's is not kept");
  if (state.texts.size() != texts_.size()) refuse("holds another number of requests");
  for (std::size_t r = 0; r < texts_.size(); ++r) {
    const auto most = static_cast<std::int64_t>(request_.prompts[r].size() + state.texts[r].size());
    if (state.cached[r] < 0 || state.cached[r] > most || static_cast<std::int64_t>(state.texts[r].size()) > request_.max_new)
      refuse("holds more tokens of request " + std::to_string(r) + " than are asked for");
    model_.restore(static_cast<std::int64_t>(r), state.rows[r]);
  }
  texts_ = state.texts;
  cached_ = state.cached;
}

void write_state(const std::string& path, const GenerateState& state, const std::string& key) {
  NamedTensors tensors;
  const auto put = [&](const std::string& name, const Tokens& values) {
    const Tensor tensor(DType::i64, {static_cast<std::int64_t>(values.size())});
    std::copy(values.begin(), values.end(), tensor.as<std::int64_t>());
    tensors.emplace_back(name, tensor);
  };
  put("cached", state.cached);
  for (std::size_t r = 0; r < state.texts.size(); ++r) {
    put("text." + std::to_string(r), state.texts[r]);
    tensors.emplace_back("rows." + std::to_string(r), state.rows[r]);
  }
  io::write_safetensors(path, tensors, {{"dodona_generate", key}});
}

GenerateState read_state(const std::string& path, const std::string& key) {
  // A copy: the file is written anew while its rows are in use.
  const auto file = io::SafetensorsFile::open(path, io::Access::read);
  const auto made = file.metadata().find("dodona_generate");
  if (made == file.metadata().end()) throw Error(ErrorCode::bad_file, "", "", path + ": no state of generate");
  if (made->second != key)
    throw Error(ErrorCode::bad_value, "", "", path + ": is the state of another call: " + made->second + ", expected " + key);
  const auto get = [&](const std::string& name) {
    const Tensor tensor = file.tensor(name);
    if (tensor.dtype() != DType::i64) throw Error(ErrorCode::bad_file, "", "", path + ": " + name + " holds no tokens");
    return Tokens(tensor.as<std::int64_t>(), tensor.as<std::int64_t>() + tensor.elements());
  };
  GenerateState state{{}, get("cached"), {}};
  for (std::size_t r = 0; r < state.cached.size(); ++r) {
    state.texts.push_back(get("text." + std::to_string(r)));
    state.rows.push_back(file.tensor("rows." + std::to_string(r)));
  }
  return state;
}

}  // namespace dodona::model
