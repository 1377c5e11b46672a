#include "model/weights/shard.h"

#include <string>

#include "dodona/error.h"

namespace dodona::model {
namespace {

/// The name of the model tells whose sizes these are, for messages.
void append(std::string& name, const char* what, const Share& share) {
  if (!share.whole()) name += std::string(", ") + what + " " + std::to_string(share.index + 1) + " of " + std::to_string(share.count);
}

void check(const ModelConfig& config, const char* what, const Share& share, const char* field, std::int64_t size) {
  const auto fail = [&](const std::string& message) { throw Error(ErrorCode::bad_value, "", "shard", what + (" " + message)); };
  if (share.count < 1) fail("are split into " + std::to_string(share.count) + " parts, expected 1 or more");
  if (share.index < 0 || share.index >= share.count)
    fail("part " + std::to_string(share.index) + " is asked for, expected 0 to " + std::to_string(share.count - 1));
  if (size % share.count != 0)
    fail("of " + config.name + " do not divide into " + std::to_string(share.count) + " parts: " + field + " is " + std::to_string(size));
}

}  // namespace

ModelConfig sharded(const ModelConfig& config, const Shard& shard) {
  if (shard.whole()) return config;
  check(config, "heads", shard.heads, "num_attention_heads", config.num_attention_heads);
  check(config, "experts", shard.experts, "n_routed_experts", config.n_routed_experts);
  check(config, "intermediate sizes", shard.intermediate, "intermediate_size", config.intermediate_size);
  check(config, "intermediate sizes", shard.intermediate, "moe_intermediate_size", config.moe_intermediate_size);
  check(config, "vocabulary rows", shard.vocabulary, "vocab_size", config.vocab_size);
  ModelConfig local = config;
  append(local.name, "heads", shard.heads);
  append(local.name, "experts", shard.experts);
  append(local.name, "intermediate", shard.intermediate);
  append(local.name, "vocabulary", shard.vocabulary);
  local.num_attention_heads = shard.heads.size(config.num_attention_heads);
  local.intermediate_size = shard.intermediate.size(config.intermediate_size);
  local.moe_intermediate_size = shard.intermediate.size(config.moe_intermediate_size);
  local.vocab_size = shard.vocabulary.size(config.vocab_size);
  local.validate();
  // Where heads end inside of a block, a part's scales would not be its own.
  const FormLimits limits =
      limits_of(config.form_of(config.q_lora_rank > 0 ? "model.layers.0.self_attn.q_b_proj" : "model.layers.0.self_attn.q_proj"));
  if (!shard.heads.whole() && local.q_rows() % limits.stacked != 0)
    throw Error(ErrorCode::bad_value, "", "shard",
                "heads of " + config.name + " part q's rows into " + std::to_string(local.q_rows()) + ", expected a multiple of " +
                    std::to_string(limits.stacked) + ", the rows that share a scale");
  return local;
}

ExpertRange local_experts(const ModelConfig& config, const Shard& shard) {
  const std::int64_t begin = shard.experts.begin(config.n_routed_experts);
  return {begin, begin + shard.experts.size(config.n_routed_experts)};
}

}  // namespace dodona::model
