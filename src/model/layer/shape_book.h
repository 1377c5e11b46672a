// The shape book: what shapes every model op takes and gives, from the configuration.
//
// Symbols: B requests, S new tokens of each (prefill), n tokens of a prefix chunk; H hidden, Nh heads, Lq and Lkv ranks of the latents, Dn,
// Dr, Dv head dimensions, Dq = Dn + Dr, Ki tokens that the indexer chooses, E experts, K chosen per token, I intermediate size, V
// vocabulary.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dodona/tensor.h"
#include "model/config/config.h"
#include "model/layer/setting.h"
#include "model/weights/shard.h"

namespace dodona::model {

enum class Phase { prefill, decode, nextn };

/// Part of the execution graph: the same op name may stand in several.
enum class Part {
  model,             ///< embedding, final norm, logits
  attention,         ///< MHA path in prefill, MLA (absorb) path in decode
  attention_chunks,  ///< MHA chunked path: attention over chunks of the prefix
  attention_fused,   ///< MLA_FUSED_ROPE path
  kv_cache,          ///< what attention writes and reads back
  mlp_dense,
  mlp_moe,
  shared_experts,   ///< inside self.shared_experts()
  experts_cutlass,  ///< inside self.experts(), by backend
  experts_trtllm,
  experts_triton,
  nextn,  ///< what the NextN model puts around its one layer
};
std::string_view title(Part part);

/// A named shape: `q_pe: [B, Nh, Dr]`. An op's only input or output has no label.
struct BookShape {
  std::string label;
  std::string symbolic;      ///< "[B, Lq+Lkv+Dr]"
  std::string with_numbers;  ///< "[B, 2112]", or "[4, 2112]" when the batch is known
  Dims shape;                ///< sizes, -1 where unknown
};

struct BookEntry {
  Part part{};
  std::string op;    ///< "self.q_b_proj()"
  std::string note;  ///< "q_nope * w_kc"; tells ops of one name apart
  std::vector<BookShape> inputs, outputs;
  std::vector<BookShape> views;  ///< what the output is then split or viewed as
  std::string kernels;           ///< "dsv3_fused_a_gemm (B<=16) / cutlass_scaled_fp4_mm": candidates as the execution document lists them
  std::string kernel;            ///< the one that this configuration, phase and batch lead to; with an unknown batch, as for a large one
  std::string wants_sizes = {};  ///< which its kernels take alone, where the configuration has others; empty: they take these

  /// The shape of that label, among inputs, outputs and views; "input" and "output" stand for an unlabelled one. Throws Error (bad_value).
  const Dims& shape(std::string_view label) const;
};

struct BookOptions {
  std::int64_t batch = 0;     ///< requests; 0: unknown
  std::int64_t sequence = 0;  ///< new tokens of each in prefill; 0: unknown
  std::int64_t layer = -1;    ///< whose weights decide the kernels; -1: the first dense and the first MoE layer
  bool fused_shared = false;  ///< see LayerSetting, as the two below
  bool low_latency = true;
  Rounding rounding = Rounding::bf16;
  Residual residual = Residual::fused;
  /// New tokens in all, where they are not S of each: T in the shapes. 0: unknown, -1: B * S of prefill, B of decode.
  std::int64_t tokens = -1;
  std::string_view attention_kernel = {};  ///< of attn_mha or attn_mqa; empty: the first candidate
  std::string_view rope_kernel = {};       ///< empty: the first candidate
  std::string_view experts_kernel = {};    ///< of the backend that runs the experts; empty: by the form of their weights
  bool sums_by_rank = false;               ///< ranks that share the experts add up their sums, see ranks.h
  std::span<const KernelUse> use = {};     ///< kernels that are asked for
  bool hands_on_terms = false;             ///< see LayerSetting
  Shard shard = {};                        ///< whose sizes are meant
};

/// A tensor's shape as the caller of check has it. Label "input" or "output" stands for an unlabelled one.
struct ActualShape {
  std::string_view label;
  Dims shape;
};

/// Whether the layer takes embeddings (or what the NextN model makes of them), without a residual.
bool is_first_layer(const ModelConfig& config, std::int64_t layer);

class ShapeBook {
 public:
  /// `config` is the whole model's. Throws Error (bad_value) for layers, phases and shards that it does not have.
  ShapeBook(const ModelConfig& config, Phase phase, const BookOptions& options = {});

  Phase phase() const { return phase_; }
  const std::vector<BookEntry>& entries() const { return entries_; }
  /// Throws Error (bad_value) when the book has no such op.
  const BookEntry& at(Part part, std::string_view op, std::string_view note = {}) const;
  /// Throws Error (bad_shape) with op and label, expected (in symbols and numbers) and found, unless each shape equals the book's.
  void check(Part part, std::string_view op, std::initializer_list<ActualShape> actual) const;
  void check(Part part, std::string_view op, std::string_view note, std::initializer_list<ActualShape> actual) const;

 private:
  Phase phase_;
  std::vector<BookEntry> entries_;
};

}  // namespace dodona::model
