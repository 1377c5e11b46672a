// Faults in where a kernel stores its rows: at another stride than theirs, over each other, in the gaps between them. What nobody stores
// holds anything.
#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <string>

#include "core/storage.h"
#include "oracle/faults/tables/composed.h"
#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

/// Where each element of an output comes from: an element of another run's output, or (below 0) from nowhere.
using Sources = std::vector<std::int64_t>;
constexpr std::int64_t nowhere = -1;

/// The output as `from` gives it, with what the reference says of each; what comes from nowhere is open.
void take_from(GoldenRun& run, const std::string& name, const Sources& sources, const GoldenRun& from) {
  const Tensor& written = *find(from.outputs, name);
  const ReferenceOutput* const said = from.reference.find(name);
  const auto count = sources.size();
  for (auto& [output, tensor] : run.outputs) {
    if (output != name) continue;
    tensor = tensor.clone();
    ReferenceOutput& record = run.reference.output(name, tensor.elements());
    const ReferenceOutput before = said != nullptr ? *said : record;
    const auto moved = [&](auto& to, const auto& had, auto none) {
      if (had.empty()) return;
      to.resize(count);
      for (std::size_t i = 0; i < count; ++i) to[i] = sources[i] == nowhere ? none : had[static_cast<std::size_t>(sources[i])];
    };
    moved(record.exact, before.exact, 0.0);
    moved(record.slack, before.slack, 0.0);
    moved(record.unspecified, before.unspecified, std::uint8_t{1});
    record.unspecified.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto to = static_cast<std::int64_t>(i);
      quant::set_bits(tensor, to, sources[i] == nowhere ? 0 : quant::get_bits(written, sources[i]));
      if (sources[i] == nowhere) record.unspecified[i] = 1;
    }
  }
}

// ---- another stride

/// Outputs that are nothing but written, and of which rows could lie elsewhere.
bool stored_rows(Site s, const std::string& name, const Tensor& tensor) {
  const TensorSpec& spec = *s.call.op.schema().find_tensor(name);
  return spec.direction == Direction::out && spec.view_of.empty() && !spec.storage.code && bits(tensor.dtype()) >= 8 &&
         tensor.rank() >= 2 && tensor.size(-1) >= 2 && tensor.elements() > tensor.size(-1) && tensor.elements() <= most_elements;
}
/// `out 1`: rows of out begin one element apart; `out 1 zeros`: and what nobody stores was zeros.
Values other_strides(Site s) {
  std::set<std::int64_t> sizes{1}, of_inputs;
  for (const TensorSpec& spec : s.call.op.schema().tensors)
    if (const Tensor* const tensor = s.call.inputs.find(spec.name); tensor != nullptr && tensor->defined()) {
      for (int d = 0; d < tensor->rank(); ++d) sizes.insert(tensor->size(d));
      if (tensor->rank() >= 2 && !tensor->contiguous()) of_inputs.insert(tensor->stride(tensor->rank() - 2));
    }
  Values values;
  for (const auto& [name, tensor] : s.call.golden.outputs) {
    if (!stored_rows(s, name, tensor)) continue;
    const std::int64_t width = tensor.size(-1);
    std::set<std::int64_t> strides = sizes;
    for (const std::int64_t tile : {16, 64, 128}) strides.insert((width + tile - 1) / tile * tile);
    std::size_t taken = 0;
    constexpr std::size_t most = 8;
    // `name` again: clang 14 captures no structured binding.
    const auto add = [&, &name = name](std::int64_t stride) {
      for (const char* const unstored : {" zeros", ""}) values.emplace_back(name + " " + std::to_string(stride) + unstored);
    };
    // Of inputs that are slices of wider ones, whose stride serves the output too.
    for (const std::int64_t stride : of_inputs)
      if (stride != width && stride >= 1) add(stride);
    for (const std::int64_t stride : strides)
      if (stride != width && stride >= 1 && stride <= 2 * width && of_inputs.count(stride) == 0 && taken++ < most) add(stride);
  }
  return values;
}
GoldenRun store_at_other_stride(Site s) {
  GoldenRun run = s.call.golden;
  const std::string name = first_of(word(s));
  const std::int64_t stride = std::stoll(rest_of(word(s)));
  const bool zeros = word(s).ends_with("zeros");
  const Tensor& tensor = *find(run.outputs, name);
  const std::int64_t width = tensor.size(-1), count = tensor.elements();
  Sources sources(static_cast<std::size_t>(count), nowhere);
  for (std::int64_t i = 0; i < count; ++i)
    if (const std::int64_t to = i / width * stride + i % width; to < count) sources[static_cast<std::size_t>(to)] = i;
  take_from(run, name, sources, s.call.golden);
  if (!zeros) return run;
  ReferenceOutput& record = run.reference.output(name, count);
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (sources[i] == nowhere) record.unspecified[i] = 0;
  return run;
}
std::string stride_in_words(Site s) {
  const std::string name = first_of(word(s));
  const std::int64_t stride = std::stoll(rest_of(word(s))), width = find(s.call.golden.outputs, name)->size(-1);
  return name + ": rows are stored at a stride of " + std::to_string(stride) + (stride == 1 ? " element" : " elements") +
         ", though they are " + std::to_string(width) + " apart" + (stride < width ? ": they overlap" : "");
}

// ---- in place, as if packed

/// Arguments whose rows are slices of wider ones, read and written in place.
Values with_gaps(Site s) {
  Values values;
  for (const TensorSpec& spec : s.call.op.schema().tensors)
    if (const Tensor* const tensor = s.call.inputs.find(spec.name);
        spec.direction == Direction::inout && tensor != nullptr && tensor->defined() && !spec.storage.code && !tensor->contiguous() &&
        tensor->rank() == 2 && tensor->stride(1) == 1 && tensor->stride(0) > tensor->size(1))
      values.emplace_back(spec.name);
  return values;
}
/// Row r lies where a kernel without strides looks for it.
Tensor as_packed(const Tensor& tensor) {
  const Tensor packed(tensor.dtype(), tensor.shape());
  for (std::int64_t i = 0; i < packed.elements(); ++i) quant::set_bits(packed, i, quant::load_bits(tensor.dtype(), tensor.data(), i));
  return packed;
}
GoldenRun in_place_as_packed(Site s) {
  const std::string& name = word(s);
  const Tensor& before = *s.call.inputs.find(name);
  Arguments inputs = s.call.inputs;
  inputs.set(name, as_packed(before));
  const GoldenRun packed = run_golden(s.call.op, inputs, s.call.exec);
  GoldenRun run = packed;
  const std::int64_t width = before.size(1), stride = before.stride(0), count = before.elements();
  Sources sources(static_cast<std::size_t>(count), nowhere);
  for (std::int64_t i = 0; i < count; ++i)
    if (const std::int64_t place = i / width * stride + i % width; place < count) sources[static_cast<std::size_t>(i)] = place;
  take_from(run, name, sources, packed);
  // What lies behind the packed rows' end stays as it was.
  ReferenceOutput& record = run.reference.output(name, count);
  for (auto& [output, tensor] : run.outputs)
    for (std::int64_t i = 0; output == name && i < count; ++i)
      if (const auto at = static_cast<std::size_t>(i); sources[at] == nowhere) {
        quant::set_bits(tensor, i, quant::get_bits(before, i));
        record.unspecified[at] = 0;
        if (!record.exact.empty()) record.exact[at] = quant::get(before, i);
      }
  return run;
}
std::string packed_in_words(Site s) {
  const Tensor& tensor = *s.call.inputs.find(word(s));
  return word(s) + ": read and written in place as if its rows were packed, " + std::to_string(tensor.size(1)) +
         " elements apart, though they are " + std::to_string(tensor.stride(0));
}

// ---- dimensions in another order

/// Orders of an output's dimensions of more than one index, but for their own.
std::vector<std::string> orders_of(const Tensor& tensor) {
  std::string own;
  for (int d = 0; d < tensor.rank(); ++d)
    if (tensor.size(d) > 1) own += static_cast<char>('0' + d);
  std::vector<std::string> found;
  constexpr std::size_t most = 4;
  if (own.size() < 2 || own.size() > most) return found;
  for (std::string order = own; std::next_permutation(order.begin(), order.end());) found.push_back(order);
  return found;
}
Values other_orders(Site s) {
  Values values;
  for (const auto& [name, tensor] : s.call.golden.outputs)
    if (stored_rows(s, name, tensor))
      for (const std::string& order : orders_of(tensor))
        for (const char* const where : {" stored ", " read "}) values.emplace_back(name + where + order);
  return values;
}
GoldenRun store_in_other_order(Site s) {
  GoldenRun run = s.call.golden;
  const std::string name = first_of(word(s)), order = rest_of(rest_of(word(s)));
  const bool stored = first_of(rest_of(word(s))) == "stored";
  const Tensor& tensor = *find(run.outputs, name);
  Sources sources(static_cast<std::size_t>(tensor.elements()), nowhere);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const Dims at = index_of(i, tensor.shape());
    std::int64_t to = 0;
    for (const char d : order) to = to * tensor.size(d - '0') + at[d - '0'];
    sources[static_cast<std::size_t>(stored ? to : i)] = stored ? i : to;
  }
  take_from(run, name, sources, s.call.golden);
  return run;
}
std::string order_in_words(Site s) {
  const std::string name = first_of(word(s)), order = rest_of(rest_of(word(s)));
  const TensorSpec& spec = *s.call.op.schema().find_tensor(name);
  const auto symbols = dims_of(spec.shape, find(s.call.golden.outputs, name)->rank());
  const auto names = [&](const std::string& of) {
    std::string text;
    for (const char d : of) {
      const auto at = static_cast<std::size_t>(d - '0');
      text += (text.empty() ? "" : ", ") + (at < symbols.size() ? symbols[at] : std::string(1, d));
    }
    return text;
  };
  std::string rising = order;
  std::sort(rising.begin(), rising.end());
  if (first_of(rest_of(word(s))) == "read")
    return name + ": stored as it should be, but for memory that has its dimensions in the order " + names(order) +
           " (the last one innermost): strides are not looked at";
  return name + ": stored with its dimensions in the order " + names(order) + " (the last one innermost), where it is " + names(rising);
}

constexpr std::array orders_table{
    Fault{.id = "dimensions-in-another-order",
          .summary = "an output is stored with its dimensions in another order",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = other_orders,
          .words = order_in_words,
          .far = true,
          .rerun = store_in_other_order},
};
constexpr std::array table{
    Fault{.id = "rows-at-another-stride",
          .summary = "rows are stored at another stride than theirs",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = other_strides,
          .words = stride_in_words,
          .reads_beyond = true,
          .far = true,
          .rerun = store_at_other_stride,
          .unlikely = true},
    Fault{.id = "in-place-as-packed",
          .summary = "rows that are slices of wider ones are read and written in place as if they were packed",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = with_gaps,
          .words = packed_in_words,
          .far = true,
          .rerun = in_place_as_packed},
};

}  // namespace

std::span<const Fault> store_faults() {
  return table;
}

std::span<const Fault> order_faults() {
  return orders_table;
}

}  // namespace dodona::oracle
