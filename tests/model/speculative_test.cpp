// Speculative decoding, step by step: the text, what lies in the cache, and the distribution of what is sampled.
#include "model/speculative.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "core/random.h"
#include "dodona/error.h"
#include "tests/errors.h"

namespace dodona::model {
namespace {

using Tokens = std::vector<std::int64_t>;

Exec in_mode(Mode mode) {
  Exec exec;
  exec.mode = mode;
  exec.threads = 1;
  return exec;
}

struct Settings {
  std::int64_t steps, topk, draft_tokens, page_size;
};
constexpr Settings tried[] = {{3, 1, 4, 1},  {3, 1, 4, 8},  {1, 1, 2, 4},  {3, 2, 8, 1},
                              {5, 4, 8, 16}, {2, 3, 12, 4}, {4, 8, 64, 3}, {1, 5, 3, 2}};

SpeculativeSetting setting_of(const Settings& s) {
  SpeculativeSetting setting;
  setting.steps = s.steps, setting.topk = s.topk, setting.draft_tokens = s.draft_tokens, setting.page_size = s.page_size;
  return setting;
}

std::string name(const Settings& s) {
  return std::to_string(s.steps) + " steps, " + std::to_string(s.topk) + " beams, " + std::to_string(s.draft_tokens) + " nodes, pages of " +
         std::to_string(s.page_size);
}

const std::vector<Tokens> prompts{{5, 1, 7}, {2}, {9, 9, 3, 0, 11, 4}};
constexpr std::int64_t room = 200;

/// The cache holds the prompt and the text but for its newest token, each at its place; other pages belong to nobody.
void expect_cache(const SpeculativeDecoder& decoder, std::int64_t page_size, const std::string& where) {
  std::int64_t pages = 0;
  for (std::int64_t b = 0; b < decoder.requests(); ++b) {
    Tokens all = prompts[static_cast<std::size_t>(b)];
    all.insert(all.end(), decoder.text(b).begin(), decoder.text(b).end());
    ASSERT_EQ(decoder.length(b), static_cast<std::int64_t>(all.size()) - 1) << where;
    for (std::int64_t i = 0; i < decoder.length(b); ++i) {
      EXPECT_EQ(decoder.cache().token(b, i).token, all[static_cast<std::size_t>(i)]) << where << ", token " << i << " of request " << b;
      EXPECT_EQ(decoder.cache().token(b, i).position, i) << where;
    }
    pages += (decoder.length(b) + page_size - 1) / page_size;
  }
  EXPECT_EQ(decoder.cache().free_pages(), decoder.requests() * ((room + page_size - 1) / page_size) - pages) << where;
}

TEST(SpeculativeDecoding, WithTemperatureZeroTheTextIsThatOfPlainDecodingWhateverTheDraftSays) {
  const BigramTarget target(13, 7, 2);
  for (const Mode mode : {Mode::golden, Mode::fast, Mode::hopper})
    for (const double agreement : {1.0, 0.7, 0.0}) {
      const BlurredDraft draft(target, 8, 2, agreement);
      for (const Settings& s : tried) {
        SpeculativeDecoder decoder(target, draft, setting_of(s), prompts, room, {}, in_mode(mode));
        for (int i = 0; i < 12; ++i) {
          decoder.step({});
          expect_cache(decoder, s.page_size, name(s));
          if (HasFailure()) return;
        }
        for (std::int64_t b = 0; b < decoder.requests(); ++b)
          EXPECT_EQ(decoder.text(b),
                    decode_greedily(target, prompts[static_cast<std::size_t>(b)], static_cast<std::int64_t>(decoder.text(b).size())))
              << name(s) << ", agreement " << agreement << ", request " << b;
      }
    }
}

TEST(SpeculativeDecoding, ADraftThatIsTheTargetIsAcceptedWhole) {
  const BigramTarget target(30, 3, 2);
  const BlurredDraft same(target, 8, 2, 1);
  for (const Settings& s : {Settings{3, 1, 4, 1}, Settings{6, 1, 7, 4}}) {
    SpeculativeDecoder decoder(target, same, setting_of(s), prompts, room, {}, in_mode(Mode::fast));
    for (int i = 0; i < 5; ++i)
      for (const auto& request : decoder.step({}).requests) EXPECT_EQ(request.accepted, s.steps) << name(s);
  }
}

TEST(SpeculativeDecoding, BehindTheEndTokenARequestEmitsNothing) {
  const BigramTarget target(6, 5, 2);
  const BlurredDraft draft(target, 8, 2, 0.9);
  for (std::int64_t end = 0; end < 6; ++end) {
    SpeculativeSetting setting = setting_of(tried[3]);
    setting.end_token = end;
    const std::vector<Tokens> short_prompts{{1, 2}, {3}, {5, 5, 0}};
    SpeculativeDecoder decoder(target, draft, setting, short_prompts, room, {}, in_mode(Mode::fast));
    for (int i = 0; i < 10; ++i) decoder.step({});
    for (std::int64_t b = 0; b < 3; ++b) {
      const Tokens& text = decoder.text(b);
      EXPECT_EQ(text, decode_greedily(target, short_prompts[static_cast<std::size_t>(b)], static_cast<std::int64_t>(text.size()), end));
      EXPECT_EQ(decoder.finished(b), text.back() == end);
      EXPECT_EQ(std::count(text.begin(), text.end(), end), decoder.finished(b) ? 1 : 0);
    }
  }
}

// ---- sampling, over all coins: of every cell of coins that decides the same, its middle

struct Enumeration {
  const BigramTarget& target;
  const BlurredDraft& draft;
  SpeculativeSetting setting;
  Tokens prompt;
  Mode mode;
  std::map<Tokens, double> emitted = {};  ///< probability of what one step emits
  SpeculativeStep tree = {};
  std::int64_t first = -1;

  SpeculativeStep run(const std::vector<double>& nodes, double last, std::int64_t* first_token = nullptr) const {
    const float start = 0.5f;
    SpeculativeDecoder decoder(target, draft, setting, std::vector<Tokens>{prompt}, 64, {&start, 1}, in_mode(mode));
    if (first_token != nullptr) *first_token = decoder.text(0).back();
    Coins coins{Tensor(DType::f32, {1, setting.draft_tokens}), Tensor(DType::f32, {1})};
    for (std::int64_t i = 0; i < setting.draft_tokens; ++i)
      coins.nodes.as<float>()[i] = static_cast<float>(nodes[static_cast<std::size_t>(i)]);
    coins.last.as<float>()[0] = static_cast<float>(last);
    return decoder.step(coins);
  }

  /// The target's distribution behind the prompt, the first token and these.
  std::vector<double> q(const Tokens& behind) const {
    Tokens text = prompt;
    text.push_back(first);
    text.insert(text.end(), behind.begin(), behind.end());
    std::vector<float> logits(static_cast<std::size_t>(target.vocabulary()));
    target.row(text.size() > 1 ? text[text.size() - 2] : -1, text.back(), logits);
    std::vector<double> weights;
    double sum = 0;
    for (const float x : logits) sum += weights.emplace_back(std::exp(static_cast<double>(x) / setting.temperature));
    for (double& weight : weights) weight /= sum;
    return weights;
  }

  void leaf(const Tokens& path, const std::vector<double>& coins, double probability, const std::vector<bool>& left_out) {
    const std::vector<double> weights = q(path);
    double sum = 0, before = 0;
    for (std::size_t v = 0; v < weights.size(); ++v) sum += left_out[v] ? 0 : weights[v];
    for (std::size_t v = 0; v < weights.size(); ++v) {
      if (left_out[v]) continue;
      const double share = weights[v] / sum;
      const SpeculativeStep step = run(coins, before + share / 2);
      Tokens expected = path;
      expected.push_back(static_cast<std::int64_t>(v));
      EXPECT_EQ(step.requests[0].tokens, expected);
      emitted[step.requests[0].tokens] += probability * share;
      before += share;
    }
  }

  void node(std::int64_t at, const Tokens& path, std::vector<double> coins, double probability) {
    std::vector<bool> tokens_of_children(static_cast<std::size_t>(target.vocabulary()), false);
    if (static_cast<std::int64_t>(path.size()) == setting.steps) return leaf(path, coins, probability, tokens_of_children);
    const std::vector<double> weights = q(path);
    double before = 0;
    for (std::int64_t child = tree.retrive_next_token.as<const std::int64_t>()[at]; child != -1;
         child = tree.retrive_next_sibling.as<const std::int64_t>()[child]) {
      const std::int64_t token = tree.draft_tokens.as<const std::int64_t>()[child];
      const double share = weights[static_cast<std::size_t>(token)];
      coins[static_cast<std::size_t>(at)] = before + share / 2;
      Tokens longer = path;
      longer.push_back(token);
      node(child, longer, coins, probability * share);
      tokens_of_children[static_cast<std::size_t>(token)] = true;
      before += share;
    }
    coins[static_cast<std::size_t>(at)] = (before + 1) / 2;
    if (before < 1 - 1e-9) leaf(path, coins, probability * (1 - before), tokens_of_children);
  }

  void enumerate() {
    const std::vector<double> anything(static_cast<std::size_t>(setting.draft_tokens), 0.5);
    tree = run(anything, 0.5, &first);
    node(0, {}, anything, 1);
  }
};

TEST(SpeculativeDecoding, WhatIsSampledIsDistributedAsTheTargetWhateverTheDraftSays) {
  constexpr std::int64_t vocabulary = 4;
  const BigramTarget target(vocabulary, 21, 1.2);
  for (const Mode mode : {Mode::golden, Mode::hopper})
    for (const double agreement : {0.9, 0.0})
      for (const Settings& s : {Settings{2, 2, 5, 1}, Settings{2, 1, 3, 4}, Settings{2, 3, 9, 2}}) {
        const BlurredDraft draft(target, 8, 1.5, agreement);
        SpeculativeSetting setting = setting_of(s);
        setting.temperature = 0.8;
        Enumeration all{target, draft, setting, {2, 1}, mode};
        all.enumerate();
        double total = 0;
        for (const auto& [tokens, probability] : all.emitted) total += probability;
        EXPECT_NEAR(total, 1, 1e-12);
        // Whatever a step emits, plain sampling goes on behind it: texts of one token more than are drafted.
        Tokens text(static_cast<std::size_t>(s.steps + 1), 0);
        const std::function<void(std::size_t)> each = [&](std::size_t at) {
          if (at < text.size()) {
            for (text[at] = 0; text[at] < vocabulary; ++text[at]) each(at + 1);
            return;
          }
          const auto plain = [&](std::size_t from) {
            double probability = 1;
            for (std::size_t i = from; i < text.size(); ++i)
              probability *= all.q(Tokens(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(i)))[static_cast<std::size_t>(text[i])];
            return probability;
          };
          double speculative = 0;
          for (const auto& [tokens, probability] : all.emitted)
            if (std::equal(tokens.begin(), tokens.end(), text.begin())) speculative += probability * plain(tokens.size());
          EXPECT_NEAR(speculative, plain(0), 1e-12) << name(s);
        };
        each(0);
      }
}

TEST(SpeculativeDecoding, SettingsThatNoDraftHasAreRefusedByName) {
  const BigramTarget target(5, 1, 1);
  const BlurredDraft draft(target, 2, 1, 1);
  const auto error_of = [&](SpeculativeSetting setting, std::vector<Tokens> texts = {{1}}, std::int64_t most = room) -> std::string {
    return helpers::message_in([&] {
      SpeculativeDecoder decoder(target, draft, setting, texts, most, {}, in_mode(Mode::fast));
      for (int i = 0; i < 50; ++i) decoder.step({});
    });
  };
  SpeculativeSetting setting;
  setting.draft_tokens = 5;
  EXPECT_NE(error_of(setting).find("draft_tokens is 5, expected 1 to 4"), std::string::npos) << error_of(setting);
  setting.draft_tokens = 3;
  EXPECT_NE(error_of(setting).find("expected steps + 1 where topk is 1"), std::string::npos);
  setting = {};
  setting.steps = 0;
  EXPECT_NE(error_of(setting).find("steps is 0"), std::string::npos);
  setting = {};
  setting.temperature = -1;
  EXPECT_NE(error_of(setting).find("temperature"), std::string::npos);
  EXPECT_NE(error_of({}, {{}}).find("prompts holds an empty one at 0"), std::string::npos);
  EXPECT_NE(error_of({}, {{5}}).find("prompts holds token 5, expected 0 to 4"), std::string::npos);
  EXPECT_NE(error_of({}, {{1}}, 12).find("cache has no room for token 12 of request 0"), std::string::npos) << error_of({}, {{1}}, 12);
}

}  // namespace
}  // namespace dodona::model
