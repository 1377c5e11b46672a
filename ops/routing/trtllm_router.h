// The routing inside trtllm-gen's whole MoE kernels: ten methods, each a row of a table that says what experts are compared by and what
// the chosen ones weigh.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dodona/tensor.h"
#include "ops/routing/order.h"
#include "ops/routing/routed_rows.h"
#include "ops/routing/scores.h"

namespace dodona::ops {

/// Upstream's RoutingMethodType, by number.
enum class TrtllmMethod : std::uint8_t {
  softmax,            ///< 0 Default: softmax, then the best
  renormalize,        ///< 1: the best, then softmax of these
  deepseek_v3,        ///< 2
  llama4,             ///< 3: the best one, then its sigmoid
  renormalize_naive,  ///< 4: computed as 1
  topk,               ///< 5: the best logits, which are their weights
  sigmoid_renorm,     ///< 6: sigmoid, the best, over their sum
  minimax2,           ///< 7: as 2 without groups
  sigmoid,            ///< 8: sigmoid, then the best
  topk_sigmoid,       ///< 9: the best, then their sigmoids
};
inline constexpr std::int64_t trtllm_methods = 10;
/// By upstream's name; the first one where there is none of it.
TrtllmMethod trtllm_method(std::string_view name);

struct TrtllmRouter {
  const Tensor& logits;  ///< [T, E] f32 or bf16
  const Tensor& bias;    ///< [E]; undefined: none
  TrtllmMethod method;
  std::int64_t topk, groups, kept_groups;  ///< groups of 1 and fewer: none
  std::int64_t shared;                     ///< fused shared experts: E, E + 1..., each of weight 1, behind the chosen
  float factor;                            ///< routed_scaling_factor, of methods 2 and 7
  bool normalize;                          ///< norm_topk_prob, of method 6
  bool rounded;                            ///< weights are rounded to bf16

  std::int64_t tokens() const { return logits.size(0); }
  std::int64_t experts() const { return logits.size(1); }
  std::int64_t slots() const { return topk + shared; }
  bool grouped() const { return method == TrtllmMethod::deepseek_v3 && groups > 1; }
};

/// Throws what upstream's launcher refuses.
void check_trtllm_router(const TrtllmRouter& router);

/// One token.
class TrtllmRow {
 public:
  TrtllmRow(const TrtllmRouter& router, std::int64_t token);

  /// A NaN among logits and biases, or a softmax of none.
  bool unspecified() const { return !defined_; }
  std::vector<std::int64_t> choose() const;
  /// Whether keys within their intervals give these, in this order.
  bool allows(std::span<const std::int64_t> chosen) const;
  /// Whether they give no others, whatever the order of these.
  bool certain(std::span<const std::int64_t> chosen) const;
  /// Weights before their rounding to bf16, or as they are.
  RoutedRow route(const std::vector<std::int64_t>& chosen) const;

 private:
  std::int64_t groups() const { return router_.grouped() ? router_.groups : 1; }
  std::int64_t kept_groups() const { return router_.grouped() ? router_.kept_groups : 1; }
  std::vector<GateKey> group_order() const;

  const TrtllmRouter& router_;
  std::vector<float> x_, keys_;
  std::vector<GateKey> open_;
  bool defined_ = true;
};

/// A weight as it leaves the router.
Bounded trtllm_weight(const TrtllmRouter& router, const Bounded& weight);

extern const std::string_view trtllm_router_contract;

}  // namespace dodona::ops
