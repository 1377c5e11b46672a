#include "ops/moe/permute/ep_scatter.h"

#include <algorithm>
#include <string>
#include <vector>

#include "dodona/error.h"
#include "ops/base/expert_rows.h"
#include "ops/base/golden_output.h"
#include "ops/rows/copies/placed_rows.h"

namespace dodona::ops {
namespace {

constexpr std::int64_t block_rows = 128;

std::int64_t id_at(const EpScatter& op, std::int64_t slot) {
  return static_cast<std::int64_t>(quant::get(op.recv_topk, slot));
}

/// Where each expert's rows begin, and how many slots chose it.
struct Experts {
  std::vector<std::int64_t> begin, rows;
};
Experts experts_of(const EpScatter& op) {
  Experts experts{{}, std::vector<std::int64_t>(static_cast<std::size_t>(op.num_recv_tokens_per_expert.elements()), 0)};
  std::int64_t begin = 0;
  for (const std::int32_t room : ints_of(op.num_recv_tokens_per_expert)) {
    experts.begin.push_back(begin);
    begin += room;
  }
  for (std::int64_t slot = 0; slot < op.recv_topk.elements(); ++slot)
    if (const std::int64_t id = id_at(op, slot); id >= 0) ++experts.rows[static_cast<std::size_t>(id)];
  return experts;
}

/// The row of every slot, -1 for none.
std::vector<std::int64_t> rows_by_token(const EpScatter& op) {
  Experts experts = experts_of(op);
  std::vector<std::int64_t> rows;
  for (std::int64_t slot = 0; slot < op.recv_topk.elements(); ++slot) {
    const std::int64_t id = id_at(op, slot);
    rows.push_back(id < 0 ? -1 : experts.begin[static_cast<std::size_t>(id)]++);
  }
  return rows;
}

/// The rows that actual outputs name, if each expert's are given once to the slots that chose it; else nothing.
std::vector<std::int64_t> rows_as_chosen(const EpScatter& op) {
  const Experts experts = experts_of(op);
  std::vector<std::uint8_t> taken(static_cast<std::size_t>(op.output_tensor.size(0)), 0);
  std::vector<std::int64_t> rows;
  for (std::int64_t slot = 0; slot < op.recv_topk.elements(); ++slot) {
    const std::int64_t id = id_at(op, slot);
    if (id < 0) {
      rows.push_back(-1);
      continue;
    }
    const auto row = static_cast<std::int64_t>(quant::get(op.output_index, slot)), begin = experts.begin[static_cast<std::size_t>(id)];
    if (row < begin || row >= begin + experts.rows[static_cast<std::size_t>(id)] || taken[static_cast<std::size_t>(row)]++ != 0) return {};
    rows.push_back(row);
  }
  return rows;
}

/// Which token each row holds, -1 for none.
std::vector<std::int64_t> tokens_of(const EpScatter& op, const std::vector<std::int64_t>& rows) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(op.output_tensor.size(0)), -1);
  for (std::size_t slot = 0; slot < rows.size(); ++slot)
    if (rows[slot] >= 0) tokens[static_cast<std::size_t>(rows[slot])] = static_cast<std::int64_t>(slot) / op.recv_topk.size(1);
  return tokens;
}

void scatter(const EpScatter& op, const std::vector<std::int64_t>& rows, const Exec& exec) {
  const Experts experts = experts_of(op);
  std::fill_n(op.m_indices.as<std::int32_t>(), op.m_indices.elements(), 0);
  for (std::size_t e = 0; e < experts.begin.size(); ++e) {
    op.expert_start_loc.as<std::int32_t>()[e] = static_cast<std::int32_t>(experts.begin[e] + experts.rows[e]);
    std::fill_n(op.m_indices.as<std::int32_t>() + experts.begin[e], ints_of(op.num_recv_tokens_per_expert)[e],
                static_cast<std::int32_t>(e));
  }
  for (std::size_t slot = 0; slot < rows.size(); ++slot)
    quant::set(op.output_index, static_cast<std::int64_t>(slot), static_cast<double>(std::max<std::int64_t>(rows[slot], 0)));
  const std::vector<std::int64_t> tokens = tokens_of(op, rows);
  place_rows(tokens, op.recv_x, op.output_tensor, exec);
  place_rows(tokens, op.recv_x_scale, op.output_tensor_scale, exec);
}

/// `op` holds the rows.
void record(const EpScatter& op, const std::vector<std::int64_t>& rows, Reference& reference) {
  const std::vector<std::int64_t> tokens = tokens_of(op, rows);
  record_placed(tokens, op.output_tensor, nullptr, reference, "output_tensor");
  record_placed(tokens, op.output_tensor_scale, nullptr, reference, "output_tensor_scale");
  record_placed(rows, op.output_index.reshape({op.output_index.elements(), 1}), nullptr, reference, "output_index");
  record_exact(op.expert_start_loc, &reference, "expert_start_loc");
  const Experts experts = experts_of(op);
  std::vector<std::int64_t> owned(static_cast<std::size_t>(op.m_indices.elements()), -1);
  for (std::size_t e = 0; e < experts.begin.size(); ++e)
    std::fill_n(owned.begin() + experts.begin[e], ints_of(op.num_recv_tokens_per_expert)[e], 0);
  record_placed(owned, op.m_indices.reshape({op.m_indices.elements(), 1}), nullptr, reference, "m_indices");
}

void golden(const EpScatter& op, const Exec& exec, Reference* reference) {
  const std::vector<std::int64_t> rows = rows_by_token(op);
  scatter(op, rows, exec);
  if (reference != nullptr) record(op, rows, *reference);
}

/// m_indices says whose a row is only where a token lies.
void golden_without_padding(const EpScatter& op, const Exec& exec, Reference* reference) {
  const std::vector<std::int64_t> rows = rows_by_token(op);
  scatter(op, rows, exec);
  const Experts experts = experts_of(op);
  for (std::size_t e = 0; e < experts.begin.size(); ++e)
    std::fill_n(op.m_indices.as<std::int32_t>() + experts.begin[e] + experts.rows[e],
                ints_of(op.num_recv_tokens_per_expert)[e] - experts.rows[e], 0);
  if (reference != nullptr) record(op, rows, *reference);
}

void fast(const EpScatter& op, const Exec& exec) {
  scatter(op, rows_by_token(op), exec);
}

void condition(const EpScatter& actual, const Exec& exec, Reference& reference) {
  const std::vector<std::int64_t> rows = rows_as_chosen(actual);
  if (rows.empty()) return;
  EpScatter out = actual;
  for (Tensor* t : {&out.expert_start_loc, &out.output_tensor, &out.output_tensor_scale, &out.m_indices, &out.output_index})
    *t = Tensor(t->dtype(), t->shape());
  scatter(out, rows, exec);
  record(out, rows, reference);
}

void make_inputs(EpScatter& op, std::uint64_t seed) {
  const InputDraw draw(seed, "recv_topk");
  const std::int64_t experts = op.num_recv_tokens_per_expert.elements(), topk = op.recv_topk.size(1);
  auto* const rooms = op.num_recv_tokens_per_expert.as<std::int32_t>();
  std::vector<std::int64_t> rows(static_cast<std::size_t>(experts), 0);
  std::int64_t left = op.output_tensor.size(0) / block_rows;
  for (std::int64_t slot = 0; slot < op.recv_topk.elements(); ++slot) {
    auto id = static_cast<std::int64_t>(draw.below(slot, static_cast<std::uint64_t>(experts + 1))) - 1;
    for (std::int64_t before = slot / topk * topk; before < slot; ++before)
      if (id_at(op, before) == id) id = -1;
    if (id >= 0 && rows[static_cast<std::size_t>(id)] % block_rows == 0 && left-- <= 0) id = -1;
    if (id >= 0) ++rows[static_cast<std::size_t>(id)];
    quant::set(op.recv_topk, slot, static_cast<double>(id));
  }
  for (std::size_t e = 0; e < rows.size(); ++e) rooms[e] = static_cast<std::int32_t>((rows[e] + block_rows - 1) / block_rows * block_rows);
}

void check(const EpScatter& op) {
  const std::int64_t experts = op.num_recv_tokens_per_expert.elements();
  for (std::int64_t slot = 0; slot < op.recv_topk.elements(); ++slot)
    if (const std::int64_t id = id_at(op, slot); id >= experts)
      bad_offset("recv_topk", static_cast<std::size_t>(slot), id, "an expert below " + std::to_string(experts) + ", or a negative number");
  const Experts found = experts_of(op);
  std::int64_t total = 0;
  for (std::size_t e = 0; e < found.rows.size(); ++e) {
    const std::int64_t room = ints_of(op.num_recv_tokens_per_expert)[e];
    if (room % block_rows != 0 || room < found.rows[e])
      bad_offset("num_recv_tokens_per_expert", e, room,
                 "a multiple of 128, at least the " + std::to_string(found.rows[e]) + " rows that recv_topk has for it");
    total += room;
  }
  if (total > op.output_tensor.size(0))
    throw Error(ErrorCode::bad_shape, "", "output_tensor",
                "has " + std::to_string(op.output_tensor.size(0)) + " rows, expected at least " + std::to_string(total) +
                    ", which num_recv_tokens_per_expert adds up to");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_ep_scatter() {
  return define<ops::EpScatter>({
      .contract = R"(
Copies of bits. Each expert's rows begin where the rooms of those before it end; a slot of an expert takes a row of it, in any order: the rows
that output_index names decide where each token must lie. m_indices holds the expert of every row of its room. Rows and slots of nobody
are unspecified (here 0), and m_indices behind the last room. Rows of scales are copied as they are, whatever Hs; sglang's function
asserts one for each 128 elements, or words of four (scale_ue8m0), and so does dodona.compat.sglang.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .condition = ops::condition,
      .mistakes = {{"padding-without-expert", "m_indices is not filled behind an expert's last token", ops::golden_without_padding}},
      .cases = {"T=5 H=256 Hs=2 topk=2 E=3 M=384", "T=3 H=128 Hs=1 topk=2 E=4 M=256 --dtype recv_x_scale=i32 --dtype recv_topk=i32",
                "T=150 H=128 Hs=1 topk=1 E=2 M=512 --dtype recv_x=bf16"},
      .bench_cases = {"T=256 H=7168 Hs=56 topk=8 E=8 M=3072"},
  });
}
}  // namespace dodona
