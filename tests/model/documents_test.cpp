// The shapes of the document on DeepSeek-R1-NVFP4's ops, held against plans of its layers: tests/documents/execution_ops.txt.
#include <fstream>
#include <map>

#include "helpers.h"
#include "model/run.h"

namespace dodona::model {
namespace {

/// "op (note)" -> "inputs -> outputs".
using Shapes = std::map<std::string, std::string>;

std::string titled(const std::string& op, const std::string& note) {
  return note.empty() ? op : op + " (" + note + ")";
}

/// What the op itself would be called with, where the layer runs it as a group of others.
Shapes of_book(const ShapeBook& book) {
  Shapes shapes;
  for (const BookEntry& entry : book.entries()) shapes.emplace(titled(entry.op, entry.note), shapes_text(entry));
  return shapes;
}

Shapes of_layer(const ModelConfig& config, std::int64_t layer, bool prefill) {
  LayerRequest request;
  request.config = config;
  request.setting.layer = layer;
  request.lengths = {9, 9};
  if (prefill) request.forward = Forward::extend, request.new_tokens = {9, 9};
  Shapes shapes;
  for (const OpRecord& op : plan_layer(request).ops)
    // The shared expert's MLP has the dense one's names: the first of a name counts, which is of the layer itself.
    shapes.emplace(titled(op.op, op.note), op.shapes);
  Shapes groups = of_book(ShapeBook(config, prefill ? Phase::prefill : Phase::decode, {.layer = layer}));
  for (const char* group : {"self.shared_experts()", "self.experts()"})
    if (groups.contains(group)) shapes.emplace(group, groups[group]);
  return shapes;
}

/// Of a backend whose kernel takes whole mixtures: the book's row, which names the kernel that a layer with this backend runs.
Shapes of_backend(const ModelConfig& config, const char* backend, Part part) {
  LayerRequest request;
  request.config = config;
  request.setting.layer = 3;
  request.setting.experts = backend;
  request.lengths = {9, 9};
  const BookEntry entry = ShapeBook(config, Phase::decode, {.layer = 3}).at(part, "Fused MoE");
  for (const OpRecord& op : plan_layer(request).ops)
    if (op.op == "self.experts()") EXPECT_EQ(op.kernels, entry.kernel);
  return {{entry.kernel, shapes_text(entry)}};
}

TEST(Documents, EveryOpOfAnExecutionHasTheDocumentsShapes) {
  const ModelConfig config = preset("r1-nvfp4-tables");
  const std::map<std::string, Shapes> phases{
      {"prefill moe", of_layer(config, 3, true)},
      {"prefill dense", of_layer(config, 1, true)},
      {"decode moe", of_layer(config, 3, false)},
      {"decode dense", of_layer(config, 1, false)},
      {"decode trtllm", of_backend(config, "trtllm", Part::experts_trtllm)},
      // It multiplies no NVFP4.
      {"decode triton", of_backend(with_scheme(config, scheme_named("bf16")), "triton", Part::experts_triton)},
      {"nextn", of_book(ShapeBook(config, Phase::nextn))}};
  std::ifstream file(DODONA_SOURCE_DIR "/tests/documents/execution_ops.txt");
  int rows = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t first = line.find(" | "), second = line.find(" | ", first + 3);
    ASSERT_NE(second, std::string::npos) << line;
    const Shapes& shapes = phases.at(line.substr(0, first));
    const auto found = shapes.find(line.substr(first + 3, second - first - 3));
    ASSERT_NE(found, shapes.end()) << line;
    EXPECT_EQ(found->second, line.substr(second + 3)) << line;
    ++rows;
  }
  EXPECT_EQ(rows, 50);
}

}  // namespace
}  // namespace dodona::model
