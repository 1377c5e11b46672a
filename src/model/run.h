// A layer run as the command and the C interface ask for it: what is not said is drawn from a seed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/pages.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/layer/decoder.h"

namespace dodona::model {

/// The configuration in `folder`, else the preset, else the one beside the weights, else r1-nvfp4; empty texts are not given.
ModelConfig choose_config(const std::string& folder, const std::string& preset, const std::string& weights);
/// The first MoE layer; 0 if there is none.
std::int64_t default_layer(const ModelConfig& config);
/// The checkpoint in `folder`; weights synthesized from the seed if it is empty.
std::unique_ptr<WeightSource> open_weights(const ModelConfig& config, const std::string& folder, std::uint64_t seed, const Exec& exec,
                                           const Shard& shard = {});

/// What the options for the batch and for lengths are called where the caller stands.
struct BatchOptionNames {
  const char* batch;
  const char* kv_len;
};
/// One length for each request: a list, or one value for all. Throws Error (bad_option) naming the option.
std::vector<std::int64_t> lengths_of(const ModelConfig& config, std::vector<std::int64_t> kv_len, std::optional<std::int64_t> batch,
                                     const BatchOptionNames& names);

/// How many of a batch's tokens are new, as the options say it.
struct Phases {
  Forward forward = Forward::decode;
  std::vector<std::int64_t> new_tokens;  ///< of each request
};
struct PhaseOptionNames {
  const char *phase, *prefix_len, *draft_tokens;
};
/// `phase` prefill (without a prefix unless one is given), extend (prefix_len: a list, or one value for all), decode (one new token each),
/// verify (draft_tokens of each). Throws Error (bad_option) naming the option.
Phases phases_of(const std::string& phase, std::span<const std::int64_t> lengths, std::vector<std::int64_t> prefix_len,
                 std::optional<std::int64_t> draft_tokens, const PhaseOptionNames& names);

/// "bf16", "fp8_e4m3", or "auto": what the configuration says of its cache. Throws Error (bad_option) naming the option.
KvCacheType kv_cache_of(const std::string& text, const ModelConfig& config, const char* option);

/// One batch through one layer.
struct LayerRequest {
  ModelConfig config;
  std::string weights;  ///< folder of a checkpoint; empty: synthesized from the seed
  LayerSetting setting;
  std::vector<std::int64_t> lengths;     ///< tokens of each request, the new ones included
  std::vector<std::int64_t> new_tokens;  ///< of each request; empty: one each
  Forward forward = Forward::decode;
  std::uint64_t seed = 0;       ///< of weights, inputs and history
  std::uint64_t page_seed = 0;  ///< deals the cache's pages in a shuffled order; changes no result
  Shard shard = {};             ///< whose weights are made: those of one rank
  bool own_tokens = false;      ///< of a plan: ranks with experts of their own have batches of their own, as long as this one
  Exec exec;
};
/// The batch that is asked for; its slots are for the cache to give.
Batch batch_of(const LayerRequest& request);
/// Refuses what the layer, or the batch's way through it, would not look at: options of experts for a dense layer, another order of what
/// has no parts, `chunks` (whether their size was given) where nothing is cut. Throws Error (bad_option) naming the option.
void check_heard(const LayerRequest& request, bool chunks);
/// What two runs must have in common to be compared: layer, hidden_size, kv_len, seed, residual, rounding, fused_shared_expert; where
/// they are given, new_tokens (of other phases than decode), backend, path, experts and expert_weights.
io::Json setting_json(const LayerRequest& request);

/// What the step takes, before anything runs.
struct Plan {
  std::vector<OpRecord> ops;      ///< in the order in which they run; kernels hold the one that does the op's main work; seconds are 0
  double weight_bytes = 0;        ///< that the step reads
  double layer_weight_bytes = 0;  ///< of the whole layer, with all experts
  double cache_bytes = 0;         ///< pages of the KV cache
};
/// The layer run without bodies: allocates no tensors. Of the routed experts it reads min(B * K, E). Throws Error as LayerRun does.
Plan plan_layer(const LayerRequest& request);

/// The layer with all that the step reads, ready to be run as often as one likes: every run gives the same.
class LayerRun {
 public:
  /// Makes cache, weights, history and inputs. Throws Error for a cache that cannot be (before weights are made), and as LayerWeights does.
  explicit LayerRun(const LayerRequest& request);

  const LayerRequest& request() const { return request_; }
  const WeightSource& source() const { return *source_; }
  const LayerWeights& weights() const { return weights_; }

  /// Copies of what the step reads: hidden and, except for layers that have none, residual [T, H], normal numbers of the streams "hidden"
  /// and "residual"; kv_cache [B, longest, row], the cache before the step, zeros beyond a request's history; with sparse attention
  /// index_k, u8 [B, longest, 132], the indexer's keys likewise: 128 codes and the bytes of their scale.
  io::NamedTensors inputs() const;
  /// Puts `tensor` in the place of that input; undefined: leaves it. Throws Error naming `where` it comes from for inputs that this layer
  /// does not read, and for another dtype or shape.
  void replace_input(const std::string& name, const Tensor& tensor, const std::string& where);

  struct Result {
    LayerState output;
    std::vector<OpRecord> records;  ///< the first is the whole
    double seconds() const { return records.front().seconds; }
    const Work& work() const { return records.front().work; }
  };
  /// The first one loads the experts that the router chooses. `witness` sees the kernels' calls; `ranks` hold the other shards.
  Result run(const Observer& observer = {}, Witness* witness = nullptr, const Ranks& ranks = {});
  /// The step once more, for its time: what `done`, a run of it, says of the ops' outputs is taken over. Reading them all between the ops
  /// takes longer than some of these, and lets the other threads fall asleep.
  Result run_again(const Result& done);

 private:
  void each_cached_row(const std::function<void(std::int64_t request, std::int64_t token, const Tensor& row)>& visit) const;
  Tensor history() const;
  Tensor index_history() const;
  void replace_index(const Tensor& history);

  KeepPages pages_;
  LayerRequest request_;
  PagedKvCache cache_;
  std::unique_ptr<WeightSource> source_;
  LayerWeights weights_;
  Batch batch_;
  LayerState state_;
};

/// SHA-256 over the bytes of hidden, then residual.
std::string digest_of(const LayerState& output);

/// One line of the execution tree: op, note, depth, shapes, kernels, seconds, bytes, weight_bytes, flops, int8_ops, rms, not_finite.
io::Json to_json(const OpRecord& record);

}  // namespace dodona::model
