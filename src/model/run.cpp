#include "model/run.h"

#include <algorithm>

#include "core/random.h"
#include "dodona/error.h"
#include "dodona/op.h"
#include "io/sha256.h"
#include "model/layer/attention/attention.h"
#include "model/layer/attention/indexer.h"
#include "model/layer/kernel_use.h"
#include "model/weights/tensor_list.h"
#include "model/weights/without_memory.h"
#include "quant/element.h"

namespace dodona::model {
namespace {

Tensor drawn(const char* name, std::uint64_t seed, const Dims& shape, DType type) {
  Tensor tensor(type, shape);
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  fill_normal(Stream(seed, name), 0, values);
  quant::from_f32(type, values.data(), tensor.data(), tensor.elements());
  return tensor;
}

/// `make(name)` for hidden and, where the layer takes one, for residual.
template <class Make>
LayerState state_of(const LayerRequest& request, const Make& make) {
  LayerState state{make("hidden"), {}};
  if (!is_first_layer(request.config, request.setting.layer)) state.residual = make("residual");
  return state;
}

Dims state_shape(const LayerRequest& request) {
  return {batch_of(request).tokens(), request.config.hidden_size};
}

/// What each request has before the step, and one more: synthesize_history leaves out the last.
std::vector<std::int64_t> behind_history(const LayerRequest& request) {
  const Batch batch = batch_of(request);
  std::vector<std::int64_t> lengths;
  for (std::int64_t r = 0; r < batch.size(); ++r) lengths.push_back(batch.prefix(r) + 1);
  return lengths;
}

void check_option(const char* option, std::int64_t value, std::int64_t most, const char* why = "") {
  if (value < 1 || value > most)
    throw Error(ErrorCode::bad_option, "", option, "is " + std::to_string(value) + ", expected 1 to " + std::to_string(most) + why);
}

}  // namespace

ModelConfig choose_config(const std::string& folder, const std::string& preset_name, const std::string& weights) {
  if (!folder.empty()) return load_config(folder);
  if (!preset_name.empty()) return preset(preset_name);
  return weights.empty() ? preset("r1-nvfp4") : load_config(weights);
}

std::int64_t default_layer(const ModelConfig& config) {
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    if (config.is_moe_layer(layer)) return layer;
  return 0;
}

std::unique_ptr<WeightSource> open_weights(const ModelConfig& config, const std::string& folder, std::uint64_t seed, const Exec& exec,
                                           const Shard& shard) {
  return folder.empty() ? synthetic_weights(config, seed, exec, shard) : open_checkpoint(folder, config, shard);
}

std::vector<std::int64_t> lengths_of(const ModelConfig& config, std::vector<std::int64_t> kv_len, std::optional<std::int64_t> batch,
                                     const BatchOptionNames& names) {
  const auto given = static_cast<std::int64_t>(kv_len.size());
  const std::int64_t requests = batch.value_or(given);
  check_option(names.batch, requests, 1 << 20);
  if (given != 1 && given != requests)
    throw Error(ErrorCode::bad_option, "", names.kv_len,
                "has " + std::to_string(given) + " values, expected one, or one for each of " + std::to_string(requests) + " requests");
  for (const std::int64_t length : kv_len) check_option(names.kv_len, length, config.max_position_embeddings, " (max_position_embeddings)");
  kv_len.resize(static_cast<std::size_t>(requests), kv_len.front());
  return kv_len;
}

Phases phases_of(const std::string& phase, std::span<const std::int64_t> lengths, std::vector<std::int64_t> prefix_len,
                 std::optional<std::int64_t> draft_tokens, const PhaseOptionNames& names) {
  const auto fail = [](const char* option, const std::string& why) { throw Error(ErrorCode::bad_option, "", option, why); };
  if (phase != "prefill" && phase != "extend" && phase != "decode" && phase != "verify")
    fail(names.phase, "is '" + phase + "', expected prefill, extend, decode or verify");
  if (draft_tokens && phase != "verify") fail(names.draft_tokens, "is given, but the phase is " + phase + ", not verify");
  const bool takes_prefix = phase == "prefill" || phase == "extend";
  if (!prefix_len.empty() && !takes_prefix) fail(names.prefix_len, "is given, but the phase is " + phase + ": expected prefill or extend");
  if (prefix_len.empty() && phase == "extend") fail(names.prefix_len, "is missing: how many tokens of each request are cached already");
  if (prefix_len.empty()) prefix_len = {0};
  if (prefix_len.size() != 1 && prefix_len.size() != lengths.size())
    fail(names.prefix_len, "has " + std::to_string(prefix_len.size()) + " values, expected one, or one for each of " +
                               std::to_string(lengths.size()) + " requests");
  prefix_len.resize(lengths.size(), prefix_len.front());
  if (draft_tokens) check_option(names.draft_tokens, *draft_tokens, 1024);
  Phases phases{.forward = phase == "decode" ? Forward::decode : phase == "verify" ? Forward::verify : Forward::extend, .new_tokens = {}};
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    const std::int64_t fresh = takes_prefix ? lengths[r] - prefix_len[r] : phase == "verify" ? draft_tokens.value_or(4) : 1;
    if (takes_prefix && (prefix_len[r] < 0 || fresh < 1))
      fail(names.prefix_len, "of request " + std::to_string(r) + " is " + std::to_string(prefix_len[r]) + ", expected 0 to " +
                                 std::to_string(lengths[r] - 1) + ", as it has " + std::to_string(lengths[r]) + " tokens");
    if (fresh > lengths[r])
      fail(names.draft_tokens,
           "are " + std::to_string(fresh) + ", but request " + std::to_string(r) + " has " + std::to_string(lengths[r]) + " tokens");
    phases.new_tokens.push_back(fresh);
  }
  return phases;
}

KvCacheType kv_cache_of(const std::string& text, const ModelConfig& config, const char* option) {
  if (text != "bf16" && text != "fp8_e4m3" && text != "auto")
    throw Error(ErrorCode::bad_option, "", option, "is '" + text + "', expected bf16, fp8_e4m3 or auto");
  const bool fp8 = text == "fp8_e4m3" || (text == "auto" && config.quant.fp8_kv_cache);
  return fp8 ? KvCacheType::e4m3 : KvCacheType::activations;
}

void check_heard(const LayerRequest& request, bool chunks) {
  const LayerSetting& setting = request.setting;
  const auto refuse = [](const char* option, const std::string& why) {
    throw Error(ErrorCode::bad_option, "", option, "is given, but " + why);
  };
  const bool moe = request.config.is_moe_layer(setting.layer);
  for (const auto& [option, given] : {std::pair{"fused_shared_expert", setting.fused_shared},
                                      {"dual_stream", setting.dual_stream},
                                      {"experts", !setting.experts.empty()},
                                      {"expert_weights", setting.expert_weights != ExpertWeights::stored}})
    if (given && !moe) refuse(option, "layer " + std::to_string(setting.layer) + " is dense");
  if (setting.dual_stream && (setting.fused_shared || request.config.n_shared_experts == 0))
    refuse("dual_stream", "no shared expert runs beside the routed ones");
  check_option("prefix_chunk", setting.prefix_chunk, 1 << 30);
  if (!chunks) return;
  if (const AttentionPath path = attention_path(request.config, setting, batch_of(request)); path != AttentionPath::mha_chunked)
    refuse("prefix_chunk", "the way through attention is " + std::string(name(path)) + ", not mha-chunked");
}

Batch batch_of(const LayerRequest& request) {
  if (request.new_tokens.empty()) return decode_batch(request.lengths);
  Batch batch = extend_batch(request.lengths, request.new_tokens);
  batch.forward = request.forward;
  return batch;
}

io::Json setting_json(const LayerRequest& request) {
  const LayerSetting& setting = request.setting;
  io::Json json{{"layer", setting.layer},
                {"hidden_size", request.config.hidden_size},
                {"kv_len", request.lengths},
                {"seed", request.seed},
                {"residual", setting.residual == Residual::fused ? "fused" : "pre-added"},
                {"rounding", setting.rounding == Rounding::bf16 ? "bf16" : "off"},
                {"fused_shared_expert", setting.fused_shared}};
  if (request.forward != Forward::decode) json["new_tokens"] = request.new_tokens;
  if (!setting.backend.empty()) json["backend"] = setting.backend;
  if (setting.path != AttentionPath::by_backend) json["path"] = std::string(name(setting.path));
  if (!setting.experts.empty()) json["experts"] = setting.experts;
  if (setting.expert_weights == ExpertWeights::fp8) json["expert_weights"] = "fp8";
  if (setting.kv_cache == KvCacheType::e4m3) json["kv_cache_dtype"] = "fp8_e4m3";
  for (const KernelUse& use : setting.use) json["use"].push_back(use.op + "=" + use.kernel);
  return json;
}

namespace {

/// A use of an op that this way does not come by would say nothing.
void check_uses(const LayerSetting& setting, const std::vector<OpRecord>& records) {
  for (const KernelUse& use : setting.use) {
    bool runs = false, shared = false;
    for (const OpRecord& record : records) {
      if (record.depth < 2) shared = false;
      if (record.op == "self.shared_experts()") shared = true;
      runs = runs || use_name(record.op) == use.op || (shared && use_name(record.op, true) == use.op);
    }
    if (!runs)
      throw Error(ErrorCode::bad_option, "", "--use",
                  use.text() + " is asked for, but nothing runs " + use.op + " on this way through the layer");
  }
}

}  // namespace

namespace {

/// A kernel of the layer and the model ops that it runs, "fused_add_rmsnorm (self.input_layernorm(), self.post_attention_layernorm())".
struct UsedKernel {
  const Op* op;
  std::vector<std::string> runs;
  std::string text() const {
    std::string names;
    for (const std::string& name : runs) names += (names.empty() ? "" : ", ") + name;
    return std::string(op->name()) + " (" + names + ")";
  }
};
std::vector<UsedKernel> kernels_of(const Plan& plan) {
  std::vector<UsedKernel> kernels;
  for (const OpRecord& record : plan.ops) {
    const Op* const op = registry().find(record.kernels);
    if (op == nullptr) continue;
    auto known = std::find_if(kernels.begin(), kernels.end(), [&](const UsedKernel& kernel) { return kernel.op == op; });
    if (known == kernels.end()) known = kernels.insert(known, {op, {}});
    if (std::find(known->runs.begin(), known->runs.end(), record.op) == known->runs.end()) known->runs.push_back(record.op);
  }
  return kernels;
}

/// Says all that has no such mode at once: the first op alone would say one. What a call's arguments rule out, its op says when it runs.
void require_mode(const Plan& plan, const LayerRequest& request) {
  const Mode mode = request.exec.mode;
  if (!of_a_gpu(mode)) return;
  if (request.setting.rounding == Rounding::off)
    throw Error(ErrorCode::unsupported, "", "rounding",
                "is off, expected bf16 in " + std::string(name(mode)) + " mode: no kernel of attention that takes fp32 has a GPU's bits");
  const std::vector<UsedKernel> kernels = kernels_of(plan);
  const auto all_have = [&](Mode of) {
    return std::all_of(kernels.begin(), kernels.end(), [&](const UsedKernel& kernel) { return kernel.op->has(of); });
  };
  const ModelConfig& config = request.config;
  const bool scores_decide = config.sparse() && *std::max_element(request.lengths.begin(), request.lengths.end()) > config.index_topk &&
                             !head_weights_are_known(mode, batch_of(request).tokens(), config.index_n_heads, config.hidden_size);
  if (all_have(mode) && !scores_decide) return;
  std::string without;
  if (scores_decide)
    without =
        "linear in fp32, by cuBLAS, whose order of sums is not known for these sizes (weights_proj of self.indexer(), which decides "
        "beyond " +
        std::to_string(config.index_topk) + " tokens)";
  std::vector<Mode> modes;
  for (const UsedKernel& kernel : kernels) {
    if (!kernel.op->has(mode)) without += (without.empty() ? "" : ", ") + kernel.text();
    if (!modes.empty()) continue;
    for (const Mode of : kernel.op->modes())
      if (all_have(of) && !(scores_decide && of_a_gpu(of))) modes.push_back(of);
  }
  throw Error(ErrorCode::unsupported, "", "mode",
              "is " + std::string(name(mode)) + ", which these kernels of the layer do not have: " + without + "; expected " +
                  either_of(modes) + " for this layer");
}

/// What cannot be is told before weights are made.
const LayerRequest& checked(const LayerRequest& request) {
  if (request.setting.use.empty() && !of_a_gpu(request.exec.mode)) {
    layer_book(*planned_weights(request.config, request.shard), request.setting, batch_of(request), true);
  } else {
    plan_layer(request);
  }
  return request;
}

}  // namespace

Plan plan_layer(const LayerRequest& request) {
  const auto source = planned_weights(request.config, request.shard);
  LayerWeights weights(*source, request.setting, request.exec);
  PagedKvCache cache = PagedKvCache::planned(request.config, request.setting.cache_type(), request.lengths);
  const Batch batch = batch_of(request);
  const LayerState state = state_of(request, [&](const char*) { return without_memory(weights.type(), state_shape(request)); });
  Trace trace = layer_trace(weights, batch, request.exec, Trace::Bodies::leave_out);
  run_layer(weights, batch, state, cache, trace, {.own_tokens = request.own_tokens});
  check_uses(request.setting, trace.records());
  Plan plan;
  for (const OpRecord& record : trace.records())
    if (!record.group) plan.ops.push_back(record);
  plan.weight_bytes = trace.records().front().work.weight_bytes;
  for (const TensorInfo& tensor : layer_tensors(request.config, request.setting.layer, request.shard))
    plan.layer_weight_bytes += static_cast<double>(tensor.bytes());
  plan.cache_bytes = cache.bytes();
  require_mode(plan, request);
  return plan;
}

LayerRun::LayerRun(const LayerRequest& request)
    : request_(checked(request)),
      cache_(request.config, request.setting.cache_type(), request.lengths, request.page_seed),
      source_(open_weights(request.config, request.weights, request.seed, request.exec, request.shard)),
      weights_(*source_, request.setting, request.exec),
      batch_(batch_of(request)),
      state_(state_of(request, [&](const char* name) { return drawn(name, request.seed, state_shape(request), weights_.type()); })) {
  cache_.place(batch_);
  cache_.synthesize_history(request.seed, behind_history(request), request.exec.threads);
}

void LayerRun::each_cached_row(const std::function<void(std::int64_t, std::int64_t, const Tensor&)>& visit) const {
  const Tensor& buffer = cache_.buffer();
  for (std::int64_t b = 0; b < cache_.requests(); ++b)
    for (std::int64_t j = 0; j < batch_.prefix(b); ++j) {
      const std::int64_t slot = cache_.slot(b, j);
      visit(b, j, buffer.slice(0, slot, slot + 1).reshape({buffer.size(2)}));
    }
}

namespace {

Tensor row_of(const Tensor& history, std::int64_t request, std::int64_t token) {
  return history.slice(0, request, request + 1).slice(1, token, token + 1).reshape({history.size(2)});
}

}  // namespace

Tensor LayerRun::index_history() const {
  const std::int64_t row = cache_.buffer().size(2) * bits(cache_.buffer().dtype()) / 8, width = cache_.token_bytes() - row;
  Tensor history(DType::u8, {cache_.requests(), *std::max_element(request_.lengths.begin(), request_.lengths.end()), width});
  std::vector<std::byte> token(static_cast<std::size_t>(row + width));
  each_cached_row([&](std::int64_t b, std::int64_t j, const Tensor&) {
    cache_.read_token(b, j, token.data());
    std::copy_n(token.data() + row, width, row_of(history, b, j).as<std::byte>());
  });
  return history;
}

void LayerRun::replace_index(const Tensor& history) {
  const std::int64_t row = cache_.token_bytes() - history.size(2);
  std::vector<std::byte> token(static_cast<std::size_t>(cache_.token_bytes()));
  each_cached_row([&](std::int64_t b, std::int64_t j, const Tensor&) {
    cache_.read_token(b, j, token.data());
    std::copy_n(row_of(history, b, j).as<const std::byte>(), history.size(2), token.data() + row);
    cache_.write_token(b, j, token.data());
  });
}

Tensor LayerRun::history() const {
  const Tensor& buffer = cache_.buffer();
  Tensor history(buffer.dtype(), {cache_.requests(), *std::max_element(request_.lengths.begin(), request_.lengths.end()), buffer.size(2)});
  each_cached_row([&](std::int64_t b, std::int64_t j, const Tensor& row) { copy(row, row_of(history, b, j)); });
  return history;
}

io::NamedTensors LayerRun::inputs() const {
  io::NamedTensors inputs{{"hidden", state_.hidden.clone()}, {"kv_cache", history()}};
  if (state_.residual.defined()) inputs.emplace_back("residual", state_.residual.clone());
  if (cache_.index_k().defined()) inputs.emplace_back("index_k", index_history());
  return inputs;
}

void LayerRun::replace_input(const std::string& name, const Tensor& tensor, const std::string& where) {
  if (!tensor.defined()) return;
  for (const auto& [known, ours] : inputs()) {
    if (known != name) continue;
    if (!(tensor.shape() == ours.shape()) || tensor.dtype() != ours.dtype())
      throw Error(ErrorCode::bad_shape, "", where,
                  "holds input." + name + " as " + std::string(dodona::name(tensor.dtype())) + " " + to_string(tensor.shape()) +
                      ", expected " + std::string(dodona::name(ours.dtype())) + " " + to_string(ours.shape()));
    if (name == "hidden") state_.hidden = tensor.clone();
    if (name == "residual") state_.residual = tensor.clone();
    if (name == "index_k") replace_index(tensor);
    if (name == "kv_cache") each_cached_row([&](std::int64_t b, std::int64_t j, const Tensor& row) { copy(row_of(tensor, b, j), row); });
    return;
  }
  throw Error(ErrorCode::bad_file, "", where, "holds input." + name + ", which this layer does not read");
}

LayerRun::Result LayerRun::run(const Observer& observer, Witness* witness, const Ranks& ranks) {
  Exec exec = request_.exec;
  exec.witness = witness;
  Trace trace = layer_trace(weights_, batch_, exec);
  if (observer) trace.observe(observer);
  LayerState output = run_layer(weights_, batch_, state_, cache_, trace, ranks);
  return {std::move(output), trace.records()};
}

LayerRun::Result LayerRun::run_again(const Result& done) {
  Trace trace = layer_trace(weights_, batch_, request_.exec);
  trace.leave_out_statistics();
  Result result{run_layer(weights_, batch_, state_, cache_, trace, {}), trace.records()};
  for (std::size_t i = 0; i < result.records.size(); ++i) {
    result.records[i].rms = done.records.at(i).rms;
    result.records[i].not_finite = done.records.at(i).not_finite;
  }
  return result;
}

std::string digest_of(const LayerState& output) {
  io::Sha256 hash;
  for (const Tensor& tensor : {output.hidden, output.residual}) {
    const Tensor dense = tensor.contiguous() ? tensor : tensor.clone();
    hash.update({dense.as<std::byte>(), static_cast<std::size_t>(bytes_for(dense.dtype(), dense.elements()))});
  }
  return io::to_hex(hash.digest());
}

io::Json to_json(const OpRecord& record) {
  return {{"op", record.op},
          {"note", record.note},
          {"depth", record.depth},
          {"shapes", record.shapes},
          {"kernels", record.kernels},
          {"seconds", record.seconds},
          {"bytes", record.work.bytes},
          {"weight_bytes", record.work.weight_bytes},
          {"flops", record.work.flops},
          {"int8_ops", record.work.int8_ops},
          {"rms", record.rms},
          {"not_finite", record.not_finite}};
}

}  // namespace dodona::model
