// A layer on several ranks of one process: what tensor parallelism adds up, and experts on ranks of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "../temp_folder.h"
#include "helpers.h"
#include "model/config/config.h"
#include "model/layer/decoder.h"
#include "model/layer/experts/experts.h"
#include "model/model.h"
#include "model/ranks/rank_generation.h"
#include "model/ranks/sharded_run.h"
#include "model/ranks/turns.h"
#include "quant/half.h"

namespace dodona::model {
namespace {

using testing::bytes;
using testing::expect_error;

/// A tiny model that parts eight ways, with its linears in one of the forms.
ModelConfig small(const std::string& form) {
  const bool in_blocks = form == "fp8-block" || form == "w4a8";
  ModelConfig config = preset(in_blocks ? "tiny-fp8" : "tiny");
  config.num_attention_heads = in_blocks ? 16 : 8;  // two of 192 rows share blocks of 128
  config.intermediate_size = config.moe_intermediate_size = in_blocks ? 1024 : 512;
  if (form == "bf16" || form == "int8" || form == "w4a8") config = with_scheme(config, scheme_named(form));
  return config;
}

LayerRequest step(const ModelConfig& config, std::int64_t layer = 1) {
  LayerRequest request;
  request.config = config;
  request.setting.layer = layer;
  request.lengths = {5, 3, 9};
  request.seed = 11;
  request.exec.threads = 2;
  return request;
}

std::string bits_of(const LayerState& state) {
  return bytes(state.hidden) + bytes(state.residual);
}

/// What every rank's ops gave: by rank, then by name and note.
using Outputs = std::vector<std::map<std::string, Tensor>>;
ShardedRun::Result observed(ShardedRun& run, Outputs& outputs) {
  outputs.resize(static_cast<std::size_t>(run.grid().ranks()));
  return run.run([&](std::int64_t rank) -> Observer {
    return [&outputs, rank](const OpRecord& record, const NamedTensors& given) {
      outputs[static_cast<std::size_t>(rank)].emplace(record.op + record.note, given.front().second.clone());
    };
  });
}

/// Terms of all ranks by rising rank in fp32, rounded once: written apart from the op.
Tensor added(const std::vector<Tensor>& terms) {
  Tensor sum(DType::bf16, terms.front().shape());
  for (std::int64_t i = 0; i < sum.elements(); ++i) {
    auto x = static_cast<float>(quant::get(terms.front(), i));
    for (std::size_t r = 1; r < terms.size(); ++r) x += static_cast<float>(quant::get(terms[r], i));
    quant::set(sum, i, x);
  }
  return sum;
}
Tensor added(const Outputs& outputs, const std::string& op) {
  std::vector<Tensor> terms;
  for (const auto& mine : outputs) terms.push_back(mine.at(op));
  return added(terms);
}

TEST(Ranks, TensorParallelSumsAreTheRanksTermsInUpstreamsOrder) {
  for (const char* const form : {"nvfp4", "fp8-block", "bf16"})
    for (const std::int64_t layer : {0, 1})
      for (const std::int64_t ways : {2, 4, 8}) {
        ShardedRun run(step(small(form), layer), {.tensor = ways});
        Outputs outputs;
        observed(run, outputs);
        const std::string reduce = "tensor_model_parallel_all_reduce()";
        for (const auto& mine : outputs) {
          EXPECT_EQ(bytes(mine.at(reduce + "attention")), bytes(added(outputs, "self.o_proj()"))) << form << " " << ways;
          EXPECT_EQ(bytes(mine.at(reduce + "mlp")), bytes(added(outputs, "self.mlp()"))) << form << " " << ways;
          EXPECT_EQ(mine.at("self.o_proj()").shape(), (Dims{3, 256}));
        }
      }
}

TEST(Ranks, TheNormBehindAttentionMayAddUpTheRanksTerms) {
  for (const std::int64_t ways : {2, 4}) {
    LayerRequest request = step(small("nvfp4"));
    Outputs apart, together;
    ShardedRun plain(request, {.tensor = ways});
    observed(plain, apart);
    request.setting.use = {{"post_attention_layernorm", "trtllm_allreduce_fusion"}};
    ShardedRun fused(request, {.tensor = ways});
    const LayerState output = observed(fused, together).output;
    EXPECT_FALSE(together.front().contains("tensor_model_parallel_all_reduce()attention"));
    EXPECT_TRUE(together.front().contains("tensor_model_parallel_all_reduce()mlp"));
    // Each sum is rounded, and the residual's last: written apart from the op.
    const auto rounded = [](double x) { return quant::bf16_to_f32(quant::f32_to_bf16(static_cast<float>(x))); };
    std::map<std::string, Tensor> inputs;
    for (const auto& [name, tensor] : LayerRun(step(small("nvfp4"))).inputs()) inputs.emplace(name, tensor);
    for (std::int64_t i = 0; i < output.residual.elements(); ++i) {
      const float before = rounded(quant::get(inputs.at("hidden"), i) + quant::get(inputs.at("residual"), i));
      auto x = static_cast<float>(quant::get(together.front().at("self.o_proj()"), i));
      for (std::size_t r = 1; r < together.size(); ++r) x = rounded(x + quant::get(together[r].at("self.o_proj()"), i));
      ASSERT_EQ(quant::get(output.residual, i), rounded(x + before)) << ways << " ways, " << i;
    }
    for (const auto& mine : together)
      EXPECT_EQ(bytes(mine.at("self.post_attention_layernorm()")), bytes(together.front().at("self.post_attention_layernorm()")));
  }
}

/// Two layers and more on ranks of one process, and what the ops of each gave on each rank, by layer.
struct WalkedLayers {
  std::vector<LayerState> handed_on;  ///< by layer, of rank 0
  std::map<std::int64_t, Outputs> ops;
};
WalkedLayers walked(const ModelConfig& config, const LayerSetting& setting, std::int64_t ways) {
  WalkedLayers walk;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) walk.ops[layer].resize(static_cast<std::size_t>(ways));
  const Grid grid{.tensor = ways};
  take_turns(grid, [&](std::int64_t rank, const Ranks& ranks) {
    const Exec exec{.threads = 1};
    const auto source = open_weights(config, "", 3, exec, grid.shard(rank));
    const Model model(*source, setting, exec, ranks);
    const std::vector<std::int64_t> lengths = {4, 2};
    auto caches = model.make_caches(lengths);
    Batch batch = extend_batch(lengths, lengths);
    caches.front().place(batch);
    Model::Hooks hooks;
    hooks.before = [&](std::int64_t layer, Trace& trace) {
      trace.observe([&walk, layer, rank](const OpRecord& record, const NamedTensors& given) {
        for (const auto& [name, tensor] : given)
          walk.ops[layer][static_cast<std::size_t>(rank)].emplace(record.op + record.note + ":" + name, tensor.clone());
      });
    };
    hooks.after = [&](std::int64_t, const LayerState& state, const Trace&) {
      if (rank == 0) walk.handed_on.push_back({state.hidden.clone(), state.residual.clone()});
    };
    model.run(batch, testing::drawn(5, "embeddings", {6, config.hidden_size}, DType::bf16), caches, hooks);
  });
  return walk;
}

TEST(Ranks, TheFirstNormOfALayerMayAddUpWhatTheLayerBelowHasLeft) {
  const ModelConfig config = small("nvfp4");
  for (const std::int64_t ways : {2, 4}) {
    LayerSetting setting;
    setting.use = {{"input_layernorm", "trtllm_allreduce_fusion"}, {"post_attention_layernorm", "trtllm_allreduce_fusion"}};
    WalkedLayers walk = walked(config, setting, ways);
    const std::int64_t last = config.num_hidden_layers - 1;
    ASSERT_GE(last, 1);
    const auto rounded = [](double x) { return quant::bf16_to_f32(quant::f32_to_bf16(static_cast<float>(x))); };
    for (std::int64_t layer = 0; layer <= last; ++layer) {
      Outputs& mine = walk.ops[layer];
      const bool adds_up_itself = mine.front().contains("tensor_model_parallel_all_reduce()mlp:output");
      EXPECT_EQ(adds_up_itself, layer == last) << "there is no layer behind the last one whose norm could";
      if (layer == 0) continue;
      const LayerState& below = walk.handed_on[static_cast<std::size_t>(layer - 1)];
      EXPECT_EQ(bytes(below.hidden), bytes(walk.ops[layer - 1].front().at("self.mlp():output")));
      const Tensor& sum = mine.front().at("self.input_layernorm():residual");
      for (std::int64_t i = 0; i < sum.elements(); ++i) {
        auto x = static_cast<float>(quant::get(below.hidden, i));
        for (std::int64_t r = 1; r < ways; ++r)
          x = rounded(x + quant::get(walk.ops[layer - 1][static_cast<std::size_t>(r)].at("self.mlp():output"), i));
        ASSERT_EQ(quant::get(sum, i), rounded(x + quant::get(below.residual, i))) << ways << " ways, layer " << layer << ", " << i;
      }
      for (const auto& other : mine)
        EXPECT_EQ(bytes(other.at("self.input_layernorm():output")), bytes(mine.front().at("self.input_layernorm():output")));
    }
  }
}

TEST(Ranks, WithoutRoundingsTensorParallelIsTheWholeLayer) {
  for (const std::int64_t layer : {0, 1}) {
    LayerRequest request = step(small("bf16"), layer);
    request.setting.rounding = Rounding::off;
    const LayerState whole = LayerRun(request).run().output;
    for (const std::int64_t ways : {2, 4, 8}) {
      const LayerState parts = ShardedRun(request, {.tensor = ways}).run().output;
      for (std::int64_t i = 0; i < whole.hidden.elements(); ++i)
        ASSERT_NEAR(quant::get(parts.hidden, i), quant::get(whole.hidden, i), 2e-5) << ways << " ways, element " << i;
    }
  }
}

TEST(Ranks, ExpertParallelGivesTheBitsOfTheWholeLayer) {
  struct {
    const char *form, *experts;
    ExpertWeights weights;
  } const rows[] = {{"nvfp4", "cutlass", ExpertWeights::stored},  {"bf16", "plain", ExpertWeights::stored},
                    {"int8", "triton", ExpertWeights::stored},    {"fp8-block", "triton", ExpertWeights::fp8},
                    {"bf16", "triton", ExpertWeights::stored},    {"fp8-block", "cutlass", ExpertWeights::fp8},
                    {"fp8-block", "deepgemm", ExpertWeights::fp8}};
  for (const auto& row : rows)
    for (const Mode mode : {Mode::fast, Mode::golden}) {
      LayerRequest request = step(small(row.form));
      request.setting.experts = row.experts;
      request.setting.expert_weights = row.weights;
      request.exec.mode = mode;
      const std::string whole = bits_of(LayerRun(request).run().output);
      for (const std::int64_t ways : {2, 4, 8}) {
        if (mode != Mode::fast && ways != 4) continue;
        EXPECT_TRUE(bits_of(ShardedRun(request, {.experts = ways}).run().output) == whole) << row.form << " " << row.experts << " " << ways;
      }
    }
}

TEST(Ranks, ExpertsOnRanksOfTheirOwnDoNotChangeWhatTensorParallelGives) {
  const LayerRequest request = step(small("nvfp4"));
  const std::string tensor = bits_of(ShardedRun(request, {.tensor = 2}).run().output);
  EXPECT_TRUE(bits_of(ShardedRun(request, {.tensor = 2, .experts = 4}).run().output) == tensor);
}

TEST(Ranks, NeitherThreadsNorPagesNorPhasesChangeThatRanksAgree) {
  LayerRequest request = step(small("nvfp4"));
  const std::string one = bits_of(ShardedRun(request, {.tensor = 4}).run().output);
  request.exec.threads = 1;
  request.page_seed = 5;
  EXPECT_TRUE(bits_of(ShardedRun(request, {.tensor = 4}).run().output) == one);
  request.forward = Forward::extend;
  request.new_tokens = {2, 3, 4};
  const std::string whole = bits_of(LayerRun(request).run().output);
  EXPECT_TRUE(bits_of(ShardedRun(request, {.experts = 4}).run().output) == whole);
  EXPECT_NO_THROW(ShardedRun(request, {.tensor = 4}).run());
}

TEST(Ranks, EachHasItsShareOfTheWeights) {
  const ModelConfig config = small("nvfp4");
  const auto read = [&](const Grid& grid) {
    ShardedRun run(step(config), grid);
    return run.run().ranks.back().work().weight_bytes;
  };
  const double whole = read({}), halves = read({.tensor = 2}), eighths = read({.tensor = 8});
  EXPECT_LT(halves, 0.75 * whole);
  EXPECT_LT(eighths, 0.5 * whole);
  ShardedRun experts(step(config), {.experts = 4});
  experts.run();
  EXPECT_THROW((void)experts.rank(0).weights().expert(15), std::out_of_range);
}

TEST(Ranks, DualStreamOrderGivesTheSameBits) {
  for (const char* const form : {"nvfp4", "fp8-block"}) {
    LayerRequest request = step(small(form));
    const std::string normal = bits_of(LayerRun(request).run().output);
    request.setting.dual_stream = true;
    std::vector<std::string> order;
    LayerRun run(request);
    EXPECT_TRUE(bits_of(run.run([&](const OpRecord& record, const NamedTensors&) { order.push_back(record.op); }).output) == normal);
    const auto at = [&](const char* op) { return std::find(order.begin(), order.end(), op) - order.begin(); };
    EXPECT_LT(at("self.shared_experts()"), at("self.gate()"));
  }
}

/// Three requests of several lengths through two layers and more of a small model, sampled, so that a logit that changes shows.
GenerateCall texts_of(const std::string& form) {
  GenerateCall call;
  call.config = small(form);
  call.setting = for_any_company({});
  call.request = {.prompts = {{1, 2, 3, 4, 5}, {7}, {9, 8, 7}, {11, 12}}, .max_new = 4, .sampling = {}, .seed = 3, .chunk = 6};
  call.request.sampling.temperature = 1.0;
  call.exec.threads = 1;
  return call;
}

std::vector<std::vector<std::int64_t>> whole_texts(const GenerateCall& call) {
  const auto source = open_weights(call.config, "", 0, call.exec);
  Generation generation(*source, call.setting, call.request, call.exec);
  while (!generation.done()) generation.round();
  return generation.texts();
}

TEST(Ranks, StagesExpertsAndRequestsOfTheirOwnChangeNoToken) {
  for (const char* const form : {"nvfp4", "fp8-block"}) {
    const GenerateCall call = texts_of(form);
    const auto expected = whole_texts(call);
    for (const Grid& grid : {Grid{.pipeline = 2}, Grid{.experts = 2}, Grid{.experts = 2, .data = 2}, Grid{.experts = 4, .data = 4},
                             Grid{.experts = 2, .pipeline = 2, .data = 2}})
      EXPECT_EQ(generate_on_ranks(call, grid).texts, expected) << form << " " << grid.text();
  }
}

TEST(Ranks, TokensOfTensorParallelDoNotDependOnStagesAndExperts) {
  const GenerateCall call = texts_of("nvfp4");
  const auto expected = generate_on_ranks(call, {.tensor = 2}).texts;
  for (const Grid& grid : {Grid{.tensor = 2, .pipeline = 2}, Grid{.tensor = 2, .experts = 2}, Grid{.tensor = 2, .experts = 2, .data = 2},
                           Grid{.tensor = 2, .experts = 2, .pipeline = 2, .data = 2}})
    EXPECT_EQ(generate_on_ranks(call, grid).texts, expected) << grid.text();
}

TEST(Ranks, NormsThatAddUpTheRanksTermsRunUnderStagesAndDrafts) {
  GenerateCall call = texts_of("nvfp4");
  call.setting.use = {{"input_layernorm", "trtllm_allreduce_fusion"}, {"post_attention_layernorm", "trtllm_allreduce_fusion"}};
  const auto expected = generate_on_ranks(call, {.tensor = 2}).texts;
  EXPECT_EQ(generate_on_ranks(call, {.tensor = 2, .experts = 2}).texts, expected);
  // A stage's last layer adds up itself, so that the bits depend on where stages end; sampled texts may differ, their lengths may not.
  const auto stages = generate_on_ranks(call, {.tensor = 2, .pipeline = 2}).texts;
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(stages[i].size(), expected[i].size());
  call.request.sampling.temperature = 0;
  const auto greedy = generate_on_ranks(call, {.tensor = 2}).texts;
  call.request.draft_steps = 2;
  EXPECT_EQ(generate_on_ranks(call, {.tensor = 2}).texts, greedy);
}

TEST(Ranks, AStageHasItsLayersAloneAndReadsThoseAlone) {
  const GenerateCall call = texts_of("nvfp4");
  const ShardedResult whole = generate_on_ranks(call, {}), stages = generate_on_ranks(call, {.pipeline = 2});
  const std::int64_t layers = call.config.num_hidden_layers;
  EXPECT_EQ(layers_of(call.config, {0, 1}).size(), layers);
  std::int64_t begin = 0;
  for (std::int64_t stage = 0; stage < 2; ++stage) {
    const LayerSpan span = layers_of(call.config, {stage, 2});
    EXPECT_EQ(span.begin, begin);
    begin = span.end;
    EXPECT_EQ(stages.ranks[static_cast<std::size_t>(stage)].layers, span.size() * stages.rounds);
  }
  EXPECT_EQ(begin, layers);
  EXPECT_EQ(layers_of(preset("r1-nvfp4"), {0, 4}).size(), 15) << "of 61 layers the last stage has one more";
  EXPECT_EQ(layers_of(preset("r1-nvfp4"), {3, 4}).size(), 16);
  EXPECT_EQ(stages.ranks[0].weight_bytes + stages.ranks[1].weight_bytes, whole.ranks[0].weight_bytes);
}

TEST(Ranks, TextsThatCannotBeDealtOutAreRefusedByName) {
  GenerateCall call = texts_of("nvfp4");
  expect_error([&] { generate_on_ranks(call, {.pipeline = 99}); }, ErrorCode::bad_option, {"--pp is 99", "the layers"});
  expect_error([&] { generate_on_ranks(call, {.experts = 2, .data = 4}); }, ErrorCode::bad_option, {"--dp-attention is 4", "1 or 2"});
  call.request.draft_steps = 1;
  expect_error([&] { generate_on_ranks(call, {.experts = 2, .data = 2}); }, ErrorCode::unsupported, {"--speculative", "--dp-attention"});
  call.request.draft_steps = 0;
  call.request.prompts.resize(1);
  expect_error([&] { generate_on_ranks(call, {.experts = 2, .data = 2}); }, ErrorCode::bad_option, {"--dp-attention is 2", "the requests"});
}

TEST(Ranks, DraftsAndTreesOfSeveralRanksAreThoseOfOne) {
  for (const std::int64_t beams : {1, 2}) {
    GenerateCall call = texts_of("nvfp4");
    call.request.prompts = {{1, 2, 3}, {9, 8}};
    call.request.draft_steps = 2;
    call.request.draft_topk = beams;
    call.request.draft_tokens = beams == 1 ? 3 : 4;
    const auto expected = whole_texts(call);
    for (const Grid& grid : {Grid{.experts = 2}, Grid{.pipeline = 2}, Grid{.experts = 2, .pipeline = 2}})
      EXPECT_EQ(generate_on_ranks(call, grid).texts, expected) << beams << " " << grid.text();
    const auto tensor = generate_on_ranks(call, {.tensor = 2}).texts;
    EXPECT_EQ(generate_on_ranks(call, {.tensor = 2, .experts = 2, .pipeline = 2}).texts, tensor) << beams;
  }
}

TEST(Ranks, AStateOfSeveralRanksIsGoneOnFromByThatSplitAlone) {
  const helpers::TempFolder folder;
  for (const Grid& grid : {Grid{.tensor = 2}, Grid{.experts = 2, .pipeline = 2, .data = 2}}) {
    GenerateCall call = texts_of("nvfp4");
    call.request.chunk = 512;
    const auto whole = generate_on_ranks(call, grid).texts;
    call.state = folder.file("state");
    call.request.max_new = 2;
    generate_on_ranks(call, grid);
    call.request.max_new = 4;
    call.resume = true;
    const ShardedResult rest = generate_on_ranks(call, grid);
    EXPECT_EQ(rest.texts, whole) << grid.text();
    EXPECT_EQ(rest.ranks.front().layers, 2 * layers_of(call.config, grid.stage(0)).size()) << "two rounds are left";
    expect_error([&] { generate_on_ranks(call, {.pipeline = 2}); }, ErrorCode::bad_value, {"--resume", grid.text(), "--pp 2"});
    GenerateCall other = call;
    other.request.seed = 99;
    expect_error([&] { generate_on_ranks(other, grid); }, ErrorCode::bad_value, {"rank0of", "another call", "seed"});
    // One round's parts at a time, one of each rank.
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), std::filesystem::directory_iterator()), 1 + grid.ranks());
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      if (entry.path().filename().string().starts_with("state.rank1of")) std::filesystem::remove(entry.path());
    expect_error([&] { generate_on_ranks(call, grid); }, ErrorCode::bad_file, {"rank1of"});
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) std::filesystem::remove(entry.path());
  }
}

TEST(Ranks, DeepEpAndItsLikeAddUpWhatOneRankGeneratesAlone) {
  for (const char* experts : {"deepep", "cutlass_es"})
    for (const Mode mode : {Mode::fast, Mode::golden}) {
      LayerRequest request = step(small("fp8-block"));
      request.setting.experts = experts;
      request.setting.expert_weights = ExpertWeights::fp8;
      request.exec.mode = mode;
      const std::string whole = bits_of(LayerRun(request).run().output);
      EXPECT_TRUE(bits_of(ShardedRun(request, {.experts = 4}).run().output) == whole) << experts;
    }
}

/// What the whole layer's backend gives for a layer's tokens where all experts but those of one of `ways` ranks have weight zero, and a
/// fused shared one has its part.
class TermsOfExperts {
 public:
  explicit TermsOfExperts(const LayerRequest& request) : request_(request) {
    LayerRun(request).run([this](const OpRecord& record, const NamedTensors& given) {
      if (record.op == "self.post_attention_layernorm()") x_ = given.front().second.clone();
      if (record.op == "self.topk()") weights_ = given[0].second.clone(), ids_ = given[1].second.clone();
    });
  }

  std::vector<Tensor> of(std::int64_t ways) const {
    const auto source = synthetic_weights(request_.config, request_.seed, request_.exec);
    LayerWeights weights(*source, request_.setting, request_.exec);
    const Batch batch = batch_of(request_);
    PagedKvCache cache(request_.config, DType::bf16, request_.lengths);
    Trace trace = layer_trace(weights, batch, request_.exec);
    const Pass pass{weights, batch, cache, trace, {}};
    const Routing all{weights_, ids_, rows_of_experts(pass, ids_)};
    weights.touch(all.counts, request_.exec);
    std::vector<Tensor> terms;
    for (std::int64_t r = 0; r < ways; ++r) {
      const std::int64_t each = request_.config.n_routed_experts / ways;
      Routing mine{weights_.clone(), all.ids, all.counts};
      for (std::int64_t i = 0; i < mine.rows(); ++i) {
        const std::int32_t id = ids_.as<std::int32_t>()[i];
        if (id == request_.config.n_routed_experts) {
          mine.weights.as<float>()[i] *= 1.0f / static_cast<float>(ways);
        } else if (id / each != r) {
          mine.weights.as<float>()[i] = 0;
        }
      }
      terms.push_back(weights.backend().run(pass, x_, mine));
    }
    return terms;
  }

 private:
  LayerRequest request_;
  Tensor x_, weights_, ids_;
};

/// A layer whose experts a kernel of whole mixtures runs.
LayerRequest whole_mixture(const std::string& experts, const std::string& form) {
  LayerRequest request = step(small(form));
  request.setting.experts = experts;
  if (form == "fp8-block") request.setting.expert_weights = ExpertWeights::fp8;
  return request;
}

TEST(Ranks, KernelsOfWholeMixturesAddUpTheirOwnExpertsAndTheRanksAddThoseSums) {
  const std::string reduce = "tensor_model_parallel_all_reduce()experts";
  struct {
    const char *experts, *form;
  } const rows[] = {{"trtllm", "nvfp4"},
                    {"trtllm", "fp8-block"},
                    {"trtllm", "bf16"},
                    {"flashinfer_cutlass", "nvfp4"},
                    {"flashinfer_cutlass", "fp8-block"},
                    {"cutlass", "w4a8"}};
  for (const auto& row : rows)
    for (const Mode mode : {Mode::fast, Mode::golden})
      // One token has four experts: of eight ranks some have none of them.
      for (const std::vector<std::int64_t>& lengths : {std::vector<std::int64_t>{5, 3, 9}, std::vector<std::int64_t>{4}}) {
        if (mode == Mode::golden && lengths.size() > 1) continue;
        LayerRequest request = whole_mixture(row.experts, row.form);
        request.exec.mode = mode;
        request.lengths = lengths;
        const TermsOfExperts expected(request);
        for (const std::int64_t ways : {2, 4, 8}) {
          SCOPED_TRACE(std::string(row.experts) + " " + row.form + ", " + std::to_string(ways) + " ways");
          const std::vector<Tensor> terms = expected.of(ways);
          ShardedRun run(request, {.experts = ways});
          Outputs outputs;
          observed(run, outputs);
          for (std::size_t r = 0; r < outputs.size(); ++r) {
            EXPECT_EQ(bytes(outputs[r].at(reduce)), bytes(added(terms)));
            if (outputs[r].contains("self.experts()")) EXPECT_EQ(bytes(outputs[r].at("self.experts()")), bytes(terms[r])) << "rank " << r;
          }
        }
      }
}

TEST(Ranks, AFusedSharedExpertIsOnEveryRankWithItsPartOfTheWeight) {
  struct {
    const char *form, *experts;
    ExpertWeights weights;
  } const rows[] = {{"nvfp4", "cutlass", ExpertWeights::stored},   {"bf16", "plain", ExpertWeights::stored},
                    {"fp8-block", "triton", ExpertWeights::fp8},   {"fp8-block", "cutlass", ExpertWeights::fp8},
                    {"fp8-block", "deepgemm", ExpertWeights::fp8}, {"nvfp4", "flashinfer_cutlass", ExpertWeights::stored},
                    {"int8", "triton", ExpertWeights::stored}};
  for (const auto& row : rows) {
    LayerRequest request = step(small(row.form));
    request.setting = {.layer = 1, .fused_shared = true, .experts = row.experts, .expert_weights = row.weights};
    const TermsOfExperts expected(request);
    for (const std::int64_t ways : {2, 8}) {
      SCOPED_TRACE(std::string(row.form) + " " + row.experts + ", " + std::to_string(ways) + " ways");
      const std::vector<Tensor> terms = expected.of(ways);
      ShardedRun run(request, {.experts = ways});
      EXPECT_FALSE(run.has_bits_of_whole());
      Outputs outputs;
      observed(run, outputs);
      for (std::size_t r = 0; r < outputs.size(); ++r) {
        EXPECT_EQ(bytes(outputs[r].at("self.experts()")), bytes(terms[r])) << "rank " << r;
        EXPECT_EQ(bytes(outputs[r].at("self.mlp()")), bytes(added(terms)));
      }
    }
  }
}

TEST(Ranks, SumsOfWholeMixturesDependOnTheNumberOfRanksAlone) {
  for (const char* const experts : {"trtllm", "flashinfer_cutlass"}) {
    LayerRequest request = whole_mixture(experts, "nvfp4");
    const std::string halves = bits_of(ShardedRun(request, {.experts = 2}).run().output);
    EXPECT_NE(halves, bits_of(LayerRun(request).run().output)) << "each of the ranks' sums is rounded";
    request.exec.threads = 1;
    request.setting.dual_stream = true;
    EXPECT_EQ(bits_of(ShardedRun(request, {.experts = 2}).run().output), halves);
    EXPECT_NO_THROW(ShardedRun(request, {.tensor = 2, .experts = 4}).run());
    GenerateCall call = texts_of("nvfp4");
    call.setting.experts = experts;
    const auto texts = generate_on_ranks(call, {.experts = 2}).texts;
    for (const Grid& grid : {Grid{.experts = 2, .data = 2}, Grid{.experts = 2, .pipeline = 2, .data = 2}})
      EXPECT_EQ(generate_on_ranks(call, grid).texts, texts) << experts << " " << grid.text();
  }
}

TEST(Ranks, NumbersOfRanksWithoutAnAllReduceOfSumsAreRefused) {
  for (const char* const experts : {"trtllm", "flashinfer_cutlass"}) {
    LayerRequest request = whole_mixture(experts, "nvfp4");
    expect_error([&] { ShardedRun(request, {.experts = 16}).run(); }, ErrorCode::unsupported,
                 {experts, "on 16 ranks, expected 2, 4, 6 or 8"});
    request.weights = "nowhere";
    expect_error([&] { ShardedRun(request, {.experts = 2}); }, ErrorCode::bad_file, {"nowhere"});
  }
}

TEST(Ranks, WhatCannotBeDealtOutIsRefusedByName) {
  const LayerRequest request = step(preset("tiny"));
  expect_error([&] { ShardedRun(request, {.tensor = 3}); }, ErrorCode::bad_option, {"--tp is 3, expected 1, 2, 4, 6 or 8"});
  expect_error([&] { ShardedRun(request, {.experts = 17}); }, ErrorCode::bad_option, {"--ep is 17, expected 1 to 16"});
  expect_error([&] { ShardedRun(request, {.tensor = 8}); }, ErrorCode::bad_value, {"heads", "num_attention_heads is 4"});
  expect_error([&] { ShardedRun(request, {.experts = 3}); }, ErrorCode::bad_value, {"experts", "n_routed_experts is 16"});
  LayerRequest fused = step(preset("tiny-fp8"));
  fused.setting = {.layer = 1, .fused_shared = true, .experts = "deepep", .expert_weights = ExpertWeights::fp8};
  for (const char* const experts : {"deepep", "trtllm"}) {
    fused.setting.experts = experts;
    expect_error([&] { ShardedRun(fused, {.experts = 2}).run(); }, ErrorCode::bad_option, {experts, "no place for a fused shared expert"});
  }
  fused.setting.experts = "triton";
  expect_error([&] { ShardedRun(fused, {.experts = 16}).run(); }, ErrorCode::unsupported, {"triton", "on 16 ranks, expected 2, 4, 6 or 8"});
  LayerRequest alone = request;
  alone.shard = Grid{.tensor = 2}.shard(0);
  expect_error([&] { LayerRun(alone).run(); }, ErrorCode::unsupported, {"the ranks that hold the others are missing"});
}

TEST(Ranks, AModelWithoutRoutedExpertsIsOneRanksOfThem) {
  LayerRequest request = step(small("bf16"), 0);
  request.config.n_routed_experts = 0;
  const std::string alone = bits_of(LayerRun(request).run().output);
  check_grid(request.config, {});
  EXPECT_EQ(bits_of(ShardedRun(request, {}).run().output), alone);
  expect_error([&] { check_grid(request.config, {.experts = 2}); }, ErrorCode::bad_option,
               {"--ep", "is 2, expected 1: the model has no routed experts"});
}

TEST(Ranks, ARankThatFailsEndsTheOthersAndItsErrorIsTheOneThatIsThrown) {
  for (const std::int64_t failing : {0, 2, 3}) {
    int ended = 0;
    const auto body = [&](std::int64_t rank, const Ranks& ranks) {
      for (int meeting = 0; meeting < 5; ++meeting) {
        if (rank == failing && meeting == 3) throw Error(ErrorCode::bad_value, "", "rank", std::to_string(rank) + " fails");
        const std::vector<Tensor> all = ranks.tensor->gather(testing::drawn(static_cast<std::uint64_t>(rank), "x", {2}, DType::f32));
        ASSERT_EQ(all.size(), 4u);
        for (std::size_t r = 0; r < 4; ++r) EXPECT_EQ(bytes(all[r]), bytes(testing::drawn(r, "x", {2}, DType::f32)));
      }
      ++ended;
    };
    expect_error([&] { take_turns({.tensor = 4}, body); }, ErrorCode::bad_value, {"rank " + std::to_string(failing) + " fails"});
    EXPECT_EQ(ended, 0);
  }
}

}  // namespace
}  // namespace dodona::model
