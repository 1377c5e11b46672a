// Where golden mode writes: values are rounded once to the output's type and, when someone judges, recorded with their slack.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include "core/storage.h"
#include "dodona/op.h"
#include "ops/base/bounded.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/e5m2.h"
#include "quant/element.h"

namespace dodona::ops {

/// One output of a golden run. Elements may be written from several threads as long as each is written once.
class GoldenOutput {
 public:
  GoldenOutput(const Tensor& tensor, Reference* reference, std::string_view name)
      : tensor_(tensor), record_(reference != nullptr && tensor.defined() ? &reference->output(name, tensor.elements()) : nullptr) {}
  /// A contiguous output of bytes that hold codes, as its schema says too: f4_e2m1 in u8, two to a byte. Positions then count codes.
  GoldenOutput(const Tensor& bytes, Reference* reference, std::string_view name, DType code)
      : GoldenOutput(as_codes(bytes, Storage{code, {}}), reference, name) {}

  /// `x` is the value before the one rounding to the output's type; an honest implementation rounds something within its slack.
  void put(std::int64_t linear, const Bounded& x) const {
    if (std::isnan(x.exact) && tensor_.dtype() == DType::f32) {
      // The sign and payload of a computed NaN are the CPU's; stored is the NaN of GPU arithmetic, as 16-bit conversions do anyway.
      quant::set_bits(tensor_, linear, 0x7FFFFFFF);
    } else {
      quant::set(tensor_, linear, x.exact);
    }
    record(linear, x, x.slack > 0 ? x.slack + flush_floor : x.slack);
  }
  void put(std::int64_t linear, double exact, double slack) const { put(linear, Bounded{exact, slack}); }

  /// As put, but overflow saturates at the largest finite value: what device conversions to e4m3, e5m2 and e2m1 do.
  void put_saturating(std::int64_t linear, const Bounded& x) const {
    quant::set_bits(tensor_, linear, saturating_code(tensor_.dtype(), x.exact));
    record(linear, x, x.slack);
  }

  /// The contract says nothing of this element (padding): it is set to zero and not compared.
  void leave_open(std::int64_t linear) const {
    quant::set_bits(tensor_, linear, 0);
    if (record_ == nullptr) return;
    // Filled by the caller before any thread writes; see make_open().
    record_->unspecified[static_cast<std::size_t>(linear)] = 1;
  }
  /// Honest implementations differ in kind here (NaN against infinity, say): the value is stored and not compared.
  void put_open(std::int64_t linear, double value) const { put(linear, Bounded{value, 0.0, true}); }
  /// Call once, before the first leave_open and before open numbers are put.
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
  /// Infinities and NaN have no slack.
  void record(std::int64_t linear, const Bounded& x, double slack) const {
    if (record_ == nullptr) return;
    const auto at = static_cast<std::size_t>(linear);
    record_->exact[at] = x.exact;
    record_->slack[at] = x.open || !std::isfinite(x.exact) ? 0.0 : slack;
    if (x.open) record_->unspecified[at] = 1;
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
