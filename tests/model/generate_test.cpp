// Whole models: the recorded one's tokens, the same tokens whichever way they are asked for, drafts that change nothing.
#include "model/generate.h"

#include <algorithm>
#include <cmath>

#include "core/define.h"
#include "helpers.h"
#include "io/safetensors.h"
#include "model/weights/weights.h"
#include "ops/gemm/linear.h"
#include "quant/element.h"

namespace dodona::model {
namespace {

using testing::bytes;
using testing::expect_error;
using testing::TempFolder;
using Tokens = std::vector<std::int64_t>;

const Exec two_threads{.mode = Mode::fast, .threads = 2};

std::vector<Tokens> texts_of(Generation generation) {
  while (!generation.done()) generation.round();
  return generation.texts();
}

std::vector<Tokens> recorded(const io::SafetensorsFile& file, const std::string& name) {
  const Tensor all = file.tensor(name);
  std::vector<Tokens> rows(static_cast<std::size_t>(all.size(0)));
  for (std::int64_t i = 0; i < all.elements(); ++i)
    rows[static_cast<std::size_t>(i / all.size(1))].push_back(static_cast<std::int64_t>(quant::get(all, i)));
  return rows;
}

TEST(Generate, TheRecordedModelsTokensComeOut) {
  const std::string folder = DODONA_SOURCE_DIR "/tests/golden/_models/tiny-b";
  const auto file = io::SafetensorsFile::open(folder + "/expected.safetensors");
  const ModelConfig config = load_config(folder);
  const auto source = open_checkpoint(folder, config);
  const std::vector<Tokens> prompts = recorded(file, "input_ids"), tokens = recorded(file, "f64.decode.tokens");
  for (const std::int64_t chunk : {5, 512})
    EXPECT_EQ(
        texts_of(
            {*source,
             {.rounding = Rounding::off},
             {.prompts = prompts, .max_new = static_cast<std::int64_t>(tokens[0].size()), .sampling = {.temperature = 0}, .chunk = chunk},
             {.mode = Mode::fast, .threads = 1}}),
        tokens)
        << chunk;
}

struct Way {
  const char* name;
  std::int64_t chunk;
  Exec exec;
};

class Ways : public ::testing::TestWithParam<std::string> {};

TEST_P(Ways, ChunksThreadsTiersAndCompanyChangeNoToken) {
  const ModelConfig config = preset(GetParam());
  const auto source = synthetic_weights(config, 3, {});
  const std::vector<Tokens> prompts{{5, 17, 3, 300, 2, 9, 9}, {1}, {44, 511, 0, 8}};
  for (const bool greedy : {true, false}) {
    GenerateRequest request{.prompts = prompts, .max_new = 5, .seed = 11};
    request.sampling = greedy ? SamplingParams{.temperature = 0} : SamplingParams{.temperature = 0.8, .top_p = 0.9, .top_k = 50};
    const std::vector<Tokens> expected = texts_of({*source, {}, request, two_threads});
    for (const Tokens& text : expected) EXPECT_EQ(text.size(), 5U);
    for (const Way& way : {Way{"one by one", 1, two_threads}, Way{"chunks of three", 3, two_threads},
                           Way{"one thread", 512, {.mode = Mode::fast, .threads = 1}},
                           Way{"generic", 512, {.mode = Mode::fast, .threads = 3, .isa = Isa::generic}}}) {
      request.chunk = way.chunk;
      EXPECT_EQ(texts_of({*source, {}, request, way.exec}), expected) << way.name;
    }
    for (std::size_t r = 0; r < prompts.size(); ++r) {
      GenerateRequest alone = request;
      alone.prompts = {prompts[r]};
      alone.seed = request.seed + static_cast<std::int32_t>(r);
      EXPECT_EQ(texts_of({*source, {}, alone, two_threads})[0], expected[r]) << "alone";
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Presets, Ways, ::testing::Values("tiny", "tiny-fp8", "tiny-v32"), [](const auto& test) {
  std::string id = test.param;
  std::replace(id.begin(), id.end(), '-', '_');
  return id;
});

TEST(Generate, AnEndTokenEndsItsRequestAlone) {
  const auto source = synthetic_weights(preset("tiny"), 3, {});
  GenerateRequest request{.prompts = {{5, 17, 3}, {1, 2}}, .max_new = 6, .sampling = {.temperature = 0}};
  const std::vector<Tokens> whole = texts_of({*source, {}, request, two_threads});
  request.end_token = whole[0][2];
  const std::vector<Tokens> ended = texts_of({*source, {}, request, two_threads});
  EXPECT_EQ(ended[0], Tokens(whole[0].begin(), whole[0].begin() + 3));
  EXPECT_GE(ended[1].size(), 1U);
}

TEST(Generate, ARoundThatIsLeftIsGoneOnFromAFile) {
  const TempFolder folder;
  const auto source = synthetic_weights(preset("tiny"), 3, {});
  const GenerateRequest request{.prompts = {{5, 17, 3, 8}, {1, 2}}, .max_new = 4, .sampling = {.temperature = 0}, .chunk = 3};
  const std::vector<Tokens> whole = texts_of({*source, {}, request, two_threads});
  for (const int rounds : {0, 1, 3}) {
    Generation left(*source, {}, request, two_threads);
    for (int i = 0; i < rounds; ++i) left.round();
    const std::vector<Tokens> before = left.texts();
    EXPECT_THROW(left.round([](const LayerTiming& timing) {
      if (timing.layer == 1) throw Error(ErrorCode::bad_value, "", "", "interrupted");
    }),
                 Error);
    EXPECT_EQ(left.texts(), before);
    write_state(folder.file("state"), left.state(), "key");
    Generation on(*source, {}, request, two_threads);
    on.resume(read_state(folder.file("state"), "key"));
    EXPECT_EQ(texts_of(std::move(on)), whole) << rounds;
  }
  expect_error([&] { read_state(folder.file("state"), "other"); }, ErrorCode::bad_value, {"state of another call"});
}

TEST(Generate, WhatCannotBeIsRefusedBeforeAnythingRuns) {
  const auto source = synthetic_weights(preset("tiny"), 3, {});
  const auto refuses = [&](const GenerateRequest& request, ErrorCode code, const std::vector<std::string>& parts) {
    expect_error([&] { Generation(*source, {}, request, two_threads); }, code, parts);
  };
  refuses({.prompts = {{}}}, ErrorCode::bad_value, {"prompt", "is empty"});
  refuses({.prompts = {{5, 512}}}, ErrorCode::bad_value, {"token 512", "0 to 511"});
  refuses({.prompts = {Tokens(163840, 1)}, .max_new = 1}, ErrorCode::bad_value, {"163840 tokens", "163840 positions"});
  refuses({.prompts = {{1}}, .sampling = {.min_p = 0.5}, .draft_steps = 2}, ErrorCode::unsupported, {"min-p"});
  ModelConfig without = preset("tiny");
  without.num_nextn_predict_layers = 0;
  const auto plain = synthetic_weights(without, 3, {});
  expect_error([&] { Generation(*plain, {}, {.prompts = {{1}}, .draft_steps = 2}, two_threads); }, ErrorCode::unsupported,
               {"has no NextN layer"});
}

TEST(Generate, GreedyTextWithDraftsIsGreedyTextWithout) {
  for (const char* name : {"tiny", "tiny-fp8"}) {
    const auto source = synthetic_weights(preset(name), 3, {});
    GenerateRequest request{.prompts = {{5, 17, 3, 8}, {1, 2}}, .max_new = 7, .sampling = {.temperature = 0}};
    const std::vector<Tokens> plain = texts_of({*source, {}, request, two_threads});
    for (const std::int64_t steps : {1, 3}) {
      request.draft_steps = steps;
      EXPECT_EQ(texts_of({*source, {}, request, two_threads}), plain) << name << " " << steps;
    }
  }
}

/// Drafts the text that the target is known to write, with a slip now and then.
class Knowing final : public DraftModel {
 public:
  Knowing(std::vector<Tokens> prompts, std::vector<Tokens> texts, std::int64_t vocabulary)
      : prompts_(std::move(prompts)), texts_(std::move(texts)), vocabulary_(vocabulary) {}
  void forward(std::int64_t, std::int64_t, std::span<const float>, std::span<float>, std::span<float>) const override {}
  void forward_all(std::span<const DraftQuery> asked, const Tensor& logits, const Tensor&) const override {
    for (const DraftQuery& query : asked) {
      // Behind the token at place + 1 of the whole text.
      const auto r = static_cast<std::size_t>(query.request);
      const auto next = query.place + 2 - static_cast<std::int64_t>(prompts_[r].size());
      const bool known = next >= 0 && next < static_cast<std::int64_t>(texts_[r].size());
      const std::int64_t token = known ? (texts_[r][static_cast<std::size_t>(next)] + (next % 5 == 4 ? 1 : 0)) % vocabulary_ : 0;
      for (std::int64_t v = 0; v < vocabulary_; ++v) logits.as<float>()[query.row * vocabulary_ + v] = v == token ? 9.0f : 0.0f;
    }
  }

 private:
  std::vector<Tokens> prompts_, texts_;
  std::int64_t vocabulary_;
};

TEST(Generate, AcceptedDraftsLeaveTheTextAsItIsInChainsAndTrees) {
  const auto source = synthetic_weights(preset("tiny"), 3, {});
  const std::vector<Tokens> prompts{{5, 17, 3, 8}, {1, 2}};
  const std::vector<Tokens> plain =
      texts_of({*source, {}, {.prompts = prompts, .max_new = 12, .sampling = {.temperature = 0}}, two_threads});
  const Knowing draft(prompts, plain, 512);
  for (const std::int64_t topk : {1, 2}) {
    LanguageModel model(*source, {}, two_threads, Tokens{40, 40});
    const SpeculativeTarget target(model, 2);
    const SpeculativeSetting setting{.steps = 3, .topk = topk, .draft_tokens = topk == 1 ? 4 : 6, .most_new = 12};
    SpeculativeDecoder decoder(target, draft, setting, prompts, 40, {}, two_threads);
    std::int64_t accepted = 0;
    while (!decoder.finished(0) || !decoder.finished(1))
      for (const auto& request : decoder.step({}).requests) accepted += request.accepted;
    EXPECT_GT(accepted, 10) << topk;
    for (std::size_t r = 0; r < 2; ++r) {
      const Tokens& text = decoder.text(static_cast<std::int64_t>(r));
      EXPECT_EQ(Tokens(text.begin(), text.begin() + 12), plain[r]) << topk;
    }
  }
}

/// enorm and hnorm, embedding first; eh_proj; what the layer gives; shared_head.norm: in double but for the layer itself.
TEST(Generate, TheDraftIsTheFormulaOfNextN) {
  const ModelConfig config = preset("tiny");
  const auto source = synthetic_weights(config, 3, {});
  LanguageModel model(*source, {.rounding = Rounding::off}, two_threads, Tokens{8});
  const NextnDraft draft(model, Tokens{8});
  const std::int64_t hidden = config.hidden_size, token = 77;
  std::vector<float> state(static_cast<std::size_t>(hidden));
  for (std::int64_t i = 0; i < hidden; ++i) state[static_cast<std::size_t>(i)] = std::sin(0.37f * static_cast<float>(i + 1));
  const Tensor logits(DType::f32, {1, config.vocab_size}), next(DType::f32, {1, hidden});
  const DraftQuery query{.request = 0, .token = token, .position = 0, .place = 0, .hidden = state, .row = 0};
  draft.forward_all({&query, 1}, logits, next);

  const std::string prefix = "model.layers.3.";
  const auto norm = [&](const std::vector<double>& x, const std::string& name) {
    const Tensor weight = source->get(prefix + name + ".weight");
    double sum = 0;
    for (const double value : x) sum += value * value;
    std::vector<double> out;
    for (std::size_t i = 0; i < x.size(); ++i)
      out.push_back(x[i] / std::sqrt(sum / static_cast<double>(x.size()) + config.rms_norm_eps) *
                    quant::get(weight, static_cast<std::int64_t>(i)));
    return out;
  };
  std::vector<double> embedding;
  const Tensor table = source->get("model.embed_tokens.weight"), eh = source->get(prefix + "eh_proj.weight");
  for (std::int64_t i = 0; i < hidden; ++i) embedding.push_back(quant::get(table, token * hidden + i));
  std::vector<double> both = norm(embedding, "enorm");
  const std::vector<double> second = norm({state.begin(), state.end()}, "hnorm");
  both.insert(both.end(), second.begin(), second.end());
  const Tensor x(DType::f32, {1, hidden});
  for (std::int64_t n = 0; n < hidden; ++n) {
    double sum = 0;
    for (std::int64_t k = 0; k < 2 * hidden; ++k) sum += both[static_cast<std::size_t>(k)] * quant::get(eh, n * 2 * hidden + k);
    x.as<float>()[n] = static_cast<float>(sum);
  }
  LayerWeights weights(*source, {.layer = 3, .rounding = Rounding::off}, two_threads);
  PagedKvCache cache(config, DType::f32, Tokens{8});
  Batch batch = decode_batch(Tokens{1});
  cache.place(batch);
  Trace trace = layer_trace(weights, batch, two_threads);
  const LayerState out = run_layer(weights, batch, {x, {}}, cache, trace);
  std::vector<double> sum;
  for (std::int64_t i = 0; i < hidden; ++i) sum.push_back(quant::get(out.hidden, i) + quant::get(out.residual, i));
  const std::vector<double> expected = norm(sum, "shared_head.norm");
  for (std::int64_t i = 0; i < hidden; ++i) EXPECT_NEAR(next.as<float>()[i], expected[static_cast<std::size_t>(i)], 2e-4) << i;
}

TEST(Generate, RowsOfATensorAreThoseOfTheWhole) {
  const auto source = synthetic_weights(preset("tiny"), 3, {});
  const Tensor whole = source->get("lm_head.weight"), part = source->rows("lm_head.weight", 100, 131);
  EXPECT_EQ(to_string(part.shape()), "[31, 256]");
  EXPECT_EQ(bytes(part), bytes(whole.slice(0, 100, 131)));
}

}  // namespace
}  // namespace dodona::model
