// The calls of kernels that one model op makes, and what golden mode leaves open about their outputs.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "oracle/judge/judge.h"

namespace dodona::trail {

struct KernelCall {
  const Op* op = nullptr;
  Arguments inputs;          ///< with attributes; arguments written in place as they were before the call
  NamedTensors written;      ///< the memory of the outputs, whatever it holds by now; not that of tables of which rows are written
  oracle::GoldenRun golden;  ///< what the call put there, and what is open about it
};

/// Keeps the calls made with an Exec whose witness it is, in order. The run must be in golden mode: only that says what is open.
class CallRecorder final : public Witness {
 public:
  Reference* begins(const Op& op, const Arguments& arguments) override;
  void ends() override;
  /// The calls since it was last asked.
  std::vector<KernelCall> take();

 private:
  std::deque<KernelCall> calls_;  ///< a call's reference stays where it is
};

/// Whether two views are the same elements in memory, in any order.
bool same_elements(const Tensor& a, const Tensor& b);
/// Row-major number in `b` of the element that is number `linear` of `a`; -1 when it is none.
std::int64_t element_in(const Tensor& a, std::int64_t linear, const Tensor& b);

/// The output of one of the calls that `tensor` is, as long as it still holds what the call wrote.
struct Source {
  std::size_t call = 0;
  std::string output;
};
std::optional<Source> source_of(const std::vector<KernelCall>& calls, const Tensor& tensor);
/// Whether `tensor` is what one of the calls read, and none wrote.
bool passed_on(const std::vector<KernelCall>& calls, const Tensor& tensor);

/// How far a call's outputs may lie from golden's, as a share of the largest magnitude of their row: from the slack of its budget and one
/// unit in the last place. Codes, and floats of 8 bits, count as 2^-6 of what is multiplied with them: an element that approximate
/// reciprocals take over the border between two codes moves by a quarter of its size, one element in a thousand. Copies, choices and
/// integers count as nothing.
double share_of_row(const KernelCall& call);
/// Of several calls that feed each other: the sum over the kernels, each counted once (a kernel that runs for each expert makes rows of
/// its own).
double share_of_row(const std::vector<KernelCall>& calls);

/// Lets every judged number lie further away by this share of its row's largest magnitude.
void widen(oracle::GoldenRun& golden, const Op& op, double share);

double largest_of_row(const Tensor& tensor, std::int64_t begin, std::int64_t columns);

}  // namespace dodona::trail
