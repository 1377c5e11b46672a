// Backends of the routed experts: each within its budget of a straight composition, wherever rows go, and all beside one another.
#include <cmath>
#include <cstring>

#include "core/random.h"
#include "helpers.h"
#include "model/experts_comparison.h"
#include "model/layer/decoder.h"
#include "model/layer/experts/budget.h"
#include "model/layer/experts/experts.h"
#include "quant/e4m3.h"
#include "quant/element.h"

namespace dodona::model {
namespace {

using ops::Bounded;
using testing::expect_error;

const char* const names[] = {"cutlass", "triton", "deepgemm", "deepep", "trtllm", "flashinfer_cutlass"};
/// Of NVFP4 as it is stored.
const char* const nvfp4_names[] = {"cutlass", "trtllm", "flashinfer_cutlass"};

/// What the library has an H100's bits of.
bool has_mode(const std::string& name, Mode mode) {
  return mode != Mode::hopper || name != "trtllm";
}

LayerSetting with(const std::string& experts, bool fused_shared = false, ExpertWeights form = ExpertWeights::fp8) {
  return {.layer = 1, .fused_shared = fused_shared, .experts = experts, .expert_weights = form};
}

Tensor drawn(const char* name, const Dims& shape) {
  Tensor tensor(DType::bf16, shape);
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  fill_normal(Stream(3, name), 0, values);
  quant::from_f32(DType::bf16, values.data(), tensor.data(), tensor.elements());
  return tensor;
}

/// Experts of the tiny model, their tokens, and who goes where.
struct Case {
  ModelConfig config;
  Exec exec;
  std::unique_ptr<WeightSource> source;
  LayerWeights weights;
  Tensor x;
  Routing routing;

  Case(const std::string& experts, Mode mode, const std::vector<std::int32_t>& ids, bool fused_shared = false,
       ExpertWeights form = ExpertWeights::fp8, ModelConfig model = preset("tiny"))
      : config(std::move(model)),
        exec{.mode = mode, .threads = 1},
        source(synthetic_weights(config, 7, exec)),
        weights(*source, with(experts, fused_shared, form), exec),
        x(drawn("x", {static_cast<std::int64_t>(ids.size()) / 4, config.hidden_size})) {
    routing.ids = Tensor(DType::i32, {x.size(0), 4});
    routing.weights = Tensor(DType::f32, {x.size(0), 4});
    routing.counts.assign(static_cast<std::size_t>(weights.experts()), 0);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      routing.ids.as<std::int32_t>()[i] = ids[i];
      routing.weights.as<float>()[i] = 0.11f + 0.1f * static_cast<float>(i % 4);
      ++routing.counts[static_cast<std::size_t>(ids[i])];
    }
    weights.touch(routing.counts, exec);
  }

  Tensor run() {
    const std::vector<std::int64_t> lengths(static_cast<std::size_t>(x.size(0)), 1);
    const Batch batch = decode_batch(lengths);
    PagedKvCache cache(config, DType::bf16, lengths);
    Trace trace = layer_trace(weights, batch, exec);
    const Pass pass{weights, batch, cache, trace, {}};
    return weights.backend().run(pass, x, routing);
  }
  std::vector<Bounded> bounded() const { return bounded_experts(weights, x, routing, exec); }
};

/// Elements outside of the budget.
std::int64_t outside(const Tensor& out, const std::vector<Bounded>& allowed) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < out.elements(); ++i) {
    const Bounded& sum = allowed[static_cast<std::size_t>(i)];
    // A hair more: slack is of numbers in bf16 already.
    if (!(std::fabs(quant::get(out, i) - sum.exact) <= sum.slack * (1 + 1e-9))) ++count;
  }
  return count;
}

/// 5 tokens: all experts in turn; one for all slots; the last ones alone.
const std::vector<std::vector<std::int32_t>> routes = {{1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 4, 8, 12, 1, 9, 2, 7, 5},
                                                       {6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6},
                                                       {15, 14, 13, 12, 12, 13, 14, 15, 15, 12, 13, 14, 14, 15, 12, 13, 13, 14, 15, 12}};

TEST(ExpertsBackends, EachStaysWithinItsBudgetInEveryModeWhereverRowsGo) {
  for (const char* name : names)
    for (const Mode mode : {Mode::fast, Mode::golden, Mode::hopper})
      for (std::size_t r = 0; r < routes.size(); ++r) {
        // The low-latency combine takes one row of a token from each expert, and a routing by keys chooses none twice.
        if (r == 1 && (std::string(name) == "deepep" || std::string(name) == "trtllm")) continue;
        if (!has_mode(name, mode)) continue;
        Case c(name, mode, routes[r]);
        EXPECT_EQ(outside(c.run(), c.bounded()), 0) << name << ' ' << dodona::name(mode) << " route " << r;
      }
}

TEST(ExpertsBackends, EachOfNvfp4StaysWithinItsBudgetWhereverRowsGo) {
  for (const char* name : nvfp4_names)
    for (const Mode mode : {Mode::fast, Mode::golden, Mode::blackwell})
      for (std::size_t r = 0; r < routes.size(); ++r) {
        if (r == 1 && std::string(name) == "trtllm") continue;
        // Of a B200's bits the library has those of the kernel that quantizes tokens itself.
        if (mode == Mode::blackwell && std::string(name) != "flashinfer_cutlass") continue;
        Case c(name, mode, routes[r], false, ExpertWeights::stored);
        EXPECT_EQ(outside(c.run(), c.bounded()), 0) << name << ' ' << dodona::name(mode) << " route " << r;
      }
}

/// Of bf16.
const char* const bf16_names[] = {"plain", "triton", "trtllm"};
ModelConfig tiny_bf16() {
  return with_scheme(preset("tiny"), scheme_named("bf16"));
}

TEST(ExpertsBackends, EachOfBf16StaysWithinItsBudgetWhereverRowsGo) {
  for (const char* name : bf16_names)
    for (const Mode mode : {Mode::fast, Mode::golden, Mode::hopper})
      for (std::size_t r = 0; r < routes.size(); ++r) {
        if (std::string(name) == "trtllm" && (r == 1 || mode == Mode::hopper)) continue;
        Case c(name, mode, routes[r], false, ExpertWeights::stored, tiny_bf16());
        const std::vector<Bounded> allowed = c.bounded();
        EXPECT_EQ(outside(c.run(), allowed), 0) << name << ' ' << dodona::name(mode) << " route " << r;
        // Nothing is quantized: what is left open are some roundings to bf16, of 2^-9 each.
        double slack = 0, exact = 0;
        for (const Bounded& sum : allowed) slack += sum.slack, exact += std::fabs(sum.exact);
        EXPECT_LT(slack, 0.02 * exact) << name << " route " << r;
      }
}

TEST(ExpertsBackends, OneInputScaleForAllExpertsIsTheLargest) {
  Case c("trtllm", Mode::golden, routes[0], false, ExpertWeights::stored);
  float gate_up = 0, down = 0;
  for (std::int64_t e = 0; e < c.config.n_routed_experts; ++e) {
    const std::string expert = "model.layers.1.mlp.experts." + std::to_string(e) + ".";
    for (const char* module : {"gate_proj", "up_proj"}) gate_up = std::max(gate_up, c.source->scalar(expert + module + ".input_scale"));
    down = std::max(down, c.source->scalar(expert + "down_proj.input_scale"));
  }
  EXPECT_GT(gate_up, 0);
  EXPECT_EQ(c.weights.expert_input_scales.gate_up, gate_up);
  EXPECT_EQ(c.weights.expert_input_scales.down, down);
  Case own("cutlass", Mode::golden, routes[0], false, ExpertWeights::stored);
  EXPECT_EQ(own.weights.expert_input_scales.gate_up, 0) << "each expert has its own";
}

/// The experts in float, row by row: what all backends compute.
std::vector<float> straight(const Case& c) {
  const auto quantized = [](std::vector<float> row) {
    for (std::size_t g = 0; g < row.size(); g += 128) {
      float amax = 1e-10f;
      for (std::size_t i = g; i < g + 128; ++i) amax = std::max(amax, std::fabs(row[i]));
      const float s = amax / 448.0f;
      for (std::size_t i = g; i < g + 128; ++i) row[i] = quant::e4m3_to_f32(quant::to_e4m3_satfinite(static_cast<double>(row[i] / s))) * s;
    }
    return row;
  };
  const auto narrow = [](float v) { return static_cast<float>(quant::round_to(DType::bf16, static_cast<double>(v))); };
  const auto multiply = [&](const Projection& w, const std::vector<float>& row) {
    std::vector<float> out;
    for (std::int64_t n = 0; n < w.rows(); ++n) {
      float sum = 0;
      for (std::int64_t k = w.columns() - 1; k >= 0; --k)
        sum += row[static_cast<std::size_t>(k)] * quant::e4m3_to_f32(w.weight.weight.as<std::uint8_t>()[n * w.columns() + k]) *
               w.block_scales.as<float>()[n / 128 * w.block_scales.size(1) + k / 128];
      out.push_back(narrow(sum));
    }
    return out;
  };
  const auto hidden = static_cast<std::size_t>(c.x.size(1));
  std::vector<float> sums(static_cast<std::size_t>(c.x.elements()), 0.0f);
  for (std::int64_t i = 0; i < c.routing.ids.elements(); ++i) {
    const MlpWeights& expert = c.weights.expert(c.routing.ids.as<std::int32_t>()[i]);
    std::vector<float> row;
    for (std::size_t k = 0; k < hidden; ++k)
      row.push_back(static_cast<float>(quant::get(c.x, i / 4 * c.x.size(1) + static_cast<std::int64_t>(k))));
    const std::vector<float> both = multiply(expert.gate_up, quantized(row));
    std::vector<float> h;
    for (std::size_t k = 0; k < both.size() / 2; ++k) h.push_back(narrow(both[k] / (1 + std::exp(-both[k])) * both[both.size() / 2 + k]));
    const std::vector<float> out = multiply(expert.down, quantized(h));
    for (std::size_t k = 0; k < hidden; ++k)
      sums[static_cast<std::size_t>(i / 4) * hidden + k] += c.routing.weights.as<float>()[i] * out[k];
  }
  return sums;
}

TEST(ExpertsBackends, BudgetsHoldAStraightCompositionAndNotOneThatScalesOnceMore) {
  Case c("cutlass", Mode::golden, routes[0]);
  Tensor sums(DType::bf16, c.x.shape()), scaled = sums.clone();
  const std::vector<float> values = straight(c);
  // cutlass rounds the weights, which moves a sum by less than 2^-8 of it: the budget is asked with them unrounded in deepep's stead.
  Case exact("deepep", Mode::golden, routes[0]);
  quant::from_f32(DType::bf16, values.data(), sums.data(), sums.elements());
  std::vector<float> more = values;
  for (float& v : more) v *= 2.5f;
  quant::from_f32(DType::bf16, more.data(), scaled.data(), scaled.elements());
  const std::vector<Bounded> allowed = exact.bounded();
  EXPECT_EQ(outside(sums, allowed), 0);
  EXPECT_GT(outside(scaled, allowed), sums.elements() / 4);
}

TEST(ExpertsBackends, TheFactorIsAppliedOnceInEachPlace) {
  // Those that apply it themselves give 2.5 times what the others do.
  const auto rms = [&](const char* name) {
    Case c(name, Mode::fast, routes[0]);
    const Tensor out = c.run();
    double sum = 0;
    for (std::int64_t i = 0; i < out.elements(); ++i) sum += quant::get(out, i) * quant::get(out, i);
    return std::sqrt(sum);
  };
  const double plain = rms("cutlass");
  for (const char* name : {"deepep", "trtllm", "flashinfer_cutlass"}) EXPECT_NEAR(rms(name) / plain, 1.0, 0.02) << name;
  EXPECT_NEAR(rms("triton") / plain, 2.5, 0.05);
  EXPECT_NEAR(rms("deepgemm") / plain, 2.5, 0.05);
}

TEST(ExpertsBackends, AFusedSharedExpertIsOneMore) {
  for (const char* name : {"cutlass", "triton", "deepgemm", "flashinfer_cutlass"}) {
    Case c(name, Mode::fast, {1, 5, 9, 16, 2, 6, 10, 16}, true);
    EXPECT_EQ(outside(c.run(), c.bounded()), 0) << name;
  }
  expect_error([] { Case("deepep", Mode::fast, routes[0], true); }, ErrorCode::bad_option, {"deepep", "fused shared expert"});
}

LayerRequest request(const std::string& experts, Mode mode = Mode::fast, ExpertWeights form = ExpertWeights::fp8) {
  LayerRequest r{.config = preset("tiny"), .setting = with(experts, false, form), .lengths = {9, 3, 40}, .seed = 5};
  r.exec.mode = mode;
  r.exec.threads = 1;
  return r;
}

TEST(ExpertsBackends, AnyTwoDifferWithinWhatTheirContractsAllow) {
  const auto compared = [](const char* a, const char* b, Mode mode) {
    const ExpertsComparison c = compare_experts(request(a, mode), b);
    EXPECT_EQ(c.beyond, 0) << a << ' ' << b;
    EXPECT_GT(c.allowed, c.difference) << a << ' ' << b;
    return c.differing;
  };
  for (std::size_t i = 0; i < std::size(names); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_GT(compared(names[i], names[j], Mode::fast), 0) << names[i] << ' ' << names[j];
  EXPECT_GT(compared("deepep", "triton", Mode::golden), 0);
  EXPECT_EQ(compared("deepgemm", "deepgemm", Mode::fast), 0);
}

TEST(ExpertsBackends, AnyTwoOfNvfp4DifferWithinWhatTheirContractsAllow) {
  const char* const all[] = {"plain", "cutlass", "trtllm", "flashinfer_cutlass"};
  for (const Mode mode : {Mode::fast, Mode::golden})
    for (const char* a : all)
      for (const char* b : all) {
        const ExpertsComparison c = compare_experts(request(a, mode, ExpertWeights::stored), b);
        EXPECT_EQ(c.beyond, 0) << a << ' ' << b;
        EXPECT_GE(c.allowed, c.difference) << a << ' ' << b;
        EXPECT_EQ(c.differing == 0, a == b) << a << ' ' << b;
      }
}

TEST(ExpertsBackends, AnyTwoOfBf16DifferWithinWhatTheirContractsAllow) {
  for (const char* a : bf16_names)
    for (const char* b : bf16_names) {
      LayerRequest one = request(a, Mode::fast, ExpertWeights::stored);
      one.config = tiny_bf16();
      const ExpertsComparison c = compare_experts(one, b);
      EXPECT_EQ(c.beyond, 0) << a << ' ' << b;
      EXPECT_GT(c.allowed, c.difference) << a << ' ' << b;
      // plain's products and the Triton kernel's are the same sums in fast mode.
      EXPECT_EQ(c.differing > 0, (std::string(a) == "trtllm") != (std::string(b) == "trtllm")) << a << ' ' << b;
    }
}

TEST(ExpertsBackends, BitsDependOnNeitherThreadsNorRepetition) {
  for (const char* name : names) {
    LayerRequest one = request(name), two = request(name);
    two.exec.threads = 2;
    LayerRun a(one), b(two);
    const std::string digest = digest_of(a.run().output);
    EXPECT_EQ(digest, digest_of(b.run().output)) << name;
    EXPECT_EQ(digest, digest_of(b.run().output)) << name;
  }
}

TEST(ExpertsBackends, WholeMixturesReadPackedWeightsInFastModeWithTheBitsOfRawOnes) {
  for (const ExpertWeights form : {ExpertWeights::fp8, ExpertWeights::stored})
    for (const char* name : {"trtllm", "flashinfer_cutlass"}) {
      Case packed(name, Mode::fast, routes[0], false, form), raw(name, Mode::golden, routes[0], false, form);
      EXPECT_TRUE(packed.weights.expert(1).whole.defined());
      EXPECT_FALSE(packed.weights.expert(1).gate_up.weight.weight.defined());
      EXPECT_FALSE(raw.weights.expert(1).whole.defined());
      raw.exec.mode = Mode::fast;
      const Tensor a = packed.run(), b = raw.run();
      EXPECT_EQ(std::memcmp(a.data(), b.data(), static_cast<std::size_t>(bytes_for(a.dtype(), a.elements()))), 0) << name;
    }
}

TEST(ExpertsBackends, WhatNoBackendDoesIsRefusedByName) {
  expect_error([] { LayerRun{request("marlin")}; }, ErrorCode::bad_option,
               {"'marlin'", "cutlass, plain, triton, deepgemm, deepep, trtllm, flashinfer_cutlass"});
  auto stored = request("deepgemm");
  stored.setting.expert_weights = ExpertWeights::stored;
  expect_error([&] { LayerRun{stored}; }, ErrorCode::unsupported,
               {"nvfp4, which deepgemm does not multiply", "as they are stored, one of cutlass"});
  auto unrounded = request("triton");
  unrounded.setting.rounding = Rounding::off;
  expect_error([&] { LayerRun{unrounded}; }, ErrorCode::bad_option, {"roundings are off"});
  auto dense = request("triton");
  dense.setting.layer = 0;
  expect_error([&] { compare_experts(dense, "cutlass"); }, ErrorCode::bad_option, {"layer 0 is dense"});
  auto rows = request("triton", Mode::fast, ExpertWeights::stored);
  rows.config = with_scheme(preset("tiny"), scheme_named("int8"));
  expect_error([&] { compare_experts(rows, "triton"); }, ErrorCode::bad_option, {"triton", "as they are stored", "of NVFP4"});
}

TEST(ExpertsBackends, TrtllmRefusesTwoRowsOfATokenForOneExpertAndModesThatNoKernelHas) {
  expect_error([] { Case("trtllm", Mode::fast, routes[1]).run(); }, ErrorCode::unsupported, {"token 0", "expert 6"});
  expect_error([] { Case("trtllm", Mode::hopper, routes[0]).run(); }, ErrorCode::unsupported, {"no hopper mode"});
  expect_error([] { Case("trtllm", Mode::fast, routes[0], true); }, ErrorCode::bad_option, {"trtllm", "fused shared expert"});
}

TEST(ExpertsBackends, PlansKnowTheKernelOfTheBackend) {
  const Plan plan = plan_layer(request("deepgemm"));
  bool found = false;
  for (const OpRecord& op : plan.ops) found = found || op.kernels.find("m_grouped_fp8_gemm_nt_masked") != std::string::npos;
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace dodona::model
