#include "trail/kernel_calls.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "quant/element.h"

namespace dodona::trail {
namespace {

/// See share_of_row().
constexpr double codes_share = 0x1p-6;

bool is_number(DType type) {
  return type == DType::bf16 || type == DType::f16 || type == DType::f32 || type == DType::f64;
}

std::int64_t columns_of(const Tensor& tensor) {
  return tensor.rank() > 0 ? std::max<std::int64_t>(tensor.size(-1), 1) : 1;
}

/// An output of numbers with a budget, and what golden mode says of it.
const ReferenceOutput* budget_of(const TensorSpec& spec, const Tensor& tensor, const Reference& reference) {
  if (spec.judge != Judge::budget || !is_number(tensor.dtype())) return nullptr;
  const ReferenceOutput* const record = reference.find(spec.name);
  return record != nullptr && record->slack.size() == static_cast<std::size_t>(tensor.elements()) ? record : nullptr;
}

double share_of_output(const TensorSpec& spec, const Tensor& golden, const Reference& reference) {
  if (spec.judge == Judge::code || (is_float(golden.dtype()) && bits(golden.dtype()) <= 8)) return codes_share;
  if (spec.judge != Judge::budget || !is_number(golden.dtype())) return 0;
  const ReferenceOutput* const budget = budget_of(spec, golden, reference);
  const std::int64_t n = golden.elements(), columns = columns_of(golden);
  double share = 0;
  for (std::int64_t begin = 0; begin < n; begin += columns) {
    const double largest = largest_of_row(golden, begin, columns);
    if (largest == 0) continue;
    double slack = 0;
    for (std::int64_t i = begin; budget != nullptr && i < begin + columns; ++i)
      if (const double one = budget->slack[static_cast<std::size_t>(i)]; std::isfinite(one)) slack = std::max(slack, one);
    share = std::max(share, (slack + quant::ulp(golden.dtype(), largest)) / largest);
  }
  return share;
}

/// Offsets of a view's elements in its memory, in bits from its first, and their row-major numbers.
std::vector<std::pair<std::int64_t, std::int64_t>> places_of(const Tensor& tensor) {
  std::vector<std::pair<std::int64_t, std::int64_t>> places;
  places.reserve(static_cast<std::size_t>(tensor.elements()));
  for (std::int64_t i = 0; i < tensor.elements(); ++i) places.emplace_back(tensor.offset(i), i);
  std::sort(places.begin(), places.end());
  return places;
}

bool same_order(const Tensor& a, const Tensor& b) {
  return (a.contiguous() && b.contiguous()) || (a.shape() == b.shape() && a.strides() == b.strides());
}

/// Whether the memory still holds what the call wrote.
bool unchanged(const Tensor& memory, const Tensor& golden) {
  for (std::int64_t i = 0; i < golden.elements(); ++i)
    if (quant::get_bits(memory, i) != quant::get_bits(golden, i)) return false;
  return true;
}

}  // namespace

Reference* CallRecorder::begins(const Op& op, const Arguments& arguments) {
  KernelCall& call = calls_.emplace_back();
  call.op = &op;
  call.inputs.attrs = arguments.attrs;
  for (const TensorSpec& spec : op.schema().tensors) {
    const Tensor* const tensor = arguments.find(spec.name);
    if (tensor == nullptr || !spec.view_of.empty()) continue;
    const bool table = spec.direction == Direction::inout && spec.judge == Judge::exact;
    if (spec.direction != Direction::out)
      call.inputs.tensors.emplace_back(spec.name, spec.direction == Direction::inout && !table ? tensor->clone() : *tensor);
    if (spec.direction != Direction::in && !table) call.written.emplace_back(spec.name, *tensor);
  }
  return call.written.empty() ? nullptr : &call.golden.reference;
}

void CallRecorder::ends() {
  KernelCall& call = calls_.back();
  for (const auto& [name, memory] : call.written) call.golden.outputs.emplace_back(name, memory.clone());
}

std::vector<KernelCall> CallRecorder::take() {
  std::vector<KernelCall> calls(std::make_move_iterator(calls_.begin()), std::make_move_iterator(calls_.end()));
  calls_.clear();
  return calls;
}

bool same_elements(const Tensor& a, const Tensor& b) {
  if (a.data() != b.data() || a.dtype() != b.dtype() || a.elements() != b.elements()) return false;
  if (same_order(a, b)) return true;
  const auto of_a = places_of(a), of_b = places_of(b);
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), [](const auto& x, const auto& y) { return x.first == y.first; });
}

std::int64_t element_in(const Tensor& a, std::int64_t linear, const Tensor& b) {
  if (same_order(a, b)) return linear;
  const std::int64_t offset = a.offset(linear);
  for (std::int64_t i = 0; i < b.elements(); ++i)
    if (b.offset(i) == offset) return i;
  return -1;
}

std::optional<Source> source_of(const std::vector<KernelCall>& calls, const Tensor& tensor) {
  for (std::size_t i = calls.size(); i-- > 0;)
    for (const auto& [name, memory] : calls[i].written)
      if (same_elements(memory, tensor)) {
        if (!unchanged(memory, *find(calls[i].golden.outputs, name))) return std::nullopt;
        return Source{i, name};
      }
  return std::nullopt;
}

bool passed_on(const std::vector<KernelCall>& calls, const Tensor& tensor) {
  bool read = false;
  for (const KernelCall& call : calls) {
    for (const auto& [name, memory] : call.written)
      if (same_elements(memory, tensor)) return false;
    for (const auto& [name, memory] : call.inputs.tensors) read = read || same_elements(memory, tensor);
  }
  return read;
}

double share_of_row(const KernelCall& call) {
  double share = 0;
  for (const auto& [name, golden] : call.golden.outputs)
    share = std::max(share, share_of_output(*call.op->schema().find_tensor(name), golden, call.golden.reference));
  return share;
}

double share_of_row(const std::vector<KernelCall>& calls) {
  std::map<std::string_view, double> kernels;
  for (const KernelCall& call : calls) kernels[call.op->name()] = std::max(kernels[call.op->name()], share_of_row(call));
  double sum = 0;
  for (const auto& [name, share] : kernels) sum += share;
  return sum;
}

void widen(oracle::GoldenRun& golden, const Op& op, double share) {
  for (const auto& [name, tensor] : golden.outputs) {
    if (budget_of(*op.schema().find_tensor(name), tensor, golden.reference) == nullptr) continue;
    ReferenceOutput& record = golden.reference.output(name, tensor.elements());
    const std::int64_t columns = columns_of(tensor);
    for (std::int64_t begin = 0; begin < tensor.elements(); begin += columns) {
      const double more = share * largest_of_row(tensor, begin, columns);
      for (std::int64_t i = begin; i < begin + columns; ++i) record.slack[static_cast<std::size_t>(i)] += more;
    }
  }
}

double largest_of_row(const Tensor& tensor, std::int64_t begin, std::int64_t columns) {
  double largest = 0;
  for (std::int64_t i = begin; i < begin + columns; ++i) {
    const double value = std::fabs(quant::get(tensor, i));
    if (std::isfinite(value)) largest = std::fmax(largest, value);
  }
  return largest;
}

}  // namespace dodona::trail
