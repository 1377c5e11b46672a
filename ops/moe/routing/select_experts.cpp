#include "ops/moe/routing/select_experts.h"

#include <algorithm>
#include <bit>
#include <string>
#include <unordered_map>

#include "ops/base/golden_output.h"

namespace dodona::ops {
namespace {

constexpr std::int64_t kimi_experts = 384, most_experts_of_a_group = 32;

bool fused(std::string_view router) {
  return router == "moe_fused_gate" || router == "kimi_k2_moe_fused_gate";
}

/// Upstream returns what Kimi K2's kernel gives as it is.
bool finishes(const SelectExperts& op) {
  return router_of(op) != "kimi_k2_moe_fused_gate";
}

/// The fused gates take fp32 alone.
Tensor widened(const Tensor& x) {
  if (x.dtype() == f32) return x;
  Tensor wide(f32, x.shape());
  quant::to_f32(x.dtype(), x.as<const std::byte>(), wide.as<float>(), x.elements());
  return wide;
}

/// What the router is given; its outputs are ours.
Arguments arguments_of(const SelectExperts& op) {
  const std::string_view router = router_of(op);
  Arguments call;
  const bool gate = fused(router);
  call.set(gate ? "input_tensor" : "gating_output", gate ? widened(op.router_logits) : op.router_logits);
  if (op.correction_bias.defined() && router != "topk_softmax" && router != "grouped_topk")
    call.set(gate ? "bias" : "correction_bias", op.correction_bias);
  const bool by_columns = router == "topk_softmax" || router == "topk_sigmoid";
  if (!by_columns) call.set_attr("topk", op.top_k);
  if (router != "moe_fused_gate") call.set_attr("renormalize", op.renormalize);
  if (router == "fused_topk_torch_native") call.set_attr("scoring_func", op.scoring_func);
  if (op.use_grouped_topk) {
    // The fused gate is given 1 for None.
    const bool none = op.routed_scaling_factor == 0 && gate;
    call.set_attr("routed_scaling_factor", none ? 1.0 : op.routed_scaling_factor);
    call.set_attr("apply_routed_scaling_factor_on_output", op.apply_routed_scaling_factor_on_output);
  }
  if (op.use_grouped_topk && router != "kimi_k2_moe_fused_gate") {
    call.set_attr("num_expert_group", op.num_expert_group);
    call.set_attr("topk_group", op.topk_group);
    call.set_attr("num_fused_shared_experts", op.num_fused_shared_experts);
  }
  if (router == "grouped_topk" || router == "biased_grouped_topk") call.set_attr("rounding", op.rounding);
  call.set("topk_weights", op.topk_weights);
  call.set("topk_ids", op.topk_ids);
  return call;
}

/// The front end is the call that is watched.
Exec unwatched(const Exec& exec) {
  Exec inner = exec;
  inner.witness = nullptr;
  inner.tracer = {};
  return inner;
}

std::int64_t first_padded(const SelectExperts& op) {
  const std::int64_t tokens = op.router_logits.size(0);
  return op.num_token_non_padded.defined() ? std::min(static_cast<std::int64_t>(quant::get(op.num_token_non_padded, 0)), tokens) : tokens;
}

/// The rule itself, and mistakes of front ends.
enum class Rule { right, not_mapped, not_masked };

/// A logical expert's id as it is given out.
std::int64_t physical(const SelectExperts& op, std::int64_t id) {
  const Tensor& map = op.logical_to_physical_map;
  if (!map.defined() || id < 0 || id >= map.elements()) return id;
  return static_cast<std::int64_t>(quant::get(map, id));
}

/// Maps ids and masks rows, in place; calls changed(element) for every element of rows that are masked.
template <class Masked>
void finish(const SelectExperts& op, Rule rule, const Masked& masked) {
  if (!finishes(op)) return;
  const std::int64_t columns = op.topk_ids.size(1), end = rule == Rule::not_masked ? op.topk_ids.size(0) : first_padded(op);
  auto* const ids = op.topk_ids.as<std::int32_t>();
  for (std::int64_t i = 0; i < op.topk_ids.elements(); ++i) {
    if (rule != Rule::not_mapped) ids[i] = static_cast<std::int32_t>(physical(op, ids[i]));
    if (i / columns < end) continue;
    ids[i] = -1;
    masked(i);
  }
}

/// The router's reference becomes ours.
void finish_reference(const SelectExperts& op, Rule rule, const Reference& routed, Reference& reference) {
  const std::int64_t count = op.topk_ids.elements();
  ReferenceOutput &weights = reference.output("topk_weights", count), &ids = reference.output("topk_ids", count);
  weights = *routed.find("topk_weights");
  ids = *routed.find("topk_ids");
  for (ReferenceOutput* record : {&weights, &ids})
    if (record->unspecified.empty()) record->unspecified.assign(static_cast<std::size_t>(count), 0);
  finish(op, rule, [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    weights.unspecified[at] = 1;
    ids.unspecified[at] = 0;
  });
  for (std::size_t i = 0; i < ids.exact.size(); ++i)
    ids.exact[i] = ids.unspecified[i] != 0 ? 0.0 : static_cast<double>(op.topk_ids.as<const std::int32_t>()[i]);
}

template <Rule rule>
void golden(const SelectExperts& op, const Exec& exec, Reference* reference) {
  const Op& router = registry().at(router_of(op));
  Arguments call = arguments_of(op);
  if (reference == nullptr) {
    router.run(call, unwatched(exec));
    return finish(op, rule, [](std::int64_t) {});
  }
  Reference routed;
  router.reference(call, unwatched(exec), routed);
  finish_reference(op, rule, routed, *reference);
}

/// Who is behind the ids that were given out.
std::unordered_map<std::int64_t, std::int64_t> logical_ids(const SelectExperts& op) {
  std::unordered_map<std::int64_t, std::int64_t> logical;
  if (finishes(op))
    for (std::int64_t id = 0; op.logical_to_physical_map.defined() && id < op.logical_to_physical_map.elements(); ++id)
      logical.emplace(physical(op, id), id);
  return logical;
}

/// Another choice of the router is one that its own contract allows. Rows of padding hold none.
void condition(const SelectExperts& actual, const Exec& exec, Reference& reference) {
  const Op& router = registry().at(router_of(actual));
  SelectExperts right = actual, chosen = actual;
  for (SelectExperts* op : {&right, &chosen}) {
    op->topk_weights = actual.topk_weights.clone();
    op->topk_ids = actual.topk_ids.clone();
  }
  Reference routed;
  Arguments call = arguments_of(right);
  router.reference(call, unwatched(exec), routed);
  const auto logical = logical_ids(actual);
  const std::int64_t columns = actual.topk_ids.size(1), end = finishes(actual) ? first_padded(actual) : actual.topk_ids.size(0);
  for (std::int64_t i = 0; i < actual.topk_ids.elements(); ++i) {
    std::int32_t& id = chosen.topk_ids.as<std::int32_t>()[i];
    if (i / columns >= end) {
      id = right.topk_ids.as<const std::int32_t>()[i];
    } else if (!logical.empty()) {
      const auto found = logical.find(id);
      id = found != logical.end() ? static_cast<std::int32_t>(found->second) : -1;
    }
  }
  Arguments as_chosen = arguments_of(chosen);
  router.condition(as_chosen, unwatched(exec), routed);
  // The ids that the reference has now, for finish_reference to map.
  const ReferenceOutput& ids = *routed.find("topk_ids");
  for (std::size_t i = 0; i < ids.exact.size(); ++i) right.topk_ids.as<std::int32_t>()[i] = static_cast<std::int32_t>(ids.exact[i]);
  finish_reference(right, Rule::right, routed, reference);
}

void route(const SelectExperts& op, const Exec& exec) {
  Arguments call = arguments_of(op);
  registry().at(router_of(op)).run(call, exec);
  finish(op, Rule::right, [](std::int64_t) {});
}

void fast(const SelectExperts& op, const Exec& exec) {
  route(op, unwatched(exec));
}

std::optional<Refusal> unsupported(const SelectExperts& op, Mode mode) {
  const auto refused = registry().at(router_of(op)).refusal(arguments_of(op), mode);
  if (!refused) return {};
  const std::string of = refused->argument.empty() ? "" : refused->argument + " ";
  return Refusal{"router_logits",
                 "comes to " + std::string(router_of(op)) + "; " + (of.empty() ? "that " : "there " + of) + refused->reason};
}

void check_options(const SelectExperts& op) {
  const auto bad = [](const char* argument, const std::string& text) { throw Error(ErrorCode::bad_value, "", argument, text); };
  if (op.use_grouped_topk) {
    if (op.num_expert_group < 1) bad("num_expert_group", "is 0, expected the number of groups with use_grouped_topk");
    if (op.topk_group < 1) bad("topk_group", "is 0, expected the number of groups that are kept with use_grouped_topk");
    return;
  }
  if (op.apply_routed_scaling_factor_on_output)
    bad("apply_routed_scaling_factor_on_output", "is true, expected use_grouped_topk with it: upstream's other routers have no factor");
  if (!op.torch_native) return;
  if (op.num_token_non_padded.defined()) bad("num_token_non_padded", "is given, expected none with torch_native");
  if (op.logical_to_physical_map.defined()) bad("logical_to_physical_map", "is given, expected none with torch_native");
}

void check_map(const SelectExperts& op) {
  if (!op.logical_to_physical_map.defined()) return;
  const Tensor& map = op.logical_to_physical_map;
  std::unordered_map<std::int64_t, std::int64_t> taken;
  for (std::int64_t i = 0; i < map.elements(); ++i) {
    const auto id = static_cast<std::int64_t>(quant::get(map, i));
    if (id < 0 || id > std::numeric_limits<std::int32_t>::max() || !taken.emplace(id, i).second)
      throw Error(ErrorCode::bad_value, "", "logical_to_physical_map",
                  "holds " + std::to_string(id) + " at element " + std::to_string(i) + ", expected a physical expert that no other has");
  }
}

void check(const SelectExperts& op) {
  check_options(op);
  check_map(op);
  if (op.num_token_non_padded.defined() && quant::get(op.num_token_non_padded, 0) < 0)
    throw Error(ErrorCode::bad_value, "", "num_token_non_padded", "is negative, expected a number of tokens");
  try {
    Arguments call = arguments_of(op);
    registry().at(router_of(op)).prepare(call);
  } catch (const Error& error) {
    throw Error(error.code(), "", "router_logits", "come to " + std::string(router_of(op)) + ", which refuses them: " + error.what());
  }
}

}  // namespace

std::string_view router_of(const SelectExperts& op) {
  const std::int64_t experts = op.router_logits.size(1);
  if (!op.use_grouped_topk)
    return op.torch_native ? "fused_topk_torch_native" : op.scoring_func == "softmax" ? "topk_softmax" : "topk_sigmoid";
  if (!op.correction_bias.defined()) return "grouped_topk";
  if (experts / op.num_expert_group <= most_experts_of_a_group && std::has_single_bit(static_cast<std::uint64_t>(experts)))
    return "moe_fused_gate";
  return experts == kimi_experts && op.num_expert_group == 1 ? "kimi_k2_moe_fused_gate" : "biased_grouped_topk";
}

void select_by_router(SelectExperts& op, const Exec& exec) {
  const Dims shape{op.router_logits.size(0), op.top_k};
  if (!op.topk_weights.defined()) op.topk_weights = Tensor(f32, shape);
  if (!op.topk_ids.defined()) op.topk_ids = Tensor(i32, shape);
  check_options(op);
  check_map(op);
  route(op, exec);
}

}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_select_experts() {
  return define<ops::SelectExperts>({
      .contract = R"(
The router is grouped_topk for grouped choices without a bias; with one moe_fused_gate where E/G is at most 32 and E a power of two,
kimi_k2_moe_fused_gate where E is 384 and G is 1, else biased_grouped_topk; without groups fused_topk_torch_native where torch_native asks
for it, else topk_softmax or topk_sigmoid by scoring_func. Logits are widened to fp32 for the fused gates. Its contract and its budgets
are ours, with its roundings of 16-bit logits in grouped_topk and biased_grouped_topk as rounding says; weights are left as it gives them. Then every id e becomes logical_to_physical_map[e], and ids of rows from num_token_non_padded
on -1, with weights that are unspecified; not so behind kimi_k2_moe_fused_gate.)",
      .contract_version = 2,
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::fast,
      .unsupported = ops::unsupported,
      .check = ops::check,
      .condition = ops::condition,
      .mistakes = {{"not-mapped", "ids stay those of logical experts", ops::golden<ops::Rule::not_mapped>},
                   {"not-masked", "rows of padding keep their experts", ops::golden<ops::Rule::not_masked>}},
      .cases =
          // NOLINTNEXTLINE(bugprone-suspicious-missing-comma)
      {"T=5 E=256 --with correction_bias --with logical_to_physical_map --with num_token_non_padded --attr top_k=9 --attr "
       "use_grouped_topk=true --attr num_expert_group=8 --attr topk_group=4 --attr num_fused_shared_experts=1 --attr "
       "routed_scaling_factor=2.5 --attr apply_routed_scaling_factor_on_output=true",
       "T=4 E=160 --attr top_k=6 --attr use_grouped_topk=true --attr num_expert_group=8 --attr topk_group=3",
       "T=3 E=384 --with correction_bias --attr top_k=8 --attr use_grouped_topk=true --attr num_expert_group=1 --attr topk_group=1 "
       "--attr routed_scaling_factor=2.872 --attr apply_routed_scaling_factor_on_output=true",
       "T=4 E=96 --with correction_bias --with num_token_non_padded --dtype router_logits=bf16 --dist ties --attr top_k=4 --attr "
       "use_grouped_topk=true --attr num_expert_group=4 --attr topk_group=2",
       "T=5 E=64 --with logical_to_physical_map --with num_token_non_padded --attr top_k=6",
       "T=4 E=48 --with correction_bias --attr top_k=4 --attr scoring_func=sigmoid --dtype router_logits=f16",
       "T=3 E=48 --with correction_bias --attr top_k=4 --attr torch_native=true"},
      .bench_cases = {"T=64 E=256 --with correction_bias --attr top_k=8 --attr use_grouped_topk=true --attr num_expert_group=8 --attr "
                      "topk_group=4"},
  });
}
}  // namespace dodona
