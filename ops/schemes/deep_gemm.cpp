#include "ops/schemes/deep_gemm.h"

#include <bit>
#include <string>
#include <vector>

#include "dodona/error.h"
#include "ops/sums/products.h"
#include "ops/sums/products_gpu.h"
#include "quant/element.h"
#include "quant/ue8m0.h"

namespace dodona::ops {

using enum DType;

const std::string_view deep_gemm_contract = R"(
For each 128 of K, ascending: t = sum of the products (exact in fp32), s = fl32(sfa * sfb), acc = fma(t, s, acc) in fp32 from +0.
Exponents packed in words are scales 2^(b - 127), of which 255 is NaN. NaN and infinities follow IEEE. Budget: that of
fp8_blockwise_scaled_mm. Hopper mode: DeepGEMM's kernels for an H100, t by the fp8 tensor core in a chain of four steps from zero, blocks in
one chain for every K; denormals are kept. Blackwell mode: one chain of tcgen05.mma kind::mxf8f6f4 over all of K, from +0, in steps of 32
products with both exponents, without promotion; scales in fp32 must be powers of two there.)";

DeepGemmScales deep_gemm_scales(const Tensor& sf, std::int64_t together, std::int64_t k) {
  if (sf.dtype() == f32) return {sf, together};
  const std::int64_t groups = (k + deep_gemm_block - 1) / deep_gemm_block;
  DeepGemmScales scales{Tensor(f8_e8m0, {sf.size(0), groups}), together};
  auto* to = scales.numbers.as<std::uint8_t>();
  for (std::int64_t line = 0; line < sf.size(0); ++line)
    for (std::int64_t g = 0; g < groups; ++g)
      *to++ = static_cast<std::uint8_t>(quant::get_bits(sf, line * sf.size(1) + g / 4) >> (g % 4 * 8));
  return scales;
}

DeepGemmScales in_f32(const DeepGemmScales& scales) {
  if (scales.numbers.dtype() == f32) return scales;
  DeepGemmScales wide{Tensor(f32, scales.numbers.shape()), scales.together};
  for (std::int64_t i = 0; i < scales.numbers.elements(); ++i)
    wide.numbers.as<float>()[i] = quant::ue8m0_value(scales.numbers.as<std::uint8_t>()[i]);
  return wide;
}

PanelScales panel_scales(const DeepGemmScales& f32) {
  return {f32.numbers.as<float>(), f32.together, f32.numbers.stride(0), f32.numbers.stride(1)};
}

std::optional<DeepGemmScales> as_exponents(const DeepGemmScales& scales) {
  if (scales.numbers.dtype() == f8_e8m0) return scales;
  DeepGemmScales exponents{Tensor(f8_e8m0, scales.numbers.shape()), scales.together};
  for (std::int64_t i = 0; i < scales.numbers.elements(); ++i) {
    const auto code = static_cast<std::uint32_t>(quant::get_bits(scales.numbers, i));
    if (code == 0 || code >= 0x7F800000u || (code & 0x007FFFFFu) != 0) return std::nullopt;
    exponents.numbers.as<std::uint8_t>()[i] = quant::ue8m0_exponent_field(std::bit_cast<float>(code));
  }
  return exponents;
}

namespace {

/// Of both operands; a product's terms point into them.
struct ScalePair {
  DeepGemmScales a, b;
};

ScalePair scales_of(const DeepGemmProduct& p) {
  const std::int64_t k = p.a.size(1);
  return {deep_gemm_scales(p.sfa, 1, k), deep_gemm_scales(p.sfb, p.gran_n, k)};
}

Product sum_of(const DeepGemmProduct& p, const ScalePair& scales) {
  Product product = batched_products(batch_of_one(p.a), batch_of_one(p.b.transpose(0, 1))).front();
  product.a.scales = scales.a.blocks();
  product.b.scales = scales.b.blocks();
  product.epilogue.keeps_denormals = true;
  product.first = p.first;
  if (p.c.defined()) product.epilogue.addend.a = {f32, p.c.data(), p.c.stride(0), p.c.stride(1)};
  return product;
}

/// The sums of all products, and the scales that they point to.
struct Sums {
  std::vector<ScalePair> scales;
  std::vector<Product> products;
};

template <class Prepare>
Sums sums_of(std::span<const DeepGemmProduct> products, const Prepare& prepare) {
  Sums sums;
  sums.scales.reserve(products.size());
  for (const DeepGemmProduct& p : products) {
    sums.scales.push_back(prepare(scales_of(p)));
    sums.products.push_back(sum_of(p, sums.scales.back()));
  }
  return sums;
}

PanelProduct panel_of(const DeepGemmProduct& p, const ScalePair& scales) {
  PanelProduct product{.m = p.a.size(0), .n = p.b.size(0), .k = p.a.size(1)};
  product.a = {p.a.as<std::byte>(), p.a.stride(0), 0, f8_e4m3};
  product.b =
      p.packed_b != nullptr ? packed_operand(f8_e4m3, p.packed_b, product.k) : PanelOperand{p.b.as<std::byte>(), p.b.stride(0), 0, f8_e4m3};
  product.block = deep_gemm_block;
  product.a_scales = panel_scales(scales.a);
  product.b_scales = panel_scales(scales.b);
  TileEpilogue& epilogue = product.epilogue;
  if (p.c.defined())
    epilogue.steps[epilogue.count++] = {
        .kind = EpilogueStep::Kind::plus, .values = p.c.as<float>(), .row_stride = p.c.stride(0), .column_stride = 1};
  epilogue.out_type = p.d.dtype();
  epilogue.out = p.d.as<std::byte>();
  epilogue.out_stride = p.d.stride(0);
  return product;
}

}  // namespace

void deep_gemm_golden(std::span<const DeepGemmProduct> products, const GoldenOutput& out, bool judged, DeepGemmScaling scaling,
                      const Exec& exec) {
  Sums sums = sums_of(products, [](const ScalePair& scales) { return scales; });
  if (scaling == DeepGemmScaling::of_first_block)
    for (Product& product : sums.products) product.a.scales.k_stride = 0;
  golden_products(sums.products, deep_gemm_fp8, out, judged, exec);
}

void deep_gemm_fast(std::span<const DeepGemmProduct> products, const Exec& exec) {
  std::vector<ScalePair> scales;
  std::vector<PanelProduct> panels;
  scales.reserve(products.size());
  for (const DeepGemmProduct& p : products) {
    const ScalePair stored = scales_of(p);
    scales.push_back({in_f32(stored.a), in_f32(stored.b)});
    panels.push_back(panel_of(p, scales.back()));
  }
  panel_multiply(panels, exec);
}

void deep_gemm_on_gpu(std::span<const DeepGemmProduct> products, const Tensor& d, const Exec& exec) {
  const bool exponents = exec.mode == Mode::blackwell;
  const Sums sums = sums_of(products, [&](const ScalePair& scales) {
    return exponents ? ScalePair{as_exponents(scales.a).value(), as_exponents(scales.b).value()} : scales;
  });
  gpu_products(sums.products, exponents ? deep_gemm_mxfp8 : deep_gemm_fp8, d, exec);
}

std::optional<Refusal> deep_gemm_on_b200(std::span<const DeepGemmProduct> products) {
  const char* const reason = "holds scales that are no powers of two: a B200's kernel takes their exponents alone";
  for (const DeepGemmProduct& p : products) {
    const ScalePair scales = scales_of(p);
    if (!as_exponents(scales.a)) return Refusal{"sfa", reason};
    if (!as_exponents(scales.b)) return Refusal{"sfb", reason};
  }
  return {};
}

std::optional<Refusal> grouped_deep_gemm_on_h100(bool scale_ue8m0, std::int64_t gran_n) {
  if (scale_ue8m0) return Refusal{"scale_ue8m0", "is true: an H100's kernels take scales in fp32"};
  if (gran_n == 1) return Refusal{"gran_n", "is 1: an H100's kernel has a scale for 128 rows of b"};
  return {};
}

double deep_gemm_flops(std::span<const DeepGemmProduct> products) {
  double flops = 0;
  for (const DeepGemmProduct& p : products) flops += 2.0 * static_cast<double>(p.d.elements()) * static_cast<double>(p.a.size(1));
  return flops;
}

void require_deep_gemm_scales(std::int64_t gran_n, bool scale_ue8m0, DType scales) {
  const auto refuse = [](ErrorCode code, const char* argument, const std::string& message) { throw Error(code, "", argument, message); };
  if (gran_n != 1 && gran_n != 128) refuse(ErrorCode::bad_value, "gran_n", "is " + std::to_string(gran_n) + ", expected 1 or 128");
  if (scale_ue8m0 && gran_n != 1) refuse(ErrorCode::bad_value, "gran_n", "is 128, expected 1 with scale_ue8m0=true");
  const DType wanted = scale_ue8m0 ? i32 : f32;
  if (scales != wanted)
    refuse(ErrorCode::bad_dtype, "sfa",
           "has dtype " + std::string(name(scales)) + ", expected " + std::string(name(wanted)) +
               " with scale_ue8m0=" + (scale_ue8m0 ? "true" : "false"));
}

Tensor matrix_of(const Tensor& stack, std::int64_t g) {
  const Tensor one = stack.slice(0, g, g + 1);
  return {one.owner(), one.data(), one.dtype(), {one.size(1), one.size(2)}, {one.stride(1), one.stride(2)}, one.writable()};
}

}  // namespace dodona::ops
