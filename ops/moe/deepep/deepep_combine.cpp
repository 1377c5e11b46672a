#include "ops/moe/deepep/deepep_combine.h"

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "core/threads.h"
#include "ops/base/expert_rows.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "ops/rows/sums/sum_rows.h"

namespace dodona::ops {
namespace {

using Combine = DeepepCombine;

/// Rows d * S + i of every token, by rising rank d.
using RowsOfTokens = std::vector<std::vector<std::int64_t>>;

bool goes(const Combine& op, std::int64_t token, std::int64_t rank) {
  return op.is_token_in_rank.as<const std::uint8_t>()[token * op.ranks() + rank] != 0;
}

/// Throws for a row that nobody sent, and for a token without its row.
RowsOfTokens rows_of(const Combine& op) {
  const std::int64_t ranks = op.ranks(), room = op.room();
  const auto* const sources = op.recv_src_idx.as<const std::int32_t>();
  const auto ends = ints_of(op.rank_prefix_matrix);
  RowsOfTokens rows(static_cast<std::size_t>(ranks * op.tokens()));
  for (std::int64_t d = 0; d < ranks; ++d) {
    std::int64_t begin = 0;
    for (std::int64_t r = 0; r < ranks; ++r) {
      const auto at = static_cast<std::size_t>(r * ranks + d);
      if (ends[at] < begin || ends[at] > room)
        bad_offset("rank_prefix_matrix", at, ends[at],
                   "from " + std::to_string(begin) + " to the " + std::to_string(room) + " rows of a rank");
      std::vector<std::int64_t> row_of(static_cast<std::size_t>(op.tokens()), -1);
      for (std::int64_t i = begin; i < ends[at]; ++i) {
        const std::int32_t source = sources[d * room + i];
        if (source < 0 || source >= op.tokens())
          bad_offset("recv_src_idx", static_cast<std::size_t>(d * room + i), source, "a token below " + std::to_string(op.tokens()));
        row_of[static_cast<std::size_t>(source)] = d * room + i;
      }
      for (std::int64_t t = 0; t < op.tokens(); ++t) {
        if (!goes(op, r * op.tokens() + t, d)) continue;
        if (row_of[static_cast<std::size_t>(t)] < 0)
          bad_offset("is_token_in_rank", static_cast<std::size_t>((r * op.tokens() + t) * ranks + d), 1,
                     "one for which recv_src_idx has a row");
        rows[static_cast<std::size_t>(r * op.tokens() + t)].push_back(row_of[static_cast<std::size_t>(t)]);
      }
      begin = ends[at];
    }
  }
  return rows;
}

bool has_nodes(const Combine& op) {
  return op.node() < op.ranks();
}
std::int64_t node_of_row(const Combine& op, std::int64_t row) {
  return row / (op.node() * op.room());
}

/// The rule itself, and mistakes of such kernels.
enum class Rule { right, sums_rounded, bias_left_out };

std::vector<float> wide(const Tensor& t, std::int64_t row, std::int64_t n) {
  std::vector<float> x(static_cast<std::size_t>(n));
  quant::to_f32(bf16, t.as<const std::byte>() + row * n * 2, x.data(), n);
  return x;
}

/// Sums of fp32 from what `sum` holds on, rank by rank; a node's are bf16 numbers where there are several nodes.
void add_rows(const Combine& op, const std::vector<std::int64_t>& rows, Rule rule, std::vector<float>& sum) {
  const std::int64_t width = op.x.size(2);
  const bool nodes = has_nodes(op);
  const auto narrowed = [](float x) { return static_cast<float>(quant::round_to(bf16, x)); };
  std::vector<float> of_node(sum.size(), 0.0f);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::vector<float> x = wide(op.x, rows[i], width);
    std::vector<float>& to = nodes ? of_node : sum;
    for (std::size_t h = 0; h < x.size(); ++h) to[h] = rule == Rule::sums_rounded ? narrowed(to[h] + x[h]) : to[h] + x[h];
    if (!nodes || (i + 1 < rows.size() && node_of_row(op, rows[i + 1]) == node_of_row(op, rows[i]))) continue;
    for (std::size_t h = 0; h < x.size(); ++h) {
      sum[h] += narrowed(of_node[h]);
      of_node[h] = 0.0f;
    }
  }
}

/// All sums, as they are before their last rounding: put(token, sum).
template <class Put>
void sum_tokens(const Combine& op, const RowsOfTokens& rows, const Exec& exec, Rule rule, const Put& put) {
  const std::int64_t width = op.x.size(2);
  parallel_for(exec.threads, static_cast<std::int64_t>(rows.size()), static_cast<double>(4 * width), [&](std::int64_t token) {
    std::vector<float> sum(static_cast<std::size_t>(width), 0.0f);
    if (rule != Rule::bias_left_out)
      for (const Tensor* const bias : {&op.bias_0, &op.bias_1}) {
        if (!bias->defined()) continue;
        const std::vector<float> x = wide(*bias, token, width);
        for (std::size_t h = 0; h < x.size(); ++h) sum[h] += x[h];
      }
    add_rows(op, rows[static_cast<std::size_t>(token)], rule, sum);
    put(token, sum);
  });
}

float sum_of_weights(const Combine& op, const std::vector<std::int64_t>& rows, std::int64_t k) {
  float sum = 0;
  for (const std::int64_t row : rows) sum += op.topk_weights.as<const float>()[row * op.topk_weights.size(2) + k];
  return sum;
}

template <class Put>
void sum_weights(const Combine& op, const RowsOfTokens& rows, const Put& put) {
  if (!op.combined_topk_weights.defined()) return;
  const std::int64_t topk = op.topk_weights.size(2);
  for (std::size_t token = 0; token < rows.size(); ++token)
    for (std::int64_t k = 0; k < topk; ++k) put(static_cast<std::int64_t>(token) * topk + k, sum_of_weights(op, rows[token], k));
}

template <Rule rule>
void golden(const Combine& op, const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.combined_x, reference, "combined_x"), weights(op.combined_topk_weights, reference, "combined_topk_weights");
  const std::int64_t width = op.x.size(2);
  const RowsOfTokens rows = rows_of(op);
  sum_tokens(op, rows, exec, rule, [&](std::int64_t token, const std::vector<float>& sum) {
    for (std::int64_t h = 0; h < width; ++h) out.put(token * width + h, {sum[static_cast<std::size_t>(h)]});
  });
  sum_weights(op, rows, [&](std::int64_t at, float sum) { weights.put(at, {sum}); });
}

/// Rows of bf16 to be added up, from the rows that `sum` begins with.
struct RowsToAdd {
  const Tensor& from;  ///< [.., H]
  std::vector<std::int32_t> rows;
  void to(std::byte* output, SumRows sum, Isa isa) const {
    sum.input = from.data(), sum.n = from.size(-1), sum.row_bytes = 2 * sum.n, sum.type = bf16, sum.scale = 1;
    sum.permutation = rows.data(), sum.count = static_cast<std::int64_t>(rows.size());
    sum.output = output;
    dispatch<SumRowsKernel>(isa, sum);
  }
};

/// The sums of a token's rows of each node, as bf16 numbers. `rows` are by rising node.
Tensor sums_of_nodes(const Combine& op, const std::vector<std::int64_t>& rows, Isa isa) {
  const std::int64_t width = op.x.size(2);
  std::vector<RowsToAdd> nodes;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i == 0 || node_of_row(op, rows[i]) != node_of_row(op, rows[i - 1])) nodes.push_back({op.x, {}});
    nodes.back().rows.push_back(static_cast<std::int32_t>(rows[i]));
  }
  Tensor sums = Tensor::uninitialized(bf16, {static_cast<std::int64_t>(nodes.size()), width});
  for (std::size_t n = 0; n < nodes.size(); ++n)
    nodes[n].to(sums.as<std::byte>() + static_cast<std::int64_t>(n) * width * 2, SumRows{}, isa);
  return sums;
}

void fast(const Combine& op, const Exec& exec) {
  const RowsOfTokens rows = rows_of(op);
  const std::int64_t row_bytes = op.x.size(2) * 2;
  parallel_for(exec.threads, static_cast<std::int64_t>(rows.size()), static_cast<double>(op.x.size(2) * op.ranks()),
               [&](std::int64_t token) {
                 const std::vector<std::int64_t>& mine = rows[static_cast<std::size_t>(token)];
                 SumRows sum{};
                 for (const Tensor* const bias : {&op.bias_0, &op.bias_1})
                   if (bias->defined()) sum.first[sum.first_count++] = bias->as<std::byte>() + token * row_bytes;
                 std::byte* const output = op.combined_x.as<std::byte>() + token * row_bytes;
                 if (!has_nodes(op)) return RowsToAdd{op.x, {mine.begin(), mine.end()}}.to(output, sum, exec.isa);
                 const Tensor nodes = sums_of_nodes(op, mine, exec.isa);
                 std::vector<std::int32_t> all(static_cast<std::size_t>(nodes.size(0)));
                 std::iota(all.begin(), all.end(), 0);
                 RowsToAdd{nodes, std::move(all)}.to(output, sum, exec.isa);
               });
  sum_weights(op, rows, [&](std::int64_t at, float sum) { quant::set(op.combined_topk_weights, at, sum); });
}

void make_inputs(Combine& op, std::uint64_t seed) {
  const InputDraw draw(seed, "is_token_in_rank");
  const std::int64_t ranks = op.ranks(), room = op.room();
  std::vector<std::int32_t> used(static_cast<std::size_t>(ranks), 0);
  std::fill_n(op.recv_src_idx.as<std::int32_t>(), op.recv_src_idx.elements(), 0);
  for (std::int64_t i = 0; i < op.is_token_in_rank.elements(); ++i) {
    const std::int64_t d = i % ranks, token = i / ranks;
    std::int32_t& row = used[static_cast<std::size_t>(d)];
    const bool sent = draw.below(i, 3) != 0 && row < room;
    op.is_token_in_rank.as<std::uint8_t>()[i] = sent ? 1 : 0;
    if (sent) op.recv_src_idx.as<std::int32_t>()[d * room + row++] = static_cast<std::int32_t>(token % op.tokens());
    op.rank_prefix_matrix.as<std::int32_t>()[token / op.tokens() * ranks + d] = row;
  }
}

void make_outputs(Combine& op) {
  if (!op.topk_weights.defined() || op.topk_weights.rank() != 3 || op.combined_topk_weights.defined() || !op.is_token_in_rank.defined() ||
      op.is_token_in_rank.rank() != 3)
    return;
  op.combined_topk_weights = Tensor(f32, {op.is_token_in_rank.size(0), op.is_token_in_rank.size(1), op.topk_weights.size(2)});
}

void check(const Combine& op) {
  if (op.ranks() % op.node() != 0)
    throw Error(ErrorCode::bad_value, "", "ranks_per_node",
                "is " + std::to_string(op.ranks_per_node) + ", expected a divisor of the " + std::to_string(op.ranks()) + " ranks");
  if (op.combined_topk_weights.defined() && !op.topk_weights.defined())
    throw Error(ErrorCode::bad_value, "", "combined_topk_weights", "is given, expected topk_weights with it");
  rows_of(op);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_deepep_combine() {
  return define<ops::DeepepCombine>({
      .contract = R"(
From bias_0 + bias_1 (zeros where they are not given) the rows of a token are added up by rising rank, widened to fp32, each sum rounded to
fp32; one rounding to bf16. With several nodes the rows of a node are added up so from zero, and rounded to bf16, before the nodes' sums are
added to the biases by rising node. Weights likewise, from zero, in fp32 alone. No bit is open; rows of no token are not read.)",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::fast,
      .make_outputs = ops::make_outputs,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .mistakes = {{"sums-rounded", "each sum is rounded to bf16", ops::golden<ops::Rule::sums_rounded>, true},
                   {"bias-left-out", "biases are not added", ops::golden<ops::Rule::bias_left_out>}},
      .cases = {"R=4 S=12 H=256 T=3 topk=3", "R=2 S=7 H=65 T=4 --without topk_weights --with bias_0 --with bias_1",
                "R=4 S=9 H=128 T=3 topk=2 --attr ranks_per_node=2 --with bias_0"},
      .bench_cases = {"R=4 S=512 H=7168 T=128 topk=8"},
  });
}
}  // namespace dodona
