#include "ops/gemm/bmm_fp8.h"

#include <vector>

#include "ops/base/signs_of_zeros.h"
#include "ops/sums/products.h"
#include "ops/sums/products_gpu.h"
#include "ops/tiles/panel/panel.h"

namespace dodona::ops {
namespace {

struct Sizes {
  std::int64_t batches, m, n, k;
};
Sizes sizes_of(const BmmFp8& op) {
  return {op.A.size(0), op.A.size(1), op.B.size(2), op.A.size(2)};
}

float value_of(const Tensor& scale) {
  return *scale.as<float>();
}

void check(const BmmFp8& op) {
  if (op.A.dtype() == f8_e5m2 && op.B.dtype() == f8_e5m2)
    throw Error(ErrorCode::bad_dtype, "", "B", "has dtype f8_e5m2, expected f8_e4m3 as A has f8_e5m2: no kernel multiplies e5m2 by e5m2");
  check_split_k(split_of(op), op.A.size(2));
  if (op.accumulator == "promoted_128" && op.split_k > 1 && (op.block_k == "32" || op.block_k == "64"))
    throw Error(
        ErrorCode::bad_value, "", "block_k",
        "is " + op.block_k + ", expected 128 or 256: accumulator=promoted_128 sums 128 numbers at a time, so chunks hold whole 128s");
}

double flops(const BmmFp8& op) {
  const Sizes s = sizes_of(op);
  return 2.0 * static_cast<double>(s.batches) * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
}

std::vector<Product> products_of(const BmmFp8& op) {
  return batched_products(op.A, op.B, {.factors = {{whole_term(op.A_scale), whole_term(op.B_scale)}}});
}

Accumulator accumulator_of(const BmmFp8& op) {
  if (op.accumulator == "fp32") return fp32_in_any_order;
  return in_chunks(op.accumulator == "mma_sync"       ? hopper_fp8_mma_sync
                   : op.accumulator == "ada_fp8"      ? ada_fp8
                   : op.accumulator == "promoted_128" ? hopper_fp8_promoted
                                                      : hopper_fp8,
                   split_of(op));
}

void golden(const BmmFp8& op, const Exec& exec, Reference* reference) {
  golden_products(products_of(op), accumulator_of(op), op.out, reference, "out", exec);
  open_signs_of_zeros(op.out, reference, "out");
}

std::optional<Refusal> unsupported(const BmmFp8& op, Mode mode) {
  if ((mode == Mode::hopper || mode == Mode::ada) && op.accumulator == "fp32")
    return Refusal{"accumulator",
                   "'fp32' has no " + std::string(name(mode)) + " mode: no kernel of such a GPU adds fp8 products one by one"};
  if (of_a_gpu(mode) && mode != Mode::ada && op.accumulator == "ada_fp8")
    return Refusal{"accumulator", "'ada_fp8' has no " + std::string(name(mode)) + " mode: it is an L40S's"};
  if (of_a_gpu(mode) && mode != Mode::hopper && (op.accumulator == "mma_sync" || op.accumulator == "promoted_128"))
    return Refusal{"accumulator",
                   "'" + op.accumulator + "' has no " + std::string(name(mode)) + " mode: it is known of kernels of an H200"};
  return {};
}

void on_gpu(const BmmFp8& op, const Exec& exec) {
  const bool own = exec.mode == Mode::hopper;
  // cuBLAS flushes nothing, and adds a source that is not there in the rounding of the product: of a factor of zero no -0 is left.
  constexpr static float source = 0;
  std::vector<Product> products = products_of(op);
  for (Product& product : products) {
    product.epilogue.addend = {{f32, &source}, {}};
    product.epilogue.fused = true;
    product.epilogue.keeps_denormals = true;
  }
  gpu_products(products, own ? accumulator_of(op) : in_chunks(hopper_fp8, split_of(op)), op.out, exec);
}

// ---- fast

void fast(const BmmFp8& op, const Exec& exec) {
  const Sizes s = sizes_of(op);
  const float scale = value_of(op.A_scale) * value_of(op.B_scale);
  panel_multiply(
      {.batches = s.batches,
       .m = s.m,
       .n = s.n,
       .k = s.k,
       .a = {op.A.as<std::byte>(), s.k, s.m * s.k, op.A.dtype()},
       .b = {op.B.as<std::byte>(), s.k, s.n * s.k, op.B.dtype()},
       .epilogue = {.steps = {{.values = &scale}}, .count = 1, .out_type = op.dtype, .out = op.out.as<std::byte>(), .out_stride = s.n},
       .out_batch_stride = s.m * s.n},
      exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_bmm_fp8() {
  return define<ops::BmmFp8>({
      .contract = R"(
acc = sum over k of A*B (products are exact); out = rn(fl32(acc * fl32(A_scale*B_scale))), to nearest even. NaN and infinities
follow IEEE; zeros pass with either sign, as cuBLAS adds +0. Budget of acc, accumulator=hopper_fp8: K ascending in steps of 32 without promotion; with u = 2^(e-13), e the
largest exponent among a step's products and the largest partial sum of the whole row, each product may lose |p| mod u (of the
losses of either sign the larger total counts); the running sum loses where a step's products exceed those of the step before,
and the new sum where it outgrows its addends. A budget of fp32 roundings would fail the H200's kernel, whose saturated rows
lose percents. accumulator=promoted_128: that for each 128 of K, from zero, and K/128 units of 2^-24 for the fp32 sum of them.
accumulator=mma_sync: likewise in steps of 16 (of each 32 those with k mod 4 below 2 first), with u = 2^(e-25) and sums of 23 bits.
accumulator=ada_fp8: as hopper_fp8 in steps of 16, which lose more: the outputs of an L40S are held to that.
split_k: K in tiles of block_k = 128, shared out to chunks of ceil(tiles / split_k) tiles, each from zero as above, whose fp32 sums are
added from the first to the last, as cuBLASLt's splitK kernels do; golden mode bounds them likewise, and 1 unit for each chunk.
chunk_order=descending: the last chunk's sum first; by_fours: chunk c to sum c mod 4 of four that begin as 0, then ((s0 + s1) + s2) + s3.
accumulator=fp32, and at least: K units of 2^-24 of the sum of |A*B|. Then 2^-24 relative for the product with the scale.)",
      .contract_version = 3,
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::on_gpu,
      .blackwell = ops::on_gpu,
      .ada = ops::on_gpu,
      .unsupported = ops::unsupported,
      .check = ops::check,
      .flops = ops::flops,
      .customary = {{"*", CustomaryKind::cosine, 0, 0.99, "sgl-kernel/tests/test_bmm_fp8.py"}},
      .cases = {"L=3 M=17 N=80 K=64", "L=2 M=16 N=32 K=512 --dtype A=f8_e5m2 --attr dtype=f16", "L=2 M=5 N=48 K=144 --dtype B=f8_e5m2",
                "L=1 M=1 N=16 K=1040 --dialect trtllm", "L=1 M=6 N=16 K=400 --attr accumulator=promoted_128",
                "L=2 M=3 N=32 K=208 --attr accumulator=mma_sync", "L=1 M=7 N=32 K=912 --attr split_k=3",
                "L=1 M=4 N=16 K=1168 --attr accumulator=promoted_128 --attr split_k=2",
                "L=1 M=3 N=32 K=912 --attr accumulator=mma_sync --attr split_k=6 --attr chunk_order=by_fours --attr block_k=64"},
      .bench_cases = {"L=128 M=64 N=512 K=128", "L=128 M=64 N=128 K=512", "L=128 M=1 N=512 K=128"},
  });
}
}  // namespace dodona
