#include "ops/moe/grouped/m_grouped_fp8_gemm_nt_masked.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ops/base/expert_rows.h"
#include "ops/base/packed_expert.h"
#include "ops/schemes/deep_gemm.h"
#include "quant/element.h"
#include "quant/sizes.h"

namespace dodona::ops {
namespace {

using Call = MGroupedFp8GemmNtMasked;

std::int64_t rows_of(const Call& op, std::int64_t group) {
  return ints_of(op.masked_m)[static_cast<std::size_t>(group)];
}

/// Of prepared weights b has its sizes alone.
std::vector<DeepGemmProduct> groups_of(const Call& op, std::int64_t shift = 0) {
  const std::int64_t count = op.a.size(0), m = op.a.size(1), n = op.b.size(1);
  std::vector<DeepGemmProduct> groups;
  for (std::int64_t g = 0; g < count; ++g) {
    const std::int64_t rows = rows_of(op, g), weight = (g + shift) % count;
    if (rows == 0) continue;
    const auto counted = [&](const Tensor& stack) { return matrix_of(stack, g).slice(0, 0, rows); };
    const Tensor b = matrix_of(op.b, op.b.data() != nullptr ? weight : 0);
    groups.push_back({counted(op.a), counted(op.sfa), b, matrix_of(op.sfb, weight), counted(op.d), op.gran_n, g * m * n});
  }
  return groups;
}

template <DeepGemmScaling scaling, int shift>
void golden(const Call& op, const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.d, reference, "d");
  out.make_open();
  const std::int64_t m = op.a.size(1), n = op.b.size(1);
  for (std::int64_t i = 0; i < op.d.elements(); ++i)
    if (i / n % m >= rows_of(op, i / n / m)) out.leave_open(i);
  deep_gemm_golden(groups_of(op, shift), out, reference != nullptr, scaling, exec);
}

void check(const Call& op) {
  require_deep_gemm_scales(op.gran_n, op.scale_ue8m0, op.sfa.dtype());
}

void clear_other_rows(const Call& op) {
  const std::int64_t m = op.a.size(1), row_bytes = op.b.size(1) * 2;
  for (std::int64_t g = 0; g < op.a.size(0); ++g)
    std::fill_n(op.d.as<std::byte>() + (g * m + rows_of(op, g)) * row_bytes, (m - rows_of(op, g)) * row_bytes, std::byte{0});
}

void fast(const Call& op, const Exec& exec) {
  clear_other_rows(op);
  deep_gemm_fast(groups_of(op), exec);
}

void fast_prepared(const Call& op, const Prepared& prepared, const Exec& exec) {
  clear_other_rows(op);
  std::vector<DeepGemmProduct> groups = groups_of(op);
  auto group = groups.begin();
  for (std::int64_t g = 0; g < op.a.size(0); ++g)
    if (const std::int64_t rows = rows_of(op, g); rows > 0) (group++)->packed_b = packed_expert(prepared, g, rows);
  deep_gemm_fast(groups, exec);
}

std::int64_t packed_bytes(const Call& op) {
  return panel_packed_bytes(op.b.size(1), op.b.size(2));
}

void pack(const Call& op, std::byte* part, const Exec& exec) {
  const std::int64_t k = op.b.size(2);
  panel_pack({op.b.as<std::byte>(), k, 0, f8_e4m3}, op.b.size(1), k, part, exec);
}

void on_gpu(const Call& op, const Exec& exec) {
  clear_other_rows(op);
  deep_gemm_on_gpu(groups_of(op), op.d, exec);
}

/// Rows of an H100's tiles: 64, or 128 where more than 64 are expected and the kernel finds it faster.
std::int64_t most_tile(const Call& op) {
  return op.expected_m > 64 ? 128 : 64;
}
/// It stores a tile whole: rows beyond the M of a group are rows of the groups behind.
std::int64_t end_of_tiles(const Call& op, std::int64_t group) {
  return group * op.a.size(1) + quant::align(rows_of(op, group), most_tile(op));
}

bool holds_nan(const Tensor& codes, std::int64_t row) {
  const std::int64_t k = codes.size(-1);
  const auto* const first = codes.as<std::uint8_t>() + row * k;
  return std::any_of(first, first + k, [](std::uint8_t code) { return (code & 0x7f) == 0x7f; });
}

/// Whether a tile of group g leaves `x` in row `row` of all groups' rows, which lies behind the group: there its copy of the scales of a
/// ends, with zeros behind M, but for up to three that fill M up to a multiple of 4 and hold what memory held. Zero times a chain of
/// codes is zero, or NaN where it held one or the scale of b is infinite.
bool overrun_leaves(const Call& actual, std::int64_t g, std::int64_t row, std::int64_t column, double x) {
  const std::int64_t m = actual.a.size(1), n = actual.b.size(1);
  if (row < (g + 1) * m || row >= end_of_tiles(actual, g)) return false;
  if (row - g * m < quant::align(m, 4) || x == 0) return true;
  if (!std::isnan(x)) return false;
  const Tensor scales = matrix_of(actual.sfb, g);
  for (std::int64_t block = 0; block < scales.size(1); ++block)
    if (const Tensor scale = scales.slice(0, column / actual.gran_n, column / actual.gran_n + 1).slice(1, block, block + 1);
        !std::isfinite(quant::get(scale, 0)))
      return true;
  return holds_nan(actual.a, row) || holds_nan(actual.b, g * n + column);
}

bool explains_overrun(const Call& actual, std::string_view output, std::int64_t linear) {
  const std::int64_t n = actual.b.size(1), row = linear / n;
  if (output != "d" || actual.scale_ue8m0) return false;
  const double x = quant::get(actual.d, linear);
  for (std::int64_t g = 0; g < row / actual.a.size(1); ++g)
    if (overrun_leaves(actual, g, row, linear % n, x)) return true;
  return false;
}

std::optional<Refusal> unsupported(const Call& op, Mode mode) {
  if (mode == Mode::blackwell) return deep_gemm_on_b200(groups_of(op));
  if (mode != Mode::hopper) return {};
  if (auto refusal = grouped_deep_gemm_on_h100(op.scale_ue8m0, op.gran_n)) return refusal;
  for (std::int64_t g = 0; g + 1 < op.a.size(0); ++g)
    if (end_of_tiles(op, g) > (g + 1) * op.a.size(1))
      return Refusal{"a", "has M = " + std::to_string(op.a.size(1)) + ": an H100's kernel stores tiles of " +
                              std::to_string(most_tile(op)) + " rows over the groups behind"};
  return {};
}

double flops(const Call& op) {
  return deep_gemm_flops(groups_of(op));
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_m_grouped_fp8_gemm_nt_masked() {
  using enum ops::DeepGemmScaling;
  const std::string words = " --attr scale_ue8m0=true --attr gran_n=1 --dtype sfa=i32";
  return define<ops::MGroupedFp8GemmNtMasked>({
      .contract = std::string(ops::deep_gemm_contract) + R"( d = rn(acc), to nearest even. Rows of a group that do not count are
unspecified (outside of golden mode zero).)",
      .golden = ops::golden<right, 0>,
      .fast = ops::fast,
      .hopper = ops::on_gpu,
      .blackwell = ops::on_gpu,
      .unsupported = ops::unsupported,
      .prepare = {.arguments = {"b"}, .by_part = true, .bytes = ops::packed_bytes, .pack = ops::pack, .fast = ops::fast_prepared},
      .check = ops::check,
      .flops = ops::flops,
      .defects = {{"tiles-overrun-the-group", "d",
                   "M no multiple of 64, or of 128 where expected_m is above 64: a tile that reaches beyond a group's M is stored over the "
                   "first rows of the next groups, with zeros where it has no scales",
                   ops::explains_overrun}},
      .mistakes = {{"scales-of-first-block", "the first scale of each row of a is used for all of K", ops::golden<of_first_block, 0>},
                   {"next-group", "rows are multiplied with the weight of the group behind theirs", ops::golden<right, 1>}},
      .cases = {"G=2 M=64 N=40 K=256", "G=1 M=9 N=24 K=144 --seed 1", "G=2 M=64 N=24 K=272", "G=2 M=64 N=136 K=384 --dist wide-exponent",
                "G=2 M=4 N=40 K=640" + words},
      .bench_cases = {"G=4 M=64 N=4096 K=7168"},
  });
}
}  // namespace dodona
