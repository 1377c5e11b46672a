// How the failing values relate to golden's.
#include <algorithm>
#include <cmath>
#include <set>

#include "oracle/judge/pattern.h"
#include "oracle/judge/pattern/displaced.h"
#include "oracle/judge/pattern/factors.h"
#include "oracle/judge/pattern/samples.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

using namespace pattern;

/// First element and count of the failures that `holds`.
std::optional<std::string> kind(const std::vector<std::int64_t>& failing, const Tensor& golden, const Tensor& actual, const char* what,
                                const std::function<bool(double, double)>& holds) {
  std::vector<std::int64_t> found;
  for (const std::int64_t i : failing)
    if (holds(quant::get(golden, i), quant::get(actual, i))) found.push_back(i);
  if (found.empty()) return std::nullopt;
  const std::string place = found.size() < failing.size() ? "; " + place_of(found, golden.elements(), golden.shape()) : "";
  return std::string(what) + ": " + std::to_string(found.size()) + " elements, first at " +
         to_string(index_of(found.front(), golden.shape())) + place;
}

/// Whether most of what is not zero is no farther from zero than its exact value, in the failing elements' rows, between the columns of the
/// first and the last of them: rounded numbers are farther half of the time, those that fail and are too small all the same.
bool none_is_rounded_away(const std::vector<std::int64_t>& failing, std::int64_t width, const Tensor& actual,
                          const std::vector<double>& exact) {
  std::int64_t from = width, to = 0;
  std::set<std::int64_t> rows;
  for (const std::int64_t i : failing) {
    from = std::min(from, i % width);
    to = std::max(to, i % width + 1);
    rows.insert(i / width);
  }
  std::size_t away = 0, all = 0;
  for (const std::int64_t row : rows)
    for (std::int64_t c = from; c < to; ++c) {
      const double a = std::fabs(quant::get(actual, row * width + c)), e = std::fabs(exact[static_cast<std::size_t>(row * width + c)]);
      away += a > e * (1 + 0x1p-20) ? 1 : 0;
      ++all;
    }
  return static_cast<double>(away) <= 0.1 * static_cast<double>(all);
}

/// All one representable number too near to zero: cut instead of rounded.
bool truncated(const std::vector<std::int64_t>& failing, const Tensor& golden, const Tensor& actual, const std::vector<double>& exact) {
  if (exact.size() != static_cast<std::size_t>(golden.elements()) || failing.size() < 4) return false;
  const DType type = golden.dtype();
  std::size_t cut = 0;
  for (const std::int64_t i : failing) {
    const double a = quant::get(actual, i), e = exact[static_cast<std::size_t>(i)];
    const double outward = e < 0 ? quant::next_down(type, a) : quant::next_up(type, a);
    cut += std::fabs(a) <= std::fabs(e) && std::fabs(outward) > std::fabs(e) ? 1 : 0;
  }
  const std::int64_t width = golden.rank() > 0 ? std::max<std::int64_t>(golden.size(-1), 1) : 1;
  return static_cast<double>(cut) >= nearly_all * static_cast<double>(failing.size()) &&
         none_is_rounded_away(failing, width, actual, exact);
}

}  // namespace

std::vector<std::string> relations_of(const std::vector<std::int64_t>& failing, const Tensor& golden, const Tensor& actual,
                                      const std::vector<double>& exact, const Dims& shape) {
  std::vector<std::string> relations;
  const auto add = [&](const std::optional<std::string>& relation) {
    if (relation) relations.push_back(*relation);
    return relation.has_value();
  };
  if (failing.empty()) return relations;
  const DType type = golden.dtype();
  if (is_float(type)) {
    add(kind(failing, golden, actual, "NaN where golden has none", [](double g, double a) { return std::isnan(a) && !std::isnan(g); }));
    add(kind(failing, golden, actual, "no NaN where golden has one", [](double g, double a) { return std::isnan(g) && !std::isnan(a); }));
    add(kind(failing, golden, actual, "infinity where golden is finite",
             [](double g, double a) { return std::isinf(a) && std::isfinite(g); }));
  }
  const auto samples = sampled(failing, golden, actual);
  if (most(samples, [](const Sample& s) { return std::isnan(s.actual); })) return relations;
  if (most(samples, [](const Sample& s) { return s.actual == 0; })) {
    relations.emplace_back("zeros: not written, or reset");
    return relations;
  }
  if (is_float(type) && bits(type) <= 8 && samples.size() >= 4 && most(samples, [&](const Sample& s) {
        return std::fabs(s.actual) == quant::max_finite(type) && std::fabs(s.golden) < quant::max_finite(type);
      })) {
    relations.emplace_back(
        "saturated: the largest number of its sign, as a factor that overflows (a reciprocal in f16) or is infinite gives");
    return relations;
  }
  if (most(samples, [&](const Sample& s) { return quant::get_bits(golden, s.index) == quant::get_bits(actual, s.index); })) {
    relations.emplace_back(
        "golden's own bits, but not what follows from the other outputs: a scale, or a choice, that was written otherwise");
    return relations;
  }
  if (add(displaced(samples, golden, actual, shape)) || add(rows_at_another_stride(failing, golden, actual, shape)) ||
      add(permuted_rows(failing, golden, actual)) || add(indices_elsewhere(failing, golden, actual, shape)))
    return relations;
  if (!is_float(type)) {
    if (!add(sums_begun_anew(failing, golden, actual))) add(of_whole_numbers(samples));
    return relations;
  }
  if (truncated(failing, golden, actual, exact)) {
    relations.emplace_back("toward zero by less than one place: truncated instead of rounded");
    return relations;
  }
  if (add(powers_off(samples, type))) return relations;
  const std::int64_t width = shape.rank() > 0 ? std::max<std::int64_t>(shape.at(-1), 1) : 1;
  if (add(factor_of_row_parts(samples, type, width)) || add(factor_of_each_row(samples, type, width))) return relations;
  if (samples.size() >= 3 && (add(constant_factor(samples, type, width)) || add(constant_offset(samples, type)))) return relations;
  const auto only_bf16 = [](double x) { return quant::round_to(DType::bf16, x) == x; };
  if (most(samples, [](const Sample& s) { return s.actual == -s.golden && s.golden != 0; })) {
    relations.emplace_back("the sign is wrong");
  } else if (type == DType::f32 && samples.size() >= 4 &&
             most(samples, [&](const Sample& s) { return only_bf16(s.actual) && !only_bf16(s.golden); })) {
    relations.emplace_back("fp32 that holds only bf16 values: rounded once too often");
  }
  return relations;
}

}  // namespace dodona::oracle
