#include "ops/speculative/select_top_k_tokens.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "ops/base/golden_output.h"
#include "ops/schemes/largest.h"

namespace dodona::ops {
namespace {

using Select = SelectTopKTokens;

/// The rule itself, and mistakes of such code.
enum class Rule { right, states_in_place, parents_of_their_step };

bool is_matrix(const Tensor& t) {
  return t.defined() && t.rank() == 2;
}

void make_outputs(Select& op) {
  if (!is_matrix(op.topk_p) || !is_matrix(op.hidden_states) || op.topk < 1 || op.topk > 1 << 12 || op.i < 0) return;
  const std::int64_t k = op.topk, requests = op.requests(), middle = op.first() ? 1 : k;
  const auto make = [](Tensor& t, DType type, const Dims& shape) {
    if (!t.defined()) t = Tensor(type, shape);
  };
  make(op.input_ids, i64, {requests * k});
  make(op.out_hidden_states, op.hidden_states.dtype(), {op.hidden_states.size(0) == 0 ? 0 : requests * k, op.hidden_states.size(1)});
  make(op.out_scores, f32, {requests, k});
  make(op.tree_scores, f32, {requests, middle, k});
  make(op.tree_tokens, i64, {requests, middle * k});
  make(op.tree_parents, i64, {requests, op.first() ? k + 1 : k});
}

void check(const Select& op) {
  const std::int64_t rows = op.topk_p.size(0), k = op.topk;
  const auto fail = [](const char* argument, const Tensor& t, const std::string& expected) {
    throw Error(ErrorCode::bad_shape, "", argument, "has shape " + to_string(t.shape()) + ", expected " + expected);
  };
  if (!op.first() && rows % k != 0) fail("topk_p", op.topk_p, "rows in multiples of topk = " + std::to_string(k));
  if (const std::int64_t h = op.hidden_states.size(0); h != 0 && h != rows)
    fail("hidden_states", op.hidden_states, "no rows, or the " + std::to_string(rows) + " of topk_p");
  if (!op.first() && !op.scores.defined())
    throw Error(ErrorCode::missing_argument, "", "scores", "is missing, and steps from 1 on read it");
  const std::int64_t requests = op.requests(), middle = op.first() ? 1 : k;
  if (op.scores.defined() && op.scores.size(0) != requests)
    fail("scores", op.scores, std::to_string(requests) + " rows, as topk_p has requests");
  if (op.out_hidden_states.size(0) != (op.hidden_states.size(0) == 0 ? 0 : requests * k))
    fail("out_hidden_states", op.out_hidden_states, "a row for each beam as hidden_states has rows");
  if (op.out_scores.size(0) != requests) fail("out_scores", op.out_scores, std::to_string(requests) + " rows, as topk_p has requests");
  if (op.tree_scores.size(1) != middle) fail("tree_scores", op.tree_scores, std::to_string(middle) + " beams of topk_p");
  if (op.tree_parents.size(1) != (op.first() ? k + 1 : k))
    fail("tree_parents", op.tree_parents, std::to_string(op.first() ? k + 1 : k) + " columns for step i of topk_p");
}

/// Where a later step's candidates begin among all.
std::int64_t first_number(const Select& op) {
  return op.topk + op.topk * op.topk * (op.i - 1);
}

std::vector<double> candidates_of(const Select& op, std::int64_t b) {
  const std::int64_t count = op.topk * op.topk;
  const auto* const e = op.tree_scores.as<const float>() + b * count;
  return {e, e + count};
}

void copy_state(const Select& op, std::int64_t to, std::int64_t from) {
  if (op.hidden_states.size(0) == 0) return;
  const auto bytes = static_cast<std::size_t>(op.hidden_states.size(1) * bits(op.hidden_states.dtype()) / 8);
  std::memcpy(op.out_hidden_states.as<std::byte>() + static_cast<std::size_t>(to) * bytes,
              op.hidden_states.as<const std::byte>() + static_cast<std::size_t>(from) * bytes, bytes);
}

/// Of later steps: what follows from the candidates that go on.
template <Rule rule>
void go_on(const Select& op, std::int64_t b, const std::vector<std::int64_t>& chosen) {
  const std::int64_t k = op.topk;
  for (std::int64_t j = 0; j < k; ++j) {
    const std::int64_t c = chosen[static_cast<std::size_t>(j)];
    op.input_ids.as<std::int64_t>()[b * k + j] = op.topk_index.as<const std::int64_t>()[b * k * k + c];
    op.out_scores.as<float>()[b * k + j] = op.tree_scores.as<const float>()[b * k * k + c];
    op.tree_parents.as<std::int64_t>()[b * k + j] = c + (rule == Rule::parents_of_their_step ? 0 : first_number(op));
    copy_state(op, b * k + j, b * k + (rule == Rule::states_in_place ? j : c / k));
  }
}

void first_step(const Select& op) {
  const std::int64_t k = op.topk, count = op.topk_p.elements();
  for (const Tensor* to : {&op.out_scores, &op.tree_scores}) std::memcpy(to->data(), op.topk_p.data(), static_cast<std::size_t>(4 * count));
  for (const Tensor* to : {&op.input_ids, &op.tree_tokens})
    std::memcpy(to->data(), op.topk_index.data(), static_cast<std::size_t>(8 * count));
  for (std::int64_t b = 0; b < op.requests(); ++b) {
    for (std::int64_t c = 0; c <= k; ++c) op.tree_parents.as<std::int64_t>()[b * (k + 1) + c] = c - 1;
    for (std::int64_t j = 0; j < k; ++j) copy_state(op, b * k + j, b);
  }
}

template <Rule rule, class Choose>
void select(const Select& op, const Choose& choose) {
  if (op.first()) return first_step(op);
  const std::int64_t k = op.topk;
  std::memcpy(op.tree_tokens.data(), op.topk_index.data(), static_cast<std::size_t>(8 * op.topk_index.elements()));
  for (std::int64_t i = 0; i < op.topk_p.elements(); ++i)
    op.tree_scores.as<float>()[i] = op.scores.as<const float>()[i / k] * op.topk_p.as<const float>()[i];
  for (std::int64_t b = 0; b < op.requests(); ++b) go_on<rule>(op, b, choose(candidates_of(op, b), k));
}

void fast(const Select& op, const Exec&) {
  select<Rule::right>(op, largest);
}

void hopper(const Select& op, const Exec&) {
  select<Rule::right>(op, largest_by_torch);
}

void record(const Select& op, Reference* reference) {
  record_exact(op.input_ids, reference, "input_ids");
  record_exact(op.out_hidden_states, reference, "out_hidden_states");
  record_exact(op.out_scores, reference, "out_scores");
  record_exact(op.tree_scores, reference, "tree_scores");
  record_exact(op.tree_tokens, reference, "tree_tokens");
  record_exact(op.tree_parents, reference, "tree_parents");
}

template <Rule rule>
void golden(const Select& op, const Exec&, Reference* reference) {
  select<rule>(op, largest);
  record(op, reference);
}

/// Whether two tensors of one shape have the same bits in their rows first .. first + count.
bool same_rows(const Tensor& a, const Tensor& b, std::int64_t first, std::int64_t count) {
  const std::int64_t width = a.size(0) == 0 ? 0 : a.elements() / a.size(0);
  for (std::int64_t i = first * width; i < (first + count) * width; ++i)
    if (quant::get_bits(a, i) != quant::get_bits(b, i)) return false;
  return true;
}

/// Whether all that follows from a choice is there: with golden mode's bits in a part of it, an element would pass by itself.
bool same_request(const Select& a, const Select& b, std::int64_t request) {
  const std::int64_t k = a.topk;
  return same_rows(a.input_ids, b.input_ids, request * k, k) && same_rows(a.out_scores, b.out_scores, request, 1) &&
         same_rows(a.tree_parents, b.tree_parents, request, 1) &&
         (a.out_hidden_states.size(0) == 0 || same_rows(a.out_hidden_states, b.out_hidden_states, request * k, k));
}

/// What must follow from the parents that the actual outputs name, where those are as large as the right ones.
void condition(const Select& actual, const Exec&, Reference& reference) {
  if (actual.first()) return;
  const std::int64_t k = actual.topk;
  Select other = actual;
  for (Tensor* t : {&other.input_ids, &other.out_hidden_states, &other.out_scores, &other.tree_scores, &other.tree_parents})
    *t = t->clone();
  bool changed = false;
  select<Rule::right>(other, largest);
  for (std::int64_t b = 0; b < actual.requests(); ++b) {
    std::vector<std::int64_t> chosen, right;
    for (std::int64_t j = 0; j < k; ++j) {
      chosen.push_back(actual.tree_parents.as<const std::int64_t>()[b * k + j] - first_number(actual));
      right.push_back(other.tree_parents.as<const std::int64_t>()[b * k + j] - first_number(actual));
    }
    if (chosen == right || !equally_large(candidates_of(other, b), right, chosen)) continue;
    go_on<Rule::right>(other, b, chosen);
    if (same_request(other, actual, b)) {
      changed = true;
    } else {
      go_on<Rule::right>(other, b, right);
    }
  }
  if (changed) record(other, &reference);
}

std::optional<Refusal> unsupported(const Select& op, Mode mode) {
  if (mode == Mode::hopper && !op.first() && op.topk > most_sorted_by_torch)
    return Refusal{"topk", "is " + std::to_string(op.topk) + ", and the order in which torch leaves more than 128 is not known"};
  return {};
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_select_top_k_tokens() {
  return define<ops::SelectTopKTokens>({
      .contract = R"(
e is one fp32 product; all else is copied. Of equal e any may go on, in any order (here by their place); tokens, scores, states and parents
follow from that choice. Hopper mode has fast_topk's.)",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .make_outputs = ops::make_outputs,
      .check = ops::check,
      .condition = ops::condition,
      .mistakes = {{"states-in-place", "hidden states stay with their beam when another one goes on",
                    ops::golden<ops::Rule::states_in_place>},
                   {"parents-of-their-step", "parents are numbered from the step's first candidate",
                    ops::golden<ops::Rule::parents_of_their_step>}},
      .cases = {"B=3 P=3 Ph=3 Qh=12 H=16 M=1 W=5 --attr i=0 --attr topk=4",
                "B=2 P=8 Ph=8 Qh=8 H=24 M=4 W=4 --attr i=1 --attr topk=4 --with scores",
                "B=3 P=24 Ph=24 Qh=24 H=8 M=8 W=8 --attr i=2 --attr topk=8 --with scores --dist ties",
                "B=5 P=5 Ph=0 Qh=0 H=8 M=1 W=1 --attr i=3 --attr topk=1 --with scores --dtype hidden_states=f32"},
      .bench_cases = {"B=64 P=512 Ph=512 Qh=512 H=7168 M=8 W=8 --attr i=1 --attr topk=8 --with scores"},
  });
}
}  // namespace dodona
