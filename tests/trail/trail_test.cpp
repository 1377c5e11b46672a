// Trails of a layer, and dumps held against a run of it.
#include "trail/trail.h"

#include <cmath>
#include <set>

#include "core/random.h"
#include "io/sha256.h"
#include "model/layer/decoder.h"
#include "quant/element.h"
#include "tests/model/helpers.h"
#include "trail/trail_comparison.h"

namespace dodona::trail {
namespace {

using namespace model;
using helpers::TempFolder;
using model::testing::expect_error;

constexpr std::uint64_t seed = 7;
const std::vector<std::int64_t> lengths{40, 1, 9};

Tensor drawn(const char* name, const Dims& shape) {
  Tensor tensor(DType::bf16, shape);
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  fill_normal(Stream(seed, name), 0, values);
  quant::from_f32(DType::bf16, values.data(), tensor.data(), tensor.elements());
  return tensor;
}

/// A layer of the tiny model, run under an observer.
class Layer {
 public:
  Layer(std::int64_t layer, Mode mode, ModelConfig config = preset("tiny"))
      : layer_(layer), exec_{.mode = mode, .threads = 1}, config_(std::move(config)) {}

  LayerState run(const Observer& observer) { return run(observer, exec_, exec_); }
  LayerState run(const Observer& observer, const Exec& for_weights, const Exec& for_run) {
    const auto source = synthetic_weights(config_, seed, for_weights);
    LayerWeights weights(*source, {.layer = layer_}, for_weights);
    const ModelConfig& config = config_;
    PagedKvCache cache(config, DType::bf16, lengths);
    cache.synthesize_history(seed, lengths, 1);
    Batch batch = decode_batch(lengths);
    cache.place(batch);
    Trace trace = layer_trace(weights, batch, for_run);
    trace.observe(observer);
    const Dims shape{3, config.hidden_size};
    return run_layer(weights, batch, {drawn("hidden", shape), layer_ > 0 ? drawn("residual", shape) : Tensor()}, cache, trace);
  }
  Trail trail() {
    Trail trail;
    trail.setting = {{"layer", layer_}};
    run(trail.recorder(true));
    return trail;
  }
  /// A run of this layer held against a file.
  std::unique_ptr<TrailComparison> against(const TrailReference& reference) {
    auto comparison = std::make_unique<TrailComparison>(reference, DType::bf16);
    run(comparison->observer(), comparison->for_weights(exec_), comparison->for_run(exec_));
    return comparison;
  }

 private:
  std::int64_t layer_;
  Exec exec_;
  ModelConfig config_;
};

/// The tensors of a trail, as a dump has them.
io::NamedTensors dump_of(const Trail& trail) {
  io::NamedTensors tensors;
  for (const TrailStep& step : trail.steps)
    for (std::size_t i = 0; i < step.outputs.size(); ++i) {
      const std::string name = step.op + (step.note.empty() ? "" : " (" + step.note + ")");
      tensors.emplace_back(i == 0 ? name : name + "." + step.outputs[i].label, step.outputs[i].tensor);
    }
  return tensors;
}
Tensor& find(io::NamedTensors& tensors, const std::string& name) {
  for (auto& [each, tensor] : tensors)
    if (each == name) return tensor;
  ADD_FAILURE() << "no " << name;
  return tensors.front().second;
}

class TrailFiles : public ::testing::Test {
 protected:
  TrailReference dump(const io::NamedTensors& tensors) const {
    const std::vector<std::byte> content = io::safetensors_bytes(tensors);
    return TrailReference::open(folder_.write("dump.safetensors", {reinterpret_cast<const char*>(content.data()), content.size()}));
  }
  TrailReference written(const Trail& trail, const char* name) const {
    write_trail(folder_.file(name), trail);
    return TrailReference::open(folder_.file(name));
  }
  TempFolder folder_;
};

TEST(Trail, HoldsEveryOpOnceInTheOrderInWhichResultsAreKnown) {
  Layer layer(1, Mode::fast);
  Trail trail;
  const LayerState output = layer.run(trail.recorder(false));
  std::set<std::string> names;
  for (const TrailStep& step : trail.steps) EXPECT_TRUE(names.insert(step.op + step.note).second) << step.op;
  for (const char* op : {"self.q_b_proj()", "bmm_fp8()attn_output * w_vc", "self.topk()", "cutlass_fp4_group_mmdown", "self.mlp()"})
    EXPECT_TRUE(names.contains(op)) << op;
  EXPECT_EQ(trail.steps.front().op, "self.input_layernorm()");
  const TrailStep& last = trail.steps.back();
  EXPECT_EQ(last.op, "layer()");
  ASSERT_EQ(last.outputs.size(), 2u);
  EXPECT_EQ(last.outputs[0].label, "hidden");
  EXPECT_EQ(last.outputs[0].digest, io::to_hex(io::tensor_digest(output.hidden)));
  EXPECT_FALSE(last.outputs[0].tensor.defined());
}

TEST(Trail, StatisticsLeaveOutWhatIsNotFinite) {
  Tensor tensor(DType::f32, {2, 3});
  const float values[] = {3, -4, NAN, INFINITY, 0, 1};
  std::copy(std::begin(values), std::end(values), tensor.as<float>());
  const Statistics s = statistics(tensor);
  EXPECT_EQ(s.min, -4);
  EXPECT_EQ(s.max, 3);
  EXPECT_EQ(s.not_finite, 2);
  EXPECT_DOUBLE_EQ(s.rms, std::sqrt(26.0 / 4));
}

TEST_F(TrailFiles, ARunAgreesWithItsOwnTrailInEitherForm) {
  for (const std::int64_t number : {0, 1}) {
    Layer layer(number, Mode::fast);
    const Trail trail = layer.trail();
    for (const char* name : {"trail.jsonl", "trail.safetensors"}) {
      const TrailReference reference = written(trail, name);
      EXPECT_TRUE(reference.is_trail());
      EXPECT_EQ(reference.setting()["layer"], number);
      const auto comparison = layer.against(reference);
      comparison->finish();
      EXPECT_FALSE(comparison->difference());
      EXPECT_TRUE(comparison->absent().empty());
      EXPECT_GT(comparison->compared(), 15);
    }
  }
}

TEST_F(TrailFiles, OneBitIsFoundAtItsOpInATrail) {
  Layer layer(1, Mode::fast);
  Trail trail = layer.trail();
  for (TrailStep& step : trail.steps)
    if (step.op == "self.act_fn()") {
      Tensor& tensor = step.outputs[0].tensor;
      quant::set_bits(tensor, 300, quant::get_bits(tensor, 300) ^ 1);
      step.outputs[0].digest = io::to_hex(io::tensor_digest(tensor));
    }
  const auto with_tensors = layer.against(written(trail, "trail.safetensors"));
  ASSERT_TRUE(with_tensors->difference());
  EXPECT_EQ(with_tensors->difference()->name, "self.act_fn()");
  EXPECT_EQ(with_tensors->difference()->beyond, 1);
  EXPECT_EQ(to_string(with_tensors->difference()->index), "[2, 44]");
  const auto digests = layer.against(written(trail, "trail.jsonl"));
  ASSERT_TRUE(digests->difference());
  EXPECT_EQ(digests->difference()->name, "self.act_fn()");
  EXPECT_FALSE(digests->difference()->has_element);
  EXPECT_NE(digests->difference()->expected, digests->difference()->found);
}

// Fast and golden mode round at the same points and differ in the order of their sums, as another honest implementation would.
TEST_F(TrailFiles, AnHonestDumpPasses) {
  ModelConfig plain = preset("tiny"), all = preset("tiny");
  plain.quant = {};
  all.quant.exclude = {"lm_head", "*.mlp.gate"};
  for (const ModelConfig& config : {preset("tiny"), plain, all})
    for (const std::int64_t number : {0, 1}) {
      const TrailReference reference = dump(dump_of(Layer(number, Mode::fast, config).trail()));
      EXPECT_FALSE(reference.is_trail());
      const auto comparison = Layer(number, Mode::golden, config).against(reference);
      comparison->finish();
      if (comparison->difference())
        ADD_FAILURE() << "layer " << number << ": " << comparison->difference()->name << " " << to_string(comparison->difference()->index)
                      << " " << comparison->difference()->expected_value << " " << comparison->difference()->found_value << " allowed "
                      << comparison->difference()->allowed;
    }
}

TEST_F(TrailFiles, AChangedElementOfADumpIsFoundAtItsOpWhereverItIs) {
  Layer layer(1, Mode::fast);
  const io::NamedTensors honest = dump_of(layer.trail());
  for (const auto& [name, tensor] : honest) {
    if (name.ends_with("input_permutation")) continue;  // taken from output_permutation
    io::NamedTensors tensors = honest;
    Tensor changed = tensor.clone();
    const std::int64_t at = changed.elements() - 1;
    const double value = quant::get(changed, at);
    // A small part of the row's size; another expert, row or code.
    quant::set(changed, at,
               changed.dtype() == DType::i32  ? (value > 0 ? value - 1 : value + 1)
               : changed.dtype() == DType::u8 ? std::fabs(value - 119)
                                              : value + 0.15);
    find(tensors, name) = changed;
    const auto comparison = layer.against(dump(tensors));
    ASSERT_TRUE(comparison->difference()) << name;
    EXPECT_EQ(comparison->difference()->name, name);
    if (name != "prepare_moe_input") {
      EXPECT_EQ(comparison->difference()->beyond, 1) << name;
      EXPECT_EQ(comparison->difference()->index[changed.rank() - 1], changed.size(-1) - 1) << name;
    }
  }
}

TEST_F(TrailFiles, ANaNIsFound) {
  Layer layer(0, Mode::fast);
  io::NamedTensors tensors = dump_of(layer.trail());
  quant::set(find(tensors, "self.o_proj()"), 5, NAN);
  const auto comparison = layer.against(dump(tensors));
  ASSERT_TRUE(comparison->difference());
  EXPECT_EQ(comparison->difference()->name, "self.o_proj()");
  EXPECT_EQ(to_string(comparison->difference()->index), "[0, 5]");
}

TEST_F(TrailFiles, RowsOfOneExpertMayComeInAnyOrder) {
  Layer layer(1, Mode::fast);
  io::NamedTensors tensors = dump_of(layer.trail());
  const Tensor ids = find(tensors, "self.topk().topk_ids");
  Tensor& place = find(tensors, "prepare_moe_input");
  std::int64_t a = -1, b = -1;
  for (std::int64_t i = 0; i < ids.elements(); ++i)
    for (std::int64_t j = i + 1; j < ids.elements(); ++j)
      if (quant::get(ids, i) == quant::get(ids, j)) {
        a = static_cast<std::int64_t>(quant::get(place, i));
        b = static_cast<std::int64_t>(quant::get(place, j));
        quant::set(place, i, static_cast<double>(b));
        quant::set(place, j, static_cast<double>(a));
        i = j = ids.elements();
      }
  ASSERT_GE(a, 0) << "no expert has two tokens";
  for (const char* name : {"shuffle_rows", "scaled_fp4_experts_quant (gate_up)", "cutlass_fp4_group_mm (gate_up)", "silu_and_mul",
                           "scaled_fp4_experts_quant (down)", "cutlass_fp4_group_mm (down)"}) {
    const Tensor& rows = find(tensors, name);
    const Tensor first = rows.slice(0, a, a + 1).clone();
    copy(rows.slice(0, b, b + 1), rows.slice(0, a, a + 1));
    copy(first, rows.slice(0, b, b + 1));
  }
  const auto comparison = layer.against(dump(tensors));
  comparison->finish();
  EXPECT_FALSE(comparison->difference()) << comparison->difference()->name;
}

TEST_F(TrailFiles, ADumpMayLeaveOpsOutUseShortNamesAndBeAFolder) {
  const io::NamedTensors all = dump_of(Layer(1, Mode::fast).trail());
  io::NamedTensors some, more;
  for (const auto& [name, tensor] : all) {
    if (name == "self.q_b_proj()") some.emplace_back("q_b_proj", tensor);
    if (name == "bmm_fp8() (q_nope * w_kc)") some.emplace_back("bmm_fp8(q_nope*w_kc)", tensor);
    if (name == "self.rotary_emb().k_pe") some.emplace_back("rotary_emb.k_pe", tensor);
    if (name == "self.self_attn()") more.emplace_back("self_attn", tensor);
    if (name == "layer()") more.emplace_back("layer.hidden", tensor);
  }
  std::filesystem::create_directory(folder_.file("dump"));
  io::write_safetensors(folder_.file("dump/a.safetensors"), some);
  io::write_safetensors(folder_.file("dump/b.safetensors"), more);
  const auto comparison = Layer(1, Mode::golden).against(TrailReference::open(folder_.file("dump")));
  comparison->finish();
  EXPECT_FALSE(comparison->difference());
  EXPECT_EQ(comparison->compared(), 5);
  EXPECT_GT(comparison->absent().size(), 10u);
}

TEST_F(TrailFiles, WhatCannotBeComparedIsNamed) {
  Layer layer(0, Mode::fast);
  const io::NamedTensors honest = dump_of(layer.trail());
  const auto refuses = [&](const io::NamedTensors& tensors, ErrorCode code, const std::vector<std::string>& parts) {
    expect_error([&] { layer.against(dump(tensors))->finish(); }, code, parts);
  };
  io::NamedTensors tensors = honest;
  find(tensors, "self.q_b_proj()") = Tensor(DType::bf16, {768, 3});
  refuses(tensors, ErrorCode::bad_shape, {"self.q_b_proj()", "[768, 3]", "[3, 768]"});
  tensors = honest;
  find(tensors, "self.q_b_proj()") = Tensor(DType::i32, {3, 768});
  refuses(tensors, ErrorCode::bad_dtype, {"self.q_b_proj()", "i32", "bf16"});
  tensors = honest;
  tensors.emplace_back("self.q_b_prj()", honest[0].second);
  refuses(tensors, ErrorCode::bad_file, {"self.q_b_prj()", "no output of a model op"});
  tensors = honest;
  tensors.emplace_back("q_b_proj", honest[0].second);
  refuses(tensors, ErrorCode::bad_file, {"q_b_proj", "again"});
  refuses({{"input.hidden", honest[0].second}}, ErrorCode::bad_file, {"no output of a model op"});
  for (const char* text : {"", "{", "{\"trail\": 1}", "{\"setting\": {}}\n{\"op\": 1}\n", "not a trail"})
    expect_error([&] { layer.against(TrailReference::open(folder_.write("t.jsonl", text)))->finish(); }, ErrorCode::bad_file, {"t.jsonl"});
  expect_error([&] { TrailReference::open(folder_.file("absent")); }, ErrorCode::bad_file, {"absent"});
  std::filesystem::create_directory(folder_.file("empty"));
  expect_error([&] { TrailReference::open(folder_.file("empty")); }, ErrorCode::bad_file, {"empty", "no safetensors"});
}

}  // namespace
}  // namespace dodona::trail
