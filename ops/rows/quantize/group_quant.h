// What the quantizers by groups share: sgl_per_token_group_quant_8bit and its two names of old, in both versions of the kernel.
#pragma once

#include "core/define.h"
#include "quant/amax.h"
#include "quant/e4m3.h"

namespace dodona::ops {

using enum DType;

/// The schema; `Op` has the fields that it names. `codes` are the types of output_q.
template <class Op>
void describe_group_quant(auto& op, Op& fields, std::initializer_list<DType> codes) {
  constexpr bool maskable = requires {
    fields.masked_m;
  };
  op.signature(maskable
                   ? "input, output_q, output_s, group_size, eps, fp8_min, fp8_max, scale_ue8m0, fuse_silu_and_mul, masked_m, enable_v2"
                   : "input, output_q, output_s, group_size, eps, fp8_min, fp8_max, scale_ue8m0, fuse_silu_and_mul, enable_v2");
  op.in("input", fields.input, {bf16, f16, f32}, "M... K*(1+fuse_silu_and_mul)")
      .layout(Layout::contiguous)
      .doc("one token per row; with fuse_silu_and_mul gate and up, halves of each row; version 2 takes no f32");
  if constexpr (maskable)
    op.in("masked_m", fields.masked_m, {i32}, "E")
        .layout(Layout::contiguous)
        .role(Role::positions, "M/E+1")
        .on_request()
        .doc(
            "how many of each expert's M/E rows there are: the first ones; what is written for the others is unspecified (upstream leaves "
            "them as they are). With fuse_silu_and_mul, and rows of a multiple of 16 groups");
  op.attr("group_size", fields.group_size, between(16, 1 << 20))
      .doc("elements that share a scale, a multiple of 16; version 2: 16, 32, 64 or 128");
  op.attr("eps", fields.eps, between(1e-30, 1e30)).doc("least magnitude that a scale is made of; version 2: 1e-10");
  op.attr("fp8_min", fields.fp8_min).doc("least code value, -448 or, for i8, -128");
  op.attr("fp8_max", fields.fp8_max).doc("largest code value, 448 or, for i8, 127");
  op.attr("scale_ue8m0", fields.scale_ue8m0).doc("scales are powers of two, stored as exponents of eight bits");
  op.attr("fuse_silu_and_mul", fields.fuse_silu_and_mul).doc("silu of the gate times up is quantized; version 2 with scale_ue8m0");
  op.attr("enable_v2", fields.enable_v2)
      .recipe()
      .doc("version 2 of the kernel: it multiplies where version 1 divides, and has no floor of scales");
  op.choice("divide", fields.divide, {"rcp", "ieee"})
      .doc("how version 1 divides by fp8_max: rcp: a product with fl32(1/fp8_max), as fast-math builds do; ieee: a true division");
  op.out("output_q", fields.output_q, codes, "M... K").layout(Layout::contiguous).judged(Judge::code).doc("codes");
  op.out("output_s", fields.output_s, {f32, i32}, "M... ceil(K/(group_size*(1+3*scale_ue8m0)))")
      .layout(Layout::any)
      .codes(f8_e8m0)
      .scales("output_q", 1, 128)
      .padded()
      .doc(
          "what a code's value is multiplied with to give it back, f32; with scale_ue8m0 i32 words, the exponents of four groups in each, "
          "the "
          "first in the low byte. Upstream's callers make it column-major, rows padded to 4, and version 1 wants that of words");
  op.symbol("K", {.multiple_of = 16});
  if constexpr (!maskable) op.rows_independent("M");
}

/// One call, whatever its op.
struct GroupQuant {
  const Tensor &input, &output_q, &output_s;
  const Tensor* masked_m;  ///< undefined or nullptr: all rows are there
  std::int64_t group_size;
  float eps;
  double low, high;  ///< of codes, as the caller says
  bool powers, fused, version_2, true_division;

  bool integers() const { return output_q.dtype() == i8; }
  std::int64_t width() const { return output_q.size(-1); }
  std::int64_t groups() const { return width() / group_size; }
  bool masked() const { return masked_m != nullptr && masked_m->defined(); }
  bool has_row(std::int64_t m) const;
};
template <class Op>
GroupQuant group_quant(const Op& op) {
  const Tensor* masked = nullptr;
  if constexpr (requires { op.masked_m; }) masked = &op.masked_m;
  return {op.input,   op.output_q,    op.output_s,          masked,       op.group_size,      static_cast<float>(op.eps), op.fp8_min,
          op.fp8_max, op.scale_ue8m0, op.fuse_silu_and_mul, op.enable_v2, op.divide == "ieee"};
}

using GroupMaximum = float (*)(std::span<const float>);
/// `maximum` is quant::amax, or a mistake in its place.
void golden_group_quant(const GroupQuant& op, GroupMaximum maximum, const Exec& exec, Reference* reference);
/// Codes follow from the scale that was stored, or from the exponent that explains them, if that is a legitimate one.
void condition_group_quant(const GroupQuant& actual, const Exec& exec, Reference& reference);
void fast_group_quant(const GroupQuant& op, const Exec& exec);
void hopper_group_quant(const GroupQuant& op, const Exec& exec);
void check_group_quant(const GroupQuant& op);
std::optional<Refusal> group_quant_unsupported(const GroupQuant& op, Mode mode);
/// Whether byte `linear` of actual words is one more than the exponent that the codes were made with.
bool exponent_too_high(const GroupQuant& actual, std::int64_t linear);
/// Whether a code of 0 is what version 2 makes of a group whose largest magnitude is beyond 2^126.
bool inverse_flushed(const GroupQuant& actual, std::int64_t linear);

/// Mistake: the maximum of values, not of magnitudes.
float largest_value_of_group(std::span<const float> group);
/// Mistake: of each group the first half alone.
float largest_of_half_group(std::span<const float> group);

/// Outputs whose types follow from attributes. Nothing is certain of the arguments.
template <class Op>
void make_group_quant_outputs(Op& op) {
  const std::int64_t halves = op.fuse_silu_and_mul ? 2 : 1;
  if (!op.input.defined() || op.input.rank() == 0 || op.group_size < 1 || op.input.size(-1) % halves != 0) return;
  Dims shape = op.input.shape();
  std::int64_t& last = shape[shape.rank() - 1];
  last /= halves;
  if (!op.output_q.defined() && op.fp8_max < quant::e4m3_max) op.output_q = Tensor(i8, shape);
  last = ((last + op.group_size - 1) / op.group_size + 3) / 4;
  if (!op.output_s.defined() && op.scale_ue8m0) op.output_s = Tensor(i32, shape);
}

extern const std::string_view group_quant_contract;

/// All of an op but its case lines.
template <class Op>
Implementation<Op> group_quantizer() {
  Implementation<Op> all;
  all.contract = group_quant_contract;
  all.golden = [](const Op& op, const Exec& exec, Reference* reference) {
    golden_group_quant(group_quant(op), quant::amax, exec, reference);
  };
  all.fast = [](const Op& op, const Exec& exec) { fast_group_quant(group_quant(op), exec); };
  all.hopper = [](const Op& op, const Exec& exec) { hopper_group_quant(group_quant(op), exec); };
  all.unsupported = [](const Op& op, Mode mode) { return group_quant_unsupported(group_quant(op), mode); };
  all.make_outputs = make_group_quant_outputs<Op>;
  all.check = [](const Op& op) { check_group_quant(group_quant(op)); };
  all.condition = [](const Op& actual, const Exec& exec, Reference& reference) {
    condition_group_quant(group_quant(actual), exec, reference);
  };
  all.defects = {
      {"ue8m0-exponent-too-high", "output_s",
       "version 1 stores the exponent one too high wherever the scale is below 1 (the approximate logarithm of a power of two falls short "
       "of "
       "the whole number, and is cut toward zero); the codes are made with the right one",
       [](const Op& actual, std::string_view output, std::int64_t linear) {
         return output == "output_s" && exponent_too_high(group_quant(actual), linear);
       }},
      {"inverse-flushed", "output_q",
       "version 2 divides the largest code by the largest magnitude of a group, and where that is beyond 2^126 the approximate "
       "division gives 0, and so every code of the group is 0",
       [](const Op& actual, std::string_view output, std::int64_t linear) {
         return output == "output_q" && inverse_flushed(group_quant(actual), linear);
       }},
      {"row-major-exponents", "output_s",
       "version 1 with scale_ue8m0 and row-major output_s writes f32 scales over the words: the assertion against it is compiled out"},
      {"fusion-ignored", "output_q",
       "version 2 runs without fuse_silu_and_mul and masked_m, and does not say so, unless output_s is column-major and scale_ue8m0 is "
       "set"}};
  all.mistakes = {
      {"maximum-without-magnitude", "the maximum is taken of values, not of magnitudes",
       [](const Op& op, const Exec& exec, Reference* reference) {
         golden_group_quant(group_quant(op), largest_value_of_group, exec, reference);
       }},
      {"maximum-of-half", "the scale is that of the first half of each group", [](const Op& op, const Exec& exec, Reference* reference) {
         golden_group_quant(group_quant(op), largest_of_half_group, exec, reference);
       }}};
  return all;
}

}  // namespace dodona::ops
