#include "model/layer/kernel_use.h"

#include <algorithm>
#include <array>
#include <optional>

#include "dodona/error.h"
#include "model/layer/attention/attention.h"
#include "model/layer/experts/experts.h"
#include "model/layer/linear/method.h"
#include "model/weights/tensor_list.h"
#include "model/weights/without_memory.h"
#include "ops/moe/routing/select_experts.h"

namespace dodona::model {
namespace {

/// What a condition is about.
struct Context {
  const ModelConfig& config;
  const LayerSetting& setting;
  const UsePlace& place;
  std::int64_t layer;

  bool wide() const { return setting.rounding == Rounding::off; }
  bool moe() const { return config.is_moe_layer(layer); }
};
/// Why a kernel does not run an op here; empty where it does.
using Refusal = std::string (*)(const Context&);

std::string never(const Context&) {
  return {};
}
std::string number(std::int64_t n) {
  return std::to_string(n);
}

// ---- linear modules

/// A linear op, and its modules in a layer, one below the other.
struct LinearOp {
  std::string_view op;
  std::array<std::string_view, 2> modules;
  std::string_view low_latency = {};  ///< a kernel for few tokens and bf16
};
constexpr std::array linear_ops{
    LinearOp{"fused_qkv_a_proj_with_mqa", {"self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa"}, "dsv3_fused_a_gemm"},
    LinearOp{"q_proj", {"self_attn.q_proj"}},
    LinearOp{"q_b_proj", {"self_attn.q_b_proj"}},
    LinearOp{"kv_a_proj_with_mqa", {"self_attn.kv_a_proj_with_mqa"}},
    LinearOp{"kv_b_proj", {"self_attn.kv_b_proj"}},
    LinearOp{"o_proj", {"self_attn.o_proj"}},
    LinearOp{"gate_up_proj", {"mlp.gate_proj", "mlp.up_proj"}},
    LinearOp{"down_proj", {"mlp.down_proj"}},
    LinearOp{"gate", {"mlp.gate"}, "dsv3_router_gemm"},
    LinearOp{"shared_experts", {"mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj"}},
    LinearOp{"shared_experts", {"mlp.shared_experts.down_proj"}}};

struct LinearKernel {
  std::string_view kernel;
  WeightForm form;
  std::int64_t rows = 1, columns = 1;  ///< what N and K are multiples of
};
constexpr std::array linear_kernels{LinearKernel{"int8_scaled_mm", WeightForm::int8, 8, 16},
                                    LinearKernel{"fp8_blockwise_scaled_mm", WeightForm::fp8_block, 128, 128},
                                    LinearKernel{"fp8_gemm_nt", WeightForm::fp8_block, 8, 128},
                                    LinearKernel{"fp8_scaled_mm", WeightForm::fp8, 8, 16},
                                    LinearKernel{"cutlass_scaled_fp4_mm", WeightForm::nvfp4, 32, 32},
                                    LinearKernel{"qserve_w4a8_per_chn_gemm", WeightForm::qserve_channel, 64, 128},
                                    LinearKernel{"qserve_w4a8_per_group_gemm", WeightForm::qserve_group, 64, 128},
                                    LinearKernel{"linear", WeightForm::bf16},
                                    LinearKernel{"dsv3_fused_a_gemm", WeightForm::bf16},
                                    LinearKernel{"dsv3_router_gemm", WeightForm::bf16}};
const LinearKernel* find_linear_kernel(std::string_view kernel) {
  const auto* const found = std::find_if(linear_kernels.begin(), linear_kernels.end(), [&](const auto& k) { return k.kernel == kernel; });
  return found == linear_kernels.end() ? nullptr : found;
}

std::vector<std::string> modules_of(const LinearOp& op) {
  std::vector<std::string> modules;
  for (const std::string_view module : op.modules)
    if (!module.empty()) modules.emplace_back(module);
  return modules;
}

/// Where the products of the op are in a layer that has it.
std::string refuses_product(const Context& c, const LinearOp& op, const LinearKernel& kernel) {
  const auto multiple = [&](const std::string& what, std::int64_t size, std::int64_t of) {
    return size % of == 0 ? std::string() : what + " is " + number(size) + ", expected a multiple of " + number(of);
  };
  std::int64_t rows = 0, columns = 0;
  const std::vector<std::string> modules = modules_of(op);
  for (const std::string& module : modules) {
    const std::string full = layer_prefix(c.layer) + module;
    const auto size = find_linear(c.config, full);
    if (!size) return "layer " + number(c.layer) + " of " + c.config.name + " has none";
    if (op.op == "kv_a_proj_with_mqa" && c.config.q_lora_rank > 0) return "with low-rank queries it is a part of fused_qkv_a_proj_with_mqa";
    const WeightForm stored = c.config.form_of(full);
    if (c.place.stored && stored != kernel.form) return full + " is stored as " + std::string(name(stored));
    if (&module != &modules.back()) {
      if (std::string why = multiple("N of " + module, size->rows, limits_of(kernel.form).stacked); !why.empty()) return why;
    }
    rows += size->rows, columns = size->columns;
  }
  if (c.wide() && kernel.form != WeightForm::bf16) return "roundings are off, so that nothing is quantized";
  if (std::string why = multiple("N", rows, kernel.rows); !why.empty()) return why;
  return multiple("K", columns, kernel.columns);
}

/// Low-latency kernels: what LowLatencyKernel::chosen asks for.
std::string refuses_low_latency(const Context& c, const LinearOp& op, const LowLatencyKernel& kernel, std::int64_t rows) {
  if (std::string why = refuses_product(c, op, *find_linear_kernel(kernel.name)); !why.empty()) return why;
  if (!c.setting.low_latency) return "tokens must not depend on how many go together";
  if (c.wide()) return "roundings are off";
  if (!kernel.fits(rows, c.config.hidden_size))
    return "it is made for DeepSeek V3's sizes, not " + number(rows) + " x " + number(c.config.hidden_size);
  constexpr std::int64_t most_tokens = 16;
  if (c.place.batch != nullptr && c.place.batch->tokens() > most_tokens)
    return "it takes 16 tokens at most, the batch has " + number(c.place.batch->tokens());
  return {};
}

std::string refuses_linear(const Context& c, std::string_view op, std::string_view kernel) {
  for (const LinearOp& each : linear_ops) {
    if (each.op != op) continue;
    if (op == "shared_experts" && c.setting.fused_shared) return "the shared expert is one of the routed ones";
    if (kernel == fused_a_kernel.name) return refuses_low_latency(c, each, fused_a_kernel, c.config.qkv_a_rows());
    if (kernel == router_kernel.name) return refuses_low_latency(c, each, router_kernel, c.config.n_routed_experts);
    if (std::string why = refuses_product(c, each, *find_linear_kernel(kernel)); !why.empty()) return why;
  }
  return {};
}

// ---- attention

std::string needs_residual(const Context& c) {
  return is_first_layer(c.config, c.layer) ? "a first layer has no residual to add" : "";
}
constexpr std::string_view reducing_norm = "trtllm_allreduce_fusion";
std::string needs_ranks(const Context& c) {
  for (const std::int64_t ranks : {2, 4, 8, 16})
    if (c.place.tensor == ranks) return {};
  return "it adds up the terms of 2, 4, 8 or 16 ranks (--tp), here " + number(c.place.tensor) + (c.place.tensor == 1 ? " is" : " are");
}
std::string needs_ranks_and_layers(const Context& c) {
  if (!c.place.any_layer) return "it adds up what the layer below has left unsummed; a layer alone is given a sum (dodona generate --tp)";
  return needs_ranks(c);
}
std::string needs_fused_road(const Context& c) {
  const bool there = c.setting.kv_cache == KvCacheType::e4m3 && c.setting.backend == "trtllm_mla" && c.place.batch != nullptr &&
                     c.place.batch->forward != Forward::extend;
  return there ? "" : "it quantizes for a cache of fp8_e4m3, behind backend trtllm_mla, where requests decode or are verified";
}
std::string not_on_fused_road(const Context& c) {
  return needs_fused_road(c).empty() ? "the cache is fp8_e4m3, whose rows mla_rope_quantize_fp8 of trtllm_mla makes" : "";
}
std::string needs_bf16(const Context& c) {
  return c.wide() ? "roundings are off" : "";
}
std::string needs_v3_heads(const Context& c) {
  if (c.wide()) return "roundings are off";
  const bool fits = c.config.num_attention_heads == 128 && c.config.qk_nope_head_dim == 128 && c.config.qk_rope_head_dim == 64;
  return fits ? "" : "it is made for 128 heads of 128 + 64, " + c.config.name + " has " + number(c.config.num_attention_heads);
}
std::string needs_few_heads(const Context& c) {
  constexpr std::int64_t most = 64;  // a block of 1024 threads, 16 for the 128 columns of a head
  const std::int64_t heads = c.config.num_attention_heads;
  return c.wide()        ? "roundings are off"
         : heads <= most ? ""
                         : "a block of its threads holds 64 heads, " + c.config.name + " has " + number(heads);
}
std::string expands_keys(const Context&) {
  return "it attends to expanded keys of Dn + Dr columns, which self.attn_mha() has; absorbed ones have Lkv + Dr";
}

/// Ops that one of the two roads through attention has, and the other not.
std::string off_the_road(const Context& c, const KernelUse& use) {
  if (c.place.batch == nullptr) return {};
  const auto is_one_of = [&](std::initializer_list<std::string_view> ops) {
    return std::find(ops.begin(), ops.end(), use.op) != ops.end();
  };
  const bool of_expanded = is_one_of({"kv_b_proj", "_concat_and_cast_mha_k", "attn_mha", "merge_state_v2"}),
             of_latents = is_one_of({"bmm_fp8", "attn_mqa"});
  if (!of_expanded && !of_latents) return {};
  LayerSetting setting = c.setting;
  setting.use.push_back(use);
  const AttentionPath path = attention_path(c.config, setting, *c.place.batch);
  const bool latents = path == AttentionPath::mla || path == AttentionPath::mla_fused_rope;
  if (latents == of_latents) return {};
  return "nothing runs " + use.op + " on path " + std::string(name(path)) + ", expected path " +
         (of_latents ? "mla or mla-fused-rope" : "mha, mha-one-shot or mha-chunked");
}
/// What the indexer chose is attended to by one kernel.
std::string not_of_the_indexer(const Context& c, const KernelUse& use) {
  if (!c.config.sparse() || use.op != "attn_mqa") return {};
  const std::string_view own = kernel_of_selected(c.setting).name;
  return use.kernel == own ? std::string() : "what the indexer of " + c.config.name + " chose is attended to by " + std::string(own);
}

// ---- the mixture of experts

std::string needs_moe(const Context& c) {
  return c.moe() ? "" : "layer " + number(c.layer) + " is dense";
}
std::string needs_dense(const Context& c) {
  return c.moe() ? "layer " + number(c.layer) + " is a mixture of experts" : "";
}
std::string needs_separate_shared(const Context& c) {
  if (std::string why = needs_moe(c); !why.empty()) return why;
  if (c.config.n_shared_experts == 0) return c.config.name + " has no shared expert";
  return c.setting.fused_shared ? "the shared expert is one of the routed ones" : "";
}
std::string needs_no_fused_shared(const Context& c) {
  if (std::string why = needs_moe(c); !why.empty()) return why;
  return c.setting.fused_shared ? "it has no place for a fused shared expert" : "";
}
template <const std::string_view& router>
std::string grouped(const Context& c) {
  if (std::string why = needs_moe(c); !why.empty()) return why;
  const std::string_view own = ops::router_of(
      {.router_logits = without_memory(DType::f32, {1, c.config.n_routed_experts}),
       .correction_bias = c.config.has_correction_bias() ? without_memory(DType::f32, {c.config.n_routed_experts}) : Tensor(),
       .num_expert_group = c.config.n_group,
       .use_grouped_topk = true});
  return own == router ? "" : "the router's front end comes to " + std::string(own) + " for the groups and the bias of " + c.config.name;
}
constexpr std::string_view moe_fused_gate = "moe_fused_gate", grouped_topk = "grouped_topk", biased_grouped_topk = "biased_grouped_topk",
                           kimi_k2_moe_fused_gate = "kimi_k2_moe_fused_gate";

// ---- the table

/// Any kernel of an op that is no linear module.
struct Row {
  std::string_view op, kernel;
  Refusal refuses = never;
};
constexpr std::array rows{
    Row{"input_layernorm", "rmsnorm"},
    Row{"input_layernorm", "fused_add_rmsnorm", needs_residual},
    Row{"input_layernorm", reducing_norm, needs_ranks_and_layers},
    Row{"post_attention_layernorm", "rmsnorm"},
    Row{"post_attention_layernorm", "fused_add_rmsnorm"},
    Row{"post_attention_layernorm", reducing_norm, needs_ranks},
    Row{"q_a_layernorm", "rmsnorm",
        [](const Context& c) { return c.config.q_lora_rank > 0 ? std::string() : c.config.name + " has no low-rank queries"; }},
    Row{"kv_a_layernorm", "rmsnorm"},
    Row{"rotary_emb", "apply_rope_with_cos_sin_cache_inplace", not_on_fused_road},
    Row{"rotary_emb", "mla_rope_quantize_fp8", needs_fused_road},
    Row{"rotary_emb", "rotary_embedding", not_on_fused_road},
    Row{"bmm_fp8", "bmm_fp8", needs_bf16},
    Row{"bmm_fp8", "bmm"},
    Row{"_concat_and_cast_mha_k", "concat_mla_k", needs_v3_heads},
    Row{"_concat_and_cast_mha_k", "concat_and_cast_mha_k"},
    Row{"merge_state_v2", "merge_state", needs_few_heads},
    Row{"merge_state_v2", "merge_state_v2"},
    Row{"attn_mqa", "trtllm_ragged_attention_deepseek", expands_keys},
    Row{"topk", "topk_softmax", needs_no_fused_shared},
    Row{"topk", "topk_sigmoid", needs_no_fused_shared},
    Row{"topk", "moe_fused_gate", grouped<moe_fused_gate>},
    Row{"topk", "grouped_topk", grouped<grouped_topk>},
    Row{"topk", "biased_grouped_topk", grouped<biased_grouped_topk>},
    Row{"topk", "kimi_k2_moe_fused_gate", grouped<kimi_k2_moe_fused_gate>},
    Row{"act_fn", "silu_and_mul", needs_dense},
    Row{"act_fn", "gelu_and_mul", needs_dense},
    Row{"act_fn", "gelu_tanh_and_mul", needs_dense},
    Row{"shared_experts.act_fn", "silu_and_mul", needs_separate_shared},
    Row{"shared_experts.act_fn", "gelu_and_mul", needs_separate_shared},
    Row{"shared_experts.act_fn", "gelu_tanh_and_mul", needs_separate_shared}};

/// Ops whose kernels may be chosen for batches of any kind: in whole models.
constexpr std::array<std::string_view, 14> in_any_batch{"fused_qkv_a_proj_with_mqa",
                                                        "q_proj",
                                                        "q_b_proj",
                                                        "kv_a_proj_with_mqa",
                                                        "o_proj",
                                                        "gate_up_proj",
                                                        "down_proj",
                                                        "gate",
                                                        "bmm_fp8",
                                                        "topk",
                                                        "act_fn",
                                                        "shared_experts",
                                                        "experts",
                                                        "shared_experts.act_fn"};

void add(std::vector<OpKernels>& all, std::string_view op, std::string_view kernel) {
  auto found = std::find_if(all.begin(), all.end(), [&](const OpKernels& each) { return each.op == op; });
  if (found == all.end()) found = all.insert(all.end(), {std::string(op), {}});
  if (std::find(found->kernels.begin(), found->kernels.end(), kernel) == found->kernels.end()) found->kernels.emplace_back(kernel);
}

/// Ops that the documents count to others, and where those are in the graph.
struct Inside {
  std::string_view op, own;
};
constexpr std::array inside{Inside{"shared_experts", "shared_experts.act_fn"}, Inside{"attn_mha", "merge_state_v2"}};

std::vector<std::string> kernels_of(std::string_view op) {
  for (const OpKernels& each : ops_with_kernels())
    if (each.op == op) return each.kernels;
  return {};
}
bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string refusal(const Context& c, const KernelUse& use) {
  if (c.place.any_layer && use.kernel != reducing_norm && std::find(in_any_batch.begin(), in_any_batch.end(), use.op) == in_any_batch.end())
    return "it is chosen for single layers alone (dodona layer)";
  if (std::string why = off_the_road(c, use); !why.empty()) return why;
  if (std::string why = not_of_the_indexer(c, use); !why.empty()) return why;
  if (use.op == "attn_mha") return attn_mha_refusal(use.kernel, c.setting, c.place.batch);
  for (const Row& row : rows)
    if (row.op == use.op && row.kernel == use.kernel) return row.refuses(c);
  if (use.op == "attn_mqa") return attn_mqa_refusal(use.kernel, c.setting, c.place.batch);
  if (use.op == "experts") {
    if (std::string why = needs_moe(c); !why.empty()) return why;
    const std::string module = layer_prefix(c.layer) + "mlp.experts.0.gate_proj";
    std::string why;
    place_experts(use.kernel, c.config.form_of(module), c.place.stored, c.setting, why);
    return why;
  }
  return refuses_linear(c, use.op, use.kernel);
}

/// The layers in which a use must hold: the one that is run, or all of the model that have the op.
std::vector<std::int64_t> layers_for(const ModelConfig& config, const LayerSetting& setting, const UsePlace& place, std::string_view op) {
  if (!place.any_layer) return {setting.layer};
  const bool of_moe = op == "gate" || op == "topk" || op == "experts" || op.starts_with("shared_experts"),
             of_dense = op == "gate_up_proj" || op == "down_proj" || op == "act_fn";
  const std::int64_t drafting = place.drafts && op != "experts" && config.num_nextn_predict_layers > 0 ? 1 : 0;
  std::vector<std::int64_t> layers;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers + drafting; ++layer)
    if (config.is_moe_layer(layer) ? !of_dense : !of_moe) layers.push_back(layer);
  if (layers.empty()) layers.push_back(0);
  return layers;
}

/// The first layer's reason why it does not run the op so; empty where all do.
std::string refusal_of_any(const ModelConfig& config, const LayerSetting& setting, const UsePlace& place,
                           std::span<const std::int64_t> layers, const KernelUse& use) {
  for (const std::int64_t layer : layers)
    if (const std::string why = refusal({config, setting, place, layer}, use); !why.empty())
      return why + (config.is_nextn_layer(layer) && place.any_layer ? ", in the NextN layer, which drafts" : "");
  return {};
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& each : names) text += (text.empty() ? "" : ", ") + each;
  return text;
}

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::bad_option, "", "--use", message);
}

}  // namespace

std::vector<OpKernels> ops_with_kernels() {
  std::vector<OpKernels> all;
  add(all, "input_layernorm", "rmsnorm");
  for (const LinearOp& op : linear_ops)
    for (const LinearKernel& kernel : linear_kernels) {
      const bool low_latency = kernel.kernel == fused_a_kernel.name || kernel.kernel == router_kernel.name;
      // Routers are never quantized upstream; the documents list NVFP4 for them.
      const bool of_router = kernel.form == WeightForm::bf16 || kernel.form == WeightForm::nvfp4;
      if (low_latency ? kernel.kernel == op.low_latency : op.op != "gate" || of_router) add(all, op.op, kernel.kernel);
    }
  for (const Row& row : rows) add(all, row.op, row.kernel);
  for (const std::string_view kernel : mha_kernel_names()) add(all, "attn_mha", kernel);
  for (const std::string_view kernel : mqa_kernel_names()) add(all, "attn_mqa", kernel);
  for (const std::string_view kernel : experts_kernel_names()) add(all, "experts", kernel);
  return all;
}

std::string use_name(std::string_view op, bool in_shared_experts) {
  if (op.starts_with("self.")) op.remove_prefix(5);
  if (op.ends_with("()")) op.remove_suffix(2);
  if (!in_shared_experts) return std::string(op);
  return op == "act_fn" ? "shared_experts.act_fn" : "shared_experts";
}

KernelUse parse_use(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == text.size())
    refuse("must be OP=KERNEL, as q_b_proj=int8_scaled_mm, got '" + std::string(text) + "'");
  KernelUse use{use_name(text.substr(0, equals)), std::string(text.substr(equals + 1))};
  std::vector<std::string> known = kernels_of(use.op);
  if (known.empty()) {
    std::vector<std::string> names;
    for (const OpKernels& each : ops_with_kernels()) names.push_back(each.op);
    refuse("names the op '" + use.op + "', expected one of " + joined(names));
  }
  if (has(known, use.kernel)) return use;
  for (const Inside& each : inside) {
    if (each.op != use.op) continue;
    const std::vector<std::string> more = kernels_of(each.own);
    if (has(more, use.kernel)) return {std::string(each.own), use.kernel, use.op};
    known.insert(known.end(), more.begin(), more.end());
  }
  refuse("asks " + use.op + " of '" + use.kernel + "', expected one of " + joined(known));
}

std::string_view used_kernel(std::span<const KernelUse> uses, std::string_view op) {
  for (const KernelUse& use : uses)
    if (use.op == op) return use.kernel;
  return {};
}

bool reduces_in_norm(std::span<const KernelUse> uses, std::string_view norm) {
  return used_kernel(uses, norm) == reducing_norm;
}

LayerSetting norms_over_layers(LayerSetting setting, bool behind, bool before) {
  constexpr std::string_view first_norm = "input_layernorm";
  if (!reduces_in_norm(setting.use, first_norm)) return setting;
  setting.hands_on_terms = before;
  if (!behind) std::erase_if(setting.use, [&](const KernelUse& use) { return use.op == first_norm; });
  return setting;
}

void apply_uses(ModelConfig& config, LayerSetting& setting, std::span<const KernelUse> uses, const UsePlace& place) {
  for (const KernelUse& use : uses) {
    const std::vector<std::int64_t> layers = layers_for(config, setting, place, use.op);
    if (const std::string_view other = used_kernel(setting, use.op); !other.empty() && other != use.kernel)
      refuse("asks " + use.op + " of " + std::string(other) + " and of " + use.kernel);
    if (const std::string why = refusal_of_any(config, setting, place, layers, use); !why.empty()) {
      std::vector<std::string> possible;
      for (const std::string& kernel : kernels_of(use.op))
        if (refusal_of_any(config, setting, place, layers, {use.op, kernel}).empty()) possible.push_back(kernel);
      refuse(use.text() + " cannot be: " + why + "; possible here: " + (possible.empty() ? "none" : joined(possible)));
    }
    setting.use.push_back(use);
    if (use.op == "experts") {
      std::string why;
      const WeightForm stored = config.form_of(layer_prefix(layers.front()) + "mlp.experts.0.gate_proj");
      const ExpertsPlace found = place_experts(use.kernel, stored, place.stored, setting, why);
      setting.experts = found.backend;
      setting.expert_weights = found.weights;
      if (found.form != stored) config.quant.forms.push_back({"model.layers.*.mlp.experts.*", found.form});
    }
    const LinearKernel* const kernel = find_linear_kernel(use.kernel);
    for (const LinearOp& op : linear_ops)
      if (op.op == use.op && kernel != nullptr && !place.stored)
        for (const std::string& module : modules_of(op)) config.quant.forms.push_back({"model.layers.*." + module, kernel->form});
  }
  if (!config.quant.forms.empty()) config.validate();
}

}  // namespace dodona::model
