#include "model/trace.h"

#include <algorithm>
#include <chrono>

#include "dodona/error.h"
#include "model/statistics.h"

namespace dodona::model {
namespace {

std::string list(const std::vector<BookShape>& shapes) {
  std::string text;
  for (const BookShape& shape : shapes)
    text += (text.empty() ? "" : ", ") + (shape.label.empty() ? "" : shape.label + ":") + shape.with_numbers;
  return text;
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
  if (!outputs.empty()) {
    const Statistics of_first = statistics(outputs.front().second);
    record.rms = of_first.rms;
    record.not_finite = of_first.not_finite;
  }
  hand_out(record, outputs);
  return outputs;
}

void Trace::gives(const NamedTensors& outputs) {
  hand_out(records_[open_.back()], outputs);
}

void Trace::hand_out(OpRecord& record, const NamedTensors& outputs) {
  NamedTensors plain = outputs;
  for (auto& [label, tensor] : plain)
    if (label.starts_with('+')) label.remove_prefix(1);
  if (keep_outputs_)
    for (const auto& [label, tensor] : plain) record.outputs.emplace_back(label, tensor.clone());
  if (observer_) observer_(record, plain);
}

Tensor Trace::op1(Part part, std::string_view name, std::string_view note, std::initializer_list<ActualShape> inputs, const Work& work,
                  const std::function<Tensor()>& body) {
  return op(part, name, note, inputs, work, [&] { return NamedTensors{{"output", body()}}; }).front().second;
}

}  // namespace dodona::model
