// What the two grouped fp8 products with scales of blocks share: their schema, their checks, golden and fast mode.
#pragma once

#include <string>
#include <vector>

#include "core/define.h"
#include "ops/base/expert_rows.h"
#include "ops/base/golden_output.h"
#include "ops/base/packed_expert.h"
#include "ops/schemes/fp8_blockwise.h"

namespace dodona::ops {

using enum DType;

/// `Op` has output, a, b, scales_a, scales_b, stride_a, stride_b, a tensor for the output's strides, problem_sizes, expert_offsets and
/// out_dtype.
template <class Op>
void describe_grouped_fp8(auto& op, Op& fields, const char* out_stride, Tensor& out_strides) {
  op.in("a", fields.a, {f8_e4m3}, "M K").layout(Layout::contiguous).doc("rows sorted by expert");
  op.in("b", fields.b, {f8_e4m3}, "E K N").layout(Layout::column_major).doc("the transposed weight of each expert, [E, N, K] in memory");
  op.in("scales_a", fields.scales_a, {f32}, "M K/128")
      .layout(Layout::contiguous)
      .role(Role::scale)
      .scales("a", 1, 128)
      .doc("what 128 codes of a row are multiplied with; row-major");
  op.in("scales_b", fields.scales_b, {f32}, "E K/128 N/128")
      .layout(Layout::column_major)
      .role(Role::scale)
      .scales("b", 128, 128)
      .doc("what 128 x 128 codes are multiplied with; [E, N/128, K/128] in memory");
  op.in("stride_a", fields.stride_a, {i64}, "E").layout(Layout::contiguous).on_request().kin("K for every expert").doc("K");
  op.in("stride_b", fields.stride_b, {i64}, "E").layout(Layout::contiguous).on_request().kin("K for every expert").doc("K");
  op.in(out_stride, out_strides, {i64}, "E").layout(Layout::contiguous).on_request().kin("N for every expert").doc("N");
  op.in("problem_sizes", fields.problem_sizes, {i32}, "E 3")
      .layout(Layout::contiguous)
      .on_request()
      .kin("the rows between expert_offsets, less a choice below 2 where there are some; N; K")
      .doc("rows, N and K of each expert; by default its rows end where the next expert's begin, the last one's at M");
  op.in("expert_offsets", fields.expert_offsets, {i32}, "E")
      .layout(Layout::contiguous)
      .role(Role::indptr, "M")
      .doc("first row of each expert, rising from 0");
  op.dtype_attr("out_dtype", fields.out_dtype, {bf16, f16}).doc("element type of output");
  op.out("output", fields.output, dtype_of_attr("out_dtype"), "M N")
      .layout(Layout::contiguous)
      .padded()
      .doc("rounded once; rows of no expert are unspecified");
  op.symbol("K", {.multiple_of = 128});
  op.symbol("N", {.multiple_of = 128});
}

template <class Op>
ExpertProblems grouped_fp8_problems(const Op& op) {
  return {.offsets = op.expert_offsets, .sizes = op.problem_sizes, .m = op.a.size(0), .n = op.b.size(2), .k = op.a.size(1)};
}

template <class Op>
void check_grouped_fp8(const Op& op, const char* out_stride, const Tensor& out_strides) {
  const ExpertProblems problems = grouped_fp8_problems(op);
  require_all("stride_a", op.stride_a, problems.k);
  require_all("stride_b", op.stride_b, problems.k);
  require_all(out_stride, out_strides, problems.n);
  require_problem_sizes(problems);
  require_expert_offsets("expert_offsets", ints_of(op.expert_offsets), problems.m);
  require_rows_apart(problems);
}

template <class Op>
void make_grouped_fp8_inputs(Op& op, const Tensor& out_strides, std::uint64_t seed) {
  const ExpertProblems problems = grouped_fp8_problems(op);
  fill_all(op.stride_a, problems.k);
  fill_all(op.stride_b, problems.k);
  fill_all(out_strides, problems.n);
  make_problem_sizes(problems, seed);
}

/// Rows of expert e, its weight (of prepared ones its sizes alone), and their scales.
template <class Op>
BlockScaledFp8 grouped_fp8_operands(const Op& op, const ExpertRows& rows, std::size_t expert) {
  const auto e = static_cast<std::int64_t>(expert);
  const auto weight = [e](const Tensor& t) {
    const std::int64_t at = t.data() != nullptr ? e : 0;
    const Tensor one = t.slice(0, at, at + 1);
    return Tensor(one.owner(), one.data(), one.dtype(), {one.size(1), one.size(2)}, {one.stride(1), one.stride(2)}, one.writable());
  };
  const auto part = [&rows](const Tensor& t) { return t.slice(0, rows.row, rows.row + rows.rows); };
  return {part(op.a), weight(op.b), part(op.scales_a), weight(op.scales_b)};
}

/// Products of the experts whose number of rows `wanted` accepts.
template <class Op, class Wanted>
std::vector<Product> grouped_fp8_products(const Op& op, const Wanted& wanted) {
  const ExpertProblems problems = grouped_fp8_problems(op);
  const std::vector<ExpertRows> experts = problems.experts();
  std::vector<Product> products;
  for (std::size_t e = 0; e < experts.size(); ++e)
    if (experts[e].rows > 0 && wanted(experts[e].rows))
      products.push_back(block_scaled_product(grouped_fp8_operands(op, experts[e], e), experts[e].row * problems.n));
  return products;
}
template <class Op>
std::vector<Product> grouped_fp8_products(const Op& op) {
  return grouped_fp8_products(op, [](std::int64_t) { return true; });
}

/// How wrong kernels read the scales.
enum class GroupedScales {
  right,
  m_major,    ///< those of an expert's rows as [K/128, rows], which is how fp8_blockwise_scaled_mm has them
  k_by_rows,  ///< those of a weight as [K/128, N/128] in memory
};

template <class Op, GroupedScales scales = GroupedScales::right>
void grouped_fp8_golden(const Op& op, const Exec& exec, Reference* reference) {
  const ExpertProblems problems = grouped_fp8_problems(op);
  const GoldenOutput out(op.output, reference, "output");
  out.make_open();
  for_rows_of_nobody(problems.experts(), problems.m, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * problems.n; i < end * problems.n; ++i) out.leave_open(i);
  });
  std::vector<Product> products = grouped_fp8_products(op);
  for (Product& product : products) {
    if (scales == GroupedScales::m_major) product.a.scales.line_stride = 1, product.a.scales.k_stride = product.a.count;
    if (scales == GroupedScales::k_by_rows) product.b.scales.line_stride = 1, product.b.scales.k_stride = problems.n / fp8_scale_block;
  }
  golden_products(products, hopper_fp8_promoted, out, reference != nullptr, exec);
}

/// With raw weights where `prepared` is none.
template <class Op>
void grouped_fp8_multiply(const Op& op, const Prepared& prepared, const Exec& exec) {
  const std::vector<ExpertRows> experts = grouped_fp8_problems(op).experts();
  clear_rows_of_nobody(experts, op.output);
  std::vector<PanelProduct> products;
  for (std::size_t e = 0; e < experts.size(); ++e) {
    if (experts[e].rows == 0) continue;
    const Tensor out = op.output.slice(0, experts[e].row, experts[e].row + experts[e].rows);
    PanelProduct& product = products.emplace_back(block_scaled_panel(grouped_fp8_operands(op, experts[e], e), out));
    if (prepared.defined())
      product.b = packed_operand(f8_e4m3, packed_expert(prepared, static_cast<std::int64_t>(e), experts[e].rows), product.k);
  }
  panel_multiply(products, exec);
}

template <class Op>
void grouped_fp8_fast(const Op& op, const Exec& exec) {
  grouped_fp8_multiply(op, {}, exec);
}

/// Weights packed for panels, expert by expert; their scales stay as they are.
template <class Op>
PreparedForm<Op> grouped_fp8_prepared() {
  return {.arguments = {"b"},
          .by_part = true,
          .bytes = [](const Op& op) { return panel_packed_bytes(op.b.size(2), op.b.size(1)); },
          .pack =
              [](const Op& op, std::byte* part, const Exec& exec) {
                const std::int64_t k = op.b.size(1);
                panel_pack({op.b.template as<std::byte>(), k, 0, f8_e4m3}, op.b.size(2), k, part, exec);
              },
          .fast = grouped_fp8_multiply<Op>};
}

template <class Op>
double grouped_fp8_flops(const Op& op) {
  return grouped_flops(grouped_fp8_problems(op));
}
/// Codes; scales are few.
template <class Op>
double grouped_fp8_bytes(const Op& op) {
  return grouped_bytes(grouped_fp8_problems(op), 1.0, 1.0);
}

/// Of the scales' layouts.
template <class Op>
std::vector<MistakeOf<Op>> grouped_fp8_mistakes() {
  return {{"scales-m-major", "scales_a, which are row-major, are read as M-major, expert by expert",
           grouped_fp8_golden<Op, GroupedScales::m_major>},
          {"weight-scales-by-k", "scales_b are read as if [K/128, N/128] were their order in memory",
           grouped_fp8_golden<Op, GroupedScales::k_by_rows>}};
}

/// The contract's words on what both do.
inline const std::string grouped_fp8_contract = R"(
Expert e multiplies its rows with its weight as fp8_blockwise_scaled_mm does, each output by the sum that follows; rows of no expert are
unspecified (outside of golden mode zero), and nothing of an expert without rows is read. )";

/// All of an op that is such products, but hopper mode, and of its contract the words on it; `test` is upstream's. `Op` names the strides
/// of its output: out_stride and out_strides().
template <class Op>
Implementation<Op> grouped_fp8_op(const char* test, const char* hopper_words) {
  Implementation<Op> all;
  all.contract = grouped_fp8_contract + block_scaled_sum_contract + hopper_words;
  all.golden = grouped_fp8_golden<Op>;
  all.fast = grouped_fp8_fast<Op>;
  all.prepare = grouped_fp8_prepared<Op>();
  all.make_inputs = [](Op& op, std::uint64_t seed) { make_grouped_fp8_inputs(op, op.out_strides(), seed); };
  all.check = [](const Op& op) { check_grouped_fp8(op, Op::out_stride, op.out_strides()); };
  all.flops = grouped_fp8_flops<Op>;
  all.bytes_read = grouped_fp8_bytes<Op>;
  all.mistakes = grouped_fp8_mistakes<Op>();
  all.customary = {{"*", CustomaryKind::cosine, 0, 0.999, test}};
  all.cases = {"M=9 N=128 K=256 E=3", "M=11 N=256 K=256 E=2 --attr out_dtype=f16", "M=13 N=128 K=384 E=4 --dist wide-exponent",
               "M=70 N=128 K=128 E=2 --with problem_sizes --with stride_a --with stride_b",
               std::string("M=5 N=128 K=256 E=3 --with ") + Op::out_stride};
  all.bench_cases = {"M=8 N=4096 K=7168 E=9", "M=64 N=4096 K=7168 E=9"};
  return all;
}

}  // namespace dodona::ops
