#include "ops/moe/grouped/m_grouped_fp8_gemm_nt_contiguous.h"

#include <algorithm>
#include <string>
#include <vector>

#include "ops/base/expert_rows.h"
#include "ops/schemes/deep_gemm.h"

namespace dodona::ops {
namespace {

using Call = MGroupedFp8GemmNtContiguous;

/// A kernel's tile takes the group of its first row for all of them.
constexpr std::int64_t block_rows = 128;

/// Rows of a block belong to one group as far as padding, which ends it.
void check(const Call& op) {
  require_deep_gemm_scales(op.gran_n, op.scale_ue8m0, op.sfa.dtype());
  const auto indices = ints_of(op.m_indices);
  const std::int64_t groups = op.b.size(0);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] < -1 || indices[i] >= groups)
      bad_offset("m_indices", i, indices[i], "-1 for padding, or a group of b below " + std::to_string(groups));
    if (i % block_rows == 0 || indices[i] == indices[i - 1] || indices[i] == -1) continue;
    const std::string rule = ": a block of " + std::to_string(block_rows) + " rows of a belongs to one group, and padding ends it";
    bad_offset("m_indices", i, indices[i], (indices[i - 1] < 0 ? "" : std::to_string(indices[i - 1]) + " or ") + "-1" + rule);
  }
}

void make_inputs(Call& op, std::uint64_t seed) {
  const InputDraw draw(seed, "m_indices");
  auto* const indices = op.m_indices.as<std::int32_t>();
  const std::int64_t rows = op.m_indices.elements();
  for (std::int64_t begin = 0; begin < rows; begin += block_rows) {
    const std::int64_t size = std::min(block_rows, rows - begin), block = begin / block_rows;
    const auto group = static_cast<std::int32_t>(draw.below(block, static_cast<std::uint64_t>(op.b.size(0))));
    const std::int64_t padding = static_cast<std::int64_t>(draw.below_again(block, static_cast<std::uint64_t>(size)));
    std::fill_n(indices + begin, size - padding, group);
    std::fill_n(indices + begin + size - padding, padding, -1);
  }
}

/// Stretches of rows of one group; padding is left out.
std::vector<DeepGemmProduct> groups_of(const Call& op, std::int64_t shift = 0) {
  const auto indices = ints_of(op.m_indices);
  const std::int64_t rows = op.a.size(0), n = op.b.size(1);
  std::vector<DeepGemmProduct> groups;
  for (std::int64_t begin = 0, end = 0; begin < rows; begin = end) {
    const std::int32_t index = indices[static_cast<std::size_t>(begin)];
    while (end < rows && indices[static_cast<std::size_t>(end)] == index) ++end;
    if (index < 0) continue;
    const std::int64_t group = (index + shift) % op.b.size(0);
    const auto mine = [&](const Tensor& t) { return t.slice(0, begin, end); };
    groups.push_back({mine(op.a), mine(op.sfa), matrix_of(op.b, group), matrix_of(op.sfb, group), mine(op.d), op.gran_n, begin * n});
  }
  return groups;
}

template <DeepGemmScaling scaling, int shift>
void golden(const Call& op, const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.d, reference, "d");
  out.make_open();
  const std::int64_t n = op.b.size(1);
  const auto indices = ints_of(op.m_indices);
  for (std::int64_t i = 0; i < op.d.elements(); ++i)
    if (indices[static_cast<std::size_t>(i / n)] < 0) out.leave_open(i);
  deep_gemm_golden(groups_of(op, shift), out, reference != nullptr, scaling, exec);
}

void clear_padding(const Call& op) {
  const std::int64_t row_bytes = op.b.size(1) * 2;
  const auto indices = ints_of(op.m_indices);
  for (std::int64_t i = 0; i < op.a.size(0); ++i)
    if (indices[static_cast<std::size_t>(i)] < 0) std::fill_n(op.d.as<std::byte>() + i * row_bytes, row_bytes, std::byte{0});
}

void fast(const Call& op, const Exec& exec) {
  clear_padding(op);
  deep_gemm_fast(groups_of(op), exec);
}

void on_gpu(const Call& op, const Exec& exec) {
  clear_padding(op);
  deep_gemm_on_gpu(groups_of(op), op.d, exec);
}

std::optional<Refusal> unsupported(const Call& op, Mode mode) {
  if (mode == Mode::blackwell) return deep_gemm_on_b200(groups_of(op));
  if (mode == Mode::hopper) return grouped_deep_gemm_on_h100(op.scale_ue8m0, op.gran_n);
  return {};
}

double flops(const Call& op) {
  return deep_gemm_flops(groups_of(op));
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_m_grouped_fp8_gemm_nt_contiguous() {
  using enum ops::DeepGemmScaling;
  const std::string words = " --attr scale_ue8m0=true --attr gran_n=1 --dtype sfa=i32";
  return define<ops::MGroupedFp8GemmNtContiguous>({
      .contract = std::string(ops::deep_gemm_contract) + R"( d = rn(acc), to nearest even. A row takes the weight of its group; rows of
padding are unspecified (outside of golden mode zero).)",
      .golden = ops::golden<right, 0>,
      .fast = ops::fast,
      .hopper = ops::on_gpu,
      .blackwell = ops::on_gpu,
      .unsupported = ops::unsupported,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .flops = ops::flops,
      .mistakes = {{"scales-of-first-block", "the first scale of each row of a is used for all of K", ops::golden<of_first_block, 0>},
                   {"next-group", "rows are multiplied with the weight of the group behind theirs", ops::golden<right, 1>}},
      .cases = {"M=9 N=40 K=256 G=2", "M=150 N=24 K=144 G=3", "M=7 N=136 K=384 G=2 --dist wide-exponent", "M=7 N=40 K=640 G=2" + words},
      .bench_cases = {"M=128 N=4096 K=7168 G=4"},
  });
}
}  // namespace dodona
