#include "ops/gemm/fp8_blockwise_scaled_mm.h"

#include <algorithm>

#include "ops/schemes/fp8_blockwise.h"
#include "ops/sums/products_gpu.h"
#include "ops/sums/stream_k.h"

namespace dodona::ops {
namespace {

constexpr std::int64_t block = fp8_scale_block;

/// Where the scales lie, and how wrong kernels read them.
enum class Scales { right, row_major, of_first_block };

Product product_of(const Fp8BlockwiseScaledMm& op, Scales scales = Scales::right) {
  const std::int64_t k = op.mat_a.size(1);
  Product product = block_scaled_product({op.mat_a, op.mat_b, op.scales_a, op.scales_b});
  if (scales == Scales::row_major) product.a.scales.line_stride = k / block, product.a.scales.k_stride = 1;
  if (scales == Scales::of_first_block) product.a.scales.k_stride = 0;
  return product;
}

bool halves_blocks(const Fp8BlockwiseScaledMm& op) {
  return op.kernel.ends_with("_k64");
}

/// Halves of a block that cancel are larger than their sum, and so is what their steps lose: neither budget holds the other.
void widen_for_halves(const Product& product, const Fp8BlockwiseScaledMm& op, const Exec& exec, Reference& reference) {
  Accumulator halves = hopper_fp8_promoted;
  halves.promote_every = block / 2;
  Reference of_halves;
  golden_products({&product, 1}, halves, Tensor(op.out.dtype(), op.out.shape()), &of_halves, "out", exec);
  ReferenceOutput &whole = reference.output("out", op.out.elements()), &other = of_halves.output("out", op.out.elements());
  for (std::size_t i = 0; i < whole.slack.size(); ++i) {
    whole.slack[i] = std::max(whole.slack[i], other.slack[i]);
    whole.unspecified[i] |= other.unspecified[i];
  }
}

template <Scales scales>
void golden(const Fp8BlockwiseScaledMm& op, const Exec& exec, Reference* reference) {
  const Product product = product_of(op, scales);
  golden_products({&product, 1}, hopper_fp8_promoted, op.out, reference, "out", exec);
  if (reference != nullptr && halves_blocks(op)) widen_for_halves(product, op, exec, *reference);
}

Accumulator accumulator_of(const Fp8BlockwiseScaledMm& op) {
  const std::int64_t block_k = halves_blocks(op) ? block / 2 : block;
  if (op.kernel.starts_with("triton_mma_sync")) return triton_fp8_mma_sync_promoted(block_k);
  return op.kernel.starts_with("triton") ? triton_fp8_promoted(block_k) : hopper_fp8_promoted;
}

/// Where the parts of K of sgl-kernel's tiles begin; empty where its scheduler shares nothing out, and for other kernels.
std::vector<std::vector<std::vector<std::int64_t>>> parts_of(const Fp8BlockwiseScaledMm& op) {
  const StreamK product{.m = op.mat_a.size(0), .n = op.mat_b.size(1), .k = op.mat_a.size(1)};
  if (op.kernel != "cutlass" || product.k <= 3 * product.n) return {};
  return stream_k_parts(product);
}

/// The rows of each row of tiles as a product of their own.
std::vector<Product> products_in_parts(const Fp8BlockwiseScaledMm& op) {
  const Product whole = product_of(op);
  const auto parts = parts_of(op);
  if (parts.empty()) return {whole};
  std::vector<Product> products;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::int64_t row = static_cast<std::int64_t>(i) * block;
    Product& tiles = products.emplace_back(whole);
    tiles.a.codes = static_cast<const std::byte*>(whole.a.codes) + row * whole.a.stride;
    tiles.a.scales.data = static_cast<const float*>(whole.a.scales.data) + row * whole.a.scales.line_stride;
    tiles.a.count = std::min(block, whole.a.count - row);
    tiles.first = row * whole.b.count;
    tiles.parts = parts[i];
  }
  return products;
}

std::optional<Refusal> unsupported(const Fp8BlockwiseScaledMm& op, Mode mode) {
  if (mode != Mode::hopper) return {};
  std::size_t most = 1;
  for (const auto& row : parts_of(op))
    for (const auto& tile : row) most = std::max(most, tile.size());
  if (most <= 3) return {};
  return Refusal{"mat_a", "has K = " + std::to_string(op.mat_a.size(1)) + ", more than 3 N: the kernel adds " + std::to_string(most) +
                              " parts of K in the order in which they are ready, its bits vary from run to run, and there is no hopper "
                              "mode for that (kernel=deep_gemm adds in one chain)"};
}

void hopper(const Fp8BlockwiseScaledMm& op, const Exec& exec) {
  gpu_products(products_in_parts(op), accumulator_of(op), op.out, exec);
}

double flops(const Fp8BlockwiseScaledMm& op) {
  return 2.0 * static_cast<double>(op.out.elements()) * static_cast<double>(op.mat_a.size(1));
}

// ---- fast

PanelProduct panel_product(const Fp8BlockwiseScaledMm& op) {
  return block_scaled_panel({op.mat_a, op.mat_b, op.scales_a, op.scales_b}, op.out);
}

void fast(const Fp8BlockwiseScaledMm& op, const Exec& exec) {
  panel_multiply(panel_product(op), exec);
}

void fast_prepared(const Fp8BlockwiseScaledMm& op, const Prepared& prepared, const Exec& exec) {
  PanelProduct product = panel_product(op);
  product.b = packed_operand(op.mat_b.dtype(), prepared.part(0), product.k);
  panel_multiply(product, exec);
}

std::int64_t packed_bytes(const Fp8BlockwiseScaledMm& op) {
  return panel_packed_bytes(op.mat_b.size(1), op.mat_b.size(0));
}

void pack(const Fp8BlockwiseScaledMm& op, std::byte* part, const Exec& exec) {
  const std::int64_t k = op.mat_b.size(0);
  panel_pack({op.mat_b.as<std::byte>(), k, 0, op.mat_b.dtype()}, op.mat_b.size(1), k, part, exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_fp8_blockwise_scaled_mm() {
  return define<ops::Fp8BlockwiseScaledMm>({
      .contract = ops::block_scaled_sum_contract + R"(
`kernel` names orders of hopper
mode; golden and fast mode go by the formula above, whoever's kernel it is. Where it names one whose tiles are 64 of K (..._k64), the
budget is the larger of this and the same with 64 in the place of 128 (two steps, K/64 sums): halves that cancel lose more each than
their sum does.
 Hopper mode of sgl-kernel's where K > 3 N: CUTLASS's stream-K scheduler shares K out in parts of 8 blocks and more (132 SMs, tiles of
128 x 128, clusters of two along N); each part is a sum from +0, and they are added from the first to the last. A tile of four parts and
more has no bits of its own: the parts between the first and the last are added as they come, and an H100's outputs of one call were 23
different ones in 24 runs. Hopper mode refuses that.)",
      .contract_version = 2,
      .golden = ops::golden<ops::Scales::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .prepare = {{"mat_b"}, false, ops::packed_bytes, ops::pack, ops::fast_prepared},
      .flops = ops::flops,
      .mistakes = {{"scales-row-major", "scales_a, which are M-major, are read as row-major", ops::golden<ops::Scales::row_major>},
                   {"scales-of-first-block", "the first scale of each row of A is used for all of K",
                    ops::golden<ops::Scales::of_first_block>}},
      .customary = {{"*", CustomaryKind::close, 2e-2, 1, "sgl-kernel/tests/test_fp8_blockwise_gemm.py"}},
      .cases = {"M=4 N=128 K=1536", "M=7 N=256 K=512 --attr out_dtype=f16", "M=33 N=128 K=384 --dist wide-exponent",
                "M=5 N=128 K=256 --attr kernel=triton", "M=6 N=128 K=512 --attr kernel=triton_mma_sync_k64", "M=3 N=128 K=2560"},
      .bench_cases = {"M=1 N=4096 K=7168", "M=4 N=4096 K=7168", "M=8 N=4096 K=7168", "M=16 N=4096 K=7168", "M=64 N=4096 K=7168",
                      "M=256 N=4096 K=7168"},
  });
}
}  // namespace dodona
