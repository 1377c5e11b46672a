#include "model/layer/shape_book.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "core/shape_expr.h"
#include "dodona/error.h"
#include "model/layer/attention/absorbed.h"
#include "model/layer/attention/kernels.h"
#include "model/layer/attention/kv_cache.h"
#include "model/layer/kernel_use.h"
#include "model/layer/linear/method.h"
#include "model/weights/tensor_list.h"
#include "model/weights/without_memory.h"
#include "ops/moe/routing/select_experts.h"

namespace dodona::model {
namespace {

/// Above this many tokens the low-latency kernels of DeepSeek V3 do not run.
constexpr std::int64_t low_latency_tokens = 16;

struct Symbol {
  std::string name;
  std::int64_t value;  ///< 0: unknown
};

/// Shapes as text, "T, Nh * Dq", turned into what the book holds.
class Shapes {
 public:
  void bind(const std::string& name, std::int64_t value) {
    for (Symbol& symbol : symbols_)
      if (symbol.name == name) {
        symbol.value = value;
        return;
      }
    symbols_.push_back({name, value});
  }

  /// "label: T, H" or "T, H"; T is how tokens are counted.
  BookShape shape(const std::string& text, const std::string& tokens) const {
    BookShape result;
    const std::size_t colon = text.find(": ");
    if (colon != std::string::npos) result.label = text.substr(0, colon);
    for (const std::string& part : split(text.substr(colon == std::string::npos ? 0 : colon + 2))) {
      const std::string dim = replace(part, [&](const std::string& name) { return name == "T" ? tokens : name; });
      const std::int64_t size = evaluate(dim);
      result.shape.push_back(size);
      const std::string numbers = replace(dim, [&](const std::string& name) {
        const std::int64_t known = value(name);
        return known > 0 ? std::to_string(known) : name;
      });
      append(result.symbolic, dim);
      append(result.with_numbers, size >= 0 ? std::to_string(size) : numbers);
    }
    result.symbolic += "]";
    result.with_numbers += "]";
    return result;
  }

 private:
  static void append(std::string& list, const std::string& item) { list += (list.empty() ? "[" : ", ") + item; }

  static std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> parts;
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(", ", begin), text.size());
      parts.push_back(text.substr(begin, end - begin));
      begin = end + 2;
    }
    return parts;
  }

  /// Every name in `text` passed through `change`.
  template <class Change>
  static std::string replace(const std::string& text, const Change& change) {
    std::string result;
    for (std::size_t i = 0; i < text.size();) {
      std::size_t end = i;
      while (end < text.size() && std::isalpha(static_cast<unsigned char>(text[end]))) ++end;
      result += end > i ? change(text.substr(i, end - i)) : std::string(1, text[i]);
      i = std::max(end, i + 1);
    }
    return result;
  }

  std::int64_t value(const std::string& name) const {
    for (const Symbol& symbol : symbols_)
      if (symbol.name == name) return symbol.value;
    return 0;
  }

  std::int64_t evaluate(const std::string& dim) const {
    std::string dense = dim;
    std::erase(dense, ' ');
    SymbolNames names;
    const DimExpr expression = DimExpr::parse(dense, names);
    SymbolValues values(names.count());
    for (int i = 0; i < names.count(); ++i)
      if (const std::int64_t known = value(names.name(i)); known > 0) values.bind(i, known, -1);
    return expression.evaluate(values);
  }

  std::vector<Symbol> symbols_;
};

using Texts = std::vector<std::string>;

/// Kernels as the execution document lists them, and the one that runs here.
struct Kernels {
  std::string candidates, chosen;

  Kernels(const char* one) : candidates(one), chosen(one) {}         // NOLINT(google-explicit-constructor): most ops have one
  Kernels(const std::string& one) : candidates(one), chosen(one) {}  // NOLINT(google-explicit-constructor)
  Kernels(std::string all, std::string one) : candidates(std::move(all)), chosen(std::move(one)) {}
};

class Writer {
 public:
  /// `config` has the shard's sizes.
  Writer(const ModelConfig& config, Phase phase, const BookOptions& options)
      : config_(config),
        options_(options),
        phase_(phase),
        tokens_(options.tokens >= 0       ? "T"
                : phase == Phase::prefill ? "B*S"
                                          : "B") {
    shapes_.bind("B", options.batch);
    shapes_.bind("S", options.sequence);
    shapes_.bind("T", std::max<std::int64_t>(options.tokens, 0));
    shapes_.bind("H", config.hidden_size);
    shapes_.bind("Nh", config.num_attention_heads);
    shapes_.bind("Lq", config.q_lora_rank);
    shapes_.bind("Lkv", config.kv_lora_rank);
    shapes_.bind("Dn", config.qk_nope_head_dim);
    shapes_.bind("Dr", config.qk_rope_head_dim);
    shapes_.bind("Dv", config.v_head_dim);
    shapes_.bind("Dq", config.qk_head_dim());
    shapes_.bind("Ki", config.index_topk);
    shapes_.bind("E", config.n_routed_experts);
    shapes_.bind("K", config.num_experts_per_tok + (options.fused_shared ? config.n_shared_experts : 0));
    shapes_.bind("V", config.vocab_size);
    count_ = phase == Phase::prefill ? options.batch * options.sequence : options.batch;
    if (phase == Phase::prefill && options.sequence == 0) count_ = 0;
    if (options.tokens >= 0) count_ = options.tokens;

    choose_layers(options.layer);
  }

  std::vector<BookEntry> write() {
    if (phase_ == Phase::nextn) nextn();
    if (phase_ != Phase::nextn) model();
    if (phase_ == Phase::prefill) {
      prefill_attention();
      chunks();
    } else {
      decode_attention(Part::attention);
      decode_attention(Part::attention_fused);
    }
    cache();
    if (moe_layer_ >= 0) moe();
    if (dense_layer_ >= 0) dense();
    if (moe_layer_ >= 0) {
      shared();
      cutlass();
      trtllm();
      triton();
    }
    return std::move(entries_);
  }

 private:
  /// The layers whose weights decide the kernels: the one asked for, or the first of either kind.
  void choose_layers(std::int64_t layer) {
    if (layer < 0 && phase_ == Phase::nextn) layer = config_.num_hidden_layers;
    dense_layer_ = layer < 0 ? first_layer(false) : config_.is_moe_layer(layer) ? -1 : layer;
    moe_layer_ = layer < 0 ? first_layer(true) : config_.is_moe_layer(layer) ? layer : -1;
    attention_layer_ = std::max(dense_layer_, moe_layer_);
  }
  std::int64_t first_layer(bool moe) const {
    for (std::int64_t layer = 0; layer < config_.num_hidden_layers; ++layer)
      if (config_.is_moe_layer(layer) == moe) return layer;
    return -1;
  }

  void add(Part part, const char* op, const Texts& inputs, const Texts& outputs, const Kernels& kernels, const char* note = "",
           const Texts& views = {}) {
    BookEntry entry{part, op, note, all(inputs), all(outputs), all(views), kernels.candidates, kernels.chosen};
    if (const std::string_view asked = used_kernel(options_.use, use_name(op, part == Part::shared_experts)); !asked.empty())
      entry.kernel = asked;
    entries_.push_back(std::move(entry));
  }
  /// Of attention, unless its kernel was chosen, and held against the sizes, before the book is written.
  void wants(SizesText sizes) {
    if (const char* const text = sizes(config_); text != nullptr && options_.attention_kernel.empty()) entries_.back().wants_sizes = text;
  }
  std::vector<BookShape> all(const Texts& texts) const {
    std::vector<BookShape> shapes;
    for (const std::string& text : texts) shapes.push_back(shapes_.shape(text, tokens_));
    return shapes;
  }

  /// The form that products of the module take: with roundings off nothing is quantized.
  WeightForm form(std::int64_t layer, const char* module) const {
    return options_.rounding == Rounding::bf16 ? config_.form_of(layer_prefix(layer) + module) : WeightForm::bf16;
  }
  bool nvfp4(std::int64_t layer, const char* module) const { return form(layer, module) == WeightForm::nvfp4; }
  std::string linear(std::int64_t layer, const char* module, std::int64_t rows = 0) const {
    return std::string(linear_method(form(layer, module), options_.rounding, rows).kernel);
  }
  bool few_tokens() const { return count_ > 0 && count_ <= low_latency_tokens; }
  /// The execution document has no low-latency kernels in prefill, where tokens are seldom few.
  bool many_tokens() const { return phase_ == Phase::prefill && !few_tokens(); }

  /// A low-latency kernel for bf16 weights of R1's sizes and up to 16 tokens, or the linear that the weight's form asks for. The document
  /// lists both candidates for every form of the weight; the one that runs is the one that can read it.
  Kernels low_latency(const char* kernel, std::int64_t layer, const char* module, std::int64_t rows, bool sizes_fit) const {
    const std::string plain = linear(layer, module, rows);
    if (many_tokens() || !sizes_fit) return {plain, plain};
    const bool runs =
        form(layer, module) == WeightForm::bf16 && few_tokens() && options_.low_latency && options_.rounding == Rounding::bf16;
    return {std::string(kernel) + " (B<=16) / " + plain, runs ? kernel : plain};
  }
  Kernels fused_qkv_a() const {
    return low_latency("dsv3_fused_a_gemm", attention_layer_, "self_attn.q_a_proj", config_.qkv_a_rows(),
                       config_.hidden_size == 7168 && config_.qkv_a_rows() == 2112);
  }
  Kernels router() const {
    const bool fits = config_.hidden_size == 7168 && (config_.n_routed_experts == 256 || config_.n_routed_experts == 384);
    if (many_tokens() && fits) {
      const std::string plain = linear(moe_layer_, "mlp.gate");
      return {"dsv3_router_gemm / " + plain, plain};
    }
    return low_latency("dsv3_router_gemm", moe_layer_, "mlp.gate", config_.n_routed_experts, fits);
  }
  /// What select_experts comes to.
  std::string selecting() const {
    if (config_.n_routed_experts == 0) return "moe_fused_gate";
    const Dims experts{config_.n_routed_experts};
    return std::string(ops::router_of({.router_logits = without_memory(DType::f32, {1, config_.n_routed_experts}),
                                       .correction_bias = config_.has_correction_bias() ? without_memory(DType::f32, experts) : Tensor(),
                                       .num_expert_group = config_.n_group,
                                       .use_grouped_topk = true}));
  }
  Kernels absorb() const {
    return std::string(absorbing_kernel(form(attention_layer_, "self_attn.kv_b_proj"), {.rounding = options_.rounding}));
  }
  /// Of x and the residual, if there is one to add.
  Kernels norm(bool residual = true) const {
    const bool fused = residual && options_.residual == Residual::fused;
    return {"rmsnorm / fused_add_rmsnorm", fused ? "fused_add_rmsnorm" : "rmsnorm"};
  }
  /// What the layer asked for is given has a residual beside it, unless it is a first one.
  bool has_residual() const { return options_.layer < 0 || !is_first_layer(config_, options_.layer); }

  void model() {
    add(Part::model, "self.embed_tokens()", {"T"}, {"T, H"}, "embedding lookup");
    add(Part::model, "self.norm()", {"T, H"}, {"T, H"}, "fused_add_rmsnorm");
    add(Part::model, "self.lm_head()", {"B, H"}, {"B, V"}, "linear");
  }

  void nextn() {
    const Part part = Part::nextn;
    add(part, "self.embed_tokens()", {"T"}, {"T, H"}, "embedding lookup");
    add(part, "self.enorm()", {"T, H"}, {"T, H"}, "rmsnorm", "embeddings");
    add(part, "self.hnorm()", {"T, H"}, {"T, H"}, "rmsnorm", "target hidden");
    add(part, "self.eh_proj()", {"T, 2 * H"}, {"T, H"}, "linear");
    add(part, "self.shared_head.norm()", {"T, H"}, {"T, H"}, "fused_add_rmsnorm");
    add(part, "self.lm_head()", {"T, H"}, {"T, V"}, "linear");
  }

  /// From the hidden state to q and the latents: the same in all phases and paths.
  void project_q(Part part) {
    const std::int64_t layer = attention_layer_;
    const Texts q_views{"q: T, Nh, Dq", "q_nope: T, Nh, Dn", "q_pe: T, Nh, Dr"};
    add(part, "self.input_layernorm()", {"T, H"}, {"T, H"}, norm(has_residual()));
    if (config_.q_lora_rank > 0) {
      add(part, "self.fused_qkv_a_proj_with_mqa()", {"T, H"}, {"T, Lq + Lkv + Dr"}, fused_qkv_a(), "",
          {"q: T, Lq", "kv_a: T, Lkv", "k_pe: T, Dr"});
      add(part, "self.q_a_layernorm()", {"T, Lq"}, {"T, Lq"}, "rmsnorm");
      add(part, "self.q_b_proj()", {"T, Lq"}, {"T, Nh * Dq"}, linear(layer, "self_attn.q_b_proj"), "", q_views);
    } else {
      add(part, "self.q_proj()", {"T, H"}, {"T, Nh * Dq"}, linear(layer, "self_attn.q_proj"), "", q_views);
      add(part, "self.kv_a_proj_with_mqa()", {"T, H"}, {"T, Lkv + Dr"}, linear(layer, "self_attn.kv_a_proj_with_mqa", config_.latent_dim()),
          "", {"kv_a: T, Lkv", "k_pe: T, Dr"});
    }
    add(part, "self.kv_a_layernorm()", {"T, Lkv"}, {"T, Lkv"}, "rmsnorm");
  }

  void rotary(Part part) {
    add(part, "self.rotary_emb()", {"q_pe: T, Nh, Dr", "k_pe: T, 1, Dr"}, {"q_pe: T, Nh, Dr", "k_pe: T, 1, Dr"},
        options_.rope_kernel.empty() ? Kernels("apply_rope_with_cos_sin_cache_inplace") : Kernels(std::string(options_.rope_kernel)));
  }

  void output_projection(Part part) { add(part, "self.o_proj()", {"T, Nh * Dv"}, {"T, H"}, linear(attention_layer_, "self_attn.o_proj")); }

  /// sgl-kernel's for the sizes of DeepSeek V3, Triton's for others.
  Kernels concat_k() const {
    const bool fits = config_.num_attention_heads == 128 && config_.qk_nope_head_dim == 128 && config_.qk_rope_head_dim == 64;
    return fits && options_.rounding == Rounding::bf16 ? "concat_mla_k" : "concat_and_cast_mha_k";
  }
  Kernels attn_mha() const {
    const std::string first = "trtllm_ragged_attention_deepseek";
    return {first, options_.attention_kernel.empty() ? first : std::string(options_.attention_kernel)};
  }
  Kernels attn_mqa() const {
    return {"cutlass_mla_decode / trtllm_batch_decode_with_kv_cache_mla",
            options_.attention_kernel.empty() ? "cutlass_mla_decode" : std::string(options_.attention_kernel)};
  }

  void prefill_attention() {
    const Part part = Part::attention;
    project_q(part);
    add(part, "self.kv_b_proj()", {"T, Lkv"}, {"T, Nh * (Dn + Dv)"}, linear(attention_layer_, "self_attn.kv_b_proj"), "",
        {"kv: T, Nh, Dn + Dv", "k_nope: T, Nh, Dn", "v: T, Nh, Dv"});
    rotary(part);
    add(part, "self._concat_and_cast_mha_k()", {"k_nope: T, Nh, Dn", "k_pe: T, 1, Dr"}, {"T, Nh, Dn + Dr"}, concat_k());
    add(part, "self.attn_mha()", {"q: T, Nh, Dq", "k: T, Nh, Dq", "v: T, Nh, Dv"}, {"T, Nh, Dv"}, attn_mha(), "",
        {"output: T, Nh * Dv", "lse: T, Nh"});
    wants(ragged_kernel.wants_sizes);
    output_projection(part);
  }

  void chunks() {
    const Part part = Part::attention_chunks;
    add(part, "self.kv_b_proj()", {"n, Lkv"}, {"n, Nh * (Dn + Dv)"}, linear(attention_layer_, "self_attn.kv_b_proj"), "",
        {"kv: n, Nh, Dn + Dv", "k_nope: n, Nh, Dn", "v: n, Nh, Dv"});
    add(part, "self._concat_and_cast_mha_k()", {"k_nope: n, Nh, Dn", "k_pe: n, 1, Dr"}, {"n, Nh, Dn + Dr"}, concat_k());
    add(part, "self.attn_mha()", {"q: T, Nh, Dq", "k: n, Nh, Dq", "v: n, Nh, Dv"}, {"o: T, Nh, Dv", "lse: T, Nh"}, attn_mha());
    wants(ragged_kernel.wants_sizes);
    add(part, "merge_state_v2()", {"v_a: T, Nh, Dv", "s_a: T, Nh", "v_b: T, Nh, Dv", "s_b: T, Nh"},
        {"v_merged: T, Nh, Dv", "s_merged: T, Nh"}, "merge_state_v2");
  }

  void decode_attention(Part part) {
    project_q(part);
    add(part, "bmm_fp8()", {"q_nope: Nh, T, Dn", "w_kc: Nh, Dn, Lkv"}, {"Nh, T, Lkv"}, absorb(), "q_nope * w_kc",
        {"q_nope_out: T, Nh, Lkv"});
    rotary(part);
    if (config_.sparse())
      add(part, "self.indexer()", {"x: T, H", "q_lora: T, Lq"}, {"T, Ki"},
          {linear(attention_layer_, "self_attn.indexer.wq_b") +
               " + layernorm + apply_rope_with_cos_sin_cache_inplace + hadamard_transform + act_quant + set_index_k_scale_buffer + linear "
               "+ "
               "fp8_paged_mqa_logits + fast_topk_transform_fused",
           "fast_topk_transform_fused"});
    if (part == Part::attention_fused) {
      add(part, "self.attn_mqa()", {"q: T, Nh, Lkv + Dr", "k_nope: T, 1, Lkv", "k_pe: T, 1, Dr"}, {"T, Nh, Lkv"},
          "decode_attention_fwd_grouped_rope", "", {"q_nope: T, Nh, Lkv", "q_pe: T, Nh, Dr"});
    } else {
      add(part, "self.attn_mqa()", {"q: T, Nh, Lkv + Dr", "k_nope: T, 1, Lkv", "k_pe: T, 1, Dr"}, {"T, Nh, Lkv"}, attn_mqa(), "",
          {"q_nope: T, Nh, Lkv", "q_pe: T, Nh, Dr"});
    }
    wants(wants_deepseek_latents);
    add(part, "bmm_fp8()", {"attn: Nh, T, Lkv", "w_vc: Nh, Lkv, Dv"}, {"Nh, T, Dv"}, absorb(), "attn_output * w_vc",
        {"attn_bmm_output: T, Nh, Dv", "attn_output: T, Nh * Dv"});
    output_projection(part);
  }

  void cache() {
    const bool scaled = options_.attention_kernel == flash_mla_sparse_kernel.name;
    add(Part::kv_cache, "set_mla_kv_buffer()", {"k_nope: T, 1, Lkv", "k_pe: T, 1, Dr"},
        {scaled ? "kv_buffer: slots, 1, " + std::to_string(PagedKvCache::scaled_row) : "kv_buffer: slots, 1, Lkv + Dr"},
        scaled ? Kernels("quantize_k_cache + set_mla_kv_buffer", "set_mla_kv_buffer") : Kernels("set_mla_kv_buffer"));
    if (phase_ == Phase::prefill)
      add(Part::kv_cache, "get_mla_kv_buffer()", {"kv_buffer: slots, 1, Lkv + Dr"}, {"k_nope: n, 1, Lkv", "k_pe: n, 1, Dr"},
          "get_mla_kv_buffer");
  }

  void post_attention_norm(Part part) {
    add(part, "self.post_attention_layernorm()", {"T, H"}, {"T, H"}, norm());
    if (options_.shard.heads.whole()) return;
    const bool in_norm = reduces_in_norm(options_.use, "post_attention_layernorm");
    for (const auto& [of, elsewhere] : {std::pair{"attention", in_norm}, {"mlp", options_.hands_on_terms}})
      if (!elsewhere) add(part, "tensor_model_parallel_all_reduce()", {"T, H"}, {"T, H"}, "all_reduce", of);
  }

  void moe() {
    const Part part = Part::mlp_moe;
    const std::string one = linear(moe_layer_, "mlp.shared_experts.gate_proj");
    post_attention_norm(part);
    add(part, "self.gate()", {"T, H"}, {"T, E"}, router());
    add(part, "self.topk()", {"T, E"}, {"topk_weights: T, K", "topk_ids: T, K"},
        {"topk_softmax / topk_sigmoid / moe_fused_gate", selecting()});
    if (config_.n_shared_experts > 0)
      add(part, "self.shared_experts()", {"T, H"}, {"T, H"}, {one + " + silu_and_mul", one + " + silu_and_mul"});
    const bool fp4 = nvfp4(moe_layer_, "mlp.experts.0.gate_proj");
    const std::string chosen(!options_.experts_kernel.empty() ? options_.experts_kernel : fp4 ? "cutlass_fp4_group_mm" : "linear");
    add(part, "self.experts()", {"T, H"}, {"T, H"}, {"(varies by backend)", chosen});
    if (options_.sums_by_rank && !options_.shard.experts.whole())
      add(part, "tensor_model_parallel_all_reduce()", {"T, H"}, {"T, H"}, "all_reduce", "experts");
  }

  void mlp(Part part, std::int64_t layer, const std::string& module) {
    add(part, "self.gate_up_proj()", {"T, H"}, {"T, 2 * I"}, linear(layer, (module + ".gate_proj").c_str()));
    add(part, "self.act_fn()", {"T, 2 * I"}, {"T, I"}, "silu_and_mul");
    add(part, "self.down_proj()", {"T, I"}, {"T, H"}, linear(layer, (module + ".down_proj").c_str()));
  }

  void dense() {
    shapes_.bind("I", config_.intermediate_size);
    post_attention_norm(Part::mlp_dense);
    mlp(Part::mlp_dense, dense_layer_, "mlp");
  }

  void shared() {
    if (config_.n_shared_experts == 0) return;
    shapes_.bind("I", config_.shared_intermediate_size());
    mlp(Part::shared_experts, moe_layer_, "mlp.shared_experts");
  }

  void cutlass() {
    // This backend multiplies NVFP4 only.
    if (!nvfp4(moe_layer_, "mlp.experts.0.gate_proj")) return;
    const Part part = Part::experts_cutlass;
    shapes_.bind("I", config_.moe_intermediate_size);
    add(part, "prepare_moe_input", {"T, H", "topk_ids: T, K"}, {"permuted: T*K, H"}, "prepare_moe_input");
    add(part, "shuffle_rows", {"T, H"}, {"T*K, H"}, "shuffle_rows");
    add(part, "scaled_fp4_experts_quant", {"T*K, H"}, {"T*K, H / 2"}, "scaled_fp4_experts_quant", "gate_up");
    add(part, "cutlass_fp4_group_mm", {"T*K, H"}, {"T*K, 2 * I"}, "cutlass_fp4_group_mm", "gate_up", {"packed: T*K, H / 2"});
    add(part, "silu_and_mul", {"T*K, 2 * I"}, {"T*K, I"}, "silu_and_mul");
    add(part, "scaled_fp4_experts_quant", {"T*K, I"}, {"T*K, I / 2"}, "scaled_fp4_experts_quant", "down");
    add(part, "cutlass_fp4_group_mm", {"T*K, I"}, {"T*K, H"}, "cutlass_fp4_group_mm", "down", {"packed: T*K, I / 2"});
    add(part, "apply_shuffle_mul_sum", {"T*K, H", "topk_weights: T, K"}, {"T, H"}, "apply_shuffle_mul_sum");
  }

  void trtllm() {
    const bool fp4 = nvfp4(moe_layer_, "mlp.experts.0.gate_proj");
    add(Part::experts_trtllm, "Fused MoE", {"T, H", "topk_ids: T, K", "topk_weights: T, K"}, {"T, H"},
        fp4 ? "trtllm_fp4_block_scale_moe" : "trtllm_bf16_moe");
  }

  void triton() { add(Part::experts_triton, "Fused MoE", {"T, H", "topk_ids: T, K", "topk_weights: T, K"}, {"T, H"}, "fused_moe_kernel"); }

  const ModelConfig& config_;
  const BookOptions& options_;
  Phase phase_;
  std::string tokens_;
  std::int64_t count_ = 0;
  std::int64_t attention_layer_ = 0, dense_layer_ = -1, moe_layer_ = -1;
  Shapes shapes_;
  std::vector<BookEntry> entries_;
};

std::string full_name(const BookEntry& entry) {
  return entry.op + (entry.note.empty() ? "" : " (" + entry.note + ")");
}

/// The shape that the caller's label names.
const BookShape& find_shape(const BookEntry& entry, std::string_view label) {
  for (const auto* list : {&entry.inputs, &entry.outputs, &entry.views})
    for (const BookShape& shape : *list)
      if (!shape.label.empty() && shape.label == label) return shape;
  for (const auto& [name, list] : {std::pair("input", &entry.inputs), std::pair("output", &entry.outputs)})
    if (label == name && !list->empty() && list->front().label.empty()) return list->front();
  throw Error(ErrorCode::bad_value, "", "", full_name(entry) + ": the shape book has no '" + std::string(label) + "'");
}

bool fits(const Dims& actual, const Dims& expected) {
  if (actual.rank() != expected.rank()) return false;
  for (int i = 0; i < expected.rank(); ++i)
    if (expected[i] >= 0 && actual[i] != expected[i]) return false;
  return true;
}

}  // namespace

bool is_first_layer(const ModelConfig& config, std::int64_t layer) {
  return layer == 0 || config.is_nextn_layer(layer);
}

const Dims& BookEntry::shape(std::string_view label) const {
  return find_shape(*this, label).shape;
}

std::string_view title(Part part) {
  switch (part) {
    case Part::model: return "Model";
    case Part::attention: return "Attention Ops";
    case Part::attention_chunks: return "Attention Ops (MHA chunked path: each chunk of the prefix; one-shot path: all cached tokens)";
    case Part::attention_fused: return "Attention Ops (MLA_FUSED_ROPE path)";
    case Part::kv_cache: return "KV Cache";
    case Part::mlp_dense: return "MLP Ops (Dense)";
    case Part::mlp_moe: return "MLP Ops (MoE)";
    case Part::shared_experts: return "Inside self.shared_experts()";
    case Part::experts_cutlass: return "MoE Expert Backends: Cutlass";
    case Part::experts_trtllm: return "MoE Expert Backends: TRTLLM";
    case Part::experts_triton: return "MoE Expert Backends: Triton";
    case Part::nextn: return "NextN-specific Ops";
  }
  return {};
}

ShapeBook::ShapeBook(const ModelConfig& config, Phase phase, const BookOptions& options) : phase_(phase) {
  if (options.batch < 0 || options.sequence < 0) throw Error(ErrorCode::bad_value, "", "", "shape book: negative batch or sequence length");
  if (options.layer >= 0) config.check_layer(options.layer);
  if (phase == Phase::nextn && config.num_nextn_predict_layers == 0)
    throw Error(ErrorCode::bad_value, "", "", config.name + " has no NextN layer (num_nextn_predict_layers is 0)");
  entries_ = Writer(sharded(config, options.shard), phase, options).write();
}

const BookEntry& ShapeBook::at(Part part, std::string_view op, std::string_view note) const {
  for (const BookEntry& entry : entries_)
    if (entry.part == part && entry.op == op && (note.empty() || entry.note == note)) return entry;
  throw Error(ErrorCode::bad_value, "", "",
              "shape book: no op " + std::string(op) + (note.empty() ? "" : " (" + std::string(note) + ")") + " under '" +
                  std::string(title(part)) + "'");
}

void ShapeBook::check(Part part, std::string_view op, std::initializer_list<ActualShape> actual) const {
  check(part, op, {}, actual);
}

void ShapeBook::check(Part part, std::string_view op, std::string_view note, std::initializer_list<ActualShape> actual) const {
  const BookEntry& entry = at(part, op, note);
  for (const ActualShape& each : actual) {
    const BookShape& expected = find_shape(entry, each.label);
    if (!fits(each.shape, expected.shape))
      throw Error(ErrorCode::bad_shape, "", "",
                  full_name(entry) + ": " + std::string(each.label) + " has shape " + to_string(each.shape) + ", expected " +
                      expected.symbolic + " = " + expected.with_numbers);
  }
}

}  // namespace dodona::model
