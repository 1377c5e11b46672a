#include "ops/gemm/fp8_gemm_nt.h"

#include "dodona/error.h"
#include "ops/schemes/deep_gemm.h"

namespace dodona::ops {
namespace {

DeepGemmProduct product_of(const Fp8GemmNt& op) {
  return {.a = op.a, .sfa = op.sfa, .b = op.b, .sfb = op.sfb, .d = op.d, .gran_n = op.gran_n, .c = op.c};
}

template <DeepGemmScaling scaling>
void golden(const Fp8GemmNt& op, const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.d, reference, "d");
  out.make_open();
  const DeepGemmProduct product = product_of(op);
  deep_gemm_golden({&product, 1}, out, reference != nullptr, scaling, exec);
}

void on_gpu(const Fp8GemmNt& op, const Exec& exec) {
  const DeepGemmProduct product = product_of(op);
  deep_gemm_on_gpu({&product, 1}, op.d, exec);
}

void fast(const Fp8GemmNt& op, const Exec& exec) {
  const DeepGemmProduct product = product_of(op);
  deep_gemm_fast({&product, 1}, exec);
}

void fast_prepared(const Fp8GemmNt& op, const Prepared& prepared, const Exec& exec) {
  DeepGemmProduct product = product_of(op);
  product.packed_b = prepared.part(0);
  deep_gemm_fast({&product, 1}, exec);
}

std::int64_t packed_bytes(const Fp8GemmNt& op) {
  return panel_packed_bytes(op.b.size(0), op.b.size(1));
}

void pack(const Fp8GemmNt& op, std::byte* part, const Exec& exec) {
  panel_pack({op.b.as<std::byte>(), op.b.stride(0), 0, f8_e4m3}, op.b.size(0), op.b.size(1), part, exec);
}

bool has_gaps(const Tensor& matrix) {
  return matrix.size(0) > 1 && matrix.stride(0) != matrix.size(1);
}

/// An H100's kernel with a scale for each row of b takes rows to be K apart, whatever their strides.
bool explains_dense_rows(const Fp8GemmNt& actual, std::string_view, std::int64_t linear) {
  const std::int64_t n = actual.b.size(0);
  const bool is_such = actual.gran_n == 1 && !actual.scale_ue8m0;
  return is_such && ((has_gaps(actual.a) && linear >= n) || (has_gaps(actual.b) && linear % n > 0));
}

std::optional<Refusal> unsupported(const Fp8GemmNt& op, Mode mode) {
  if (mode == Mode::hopper) {
    if (op.scale_ue8m0) return Refusal{"scale_ue8m0", "is true: an H100's kernels take scales in fp32"};
    if (op.gran_n == 128 && op.out_dtype == f32)
      return Refusal{"out_dtype", "is f32: an H100's kernel with a scale for 128 rows of b stores bf16"};
    for (const auto& [name, matrix] : {std::pair<const char*, const Tensor&>{"a", op.a}, {"b", op.b}})
      if (op.gran_n == 1 && has_gaps(matrix))
        return Refusal{name, "has rows " + std::to_string(matrix.stride(0)) +
                                 " apart: an H100's kernel with a scale for each row of b reads them " + std::to_string(matrix.size(1)) +
                                 " apart"};
    if (op.gran_n == 1 && !op.c.defined()) return Refusal{"c", "is not given: an H100's kernel with a scale for each row of b adds to it"};
  }
  if (mode == Mode::blackwell) {
    const DeepGemmProduct product = product_of(op);
    return deep_gemm_on_b200({&product, 1});
  }
  return {};
}

void check(const Fp8GemmNt& op) {
  require_deep_gemm_scales(op.gran_n, op.scale_ue8m0, op.sfa.dtype());
  if (op.c.defined() && op.out_dtype != f32) throw Error(ErrorCode::bad_dtype, "", "out_dtype", "is bf16, expected f32 with c");
}

double flops(const Fp8GemmNt& op) {
  const DeepGemmProduct product = product_of(op);
  return deep_gemm_flops({&product, 1});
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_fp8_gemm_nt() {
  const std::string words = " --attr scale_ue8m0=true --attr gran_n=1 --dtype sfa=i32";
  return define<ops::Fp8GemmNt>({
      .contract = std::string(ops::deep_gemm_contract) + " d = rn(acc), or rn(fl32(acc + c)), to nearest even.",
      .golden = ops::golden<ops::DeepGemmScaling::right>,
      .fast = ops::fast,
      .hopper = ops::on_gpu,
      .blackwell = ops::on_gpu,
      .unsupported = ops::unsupported,
      .prepare = {{"b"}, false, ops::packed_bytes, ops::pack, ops::fast_prepared},
      .check = ops::check,
      .flops = ops::flops,
      .defects = {{"rows-taken-as-dense", "d",
                   "gran_n = 1 with scales in fp32: rows of a and of b are read K apart, also where they are slices of wider ones",
                   ops::explains_dense_rows}},
      .mistakes = {{"scales-of-first-block", "the first scale of each row of a is used for all of K",
                    ops::golden<ops::DeepGemmScaling::of_first_block>}},
      .cases = {"M=5 N=40 K=256", "M=4 N=136 K=1536", "M=7 N=64 K=400 --dist wide-exponent",
                "M=5 N=40 K=256 --attr gran_n=1 --attr out_dtype=f32 --with c --special tiny-rows", "M=3 N=72 K=640" + words,
                "M=5 N=24 K=528 --attr out_dtype=f32 --with c --special tiny-rows" + words},
      .bench_cases = {"M=1 N=4096 K=7168", "M=64 N=4096 K=7168", "M=64 N=4096 K=7168" + words},
  });
}
}  // namespace dodona
