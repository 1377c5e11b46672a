#include "ops/moe/grouped/fused_moe_kernel.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/base/packed_expert.h"
#include "ops/base/require.h"
#include "ops/schemes/sorted_pairs.h"
#include "ops/sums/products_gpu.h"
#include "ops/tiles/float_vector.h"
#include "ops/tiles/panel/panel.h"
#include "ops/tiles/panel_i8/panel_i8.h"

namespace dodona::ops {
namespace {

/// What upstream's flags ask for.
enum class Kind { half, fp8_tensor, fp8_channel, fp8_blocks, int8_channel, int8_blocks, w8a16, groups_of_int8, groups_of_int4 };

constexpr std::string_view kind_names[] = {"no quantization",
                                           "use_fp8_w8a8",
                                           "use_fp8_w8a8 with per_channel_quant",
                                           "use_fp8_w8a8 with block_shape",
                                           "use_int8_w8a8 with per_channel_quant",
                                           "use_int8_w8a8 with block_shape",
                                           "use_int8_w8a16",
                                           "use_int8_w8a16 with block_shape",
                                           "use_int4_w4a16"};
std::string name_of(Kind kind) {
  return std::string(kind_names[static_cast<int>(kind)]);
}

Kind kind_of(const FusedMoeKernel& op) {
  const bool blocks = op.block_n > 0 && op.block_k > 0;
  if (op.use_fp8_w8a8) return blocks ? Kind::fp8_blocks : op.per_channel_quant ? Kind::fp8_channel : Kind::fp8_tensor;
  if (op.use_int8_w8a8) return blocks ? Kind::int8_blocks : Kind::int8_channel;
  if (op.use_int4_w4a16) return Kind::groups_of_int4;
  if (op.use_int8_w8a16) return op.block_k > 0 ? Kind::groups_of_int8 : Kind::w8a16;
  return Kind::half;
}
bool has_groups(Kind kind) {
  return kind == Kind::groups_of_int8 || kind == Kind::groups_of_int4;
}
bool has_blocks(Kind kind) {
  return kind == Kind::fp8_blocks || kind == Kind::int8_blocks;
}
bool is_fp8(Kind kind) {
  return kind == Kind::fp8_tensor || kind == Kind::fp8_channel || kind == Kind::fp8_blocks;
}
/// A and its scales are codes.
bool quantizes_rows(Kind kind) {
  return is_fp8(kind) || kind == Kind::int8_channel || kind == Kind::int8_blocks;
}

std::int64_t ceil_div(std::int64_t x, std::int64_t y) {
  return (x + y - 1) / y;
}

struct Sizes {
  std::int64_t rows, n, k, experts, pairs;
};
Sizes sizes_of(const FusedMoeKernel& op) {
  return {op.A.size(0), op.B.size(1), op.A.size(1), op.B.size(0), op.topk_ids.elements()};
}

SortedPairs sorted_of(const FusedMoeKernel& op) {
  return {op.sorted_token_ids, op.expert_ids, op.num_tokens_post_padded, op.block_size_m, op.topk_ids.elements(), op.B.size(0)};
}

// ---- what must fit

void require_one_mode(const FusedMoeKernel& op) {
  const std::pair<const char*, bool> flags[] = {{"use_fp8_w8a8", op.use_fp8_w8a8},
                                                {"use_int8_w8a8", op.use_int8_w8a8},
                                                {"use_int8_w8a16", op.use_int8_w8a16},
                                                {"use_int4_w4a16", op.use_int4_w4a16}};
  std::string first;
  for (const auto& [name, set] : flags) {
    if (!set) continue;
    if (!first.empty()) throw Error(ErrorCode::bad_value, "", name, "is true, expected false beside " + first);
    first = name;
  }
  if (op.use_int8_w8a8 && !op.per_channel_quant && op.block_k == 0)
    throw Error(ErrorCode::bad_value, "", "per_channel_quant", "is false, expected true: int8 has scales per channel or a block_shape");
  if (op.use_int4_w4a16 && op.block_k == 0)
    throw Error(ErrorCode::bad_value, "", "block_shape_1", "is 0, expected the numbers of K of a group, as use_int4_w4a16 has them");
  const Kind kind = kind_of(op);
  if (op.block_k == 0 && op.block_n != 0)
    throw Error(ErrorCode::bad_value, "", "block_shape_1", "is 0, expected the numbers of K that share a scale beside block_shape_0");
  if (op.block_k > 0 && !has_groups(kind) && !has_blocks(kind))
    throw Error(ErrorCode::bad_value, "", quantizes_rows(kind) ? "block_shape_0" : "block_shape_1",
                quantizes_rows(kind) ? "is 0, expected the rows n that share a scale" : "expected 0: there are no scales");
  if (has_groups(kind) && op.block_n != 0)
    throw Error(ErrorCode::bad_value, "", "block_shape_0", "is " + std::to_string(op.block_n) + ", expected 0: each n has its own scales");
  if (has_blocks(kind) && op.block_k % op.block_size_k != 0)
    throw Error(ErrorCode::bad_value, "", "BLOCK_SIZE_K",
                "is " + std::to_string(op.block_size_k) + ", expected a divisor of block_shape_1 = " + std::to_string(op.block_k));
}

void require_types(const FusedMoeKernel& op, Kind kind) {
  const std::string mode = name_of(kind);
  if (is_fp8(kind)) {
    require_type("A", op.A, f8_e4m3, mode);
    require_type("B", op.B, f8_e4m3, mode);
  } else if (quantizes_rows(kind)) {
    require_type("A", op.A, i8, mode);
    require_type("B", op.B, i8, mode);
  } else if (kind == Kind::half) {
    if (op.A.dtype() != bf16 && op.A.dtype() != f16)
      throw Error(ErrorCode::bad_dtype, "", "A", "has dtype " + std::string(name(op.A.dtype())) + ", expected bf16 or f16: " + mode);
    require_type("B", op.B, op.A.dtype(), "A has it");
  } else {
    require_type("A", op.A, op.compute_type, "that is compute_type, which weights are widened to");
    require_type("B", op.B, has_groups(kind) ? u8 : i8, mode);
  }
}

void require_shapes(const FusedMoeKernel& op, Kind kind) {
  const Sizes s = sizes_of(op);
  const std::string mode = name_of(kind);
  std::vector<Dims> rows, weights, zeros;
  if (kind == Kind::fp8_tensor) rows = {{1}, {1, 1}}, weights = {{s.experts}, {s.experts, 1, 1}};
  if (kind == Kind::fp8_channel || kind == Kind::int8_channel) rows = {{s.rows, 1}};
  if (kind == Kind::fp8_channel || kind == Kind::int8_channel || kind == Kind::w8a16) weights = {{s.experts, s.n}, {s.experts, s.n, 1}};
  if (has_blocks(kind)) {
    rows = {{s.rows, ceil_div(s.k, op.block_k)}};
    weights = {{s.experts, ceil_div(s.n, op.block_n), ceil_div(s.k, op.block_k)}};
  }
  if (has_groups(kind)) {
    if (s.k % op.block_k != 0)
      throw Error(ErrorCode::bad_value, "", "block_shape_1",
                  "is " + std::to_string(op.block_k) + ", expected a divisor of K = " + std::to_string(s.k));
    weights = {{s.experts, s.n, s.k / op.block_k}};
    if (op.B_zp.defined()) zeros = {{s.experts, kind == Kind::groups_of_int4 ? s.n / 2 : s.n, s.k / op.block_k}};
    if (op.B_zp.defined() && kind == Kind::groups_of_int4 && s.n % 2 != 0)
      throw Error(ErrorCode::bad_shape, "", "B", "has N = " + std::to_string(s.n) + ", expected an even number beside B_zp of two a byte");
    if (op.bias.defined()) throw Error(ErrorCode::bad_value, "", "bias", "is given, expected none: the kernel of groups adds none");
  }
  require_shape("A_scale", op.A_scale, rows, mode);
  require_shape("B_scale", op.B_scale, weights, mode);
  require_shape("B_zp", op.B_zp, zeros, mode);
  if (op.B_scale.defined() && !has_groups(kind)) require_type("B_scale", op.B_scale, f32, mode);
}

void check(const FusedMoeKernel& op) {
  require_one_mode(op);
  const Kind kind = kind_of(op);
  require_types(op, kind);
  require_shapes(op, kind);
  require_sorted_pairs(sorted_of(op), op.filter_expert);
}

void make_inputs(FusedMoeKernel& op, std::uint64_t seed) {
  make_sorted_pairs(sorted_of(op), ints_of(op.topk_ids), op.filter_expert, seed);
}

double flops(const FusedMoeKernel& op) {
  const Sizes s = sizes_of(op);
  double rows = 0;
  for (const ExpertPairs& expert : pairs_by_expert(sorted_of(op)))
    rows += expert.expert < 0 ? 0.0 : static_cast<double>(expert.pairs.size());
  return 2.0 * rows * static_cast<double>(s.n) * static_cast<double>(s.k);
}

double bytes_read(const FusedMoeKernel& op) {
  double experts = 0;
  for (const ExpertPairs& expert : pairs_by_expert(sorted_of(op))) experts += expert.expert < 0 ? 0.0 : 1.0;
  const auto bytes = [](const Tensor& t) { return static_cast<double>(bytes_for(t.dtype(), t.elements())); };
  return bytes(op.A) + bytes(op.B) * experts / static_cast<double>(op.B.size(0));
}

// ---- rows and weights of an expert

/// Rows of A, their scales and their factors in the order of the pairs of one expert.
struct Gathered {
  std::vector<std::byte> codes;
  std::vector<float> scales, weights;
  std::int64_t scale_columns = 0;
};

Gathered gather(const FusedMoeKernel& op, const std::vector<std::int64_t>& pairs) {
  const std::int64_t k = op.A.size(1), row_bytes = k * bits(op.A.dtype()) / 8;
  Gathered g;
  g.codes.resize(pairs.size() * static_cast<std::size_t>(row_bytes));
  const bool by_row = op.A_scale.defined() && kind_of(op) != Kind::fp8_tensor;
  g.scale_columns = by_row ? op.A_scale.size(1) : 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const std::int64_t row = pairs[i] / op.top_k;
    std::memcpy(g.codes.data() + static_cast<std::int64_t>(i) * row_bytes, op.A.as<std::byte>() + row * row_bytes,
                static_cast<std::size_t>(row_bytes));
    for (std::int64_t c = 0; c < g.scale_columns; ++c) g.scales.push_back(op.A_scale.as<float>()[row * g.scale_columns + c]);
    if (op.mul_routed_weight) g.weights.push_back(op.topk_weights.as<float>()[pairs[i]]);
  }
  return g;
}

Tensor dense(const Tensor& t) {
  return !t.defined() || t.contiguous() ? t : t.clone();
}
/// The call with all that is not the weights without gaps.
FusedMoeKernel without_gaps(const FusedMoeKernel& op) {
  FusedMoeKernel made = op;
  for (Tensor* t : {&made.A, &made.bias, &made.A_scale, &made.B_scale, &made.B_zp}) *t = dense(*t);
  return made;
}
/// The weights of expert e without gaps: a copy of no more than these.
Tensor weights_of(const FusedMoeKernel& op, std::int64_t e) {
  return dense(op.B.slice(0, e, e + 1));
}

/// The matrix of expert e in a stack of them that has no gaps.
const std::byte* matrix_of(const Tensor& stack, std::int64_t e) {
  return stack.as<std::byte>() + bytes_for(stack.dtype(), stack.elements() / stack.size(0)) * e;
}

/// Weights of groups as the kernel multiplies them: rn(fl32((code - zero) * scale)) of the type of A, [N, K].
Tensor widened_groups(const FusedMoeKernel& op, const std::byte* weight, std::int64_t e, bool zeros, const Exec& exec) {
  const Sizes s = sizes_of(op);
  const bool four = kind_of(op) == Kind::groups_of_int4;
  const std::int64_t groups = s.k / op.block_k;
  const auto* const codes = reinterpret_cast<const std::uint8_t*>(weight);
  const std::byte* const scales = matrix_of(op.B_scale, e);
  const auto* const points = op.B_zp.defined() ? reinterpret_cast<const std::uint8_t*>(matrix_of(op.B_zp, e)) : nullptr;
  Tensor wide = Tensor::uninitialized(op.A.dtype(), {s.n, s.k});
  parallel_for(exec.threads, s.n, 4.0 * static_cast<double>(s.k), [&](std::int64_t n) {
    std::vector<float> row(static_cast<std::size_t>(s.k));
    for (std::int64_t g = 0; g < groups; ++g) {
      const auto scale = static_cast<float>(quant::load(op.B_scale.dtype(), scales, n * groups + g));
      float zero = zeros ? (four ? 8.0f : 128.0f) : 0.0f;
      if (points != nullptr && zeros)
        zero = static_cast<float>(four ? points[n / 2 * groups + g] >> (n % 2 * 4) & 0xF : points[n * groups + g]);
      for (std::int64_t k = g * op.block_k; k < (g + 1) * op.block_k; ++k) {
        const int code = four ? codes[(n * s.k + k) / 2] >> (k % 2 * 4) & 0xF : codes[n * s.k + k];
        row[static_cast<std::size_t>(k)] = (static_cast<float>(code) - zero) * scale;
      }
    }
    quant::from_f32(wide.dtype(), row.data(), wide.as<std::byte>() + n * s.k * 2, s.k);
  });
  return wide;
}

// ---- golden mode, and GPUs'

bool on_warpgroups(const FusedMoeKernel& op) {
  const bool swapped = op.swap_ab && is_fp8(kind_of(op));
  return (swapped ? op.block_size_n : op.block_size_m) >= 64;
}

Accumulator accumulator_of(const FusedMoeKernel& op) {
  const Kind kind = kind_of(op);
  if (kind == Kind::int8_channel) {
    Accumulator sum = int32_exact;
    sum.promote_every = op.block_size_k;
    sum.keeps_denormals = true;
    return sum;
  }
  if (has_blocks(kind)) {
    Accumulator sum = kind == Kind::int8_blocks ? int32_exact
                      : on_warpgroups(op)       ? triton_fp8_promoted(op.block_size_k)
                                                : triton_fp8_mma_sync_promoted(op.block_size_k);
    sum.promote_every = op.block_size_k;
    sum.keeps_denormals = true;
    const bool swapped = op.swap_ab && is_fp8(kind);
    sum.scaling = op.block_size_n <= op.block_n ? Scaling::by_product : swapped ? Scaling::in_turn_back : Scaling::in_turn;
    return sum;
  }
  if (is_fp8(kind)) return on_warpgroups(op) ? hopper_fp8 : hopper_fp8_mma_sync;
  Accumulator sum = half_in_parts;
  sum.parts = 1;
  // Threads hold four bytes along K: a tile of 16 is one step of them, whatever its order.
  if (kind != Kind::half && !on_warpgroups(op) && op.block_size_k > 16) sum.unit = &quant::tensor_core::half_mma_of_bytes;
  return sum;
}

/// How wrong kernels go about it.
enum class Mistake { none, weight_after_rounding, bias_behind_weight, zero_points_left_out, next_expert };

/// The product of one expert with what it refers to.
struct ExpertProduct {
  Gathered rows;
  Tensor stored, weights;
  Product product;
};

void set_product(const FusedMoeKernel& op, const ExpertPairs& expert, bool zeros, const Exec& exec, ExpertProduct& made) {
  const Sizes s = sizes_of(op);
  const Kind kind = kind_of(op);
  made.rows = gather(op, expert.pairs);
  Product& p = made.product;
  p.a = {.type = op.A.dtype(),
         .codes = made.rows.codes.data(),
         .count = static_cast<std::int64_t>(expert.pairs.size()),
         .k = s.k,
         .stride = s.k,
         .scales = {},
         .zeros = {}};
  made.stored = weights_of(op, expert.expert);
  p.b = {.type = op.B.dtype(), .codes = made.stored.data(), .count = s.n, .k = s.k, .stride = s.k, .scales = {}, .zeros = {}};
  p.rows = expert.pairs;
  p.epilogue.keeps_denormals = true;
  if (has_groups(kind)) {
    made.weights = widened_groups(op, made.stored.as<std::byte>(), expert.expert, zeros, exec);
    p.b.type = op.A.dtype();
    p.b.codes = made.weights.data();
  }
  if (kind == Kind::w8a16) {
    made.weights = Tensor::uninitialized(op.A.dtype(), {s.n, s.k});
    for (std::int64_t i = 0; i < s.n * s.k; ++i) quant::set(made.weights, i, static_cast<const std::int8_t*>(p.b.codes)[i]);
    p.b.type = op.A.dtype();
    p.b.codes = made.weights.data();
  }
  const auto* const scales = op.B_scale.defined() ? matrix_of(op.B_scale, expert.expert) : nullptr;
  const Term column{f32, scales, 0, 1};
  if (has_blocks(kind)) {
    p.a.scales = {.data = made.rows.scales.data(), .k = op.block_k, .line_stride = made.rows.scale_columns, .k_stride = 1};
    p.b.scales = {.data = scales, .lines = op.block_n, .k = op.block_k, .line_stride = ceil_div(s.k, op.block_k), .k_stride = 1};
  }
  if (kind == Kind::fp8_tensor) p.epilogue.factors = {{whole_term(op.A_scale), {f32, scales}}};
  if (kind == Kind::fp8_channel || kind == Kind::int8_channel) p.epilogue.factors = {{Term{f32, made.rows.scales.data(), 1, 0}, column}};
  if (kind == Kind::w8a16) p.epilogue.factors = {{column, {}}};
  if (op.bias.defined()) {
    p.epilogue.addend.a = {op.bias.dtype(), matrix_of(op.bias, expert.expert), 0, 1};
    p.epilogue.fused = !p.epilogue.factors.empty();
  }
  if (op.mul_routed_weight) p.epilogue.last = {f32, made.rows.weights.data(), 1, 0};
}

/// Which rows of C blocks make: 0 none, 1 zeros, 2 products.
std::vector<char> made_rows(const FusedMoeKernel& op, const std::vector<ExpertPairs>& experts) {
  std::vector<char> made(static_cast<std::size_t>(sizes_of(op).pairs), 0);
  for (const ExpertPairs& expert : experts)
    for (const std::int64_t pair : expert.pairs) made[static_cast<std::size_t>(pair)] = expert.expert < 0 ? 1 : 2;
  return made;
}

/// Either scale first, or their product: golden mode's slack has room for all.
void multiply_in_turn(Epilogue& epilogue) {
  if (epilogue.factors.empty() || epilogue.factors[0].b.data == nullptr) return;
  epilogue.factors.push_back({epilogue.factors[0].b, {}});
  epilogue.factors[0].b = {};
}

template <Mistake mistake>
void golden(const FusedMoeKernel& call, const Exec& exec, Reference* reference) {
  const FusedMoeKernel op = without_gaps(call);
  const Sizes s = sizes_of(op);
  const GoldenOutput out(op.C, reference, "C");
  out.make_open();
  const std::vector<ExpertPairs> experts = pairs_by_expert(sorted_of(op));
  const std::vector<char> made = made_rows(op, experts);
  for (std::int64_t i = 0; i < s.pairs * s.n; ++i) {
    const char row = made[static_cast<std::size_t>(i / s.n)];
    if (row == 0) out.leave_open(i);
    if (row == 1) out.put(i, Bounded{0.0});
  }
  for (ExpertPairs expert : experts) {
    if (expert.expert < 0) continue;
    if (mistake == Mistake::next_expert) expert.expert = (expert.expert + 1) % s.experts;
    ExpertProduct made_of;
    set_product(op, expert, mistake != Mistake::zero_points_left_out, exec, made_of);
    multiply_in_turn(made_of.product.epilogue);
    if (Epilogue& epilogue = made_of.product.epilogue; mistake == Mistake::bias_behind_weight && epilogue.last.data != nullptr) {
      epilogue.factors.push_back({epilogue.last, {}});
      epilogue.last = {};
    }
    if (mistake == Mistake::weight_after_rounding) {
      // Rounded without the factor, then multiplied and rounded again.
      made_of.product.epilogue.last = {};
      golden_products({&made_of.product, 1}, accumulator_of(op), GoldenOutput(op.C, nullptr, "C"), false, exec);
      for (const std::int64_t pair : expert.pairs)
        for (std::int64_t i = pair * s.n; i < (pair + 1) * s.n; ++i)
          out.put(i, Bounded{quant::get(op.C, i) * (op.mul_routed_weight ? op.topk_weights.as<float>()[pair] : 1.0f)});
    } else {
      golden_products({&made_of.product, 1}, accumulator_of(op), out, reference != nullptr, exec);
    }
  }
}

void clear_other_rows(const FusedMoeKernel& op, const std::vector<ExpertPairs>& experts) {
  const std::vector<char> made = made_rows(op, experts);
  const std::int64_t row_bytes = op.B.size(1) * 2;
  for (std::size_t pair = 0; pair < made.size(); ++pair)
    if (made[pair] != 2)
      std::memset(op.C.as<std::byte>() + static_cast<std::int64_t>(pair) * row_bytes, 0, static_cast<std::size_t>(row_bytes));
}

void on_gpu(const FusedMoeKernel& call, const Exec& exec) {
  const FusedMoeKernel op = without_gaps(call);
  const std::vector<ExpertPairs> experts = pairs_by_expert(sorted_of(op));
  clear_other_rows(op, experts);
  for (const ExpertPairs& expert : experts) {
    if (expert.expert < 0) continue;
    ExpertProduct made;
    set_product(op, expert, true, exec, made);
    gpu_products({&made.product, 1}, accumulator_of(op), op.C, exec);
  }
}

// ---- fast

/// Scales, bias and factors of one expert as steps; `bias` is that of the expert as floats.
TileEpilogue epilogue_of(const FusedMoeKernel& op, const ExpertPairs& expert, const Gathered& rows, const float* bias) {
  const Kind kind = kind_of(op);
  const auto* const scales = op.B_scale.defined() ? reinterpret_cast<const float*>(matrix_of(op.B_scale, expert.expert)) : nullptr;
  TileEpilogue e{.out_type = op.compute_type, .out = nullptr, .out_stride = op.B.size(1)};
  const auto push = [&e](const EpilogueStep& step) { e.steps[e.count++] = step; };
  if (kind == Kind::fp8_tensor) push({.values = op.A_scale.as<float>(), .by = scales});
  if (kind == Kind::fp8_channel || kind == Kind::int8_channel)
    push({.values = rows.scales.data(), .row_stride = 1, .by = scales, .by_column_stride = 1});
  if (kind == Kind::w8a16) push({.values = scales, .column_stride = 1});
  if (bias != nullptr) push({.kind = EpilogueStep::Kind::plus, .values = bias, .column_stride = 1, .fused = e.count > 0});
  if (op.mul_routed_weight) push({.values = rows.weights.data(), .row_stride = 1});
  return e;
}

/// An expert's weight, packed where that is another order than the raw one's: of e4m3. Raw ones are read where they are, unless gaps lie
/// within rows or the kernel knows none between them.
struct FastWeight {
  Tensor stored;
  const std::byte* data;
  std::int64_t stride;  ///< bytes from row to row
  bool in_panels;
};
FastWeight weight_of(const FusedMoeKernel& op, const Prepared& prepared, const ExpertPairs& expert) {
  const std::int64_t row_bytes = op.B.size(2) * bits(op.B.dtype()) / 8;
  if (prepared.defined())
    return {Tensor(), packed_expert(prepared, expert.expert, static_cast<std::int64_t>(expert.pairs.size())), row_bytes,
            op.B.dtype() == f8_e4m3};
  const Kind kind = kind_of(op);
  if (op.B.stride(2) == 1 && !has_groups(kind) && kind != Kind::int8_channel) {
    const Tensor in_place = op.B.slice(0, expert.expert, expert.expert + 1);
    return {in_place, in_place.as<std::byte>(), op.B.stride(1) * bits(op.B.dtype()) / 8, false};
  }
  const Tensor stored = weights_of(op, expert.expert);
  return {stored, stored.as<std::byte>(), row_bytes, false};
}

void multiply_panel(const FusedMoeKernel& op, const FastWeight& weight, const ExpertPairs& expert, const Gathered& rows,
                    const TileEpilogue& epilogue, const Exec& exec) {
  const Sizes s = sizes_of(op);
  const Kind kind = kind_of(op);
  Tensor wide;
  if (has_groups(kind)) wide = widened_groups(op, weight.data, expert.expert, true, exec);
  const DType weight_type = wide.defined() ? wide.dtype() : op.B.dtype();
  PanelProduct p{.m = static_cast<std::int64_t>(expert.pairs.size()), .n = s.n, .k = s.k};
  p.a = {rows.codes.data(), s.k * bits(op.A.dtype()) / 8, 0, op.A.dtype()};
  p.b = wide.defined() ? PanelOperand{wide.as<std::byte>(), s.k * bits(weight_type) / 8, 0, weight_type}
                       : PanelOperand{weight.data, weight.stride, 0, weight_type};
  if (weight.in_panels) p.b = packed_operand(weight_type, weight.data, s.k);
  if (has_blocks(kind)) {
    p.block = op.block_k;
    p.a_scales = {rows.scales.data(), 1, rows.scale_columns, 1};
    p.b_scales = {reinterpret_cast<const float*>(matrix_of(op.B_scale, expert.expert)), op.block_n, ceil_div(s.k, op.block_k), 1};
  }
  p.epilogue = epilogue;
  panel_multiply(p, exec);
}

void multiply_integers(const FusedMoeKernel& op, const FastWeight& weight, const ExpertPairs& expert, const Gathered& rows,
                       const TileEpilogue& epilogue, const Exec& exec) {
  const Sizes s = sizes_of(op);
  const auto count = static_cast<std::int64_t>(expert.pairs.size());
  const auto* const codes = reinterpret_cast<const std::uint8_t*>(weight.data);
  const I8Group group{0, count, 0, {.codes = codes, .n = s.n, .k = s.k}, epilogue};
  i8_multiply({.format = I8Format::i8,
               .groups = {&group, 1},
               .rows = count,
               .k = s.k,
               .codes = reinterpret_cast<const std::uint8_t*>(rows.codes.data())},
              exec);
}

void fast_prepared(const FusedMoeKernel& call, const Prepared& prepared, const Exec& exec) {
  const FusedMoeKernel op = without_gaps(call);
  const Sizes s = sizes_of(op);
  const std::vector<ExpertPairs> experts = pairs_by_expert(sorted_of(op));
  clear_other_rows(op, experts);
  const FloatVector bias(op.bias, exec);
  const std::int64_t row_bytes = s.n * 2;
  std::vector<std::byte> sorted;
  for (const ExpertPairs& expert : experts) {
    if (expert.expert < 0) continue;
    const Gathered rows = gather(op, expert.pairs);
    sorted.resize(expert.pairs.size() * static_cast<std::size_t>(row_bytes));
    TileEpilogue epilogue = epilogue_of(op, expert, rows, op.bias.defined() ? bias.data() + expert.expert * s.n : nullptr);
    epilogue.out = sorted.data();
    const auto multiply = kind_of(op) == Kind::int8_channel ? multiply_integers : multiply_panel;
    multiply(op, weight_of(op, prepared, expert), expert, rows, epilogue, exec);
    for (std::size_t i = 0; i < expert.pairs.size(); ++i)
      std::memcpy(op.C.as<std::byte>() + expert.pairs[i] * row_bytes, sorted.data() + static_cast<std::int64_t>(i) * row_bytes,
                  static_cast<std::size_t>(row_bytes));
  }
}
void fast(const FusedMoeKernel& op, const Exec& exec) {
  fast_prepared(op, {}, exec);
}

std::int64_t packed_bytes(const FusedMoeKernel& op) {
  return op.B.dtype() == f8_e4m3 ? panel_packed_bytes(op.B.size(1), op.B.size(2)) : bytes_for(op.B.dtype(), op.B.elements());
}
/// Weights but those of e4m3 stay as they are.
void pack(const FusedMoeKernel& op, std::byte* part, const Exec& exec) {
  const std::int64_t n = op.B.size(1), k = op.B.size(2);
  if (op.B.dtype() == f8_e4m3) {
    panel_pack({dense(op.B).as<std::byte>(), k, 0, f8_e4m3}, n, k, part, exec);
  } else {
    std::memcpy(part, dense(op.B).data(), static_cast<std::size_t>(packed_bytes(op)));
  }
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_fused_moe_kernel() {
  const std::string fp8 = " --dtype A=f8_e4m3 --dtype B=f8_e4m3 --attr use_fp8_w8a8=true", rows = " --attr top_k=2",
                    blocks = " --attr block_shape_0=128 --attr block_shape_1=128 --attr BLOCK_SIZE_K=128",
                    int8 = " --dtype A=i8 --dtype B=i8 --attr use_int8_w8a8=true";
  return define<ops::FusedMoeKernel>({
      .contract = std::string(R"(
For each pair of a block whose expert is here: acc = sum over k of A * B; then, each rounded to fp32, acc * scales, + bias, and, with
mul_routed_weight, * topk_weights; C = rn of that to compute_type, to nearest even. Pairs of experts elsewhere (-1) become 0; those that
no block holds are unspecified (outside of golden mode 0). Scales, by mode. Per tensor and per channel: acc * A_scale * B_scale, 2 units
of 2^-24 (either first, or their product), the last in one rounding with the bias where there is one. Of blocks: as fp8_blockwise_scaled_mm, with a sum for each BLOCK_SIZE_K of K and its budget;
integer sums of a block are exact. int8 per channel: integer sums, added in fp32 for each BLOCK_SIZE_K: exact as long as fp32 holds them,
else a rounding of 2^-24 for each. use_int8_w8a16: codes as numbers of A's type, acc * B_scale. Of groups: weights are
rn(fl32((code - zero) * scale)) of compute_type before they are multiplied, zero 128, of 4 bits 8, or B_zp's.
 Budget of fp8 sums per tensor and per channel: as bmm_fp8's; the units are those of the tiles, `wgmma` where BLOCK_SIZE_M (with swap_ab
BLOCK_SIZE_N) is at least 64, else `mma.sync`, which keeps more. Of 16-bit sums: )") +
                  std::string(ops::half_sum_contract) + R"(
 Hopper mode: Triton's sums on an H200, no denormal flushed: one chain of steps over all of K, or one from zero for each BLOCK_SIZE_K,
added as fma(t, fl32(A_scale * B_scale), acc), and with BLOCK_SIZE_N above block_shape_0 as fma(fl32(t * A_scale), B_scale, acc), the
other one first with swap_ab. In 16-bit modes whose weights are bytes in memory, `mma.sync` takes of each 32 products those with k mod 4
below 2 first, as it does for fp8, unless BLOCK_SIZE_K is 16. Scales of tensors and channels are multiplied with each other first.)",
      .contract_version = 2,
      .golden = ops::golden<ops::Mistake::none>,
      .fast = ops::fast,
      .hopper = ops::on_gpu,
      .prepare = {.arguments = {"B"}, .by_part = true, .bytes = ops::packed_bytes, .pack = ops::pack, .fast = ops::fast_prepared},
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .flops = ops::flops,
      .bytes_read = ops::bytes_read,
      .mistakes = {{"routed-weight-after-rounding", "topk_weights multiply what was rounded to compute_type before",
                    ops::golden<ops::Mistake::weight_after_rounding>},
                   {"bias-not-weighted", "the bias is added behind the routing weight, and counts whole",
                    ops::golden<ops::Mistake::bias_behind_weight>},
                   {"zero-points-left-out", "codes of groups are multiplied without their zero points taken off",
                    ops::golden<ops::Mistake::zero_points_left_out>},
                   {"next-expert", "blocks are multiplied with the weights of the expert behind theirs",
                    ops::golden<ops::Mistake::next_expert>}},
      .customary = {{"*", CustomaryKind::close, 1e-2, 1e-2, "sglang/test/srt/test_fused_moe.py"}},
      .cases =
          {
              "M=5 topk=2 K=96 E=4 N=48 EM=256 NB=16" + rows,
              // NOLINTNEXTLINE(bugprone-suspicious-missing-comma)
              "M=6 topk=2 K=128 E=4 N=40 EM=256 NB=16 --dtype A=f16 --dtype B=f16 --attr compute_type=f16 --with bias "
              "--attr mul_routed_weight=true",
              "M=7 topk=2 K=256 E=3 N=80 Sa=1 Ka=1 Sn=1 Kg=1 EM=512 NB=16 --attr BLOCK_SIZE_M=64" + fp8,
              "M=5 topk=2 K=200 E=3 N=48 Sa=5 Ka=1 Sn=48 Kg=1 EM=256 NB=16 --attr per_channel_quant=true" + rows + fp8,
              "M=7 topk=2 K=320 E=3 N=192 Sa=14 Ka=3 Sn=2 Kg=3 EM=256 NB=16 --attr mul_routed_weight=true" + blocks + fp8,
              "M=5 topk=2 K=512 E=4 N=64 Sa=10 Ka=1 Sn=64 Kg=1 EM=256 NB=16 --attr per_channel_quant=true --with bias" + int8,
              "M=5 topk=2 K=256 E=4 N=160 Sa=5 Ka=2 Sn=2 Kg=2 EM=256 NB=16 --attr BLOCK_SIZE_N=256" + rows + blocks + int8,
              "M=5 topk=2 K=128 E=4 N=48 Sn=48 Kg=1 EM=256 NB=16 --dtype B=i8 --attr use_int8_w8a16=true --with bias "
              "--attr mul_routed_weight=true",
              "M=5 topk=2 K=128 E=4 N=48 Sn=48 Kg=2 EM=256 NB=16 --dtype B=u8 --dtype B_scale=bf16 --attr use_int8_w8a16=true "
              "--attr block_shape_1=64",
              "M=5 topk=2 K=128 E=4 N=48 Sn=48 Kg=4 Zn=24 Kz=4 EM=256 NB=16 --dtype A=f16 --dtype B=u8 --dtype B_scale=f16 "
              "--attr compute_type=f16 --attr use_int4_w4a16=true --attr block_shape_1=32 --with B_zp" +
                  rows,
          },
      .bench_cases = {"M=1 topk=8 K=7168 E=9 N=4096 Sa=1 Ka=56 Sn=32 Kg=56 EM=256 NB=16 --attr top_k=8" + blocks + fp8,
                      "M=16 topk=8 K=7168 E=9 N=4096 EM=512 NB=32 --attr top_k=8"},
  });
}
}  // namespace dodona
