#include "model/layer/experts/experts.h"

#include <algorithm>
#include <array>

#include "dodona/error.h"
#include "model/weights/tensor_list.h"
#include "ops/moe/combine/moe_sum_reduce.h"
#include "quant/sizes.h"

namespace dodona::model {
namespace {

constexpr std::array backends{&cutlass_experts,     &plain_experts,     &cutlass_fp8_experts,  &triton_fp8_experts,
                              &deepgemm_experts,    &deepep_experts,    &trtllm_experts,       &flashinfer_cutlass_experts,
                              &channel_experts,     &w4a8_experts,      &trtllm_nvfp4_experts, &flashinfer_cutlass_nvfp4_experts,
                              &trtllm_bf16_experts, &cutlass_es_experts};

/// Kernels that a backend calls, its main one among them.
struct Calls {
  const ExpertsBackend* backend;
  std::initializer_list<std::string_view> kernels;
};
std::span<const Calls> calls() {
  static const std::array all{
      Calls{&cutlass_experts,
            {"prepare_moe_input", "shuffle_rows", "scaled_fp4_experts_quant", "cutlass_fp4_group_mm", "silu_and_mul",
             "apply_shuffle_mul_sum"}},
      Calls{&triton_fp8_experts, {"moe_align_block_size", "fused_moe_kernel", "silu_and_mul", "moe_sum_reduce"}},
      Calls{&cutlass_fp8_experts,
            {"prepare_moe_input", "shuffle_rows", "fp8_blockwise_scaled_grouped_mm", "silu_and_mul", "apply_shuffle_mul_sum"}},
      Calls{&cutlass_es_experts,
            {"prepare_moe_input", "shuffle_rows", "es_fp8_blockwise_scaled_grouped_mm", "silu_and_mul", "apply_shuffle_mul_sum"}},
      Calls{&plain_experts, {"linear", "moe_sum_reduce", "silu_and_mul", "prepare_moe_input", "shuffle_rows"}},
      Calls{&channel_experts, {"prepare_moe_input", "shuffle_rows", "fused_moe_kernel", "silu_and_mul", "moe_sum_reduce"}},
      Calls{&w4a8_experts, {"cutlass_w4a8_moe_mm", "get_cutlass_w4a8_moe_mm_data"}},
      Calls{&deepgemm_experts, {"m_grouped_fp8_gemm_nt_masked"}},
      Calls{&trtllm_experts, {"trtllm_fp8_block_scale_moe"}},
      Calls{&trtllm_bf16_experts, {"trtllm_bf16_moe"}},
      Calls{&trtllm_nvfp4_experts, {"trtllm_fp4_block_scale_moe"}},
      Calls{&flashinfer_cutlass_experts, {"cutlass_fused_moe"}},
      Calls{&flashinfer_cutlass_nvfp4_experts, {"cutlass_fused_moe"}}};
  return all;
}

/// A kernel that is called runs, whatever its backend rounds: these are not run by every form of weights.
bool runs(const Calls& each, std::string_view kernel, WeightForm form) {
  if (each.backend == &plain_experts && kernel == "linear" && form != WeightForm::bf16) return false;
  return std::find(each.kernels.begin(), each.kernels.end(), kernel) != each.kernels.end();
}

/// Triton's kernel takes no fp32, which activations are in where nothing is rounded between ops.
bool takes(const ExpertsBackend& backend, const LinearMethod& stored, const LayerSetting& setting) {
  return backend.accepts(stored) != nullptr && (setting.rounding == Rounding::bf16 || &backend != &channel_experts);
}

/// What is stored as blocks of fp8 is multiplied as such.
ExpertWeights form_of(const LinearMethod& stored, const LayerSetting& setting) {
  return &stored == &fp8_block_method ? ExpertWeights::fp8 : setting.expert_weights;
}

WeightForm stored_form(const ModelConfig& config, std::int64_t layer) {
  return config.form_of(layer_prefix(layer) + "mlp.experts.0.gate_proj");
}

/// Those that run experts of that form, "cutlass, triton".
std::string takers(const LinearMethod& stored, ExpertWeights weights, const LayerSetting& setting) {
  std::string text;
  if (weights == ExpertWeights::fp8 && setting.rounding == Rounding::off) return text;
  for (const ExpertsBackend* backend : backends)
    if (backend->weights == weights && takes(*backend, stored, setting) && (backend->fuses_shared || !setting.fused_shared))
      text += (text.empty() ? "" : ", ") + std::string(backend->name);
  return text;
}

/// "; expected cutlass or plain...": what would run them.
std::string expected(const LinearMethod& stored, const LayerSetting& setting) {
  const std::string blocks = takers(stored, ExpertWeights::fp8, setting);
  if (&stored == &fp8_block_method) return blocks.empty() ? "" : "; expected one of " + blocks;
  const std::string own = takers(stored, ExpertWeights::stored, setting);
  std::string text = own.empty() ? "" : "; expected, as they are stored, one of " + own;
  if (!blocks.empty()) text += std::string(own.empty() ? "; expected" : ", or") + ", as blocks of fp8 made of that, one of " + blocks;
  return text;
}

void require_sizes(const ExpertsBackend& backend, const ModelConfig& config) {
  for (const auto& [field, size] : {std::pair{"hidden_size", config.hidden_size}, {"moe_intermediate_size", config.moe_intermediate_size}})
    if (size % backend.sizes_are_multiples_of != 0)
      throw Error(ErrorCode::bad_value, "", "experts",
                  "are run by " + std::string(backend.name) + ", but " + field + " of " + config.name + " is " + std::to_string(size) +
                      ", expected a multiple of " + std::to_string(backend.sizes_are_multiples_of));
}

std::vector<std::int64_t> spread(const Pass& pass) {
  const ModelConfig& c = pass.config();
  const ExpertRange here = local_experts(pass.weights.source().config(), pass.weights.source().shard());
  const std::int64_t all = pass.tokens() * c.num_experts_per_tok, ranks = pass.weights.source().shard().experts.count;
  // Ranks have like numbers of rows: of their own tokens, all of a rank's are as many as it gets.
  const std::int64_t rows = pass.ranks.own_tokens ? all : (all + ranks - 1) / ranks, read = std::min(rows, here.end - here.begin);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(pass.weights.experts()), 0);
  for (std::int64_t e = 0; e < read; ++e) counts[static_cast<std::size_t>(here.begin + e)] = rows / read + (e < rows % read ? 1 : 0);
  if (pass.weights.setting().fused_shared) counts.back() = pass.tokens();
  return counts;
}

}  // namespace

std::string experts_names() {
  std::vector<std::string_view> names;
  std::string text;
  for (const ExpertsBackend* backend : backends)
    if (std::find(names.begin(), names.end(), backend->name) == names.end()) {
      names.push_back(backend->name);
      text += (text.empty() ? "" : ", ") + std::string(backend->name);
    }
  return text;
}

const LinearMethod& stored_experts(const ModelConfig& config, const LayerSetting& setting) {
  return linear_method(stored_form(config, setting.layer), setting.rounding);
}

std::string_view kernel_of(const ExpertsBackend& backend, const ModelConfig& config, const LayerSetting& setting) {
  return backend.kernel.empty() ? stored_experts(config, setting).kernel : backend.kernel;
}

const ExpertsBackend& choose_experts(const ModelConfig& config, const LayerSetting& setting) {
  const LinearMethod& stored = stored_experts(config, setting);
  const auto refuse = [&](const std::string& what) { throw Error(ErrorCode::bad_option, "", "experts", what); };
  const std::string& wanted = setting.experts;
  const ExpertWeights form = form_of(stored, setting);
  bool known = false;
  for (const ExpertsBackend* backend : backends) {
    if (!wanted.empty() && backend->name != wanted) continue;
    known = true;
    if (backend->weights != form || !takes(*backend, stored, setting)) continue;
    if (backend->weights == ExpertWeights::fp8 && setting.rounding == Rounding::off)
      refuse("multiply blocks of fp8, which need activations in bf16: roundings are off");
    if (setting.fused_shared && !backend->fuses_shared)
      refuse("are run by " + std::string(backend->name) + ", which has no place for a fused shared expert");
    require_sizes(*backend, config);
    return *backend;
  }
  if (!known) refuse("are '" + wanted + "', expected one of " + experts_names());
  const bool made = form == ExpertWeights::fp8 && &stored != &fp8_block_method;
  throw Error(ErrorCode::unsupported, "", "experts",
              "of layer " + std::to_string(setting.layer) + " are " + std::string(stored.name) + ", which " +
                  (wanted.empty() ? "no backend multiplies" : wanted + " does not multiply") + (made ? " as blocks of fp8" : "") +
                  expected(stored, setting));
}

LayerSetting with_experts_of_draft(const ModelConfig& config, LayerSetting setting) {
  if (!config.is_moe_layer(setting.layer)) return setting;
  const LinearMethod& stored = stored_experts(config, setting);
  const std::string wanted = setting.experts;
  for (const ExpertsBackend* backend : backends)
    if ((wanted.empty() || backend->name == wanted) && backend->weights == form_of(stored, setting) && takes(*backend, stored, setting))
      return setting;
  bool as_the_others = false;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    as_the_others = as_the_others || (config.is_moe_layer(layer) && stored_form(config, layer) == stored_form(config, setting.layer));
  if (as_the_others) return setting;
  setting.experts.clear();
  setting.expert_weights = ExpertWeights::stored;
  std::erase_if(setting.use, [](const KernelUse& use) { return use.op == "experts"; });
  return setting;
}

std::vector<std::string_view> experts_kernel_names() {
  std::vector<std::string_view> names;
  for (const Calls& each : calls())
    for (const std::string_view kernel : each.kernels)
      if (std::find(names.begin(), names.end(), kernel) == names.end()) names.push_back(kernel);
  return names;
}

ExpertsPlace place_experts(std::string_view kernel, WeightForm stored, bool fixed, const LayerSetting& setting, std::string& why) {
  using enum WeightForm;
  std::vector<WeightForm> forms{stored};
  if (!fixed)
    for (const WeightForm form : {nvfp4, fp8_block, w4a8, bf16}) forms.push_back(form);
  for (const WeightForm form : forms)
    for (const ExpertWeights weights : {setting.expert_weights, ExpertWeights::fp8})
      for (const Calls& each : calls()) {
        const ExpertsBackend& backend = *each.backend;
        const LinearMethod& method = linear_method(form, setting.rounding);
        if (!runs(each, kernel, form) || (!setting.experts.empty() && setting.experts != backend.name)) continue;
        if (backend.weights != (form == fp8_block ? ExpertWeights::fp8 : weights) || !takes(backend, method, setting)) continue;
        if (backend.weights == ExpertWeights::fp8 && setting.rounding == Rounding::off) {
          why = "roundings are off";
        } else if (setting.fused_shared && !backend.fuses_shared) {
          why = "its backend has no place for a fused shared expert";
        } else {
          why.clear();
          return {std::string(backend.name), weights, form};
        }
      }
  if (why.empty())
    why = (setting.experts.empty() ? "no backend runs it" : "backend " + setting.experts + " does not run it") + " with weights in " +
          std::string(name(stored));
  return {};
}

std::vector<std::int64_t> rows_of_experts(const Pass& pass, const Tensor& ids) {
  if (pass.trace.plans()) return spread(pass);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(pass.weights.experts()), 0);
  for (std::int64_t i = 0; i < ids.elements(); ++i) {
    const std::int32_t id = ids.as<std::int32_t>()[i];
    if (id < 0 || id >= pass.weights.experts())
      throw Error(ErrorCode::bad_value, "", "topk_ids",
                  "has " + std::to_string(id) + ", expected 0 to " + std::to_string(pass.weights.experts() - 1));
    ++counts[static_cast<std::size_t>(id)];
  }
  return counts;
}

std::vector<ExpertRows> groups_of(std::span<const std::int64_t> counts) {
  std::vector<ExpertRows> groups;
  std::int64_t row = 0, scale_row = 0;
  for (std::size_t e = 0; e < counts.size(); ++e) {
    if (counts[e] == 0) continue;
    groups.push_back({static_cast<std::int64_t>(e), row, counts[e], scale_row});
    row += counts[e];
    scale_row += quant::align(counts[e], 128);
  }
  return groups;
}

std::vector<std::int64_t> experts_of(std::span<const ExpertRows> groups) {
  std::vector<std::int64_t> experts;
  for (const ExpertRows& group : groups) experts.push_back(group.expert);
  return experts;
}

std::int64_t RoutedExperts::most_rows() const {
  std::int64_t most = 0;
  for (const ExpertRows& group : groups) most = std::max(most, group.rows);
  return most;
}

std::vector<std::int64_t> places_among(std::span<const std::int64_t> experts, const Routing& routing) {
  std::vector<std::int64_t> place(routing.counts.size(), -1);
  for (std::size_t i = 0; i < experts.size(); ++i) place[static_cast<std::size_t>(experts[i])] = static_cast<std::int64_t>(i);
  return place;
}

Tensor local_ids(const Routing& routing, std::span<const std::int64_t> experts, DType type) {
  const std::vector<std::int64_t> place = places_among(experts, routing);
  Tensor ids(type, routing.ids.shape());
  for (std::int64_t i = 0; i < ids.elements(); ++i)
    quant::set(ids, i, static_cast<double>(place[static_cast<std::size_t>(routing.ids.as<std::int32_t>()[i])]));
  return ids;
}

Tensor sum_by_triton(const Pass& pass, const Tensor& rows) {
  return ops::run(ops::MoeSumReduce{.input_tensor = rows,
                                    .routed_scaling_factor = pass.config().routed_scaling_factor,
                                    .kernel = "triton",
                                    .order = "ascending"},
                  pass.exec())
      .output_tensor;
}

Work products_of(const Pass& pass, const Routing& routing) {
  Work work;
  for (const ExpertRows& group : groups_of(routing.counts)) {
    const MlpWeights& expert = pass.weights.expert(group.expert);
    work += expert.gate_up.product(group.rows);
    work += expert.down.product(group.rows);
  }
  return work;
}

Tensor run_experts(const Pass& pass, const Tensor& x, const Work& work, const std::function<Tensor()>& body) {
  return pass.trace.run1(
      {.part = Part::mlp_moe, .name = "self.experts()", .inputs = {{"input", x.shape()}}, .outputs = {{"output", x.dtype()}}, .work = work},
      body);
}

}  // namespace dodona::model
