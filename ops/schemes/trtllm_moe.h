// What the whole MoE kernels of trtllm-gen share: their schema, their routing, and how a call becomes one composition.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "core/define.h"
#include "ops/routing/trtllm_router.h"
#include "ops/schemes/moe_activation.h"
#include "quant/swizzle.h"

namespace dodona::ops {

using enum DType;

/// An expression of sizes without and with fused shared experts.
template <class Op>
constexpr const char* expert_slots(const char* routed, const char* with_shared) {
  return requires(Op op) {
    op.num_fused_shared_experts;
  }
  ? with_shared : routed;
}

/// `Op` has routing_logits, routing_bias, given_ids, given_weights and the attributes below.
template <class Op>
void describe_trtllm_routing(auto& op, Op& fields) {
  op.in("routing_logits", fields.routing_logits, {f32, bf16}, "T num_experts")
      .layout(Layout::contiguous)
      .role(Role::logits)
      .optional()
      .doc("of all experts");
  op.in("routing_bias", fields.routing_bias, {bf16, f32}, "num_experts")
      .layout(Layout::contiguous)
      .optional()
      .doc("added to the sigmoid for the choice, by DeepSeekV3 and MiniMax2; the others do not look at it");
  op.in("given_ids", fields.given_ids, {i32}, "T top_k")
      .layout(Layout::contiguous)
      .role(Role::expert_ids, "num_experts")
      .may_stray()
      .on_request()
      .doc("in the place of routing_logits: the experts of each token, chosen before; -1 adds nothing (upstream's routed functions)");
  op.in("given_weights", fields.given_weights, {bf16, f32}, "T top_k")
      .layout(Layout::contiguous)
      .on_request()
      .doc("their weights, taken as they are");
  op.attr("num_experts", fields.num_experts, between(1, 512)).required().doc("E, wherever they are");
  op.attr("top_k", fields.top_k, between(1, 32)).required().doc("experts chosen for each token");
  op.attr("n_group", fields.n_group, between(0, 8)).doc("groups of consecutive experts, of DeepSeekV3; 0 stands for None");
  op.attr("topk_group", fields.topk_group, between(0, 4)).doc("groups that are kept; 0 stands for None");
  op.attr("routed_scaling_factor", fields.routed_scaling_factor, between(-1e6, 1e6))
      .doc("of the weights of DeepSeekV3 and MiniMax2; 1 stands for None");
  op.choice("routing_method_type", fields.routing_method_type,
            {"Default", "Renormalize", "DeepSeekV3", "Llama4", "RenormalizeNaive", "TopK", "SigmoidRenorm", "MiniMax2", "Sigmoid",
             "TopKSigmoid"})
      .doc(
          "upstream's numbers 0 to 9: softmax, then the best; the best, then their softmax; sigmoid and bias, the best of the best groups "
          "over "
          "their sum; the best, then its sigmoid; as Renormalize; the best logits; sigmoid, the best over their sum; as DeepSeekV3 without "
          "groups; sigmoid, then the best; the best, then their sigmoids");
  op.attr("norm_topk_prob", fields.norm_topk_prob).doc("SigmoidRenorm divides by the sum of the chosen scores");
  op.attr("record_routing", fields.record_routing).doc("makes topk_ids and topk_weights");
}

/// Parameters of the activation, one for each expert that is here.
template <class Op>
void describe_trtllm_activation(auto& op, Op& fields) {
  const char* const each = expert_slots<Op>("local_num_experts", "local_num_experts+num_fused_shared_experts");
  op.in("gemm1_alpha", fields.gemm1_alpha, {f32}, each)
      .layout(Layout::contiguous)
      .on_request()
      .doc("of the sigmoid's argument; by default 1");
  op.in("gemm1_beta", fields.gemm1_beta, {f32}, each).layout(Layout::contiguous).on_request().doc("added to up; by default 0");
  op.in("gemm1_clamp_limit", fields.gemm1_clamp_limit, {f32}, each)
      .layout(Layout::contiguous)
      .role(Role::scale)
      .on_request()
      .doc("gate is at most this, up at most this in magnitude");
  if constexpr (requires { fields.activation; }) describe_moe_activation(op, fields);
}

/// Sizes and forms of the experts.
template <class Op>
void describe_trtllm_experts(auto& op, Op& fields) {
  op.attr("intermediate_size", fields.intermediate_size, between(1, 1 << 20)).required().doc("I, a multiple of 128");
  op.attr("local_expert_offset", fields.local_expert_offset, between(0, 511)).doc("the first expert that is here");
  op.attr("local_num_experts", fields.local_num_experts, between(1, 512))
      .required()
      .doc("experts that are here; slots of others add nothing");
  if constexpr (requires { fields.num_fused_shared_experts; })
    op.attr("num_fused_shared_experts", fields.num_fused_shared_experts, between(0, 8))
        .doc(
            "experts behind the routed ones in every tensor that each token visits with weight 1; of method 2 with groups, and all experts "
            "here");
  if constexpr (requires { fields.use_shuffled_weight; })
    op.attr("use_shuffled_weight", fields.use_shuffled_weight)
        .doc("rows of the weights are dealt out as trtllm-gen's shuffle_matrix_a does it");
  if constexpr (requires { fields.weight_layout; })
    op.attr("weight_layout", fields.weight_layout, between(0, 2))
        .doc("0 MajorK: rows without gaps; 2 BlockMajorK: [K / 128 bytes, rows, 128 bytes] in memory");
  op.choice("arithmetic", fields.arithmetic, {"kernel", "reference"})
      .doc(
          "kernel: as the kernels round; reference: what upstream's tests compare with, in full precision but for what the second product "
          "takes; it has weights and their scales in plain order, row by row");
}

/// Outputs, and what asks for them.
template <class Op>
void describe_trtllm_outputs(auto& op, Op& fields) {
  op.attr("do_finalize", fields.do_finalize).doc("adds the experts' results up; else they are given back themselves");
  op.attr("tile_tokens_dim", fields.tile_tokens_dim, between(1, 256))
      .doc("rows of gemm2_output in which each expert begins anew; upstream's tuner chooses it");
  op.out("output", fields.output, {bf16}, "T H")
      .layout(Layout::contiguous)
      .when("do_finalize")
      .doc("the sum over a token's experts that are here");
  op.out("gemm2_output", fields.gemm2_output, {bf16}, "P H")
      .layout(Layout::contiguous)
      .optional()
      .padded()
      .doc("without do_finalize: results of the experts in turn, unweighted; rows of nobody are unspecified");
  op.out("expert_weights", fields.expert_weights, {bf16}, expert_slots<Op>("T top_k", "T top_k+num_fused_shared_experts"))
      .layout(Layout::contiguous)
      .optional()
      .doc("without do_finalize: weights by slot");
  op.out("expanded_idx_to_permuted_idx", fields.expanded_idx_to_permuted_idx, {i32},
         expert_slots<Op>("T*top_k", "T*(top_k+num_fused_shared_experts)"))
      .layout(Layout::contiguous)
      .optional()
      .judged(Judge::exact)
      .doc("without do_finalize: the row of gemm2_output of each token and slot, -1 for experts elsewhere");
  op.out("topk_ids", fields.topk_ids, {i32}, "T top_k")
      .layout(Layout::contiguous)
      .role(Role::expert_ids)
      .judged(Judge::top_k)
      .optional()
      .doc("the chosen experts by falling key (upstream's routing_replay_out)");
  op.out("topk_weights", fields.topk_weights, {f32}, "T top_k").layout(Layout::contiguous).optional().doc("their weights");
  op.symbol("H", {.multiple_of = 128});
  op.symbol("intermediate_size", {.multiple_of = 128});
  op.symbol("num_experts", {.multiple_of = 4});
}

template <class Op>
std::int64_t shared_experts(const Op& op) {
  if constexpr (requires { op.num_fused_shared_experts; }) return op.num_fused_shared_experts;
  return 0;
}

template <class Op>
TrtllmRouter router_of(const Op& op) {
  return {
      op.routing_logits, op.routing_bias,    trtllm_method(op.routing_method_type),        op.top_k,          op.n_group,
      op.topk_group,     shared_experts(op), static_cast<float>(op.routed_scaling_factor), op.norm_topk_prob, op.arithmetic == "kernel"};
}

/// One token of a routing that is given.
template <class Op>
TokenExperts given_route(const Op& op, std::int64_t token) {
  TokenExperts route;
  for (std::int64_t i = token * op.top_k; i < (token + 1) * op.top_k; ++i) {
    route.experts.push_back(op.given_ids.template as<std::int32_t>()[i]);
    route.weights.push_back({quant::get(op.given_weights, i)});
  }
  return route;
}

/// Where the tokens go. `actual` may hold the ids that an output names: a choice that the keys allow is followed.
template <class Op>
std::vector<TokenExperts> routes_of(const Op& op, const Tensor& actual = {}) {
  std::vector<TokenExperts> routes;
  for (std::int64_t t = 0; op.given_ids.defined() && t < op.given_ids.size(0); ++t) routes.push_back(given_route(op, t));
  if (op.given_ids.defined()) return routes;
  const TrtllmRouter router = router_of(op);
  for (std::int64_t t = 0; t < router.tokens(); ++t) {
    const TrtllmRow row(router, t);
    std::vector<std::int64_t> chosen = row.choose();
    bool open = row.unspecified() || !row.certain(chosen);
    if (actual.defined() && !row.unspecified()) {
      std::vector<std::int64_t> named;
      for (std::int64_t k = 0; k < router.topk; ++k) named.push_back(static_cast<std::int64_t>(quant::get(actual, t * router.topk + k)));
      if (row.allows(named)) chosen = named, open = false;
    }
    RoutedRow routed = row.route(chosen);
    for (Bounded& weight : routed.weights) weight = trtllm_weight(router, weight);
    routes.push_back({std::move(routed.ids), std::move(routed.weights), open});
  }
  return routes;
}

/// Everything but the numbers, which the op adds.
template <class Op>
WholeMoe trtllm_moe(const Op& op, const MoeScheme& scheme, std::vector<TokenExperts> routes) {
  WholeMoe moe{.scheme = scheme};
  moe.x = op.hidden_states;
  // Sizes by the weights: they may be packed alone.
  const auto rows_of = [](const Tensor& weights) { return weights.size(weights.rank() == 3 ? 1 : 2); };
  const std::int64_t hidden = rows_of(op.gemm2_weights), sums = rows_of(op.gemm1_weights);
  if constexpr (requires { op.activation; }) moe.activation = moe_activation(op);
  const std::int64_t width = moe.activation.gated ? sums / 2 : sums;
  moe.first = {.codes = op.gemm1_weights, .n = sums, .k = hidden};
  moe.second = {.codes = op.gemm2_weights, .n = hidden, .k = width};
  moe.like_reference = op.arithmetic == "reference";
  if constexpr (requires { op.weight_layout; })
    moe.first.block_major = moe.second.block_major = op.weight_layout == 2 && !moe.like_reference;
  if (op.use_shuffled_weight && !moe.like_reference) {
    moe.first.shuffled = moe.second.shuffled = scheme.shuffled;
    moe.first.alternating = scheme.alternating && moe.activation.gated;
  }
  moe.alpha = op.gemm1_alpha;
  moe.beta = op.gemm1_beta;
  moe.limit = op.gemm1_clamp_limit;
  moe.routes = std::move(routes);
  moe.first_expert = op.local_expert_offset;
  moe.output = op.output;
  moe.results = op.gemm2_output;
  moe.result_weights = op.expert_weights;
  moe.result_of_pair = op.expanded_idx_to_permuted_idx;
  moe.tile = op.tile_tokens_dim;
  if (op.given_weights.defined() && op.given_weights.dtype() == f32) moe.scheme.weights_in_f32 = true;
  return moe;
}

/// Ids by falling key, and their weights.
template <class Op>
void put_routing(const Op& op, const std::vector<TokenExperts>& routes, Reference* reference) {
  if (!op.topk_ids.defined() && !op.topk_weights.defined()) return;
  const GoldenOutput ids(op.topk_ids, reference, "topk_ids"), weights(op.topk_weights, reference, "topk_weights");
  ids.make_open();
  weights.make_open();
  const TrtllmRouter router = router_of(op);
  for (std::int64_t t = 0; t < std::ssize(routes); ++t) {
    const TokenExperts& route = routes[static_cast<std::size_t>(t)];
    const bool unspecified = !op.given_ids.defined() && TrtllmRow(router, t).unspecified();
    for (std::int64_t k = 0; k < op.top_k; ++k) {
      const auto at = static_cast<std::size_t>(k);
      if (op.topk_ids.defined()) ids.put(t * op.top_k + k, {static_cast<double>(route.experts[at]), 0.0, unspecified});
      if (!op.topk_weights.defined()) continue;
      Bounded weight = route.weights[at].widened(flush_floor);
      weight.open = weight.open || unspecified;
      weights.put(t * op.top_k + k, weight);
    }
  }
}

/// Rows of gemm2_output: those of all pairs, and the padding of as many experts as they may visit.
template <class Op>
std::int64_t padded_results(const Op& op) {
  const std::int64_t pairs = op.hidden_states.size(0) * (op.top_k + shared_experts(op));
  return quant::align(pairs + std::min(pairs, op.local_num_experts + shared_experts(op)) * (op.tile_tokens_dim - 1), op.tile_tokens_dim);
}
/// Nothing is certain of the arguments.
template <class Op>
void make_trtllm_outputs(Op& op) {
  if (!op.hidden_states.defined() || op.hidden_states.rank() != 2 || op.tile_tokens_dim < 1 || op.top_k < 1) return;
  const std::int64_t tokens = op.hidden_states.size(0);
  if (op.record_routing) {
    if (!op.topk_ids.defined()) op.topk_ids = Tensor(i32, {tokens, op.top_k});
    if (!op.topk_weights.defined()) op.topk_weights = Tensor(f32, {tokens, op.top_k});
  }
  if (op.do_finalize) return;
  const std::int64_t slots = op.top_k + shared_experts(op);
  if (!op.gemm2_output.defined()) op.gemm2_output = Tensor(bf16, {padded_results(op), op.hidden()});
  if (!op.expert_weights.defined()) op.expert_weights = Tensor(bf16, {tokens, slots});
  if (!op.expanded_idx_to_permuted_idx.defined()) op.expanded_idx_to_permuted_idx = Tensor(i32, {tokens * slots});
}

/// Throws unless tokens are routed, or come routed, and not both.
template <class Op>
void check_trtllm_routes(const Op& op) {
  const bool given = op.given_ids.defined();
  if (given == op.routing_logits.defined())
    throw Error(ErrorCode::missing_argument, "", "routing_logits",
                given ? "is there beside given_ids, expected one of the two" : "is missing, and so is given_ids in its place");
  if (given != op.given_weights.defined())
    throw Error(ErrorCode::missing_argument, "", "given_weights",
                given ? "is missing, expected with given_ids" : "is there without given_ids");
  if (!given) return check_trtllm_router(router_of(op));
  if (shared_experts(op) > 0)
    throw Error(ErrorCode::bad_value, "", "num_fused_shared_experts",
                "is " + std::to_string(shared_experts(op)) + ", expected 0 with given_ids");
  for (std::int64_t i = 0; i < op.given_ids.elements(); ++i)
    if (const auto id = op.given_ids.template as<std::int32_t>()[i]; id < -1 || id >= op.num_experts)
      throw Error(
          ErrorCode::bad_value, "", "given_ids",
          "holds " + std::to_string(id) + " at element " + std::to_string(i) + ", expected -1 to " + std::to_string(op.num_experts - 1));
}

template <class Op>
void check_trtllm_moe(const Op& op) {
  check_trtllm_routes(op);
  if constexpr (requires { op.activation; }) {
    const MoeActivation activation = moe_activation(op);
    const bool curved = activation.curve == MoeCurve::silu || activation.curve == MoeCurve::gelu;
    const bool all = curved && activation.gated;
    check_moe_parameters(
        op,
        {{"gemm1_alpha", &op.gemm1_alpha, all}, {"gemm1_beta", &op.gemm1_beta, all}, {"gemm1_clamp_limit", &op.gemm1_clamp_limit, all}});
  }
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  if (op.local_expert_offset + op.local_num_experts > op.num_experts)
    throw Error(ErrorCode::bad_value, "", "local_expert_offset",
                "is " + number(op.local_expert_offset) + ", expected at most " + number(op.num_experts - op.local_num_experts) + ": " +
                    number(op.local_num_experts) + " of " + number(op.num_experts) + " experts are here");
  if (shared_experts(op) > 0 && op.local_num_experts != op.num_experts)
    throw Error(ErrorCode::bad_value, "", "num_fused_shared_experts",
                "is " + number(shared_experts(op)) + ", expected 0 where experts are elsewhere");
  if constexpr (requires { op.weight_layout; })
    if (op.weight_layout == 1) throw Error(ErrorCode::bad_value, "", "weight_layout", "is 1 (MajorMn), expected 0 or 2");
  if (op.gemm2_output.defined() && op.gemm2_output.size(0) < padded_results(op))
    throw Error(
        ErrorCode::bad_shape, "", "gemm2_output",
        "has " + number(op.gemm2_output.size(0)) + " rows, expected " + number(padded_results(op)) + " for the padding of each expert");
}

/// The contract's words on what all of them do besides.
inline const std::string trtllm_moe_contract = R"(
 arithmetic=reference is what upstream's tests compare with: weights of experts, sums and results are not rounded, and nothing is quantized
but what the second product takes: in fp8 not even that, in NVFP4 bf16(h). Blackwell mode: products in the steps of a B200's unit, K in
one ascending chain; the order of K, silu's functions and the quantization of closed code are unknown: it is a model.)";

/// Case lines: grouped as DeepSeek-V3 with experts elsewhere; other methods; parameters of the activation; without the sum over slots.
inline const std::string trtllm_grouped_case =
    "T=5 H=128 --attr num_experts=8 --attr top_k=3 --attr n_group=4 --attr topk_group=2 --attr intermediate_size=128 "
    "--attr local_num_experts=8 --attr routing_method_type=DeepSeekV3 --attr routed_scaling_factor=2.5";
inline std::vector<std::string> trtllm_cases(const std::string& more) {
  const std::string sizes = " --attr num_experts=4 --attr intermediate_size=128 --attr local_num_experts=4";
  return {
      trtllm_grouped_case + " --attr record_routing=true" + more,
      // NOLINTNEXTLINE(bugprone-suspicious-missing-comma)
      "T=7 H=256 --attr num_experts=16 --attr top_k=6 --attr n_group=4 --attr topk_group=2 --attr intermediate_size=128 "
      "--attr local_num_experts=2 --attr local_expert_offset=5 --attr routing_method_type=DeepSeekV3 --attr routed_scaling_factor=1.5 "
      "--dtype routing_bias=f32",
      "T=4 H=128 --attr top_k=2 --attr routing_method_type=Default --without routing_bias --dtype routing_logits=bf16" + sizes + more,
      "T=6 H=128 --attr top_k=3 --attr routing_method_type=Renormalize --attr do_finalize=false" + sizes,
      "T=4 H=128 --attr top_k=2 --attr record_routing=true --without routing_logits --without routing_bias --with given_ids "
      "--with given_weights --dtype given_weights=f32" +
          sizes,
      "T=3 H=128 --attr top_k=1 --attr routing_method_type=Llama4 --with gemm1_alpha --with gemm1_beta --with gemm1_clamp_limit" + sizes,
      "T=3 H=128 --attr top_k=2 --attr routing_method_type=SigmoidRenorm --attr arithmetic=reference" + sizes};
}
/// Activations but SwiGLU, of the kernels that have them.
inline std::vector<std::string> trtllm_activation_cases() {
  const std::string sizes =
      "T=4 H=128 --attr top_k=2 --attr routing_method_type=Renormalize --attr num_experts=4 --attr intermediate_size=128 "
      "--attr local_num_experts=4";
  return {sizes + " --attr gate_activation=gelu --with gemm1_alpha --with gemm1_beta --with gemm1_clamp_limit",
          sizes + " --attr gate_activation=relu2 --attr gated=false",
          sizes + " --attr gate_activation=identity --attr gated=false --attr arithmetic=reference"};
}
/// A layer of DeepSeek-R1 of which the visited experts are here.
inline std::vector<std::string> trtllm_bench_cases(const std::string& more) {
  const std::string sizes =
      " H=7168 --attr num_experts=8 --attr intermediate_size=2048 --attr local_num_experts=8 --attr routing_method_type=Renormalize";
  return {"T=1 --attr top_k=8" + sizes + more, "T=16 --attr top_k=4" + sizes + more};
}
/// The same layer with the activations of other models, with up and without.
inline std::vector<std::string> trtllm_activation_bench_cases() {
  const std::vector<std::string> layer = trtllm_bench_cases("");
  return {layer[1] + " --attr gate_activation=gelu", layer[1] + " --attr gate_activation=relu2 --attr gated=false"};
}

/// The functions of an op of which `whole` makes a composition.
template <class Op, WholeMoe (*whole)(const Op&, std::vector<TokenExperts>)>
struct TrtllmFunctions {
  template <MoeMistake mistake>
  static void golden(const Op& op, const Exec& exec, Reference* reference) {
    const std::vector<TokenExperts> routes = routes_of(op);
    golden_whole_moe(whole(op, routes), exec, reference, mistake);
    put_routing(op, routes, reference);
  }
  /// The scaling of the weights is forgotten.
  static void golden_unscaled(const Op& op, const Exec& exec, Reference* reference) {
    Op other = op;
    other.routed_scaling_factor = 1.0;
    golden<MoeMistake::none>(other, exec, reference);
  }
  /// Experts are taken for those of the first device.
  static void golden_without_offset(const Op& op, const Exec& exec, Reference* reference) {
    Op other = op;
    other.local_expert_offset = 0;
    golden<MoeMistake::none>(other, exec, reference);
  }
  static void run(const Op& op, const Exec& exec) {
    const std::vector<TokenExperts> routes = routes_of(op);
    run_whole_moe(whole(op, routes), exec);
    put_routing(op, routes, nullptr);
  }
  static void run_prepared(const Op& op, const Prepared& prepared, const Exec& exec) {
    const std::vector<TokenExperts> routes = routes_of(op);
    WholeMoe moe = whole(op, routes);
    take_packed(moe, prepared);
    run_whole_moe(moe, exec);
    put_routing(op, routes, nullptr);
  }
  /// Fast mode over packed weights, which these arguments are.
  static PreparedForm<Op> prepared(const std::array<std::string_view, 4>& arguments) {
    return {.arguments = arguments,
            .by_part = true,
            .bytes = [](const Op& op) { return whole_moe_packed_bytes(whole(op, {})); },
            .pack = [](const Op& op, std::byte* part, const Exec& exec) { pack_whole_moe(whole(op, {}), part, exec); },
            .fast = run_prepared};
  }
  /// Where the ids that an output names are another choice that the keys allow, everything follows it.
  static void condition(const Op& actual, const Exec& exec, Reference& reference) {
    if (!actual.topk_ids.defined()) return;
    Op op = actual;
    for (Tensor* output :
         {&op.output, &op.gemm2_output, &op.expert_weights, &op.expanded_idx_to_permuted_idx, &op.topk_ids, &op.topk_weights})
      if (output->defined()) *output = output->clone();
    const std::vector<TokenExperts> routes = routes_of(op, actual.topk_ids);
    const auto same = [](const TokenExperts& a, const TokenExperts& b) { return a.experts == b.experts && a.open == b.open; };
    const std::vector<TokenExperts> golden_routes = routes_of(op);
    if (std::equal(routes.begin(), routes.end(), golden_routes.begin(), same)) return;
    for (const char* name : {"output", "gemm2_output", "expert_weights", "topk_ids", "topk_weights"})
      if (reference.find(name) != nullptr) {
        ReferenceOutput& record = reference.output(name, static_cast<std::int64_t>(reference.find(name)->exact.size()));
        std::fill(record.unspecified.begin(), record.unspecified.end(), std::uint8_t{0});
      }
    golden_whole_moe(whole(op, routes), exec, &reference);
    put_routing(op, routes, &reference);
  }
  static std::optional<Refusal> unsupported(const Op& op, Mode mode) {
    if (of_a_gpu(mode) && op.arithmetic == "reference") return Refusal{"arithmetic", "is reference, but no kernel computes so"};
    return {};
  }
  static double flops(const Op& op) { return whole_moe_flops(whole(op, routes_of(op))); }
  static double bytes_read(const Op& op) { return whole_moe_bytes(whole(op, routes_of(op))); }

  static Implementation<Op> all() {
    Implementation<Op> functions;
    functions.golden = golden<MoeMistake::none>;
    functions.fast = run;
    functions.blackwell = run;
    functions.unsupported = unsupported;
    functions.make_outputs = make_trtllm_outputs<Op>;
    functions.check = check_trtllm_moe<Op>;
    functions.condition = condition;
    functions.flops = flops;
    functions.bytes_read = bytes_read;
    functions.mistakes = {
        {"gate-and-up-swapped", "the rows of gate are taken for those of up", golden<MoeMistake::gate_and_up_swapped>},
        {"weighted-twice", "the routing weights multiply the results twice", golden<MoeMistake::weighted_twice>},
        {"weighted-before-rounding", "results are multiplied by their weights before they are rounded to bf16",
         golden<MoeMistake::weighted_before_rounding>, true},
        {"routed-scaling-left-out", "the weights are not multiplied by routed_scaling_factor", golden_unscaled},
        {"local-offset-left-out", "the experts that are here are taken for the first ones", golden_without_offset},
        {"limit-behind-silu", "the limit is applied to the activated gate, not to the gate itself", golden<MoeMistake::limit_misplaced>,
         true},
        {"activated-in-full-precision", "nothing is rounded between the two products", golden<MoeMistake::activated_in_fp32>, true}};
    return functions;
  }
};

}  // namespace dodona::ops
