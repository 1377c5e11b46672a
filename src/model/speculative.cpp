#include "model/speculative.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "core/fixed_math.h"
#include "dodona/error.h"
#include "model/layer/values.h"
#include "ops/sampling/top_k_renorm_prob.h"
#include "ops/sampling/top_p_renorm_prob.h"
#include "ops/speculative/align_evict_mask_to_page_size.h"
#include "ops/speculative/assign_req_to_token_pool.h"
#include "ops/speculative/build_tree_kernel_efficient.h"
#include "ops/speculative/create_extend_after_decode_spec_info.h"
#include "ops/speculative/fast_topk.h"
#include "ops/speculative/get_target_cache_loc.h"
#include "ops/speculative/organize_draft_results.h"
#include "ops/speculative/select_top_k_tokens.h"
#include "ops/speculative/tree_speculative_sampling_target_only.h"
#include "ops/speculative/verify_tree_greedy.h"

namespace dodona::model {
namespace {

using Whole = std::vector<std::int64_t>;

std::span<float> row_of(const Tensor& t, std::int64_t row) {
  const std::int64_t width = t.size(-1);
  return {t.as<float>() + row * width, static_cast<std::size_t>(width)};
}

/// Matrices of as many rows, side by side.
Tensor side_by_side(const std::vector<Tensor>& parts, std::int64_t rows) {
  std::int64_t width = 0;
  for (const Tensor& part : parts) width += rows == 0 ? 0 : part.elements() / rows;
  const std::int64_t bytes = bits(parts.front().dtype()) / 8;
  Tensor whole(parts.front().dtype(), {rows, width});
  std::int64_t at = 0;
  for (const Tensor& part : parts) {
    const std::int64_t columns = rows == 0 ? 0 : part.elements() / rows;
    for (std::int64_t b = 0; b < rows; ++b)
      std::memcpy(whole.as<std::byte>() + (b * width + at) * bytes, part.as<const std::byte>() + b * columns * bytes,
                  static_cast<std::size_t>(columns * bytes));
    at += columns;
  }
  return whole;
}

/// fp32 softmax of logits / temperature.
void softmax(std::span<const float> logits, double temperature, std::span<float> probabilities) {
  double largest = -INFINITY, sum = 0;
  for (const float x : logits) largest = std::fmax(largest, static_cast<double>(x));
  const auto weight = [&](float x) { return fixed::exp((static_cast<double>(x) - largest) / temperature); };
  for (const float x : logits) sum += weight(x);
  for (std::size_t i = 0; i < logits.size(); ++i) probabilities[i] = static_cast<float>(weight(logits[i]) / sum);
}

Tensor softmax_rows(const Tensor& logits, double temperature) {
  Tensor result(DType::f32, logits.shape());
  for (std::int64_t t = 0; t < logits.elements() / logits.size(-1); ++t) softmax(row_of(logits, t), temperature, row_of(result, t));
  return result;
}

void require(bool holds, const char* option, double value, const std::string& expected) {
  if (holds) return;
  char text[32];
  std::snprintf(text, sizeof text, "%.15g", value);
  throw Error(ErrorCode::bad_option, "", option, std::string("is ") + text + ", expected " + expected);
}
void require(bool holds, const char* option, std::int64_t value, const std::string& expected) {
  if (!holds) throw Error(ErrorCode::bad_option, "", option, "is " + std::to_string(value) + ", expected " + expected);
}

std::int64_t whole_pages(std::int64_t tokens, std::int64_t page_size) {
  return (tokens + page_size - 1) / page_size;
}

}  // namespace

void check_setting(const SpeculativeSetting& s, std::int64_t vocabulary) {
  require(s.steps >= 1 && s.steps <= 64, "steps", s.steps, "1 to 64");
  require(s.topk >= 1 && s.topk <= 64, "topk", s.topk, "1 to 64");
  const std::int64_t candidates = s.topk + (s.steps - 1) * s.topk * s.topk;
  require(s.draft_tokens >= 1 && s.draft_tokens <= std::min<std::int64_t>(1024, candidates + 1), "draft_tokens", s.draft_tokens,
          "1 to " + std::to_string(std::min<std::int64_t>(1024, candidates + 1)) + ", the candidates and the root");
  require(s.topk > 1 || s.draft_tokens == s.steps + 1, "draft_tokens", s.draft_tokens, "steps + 1 where topk is 1");
  require(s.page_size >= 1 && s.page_size <= 1 << 16, "page_size", s.page_size, "1 to 65536");
  require(s.topk <= vocabulary, "topk", s.topk, "at most " + std::to_string(vocabulary) + ", the tokens that there are");
  require(s.end_token >= -1 && s.end_token < vocabulary, "end_token", s.end_token,
          "0 to " + std::to_string(vocabulary - 1) + ", or -1 for none");
  require(s.temperature >= 0 && std::isfinite(s.temperature), "temperature", s.temperature, "a finite number from 0");
  require(s.threshold_single >= 0 && s.threshold_single <= 1, "threshold_single", s.threshold_single, "0 to 1");
  require(s.threshold_acc >= 0 && s.threshold_acc <= 1, "threshold_acc", s.threshold_acc, "0 to 1");
}

// ---- the cache

TokenCache::TokenCache(std::int64_t requests, std::int64_t capacity, std::int64_t page_size)
    : page_size_(page_size), req_to_token_(tensor_of({}, {requests, whole_pages(capacity, page_size) * page_size}, DType::i32)) {
  const std::int64_t pages = requests * whole_pages(capacity, page_size);
  slots_.resize(static_cast<std::size_t>((pages + 1) * page_size));
  // Page 0 belongs to nobody, as upstream's; the last one is taken first, so that neighbours in a text are none in the cache.
  for (std::int64_t page = 1; page <= pages; ++page) free_.push_back(page);
  std::fill_n(req_to_token_.as<std::int32_t>(), req_to_token_.elements(), 0);
}

std::int64_t TokenCache::slot_of(std::int64_t request, std::int64_t i) const {
  return req_to_token_.as<const std::int32_t>()[request * req_to_token_.size(1) + i];
}

void TokenCache::allocate(std::int64_t request, std::int64_t length, std::int64_t count, std::span<std::int64_t> slots) {
  std::int64_t page = length % page_size_ == 0 ? 0 : slot_of(request, length - 1) / page_size_;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = (length + i) % page_size_;
    if (at == 0) {
      if (free_.empty() || length + i >= req_to_token_.size(1))
        throw Error(ErrorCode::out_of_memory, "", "cache",
                    "has no room for token " + std::to_string(length + i) + " of request " + std::to_string(request));
      page = free_.back();
      free_.pop_back();
    }
    slots[static_cast<std::size_t>(i)] = page * page_size_ + at;
  }
}

void TokenCache::free(std::span<const std::int64_t> slots) {
  Whole pages;
  for (const std::int64_t slot : slots) pages.push_back(slot / page_size_);
  std::sort(pages.begin(), pages.end());
  pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
  for (const std::int64_t page : pages) {
    free_.push_back(page);
    for (std::int64_t i = 0; i < page_size_; ++i) slot(page * page_size_ + i) = {};
  }
}

void TokenCache::move(std::span<const std::int64_t> to, std::span<const std::int64_t> from) {
  std::vector<CachedToken> held;
  for (const std::int64_t slot_from : from) held.push_back(slot(slot_from));
  for (std::size_t i = 0; i < to.size(); ++i) slot(to[i]) = held[i];
}

// ---- the decoder

SpeculativeDecoder::SpeculativeDecoder(const TargetModel& target, const DraftModel& draft, const SpeculativeSetting& setting,
                                       std::span<const Whole> prompts, std::int64_t most_tokens, std::span<const float> first_coins,
                                       Exec exec)
    : target_(target),
      draft_(draft),
      setting_((check_setting(setting, target.vocabulary()), setting)),
      exec_(std::move(exec)),
      cache_(static_cast<std::int64_t>(prompts.size()), most_tokens, setting.page_size) {
  Whole tokens, counts;
  std::vector<float> hidden;
  for (std::size_t b = 0; b < prompts.size(); ++b) {
    std::vector<float> states;
    const auto request = static_cast<std::int64_t>(b);
    const std::int64_t token = prefill(request, prompts[b], first_coins.empty() ? 0.0f : first_coins[b], states);
    texts_.push_back({token});
    if (is_finished(texts_.back())) continue;
    active_.push_back(request);
    // The draft reads what the target read, one token further.
    tokens.insert(tokens.end(), prompts[b].begin() + 1, prompts[b].end());
    tokens.push_back(token);
    hidden.insert(hidden.end(), states.begin(), states.end());
    counts.push_back(static_cast<std::int64_t>(prompts[b].size()));
  }
  if (active_.empty()) return;
  Tensor states(DType::f32, {static_cast<std::int64_t>(tokens.size()), target_.hidden_size()});
  std::copy(hidden.begin(), hidden.end(), states.as<float>());
  const auto count = static_cast<std::int64_t>(tokens.size());
  extend_draft(tensor_of(tokens, {count}), states, tensor_of(counts, {active()}));
}

SpeculativeDecoder::SpeculativeDecoder(const TargetModel& target, const DraftModel& draft, const SpeculativeSetting& setting,
                                       std::span<const Whole> prompts, const State& state, std::int64_t most_tokens, Exec exec)
    : target_(target),
      draft_(draft),
      setting_((check_setting(setting, target.vocabulary()), setting)),
      exec_(std::move(exec)),
      cache_(static_cast<std::int64_t>(prompts.size()), most_tokens, setting.page_size),
      texts_(state.texts),
      hidden_(state.hidden),
      topk_p_(state.topk_p),
      topk_index_(state.topk_index) {
  const auto refuse = [](const std::string& message) { throw Error(ErrorCode::bad_value, "", "state", message); };
  if (texts_.size() != prompts.size())
    refuse("has " + std::to_string(texts_.size()) + " texts, expected " + std::to_string(prompts.size()));
  Whole newest;
  for (std::size_t b = 0; b < prompts.size(); ++b) {
    if (texts_[b].empty()) refuse("has no token of request " + std::to_string(b));
    Whole text = prompts[b];
    text.insert(text.end(), texts_[b].begin(), texts_[b].end() - 1);
    cache_text(static_cast<std::int64_t>(b), text);
    if (is_finished(texts_[b])) continue;
    active_.push_back(static_cast<std::int64_t>(b));
    newest.push_back(texts_[b].back());
  }
  if (active_.empty()) return;
  const auto fits = [&](const Tensor& t, DType type, std::int64_t columns) {
    return t.defined() && t.dtype() == type && t.shape() == Dims{active(), columns};
  };
  if (!fits(hidden_, DType::f32, target_.hidden_size()) || !fits(topk_p_, DType::f32, setting_.topk) ||
      !fits(topk_index_, DType::i64, setting_.topk))
    refuse("does not fit the " + std::to_string(active()) + " requests that are not finished");
  verified_id_ = tensor_of(newest, {active()});
}

bool SpeculativeDecoder::is_finished(const Whole& text) const {
  return text.back() == setting_.end_token || (setting_.most_new > 0 && static_cast<std::int64_t>(text.size()) >= setting_.most_new);
}

bool SpeculativeDecoder::finished(std::int64_t request) const {
  return std::find(active_.begin(), active_.end(), request) == active_.end();
}

Tensor SpeculativeDecoder::lengths_of_active(std::int64_t more) const {
  Whole lengths;
  for (const std::int64_t b : active_) lengths.push_back(lengths_[static_cast<std::size_t>(b)] + more);
  return tensor_of(lengths, {active()});
}

Tensor SpeculativeDecoder::pool_indices() const {
  return tensor_of(active_, {active()});
}

/// Slots for a request's first tokens.
void SpeculativeDecoder::cache_text(std::int64_t request, std::span<const std::int64_t> text) {
  const auto count = static_cast<std::int64_t>(text.size());
  Whole slots(text.size());
  cache_.allocate(request, 0, count, slots);
  ops::run(ops::AssignReqToTokenPool{tensor_of({request}, {1}), cache_.req_to_token(), tensor_of({0}, {1}), tensor_of({count}, {1}),
                                     tensor_of(slots, {count})},
           exec_);
  lengths_.push_back(count);
  for (std::int64_t i = 0; i < count; ++i) cache_.token(request, i) = {text[static_cast<std::size_t>(i)], i};
}

/// Fills the cache of a request, gives the hidden state of each of its tokens, and the next one.
std::int64_t SpeculativeDecoder::prefill(std::int64_t request, std::span<const std::int64_t> prompt, float coin,
                                         std::vector<float>& hidden) {
  const auto count = static_cast<std::int64_t>(prompt.size());
  if (count == 0)
    throw Error(ErrorCode::bad_value, "", "prompts", "holds an empty one at " + std::to_string(request) + ", expected tokens");
  for (const std::int64_t token : prompt)
    if (token < 0 || token >= target_.vocabulary())
      throw Error(ErrorCode::bad_value, "", "prompts",
                  "holds token " + std::to_string(token) + ", expected 0 to " + std::to_string(target_.vocabulary() - 1));
  cache_text(request, prompt);
  const Answers answers{Tensor(DType::f32, {1, target_.vocabulary()}), Tensor(DType::f32, {count, target_.hidden_size()})};
  target_.read(request, prompt, row_of(answers.logits, 0), answers.hidden);
  hidden.assign(answers.hidden.as<float>(), answers.hidden.as<float>() + answers.hidden.elements());
  // The next token is that of a tree of nothing but its root.
  const Tree root{tensor_of({prompt.back()}, {1, 1}), {}, {}, tensor_of({0}, {1, 1}), tensor_of({-1}, {1, 1}), tensor_of({-1}, {1, 1})};
  Coins coins{Tensor(DType::f32, {1, 1}), Tensor(DType::f32, {1})};
  coins.last.as<float>()[0] = coin;
  return verify(root, answers, coins).predicts.as<const std::int32_t>()[0];
}

void SpeculativeDecoder::take_best(const Tensor& logits) {
  auto best = ops::run(ops::FastTopk{.values = softmax_rows(logits, 1), .out_values = {}, .indices = {}, .topk = setting_.topk}, exec_);
  topk_p_ = best.out_values;
  topk_index_ = best.indices;
}

void SpeculativeDecoder::extend_draft(const Tensor& tokens, const Tensor& hidden, const Tensor& counts) {
  const auto extended = ops::run(ops::CreateExtendAfterDecodeSpecInfo{tokens, lengths_of_active(), counts, {}, {}}, exec_);
  verified_id_ = Tensor(DType::i64, {active()});
  hidden_ = Tensor(DType::f32, {active(), target_.hidden_size()});
  const Tensor logits(DType::f32, {active(), target_.vocabulary()});
  std::vector<DraftQuery> asked;
  for (std::int64_t r = 0; r < active(); ++r) {
    verified_id_.as<std::int64_t>()[r] = extended.new_verified_id.as<const std::int32_t>()[r];
    for (std::int64_t j = 0; j < counts.as<const std::int64_t>()[r]; ++j) {
      const auto at = static_cast<std::int64_t>(asked.size());
      const std::int64_t position = extended.positions.as<const std::int64_t>()[at];
      asked.push_back(
          {active_[static_cast<std::size_t>(r)], tokens.as<const std::int64_t>()[at], position, position, -1, row_of(hidden, at), r});
    }
  }
  draft_.forward_all(asked, logits, hidden_);
  take_best(logits);
}

SpeculativeDecoder::Tree SpeculativeDecoder::draft_tree() {
  const std::int64_t k = setting_.topk, rows = active() * k;
  std::vector<Tensor> scores, tokens, parents;
  Tensor last_scores, hidden = hidden_;
  for (std::int64_t i = 0; i < setting_.steps; ++i) {
    ops::SelectTopKTokens call;
    call.topk_p = topk_p_, call.topk_index = topk_index_, call.hidden_states = hidden, call.scores = last_scores, call.i = i, call.topk = k;
    const auto beam = ops::run(call, exec_);
    scores.push_back(beam.tree_scores);
    tokens.push_back(beam.tree_tokens);
    parents.push_back(beam.tree_parents);
    last_scores = beam.out_scores;
    if (i + 1 == setting_.steps) break;
    const Tensor logits(DType::f32, {rows, target_.vocabulary()});
    hidden = Tensor(DType::f32, {rows, target_.hidden_size()});
    // Upstream raises positions before the step: the first drafted token stands one further than its place in the cache.
    std::vector<DraftQuery> asked;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t request = active_[static_cast<std::size_t>(r / k)], place = lengths_[static_cast<std::size_t>(request)] + i;
      asked.push_back({request, beam.input_ids.as<const std::int64_t>()[r], place + 1, place, r % k, row_of(beam.out_hidden_states, r), r});
    }
    draft_.forward_all(asked, logits, hidden);
    take_best(logits);
  }
  parents.pop_back();
  // With one step there are no parents; the builder reads none.
  if (parents.empty()) parents.push_back(tensor_of(Whole(static_cast<std::size_t>(active()), -1), {active(), 1}));
  const auto organized = ops::run(ops::OrganizeDraftResults{side_by_side(scores, active()),
                                                            side_by_side(tokens, active()),
                                                            side_by_side(parents, active()),
                                                            {},
                                                            {},
                                                            {},
                                                            setting_.draft_tokens},
                                  exec_);
  ops::BuildTreeKernelEfficient build;
  build.parent_list = organized.parent_list, build.selected_index = organized.top_scores_index,
  build.verified_seq_len = lengths_of_active();
  build.topk = k, build.depth = setting_.steps, build.draft_token_num = setting_.draft_tokens;
  std::int64_t mask = 0;
  for (const std::int64_t b : active_) mask += setting_.draft_tokens * (lengths_[static_cast<std::size_t>(b)] + setting_.draft_tokens);
  build.tree_mask = Tensor(DType::boolean, {mask});
  build = ops::run(build, exec_);
  return {side_by_side({verified_id_.reshape({active(), 1}), organized.draft_tokens}, active()),
          build.tree_mask,
          build.positions,
          build.retrive_index,
          build.retrive_next_token,
          build.retrive_next_sibling};
}

/// Each node sees what its row of the mask lets it see of the request's slots.
SpeculativeDecoder::Answers SpeculativeDecoder::ask_target(const Tree& tree, std::span<const std::int64_t> slots) {
  const std::int64_t nodes = setting_.draft_tokens;
  Answers answers{Tensor(DType::f32, {active() * nodes, target_.vocabulary()}),
                  Tensor(DType::f32, {active() * nodes, target_.hidden_size()})};
  for (std::size_t i = 0; i < slots.size(); ++i)
    cache_.slot(slots[i]) = {tree.draft_tokens.as<const std::int64_t>()[i], tree.positions.as<const std::int64_t>()[i]};
  const std::uint8_t* visible = tree.tree_mask.as<const std::uint8_t>();
  std::vector<TargetQuery> asked;
  for (std::int64_t row = 0; row < active() * nodes; ++row) {
    const std::int64_t request = active_[static_cast<std::size_t>(row / nodes)],
                       width = lengths_[static_cast<std::size_t>(request)] + nodes;
    asked.push_back({request, {}});
    for (std::int64_t i = 0; i < width; ++i)
      if (visible[i] != 0) asked.back().seen.push_back(cache_.token(request, i));
    visible += width;
  }
  target_.forward_all(asked, answers.logits, answers.hidden);
  return answers;
}

SpeculativeDecoder::Path SpeculativeDecoder::verify(const Tree& tree, const Answers& answers, const Coins& coins) const {
  const std::int64_t requests = tree.draft_tokens.size(0), nodes = tree.draft_tokens.size(1);
  Path path{Tensor(DType::i32, {requests * nodes}), Tensor(DType::i32, {requests, setting_.steps + 1}), {}};
  if (setting_.temperature == 0) {
    const auto best = ops::run(ops::FastTopk{.values = answers.logits, .out_values = {}, .indices = {}, .topk = 1}, exec_);
    path.accept_token_num = ops::run(ops::VerifyTreeGreedy{path.predicts,
                                                           path.accept_index,
                                                           {},
                                                           tree.draft_tokens,
                                                           tree.retrive_index,
                                                           tree.retrive_next_token,
                                                           tree.retrive_next_sibling,
                                                           best.indices.reshape({requests, nodes})},
                                     exec_)
                                .accept_token_num;
    return path;
  }
  ops::TreeSpeculativeSamplingTargetOnly call;
  call.predicts = path.predicts, call.accept_index = path.accept_index, call.candidates = tree.draft_tokens;
  call.retrive_index = tree.retrive_index, call.retrive_next_token = tree.retrive_next_token;
  call.retrive_next_sibling = tree.retrive_next_sibling;
  call.uniform_samples = coins.nodes, call.uniform_samples_for_final_sampling = coins.last;
  Tensor probs = softmax_rows(answers.logits, setting_.temperature);
  if (setting_.top_k > 0) probs = ops::run(ops::TopKRenormProb{.probs = probs, .top_k = setting_.top_k}, exec_).renorm_probs;
  if (setting_.top_p < 1) probs = ops::run(ops::TopPRenormProb{.probs = probs, .top_p = setting_.top_p}, exec_).renorm_probs;
  call.target_probs = probs.reshape({requests, nodes, target_.vocabulary()});
  call.draft_probs = Tensor(DType::f32, {requests, nodes, target_.vocabulary()});
  std::fill_n(call.draft_probs.as<float>(), call.draft_probs.elements(), 0.0f);
  call.threshold_single = setting_.threshold_single, call.threshold_acc = setting_.threshold_acc;
  path.accept_token_num = ops::run(call, exec_).accept_token_num;
  return path;
}

/// Slots of accepted nodes stay, or what they hold moves to the first ones; the others are given back.
void SpeculativeDecoder::keep_accepted(const Path& path, std::span<const std::int64_t> slots) {
  const std::int64_t nodes = setting_.draft_tokens, page = setting_.page_size, width = path.accept_index.size(1);
  Whole accepted;
  std::vector<bool> kept(slots.size(), false);
  for (std::int64_t i = 0; i < active() * width; ++i)
    if (const std::int32_t place = path.accept_index.as<const std::int32_t>()[i]; place >= 0) {
      accepted.push_back(slots[static_cast<std::size_t>(place)]);
      kept[static_cast<std::size_t>(place)] = true;
    }
  const auto count = static_cast<std::int64_t>(accepted.size());
  if (page > 1 && setting_.topk > 1) {
    Whole freed_slots;
    std::int64_t freed = 0;
    for (std::int64_t r = 0; r < active(); ++r) {
      const std::int64_t length = lengths_[static_cast<std::size_t>(active_[static_cast<std::size_t>(r)])];
      const std::int64_t end = length + path.accept_token_num.as<const std::int32_t>()[r] + 1;
      freed_slots.push_back(length + nodes - std::min(whole_pages(end, page) * page, length + nodes));
      freed += freed_slots.back();
    }
    const auto parted = ops::run(
        ops::GetTargetCacheLoc{Tensor(DType::i64, {count}), Tensor(DType::i64, {freed}), path.accept_token_num,
                               tensor_of(freed_slots, {active()}), tensor_of({slots.begin(), slots.end()}, {active() * nodes}), nodes},
        exec_);
    cache_.move({parted.tgt_cache_loc.as<const std::int64_t>(), accepted.size()}, accepted);
    cache_.free({parted.to_free_slots.as<const std::int64_t>(), static_cast<std::size_t>(freed)});
    return;
  }
  Tensor evicted(DType::boolean, {active(), nodes});
  for (std::size_t i = 0; i < kept.size(); ++i) evicted.as<std::uint8_t>()[i] = kept[i] ? 0 : 1;
  if (page > 1) evicted = ops::run(ops::AlignEvictMaskToPageSize{lengths_of_active(), evicted, page, nodes}, exec_).evict_mask;
  Whole freed;
  for (std::size_t i = 0; i < slots.size(); ++i)
    if (evicted.as<const std::uint8_t>()[i] != 0) freed.push_back(slots[i]);
  cache_.free(freed);
  Whole ends;
  for (std::int64_t r = 0; r < active(); ++r)
    ends.push_back(lengths_[static_cast<std::size_t>(active_[static_cast<std::size_t>(r)])] +
                   path.accept_token_num.as<const std::int32_t>()[r] + 1);
  ops::run(ops::AssignReqToTokenPool{pool_indices(), cache_.req_to_token(), lengths_of_active(), tensor_of(ends, {active()}),
                                     tensor_of(accepted, {count})},
           exec_);
}

/// Tokens are handed out, stop conditions looked at, and the next draft begins behind what goes on.
SpeculativeStep SpeculativeDecoder::emit(const Path& path, const Answers& answers) {
  SpeculativeStep step;
  step.requests.resize(texts_.size());
  Whole going_on, tokens, counts, places;
  const std::int64_t width = path.accept_index.size(1);
  for (std::int64_t r = 0; r < active(); ++r) {
    const std::int64_t request = active_[static_cast<std::size_t>(r)], count = path.accept_token_num.as<const std::int32_t>()[r] + 1;
    auto& emitted = step.requests[static_cast<std::size_t>(request)];
    for (std::int64_t j = 0; j < count && !emitted.finished; ++j) {
      const std::int32_t place = path.accept_index.as<const std::int32_t>()[r * width + j];
      emitted.tokens.push_back(path.predicts.as<const std::int32_t>()[place]);
      emitted.finished = emitted.tokens.back() == setting_.end_token;
      places.push_back(place);
    }
    emitted.accepted = static_cast<std::int64_t>(emitted.tokens.size()) - 1;
    auto& text = texts_[static_cast<std::size_t>(request)];
    text.insert(text.end(), emitted.tokens.begin(), emitted.tokens.end());
    emitted.finished = emitted.finished || (setting_.most_new > 0 && static_cast<std::int64_t>(text.size()) >= setting_.most_new);
    lengths_[static_cast<std::size_t>(request)] += count;
    if (emitted.finished) {
      places.resize(places.size() - emitted.tokens.size());
      continue;
    }
    going_on.push_back(request);
    counts.push_back(count);
    tokens.insert(tokens.end(), emitted.tokens.begin(), emitted.tokens.end());
  }
  active_ = going_on;
  if (active_.empty()) return step;
  const auto total = static_cast<std::int64_t>(tokens.size());
  const Tensor hidden(DType::f32, {total, target_.hidden_size()});
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto from = row_of(answers.hidden, places[i]);
    std::copy(from.begin(), from.end(), row_of(hidden, static_cast<std::int64_t>(i)).begin());
  }
  extend_draft(tensor_of(tokens, {total}), hidden, tensor_of(counts, {active()}));
  return step;
}

SpeculativeStep SpeculativeDecoder::step(const Coins& coins) {
  if (active_.empty()) {
    SpeculativeStep nothing;
    nothing.requests.resize(texts_.size());
    return nothing;
  }
  const std::int64_t nodes = setting_.draft_tokens;
  const Tree tree = draft_tree();
  Whole slots(static_cast<std::size_t>(active() * nodes));
  for (std::int64_t r = 0; r < active(); ++r) {
    const std::int64_t request = active_[static_cast<std::size_t>(r)];
    cache_.allocate(request, lengths_[static_cast<std::size_t>(request)], nodes,
                    std::span(slots).subspan(static_cast<std::size_t>(r * nodes), static_cast<std::size_t>(nodes)));
  }
  ops::run(ops::AssignReqToTokenPool{pool_indices(), cache_.req_to_token(), lengths_of_active(), lengths_of_active(nodes),
                                     tensor_of(slots, {active() * nodes})},
           exec_);
  const Answers answers = ask_target(tree, slots);
  Coins own;
  if (setting_.temperature != 0) {
    // Of the batch's coins, those of the requests that are not finished.
    own = {Tensor(DType::f32, {active(), nodes}), Tensor(DType::f32, {active()})};
    for (std::int64_t r = 0; r < active(); ++r) {
      const std::int64_t request = active_[static_cast<std::size_t>(r)];
      std::copy_n(coins.nodes.as<const float>() + request * nodes, nodes, own.nodes.as<float>() + r * nodes);
      own.last.as<float>()[r] = coins.last.as<const float>()[request];
    }
  }
  const Path path = verify(tree, answers, own);
  keep_accepted(path, slots);
  SpeculativeStep result = emit(path, answers);
  result.draft_tokens = tree.draft_tokens;
  result.retrive_next_token = tree.retrive_next_token;
  result.retrive_next_sibling = tree.retrive_next_sibling;
  return result;
}

Whole decode_greedily(const TargetModel& target, std::span<const std::int64_t> prompt, std::int64_t tokens, std::int64_t end_token) {
  std::vector<CachedToken> seen;
  for (const std::int64_t token : prompt) seen.push_back({token, static_cast<std::int64_t>(seen.size())});
  std::vector<float> logits(static_cast<std::size_t>(target.vocabulary())), hidden(static_cast<std::size_t>(target.hidden_size()));
  Whole text;
  while (static_cast<std::int64_t>(text.size()) < tokens && (text.empty() || text.back() != end_token)) {
    target.forward(seen, logits, hidden);
    text.push_back(std::max_element(logits.begin(), logits.end()) - logits.begin());
    seen.push_back({text.back(), static_cast<std::int64_t>(seen.size())});
  }
  return text;
}

}  // namespace dodona::model
