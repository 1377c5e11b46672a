// Whole models: the recorded one's tokens, the same tokens whichever way they are asked for, drafts that change nothing.
#include "model/generate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>

#include "core/define.h"
#include "helpers.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/layer/kernel_use.h"
#include "model/layer/values.h"
#include "model/weights/checkpoint_writer.h"
#include "model/weights/weights.h"
#include "ops/gemm/linear.h"
#include "quant/element.h"

namespace dodona::model {
namespace {

using helpers::read_raw;
using testing::bytes;
using testing::expect_error;
using testing::TempFolder;
using Tokens = std::vector<std::int64_t>;

const Exec two_threads{.mode = Mode::fast, .threads = 2}, one_thread{.mode = Mode::fast, .threads = 1};

std::vector<Tokens> texts_of(Generation&& generation) {
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
  for (const std::string name : {"tiny-b", "tiny-c"}) {
    const std::string folder = DODONA_SOURCE_DIR "/tests/golden/_models/" + name;
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
          << name << ", " << chunk;
  }
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

/// The bits that a prompt's tokens have behind the last norm.
std::string all_at_once(const WeightSource& source, const LayerSetting& setting, const Tokens& prompt) {
  LanguageModel model(source, setting, two_threads, Tokens{16, 16});
  return bytes(model.forward({{0, 0, {44, 511, 0, 8}}, {1, 0, prompt}}).slice(0, 4, 4 + static_cast<std::int64_t>(prompt.size())));
}
std::string one_by_one(const WeightSource& source, const LayerSetting& setting, const Tokens& prompt) {
  LanguageModel model(source, setting, two_threads, Tokens{16});
  std::string all;
  for (std::size_t t = 0; t < prompt.size(); ++t) all += bytes(model.forward({{0, static_cast<std::int64_t>(t), {prompt[t]}}}));
  return all;
}
void expect_no_company(ModelConfig config, const LayerSetting& setting, const std::string& what) {
  config.num_hidden_layers = 2;  // one of either kind
  const auto source = synthetic_weights(config, 3, {});
  const Tokens prompt{5, 300};
  EXPECT_TRUE(all_at_once(*source, setting, prompt) == one_by_one(*source, setting, prompt)) << what;
}

/// Every scale of activations is the token's own, or a constant.
TEST(Generate, NoFormOfWeightsMakesATokenDependOnItsCompany) {
  for (const QuantScheme& scheme : quant_schemes())
    expect_no_company(with_scheme(preset("tiny-fp8"), scheme), {}, std::string(scheme.name));
  for (const char* scheme : {"nvfp4", "fp8"}) expect_no_company(with_scheme(preset("tiny-v32"), scheme_named(scheme)), {}, scheme);
}

TEST(Generate, NoKernelThatMayBeChosenMakesATokenDependOnItsCompany) {
  int chosen = 0;
  for (const OpKernels& op : ops_with_kernels())
    for (const std::string& kernel : op.kernels) {
      ModelConfig config = preset("tiny-fp8");
      LayerSetting setting = for_any_company({});
      const std::vector<KernelUse> use{{op.op, kernel}};
      try {
        apply_uses(config, setting, use, {.any_layer = true});
      } catch (const Error&) {
        continue;  // it may not
      }
      ++chosen;
      expect_no_company(config, setting, op.op + "=" + kernel);
    }
  EXPECT_GT(chosen, 50);
}

TEST(Generate, AnEndTokenEndsItsRequestAlone) {
  const auto source = synthetic_weights(preset("tiny"), 3, one_thread);
  GenerateRequest request{.prompts = {{5, 17, 3}, {1, 2}}, .max_new = 6, .sampling = {.temperature = 0}};
  const std::vector<Tokens> whole = texts_of({*source, {}, request, one_thread});
  request.end_token = whole[0][2];
  const std::vector<Tokens> ended = texts_of({*source, {}, request, one_thread});
  EXPECT_EQ(ended[0], Tokens(whole[0].begin(), whole[0].begin() + 3));
  EXPECT_GE(ended[1].size(), 1U);
}

TEST(Generate, ARoundThatIsLeftIsGoneOnFromAFile) {
  const TempFolder folder;
  const auto source = synthetic_weights(preset("tiny"), 3, one_thread);
  const GenerateRequest request{.prompts = {{5, 17, 3, 8}, {1, 2}}, .max_new = 4, .sampling = {.temperature = 0}, .chunk = 3};
  const std::vector<Tokens> whole = texts_of({*source, {}, request, one_thread});
  for (const int rounds : {0, 1, 3}) {
    Generation left(*source, {}, request, one_thread);
    for (int i = 0; i < rounds; ++i) left.round();
    const std::vector<Tokens> before = left.texts();
    EXPECT_THROW(left.round([](const LayerTiming& timing) {
      if (timing.layer == 1) throw Error(ErrorCode::bad_value, "", "", "interrupted");
    }),
                 Error);
    EXPECT_EQ(left.texts(), before);
    write_state(folder.file("state"), left.state(), {{"seed", 1}});
    Generation on(*source, {}, request, one_thread);
    on.resume(read_state(folder.file("state"), {{"seed", 1}}));
    EXPECT_EQ(texts_of(std::move(on)), whole) << rounds;
    // And by the one that was left.
    EXPECT_EQ(texts_of(std::move(left)), whole) << rounds;
  }
  expect_error(
      [&] {
        read_state(folder.file("state"), {{"seed", 2}});
      },
      ErrorCode::bad_value, {"state of another call: seed is 1, expected 2"});
  expect_error(
      [&] {
        read_state(folder.file("state"), {{"seed", 1}, {"mode", "fast"}});
      },
      ErrorCode::bad_value, {"mode is not there, expected \"fast\""});
}

TEST(Generate, AStateThatDiffersInOneBitIsNotGoneOnFrom) {
  const TempFolder folder;
  const auto source = synthetic_weights(preset("tiny"), 3, one_thread);
  const io::Json key{{"call", 1}};
  Generation left(*source, {}, {.prompts = {{5, 17}}, .max_new = 2, .sampling = {.temperature = 0}}, one_thread);
  left.round();
  write_state(folder.file("state"), left.state(), key);
  const std::string whole = read_raw(folder.file("state"));
  std::uint64_t header = 0;
  std::memcpy(&header, whole.data(), sizeof header);
  for (std::size_t bit = 0; bit < 8 * whole.size(); bit += bit < 8 * (sizeof header + header) ? 7 : 997) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    folder.write("state", bytes);
    EXPECT_THROW(read_state(folder.file("state"), key), Error) << "bit " << bit;
  }
  std::string last = whole;
  last.back() = static_cast<char>(last.back() ^ 1);
  folder.write("state", last);
  expect_error([&] { read_state(folder.file("state"), key); }, ErrorCode::bad_file, {"state: is damaged"});
  folder.write("state", whole);
  EXPECT_NO_THROW(read_state(folder.file("state"), key));
}

/// What a run went through: layers of the target, in order.
struct Walk {
  std::vector<Tokens> texts;
  std::vector<std::int64_t> layers;
};
Walk walk_of(Generation&& generation) {
  Walk walk;
  while (!generation.done()) generation.round([&](const LayerTiming& timing) { walk.layers.push_back(timing.layer); });
  walk.texts = generation.texts();
  return walk;
}

struct Left {
  const char* preset;
  GenerateRequest request;
};
std::vector<Left> left_cases() {
  const std::vector<Tokens> prompts{{5, 17, 3, 8, 30}, {1, 2}};
  const SamplingParams greedy{.temperature = 0}, drawn{.temperature = 0.8, .top_p = 0.9, .top_k = 50};
  return {{"tiny", {.prompts = prompts, .max_new = 2, .sampling = drawn, .chunk = 3}},
          {"tiny-v32", {.prompts = prompts, .max_new = 2, .sampling = greedy}},
          {"tiny", {.prompts = prompts, .max_new = 3, .sampling = drawn, .seed = 3, .chunk = 4, .draft_steps = 2}},
          {"tiny-fp8", {.prompts = prompts, .max_new = 4, .sampling = greedy, .draft_steps = 2, .draft_topk = 3, .draft_tokens = 6}}};
}

/// A run stopped behind any layer goes on at the next one: the layers of both parts together are those of a whole run, and so are the
/// tokens.
TEST(Generate, WhatIsLeftBehindAnyLayerIsGoneOnFromAtTheNext) {
  const TempFolder folder;
  const io::Json key{{"call", 1}};
  for (const Left& each : left_cases()) {
    const auto source = synthetic_weights(preset(each.preset), 3, one_thread);
    const Walk whole = walk_of({*source, {}, each.request, one_thread});
    for (std::size_t stop = 0; stop < whole.layers.size(); ++stop) {
      Generation left(*source, {}, each.request, one_thread);
      std::vector<std::int64_t> layers;
      const auto stopping = [&](const LayerTiming& timing) {
        layers.push_back(timing.layer);
        if (layers.size() <= stop) return;
        write_state(folder.file("state"), left.state(), key);
        throw Error(ErrorCode::bad_value, "", "", "stopped");
      };
      EXPECT_THROW(
          {
            while (!left.done()) left.round(stopping);
          },
          Error);
      Generation on(*source, {}, each.request, one_thread);
      on.resume(read_state(folder.file("state"), key));
      const Walk rest = walk_of(std::move(on));
      layers.insert(layers.end(), rest.layers.begin(), rest.layers.end());
      EXPECT_EQ(rest.texts, whole.texts) << each.preset << " " << stop;
      EXPECT_EQ(layers, whole.layers) << each.preset << " " << stop;
    }
  }
}

TEST(Generate, AStateOfAnotherRequestIsRefused) {
  const auto source = synthetic_weights(preset("tiny"), 3, one_thread);
  const GenerateRequest request{.prompts = {{5, 17, 3}}, .max_new = 4, .sampling = {.temperature = 0}};
  Generation left(*source, {}, request, one_thread);
  left.round();
  const auto refuses = [&](const GenerateRequest& other, const std::vector<std::string>& parts) {
    expect_error([&] { Generation(*source, {}, other, one_thread).resume(left.state()); }, ErrorCode::bad_value, parts);
  };
  GenerateRequest two = request, drafting = request;
  two.prompts.push_back({1});
  drafting.draft_steps = 2;
  refuses(two, {"another number of requests"});
  refuses(drafting, {"state has no held.0"});
  expect_error([&] { Generation(*source, {}, request, one_thread).resume(GenerateState()); }, ErrorCode::bad_value, {"has no counts"});
}

TEST(Generate, WhatCannotBeIsRefusedBeforeAnythingRuns) {
  const auto source = synthetic_weights(preset("tiny"), 3, one_thread);
  const auto refuses = [&](const GenerateRequest& request, ErrorCode code, const std::vector<std::string>& parts) {
    expect_error([&] { Generation(*source, {}, request, one_thread); }, code, parts);
  };
  refuses({.prompts = {{}}}, ErrorCode::bad_value, {"prompt", "is empty"});
  refuses({.prompts = {{5, 512}}}, ErrorCode::bad_value, {"token 512", "0 to 511"});
  refuses({.prompts = {Tokens(163840, 1)}, .max_new = 1}, ErrorCode::bad_value, {"163840 tokens", "163840 positions"});
  refuses({.prompts = {{1}}, .sampling = {.min_p = 0.5}, .draft_steps = 2}, ErrorCode::unsupported, {"min-p"});
  refuses({.prompts = {{1}}, .sampling = {.temperature = 0}, .draft_steps = 2, .draft_topk = 2, .draft_tokens = 8}, ErrorCode::bad_option,
          {"draft_tokens", "is 8", "1 to 7"});
  refuses({.prompts = {{1}}, .sampling = {.temperature = 0}, .draft_steps = 2, .draft_tokens = 5}, ErrorCode::bad_option,
          {"draft_tokens", "is 5"});
  const auto sparse = synthetic_weights(preset("tiny-v32"), 3, one_thread);
  expect_error(
      [&] {
        Generation(*sparse, {}, {.prompts = {{1}}, .sampling = {.temperature = 0}, .draft_steps = 2, .draft_topk = 2, .draft_tokens = 4},
                   one_thread);
      },
      ErrorCode::unsupported, {"the indexer of tiny-v32 knows no draft trees"});
  ModelConfig wide = preset("tiny");
  wide.kv_lora_rank = 256;
  const auto other = synthetic_weights(wide, 3, one_thread);
  expect_error([&] { Generation(*other, {}, {.prompts = {{1}}}, one_thread); }, ErrorCode::unsupported,
               {"batch_mla_paged_attention takes kv_lora_rank 512 and qk_rope_head_dim 64", "has 256 and 64"});
  ModelConfig without = preset("tiny");
  without.num_nextn_predict_layers = 0;
  const auto plain = synthetic_weights(without, 3, one_thread);
  expect_error([&] { Generation(*plain, {}, {.prompts = {{1}}, .draft_steps = 2}, one_thread); }, ErrorCode::unsupported,
               {"has no NextN layer"});
}

/// Before the first layer runs, whichever it is of: of R1 the last one is minutes behind.
TEST(Generate, ATensorThatIsNotThereIsRefusedBeforeAnythingRuns) {
  const TempFolder folder;
  const std::string path = folder.file("model"), index = path + "/model.safetensors.index.json";
  const ModelConfig config = preset("tiny");
  write_checkpoint(path, config, {.first_layer = 0, .last_layer = 3, .outer = true, .seed = 7}, {});
  const io::Json whole = io::read_json(index);
  const GenerateRequest plain{.prompts = {{5, 17}}, .max_new = 1, .sampling = {.temperature = 0}};
  GenerateRequest drafting = plain;
  drafting.draft_steps = 2;
  const auto begin = [&](const GenerateRequest& request) {
    Generation generation(*open_checkpoint(path, config), {}, request, one_thread);
  };
  const std::string draft = "model.layers.3.eh_proj.weight";
  for (const std::string name :
       {"lm_head.weight", "model.embed_tokens.weight", "model.norm.weight", "model.layers.2.mlp.experts.9.up_proj.weight", draft.c_str()}) {
    io::Json map = whole;
    map["weight_map"].erase(name);
    std::ofstream(index) << io::json_text(map);
    expect_error([&] { begin(drafting); }, ErrorCode::missing_argument, {name, "missing from checkpoint"});
    if (name == draft) begin(plain);  // nobody reads it
  }
}

/// NVFP4 releases leave the NextN layer in bf16, which a backend of NVFP4 does not multiply.
TEST(Generate, ExpertsAreChosenForTheTargetWhereTheDraftsAreStoredOtherwise) {
  const auto source = synthetic_weights(preset("tiny"), 3, one_thread);
  GenerateRequest request{.prompts = {{5, 17, 3, 8}}, .max_new = 4, .sampling = {.temperature = 0}};
  for (const char* experts : {"cutlass", "flashinfer_cutlass"}) {
    LayerSetting setting{.experts = experts};
    request.draft_steps = 0;
    const std::vector<Tokens> plain = texts_of({*source, setting, request, one_thread});
    request.draft_steps = 2;
    EXPECT_EQ(texts_of({*source, setting, request, one_thread}), plain) << experts;
  }
  // As a use, which names the kernel too.
  ModelConfig config = preset("tiny");
  LayerSetting setting = for_any_company({});
  const std::vector<KernelUse> use{{"experts", "cutlass_fp4_group_mm"}};
  apply_uses(config, setting, use, {.stored = true, .any_layer = true});
  EXPECT_EQ(texts_of({*source, setting, request, one_thread}).front().size(), 4U);
  // What the target itself cannot be run by is refused, and so is what its layers and the draft's both are not.
  const auto refuses = [&](const ModelConfig& model, const char* experts, const std::vector<std::string>& parts) {
    const auto weights = synthetic_weights(model, 3, one_thread);
    expect_error([&] { Generation(*weights, {.experts = experts}, request, one_thread); }, ErrorCode::unsupported, parts);
  };
  refuses(preset("tiny"), "triton", {"experts", "of layer 1 are nvfp4, which triton does not multiply"});
  refuses(with_scheme(preset("tiny"), scheme_named("bf16")), "cutlass", {"of layer 1 are bf16, which cutlass does not multiply"});
}

TEST(Generate, GreedyTextWithDraftsIsGreedyTextWithout) {
  struct Drafts {
    const char* name;
    Rounding rounding;
    std::vector<std::array<std::int64_t, 3>> drafts;  // steps, topk, nodes
  };
  for (const Drafts& way : {Drafts{"tiny", Rounding::bf16, {{1, 1, 0}, {3, 1, 0}, {1, 4, 3}, {2, 2, 5}, {3, 4, 16}}},
                            Drafts{"tiny-fp8", Rounding::bf16, {{3, 1, 0}, {4, 3, 9}}}, Drafts{"tiny", Rounding::off, {{3, 2, 6}}}}) {
    const auto source = synthetic_weights(preset(way.name), 3, one_thread);
    GenerateRequest request{.prompts = {{5, 17, 3, 8}, {1, 2}}, .max_new = 5, .sampling = {.temperature = 0}};
    const LayerSetting setting{.rounding = way.rounding};
    const std::vector<Tokens> plain = texts_of({*source, setting, request, one_thread});
    for (const auto& [steps, topk, nodes] : way.drafts) {
      request.draft_steps = steps, request.draft_topk = topk, request.draft_tokens = nodes;
      EXPECT_EQ(texts_of({*source, setting, request, one_thread}), plain) << way.name << " " << steps << " " << topk;
    }
  }
}

TEST(Generate, DrawnTextWithTreesIsTheSameForAnyThreadsAndTier) {
  const auto source = synthetic_weights(preset("tiny"), 3, one_thread);
  const GenerateRequest request{.prompts = {{5, 17, 3, 8}, {1, 2}},
                                .max_new = 6,
                                .sampling = {.temperature = 0.9, .top_p = 0.95, .top_k = 40},
                                .seed = 4,
                                .draft_steps = 3,
                                .draft_topk = 2,
                                .draft_tokens = 6};
  const std::vector<Tokens> expected = texts_of({*source, {}, request, two_threads});
  EXPECT_EQ(texts_of({*source, {}, request, {.mode = Mode::fast, .threads = 1}}), expected);
  EXPECT_EQ(texts_of({*source, {}, request, {.mode = Mode::fast, .threads = 3, .isa = Isa::generic}}), expected);
}

/// Nodes of a tree see their way to the root alone: what each gives is what its branch gives as a chain, to the bit.
TEST(Generate, ANodeOfATreeGivesWhatItsBranchGives) {
  const auto source = synthetic_weights(preset("tiny"), 3, one_thread);
  const Tokens prompt{5, 17, 3, 8}, tokens{40, 41, 42, 43, 44}, parents{-1, 0, 0, 2, 1};
  const std::vector<Tokens> branches{{40}, {40, 41}, {40, 42}, {40, 42, 43}, {40, 41, 44}};
  for (const Rounding rounding : {Rounding::bf16, Rounding::off}) {
    const auto model = [&] { return LanguageModel(*source, {.rounding = rounding}, one_thread, Tokens{12, 12}); };
    LanguageModel whole = model();
    whole.forward({{0, 0, prompt}, {1, 0, {9}}});
    // Beside a request that decodes.
    const Tensor tree = whole.forward({{0, 4, tokens, parents}, {1, 1, {10}}});
    for (std::size_t node = 0; node < branches.size(); ++node) {
      LanguageModel alone = model();
      alone.forward({{0, 0, prompt}});
      const Tensor chain = alone.forward({{0, 4, branches[node]}});
      const auto at = static_cast<std::int64_t>(node);
      EXPECT_EQ(bytes(tree.slice(0, at, at + 1)), bytes(chain.slice(0, chain.size(0) - 1, chain.size(0)))) << node;
    }
  }
}

/// The same of the kernel that upstream verifies trees with, whose mask is an argument.
TEST(Generate, TritonsKernelTakesTheTreesMask) {
  const ModelConfig config = preset("tiny");
  const auto source = synthetic_weights(config, 3, one_thread);
  const auto run = [&](Batch batch, const std::string& backend, const Tensor& x) {
    LayerWeights weights(*source, {.layer = 0, .backend = backend, .path = AttentionPath::mla}, one_thread);
    PagedKvCache cache(config, DType::bf16, Tokens{12});
    cache.synthesize_history(7, Tokens{5}, 1);
    cache.place(batch);
    Trace trace = layer_trace(weights, batch, one_thread);
    return run_layer(weights, batch, {x, {}}, cache, trace).hidden;
  };
  Batch tree{
      .requests = {0}, .query_starts = {0, 5}, .positions = {4, 5, 5, 6, 6}, .slots = {}, .lengths = {9}, .parents = {-1, 0, 0, 2, 1}};
  const Tensor wide(DType::f32, {5, config.hidden_size});
  for (std::int64_t i = 0; i < wide.elements(); ++i) wide.as<float>()[i] = std::sin(0.1f * static_cast<float>(i));
  const Tensor x = rounded(wide, DType::bf16);
  const Tensor triton = run(tree, "triton", x), rows = run(tree, "cutlass_mla", x);
  for (const auto& [node, way] : std::vector<std::pair<std::int64_t, Tokens>>{{3, {0, 2, 3}}, {4, {0, 1, 4}}}) {
    const auto count = static_cast<std::int64_t>(way.size());
    const Tensor mine(DType::bf16, {count, config.hidden_size});
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t from = way[static_cast<std::size_t>(i)];
      copy(x.slice(0, from, from + 1), mine.slice(0, i, i + 1));
    }
    const Tensor chain = run(extend_batch(Tokens{4 + count}, Tokens{count}), "triton", mine);
    for (std::int64_t h = 0; h < config.hidden_size; ++h) {
      const double expected = quant::get(chain, (count - 1) * config.hidden_size + h);
      EXPECT_NEAR(quant::get(triton, node * config.hidden_size + h), expected, 0.02 * std::fabs(expected) + 0.02) << node << " " << h;
      EXPECT_NEAR(quant::get(rows, node * config.hidden_size + h), expected, 0.02 * std::fabs(expected) + 0.02) << node << " " << h;
    }
  }
  for (const char* backend : {"trtllm_mla", "flashmla"}) {
    tree.forward = Forward::verify;
    expect_error([&] { run(tree, backend, x); }, ErrorCode::unsupported, {"draft tokens in a chain, not a tree"});
  }
}

/// A prompt is read in chunks, and what is remembered of it does not grow with its square.
TEST(Generate, DraftsBeginBehindPromptsReadInChunks) {
  const auto source = synthetic_weights(preset("tiny"), 3, one_thread);
  GenerateRequest request{.prompts = {Tokens(50, 7)}, .max_new = 4, .sampling = {.temperature = 0}, .chunk = 8, .draft_steps = 2};
  std::int64_t layers = 0;
  Generation generation(*source, {}, request, one_thread);
  generation.round([&](const LayerTiming&) { ++layers; });
  EXPECT_EQ(layers, 7 * 3);
  request.chunk = 512;
  EXPECT_EQ(texts_of(std::move(generation)), texts_of({*source, {}, request, one_thread}));
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
  const auto source = synthetic_weights(preset("tiny"), 3, one_thread);
  const std::vector<Tokens> prompts{{5, 17, 3, 8}, {1, 2}};
  const std::vector<Tokens> plain =
      texts_of({*source, {}, {.prompts = prompts, .max_new = 12, .sampling = {.temperature = 0}}, one_thread});
  const Knowing draft(prompts, plain, 512);
  for (const std::int64_t topk : {1, 2}) {
    LanguageModel model(*source, {}, one_thread, Tokens{40, 40});
    const SpeculativeTarget target(model, 2);
    const SpeculativeSetting setting{.steps = 3, .topk = topk, .draft_tokens = topk == 1 ? 4 : 6, .most_new = 12};
    SpeculativeDecoder decoder(target, draft, setting, prompts, 40, {}, one_thread);
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
  const auto source = synthetic_weights(config, 3, one_thread);
  LanguageModel model(*source, {.rounding = Rounding::off}, one_thread, Tokens{8});
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
  LayerWeights weights(*source, {.layer = 3, .rounding = Rounding::off}, one_thread);
  PagedKvCache cache(config, DType::f32, Tokens{8});
  Batch batch = decode_batch(Tokens{1});
  cache.place(batch);
  Trace trace = layer_trace(weights, batch, one_thread);
  const LayerState out = run_layer(weights, batch, {x, {}}, cache, trace);
  std::vector<double> sum;
  for (std::int64_t i = 0; i < hidden; ++i) sum.push_back(quant::get(out.hidden, i) + quant::get(out.residual, i));
  const std::vector<double> expected = norm(sum, "shared_head.norm");
  for (std::int64_t i = 0; i < hidden; ++i) EXPECT_NEAR(next.as<float>()[i], expected[static_cast<std::size_t>(i)], 2e-4) << i;
}

TEST(Generate, RowsOfATensorAreThoseOfTheWhole) {
  const auto source = synthetic_weights(preset("tiny"), 3, one_thread);
  const Tensor whole = source->get("lm_head.weight"), part = source->rows("lm_head.weight", 100, 131);
  EXPECT_EQ(to_string(part.shape()), "[31, 256]");
  EXPECT_EQ(bytes(part), bytes(whole.slice(0, 100, 131)));
}

}  // namespace
}  // namespace dodona::model
