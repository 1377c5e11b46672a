#include "ops/gemm/fp8_gemm_nt.h"

#include "ops/schemes/deep_gemm.h"
#include "ops/sums/products.h"
#include "ops/sums/products_gpu.h"

namespace dodona::ops {
namespace {

DeepGemmScales scales_of_a(const Fp8GemmNt& op) {
  return deep_gemm_scales(op.sfa, 1, op.a.size(1));
}
DeepGemmScales scales_of_b(const Fp8GemmNt& op) {
  return deep_gemm_scales(op.sfb, op.gran_n, op.a.size(1));
}

/// The scales are those of a call's operands, which must live as long.
Product product_of(const Fp8GemmNt& op, const DeepGemmScales& a_scales, const DeepGemmScales& b_scales) {
  Product product = batched_products(batch_of_one(op.a), batch_of_one(op.b.transpose(0, 1))).front();
  product.a.scales = a_scales.blocks();
  product.b.scales = b_scales.blocks();
  product.epilogue.keeps_denormals = true;
  if (op.c.defined()) product.epilogue.addend.a = {f32, op.c.data(), op.c.stride(0), op.c.stride(1)};
  return product;
}

template <bool of_first_block>
void golden(const Fp8GemmNt& op, const Exec& exec, Reference* reference) {
  const DeepGemmScales a = scales_of_a(op), b = scales_of_b(op);
  Product product = product_of(op, a, b);
  if (of_first_block) product.a.scales.k_stride = 0;
  golden_products({&product, 1}, deep_gemm_fp8, op.d, reference, "d", exec);
}

void hopper(const Fp8GemmNt& op, const Exec& exec) {
  const DeepGemmScales a = scales_of_a(op), b = scales_of_b(op);
  const Product product = product_of(op, a, b);
  gpu_products({&product, 1}, deep_gemm_fp8, op.d, exec);
}

void blackwell(const Fp8GemmNt& op, const Exec& exec) {
  const DeepGemmScales a = as_exponents(scales_of_a(op)).value(), b = as_exponents(scales_of_b(op)).value();
  const Product product = product_of(op, a, b);
  gpu_products({&product, 1}, deep_gemm_mxfp8, op.d, exec);
}

std::optional<Refusal> unsupported(const Fp8GemmNt& op, Mode mode) {
  if (mode == Mode::hopper) {
    if (op.scale_ue8m0) return Refusal{"scale_ue8m0", "is true: an H100's kernels take scales in fp32"};
    if (op.gran_n == 128 && op.out_dtype == f32)
      return Refusal{"out_dtype", "is f32: an H100's kernel with a scale for 128 rows of b stores bf16"};
    if (op.gran_n == 1 && !op.c.defined()) return Refusal{"c", "is not given: an H100's kernel with a scale for each row of b adds to it"};
  }
  if (mode == Mode::blackwell) {
    const char* const reason = "holds scales that are no powers of two: a B200's kernel takes their exponents alone";
    if (!as_exponents(scales_of_a(op))) return Refusal{"sfa", reason};
    if (!as_exponents(scales_of_b(op))) return Refusal{"sfb", reason};
  }
  return {};
}

void fast(const Fp8GemmNt& op, const Exec& exec) {
  const DeepGemmScales a = in_f32(scales_of_a(op)), b = in_f32(scales_of_b(op));
  PanelProduct product{.m = op.a.size(0), .n = op.b.size(0), .k = op.a.size(1)};
  product.a = {op.a.as<std::byte>(), op.a.stride(0), 0, f8_e4m3};
  product.b = {op.b.as<std::byte>(), op.b.stride(0), 0, f8_e4m3};
  product.block = deep_gemm_block;
  product.a_scales = panel_scales(a);
  product.b_scales = panel_scales(b);
  TileEpilogue& epilogue = product.epilogue;
  if (op.c.defined())
    epilogue.steps[epilogue.count++] = {
        .kind = EpilogueStep::Kind::plus, .values = op.c.as<float>(), .row_stride = op.c.stride(0), .column_stride = 1};
  epilogue.out_type = op.out_dtype;
  epilogue.out = op.d.as<std::byte>();
  epilogue.out_stride = op.d.stride(0);
  panel_multiply(product, exec);
}

void check(const Fp8GemmNt& op) {
  const auto refuse = [](ErrorCode code, const char* argument, const std::string& message) { throw Error(code, "", argument, message); };
  if (op.gran_n != 1 && op.gran_n != 128) refuse(ErrorCode::bad_value, "gran_n", "is " + std::to_string(op.gran_n) + ", expected 1 or 128");
  if (op.scale_ue8m0 && op.gran_n != 1) refuse(ErrorCode::bad_value, "gran_n", "is 128, expected 1 with scale_ue8m0=true");
  const DType scale = op.scale_ue8m0 ? i32 : f32;
  if (op.sfa.dtype() != scale)
    refuse(ErrorCode::bad_dtype, "sfa",
           "has dtype " + std::string(name(op.sfa.dtype())) + ", expected " + std::string(name(scale)) +
               " with scale_ue8m0=" + (op.scale_ue8m0 ? "true" : "false"));
  if (op.c.defined() && op.out_dtype != f32) refuse(ErrorCode::bad_dtype, "out_dtype", "is bf16, expected f32 with c");
}

double flops(const Fp8GemmNt& op) {
  return 2.0 * static_cast<double>(op.d.elements()) * static_cast<double>(op.a.size(1));
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_fp8_gemm_nt() {
  const std::string words = " --attr scale_ue8m0=true --attr gran_n=1 --dtype sfa=i32";
  return define<ops::Fp8GemmNt>({
      .contract = std::string(ops::deep_gemm_contract) + " d = rn(acc), or rn(fl32(acc + c)), to nearest even.",
      .golden = ops::golden<false>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .blackwell = ops::blackwell,
      .unsupported = ops::unsupported,
      .check = ops::check,
      .flops = ops::flops,
      .mistakes = {{"scales-of-first-block", "the first scale of each row of a is used for all of K", ops::golden<true>}},
      .cases = {"M=5 N=40 K=256", "M=4 N=136 K=1536", "M=7 N=64 K=400 --dist wide-exponent",
                "M=5 N=40 K=256 --attr gran_n=1 --attr out_dtype=f32 --with c", "M=3 N=72 K=640" + words,
                "M=5 N=24 K=528 --attr out_dtype=f32 --with c" + words},
      .bench_cases = {"M=1 N=4096 K=7168", "M=64 N=4096 K=7168", "M=64 N=4096 K=7168" + words},
  });
}
}  // namespace dodona
