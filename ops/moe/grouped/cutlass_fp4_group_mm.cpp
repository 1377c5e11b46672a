#include "ops/moe/grouped/cutlass_fp4_group_mm.h"

#include <string>
#include <vector>

#include "core/random.h"
#include "ops/base/expert_rows.h"
#include "ops/base/golden_output.h"
#include "ops/base/packed_expert.h"
#include "ops/sums/products_gpu.h"
#include "ops/tiles/panel_i8/fp4_multiply.h"
#include "quant/swizzle.h"

namespace dodona::ops {
namespace {

struct Sizes {
  std::int64_t m, n, k, experts;
};
Sizes sizes_of(const CutlassFp4GroupMm& op) {
  return {op.a_fp4.size(0), op.b_fp4.size(1), op.a_fp4.size(1) * 2, op.b_fp4.size(0)};
}

ExpertProblems problems_of(const CutlassFp4GroupMm& op) {
  const Sizes s = sizes_of(op);
  return {.offsets = op.expert_offsets, .sizes = op.problem_sizes, .m = s.m, .n = s.n, .k = s.k};
}

/// All experts, empty ones as well; their weights are not looked at.
std::vector<Fp4Group> groups_of(const CutlassFp4GroupMm& op) {
  const Sizes s = sizes_of(op);
  const std::vector<ExpertRows> experts = problems_of(op).experts();
  std::vector<Fp4Group> groups;
  std::int64_t next_scale_row = 0;
  for (std::size_t e = 0; e < experts.size(); ++e) {
    const std::int64_t scale_row = op.blockscale_offsets.defined() ? ints_of(op.blockscale_offsets)[e] : next_scale_row;
    groups.push_back({experts[e].row, experts[e].rows, scale_row, {.n = s.n, .k = s.k}, op.alphas.as<float>()[e]});
    next_scale_row += quant::align(experts[e].rows, 128);
  }
  return groups;
}

Fp4Weights raw_weights(const CutlassFp4GroupMm& op, std::int64_t e) {
  const Sizes s = sizes_of(op);
  const std::int64_t scale_bytes = op.b_blockscale.size(1) * op.b_blockscale.size(2);
  return {nullptr, op.b_fp4.as<std::uint8_t>() + e * s.n * (s.k / 2), op.b_blockscale.as<std::uint8_t>() + e * scale_bytes, s.n, s.k};
}

std::vector<Fp4Group> raw_groups(const CutlassFp4GroupMm& op) {
  std::vector<Fp4Group> groups = groups_of(op);
  for (std::size_t e = 0; e < groups.size(); ++e) groups[e].weights = raw_weights(op, static_cast<std::int64_t>(e));
  return groups;
}

void check(const CutlassFp4GroupMm& op) {
  const Sizes s = sizes_of(op);
  require_all("ab_strides", op.ab_strides, s.k);
  require_all("c_strides", op.c_strides, s.n);
  const ExpertProblems problems = problems_of(op);
  require_problem_sizes(problems);
  require_expert_offsets("expert_offsets", ints_of(op.expert_offsets), s.m);
  require_rows_apart(problems);
  const char* const scales = op.blockscale_offsets.defined() ? "blockscale_offsets" : "expert_offsets";
  std::int64_t scale_end = 0;
  const std::vector<Fp4Group> groups = groups_of(op);
  for (std::size_t e = 0; e < groups.size(); ++e) {
    const Fp4Group& group = groups[e];
    if (group.rows == 0) continue;
    require_scale_offset(scales, e, group.scale_row, group.rows, scale_end, op.a_blockscale.size(0));
    scale_end = group.scale_row + quant::align(group.rows, 128);
  }
}

/// Rows of nobody and tiles of scales of nobody lie in between, as far as there is room.
void make_inputs(CutlassFp4GroupMm& op, std::uint64_t seed) {
  const Sizes s = sizes_of(op);
  fill_all(op.ab_strides, s.k);
  fill_all(op.c_strides, s.n);
  make_problem_sizes(problems_of(op), seed);
  if (!op.blockscale_offsets.defined()) return;
  const InputDraw gap(seed, "blockscale_offsets");
  const std::vector<ExpertRows> experts = problems_of(op).experts();
  std::int64_t spare = op.a_blockscale.size(0) / 128, at = 0;
  for (const ExpertRows& expert : experts) spare -= quant::ceil_div(expert.rows, 128);
  for (std::int64_t e = 0; e < s.experts; ++e) {
    if (spare > 0 && gap.below(e, 2) == 1) at += 128, --spare;
    op.blockscale_offsets.as<std::int32_t>()[e] = static_cast<std::int32_t>(at);
    at += quant::align(experts[static_cast<std::size_t>(e)].rows, 128);
  }
}

double flops(const CutlassFp4GroupMm& op) {
  return grouped_flops(problems_of(op));
}

/// Codes and their scales.
double bytes_read(const CutlassFp4GroupMm& op) {
  return grouped_bytes(problems_of(op), 0.5625, 0.5625);
}

std::vector<Product> products_of(const CutlassFp4GroupMm& op) {
  const Sizes s = sizes_of(op);
  std::vector<Product> products;
  for (const Fp4Group& group : raw_groups(op)) {
    const Operand rows{.type = f4_e2m1,
                       .codes = op.a_fp4.as<std::uint8_t>() + group.row * (s.k / 2),
                       .count = group.rows,
                       .k = s.k,
                       .stride = s.k,
                       .scales = nvfp4_scales(op.a_blockscale.data(), s.k, group.scale_row),
                       .zeros = {}};
    const Operand columns{.type = f4_e2m1,
                          .codes = group.weights.codes,
                          .count = s.n,
                          .k = s.k,
                          .stride = s.k,
                          .scales = nvfp4_scales(group.weights.scales, s.k),
                          .zeros = {}};
    const Term alpha{f32, op.alphas.as<float>() + products.size()};
    products.push_back({rows, columns, {.factors = {{alpha, {}}}, .addend = {}, .keeps_denormals = true}, group.row * s.n});
  }
  return products;
}

void golden(const CutlassFp4GroupMm& op, const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.out, reference, "out");
  out.make_open();
  const Sizes s = sizes_of(op);
  for_rows_of_nobody(problems_of(op).experts(), s.m, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * s.n; i < end * s.n; ++i) out.leave_open(i);
  });
  golden_products(products_of(op), op.accumulator == "tcgen05" ? tcgen05_nvfp4 : fp4_by_blocks, out, reference != nullptr, exec);
}

void blackwell(const CutlassFp4GroupMm& op, const Exec& exec) {
  clear_rows_of_nobody(problems_of(op).experts(), op.out);
  gpu_products(products_of(op), fp4_by_blocks, op.out, exec);
}

// ---- fast

void multiply(const CutlassFp4GroupMm& op, const std::vector<Fp4Group>& groups, const Exec& exec) {
  clear_rows_of_nobody(problems_of(op).experts(), op.out);
  fp4_multiply(groups, op.a_fp4, op.a_blockscale, op.out, exec);
}

void fast(const CutlassFp4GroupMm& op, const Exec& exec) {
  multiply(op, raw_groups(op), exec);
}

void fast_prepared(const CutlassFp4GroupMm& op, const Prepared& prepared, const Exec& exec) {
  std::vector<Fp4Group> groups = groups_of(op);
  for (std::size_t e = 0; e < groups.size(); ++e)
    if (groups[e].rows > 0)
      groups[e].weights.packed =
          reinterpret_cast<const std::uint8_t*>(packed_expert(prepared, static_cast<std::int64_t>(e), groups[e].rows));
  multiply(op, groups, exec);
}

std::int64_t packed_bytes(const CutlassFp4GroupMm& op) {
  return fp4_packed_bytes(op.b_fp4.size(1), op.b_fp4.size(2) * 2);
}

void pack(const CutlassFp4GroupMm& op, std::byte* part, const Exec& exec) {
  fp4_pack({nullptr, op.b_fp4.as<std::uint8_t>(), op.b_blockscale.as<std::uint8_t>(), op.b_fp4.size(1), op.b_fp4.size(2) * 2}, part, exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_cutlass_fp4_group_mm() {
  return define<ops::CutlassFp4GroupMm>({
      .contract = R"(
Expert e multiplies its rows as cutlass_scaled_fp4_mm does, with alpha = alphas[e]: acc = sum over blocks of 16 of A_scale *
B_scale * (exact sum of e2m1 products); out = rn(fl32(alpha * acc)). The scales of row r are those of row r - expert_offsets[e]
of a matrix in tiles of 128 x 4 that begins at row blockscale_offsets[e]. Budgets and blackwell mode as in cutlass_scaled_fp4_mm.)",
      .contract_version = 2,
      .golden = ops::golden,
      .fast = ops::fast,
      .blackwell = ops::blackwell,
      .prepare = {.arguments = {"b_fp4", "b_blockscale"},
                  .by_part = true,
                  .bytes = ops::packed_bytes,
                  .pack = ops::pack,
                  .fast = ops::fast_prepared},
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .flops = ops::flops,
      .bytes_read = ops::bytes_read,
      .cases = {"M=40 N=32 K=96 E=4 R=512", "M=21 N=64 K=512 E=3 R=384 --attr out_dtype=f16 --attr accumulator=tcgen05",
                "M=150 N=32 K=64 E=3 R=768 --with ab_strides --with blockscale_offsets --with c_strides --with problem_sizes"},
      .bench_cases = {"M=8 N=4096 K=7168 E=2 R=256", "M=64 N=4096 K=7168 E=8 R=1024"},
  });
}
}  // namespace dodona
