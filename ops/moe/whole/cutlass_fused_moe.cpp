#include "ops/moe/whole/cutlass_fused_moe.h"

#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "ops/base/require.h"
#include "ops/schemes/whole_moe.h"
#include "quant/swizzle.h"

namespace dodona::ops {
namespace {

/// What the types of input and weights ask for.
enum class Form { half, fp8, fp8_blocks, fp4, fp4_made_here };

bool is_half(DType type) {
  return type == bf16 || type == f16;
}

Form form_of(const CutlassFusedMoe& op) {
  if (op.fc1_expert_weights.dtype() == u8) return op.input.dtype() == u8 ? Form::fp4 : Form::fp4_made_here;
  if (op.use_deepseek_fp8_block_scale) return Form::fp8_blocks;
  return op.input.dtype() == f8_e4m3 ? Form::fp8 : Form::half;
}
bool is_fp4(Form form) {
  return form == Form::fp4 || form == Form::fp4_made_here;
}
/// Numbers of a row come in multiples of this.
std::int64_t block_of(Form form) {
  return form == Form::fp8_blocks ? 128 : is_fp4(form) ? 64 : 16;
}
std::string name_of(Form form) {
  constexpr const char* names[] = {"no quantization", "fp8", "fp8 of blocks", "NVFP4", "NVFP4 made of 16-bit tokens"};
  return names[static_cast<int>(form)];
}

struct Sizes {
  std::int64_t tokens, slots, experts, hidden, width, sums;  ///< the last: of the first product
};
/// Of weights alone, which may be packed before there is a call, there are no tokens.
Sizes sizes_of(const CutlassFusedMoe& op) {
  const bool call = op.input.defined();
  return {call ? op.input.size(0) : 0,   call ? op.token_selected_experts.size(1) : 0,       op.fc1_expert_weights.size(0),
          op.fc2_expert_weights.size(1), op.fc1_expert_weights.size(1) / (op.gated ? 2 : 1), op.fc1_expert_weights.size(1)};
}

// ---- what must fit

void require_types(const CutlassFusedMoe& op, Form form) {
  const std::string why = name_of(form);
  switch (form) {
    case Form::half:
      if (!is_half(op.input.dtype()))
        throw Error(ErrorCode::bad_dtype, "", "input",
                    "has dtype " + std::string(name(op.input.dtype())) + ", expected that of the weights");
      require_type("fc1_expert_weights", op.fc1_expert_weights, op.input.dtype(), "input has it");
      break;
    case Form::fp8: require_type("fc1_expert_weights", op.fc1_expert_weights, f8_e4m3, "input has it"); break;
    case Form::fp8_blocks:
      require_type("input", op.input, bf16, why);
      require_type("fc1_expert_weights", op.fc1_expert_weights, f8_e4m3, why);
      break;
    case Form::fp4: break;
    case Form::fp4_made_here:
      if (!is_half(op.input.dtype()))
        throw Error(ErrorCode::bad_dtype, "", "input",
                    "has dtype " + std::string(name(op.input.dtype())) + ", expected u8, bf16 or f16 beside weights of NVFP4");
      break;
  }
  if (is_half(op.input.dtype()) && op.output_dtype != op.input.dtype())
    throw Error(ErrorCode::bad_dtype, "", "output_dtype",
                "is " + std::string(name(op.output_dtype)) + ", expected " + std::string(name(op.input.dtype())) + ": input has it");
}

void require_rank(const char* rank_name, std::int64_t rank, const char* size_name, std::int64_t size) {
  if (rank >= size)
    throw Error(ErrorCode::bad_value, "", rank_name,
                "is " + std::to_string(rank) + ", expected less than " + size_name + " = " + std::to_string(size));
}

/// Rows of so many numbers, a size that `witness` has.
void require_columns(const char* argument, const Tensor& t, const char* witness, std::int64_t numbers, bool packed, std::int64_t block) {
  const std::int64_t columns = packed ? numbers / 2 : numbers, found = t.size(-1);
  if (numbers % block != 0)
    throw Error(
        ErrorCode::bad_shape, "", argument,
        "has rows of " + std::to_string(numbers) + " numbers, as " + witness + " says, expected a multiple of " + std::to_string(block));
  if (found != columns)
    throw Error(ErrorCode::bad_shape, "", argument,
                "has rows of " + std::to_string(found) + ", expected " + std::to_string(columns) + ", as " + witness + " says");
}

/// Scales that a form has, by shape; empty: it has none.
struct Scales {
  std::vector<Dims> fc1_act, fc1_weight, dequant, fc2_act, fc2_weight, input;
};
Scales scales_of(const CutlassFusedMoe& op, Form form) {
  const Sizes s = sizes_of(op);
  const std::vector<Dims> each{{s.experts}}, one_or_each{{1}, {s.experts}};
  const auto tiles = [](std::int64_t rows, std::int64_t k) { return Dims{quant::align(rows, 128), quant::align(k / 16, 4)}; };
  const auto weight_tiles = [&](std::int64_t rows, std::int64_t k) {
    return std::vector<Dims>{{s.experts, tiles(rows, k)[0], tiles(rows, k)[1]}};
  };
  const auto blocks = [&](std::int64_t rows, std::int64_t k) { return std::vector<Dims>{{s.experts, rows / 128, k / 128}}; };
  switch (form) {
    case Form::half: return {};
    case Form::fp8: return {.dequant = each, .fc2_act = one_or_each};
    case Form::fp8_blocks: return {.fc1_weight = blocks(s.sums, s.hidden), .fc2_weight = blocks(s.hidden, s.width)};
    default: {
      Scales scales{.fc1_weight = weight_tiles(s.sums, s.hidden),
                    .dequant = each,
                    .fc2_act = one_or_each,
                    .fc2_weight = weight_tiles(s.hidden, s.width)};
      if (form == Form::fp4) {
        scales.input = {tiles(s.tokens, s.hidden)};
      } else {
        scales.fc1_act = one_or_each;
      }
      return scales;
    }
  }
}

void check(const CutlassFusedMoe& op) {
  const Form form = form_of(op);
  const Sizes s = sizes_of(op);
  require_rank("tp_rank", op.tp_rank, "tp_size", op.tp_size);
  require_rank("ep_rank", op.ep_rank, "ep_size", op.ep_size);
  require_types(op, form);
  const bool swiglu = op.activation == "silu" && op.gated, both = swiglu && op.limited == "gate";
  check_moe_parameters(
      op, {{"swiglu_alpha", &op.swiglu_alpha, both}, {"swiglu_beta", &op.swiglu_beta, both}, {"swiglu_limit", &op.swiglu_limit, swiglu}});
  const std::int64_t block = block_of(form);
  require_columns("input", op.input, "fc2_expert_weights", s.hidden, form == Form::fp4, block);
  require_columns("fc1_expert_weights", op.fc1_expert_weights, "fc2_expert_weights", s.hidden, is_fp4(form), block);
  require_columns("fc2_expert_weights", op.fc2_expert_weights, "fc1_expert_weights", s.width, is_fp4(form), block);
  const Scales scales = scales_of(op, form);
  const std::string why = name_of(form);
  require_shape("fc1_act_scale", op.fc1_act_scale, scales.fc1_act, why);
  require_shape("fc1_weight_scale", op.fc1_weight_scale, scales.fc1_weight, why);
  require_shape("fc1_dequant", op.fc1_dequant, scales.dequant, why);
  require_shape("fc2_act_scale", op.fc2_act_scale, scales.fc2_act, why);
  require_shape("fc2_weight_scale", op.fc2_weight_scale, scales.fc2_weight, why);
  require_shape("fc2_dequant", op.fc2_dequant, scales.dequant, why);
  require_shape("input_sf", op.input_sf, scales.input, why);
  if (op.fc1_weight_scale.defined()) require_type("fc1_weight_scale", op.fc1_weight_scale, is_fp4(form) ? f8_e4m3 : f32, why);
}

void make_inputs(CutlassFusedMoe& op, std::uint64_t seed) {
  const auto fill = [seed](const Tensor& t, const char* name, float unit) {
    if (!t.defined()) return;
    const InputDraw draw(seed, name);
    for (std::int64_t i = 0; i < t.elements(); ++i) {
      if (t.dtype() == f32) {
        t.as<float>()[i] = static_cast<float>(128 + draw.below(i, 256)) * unit;
      } else {
        quant::set(t, i, static_cast<double>(1 << draw.below(i, 4)) * 0.25);
      }
    }
  };
  fill(op.fc1_act_scale, "fc1_act_scale", 0x1p-2f);
  fill(op.fc1_weight_scale, "fc1_weight_scale", 0x1p-16f);
  fill(op.fc1_dequant, "fc1_dequant", op.input.dtype() == u8 ? 0x1p-14f : 0x1p-19f);
  fill(op.fc2_act_scale, "fc2_act_scale", 0x1p-4f);
  fill(op.fc2_dequant, "fc2_dequant", 0x1p-19f);
}

// ---- the composition

MoeScheme scheme_of(const CutlassFusedMoe& op, Form form) {
  const DType type = op.output_dtype;
  const bool fused = op.finalize == "fused";
  if (form == Form::fp8_blocks) {
    MoeScheme scheme = cutlass_fp8_blocks;
    scheme.terms_in_output = fused;
    if (fused) scheme.results = f32;
    return scheme;
  }
  const Requantizer narrow{.code = type};
  MoeScheme scheme{.numbers = type == f16 ? MoeNumbers::f16 : MoeNumbers::bf16,
                   .sums = half_in_parts,
                   .sums_become = narrow,
                   .activated_become = narrow,
                   .results = fused ? f32 : type,
                   .biases_behind = true,
                   .weights_in_f32 = true,
                   .terms_in_output = fused};
  if (form == Form::fp8) scheme.numbers = MoeNumbers::fp8, scheme.sums = hopper_fp8, scheme.activated_become = static_fp8;
  if (is_fp4(form)) {
    scheme.numbers = MoeNumbers::nvfp4;
    scheme.sums = op.accumulator == "tcgen05" ? tcgen05_nvfp4 : fp4_by_blocks;
    scheme.activated_become = encoded_nvfp4;
    scheme.activated_become.first = type;
    if (form == Form::fp4_made_here) scheme.rows_become = scheme.activated_become;
  }
  return scheme;
}

/// Scales of the tokens row by row.
Tensor untiled(const Tensor& tiles, std::int64_t rows, std::int64_t columns) {
  Tensor linear(f8_e4m3, {rows, columns});
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      linear.as<std::uint8_t>()[r * columns + c] =
          tiles.as<std::uint8_t>()[quant::scale_offset(quant::ScaleLayout::swizzled_128x4, r, c, columns)];
  return linear;
}

Tensor widened(const Tensor& t) {
  if (!t.defined()) return {};
  Tensor wide(f32, t.shape());
  quant::to_f32(t.dtype(), t.data(), wide.as<float>(), t.elements());
  return wide;
}

std::vector<TokenExperts> routes_of(const CutlassFusedMoe& op) {
  const Sizes s = sizes_of(op);
  std::vector<TokenExperts> routes(static_cast<std::size_t>(s.tokens));
  for (std::int64_t i = 0; i < s.tokens * s.slots; ++i) {
    TokenExperts& route = routes[static_cast<std::size_t>(i / s.slots)];
    route.experts.push_back(op.token_selected_experts.as<std::int32_t>()[i]);
    const float weight = op.token_final_scales.defined() ? op.token_final_scales.as<float>()[i] : 1.0f;
    route.weights.push_back({static_cast<double>(weight)});
  }
  return routes;
}

void take_weights(const CutlassFusedMoe& op, WholeMoe& moe) {
  const Sizes s = sizes_of(op);
  moe.first = {.codes = op.fc1_expert_weights, .scales = op.fc1_weight_scale, .n = s.sums, .k = s.hidden};
  moe.second = {.codes = op.fc2_expert_weights, .scales = op.fc2_weight_scale, .n = s.hidden, .k = s.width};
}

WholeMoe whole(const CutlassFusedMoe& op) {
  const Form form = form_of(op);
  const Sizes s = sizes_of(op);
  WholeMoe moe{.scheme = scheme_of(op, form), .x = op.input};
  if (form == Form::fp4) moe.x_scales = untiled(op.input_sf, s.tokens, s.hidden / 16);
  take_weights(op, moe);
  moe.activation = moe_activation(op);
  moe.gate_factor = op.fc1_dequant;
  if (op.gated) moe.up_factor = op.fc1_dequant;
  moe.out_factor = op.fc2_dequant;
  moe.rows_encode = op.fc1_act_scale;
  moe.activated_encode = op.fc2_act_scale;
  moe.first_bias = widened(op.fc1_expert_biases);
  if (op.tp_rank == 0) moe.second_bias = widened(op.fc2_expert_biases);
  moe.alpha = op.swiglu_alpha;
  moe.beta = op.swiglu_beta;
  moe.limit = op.swiglu_limit;
  moe.routes = routes_of(op);
  moe.first_expert = op.ep_rank * s.experts;
  moe.output = op.output;
  return moe;
}

template <MoeMistake mistake>
void golden(const CutlassFusedMoe& op, const Exec& exec, Reference* reference) {
  golden_whole_moe(whole(op), exec, reference, mistake);
}
/// Global ids are taken for this rank's.
void golden_without_rank(const CutlassFusedMoe& op, const Exec& exec, Reference* reference) {
  CutlassFusedMoe other = op;
  other.ep_rank = 0;
  golden<MoeMistake::none>(other, exec, reference);
}
/// Every rank adds the biases of the results.
void golden_with_all_biases(const CutlassFusedMoe& op, const Exec& exec, Reference* reference) {
  CutlassFusedMoe other = op;
  other.tp_rank = 0;
  golden<MoeMistake::none>(other, exec, reference);
}
/// Biases meet sums before their factors, and before any rounding.
void golden_with_early_biases(const CutlassFusedMoe& op, const Exec& exec, Reference* reference) {
  WholeMoe moe = whole(op);
  moe.scheme.biases_behind = false;
  golden_whole_moe(moe, exec, reference);
}
/// Weights are rounded to the output's type.
void golden_with_narrow_weights(const CutlassFusedMoe& op, const Exec& exec, Reference* reference) {
  WholeMoe moe = whole(op);
  for (TokenExperts& route : moe.routes)
    for (Bounded& weight : route.weights) weight.exact = quant::round_to(op.output_dtype, weight.exact);
  golden_whole_moe(moe, exec, reference);
}
/// Every expert uses the encode scale of the first.
void golden_with_one_encode_scale(const CutlassFusedMoe& op, const Exec& exec, Reference* reference) {
  WholeMoe moe = whole(op);
  if (moe.activated_encode.defined()) moe.activated_encode = moe.activated_encode.slice(0, 0, 1);
  golden_whole_moe(moe, exec, reference);
}

void run(const CutlassFusedMoe& op, const Exec& exec) {
  run_whole_moe(whole(op), exec);
}

// ---- packed weights

/// Scales of blocks and of NVFP4 are packed too.
WholeMoe weights_of(const CutlassFusedMoe& op) {
  const DType type = op.fc1_expert_weights.dtype();
  const bool blocks = type == f8_e4m3 && op.fc1_weight_scale.defined();
  const Form form = type == u8 ? Form::fp4_made_here : blocks ? Form::fp8_blocks : type == f8_e4m3 ? Form::fp8 : Form::half;
  constexpr MoeNumbers numbers[] = {MoeNumbers::bf16, MoeNumbers::fp8, MoeNumbers::fp8_blocks, MoeNumbers::nvfp4, MoeNumbers::nvfp4};
  const Sizes s = sizes_of(op);
  require_columns("fc1_expert_weights", op.fc1_expert_weights, "fc2_expert_weights", s.hidden, is_fp4(form), block_of(form));
  require_columns("fc2_expert_weights", op.fc2_expert_weights, "fc1_expert_weights", s.width, is_fp4(form), block_of(form));
  const Scales scales = scales_of(op, form);
  require_shape("fc1_weight_scale", op.fc1_weight_scale, scales.fc1_weight, name_of(form));
  require_shape("fc2_weight_scale", op.fc2_weight_scale, scales.fc2_weight, name_of(form));
  WholeMoe moe{.scheme = {.numbers = numbers[static_cast<int>(form)]}};
  take_weights(op, moe);
  return moe;
}

void pack(const CutlassFusedMoe& op, std::byte* part, const Exec& exec) {
  pack_whole_moe(weights_of(op), part, exec);
}
std::int64_t packed_bytes(const CutlassFusedMoe& op) {
  try {
    return whole_moe_packed_bytes(weights_of(op));
  } catch (const Error& error) {
    throw error.within(std::string(CutlassFusedMoe::info.name));
  }
}

void run_prepared(const CutlassFusedMoe& op, const Prepared& prepared, const Exec& exec) {
  WholeMoe moe = whole(op);
  take_packed(moe, prepared);
  run_whole_moe(moe, exec);
}

std::optional<Refusal> unsupported(const CutlassFusedMoe& op, Mode mode) {
  if (!of_a_gpu(mode)) return {};
  if (op.finalize == "fused") return Refusal{"finalize", "is fused, whose atomics add in no fixed order"};
  const bool hopper = mode == Mode::hopper;
  if (op.use_deepseek_fp8_block_scale && !hopper)
    return Refusal{"use_deepseek_fp8_block_scale", "is true, but that kernel is Hopper's alone"};
  if (op.fc1_expert_weights.dtype() == u8 && hopper) return Refusal{"fc1_expert_weights", "are of NVFP4, which Hopper does not multiply"};
  return {};
}

double flops(const CutlassFusedMoe& op) {
  return whole_moe_flops(whole(op));
}
double bytes_read(const CutlassFusedMoe& op) {
  return whole_moe_bytes(whole(op));
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_cutlass_fused_moe() {
  using namespace ops;
  const std::string fp8 = " --dtype input=f8_e4m3 --dtype fc1_expert_weights=f8_e4m3 --with fc1_dequant --with fc2_dequant",
                    blocks = " --dtype fc1_expert_weights=f8_e4m3 --attr use_deepseek_fp8_block_scale=true",
                    fp4 = " --dtype fc1_expert_weights=u8 --dtype fc1_weight_scale=f8_e4m3 --with fc1_dequant --with fc2_dequant",
                    f16_all = " --attr output_dtype=f16", limits = " --with swiglu_alpha --with swiglu_beta --with swiglu_limit";
  return define<CutlassFusedMoe>({
      .contract = std::string(whole_moe_contract) + R"(
 W1 x becomes fl32(acc * fc1_dequant) of fp8 and NVFP4 and is rounded to output_dtype; biases are added to that in fp32. h is rounded to
output_dtype; of fp8 it becomes e4m3(h * fc2_act_scale) instead, saturating at 448, unrounded before; of blocks each 128 of it, and of each
token, q = fl32(448 / amax), 1 where amax is 0, e4m3(h * q) and scale = fl32(1 / q); of NVFP4 it, and 16-bit tokens, are quantized as by
fp4_quantize with the encode scale. y = W2 h, times fc2_dequant, is rounded to output_dtype, the bias added, the product with the weight
rounded to fp32, the sum over slots in fp32. finalize=fused: y + bias is not rounded, its product with the weight is, to output_dtype, and
so is every sum; f16 that may leave its range in some order is not compared; with one slot zero keeps its sign. Sums: 16 bits: )" +
                  std::string(half_sum_contract) + R"( fp8: the steps of Hopper's unit over all of K, and K units in any order; blocks
restart every 128 as fp8_gemm_nt; NVFP4 as cutlass_fp4_group_mm.
 Evidence: recordings of an H100 (FlashInfer v0.5.3) in 16 bits, fp8 and fp8 of blocks: whatever tile, and whether operands are swapped, the
bits of finalize=separate are the same, and hopper mode's. There K is one ascending chain, of blocks one for each 128; silu is silu_and_mul's;
of blocks q = 448 * rcp(amax) and scale = rcp(q), approximate; sums over slots in order. NVFP4: sources alone. Other activations: an H200's
(0.6.18, that kernel alone between exact products), whose bits are hopper mode's: GELU by erf is a polynomial, by tanh 0.5 (g + g tanh(g (k + k c g g)))
with the approximate instruction; denormal gates, ups and sums with biases are flushed. Not here: Situ, MXFP4 and 4-bit integers as weights (which upstream's Python
functions of that version cannot pass), all-to-all, min_latency_mode, which upstream refuses too. Blackwell mode is a model, K in one
ascending chain.)",
      .contract_version = 3,
      .golden = golden<MoeMistake::none>,
      .fast = run,
      .hopper = run,
      .blackwell = run,
      .unsupported = unsupported,
      .prepare = {.arguments = {"fc1_expert_weights", "fc1_weight_scale", "fc2_expert_weights", "fc2_weight_scale"},
                  .by_part = true,
                  .bytes = packed_bytes,
                  .pack = pack,
                  .fast = run_prepared},
      .make_inputs = make_inputs,
      .check = check,
      .flops = flops,
      .bytes_read = bytes_read,
      .mistakes = {{"gate-and-up-swapped", "the rows of gate are taken for those of up", golden<MoeMistake::gate_and_up_swapped>},
                   {"weighted-twice", "the routing weights multiply the results twice", golden<MoeMistake::weighted_twice>},
                   {"narrow-weights", "the routing weights are rounded to the output's type", golden_with_narrow_weights, true},
                   {"rank-left-out", "global ids are taken for those of the first rank", golden_without_rank},
                   {"biases-of-every-rank", "ranks beyond the first add the biases of results too", golden_with_all_biases},
                   {"biases-before-factors", "biases are added to sums before their factors", golden_with_early_biases, true},
                   {"next-experts-scales", "weights are multiplied with the block scales of the expert behind theirs",
                    golden<MoeMistake::next_experts_scales>},
                   {"next-experts-factors", "sums are multiplied with the factors of the expert behind theirs",
                    golden<MoeMistake::next_experts_factors>},
                   {"first-experts-encode-scale", "activated numbers are quantized with the first expert's scale",
                    golden_with_one_encode_scale},
                   {"limit-behind-silu", "the limit is applied to the activated gate, not to the gate itself, or the other way round",
                    golden<MoeMistake::limit_misplaced>, true},
                   {"activated-in-full-precision", "nothing is rounded between the two products", golden<MoeMistake::activated_in_fp32>,
                    true}},
      .customary = {{"output", CustomaryKind::close, 1e-1, 1e-1, "tests/moe/test_trtllm_cutlass_fused_moe.py"}},
      .cases =
          {"T=5 X=128 K=2 L=4 I=64 X1=128 H=128 Y=64",
           "T=7 X=96 K=3 L=3 I=48 X1=96 H=96 Y=48 --dtype input=f16 --dtype fc1_expert_weights=f16 --attr ep_size=2 --attr ep_rank=1 "
           "--attr tp_size=2 --attr tp_rank=1 --with fc1_expert_biases --with fc2_expert_biases --attr finalize=fused" +
               f16_all + limits,
           "T=6 X=128 K=2 L=4 I=64 X1=128 H=128 Y=64 A2=4 --with fc1_expert_biases --with fc2_expert_biases" + fp8,
           "T=4 X=64 K=1 L=2 I=32 X1=64 H=64 Y=32 A2=1 --without token_final_scales" + fp8 + f16_all,
           "T=6 X=256 K=2 L=3 I=128 X1=256 H=256 Y=128 R1=2 C1=2 R2=2 C2=1" + blocks,
           "T=6 X=64 K=2 L=4 I=64 X1=64 H=128 Y=32 R1=128 C1=8 A2=4 R2=128 C2=4 --dtype input=u8 --with input_sf "
           "--attr accumulator=tcgen05" +
               fp4,
           "T=6 X=128 K=2 L=4 I=64 X1=64 H=128 Y=32 A1=4 R1=128 C1=8 A2=1 R2=128 C2=4" + fp4,
           "T=5 X=128 K=2 L=4 I=64 X1=128 H=128 Y=64 --attr gate_activation=gelu --with fc1_expert_biases",
           "T=5 X=128 K=2 L=4 I=64 X1=128 H=128 Y=64 --attr gate_activation=gelu_tanh --attr finalize=fused",
           "T=5 X=128 K=2 L=4 I=64 X1=128 H=128 Y=64 --attr limited=activated --with swiglu_limit",
           "T=5 X=128 K=2 L=4 I=64 X1=128 H=128 Y=64 A2=1 --attr gated=false --attr gate_activation=silu" + fp8,
           "T=6 X=128 K=2 L=4 I=64 X1=64 H=128 Y=32 A1=1 R1=128 C1=8 A2=1 R2=128 C2=4 --attr gated=false --attr gate_activation=relu2" +
               fp4,
           "T=5 X=128 K=2 L=4 I=64 X1=128 H=128 Y=64 --attr gated=false --attr gate_activation=relu --with fc1_expert_biases"},
      // Sums of so many normal numbers cancel below what codes that fall the other way may add up to: such a check would say nothing.
      .bench_cases = {"T=1 X=7168 K=8 L=8 I=2048 X1=7168 H=7168 Y=2048 R1=32 C1=56 R2=56 C2=16 --dist wide-exponent" + blocks,
                      "T=16 X=7168 K=4 L=8 I=2048 X1=3584 H=7168 Y=1024 A1=1 R1=4096 C1=448 A2=1 R2=7168 C2=128" + fp4,
                      "T=16 X=7168 K=4 L=8 I=2048 X1=7168 H=7168 Y=2048 --attr gate_activation=gelu_tanh",
                      "T=16 X=7168 K=4 L=8 I=2048 X1=7168 H=7168 Y=2048 --attr gated=false --attr gate_activation=relu2",
                      "T=16 X=7168 K=4 L=8 I=2048 X1=7168 H=7168 Y=2048 --attr limited=activated --with swiglu_limit"},
  });
}
}  // namespace dodona
