#include "model/trace.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "dodona/error.h"
#include "quant/element.h"

namespace dodona::model {
namespace {

std::string list(const std::vector<BookShape>& shapes) {
  std::string text;
  for (const BookShape& shape : shapes)
    text += (text.empty() ? "" : ", ") + (shape.label.empty() ? "" : shape.label + ":") + shape.with_numbers;
  return text;
}

/// Root of the mean square of the finite elements, and how many are not finite.
void measure(const Tensor& tensor, OpRecord& record) {
  double sum = 0;
  std::int64_t finite = 0;
  const std::int64_t n = tensor.elements();
  std::vector<double> row;
  const std::int64_t columns = tensor.rank() > 0 ? tensor.size(-1) : 1;
  if (columns == 0) return;
  row.resize(static_cast<std::size_t>(columns));
  for (std::int64_t begin = 0; begin < n; begin += columns) {
    const auto* base = tensor.as<std::byte>() + bytes_for(tensor.dtype(), tensor.offset(begin));
    if (columns == 1 || tensor.stride(-1) == 1) {
      quant::to_f64(tensor.dtype(), base, row.data(), columns);
    } else {
      for (std::int64_t i = 0; i < columns; ++i) row[static_cast<std::size_t>(i)] = quant::get(tensor, begin + i);
    }
    for (const double value : row) {
      if (!std::isfinite(value)) {
        ++record.not_finite;
        continue;
      }
      sum += value * value;
      ++finite;
    }
  }
  record.rms = finite > 0 ? std::sqrt(sum / static_cast<double>(finite)) : 0.0;
}

}  // namespace

Work& Work::operator+=(const Work& other) {
  bytes += other.bytes;
  flops += other.flops;
  int8_ops += other.int8_ops;
  weight_bytes += other.weight_bytes;
  return *this;
}

std::string shapes_text(const BookEntry& entry) {
  return list(entry.inputs) + " -> " + list(entry.outputs);
}

Trace::Trace(ShapeBook checked, ShapeBook shown, Exec exec, bool keep_outputs)
    : checked_(std::move(checked)), shown_(std::move(shown)), exec_(std::move(exec)), keep_outputs_(keep_outputs) {
  const auto outer = exec_.tracer;
  exec_.tracer = [this, outer](const TraceEvent& event) {
    if (std::find(kernels_.begin(), kernels_.end(), event.op) == kernels_.end()) kernels_.emplace_back(event.op);
    if (outer) outer(event);
  };
}

OpRecord& Trace::push(std::string_view name, std::string_view note, std::string shapes) {
  OpRecord record;
  record.op = name;
  record.note = note;
  record.depth = static_cast<int>(open_.size());
  record.shapes = std::move(shapes);
  records_.push_back(std::move(record));
  return records_.back();
}

void Trace::enter(std::string_view name) {
  push(name, {}, {}).group = true;
  open_.push_back(records_.size() - 1);
}

void Trace::enter(Part part, std::string_view name) {
  push(name, {}, shapes_text(shown_.at(part, name))).group = true;
  open_.push_back(records_.size() - 1);
}

void Trace::leave() {
  OpRecord& group = records_[open_.back()];
  for (std::size_t i = open_.back() + 1; i < records_.size(); ++i) {
    if (records_[i].group) continue;
    group.seconds += records_[i].seconds;
    group.work += records_[i].work;
  }
  open_.pop_back();
}

NamedTensors Trace::op(Part part, std::string_view name, std::string_view note, std::initializer_list<ActualShape> inputs, const Work& work,
                       const std::function<NamedTensors()>& body) {
  checked_.check(part, name, note, inputs);
  const BookEntry& entry = shown_.at(part, name, note);
  kernels_.clear();
  const auto begin = std::chrono::steady_clock::now();
  NamedTensors outputs;
  try {
    outputs = body();
  } catch (const Error& error) {
    throw Error(error.code(), std::string(name) + (error.op().empty() ? "" : ": " + error.op()), error.argument(), error.message());
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  for (const auto& [label, tensor] : outputs)
    if (!label.starts_with('+')) checked_.check(part, name, note, {{label, tensor.shape()}});
  OpRecord& record = push(name, note, shapes_text(entry));
  record.seconds = elapsed.count();
  record.work = work;
  for (const std::string& kernel : kernels_) record.kernels += (record.kernels.empty() ? "" : " + ") + kernel;
  if (!outputs.empty()) measure(outputs.front().second, record);
  if (keep_outputs_)
    for (const auto& [label, tensor] : outputs)
      record.outputs.emplace_back(label.starts_with('+') ? label.substr(1) : label, tensor.clone());
  return outputs;
}

Tensor Trace::op1(Part part, std::string_view name, std::string_view note, std::initializer_list<ActualShape> inputs, const Work& work,
                  const std::function<Tensor()>& body) {
  return op(part, name, note, inputs, work, [&] { return NamedTensors{{"output", body()}}; }).front().second;
}

}  // namespace dodona::model
