#include "ops/moe/grouped/cutlass_w4a8_moe_mm.h"

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "core/threads.h"
#include "ops/base/expert_rows.h"
#include "ops/base/golden_output.h"
#include "ops/base/packed_expert.h"
#include "ops/base/signs_of_zeros.h"
#include "ops/sums/products_gpu.h"
#include "ops/tiles/panel_i8/panel_i8.h"

namespace dodona::ops {
namespace {

using Call = CutlassW4a8MoeMm;

constexpr std::int64_t chunk = 128, interleaved = 4;

ExpertProblems problems_of(const Call& op) {
  return {.offsets = op.experts_offsets,
          .sizes = op.problem_sizes,
          .m = op.a.size(0),
          .n = op.b.size(1),
          .k = op.a.size(1),
          .m_at = 1,
          .n_at = 0};
}

/// Whether four scales of a row lie next to each other.
bool interleaves(std::int64_t k) {
  return k % (interleaved * chunk) == 0;
}

void require_scales(const Call& op, std::int64_t k) {
  const std::int64_t n = op.b.size(1), together = interleaves(k) ? interleaved : 1;
  const Dims expected{op.b.size(0), k / chunk / together, n * together};
  if (op.b_scales.shape() != expected)
    throw Error(
        ErrorCode::bad_shape, "", "b_scales",
        "has shape " + to_string(op.b_scales.shape()) + ", expected " + to_string(expected) + ": b has N, K = " + to_string(Dims{n, k}));
}

void check(const Call& op) {
  const ExpertProblems p = problems_of(op);
  require_scales(op, p.k);
  require_all("a_strides", op.a_strides, p.k);
  require_all("b_strides", op.b_strides, p.k);
  require_all("d_strides", op.d_strides, p.n);
  require_all("s_strides", op.s_strides, p.n);
  require_problem_sizes(p);
  require_expert_offsets("experts_offsets", ints_of(op.experts_offsets), p.m);
  require_rows_apart(p);
}

void make_inputs(Call& op, std::uint64_t seed) {
  const ExpertProblems p = problems_of(op);
  fill_all(op.a_strides, p.k);
  fill_all(op.b_strides, p.k);
  fill_all(op.d_strides, p.n);
  fill_all(op.s_strides, p.n);
  make_problem_sizes(p, seed);
}

/// The weight of one expert: codes of `type`, [N, K], and their scales [N, K/128].
struct Weight {
  Tensor codes;
  std::vector<float> scales;
};

/// Which numbers wrong kernels take nibbles and scales for.
enum class Reading { right, unsigned_nibbles, high_nibble_first, scales_in_order };

Weight weight_of(const Call& op, std::int64_t e, DType type, Reading reading, const Exec& exec) {
  const std::int64_t n = op.b.size(1), k = op.a.size(1), groups = k / chunk;
  std::array<std::uint8_t, 16> code_of{};
  for (int nibble = 0; nibble < 16; ++nibble) {
    const Tensor one(type, {1});
    quant::set(one, 0, nibble < 8 || reading == Reading::unsigned_nibbles ? nibble : nibble - 16);
    code_of[static_cast<std::size_t>(nibble)] = one.as<std::uint8_t>()[0];
  }
  Weight weight{Tensor::uninitialized(type, {n, k}), std::vector<float>(static_cast<std::size_t>(n * groups))};
  const auto* const bytes = op.b.as<std::uint8_t>() + e * n * (k / 2);
  auto* const codes = weight.codes.as<std::uint8_t>();
  const int first = reading == Reading::high_nibble_first ? 4 : 0;
  const bool four = interleaves(k) && reading != Reading::scales_in_order;
  parallel_for(exec.threads, n, static_cast<double>(k), [&](std::int64_t j) {
    for (std::int64_t i = 0; i < k / 2; ++i) {
      const std::uint8_t both = bytes[j * (k / 2) + i];
      codes[j * k + 2 * i] = code_of[both >> first & 0xF];
      codes[j * k + 2 * i + 1] = code_of[both >> (4 - first) & 0xF];
    }
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t at = four ? (g / interleaved * n + j) * interleaved + g % interleaved : g * n + j;
      weight.scales[static_cast<std::size_t>(j * groups + g)] = static_cast<float>(quant::get(op.b_scales, e * n * groups + at));
    }
  });
  return weight;
}

Product product_of(const Call& op, const ExpertRows& rows, const Weight& weight) {
  const std::int64_t n = op.b.size(1), k = op.a.size(1);
  Product p;
  p.a = {
      .type = f8_e4m3, .codes = op.a.as<std::uint8_t>() + rows.row * k, .count = rows.rows, .k = k, .stride = k, .scales = {}, .zeros = {}};
  p.b = {.type = f8_e4m3,
         .codes = weight.codes.data(),
         .count = n,
         .k = k,
         .stride = k,
         .scales = {.data = weight.scales.data(), .k = chunk, .line_stride = k / chunk, .k_stride = 1},
         .zeros = {}};
  p.epilogue.factors = {{whole_term(op.a_scales), {}}};
  p.first = rows.row * n;
  return p;
}

/// Calls body(e, rows) for each expert with rows.
template <class Body>
void for_experts(const Call& op, const Body& body) {
  const std::vector<ExpertRows> experts = problems_of(op).experts();
  for (std::size_t e = 0; e < experts.size(); ++e)
    if (experts[e].rows > 0) body(static_cast<std::int64_t>(e), experts[e]);
}

template <Reading reading>
void golden(const Call& op, const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.d, reference, "d");
  out.make_open();
  const std::int64_t n = op.b.size(1);
  for_rows_of_nobody(problems_of(op).experts(), op.a.size(0), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * n; i < end * n; ++i) out.leave_open(i);
  });
  for_experts(op, [&](std::int64_t e, const ExpertRows& rows) {
    const Weight weight = weight_of(op, e, f8_e4m3, reading, exec);
    const Product product = product_of(op, rows, weight);
    golden_products({&product, 1}, hopper_fp8_promoted, out, reference != nullptr, exec);
  });
  open_signs_of_zeros(op.d, reference, "d");
}

void hopper(const Call& op, const Exec& exec) {
  clear_rows_of_nobody(problems_of(op).experts(), op.d);
  for_experts(op, [&](std::int64_t e, const ExpertRows& rows) {
    const Weight weight = weight_of(op, e, f8_e4m3, Reading::right, exec);
    Product product = product_of(op, rows, weight);
    constexpr static float source = 0;
    product.epilogue.addend = {{f32, &source}, {}};
    // A product of zero leaves no -0. One that is flushed keeps its sign where the source is added in the same step, as in the kernels
    // for K that is no multiple of 512.
    product.epilogue.fused = !interleaves(op.a.size(1));
    gpu_products({&product, 1}, hopper_fp8_promoted, op.d, exec);
  });
}

// ---- fast

/// The groups of all experts, empty ones as well; weights(e, rows) has those of an expert with rows.
template <class WeightsOf>
void multiply(const Call& op, const WeightsOf& weights, const Exec& exec) {
  const std::int64_t n = op.b.size(1), k = op.a.size(1);
  clear_rows_of_nobody(problems_of(op).experts(), op.d);
  const TileEpilogue epilogue{
      .steps = {{.values = op.a_scales.as<float>()}}, .count = 1, .out_type = bf16, .out = op.d.as<std::byte>(), .out_stride = n};
  std::vector<I8Group> groups;
  for_experts(op, [&](std::int64_t e, const ExpertRows& rows) {
    groups.push_back({.row = rows.row, .rows = rows.rows, .scale_row = 0, .weights = weights(e, rows.rows), .epilogue = epilogue});
  });
  i8_multiply({.format = I8Format::e4m3_i4, .groups = groups, .rows = op.a.size(0), .k = k, .codes = op.a.as<std::uint8_t>()}, exec);
}

I8Weights raw_weights(const Call& op, std::int64_t e) {
  const std::int64_t n = op.b.size(1), k = 2 * op.b.size(2);
  return {.codes = op.b.as<std::uint8_t>() + e * n * (k / 2),
          .scales = op.b_scales.as<std::uint8_t>() + e * n * (k / chunk) * 2,
          .n = n,
          .k = k};
}

void fast(const Call& op, const Exec& exec) {
  multiply(
      op, [&](std::int64_t e, std::int64_t) { return raw_weights(op, e); }, exec);
}

void fast_prepared(const Call& op, const Prepared& prepared, const Exec& exec) {
  const auto weights = [&](std::int64_t e, std::int64_t rows) -> I8Weights {
    return {.packed = reinterpret_cast<const std::uint8_t*>(packed_expert(prepared, e, rows)), .n = op.b.size(1), .k = op.a.size(1)};
  };
  multiply(op, weights, exec);
}

std::int64_t packed_bytes(const Call& op) {
  return i8_packed_bytes(I8Format::e4m3_i4, op.b.size(1), 2 * op.b.size(2));
}

void pack(const Call& op, std::byte* part, const Exec& exec) {
  try {
    require_scales(op, 2 * op.b.size(2));
  } catch (const Error& error) {
    throw error.within(std::string(Call::info.name));
  }
  i8_pack(I8Format::e4m3_i4, raw_weights(op, 0), part, exec);
}

double flops(const Call& op) {
  return grouped_flops(problems_of(op));
}
double bytes_read(const Call& op) {
  return grouped_bytes(problems_of(op), 1.0, 0.5 + 2.0 / chunk);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_cutlass_w4a8_moe_mm() {
  using enum ops::Reading;
  return define<ops::CutlassW4a8MoeMm>({
      .contract = R"(
For each 128 of K, ascending: t = sum of the products of fp8 numbers and 4-bit integers (exact in fp32), acc = fma(t, b_scale, acc) in
fp32 from +0; d = rn(fma(acc, a_scales, +0)), to nearest even: the epilogue adds a source that is not there, so that products of
zero are +0 (those of a kernel that adds none pass too). NaN and infinities follow IEEE. Rows of no expert are unspecified (outside of
golden mode zero), and nothing of an expert without rows is read. Budget of acc: that of fp8_blockwise_scaled_mm with b_scale alone
(weights are numbers of e4m3, and t the sum of four steps of the H200's fp8 tensor core); then 2^-24 relative for the product with
a_scales. Hopper mode: by that formula, denormals flushed; where K is a multiple of 512
the source is added to the flushed product.)",
      .contract_version = 3,
      .golden = ops::golden<right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .prepare = {{"b", "b_scales"}, true, ops::packed_bytes, ops::pack, ops::fast_prepared},
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .flops = ops::flops,
      .bytes_read = ops::bytes_read,
      .mistakes = {{"nibbles-unsigned", "codes are taken for 0 to 15", ops::golden<unsigned_nibbles>},
                   {"high-nibble-first", "the first of two codes is taken from the high nibble", ops::golden<high_nibble_first>},
                   {"scales-not-interleaved", "scales that lie four of a row together are read group by group",
                    ops::golden<scales_in_order>}},
      .customary = {{"*", CustomaryKind::close, 1e-2, 0.1, "sgl-kernel/tests/test_cutlass_w4a8_moe_mm.py"}},
      .cases = {"M=9 N=48 K=512 E=3 G=1", "M=13 N=40 K=256 E=2 G=2", "M=7 N=33 K=1024 E=2 G=2 --dist wide-exponent",
                "M=29 N=20 K=384 E=1 G=3",
                "M=11 N=32 K=128 E=3 G=1 --with problem_sizes --with a_strides --with b_strides --with d_strides --with s_strides"},
      .bench_cases = {"M=1 N=4096 K=7168 E=1 G=14", "M=4 N=4096 K=7168 E=1 G=14", "M=16 N=4096 K=7168 E=1 G=14",
                      "M=64 N=4096 K=7168 E=1 G=14", "M=256 N=4096 K=7168 E=1 G=14", "M=8 N=4096 K=7168 E=9 G=14",
                      "M=64 N=4096 K=7168 E=9 G=14"},
  });
}
}  // namespace dodona
