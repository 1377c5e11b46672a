// The routed experts of one layer for a batch of tokens, and what runs them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/layer/experts/deepep.h"
#include "model/layer/pass.h"
#include "ops/base/bounded.h"

namespace dodona::model {

/// What the router chose.
struct Routing {
  Tensor weights;                    ///< f32 [T, K]
  Tensor ids;                        ///< i32 [T, K]
  std::vector<std::int64_t> counts;  ///< rows of each expert, of T * K in all
  std::int64_t rows() const { return ids.elements(); }
};
/// Rows that ranks have sent to the experts of this one, and the way back for what becomes of them.
struct SentRows {
  LowLatencyExchange exchange;
  LowLatencyExchange::Received rows = {};
  Tensor weights = {};                ///< of this rank's tokens
  std::int64_t begin = 0, count = 0;  ///< which they are among the batch's
};
/// Tokens and what was chosen for them: this rank's, or those of all ranks where each has its own.
struct Routed {
  Tensor x;
  Routing routing;
  std::int64_t begin = 0, count = 0;    ///< this rank's among them
  std::shared_ptr<SentRows> sent = {};  ///< of backends that have run_sent; counts are then those of the rows
};
/// The counts of what was chosen; in a plan, which cannot know, those of T * K rows spread over min(T * K, E) experts, and T rows of the
/// fused shared expert.
std::vector<std::int64_t> rows_of_experts(const Pass& pass, const Tensor& ids);

/// Where routed_scaling_factor is applied, once. Source: spec of sglang's runners.
enum class FactorPlace {
  router,    ///< in the router's weights
  experts,   ///< by the backend itself
  addition,  ///< where the sum is added to the shared expert's, in one rounding; without one, to the rounded sum
};

/// Where a backend of fp8, or of bf16, rounds beside what all do: its budget follows from that.
struct ExpertsRoundings {
  bool rounds_activation = false;  ///< silu, before its product with up
  bool weighs_first = false;       ///< a row is weighed before it is rounded
  bool narrow_weights = false;     ///< weights are rounded to bf16
  bool rounds_between = false;     ///< every partial sum over a token's slots
};

/// One way of running routed experts: out[t] = sum over j of weights[t,j] * Expert_{ids[t,j]}(x[t]), x [T, H].
struct ExpertsBackend {
  std::string_view name;
  ExpertWeights weights = ExpertWeights::stored;
  std::string_view kernel = {};  ///< that does the products; empty: that of the weights' own method
  FactorPlace factor = FactorPlace::experts;
  bool fuses_shared = true;      ///< takes the shared expert as one of its own
  bool sums_rows = false;        ///< gives a token's sum over the experts that are here, and no rows: those elsewhere add nothing to it
  bool one_input_scale = false;  ///< activations have one static scale for all experts: the largest that they come with
  ExpertsRoundings roundings = {};
  std::int64_t sizes_are_multiples_of = 1;  ///< hidden_size, and a rank's moe_intermediate_size: what its kernels ask for
  /// The method by which it has weights made ready that `stored` would multiply otherwise; nullptr when it cannot multiply those.
  const LinearMethod* (*accepts)(const LinearMethod& stored) = nullptr;
  /// Brings an expert into the form that fast mode reads, where one op takes both its matrices; the raw ones are given up.
  void (*pack)(MlpWeights&, const Exec&) = nullptr;
  /// The experts that have rows have been touched.
  Tensor (*run)(const Pass&, const Tensor& x, const Routing&) = nullptr;
  /// Where experts lie on several ranks, which send each other rows as DeepEP does: both products of rows that lie as its low-latency
  /// dispatch gives them. nullptr: every rank has all tokens, and gives everybody its experts' rows.
  Tensor (*run_sent)(const Pass&, const Routing&, const LowLatencyExchange::Received&) = nullptr;
  /// See bounded_experts, with raw weights; nullptr: of fp8 blocks and of bf16 what it makes of `roundings`, else nothing.
  std::vector<ops::Bounded> (*bounded)(const LayerWeights&, const Tensor& x, const Routing&, const Exec&) = nullptr;
};

/// sglang `cutlass_moe_fp4`, NVFP4: rows sorted by expert, quantized with each expert's own scale, multiplied, activated, quantized,
/// multiplied, and summed with weights rounded to bf16.
extern const ExpertsBackend cutlass_experts;
/// Expert by expert with each module's own method, rounding as sglang's Triton runner does: each row is weighted in fp32 before it is
/// rounded; the sum is scaled by routed_scaling_factor in fp32 and rounded once.
extern const ExpertsBackend plain_experts;

/// sglang `cutlass_fused_experts_fp8`: rows sorted by expert, weights rounded to bf16.
extern const ExpertsBackend cutlass_fp8_experts;
/// sglang `fused_experts_impl` with fp8 blocks (Triton).
extern const ExpertsBackend triton_fp8_experts;
/// sglang's DeepGEMM runner: masked products, sums in bf16.
extern const ExpertsBackend deepgemm_experts;
/// The same between DeepEP's low-latency dispatch and combine, with one rank.
extern const ExpertsBackend deepep_experts;
/// FlashInfer `trtllm_fp8_block_scale_moe` behind sglang's quantizer, routing given: gate and up are quantized before the activation.
extern const ExpertsBackend trtllm_experts;
/// FlashInfer `cutlass_fused_moe` with scales of blocks.
extern const ExpertsBackend flashinfer_cutlass_experts;
/// The same with NVFP4 weights: `trtllm_fp4_block_scale_moe` behind FlashInfer's quantizer, and `cutlass_fused_moe`, which quantizes tokens
/// itself. Source: sglang `ModelOptNvFp4FusedMoEMethod`.
extern const ExpertsBackend trtllm_nvfp4_experts, flashinfer_cutlass_nvfp4_experts;
/// See ExpertsBackend::bounded: of cutlass_experts.
std::vector<ops::Bounded> bounded_cutlass_nvfp4(const LayerWeights&, const Tensor& x, const Routing&, const Exec&);
/// FlashInfer `trtllm_bf16_moe`, routing given likewise.
extern const ExpertsBackend trtllm_bf16_experts;
/// cutlass_fp8_experts with `es_fp8_blockwise_scaled_grouped_mm` for both products.
extern const ExpertsBackend cutlass_es_experts;

/// sglang `fused_experts_impl` with rows of fp8 or int8 (Triton): a scale for each row of the weights and for each token.
extern const ExpertsBackend channel_experts;
/// sglang `cutlass_w4a8_moe`: int4 weights, activations in fp8 with one static scale for all experts.
extern const ExpertsBackend w4a8_experts;

/// What the experts of the setting's layer would be multiplied by one by one.
const LinearMethod& stored_experts(const ModelConfig& config, const LayerSetting& setting);
/// The backend that the setting names, or the first of its weights' form that accepts what is stored; plain_experts accepts all that have a
/// product of their own. Throws Error (bad_option for a name or a setting that no backend has, unsupported).
const ExpertsBackend& choose_experts(const ModelConfig& config, const LayerSetting& setting);
/// The kernel that does its products in the setting's layer.
std::string_view kernel_of(const ExpertsBackend& backend, const ModelConfig& config, const LayerSetting& setting);
/// The setting, whose layer drafts for the others, with experts that can be: where its own are stored in another form than theirs and what
/// is asked for does not take that, the first backend that does. Releases in NVFP4 leave NextN layers in bf16, and upstream runs their
/// experts as it runs unquantized ones.
LayerSetting with_experts_of_draft(const ModelConfig& config, LayerSetting setting);
/// "cutlass, plain, triton..."
std::string experts_names();

/// Kernels of mixtures of experts, for `--use`.
std::vector<std::string_view> experts_kernel_names();
/// How a layer comes to run a kernel of routed experts.
struct ExpertsPlace {
  std::string backend;
  ExpertWeights weights = ExpertWeights::stored;
  WeightForm form = WeightForm::bf16;  ///< in which their weights are, or are to be made
};
/// For weights that are in the form `stored`, and must stay so where it is `fixed`: with as little changed as can be. `why` says why there
/// is none; empty where there is one.
ExpertsPlace place_experts(std::string_view kernel, WeightForm stored, bool fixed, const LayerSetting& setting, std::string& why);

// ---- what backends share

/// Rows of an expert that has some, among all rows sorted by expert.
struct ExpertRows {
  std::int64_t expert, row, rows;
  std::int64_t scale_row;  ///< where its block scales begin, with every expert's rows padded to a multiple of 128
};
std::vector<ExpertRows> groups_of(std::span<const std::int64_t> counts);
std::vector<std::int64_t> experts_of(std::span<const ExpertRows> groups);

/// Where each of the layer's experts stands among `experts`; -1 for those that are not among them.
std::vector<std::int64_t> places_among(std::span<const std::int64_t> experts, const Routing& routing);
/// The routing's ids by these places, in i32 or i64.
Tensor local_ids(const Routing& routing, std::span<const std::int64_t> experts, DType type);

/// What a backend is called with: the experts that have rows, in the order of their ids.
struct RoutedExperts {
  const LayerWeights& weights;
  const Tensor& x;
  const Routing& routing;
  std::vector<ExpertRows> groups = groups_of(routing.counts);

  std::int64_t count() const { return static_cast<std::int64_t>(groups.size()); }
  std::int64_t tokens() const { return x.size(0); }
  std::int64_t topk() const { return routing.ids.size(1); }
  std::int64_t hidden() const { return weights.config().hidden_size; }
  std::int64_t width() const { return weights.config().moe_intermediate_size; }
  /// Rows of the fullest.
  std::int64_t most_rows() const;

  std::vector<std::int64_t> ids() const { return experts_of(groups); }
  std::vector<std::int64_t> places() const { return places_among(ids(), routing); }
  /// The routing's ids by these places.
  Tensor ids_among_these(DType type) const { return local_ids(routing, ids(), type); }
  const MlpWeights& expert(std::int64_t i) const { return weights.expert(groups[static_cast<std::size_t>(i)].expert); }
};

/// Rows [T, K, H] that hold their weights, added up as sglang's Triton runner does: `moe_sum_reduce`.
Tensor sum_by_triton(const Pass& pass, const Tensor& rows);
/// Both products of every expert that has rows, without these.
Work products_of(const Pass& pass, const Routing& routing);
/// The whole of the routed experts as one op of the trace.
Tensor run_experts(const Pass& pass, const Tensor& x, const Work& work, const std::function<Tensor()>& body);

}  // namespace dodona::model
