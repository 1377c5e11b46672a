// The execution graph of a run: model op, shapes, kernels and times, in the form of the execution documents, and as a trace.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "io/json.h"
#include "model/language_model.h"
#include "model/layer/trace.h"

namespace dodona::tools {

/// A kernel that a model op ran.
struct KernelRun {
  std::string name;
  double seconds = 0;
};

/// A model op or a caller of some, with what it ran itself, in order.
struct GraphNode {
  model::OpRecord record;
  std::vector<KernelRun> kernels;
};

/// Collects a graph while a layer runs. `calls` goes to Exec::tracer, `ops` to the run; both refer to this.
class GraphRecorder {
 public:
  std::function<void(const TraceEvent&)> calls();
  /// For the run that follows; what came before is forgotten.
  model::Observer ops();
  /// With the records of the run that was observed.
  std::vector<GraphNode> graph(const std::vector<model::OpRecord>& records) const;

 private:
  std::vector<KernelRun> pending_;
  std::vector<std::vector<KernelRun>> of_ops_;  ///< of the ops that are no groups, as they were done
};

/// Graphs of passes through a whole model: what is around its layers, and the layers.
class ModelGraph {
 public:
  /// For the model's runs, which are to be traced by calls() of `layers()`; refer to this.
  GraphRecorder& layers() { return recorder_; }
  model::LanguageModel::Hooks hooks();

  /// Everything beneath self.model(), in the order in which it ran.
  std::vector<GraphNode> graph() const;

 private:
  GraphRecorder recorder_;
  std::vector<GraphNode> nodes_;
};

/// What the graph is of, for headings.
struct GraphTitle {
  std::string model, what;  ///< "r1", "layer 3 (MoE), decode, B=1..."
};

/// `--graph` and `--chrome-trace`.
struct GraphOptions {
  std::string graph, chrome_trace;

  /// `what` follows "Show the execution graph instead".
  void add(CLI::App& command, const std::string& what);
  bool any() const { return !(graph + chrome_trace).empty(); }
  /// The graph on the terminal, the trace in its file.
  void show(const std::vector<GraphNode>& nodes, const GraphTitle& title) const;
};

/// The tree of ops, each with its kernels beneath it.
std::string graph_text(const std::vector<GraphNode>& graph);
/// The same as a page: tree, table of ops, and for each kernel the chains of callers that lead to it.
std::string graph_markdown(const std::vector<GraphNode>& graph, const GraphTitle& title);
std::string graph_html(const std::vector<GraphNode>& graph, const GraphTitle& title);
/// op, note, shapes, seconds, kernels [{kernel, source, seconds}] and children of each.
io::Json graph_json(const std::vector<GraphNode>& graph);
/// Trace Event Format (Perfetto, chrome://tracing): ops as nested spans on one track, kernels on another. Time is arithmetic alone: what
/// lies between ops (making weights ready) is left out.
io::Json chrome_trace(const std::vector<GraphNode>& graph, const GraphTitle& title);

}  // namespace dodona::tools
