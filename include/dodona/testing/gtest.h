// GoogleTest with an oracle: kernels are held to what they should have returned.
//
//   dodona::Case c("fused_add_rmsnorm T=64 H=7168 --seed 7");
//   upload(c.input("input")); ... launch ... download(y, residual);
//   EXPECT_DODONA(c, {"input", y.data()}, {"residual", residual.data()});
//
// C++17, header-only over dodona/c.h: link libdodona.so and GoogleTest. Usable from .cu files; nothing here touches a device, so copy to
// the host first. Types and shapes of outputs are those that the op has for the case, unless an Output says otherwise.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "dodona/c.h"

namespace dodona {

/// What the library says of a call that cannot be.
class CaseError : public std::runtime_error {
 public:
  explicit CaseError(int status) : std::runtime_error(dodona_last_error()), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

/// A tensor of a case on the host. The memory is the case's own and lives as long as it does.
struct CaseTensor {
  std::string name;
  const void* data = nullptr;
  int dtype = DODONA_F32;
  std::vector<std::ptrdiff_t> shape, strides;  ///< strides in elements

  std::ptrdiff_t elements() const {
    std::ptrdiff_t count = 1;
    for (const std::ptrdiff_t size : shape) count *= size;
    return count;
  }
  /// Bits of one element: 4 for packed types.
  int bits() const {
    switch (dtype) {
      case DODONA_F64:
      case DODONA_I64: return 64;
      case DODONA_F32:
      case DODONA_I32: return 32;
      case DODONA_F16:
      case DODONA_BF16:
      case DODONA_I16: return 16;
      case DODONA_F4_E2M1:
      case DODONA_I4: return 4;
      default: return 8;
    }
  }
  /// Bytes from the first to one past the last element, gaps between rows included: what to copy to a device.
  std::size_t bytes() const {
    std::ptrdiff_t last = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] == 0) return 0;
      last += (shape[i] - 1) * strides[i];
    }
    return static_cast<std::size_t>(((last + 1) * bits() + 7) / 8);
  }
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
};

/// What a kernel wrote, on the host.
struct Output {
  std::string name;  ///< as the op's schema has it
  const void* data;
  std::vector<std::ptrdiff_t> strides = {};  ///< in elements; empty: without gaps
};

/// One call of an op with inputs of the library's making. Throws CaseError.
class Case {
 public:
  /// A case line (`rmsnorm T=4 H=7168 --seed 7`), or the path of a case file (ending in .safetensors).
  explicit Case(const std::string& line_or_path) : line_(line_or_path) {
    dodona_case* made = nullptr;
    const std::string suffix = ".safetensors";
    const bool file = line_.size() > suffix.size() && line_.compare(line_.size() - suffix.size(), suffix.size(), suffix) == 0;
    check(file ? dodona_case_load(line_.c_str(), nullptr, &made) : dodona_case_from_line(line_.c_str(), nullptr, &made));
    handle_.reset(made, dodona_case_free);
    inputs_ = listed(dodona_case_inputs(made));
  }

  std::string op() const { return dodona_case_op(handle_.get()); }
  /// The line, or the path.
  const std::string& line() const { return line_; }
  /// Attributes as a JSON object.
  std::string attributes() const { return dodona_case_attrs(handle_.get()); }
  const std::vector<CaseTensor>& inputs() const { return inputs_; }
  const CaseTensor& input(const std::string& name) const { return find(inputs_, name, "input"); }

  /// What golden mode gives; computed on first use. Shapes and types of outputs are known from here.
  const std::vector<CaseTensor>& golden() const {
    if (golden_handle_ == nullptr) {
      const dodona_exec exec{DODONA_GOLDEN, 0, nullptr};
      dodona_tensors* made = nullptr;
      check(dodona_case_run(handle_.get(), &exec, &made));
      golden_handle_.reset(made, dodona_tensors_free);
      golden_ = listed(made);
    }
    return golden_;
  }
  const CaseTensor& golden(const std::string& name) const { return find(golden(), name, "output"); }

  /// Success with the verdict, or failure with the verdict and what makes the case again.
  testing::AssertionResult judge(const std::vector<Output>& outputs, int mode = DODONA_GOLDEN, double explain_seconds = 0) const {
    std::vector<dodona_tensor> actual;
    for (const Output& output : outputs) actual.push_back(tensor_of(output));
    const dodona_exec exec{mode, 0, nullptr};
    dodona_verdict* verdict = nullptr;
    const int status = dodona_case_explain(handle_.get(), actual.data(), actual.size(), &exec, explain_seconds, &verdict);
    const std::unique_ptr<dodona_verdict, void (*)(dodona_verdict*)> owner(verdict, dodona_verdict_free);
    if (status != DODONA_OK) return testing::AssertionFailure() << "cannot be judged: " << dodona_last_error();
    if (dodona_verdict_passes(verdict) != 0) return testing::AssertionSuccess() << dodona_verdict_text(verdict);
    return testing::AssertionFailure() << dodona_verdict_text(verdict) << "reproduce: " << reproduce();
  }
  /// An output as C has it, of the case's type and shape.
  dodona_tensor tensor_of(const Output& output) const {
    const CaseTensor& like = golden(output.name);
    dodona_tensor tensor{};
    tensor.name = output.name.c_str();
    tensor.data = const_cast<void*>(output.data);
    tensor.dtype = like.dtype;
    tensor.rank = static_cast<int>(like.shape.size());
    tensor.flags = DODONA_READ_ONLY | (output.strides.empty() ? 0 : DODONA_STRIDED);
    if (!output.strides.empty() && output.strides.size() != like.shape.size())
      throw std::invalid_argument(output.name + " has " + std::to_string(output.strides.size()) + " strides, expected " +
                                  std::to_string(like.shape.size()));
    for (std::size_t i = 0; i < like.shape.size(); ++i) {
      tensor.shape[i] = like.shape[i];
      if (!output.strides.empty()) tensor.strides[i] = output.strides[i];
    }
    return tensor;
  }
  /// The command that makes the case again.
  std::string reproduce() const {
    const std::string line = dodona_case_line(handle_.get());
    return line.empty() ? "dodona info " + op() + "  # case " + line_ : "dodona gen " + line + " -o case.safetensors";
  }

 private:
  static void check(int status) {
    if (status != DODONA_OK) throw CaseError(status);
  }
  static std::vector<CaseTensor> listed(const dodona_tensors* tensors) {
    std::vector<CaseTensor> list;
    for (std::size_t i = 0; i < dodona_tensors_count(tensors); ++i) {
      dodona_tensor view;
      check(dodona_tensors_get(tensors, i, &view));
      list.push_back({view.name, view.data, view.dtype, {view.shape, view.shape + view.rank}, {view.strides, view.strides + view.rank}});
    }
    return list;
  }
  const CaseTensor& find(const std::vector<CaseTensor>& list, const std::string& name, const char* what) const {
    std::string known;
    for (const CaseTensor& tensor : list) {
      if (tensor.name == name) return tensor;
      known += (known.empty() ? "" : ", ") + tensor.name;
    }
    throw std::out_of_range(op() + " has no " + what + " '" + name + "'; they are " + known);
  }

  std::string line_;
  std::shared_ptr<dodona_case> handle_;
  std::vector<CaseTensor> inputs_;
  mutable std::shared_ptr<dodona_tensors> golden_handle_;
  mutable std::vector<CaseTensor> golden_;
};

/// What several runs of one kernel wrote: success where all hold the same bits, else failure with the runs that disagree, the first element
/// and where they differ. Types and shapes are those of the case's outputs: all runs are of one call.
inline testing::AssertionResult same_bits(const Case& c, const std::vector<std::vector<Output>>& runs) {
  std::vector<dodona_tensor> tensors;
  std::vector<std::size_t> counts;
  for (const std::vector<Output>& run : runs) {
    for (const Output& output : run) tensors.push_back(c.tensor_of(output));
    counts.push_back(run.size());
  }
  dodona_bits* answer = nullptr;
  const int status = dodona_same_bits(tensors.data(), counts.data(), nullptr, counts.size(), &answer);
  const std::unique_ptr<dodona_bits, void (*)(dodona_bits*)> owner(answer, dodona_bits_free);
  if (status != DODONA_OK) return testing::AssertionFailure() << "cannot be compared: " << dodona_last_error();
  if (dodona_bits_same(answer) != 0) return testing::AssertionSuccess() << dodona_bits_text(answer);
  return testing::AssertionFailure() << dodona_bits_text(answer) << "reproduce: " << c.reproduce();
}

}  // namespace dodona

/// EXPECT_DODONA(case, {"output", host_pointer}, ...): fails with the verdict unless every output is what the op should have returned.
#define EXPECT_DODONA(case_, ...) EXPECT_TRUE((case_).judge(std::vector<::dodona::Output>{__VA_ARGS__}))
#define ASSERT_DODONA(case_, ...) ASSERT_TRUE((case_).judge(std::vector<::dodona::Output>{__VA_ARGS__}))
/// EXPECT_DODONA_SAME_BITS(case, {{"output", first_run}}, {{"output", second_run}}...): the runs' outputs hold the same bits.
#define EXPECT_DODONA_SAME_BITS(case_, ...) \
  EXPECT_TRUE(::dodona::same_bits((case_), std::vector<std::vector<::dodona::Output>>{__VA_ARGS__}))
/// The same as EXPECT_DODONA, held to the bits of an H200.
#define EXPECT_DODONA_BITS(case_, ...) EXPECT_TRUE((case_).judge(std::vector<::dodona::Output>{__VA_ARGS__}, DODONA_HOPPER))
