// Where golden mode writes: values are rounded once to the output's type and, when someone judges, recorded with their slack.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include "dodona/op.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/e5m2.h"
#include "quant/element.h"

namespace dodona::ops {

/// Builds with fast math flush fp32 denormals: no honest implementation can be held to anything smaller.
inline constexpr double flush_floor = 0x1p-126;

/// Whether such a build may have zero in the place of x.
inline bool may_flush(double x) {
  return x != 0 && std::fabs(x) < 2 * flush_floor;
}

/// fp32 unit roundoff 2^-24: the largest relative error of one rounding to fp32.
inline constexpr double f32_eps = 0x1p-24;

/// The distance from `rounded` = round(value) to the farthest number that something within `error` of `value` rounds to: what an inner
/// rounding leaves open. 0 unless value lies within `error` of the boundary between two numbers of the type.
inline double rounding_reach(DType type, double value, double error, double rounded) {
  return std::fmax(quant::round_to(type, value + error) - rounded, rounded - quant::round_to(type, value - error));
}

/// One output of a golden run. Elements may be written from several threads as long as each is written once.
class GoldenOutput {
 public:
  GoldenOutput(const Tensor& tensor, Reference* reference, std::string_view name)
      : tensor_(tensor), record_(reference != nullptr && tensor.defined() ? &reference->output(name, tensor.elements()) : nullptr) {}
  /// A contiguous output of bytes that hold codes: f4_e2m1 in u8, two to a byte. Positions then count codes.
  GoldenOutput(const Tensor& bytes, Reference* reference, std::string_view name, DType code)
      : GoldenOutput(as_codes(bytes, code), reference, name) {
    if (record_ != nullptr) record_->code = code;
  }

  /// `exact` is the value before the one rounding to the output's type; an honest implementation rounds something within `slack` of it.
  /// slack 0: the contract leaves nothing open.
  void put(std::int64_t linear, double exact, double slack) const {
    if (std::isnan(exact) && tensor_.dtype() == DType::f32) {
      // The sign and payload of a computed NaN are the CPU's; stored is the NaN of GPU arithmetic, as 16-bit conversions do anyway.
      quant::set_bits(tensor_, linear, 0x7FFFFFFF);
    } else {
      quant::set(tensor_, linear, exact);
    }
    record(linear, exact, slack > 0 ? slack + flush_floor : slack);
  }

  /// As put, but overflow saturates at the largest finite value: what device conversions to e4m3, e5m2 and e2m1 do.
  void put_saturating(std::int64_t linear, double exact, double slack) const {
    quant::set_bits(tensor_, linear, saturating_code(tensor_.dtype(), exact));
    record(linear, exact, slack);
  }

  /// The contract says nothing of this element (padding): it is set to zero and not compared.
  void leave_open(std::int64_t linear) const {
    quant::set_bits(tensor_, linear, 0);
    if (record_ == nullptr) return;
    // Filled by the caller before any thread writes; see make_open().
    record_->unspecified[static_cast<std::size_t>(linear)] = 1;
  }
  /// Honest implementations differ in kind here (NaN against infinity, say): the value is stored and not compared.
  void put_open(std::int64_t linear, double value) const {
    put(linear, value, 0.0);
    if (record_ != nullptr) record_->unspecified[static_cast<std::size_t>(linear)] = 1;
  }
  void put_saturating_open(std::int64_t linear, double value) const {
    put_saturating(linear, value, 0.0);
    if (record_ != nullptr) record_->unspecified[static_cast<std::size_t>(linear)] = 1;
  }
  /// Call once, before the first leave_open, put_open or put_saturating_open.
  void make_open() const {
    if (record_ != nullptr && record_->unspecified.empty()) record_->unspecified.assign(record_->exact.size(), 0);
  }

  static std::uint64_t saturating_code(DType type, double exact) {
    switch (type) {
      case DType::f8_e4m3: return quant::to_e4m3_satfinite(exact);
      case DType::f8_e5m2: return quant::to_e5m2_satfinite(exact);
      default: return quant::to_e2m1(exact);
    }
  }

 private:
  static Tensor as_codes(const Tensor& bytes, DType code) {
    Dims shape = bytes.shape();
    shape[shape.rank() - 1] *= 8 / bits(code);
    return {bytes.owner(), bytes.data(), code, shape, contiguous_strides(shape), bytes.writable()};
  }

  void record(std::int64_t linear, double exact, double slack) const {
    if (record_ == nullptr) return;
    record_->exact[static_cast<std::size_t>(linear)] = exact;
    record_->slack[static_cast<std::size_t>(linear)] = slack;
  }

  Tensor tensor_;
  ReferenceOutput* record_;
};

/// Records an output that holds copies (or is left as it was): nothing is rounded, the bits must be equal. Elements that are computed
/// after all may be put over it.
inline void record_exact(const Tensor& tensor, Reference* reference, std::string_view name) {
  if (reference == nullptr || !tensor.defined()) return;
  ReferenceOutput& record = reference->output(name, tensor.elements());
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    record.exact[static_cast<std::size_t>(i)] = quant::get(tensor, i);
    record.slack[static_cast<std::size_t>(i)] = 0.0;
  }
}

}  // namespace dodona::ops
