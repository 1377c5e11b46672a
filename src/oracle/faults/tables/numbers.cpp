// Faults in numbers that kernels convert, divide and choose by: saturation, zero rows, NaN, roundings before a scale, sums of weights.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/storage.h"
#include "oracle/faults/tables/fault_tools.h"
#include "quant/e5m2.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

double taken_number(Site s) {
  return static_cast<double>(std::get<std::int64_t>(*s.taken));
}
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// ---- codes

bool e4m3(Site s) {
  return s.tensor.dtype() == DType::f8_e4m3;
}
bool computed_e4m3(Site s) {
  return e4m3(s) && s.reference != nullptr && s.reference->exact.size() == static_cast<std::size_t>(s.tensor.elements());
}
Values saturated_values(Site) {
  return {std::int64_t{448}, std::int64_t{256}};
}
/// Of the number before its rounding, where that is known.
void saturated_from_256(Site s, To t) {
  const double most = taken_number(s);
  if (!computed_e4m3(s)) return each(t, [&](double x) { return std::fabs(x) > 256 ? std::copysign(most, x) : x; });
  for (std::int64_t i = 0; i < t.elements(); ++i)
    if (const double exact = s.reference->exact[static_cast<std::size_t>(i)]; std::fabs(exact) >= 256)
      quant::set(t, i, std::copysign(most, exact));
}
std::string saturated_in_words(Site s) {
  return s.name + ": magnitudes above 256 become " + to_string(*s.taken);
}
Values ends_of_e4m3(Site) {
  return {std::int64_t{464}, std::int64_t{480}, std::int64_t{448}};
}
void nan_beyond(Site s, To t) {
  for (std::int64_t i = 0; i < t.elements(); ++i)
    if (const double exact = s.reference->exact[static_cast<std::size_t>(i)]; std::fabs(exact) > taken_number(s)) quant::set(t, i, nan);
}
std::string nan_beyond_in_words(Site s) {
  return s.name + ": NaN where magnitudes above " + to_string(*s.taken) + " should saturate";
}

void codes_of_e5m2(Site s, To t) {
  for (std::int64_t i = 0; i < t.elements(); ++i)
    if (const double exact = s.reference->exact[static_cast<std::size_t>(i)]; std::isfinite(exact))
      quant::set_bits(t, i, quant::to_e5m2_satfinite(exact));
}

// ---- rows of zeros

bool can_be_nan(Site s) {
  const DType type = s.tensor.dtype();
  return is_float(type) && type != DType::f4_e2m1 && type != DType::f8_e8m0;
}
Values widths_of_groups(Site s) {
  Values values;
  const std::int64_t width = Rows(s.tensor).width;
  for (const std::int64_t group : {width, std::int64_t{128}, std::int64_t{64}, std::int64_t{32}, std::int64_t{16}})
    if (group > 1 && width % group == 0 && (group == width || group < width)) values.emplace_back(group);
  return values;
}
bool all_zero(const Tensor& t, std::int64_t first, std::int64_t count) {
  for (std::int64_t i = first; i < first + count; ++i)
    if (quant::get(t, i) != 0) return false;
  return true;
}
void nan_for_zero_groups(Site s, To t) {
  const std::int64_t group = std::get<std::int64_t>(*s.taken);
  for (std::int64_t first = 0; first + group <= t.elements(); first += group)
    if (all_zero(s.tensor, first, group))
      for (std::int64_t i = first; i < first + group; ++i) quant::set(t, i, nan);
}
std::string zero_groups_in_words(Site s) {
  return s.name + ": NaN where " +
         (std::get<std::int64_t>(*s.taken) == Rows(s.tensor).width ? std::string("a row") : "a group of " + to_string(*s.taken)) +
         " is all zeros: 0/0";
}

std::optional<Tensor> input_of_scale(Site s) {
  return scaled_input(s.call, *s.spec, s.tensor);
}
bool scale_of_groups(Site s) {
  return input_of_scale(s).has_value() && scale_order(s).value_or(ScaleOrder::linear) == ScaleOrder::linear;
}
/// What upstreams give rows without a maximum.
Values scales_of_zeros(Site) {
  return {std::string("0"),         std::string("1"),        std::string("1e-10"), std::string("1e-10/448"),
          std::string("1/448/512"), std::string("1e-4/448"), std::string("1e-12")};
}
double value_of_scale(const std::string& text) {
  if (text == "1e-10/448") return static_cast<double>(1e-10F / 448.0F);
  if (text == "1e-4/448") return static_cast<double>(1e-4F / 448.0F);
  if (text == "1/448/512") return 1.0 / (448 * 512);
  return std::stod(text);
}
void scale_of_zero_rows(Site s, To t) {
  const Tensor input = *input_of_scale(s);
  const std::int64_t group = input.elements() / t.elements();
  for (std::int64_t i = 0; i < t.elements(); ++i)
    if (all_zero(input, i * group, group)) quant::set(t, i, value_of_scale(word(s)));
}
std::string zero_rows_in_words(Site s) {
  return s.name + ": the scale of rows, or groups, of zeros is " + word(s);
}

// ---- reading

bool wide_number(Site s) {
  const DType type = s.tensor.dtype();
  const Role role = s.spec->role;
  return s.spec->direction == Direction::in && s.tensor.contiguous() && (type == DType::f32 || type == DType::f16 || type == DType::bf16) &&
         (role == Role::values || role == Role::weight || role == Role::scale || role == Role::logits);
}
Values other_types(Site s) {
  Values values;
  for (const DType type : {DType::bf16, DType::f16, DType::f32})
    if (type != s.tensor.dtype()) values.emplace_back(type);
  return values;
}
/// Element i is what lies i elements of that type behind the first; what lies beyond the end nobody knows.
void read_as_other_type(Site s, To t) {
  const DType type = std::get<DType>(*s.taken);
  const std::int64_t count = s.tensor.elements() * bits(s.tensor.dtype()) / bits(type);
  for (std::int64_t i = 0; i < t.elements(); ++i) quant::set(t, i, i < count ? quant::load(type, s.tensor.data(), i) : nan);
}
std::string other_type_in_words(Site s) {
  return s.name + ": read as " + to_string(*s.taken) + ", though it is " + std::string(name(s.tensor.dtype()));
}
bool table_of_cosines(Site s) {
  return s.spec->role == Role::cos_sin && (s.tensor.dtype() == DType::f32 || s.tensor.dtype() == DType::f16);
}
Values narrower_types(Site s) {
  if (s.tensor.dtype() == DType::f32) return {DType::bf16, DType::f16};
  return {AttrValue(DType::bf16)};
}
void table_narrowed(Site s, To t) {
  const DType type = std::get<DType>(*s.taken);
  each(t, [&](double x) { return through(type, x); });
}
std::string narrowed_in_words(Site s) {
  return s.name + ": cosines and sines are rounded to " + to_string(*s.taken);
}

// ---- roundings before a scale

bool scaled_product(Site s) {
  if (s.call.op.info().category != Category::gemm || !is_real(s.tensor.dtype()) || s.reference == nullptr) return false;
  return std::any_of(s.call.op.schema().tensors.begin(), s.call.op.schema().tensors.end(), [&](const TensorSpec& spec) {
    const Tensor* const tensor = s.call.inputs.find(spec.name);
    const auto& scales = spec.storage.scales;
    return spec.role == Role::scale && spec.direction == Direction::in && tensor != nullptr && tensor->defined() && scales &&
           (scales->columns == 0 || scales->rows == 0);
  });
}
Values narrow_types(Site) {
  return {DType::f16, DType::bf16};
}
/// Golden mode's unrounded answer with scales of whole rows, columns or matrices left out, or with what is added left out.
std::vector<double> unrounded(Site s, bool scaled, bool with_addend) {
  Arguments inputs = s.call.inputs;
  for (const TensorSpec& spec : s.call.op.schema().tensors) {
    const Tensor* const tensor = inputs.find(spec.name);
    if (spec.direction != Direction::in || tensor == nullptr || !tensor->defined()) continue;
    const auto& scales = spec.storage.scales;
    const bool of_all = spec.role == Role::scale && scales && (scales->columns == 0 || scales->rows == 0);
    const bool addend = spec.optional && spec.role == Role::values;
    if (!(of_all && !scaled) && !(addend && !with_addend)) continue;
    const Tensor changed = tensor->clone();
    each(changed, [&](double) { return of_all ? 1.0 : 0.0; });
    inputs.set(spec.name, changed);
  }
  const GoldenRun run = run_golden(s.call.op, inputs, s.call.exec);
  const ReferenceOutput* const reference = run.reference.find(s.name);
  return reference != nullptr ? reference->exact : std::vector<double>{};
}
void rounded_before_scale(Site s, To t) {
  const DType type = std::get<DType>(*s.taken);
  const std::vector<double> sums = unrounded(s, false, false), scaled = unrounded(s, true, false), all = unrounded(s, true, true);
  const auto count = static_cast<std::size_t>(t.elements());
  if (sums.size() != count || scaled.size() != count || all.size() != count) return;
  for (std::size_t i = 0; i < count; ++i) {
    if (!std::isfinite(sums[i]) || sums[i] == 0) continue;
    quant::set(t, static_cast<std::int64_t>(i), quant::round_to(type, sums[i]) * (scaled[i] / sums[i]) + (all[i] - scaled[i]));
  }
}
std::string before_scale_in_words(Site s) {
  return s.name + ": sums are rounded to " + to_string(*s.taken) + " before they are scaled";
}

// ---- routing weights

/// The ids beside weights of this shape.
const Tensor* chosen_beside(Site s) {
  for (const auto& [name, tensor] : s.call.golden.outputs)
    if (name != s.name && is_whole(tensor.dtype()) && tensor.shape() == s.tensor.shape()) return &tensor;
  return nullptr;
}
bool weights_of_choices(Site s) {
  return s.call.op.info().category == Category::moe && is_real(s.tensor.dtype()) && s.tensor.rank() == 2 && s.tensor.size(1) >= 2 &&
         chosen_beside(s) != nullptr;
}
void sum_without_last(Site s, To t) {
  const Rows rows(t);
  for (std::int64_t r = 0; r < rows.count; ++r) {
    double sum = 0;
    for (std::int64_t c = 0; c < rows.width; ++c) sum += quant::get(s.tensor, rows.at(r, c));
    const double less = sum - quant::get(s.tensor, rows.at(r, rows.width - 1));
    for (std::int64_t c = 0; c < rows.width && less > 0; ++c) put(t, rows.at(r, c), quant::get(s.tensor, rows.at(r, c)) * (sum / less));
  }
}
/// The logits that the choices were made of, a row beside each row of weights.
const Tensor* logits_beside(Site s) {
  for (const TensorSpec& spec : s.call.op.schema().tensors)
    if (const Tensor* const logits = s.call.inputs.find(spec.name);
        spec.role == Role::logits && logits != nullptr && logits->defined() && logits->rank() == 2 && logits->size(0) == s.tensor.size(0))
      return logits;
  return nullptr;
}
bool weights_of_logits(Site s) {
  return weights_of_choices(s) && logits_beside(s) != nullptr;
}
void logits_for_weights(Site s, To t) {
  const Tensor &logits = *logits_beside(s), &ids = *chosen_beside(s);
  const Rows rows(t);
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    const auto id = static_cast<std::int64_t>(quant::get(ids, i));
    if (id >= 0 && id < logits.size(1)) put(t, i, quant::get(logits, i / rows.width * logits.size(1) + id));
  }
}
/// A number for each expert that is added to scores before they are compared.
const Tensor* bias_beside(Site s) {
  const Tensor* const logits = logits_beside(s);
  for (const TensorSpec& spec : s.call.op.schema().tensors)
    if (const Tensor* const bias = s.call.inputs.find(spec.name); logits != nullptr && spec.name.find("bias") != std::string::npos &&
                                                                  bias != nullptr && bias->defined() && bias->rank() == 1 &&
                                                                  bias->size(0) == logits->size(1))
      return bias;
  return nullptr;
}
bool weights_beside_bias(Site s) {
  return weights_of_choices(s) && bias_beside(s) != nullptr;
}
Values types_of_keys(Site) {
  return {DType::f32, DType::f16, DType::bf16};
}
/// Weights of sigmoids are these over their sum, times what each row's weights are times theirs.
void bias_taken_off_again(Site s, To t) {
  const Tensor &logits = *logits_beside(s), &bias = *bias_beside(s), &ids = *chosen_beside(s);
  const DType type = std::get<DType>(*s.taken);
  const Rows rows(t);
  const auto score = [&](std::int64_t i) {
    const auto id = static_cast<std::int64_t>(quant::get(ids, i));
    if (id < 0 || id >= logits.size(1)) return std::pair{nan, nan};
    const double right = 1 / (1 + std::exp(-quant::get(logits, i / rows.width * logits.size(1) + id))), added = quant::get(bias, id);
    return std::pair{right, quant::round_to(type, quant::round_to(type, right + added) - added)};
  };
  for (std::int64_t r = 0; r < rows.count; ++r) {
    double right = 0, wrong = 0;
    std::vector<double> scores;
    for (std::int64_t c = 0; c < rows.width; ++c) {
      const auto [exact, rounded] = score(rows.at(r, c));
      right += exact, wrong += rounded;
      scores.push_back(rounded);
    }
    const double unit = quant::get(s.tensor, rows.at(r, 0)) / score(rows.at(r, 0)).first;  // 1 where weights are not divided by their sum
    const bool divided = std::fabs(unit - 1) > 1e-3;
    for (std::int64_t c = 0; c < rows.width && std::isfinite(right) && wrong > 0; ++c)
      put(t, rows.at(r, c), scores[static_cast<std::size_t>(c)] * (divided ? unit * right / wrong : 1));
  }
}
std::string taken_off_in_words(Site s) {
  return s.name +
         ": weights are the biased scores less the bias, which takes the last bits of the scores with it: the sum was rounded to " +
         to_string(*s.taken);
}
/// Rows of logits that hold NaN.
std::vector<bool> rows_with_nan(Site s) {
  std::vector<bool> rows(static_cast<std::size_t>(Rows(s.tensor).count), false);
  for (const TensorSpec& spec : s.call.op.schema().tensors) {
    const Tensor* const logits = s.call.inputs.find(spec.name);
    if (spec.role != Role::logits || logits == nullptr || !logits->defined() || Rows(*logits).count != Rows(s.tensor).count) continue;
    const Rows its(*logits);
    for (std::int64_t i = 0; i < logits->elements(); ++i)
      if (std::isnan(quant::get(*logits, i))) rows[static_cast<std::size_t>(i / its.width)] = true;
  }
  return rows;
}
bool ids_of_logits(Site s) {
  if (!is_whole(s.tensor.dtype()) || s.tensor.rank() != 2 || s.tensor.size(1) < 2) return false;
  const std::vector<bool> rows = rows_with_nan(s);
  return std::find(rows.begin(), rows.end(), true) != rows.end();
}
void one_choice_for_nan_rows(Site s, To t) {
  const std::vector<bool> nan_rows = rows_with_nan(s);
  const Rows rows(t);
  for (std::int64_t r = 0; r < rows.count; ++r)
    for (std::int64_t c = 1; c < rows.width && nan_rows[static_cast<std::size_t>(r)]; ++c)
      quant::set_bits(t, rows.at(r, c), quant::get_bits(s.tensor, rows.at(r, 0)));
}

// ---- numbers that name none

bool some_absent(Site s) {
  if (!is_whole(s.tensor.dtype())) return false;
  for (std::int64_t i = 0; i < s.tensor.elements(); ++i)
    if (quant::get(s.tensor, i) == -1) return true;
  return false;
}
/// What others write for none: the first, one behind the last, as many as there are, the largest number.
Values sentinels(Site s) {
  double largest = 0;
  for (std::int64_t i = 0; i < s.tensor.elements(); ++i) largest = std::max(largest, quant::get(s.tensor, i));
  Values values;
  for (const std::int64_t value : {std::int64_t{0}, static_cast<std::int64_t>(largest) + 1, s.tensor.elements(), std::int64_t{2147483647}})
    if (std::none_of(values.begin(), values.end(), [&](const AttrValue& other) { return std::get<std::int64_t>(other) == value; }))
      values.emplace_back(value);
  // The experts that the call names.
  for (const char* name : {"num_experts", "E"})
    if (const AttrValue* const given = s.call.inputs.find_attr(name); given != nullptr && std::holds_alternative<std::int64_t>(*given))
      values.push_back(*given);
  return values;
}
void other_sentinel(Site s, To t) {
  for (std::int64_t i = 0; i < t.elements(); ++i)
    if (quant::get(s.tensor, i) == -1) quant::set(t, i, taken_number(s));
}
std::string sentinel_in_words(Site s) {
  return s.name + ": " + to_string(*s.taken) + " stands for none, where the contract has -1";
}

constexpr std::array table{
    Fault{.id = "table-narrowed",
          .summary = "a table of cosines and sines is rounded to a narrower type",
          .strikes = input,
          .severity = fine,
          .applies = table_of_cosines,
          .spoil = table_narrowed,
          .variants = narrower_types,
          .words = narrowed_in_words},
    Fault{.id = "read-as-other-type",
          .summary = "an operand is read as another type",
          .strikes = input,
          .severity = gross,
          .applies = wide_number,
          .spoil = read_as_other_type,
          .variants = other_types,
          .words = other_type_in_words,
          .reads_beyond = true,
          .far = true},
    Fault{.id = "scale-of-zero-rows",
          .summary = "rows or groups of zeros have another scale than the contract says",
          .strikes = output,
          .severity = fine,
          .applies = scale_of_groups,
          .spoil = scale_of_zero_rows,
          .variants = scales_of_zeros,
          .words = zero_rows_in_words,
          .variant = true},
    Fault{.id = "nan-for-zero-groups",
          .summary = "NaN where a row or a group is all zeros: 0/0",
          .strikes = output,
          .severity = gross,
          .applies = can_be_nan,
          .spoil = nan_for_zero_groups,
          .variants = widths_of_groups,
          .words = zero_groups_in_words,
          .variant = true},
    Fault{.id = "saturated-from-256",
          .summary = "e4m3 codes saturate above 256",
          .strikes = output,
          .severity = fine,
          .applies = e4m3,
          .spoil = saturated_from_256,
          .variants = saturated_values,
          .words = saturated_in_words},
    Fault{.id = "nan-beyond",
          .summary = "a conversion to e4m3 gives NaN where it should saturate",
          .strikes = output,
          .severity = fine,
          .applies = computed_e4m3,
          .spoil = nan_beyond,
          .variants = ends_of_e4m3,
          .words = nan_beyond_in_words,
          .variant = true},
    Fault{.id = "codes-of-e5m2",
          .summary = "codes are those of e5m2, where e4m3 belongs",
          .strikes = output,
          .severity = gross,
          .applies = computed_e4m3,
          .spoil = codes_of_e5m2},
    Fault{.id = "rounded-before-scale",
          .summary = "sums are rounded to 16 bits before they are scaled",
          .strikes = output,
          .severity = fine,
          .applies = scaled_product,
          .spoil = rounded_before_scale,
          .variants = narrow_types,
          .words = before_scale_in_words},
    Fault{.id = "sum-without-last",
          .summary = "weights are divided by a sum that lacks the last choice",
          .strikes = output,
          .severity = gross,
          .applies = weights_of_choices,
          .spoil = sum_without_last},
    Fault{.id = "logits-for-weights",
          .summary = "the weights are the chosen logits themselves: no softmax, or sigmoid, is taken",
          .strikes = output,
          .severity = gross,
          .applies = weights_of_logits,
          .spoil = logits_for_weights},
    Fault{.id = "bias-taken-off-again",
          .summary = "weights are the biased scores less the bias, which loses the scores' last bits",
          .strikes = output,
          .severity = fine,
          .applies = weights_beside_bias,
          .spoil = bias_taken_off_again,
          .variants = types_of_keys,
          .words = taken_off_in_words},
    Fault{.id = "other-sentinel",
          .summary = "another number than -1 stands for none: padding, experts of other ranks",
          .strikes = output,
          .severity = gross,
          .applies = some_absent,
          .spoil = other_sentinel,
          .variants = sentinels,
          .words = sentinel_in_words,
          .variant = true},
    Fault{.id = "one-choice-for-nan-rows",
          .summary = "where logits hold NaN every choice is the first one",
          .strikes = output,
          .severity = gross,
          .applies = ids_of_logits,
          .spoil = one_choice_for_nan_rows},
};

}  // namespace

std::span<const Fault> number_faults() {
  return table;
}

}  // namespace dodona::oracle
