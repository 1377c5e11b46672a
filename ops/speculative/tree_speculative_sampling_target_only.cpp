#include "ops/speculative/tree_speculative_sampling_target_only.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/random.h"
#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/draws/blocked_row.h"
#include "ops/draws/draw_odds.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

using Sampling = TreeSpeculativeSamplingTargetOnly;
namespace hw = quant::hopper;

/// The rule itself, and mistakes of such kernels.
enum class Rule {
  right,
  siblings_do_not_add_up,
  rejected_stay,
  coin_of_the_child,
  all_accepted,
  likeliest_accepted,
  coin_of_the_path,
  probs_of_the_root
};

void make_inputs(Sampling& op, std::uint64_t seed) {
  make_links(op.retrive_index, op.retrive_next_token, op.retrive_next_sibling, seed);
  const InputDraw tokens(seed, "candidates");
  for (std::int64_t i = 0; i < op.candidates.elements(); ++i)
    op.candidates.as<std::int64_t>()[i] = static_cast<std::int64_t>(tokens.below(i, static_cast<std::uint64_t>(op.vocabulary())));
}

void check(const Sampling& op) {
  check_links(op.links(), op.predicts.elements());
  const std::vector<std::uint8_t> linked = linked_nodes(op.links());
  const auto* const tokens = op.candidates.as<const std::int64_t>();
  for (std::int64_t i = 0; i < op.candidates.elements(); ++i)
    if (linked[static_cast<std::size_t>(i)] != 0 && (tokens[i] < 0 || tokens[i] >= op.vocabulary()))
      throw Error(ErrorCode::bad_value, "", "candidates",
                  "holds " + std::to_string(tokens[i]) + " at element " + std::to_string(i) + ", expected 0 to " +
                      std::to_string(op.vocabulary() - 1));
}

/// The thresholds as the kernel has them.
struct Thresholds {
  float single, acc;
  explicit Thresholds(const Sampling& op)
      : single(static_cast<float>(op.threshold_single)), acc(std::fmax(static_cast<float>(op.threshold_acc), 1e-9f)) {}
};

/// What is decided about a child: its node's coin, the mass of the siblings up to it, its own, and (for a mistake) the likeliest token's.
struct Offer {
  float coin, mass, own, most = 0;
};

/// One request's walk down the tree.
struct Path {
  std::vector<std::int64_t> accepted;                           ///< nodes, the root first
  std::vector<std::pair<std::int64_t, std::int64_t>> rejected;  ///< (node, token): not to be drawn behind the node

  std::int64_t last() const { return accepted.back(); }
  std::int64_t count() const { return static_cast<std::int64_t>(accepted.size()) - 1; }
};

/// accepts(offer, child) decides; `add` is the arithmetic of the mass.
template <Rule rule = Rule::right, class Accepts, class Add>
Path walk(const Sampling& op, std::int64_t b, const Add& add, const Accepts& accepts) {
  const std::int64_t nodes = op.nodes();
  const float* const coins = op.uniform_samples.as<const float>() + b * nodes;
  Path path{{0}, {}};
  float mass = 0;
  TreeRow(op.links(), b).walk(op.accept_index.size(1) - 1, [&](std::int64_t child) {
    const std::int64_t node = path.last(), token = op.candidates.as<const std::int64_t>()[b * nodes + child];
    const float own = op.target_probs.as<const float>()[(b * nodes + node) * op.vocabulary() + token];
    mass = rule == Rule::siblings_do_not_add_up ? own : add(mass, own);
    const float* const row = op.target_probs.as<const float>() + (b * nodes + node) * op.vocabulary();
    const float most = rule == Rule::likeliest_accepted ? *std::max_element(row, row + op.vocabulary()) : 0.0F;
    if (!accepts(Offer{coins[rule == Rule::coin_of_the_child ? child : node], mass, own, most}, child)) {
      path.rejected.emplace_back(node, token);
      return false;
    }
    mass = 0;
    path.accepted.push_back(child);
    return true;
  });
  return path;
}

float plain_sum(float a, float b) {
  return a + b;
}

bool accepts_exactly(const Thresholds& thresholds, const Offer& offer) {
  return offer.coin <= offer.mass / thresholds.acc || offer.own >= thresholds.single;
}

/// Whether an approximate division, or a flushed denormal, may decide otherwise.
bool may_decide_otherwise(const Thresholds& thresholds, const Offer& offer) {
  const auto tiny = [](float x) { return x != 0 && std::fabs(x) < std::numeric_limits<float>::min(); };
  if (tiny(offer.coin) || tiny(offer.mass) || tiny(offer.own) || tiny(thresholds.single)) return true;
  if (thresholds.acc == 1 || offer.own >= thresholds.single) return false;
  const double quotient = static_cast<double>(offer.mass) / static_cast<double>(thresholds.acc);
  return std::fabs(static_cast<double>(offer.coin) - quotient) <= 4 * f32_eps * std::fabs(quotient);
}

/// What the last token is drawn from: not a number counts as nothing, as the larger of it and 0 is 0.
template <class Subtract>
std::vector<float> weights_of(const Sampling& op, std::int64_t b, const Path& path, Rule rule, const Subtract& subtract) {
  const std::int64_t row = b * op.nodes() + path.last(), width = op.vocabulary();
  const float* const q = op.target_probs.as<const float>() + (rule == Rule::probs_of_the_root ? b * op.nodes() : row) * width;
  std::vector<float> weights(q, q + width);
  if (path.count() < op.accept_index.size(1) - 1) {
    const float* const drafts = op.draft_probs.as<const float>() + row * width;
    std::vector<float> left_out(drafts, drafts + width);
    for (const auto& [node, token] : path.rejected)
      if (node == path.last() && rule != Rule::rejected_stay)
        left_out[static_cast<std::size_t>(token)] = op.target_probs.as<const float>()[row * width + token];
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = subtract(weights[i], left_out[i]);
  }
  for (float& weight : weights) weight = weight > 0 ? weight : 0.0f;
  return weights;
}

float plain_difference(float a, float b) {
  return a - b;
}

double final_coin(const Sampling& op, std::int64_t b) {
  return static_cast<double>(op.uniform_samples_for_final_sampling.as<const float>()[b]);
}

struct Outcome {
  Path path;
  std::int64_t token = 0;
};

std::int64_t place(const Sampling& op, std::int64_t b, std::int64_t node) {
  return op.retrive_index.as<const std::int64_t>()[b * op.nodes() + node];
}

std::int64_t token_after(const Sampling& op, std::int64_t b, const Outcome& outcome, std::size_t step) {
  if (step + 1 == outcome.path.accepted.size()) return outcome.token;
  return op.candidates.as<const std::int64_t>()[b * op.nodes() + outcome.path.accepted[step + 1]];
}

/// All requests at once: what one of them reads of draft_probs no other writes, and places are written in order.
void write(const Sampling& op, std::span<const Outcome> outcomes) {
  auto *predicts = op.predicts.as<std::int32_t>(), *accept_index = op.accept_index.as<std::int32_t>();
  std::fill_n(predicts, op.predicts.elements(), -1);
  std::fill_n(accept_index, op.accept_index.elements(), -1);
  for (std::int64_t b = 0; b < op.requests(); ++b) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(b)];
    for (std::size_t step = 0; step < outcome.path.accepted.size(); ++step) {
      const std::int64_t at = place(op, b, outcome.path.accepted[step]);
      accept_index[b * op.accept_index.size(1) + static_cast<std::int64_t>(step)] = static_cast<std::int32_t>(at);
      predicts[at] = static_cast<std::int32_t>(token_after(op, b, outcome, step));
    }
    op.accept_token_num.as<std::int32_t>()[b] = static_cast<std::int32_t>(outcome.path.count());
    for (const auto& [node, token] : outcome.path.rejected) {
      const std::int64_t at = (b * op.nodes() + node) * op.vocabulary() + token;
      op.draft_probs.as<float>()[at] = op.target_probs.as<const float>()[at];
    }
  }
}

template <class Decide>
void each_request(const Sampling& op, const Exec& exec, const Decide& decide) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(op.requests()));
  parallel_for(exec.threads, op.requests(), 4.0 * static_cast<double>(op.vocabulary()),
               [&](std::int64_t b) { outcomes[static_cast<std::size_t>(b)] = decide(b); });
  write(op, outcomes);
}

template <Rule rule>
Outcome exact_outcome(const Sampling& op, std::int64_t b) {
  const Thresholds thresholds(op);
  Outcome outcome{walk<rule>(op, b, plain_sum, [&](const Offer& offer, std::int64_t) {
    return rule == Rule::all_accepted || (rule == Rule::likeliest_accepted && offer.own == offer.most) ||
           accepts_exactly(thresholds, offer);
  })};
  const std::vector<float> weights = weights_of(op, b, outcome.path, rule, plain_difference);
  const float of_the_path = op.uniform_samples.as<const float>()[b * op.nodes() + outcome.path.last()];
  const std::int64_t drawn = DrawOdds(weights).first_above(rule == Rule::coin_of_the_path ? of_the_path : final_coin(op, b));
  outcome.token = drawn < 0 ? op.vocabulary() - 1 : drawn;
  return outcome;
}

void fast(const Sampling& op, const Exec& exec) {
  each_request(op, exec, [&](std::int64_t b) { return exact_outcome<Rule::right>(op, b); });
}

void hopper(const Sampling& op, const Exec& exec) {
  const Thresholds thresholds(op);
  each_request(op, exec, [&](std::int64_t b) {
    Outcome outcome{walk(op, b, hw::add, [&](const Offer& offer, std::int64_t) {
      return hw::ftz(offer.coin) <= hw::div(offer.mass, thresholds.acc) || hw::ftz(offer.own) >= hw::ftz(thresholds.single);
    })};
    const std::vector<float> weights = weights_of(op, b, outcome.path, Rule::right, hw::sub);
    const BlockedRow row(weights);
    const float u = hw::mul(static_cast<float>(final_coin(op, b)), row.sum(Bar{0}));
    const std::int64_t drawn = row.first_above(Bar{0}, u, op.deterministic ? Scan::deterministic : Scan::warp_scans);
    outcome.token = drawn < 0 ? op.vocabulary() - 1 : drawn;
    return outcome;
  });
}

template <Rule rule>
void golden(const Sampling& op, const Exec& exec, Reference* reference) {
  each_request(op, exec, [&](std::int64_t b) { return exact_outcome<rule>(op, b); });
  record_exact(op.predicts, reference, "predicts");
  record_exact(op.accept_index, reference, "accept_index");
  record_exact(op.accept_token_num, reference, "accept_token_num");
  record_exact(op.draft_probs, reference, "draft_probs");
  if (reference == nullptr) return;
  auto& unspecified = reference->output("predicts", op.predicts.elements()).unspecified;
  unspecified.assign(static_cast<std::size_t>(op.predicts.elements()), 1);
  for (std::int64_t i = 0; i < op.accept_index.elements(); ++i)
    if (const std::int32_t at = op.accept_index.as<const std::int32_t>()[i]; at >= 0) unspecified[static_cast<std::size_t>(at)] = 0;
}

// ---- what the contract leaves open

/// The request's outcome that its actual outputs have, if an honest implementation may come to it.
std::optional<Outcome> actual_outcome(const Sampling& actual, std::int64_t b) {
  const Thresholds thresholds(actual);
  const std::int64_t width = actual.accept_index.size(1);
  const std::int32_t* const accepted = actual.accept_index.as<const std::int32_t>() + b * width;
  std::int64_t step = 1;
  Outcome outcome{walk(actual, b, plain_sum, [&](const Offer& offer, std::int64_t child) {
    const bool taken = accepted[step] == place(actual, b, child);
    const bool accepts = may_decide_otherwise(thresholds, offer) ? taken : accepts_exactly(thresholds, offer);
    step += accepts ? 1 : 0;
    return accepts;
  })};
  const std::int64_t at = place(actual, b, outcome.path.last());
  outcome.token = actual.predicts.as<const std::int32_t>()[at];
  const std::vector<float> weights = weights_of(actual, b, outcome.path, Rule::right, plain_difference);
  const DrawOdds odds(weights);
  const double coin = final_coin(actual, b);
  const bool last_resort = outcome.token == actual.vocabulary() - 1 && odds.may_find_none(coin);
  if (!last_resort && (outcome.token < 0 || !odds.may_find(coin, outcome.token))) return {};
  for (std::int64_t i = 0; i < width; ++i) {
    const auto j = static_cast<std::size_t>(i);
    if (accepted[i] != (j < outcome.path.accepted.size() ? place(actual, b, outcome.path.accepted[j]) : -1)) return {};
    if (j < outcome.path.accepted.size() && actual.predicts.as<const std::int32_t>()[accepted[i]] != token_after(actual, b, outcome, j))
      return {};
  }
  return outcome;
}

/// Numbers that other choices change are held to the last bit by the least slack there is: with none, golden mode's would pass as well.
constexpr double least_slack = std::numeric_limits<double>::denorm_min();

/// The reference of a request becomes its actual outcome.
void adopt(const Sampling& actual, std::int64_t b, const Outcome& usual, const Outcome& outcome, Reference& reference) {
  const std::int64_t width = actual.accept_index.size(1);
  ReferenceOutput& predicts = reference.output("predicts", actual.predicts.elements());
  for (const std::int64_t node : usual.path.accepted) predicts.unspecified[static_cast<std::size_t>(place(actual, b, node))] = 1;
  for (std::size_t j = 0; j < outcome.path.accepted.size(); ++j) {
    const auto at = static_cast<std::size_t>(place(actual, b, outcome.path.accepted[j]));
    predicts.unspecified[at] = 0;
    predicts.exact[at] = static_cast<double>(token_after(actual, b, outcome, j));
  }
  ReferenceOutput& accepted = reference.output("accept_index", actual.accept_index.elements());
  for (std::int64_t i = 0; i < width; ++i)
    accepted.exact[static_cast<std::size_t>(b * width + i)] = actual.accept_index.as<const std::int32_t>()[b * width + i];
  reference.output("accept_token_num", actual.requests()).exact[static_cast<std::size_t>(b)] = static_cast<double>(outcome.path.count());

  ReferenceOutput& drafts = reference.output("draft_probs", actual.draft_probs.elements());
  const auto put = [&](const Path& path, const Tensor& from) {
    for (const auto& [node, token] : path.rejected) {
      const std::int64_t at = (b * actual.nodes() + node) * actual.vocabulary() + token;
      drafts.exact[static_cast<std::size_t>(at)] = static_cast<double>(from.as<const float>()[at]);
      drafts.slack[static_cast<std::size_t>(at)] = least_slack;
    }
  };
  put(usual.path, actual.draft_probs);
  put(outcome.path, actual.target_probs);
}

void condition(const Sampling& actual, const Exec&, Reference& reference) {
  for (std::int64_t b = 0; b < actual.requests(); ++b) {
    const Outcome usual = exact_outcome<Rule::right>(actual, b);
    const auto outcome = actual_outcome(actual, b);
    if (!outcome || (outcome->token == usual.token && outcome->path.accepted == usual.path.accepted)) continue;
    adopt(actual, b, usual, *outcome, reference);
  }
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_tree_speculative_sampling_target_only() {
  return define<ops::TreeSpeculativeSamplingTargetOnly>({
      .contract = R"(
acc in fp32, in the order of the siblings; acc over the threshold is one fp32 division, which fast-math builds may have 4 units of 2^-24
off (not for a threshold of 1): a coin that close may go either way, and what follows from it must. Thresholds narrowed to fp32; r one fp32
subtraction. The last token: sums of r in fp32, of chunks of 1024 times gcd(4, V) elements, and the product with the coin; their chains
are at most 41 additions and one for each chunk, so that an index is right whose running sum may exceed the product, with both off by so
many units of 2^-24 of the sum of r, while the one before may not; V - 1 where no sum may, or where a chunk's may by its own order and none
inside it. Hopper mode has the kernel's sums and scans. Not a number has no weight. What lies off the path is left as it was by upstream:
predicts unspecified there (here -1), accept_index -1, as upstream's callers have it beforehand. Here errors, where upstream reads outside
or never ends: links to no node, siblings in a circle, places beyond predicts, tokens beyond the vocabulary.)",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .condition = ops::condition,
      .mistakes = {{"siblings-do-not-add-up", "each child is accepted by its own probability alone",
                    ops::golden<ops::Rule::siblings_do_not_add_up>},
                   {"rejected-stay", "what was rejected may be drawn as the last token", ops::golden<ops::Rule::rejected_stay>},
                   {"coin-of-the-child", "a child's own coin decides about it, not its parent's",
                    ops::golden<ops::Rule::coin_of_the_child>},
                   {"all-accepted", "every first child is accepted, whatever its coin says", ops::golden<ops::Rule::all_accepted>},
                   {"likeliest-accepted", "a draft that is the target's likeliest token is accepted whatever its coin says",
                    ops::golden<ops::Rule::likeliest_accepted>},
                   {"coin-of-the-path",
                    "the last token is drawn with the last accepted node's coin, not with uniform_samples_for_final_sampling",
                    ops::golden<ops::Rule::coin_of_the_path>},
                   {"probs-of-the-root", "the last token is drawn from the root's target_probs, whichever node was accepted last",
                    ops::golden<ops::Rule::probs_of_the_root>}},
      .customary = {{"draft_probs", CustomaryKind::unchecked, 0, 0, "sgl-kernel/tests/speculative/test_speculative_sampling.py"},
                    {"*", CustomaryKind::close, 0, 0, "sgl-kernel/tests/speculative/test_speculative_sampling.py"}},
      .cases = {"B=4 D=8 V=512 S=4 tot=32", "B=9 D=16 V=8 S=5 tot=150",
                "B=3 D=4 V=333 S=4 tot=12 --attr threshold_single=0.9 "
                "--attr threshold_acc=0.8",
                "B=16 D=12 V=13 S=4 tot=192 --attr threshold_acc=0.3 --attr deterministic=false",
                "B=2 D=5 V=5000 S=4 tot=10 --attr threshold_single=0 --attr threshold_acc=0", "B=8 D=8 V=4 S=3 tot=64 --dist outliers"},
      .bench_cases = {"B=64 D=4 V=1024 S=4 tot=256", "B=8 D=4 V=129280 S=4 tot=32"},
  });
}
}  // namespace dodona
