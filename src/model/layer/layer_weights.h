// The weights of one decoder layer, made ready to run.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "dodona/exec.h"
#include "model/layer/attention/absorbed.h"
#include "model/layer/attention/indexer.h"
#include "model/layer/linear/method.h"
#include "model/layer/setting.h"
#include "model/weights/weights.h"

namespace dodona::model {

struct ExpertsBackend;

/// gate_up is [gate; up] along its rows.
struct MlpWeights {
  Projection gate_up, down;
  Prepared whole = {};  ///< both in fast mode's form of one op, of a backend's routed experts: the raw ones are gone
};

/// One weight of several experts, codes and scales each one behind the other: for kernels that take them so.
struct ExpertStack {
  Tensor codes, scales;               ///< [places, N, K], [places, N/128, K/128]; more places than are taken
  std::vector<std::int64_t> experts;  ///< which expert each place holds

  /// Of an expert that is there.
  std::int64_t place(std::int64_t expert) const;
};

class LayerWeights {
 public:
  /// Loads everything but the routed experts; of a source of sizes alone (planned_weights), forms and sizes. The source must outlive this.
  /// Throws Error naming the tensor, or the option that the layer cannot have.
  LayerWeights(const WeightSource& source, const LayerSetting& setting, const Exec& exec);

  /// Of the source's shard.
  const ModelConfig& config() const { return source_->local(); }
  const WeightSource& source() const { return *source_; }
  const LayerSetting& setting() const { return setting_; }
  std::int64_t layer() const { return setting_.layer; }
  bool is_moe() const { return backend_ != nullptr; }
  /// Of what passes from op to op.
  DType type() const { return activation_type(setting_.rounding); }

  Tensor input_layernorm, post_attention_layernorm, q_a_layernorm, kv_a_layernorm;
  Projection fused_qkv_a;   ///< with low-rank q
  Projection q_proj, kv_a;  ///< without
  Projection q_b, o;
  AbsorbWeights absorb;
  Projection kv_b;         ///< the same weight for expanding latents, after touch_kv_b
  IndexerWeights indexer;  ///< with sparse attention
  MlpWeights mlp;          ///< dense layers
  Projection gate;         ///< the router, [E, H]
  Tensor correction_bias;  ///< f32 [E]
  MlpWeights shared;       ///< MoE layers, unless fused
  struct {
    float gate_up = 0, down = 0;
  } expert_input_scales;  ///< of backends with one for all routed experts

  /// What runs the routed experts of an MoE layer.
  const ExpertsBackend& backend() const { return *backend_; }
  /// Loads the experts that have rows and are not there yet; E is the shared expert when it is fused.
  void touch(std::span<const std::int64_t> rows_of_expert, const Exec& exec);
  /// Makes kv_b ready, for paths that expand.
  void touch_kv_b(const Exec& exec);
  /// What both have taken so far.
  double touching_seconds() const { return touching_seconds_; }
  /// An expert that has been touched.
  const MlpWeights& expert(std::int64_t id) const { return experts_.at(id); }
  /// The stack of a weight of all experts that have been asked for, touched ones, in the order of their first use; they have it there
  /// alone.
  const ExpertStack& stack(Projection MlpWeights::*member, std::span<const std::int64_t> experts);
  /// Experts of the grouped products: E, or E + 1 with the shared one.
  std::int64_t experts() const { return config().n_routed_experts + (setting_.fused_shared ? 1 : 0); }

 private:
  /// Of the model op of that name in uses.
  Projection projection(std::string_view op, const std::vector<std::string>& modules, const Exec& exec) const;
  Projection projection(const std::vector<std::string>& modules, const LinearMethod& method, const Exec& exec) const;
  MlpWeights mlp_weights(const std::string& module, bool of_shared, const Exec& exec) const;
  MlpWeights expert_weights(const std::string& module, const Exec& exec) const;
  IndexerWeights indexer_weights(const Exec& exec) const;
  Tensor norm(const char* name) const;
  void find_input_scales();
  std::string full(const std::string& module) const;

  const WeightSource* source_;
  LayerSetting setting_;
  const ExpertsBackend* backend_ = nullptr;
  std::map<std::int64_t, MlpWeights> experts_;
  ExpertStack gate_up_stack_, down_stack_;
  double touching_seconds_ = 0;
};

}  // namespace dodona::model
