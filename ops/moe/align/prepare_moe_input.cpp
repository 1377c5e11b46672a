#include "ops/moe/align/prepare_moe_input.h"

#include <vector>

#include "core/grouping.h"
#include "ops/base/golden_output.h"

namespace dodona::ops {
namespace {

constexpr std::int64_t scale_rows = 128;

std::int64_t padded(std::int64_t rows) {
  return (rows + scale_rows - 1) / scale_rows * scale_rows;
}

void check(const PrepareMoeInput& op) {
  // No offset, padded or not, may leave 32 bits.
  const std::int64_t most = op.topk_ids.elements() + op.num_experts * (scale_rows - 1);
  if (most > std::numeric_limits<std::int32_t>::max())
    throw Error(ErrorCode::bad_shape, "", "topk_ids",
                "has shape " + to_string(op.topk_ids.shape()) + ", expected so few ids that offsets fit 32 bits");
}

/// The groups of both permutations: sorted rows by the expert they lie in, flat ids by the expert they name.
void record_groups(const std::vector<std::vector<std::int64_t>>& members, const PrepareMoeInput& op, Reference* reference) {
  if (reference == nullptr) return;
  const auto count = static_cast<std::size_t>(op.topk_ids.elements());
  Grouping rows{"expert", std::vector<std::int32_t>(count, -1), ""}, ids = rows;
  std::size_t row = 0;
  for (std::size_t e = 0; e < members.size(); ++e)
    for (const std::int64_t i : members[e]) {
      rows.group[row++] = static_cast<std::int32_t>(e);
      ids.group[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(e);
    }
  reference->output("input_permutation", op.topk_ids.elements()).grouping = std::move(rows);
  reference->output("output_permutation", op.topk_ids.elements()).grouping = std::move(ids);
}

void golden(const PrepareMoeInput& op, const Exec&, Reference* reference) {
  const GoldenOutput offsets(op.expert_offsets, reference, "expert_offsets"),
      scales(op.blockscale_offsets, reference, "blockscale_offsets"), first(op.problem_sizes1, reference, "problem_sizes1"),
      second(op.problem_sizes2, reference, "problem_sizes2"), tokens(op.input_permutation, reference, "input_permutation"),
      rows(op.output_permutation, reference, "output_permutation");
  tokens.make_open();
  rows.make_open();
  const auto put = [](const GoldenOutput& out, std::int64_t i, std::int64_t value) { out.put(i, {static_cast<double>(value)}); };

  std::vector<std::vector<std::int64_t>> members(static_cast<std::size_t>(op.num_experts));
  for (std::int64_t i = 0; i < op.topk_ids.elements(); ++i) {
    const auto id = static_cast<std::int64_t>(quant::get(op.topk_ids, i));
    if (op.is_expert(id)) {
      members[static_cast<std::size_t>(id)].push_back(i);
    } else {
      rows.leave_open(i);
    }
  }
  std::int64_t row = 0, scale_row = 0;
  for (std::int64_t e = 0; e < op.num_experts; ++e) {
    const std::vector<std::int64_t>& mine = members[static_cast<std::size_t>(e)];
    const auto count = static_cast<std::int64_t>(mine.size());
    put(offsets, e, row);
    if (op.blockscale_offsets.defined()) put(scales, e, scale_row);
    put(first, 3 * e, count);
    put(first, 3 * e + 1, 2 * op.n);
    put(first, 3 * e + 2, op.k);
    put(second, 3 * e, count);
    put(second, 3 * e + 1, op.k);
    put(second, 3 * e + 2, op.n);
    for (const std::int64_t i : mine) {
      put(tokens, row, i / op.topk());
      put(rows, i, row++);
    }
    scale_row += padded(count);
  }
  put(offsets, op.num_experts, row);
  if (op.blockscale_offsets.defined()) put(scales, op.num_experts, scale_row);
  for (; row < op.topk_ids.elements(); ++row) tokens.leave_open(row);
  record_groups(members, op, reference);
}

/// The rows that the actual output_permutation gave the ids say where input_permutation must name which token.
void condition(const PrepareMoeInput& actual, const Exec&, Reference& reference) {
  const ReferenceOutput& rows = *reference.find("output_permutation");
  std::vector<double> taken(rows.exact.size());
  for (std::size_t i = 0; i < taken.size(); ++i) taken[i] = quant::get(actual.output_permutation, static_cast<std::int64_t>(i));
  if (!differing_groups(rows, taken).empty()) return;
  ReferenceOutput& tokens = reference.output("input_permutation", actual.topk_ids.elements());
  tokens.grouping->follows = "output_permutation";
  for (std::size_t i = 0; i < taken.size(); ++i)
    if (rows.grouping->group[i] >= 0) {
      const std::int64_t token = static_cast<std::int64_t>(i) / actual.topk();
      tokens.exact[static_cast<std::size_t>(taken[i])] = static_cast<double>(token);
    }
}

/// Counts, then deals out rows in the order of the ids.
void fast(const PrepareMoeInput& op, const Exec&) {
  const std::int64_t count = op.topk_ids.elements(), topk = op.topk();
  const auto* ids = op.topk_ids.as<const std::int32_t>();
  auto *offsets = op.expert_offsets.as<std::int32_t>(), *first = op.problem_sizes1.as<std::int32_t>(),
       *second = op.problem_sizes2.as<std::int32_t>(), *tokens = op.input_permutation.as<std::int32_t>(),
       *rows = op.output_permutation.as<std::int32_t>();
  auto* scales = op.blockscale_offsets.defined() ? op.blockscale_offsets.as<std::int32_t>() : nullptr;
  const std::int64_t stride = op.topk_ids.stride(0);
  std::vector<std::int32_t> next(static_cast<std::size_t>(op.num_experts), 0);
  for (std::int64_t t = 0; t < op.topk_ids.size(0); ++t)
    for (std::int64_t j = 0; j < topk; ++j)
      if (const std::int32_t id = ids[t * stride + j]; op.is_expert(id)) ++next[static_cast<std::size_t>(id)];
  std::int32_t row = 0, scale_row = 0;
  for (std::int64_t e = 0; e < op.num_experts; ++e) {
    const std::int32_t mine = next[static_cast<std::size_t>(e)];
    next[static_cast<std::size_t>(e)] = offsets[e] = row;
    if (scales != nullptr) scales[e] = scale_row;
    first[3 * e] = second[3 * e] = mine;
    first[3 * e + 1] = static_cast<std::int32_t>(2 * op.n);
    first[3 * e + 2] = second[3 * e + 1] = static_cast<std::int32_t>(op.k);
    second[3 * e + 2] = static_cast<std::int32_t>(op.n);
    row += mine;
    scale_row += static_cast<std::int32_t>(padded(mine));
  }
  offsets[op.num_experts] = row;
  if (scales != nullptr) scales[op.num_experts] = scale_row;
  for (std::int64_t t = 0; t < op.topk_ids.size(0); ++t)
    for (std::int64_t j = 0; j < topk; ++j) {
      const std::int32_t id = ids[t * stride + j];
      std::int32_t d = 0;
      if (op.is_expert(id)) {
        d = next[static_cast<std::size_t>(id)]++;
        tokens[d] = static_cast<std::int32_t>(t);
      }
      rows[t * topk + j] = d;
    }
  for (std::int64_t d = row; d < count; ++d) tokens[d] = 0;
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_prepare_moe_input() {
  const std::string sizes = " --attr num_experts=256 --attr n=2048 --attr k=7168";
  return define<ops::PrepareMoeInput>({
      .contract = R"(
Whole numbers, nothing rounded. Which row of its expert an id takes is open (upstream: atomics); here the order of the ids.
output_permutation gives the ids of an expert the rows of that expert, each once; input_permutation must name at row d the token
whose id took row d. Ids of no expert are not counted; what stands in their output_permutation and in input_permutation behind
the last row is unspecified (here 0).)",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::fast,
      .check = ops::check,
      .condition = ops::condition,
      .customary = {{"expert_offsets", CustomaryKind::close, 0, 0, "sgl-kernel test_prepare_input_moe (as its XPU port has it)"},
                    {"input_permutation", CustomaryKind::round_trip, 0, 0,
                     "sgl-kernel test_prepare_input_moe (as its XPU port has it): scatter, then gather"},
                    {"*", CustomaryKind::unchecked, 0, 0, "sgl-kernel test_prepare_input_moe (as its XPU port has it)"}},
      .cases = {"M=5 topk=8" + sizes, "M=64 topk=8" + sizes + " --attr blockscale_offsets=true",
                "M=33 topk=2 --attr num_experts=3 --attr n=64 --attr k=128 --attr blockscale_offsets=true"},
      .bench_cases = {"M=1 topk=8" + sizes, "M=64 topk=8" + sizes, "M=4096 topk=8" + sizes},
  });
}
}  // namespace dodona
