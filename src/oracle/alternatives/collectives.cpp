#include "oracle/alternatives/families.h"

namespace dodona::oracle::alternatives {
namespace {

/// The terms of one element, one for each rank, in another order; one of two ways rounds them on their way.
float sum_of(const Call& call, DType type, const std::vector<float>& terms) {
  if (call.way == Way::strided) return strided_sum(terms, 4);
  float sum = 0;
  for (std::size_t i = terms.size(); i-- > 0;) sum = rounded(type, sum + terms[i]);
  return sum;
}

/// `input` has as many elements for each rank as `output` has.
bool sums(const Call& call, const Tensor& input, const Tensor& output) {
  if (call.way == Way::tensor_core) return false;
  const std::vector<float> all = floats(input);
  const auto count = static_cast<std::size_t>(output.elements());
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<float> terms;
    for (std::size_t at = i; at < all.size(); at += count) terms.push_back(all[at]);
    store(output, static_cast<std::int64_t>(i), sum_of(call, input.dtype(), terms));
  }
  return true;
}

}  // namespace

/// Neither where the order is the contract's.
bool all_reduce(const Call& call) {
  return call.is("algorithm", "any") && sums(call, call.tensor("inp"), call.tensor("out"));
}
bool reduce_scatter_tensor(const Call& call) {
  return call.is("order", "any") && sums(call, call.tensor("input"), call.tensor("output"));
}

}  // namespace dodona::oracle::alternatives
