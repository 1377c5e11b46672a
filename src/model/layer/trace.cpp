#include "model/layer/trace.h"

#include <algorithm>

#include "dodona/error.h"
#include "io/stopwatch.h"
#include "model/layer/statistics.h"
#include "model/weights/without_memory.h"

namespace dodona::model {
namespace {

std::string list(const std::vector<BookShape>& shapes) {
  std::string text;
  for (const BookShape& shape : shapes)
    text += (text.empty() ? "" : ", ") + (shape.label.empty() ? "" : shape.label + ":") + shape.with_numbers;
  return text;
}

std::string joined(const std::vector<std::string>& kernels) {
  std::string text;
  for (const std::string& kernel : kernels) text += (text.empty() ? "" : " + ") + kernel;
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

Trace::Trace(ShapeBook checked, ShapeBook shown, Exec exec, Bodies bodies)
    : checked_(std::move(checked)), shown_(std::move(shown)), exec_(std::move(exec)), bodies_(bodies) {
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

std::vector<Tensor> Trace::execute(const ModelOp& op, const BookEntry& expected, const std::function<std::vector<Tensor>()>& body,
                                   OpRecord& record) {
  const std::string name(op.name);
  kernels_.clear();
  const io::Stopwatch clock;
  std::vector<Tensor> outputs;
  try {
    outputs = body();
  } catch (const Error& error) {
    throw Error(error.code(), name + (error.op().empty() ? "" : ": " + error.op()), error.argument(), error.message());
  }
  record.seconds = clock.seconds();
  record.kernels = joined(kernels_);
  if (std::find(kernels_.begin(), kernels_.end(), expected.kernel) == kernels_.end())
    throw Error(ErrorCode::unsupported, name, "", "ran " + record.kernels + ", the shape book expects " + expected.kernel);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (op.outputs.at(i).shape.rank() == 0) checked_.check(op.part, op.name, op.note, {{op.outputs[i].label, outputs[i].shape()}});
  if (!outputs.empty() && statistics_) {
    const Statistics of_first = statistics(outputs.front());
    record.rms = of_first.rms;
    record.not_finite = of_first.not_finite;
  }
  return outputs;
}

std::vector<Tensor> Trace::planned(const ModelOp& op, const BookEntry& expected, OpRecord& record) const {
  record.kernels = expected.kernel;
  std::vector<Tensor> outputs;
  for (const OpOutput& output : op.outputs)
    outputs.push_back(without_memory(output.dtype, output.shape.rank() > 0 ? output.shape : expected.shape(output.label)));
  return outputs;
}

std::vector<Tensor> Trace::run(const ModelOp& op, const std::function<std::vector<Tensor>()>& body) {
  for (const ActualShape& input : op.inputs) checked_.check(op.part, op.name, op.note, {input});
  const BookEntry& expected = checked_.at(op.part, op.name, op.note);
  OpRecord record;
  const std::vector<Tensor> outputs = plans() ? planned(op, expected, record) : execute(op, expected, body, record);
  OpRecord& kept = push(op.name, op.note, shapes_text(shown_.at(op.part, op.name, op.note)));
  kept.seconds = record.seconds;
  kept.kernels = record.kernels;
  kept.rms = record.rms;
  kept.not_finite = record.not_finite;
  kept.work = op.work;
  for (const Tensor& output : outputs) kept.work.bytes += static_cast<double>(bytes_for(output.dtype(), output.elements()));
  NamedTensors named;
  for (std::size_t i = 0; i < outputs.size(); ++i) named.emplace_back(op.outputs[i].label, outputs[i]);
  hand_out(kept, named);
  return outputs;
}

Tensor Trace::run1(const ModelOp& op, const std::function<Tensor()>& body) {
  return run(op, [&] { return std::vector<Tensor>{body()}; }).front();
}

void Trace::add(OpRecord record) {
  record.depth += static_cast<int>(open_.size());
  records_.push_back(std::move(record));
}

void Trace::gives(const NamedTensors& outputs) {
  hand_out(records_[open_.back()], outputs);
}

void Trace::hand_out(OpRecord& record, const NamedTensors& outputs) {
  if (plans()) return;
  if (keep_outputs_)
    for (const auto& [label, tensor] : outputs) record.outputs.emplace_back(label, tensor.clone());
  if (observer_) observer_(record, outputs);
}

}  // namespace dodona::model
