#include "trail/trail.h"

#include <span>

#include "io/atomic_file.h"
#include "io/sha256.h"

namespace dodona::trail {
namespace {

void drop(std::string& text, std::string_view part) {
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at)) text.erase(at, part.size());
}
io::Json record_of(const TrailStep& step) {
  io::Json outputs = io::Json::array();
  for (const TrailOutput& output : step.outputs)
    outputs.push_back({{"label", output.label},
                       {"dtype", std::string(name(output.dtype))},
                       {"shape", std::vector<std::int64_t>(output.shape.begin(), output.shape.end())},
                       {"digest", output.digest},
                       {"min", output.statistics.min},
                       {"max", output.statistics.max},
                       {"rms", output.statistics.rms},
                       {"not_finite", output.statistics.not_finite}});
  return {{"op", step.op}, {"note", step.note}, {"shapes", step.shapes}, {"outputs", outputs}};
}

}  // namespace

std::string title_of(const std::string& op, const std::string& note) {
  return note.empty() ? op : op + " (" + note + ")";
}
std::string output_name(const std::string& title, std::string_view label, bool first) {
  return first ? title : title + "." + std::string(label);
}

std::string key_of(std::string name) {
  drop(name, "()");
  drop(name, " ");
  if (name.starts_with("self.")) name.erase(0, 5);
  return name;
}

model::Observer Trail::recorder(bool keep_tensors) {
  return [this, keep_tensors](const model::OpRecord& record, const NamedTensors& outputs) {
    TrailStep step{record.op, record.note, record.shapes, {}};
    for (const auto& [label, tensor] : outputs)
      step.outputs.push_back({std::string(label), io::to_hex(io::tensor_digest(tensor)), tensor.dtype(), tensor.shape(),
                              model::statistics(tensor), keep_tensors ? tensor.clone() : Tensor()});
    steps.push_back(std::move(step));
  };
}

void write_trail(const std::string& path, const Trail& trail) {
  if (!path.ends_with(".safetensors")) {
    std::string text = io::json_text({{"trail", 1}, {"setting", trail.setting}}) + "\n";
    for (const TrailStep& step : trail.steps) text += io::json_text(record_of(step)) + "\n";
    io::write_file(path, std::as_bytes(std::span(text.data(), text.size())));
    return;
  }
  NamedTensors tensors;
  for (const auto& [name, tensor] : trail.inputs) tensors.emplace_back(std::string(input_prefix) + name, tensor);
  io::Json records = io::Json::array();
  for (const TrailStep& step : trail.steps) {
    records.push_back(record_of(step));
    for (std::size_t i = 0; i < step.outputs.size(); ++i)
      if (step.outputs[i].tensor.defined())
        tensors.emplace_back(output_name(title_of(step.op, step.note), step.outputs[i].label, i == 0), step.outputs[i].tensor);
  }
  const io::Json text{{"trail", 1}, {"setting", trail.setting}, {"steps", records}};
  io::write_safetensors(path, tensors, {{"trail", io::json_text(text)}});
}

}  // namespace dodona::trail
