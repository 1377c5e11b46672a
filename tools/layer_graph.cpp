#include "layer_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "dodona/op.h"
#include "io/atomic_file.h"
#include "oracle/report/report.h"

namespace dodona::tools {
namespace {

std::string title_of(const model::OpRecord& record) {
  return record.note.empty() ? record.op : record.op + " (" + record.note + ")";
}

std::string milliseconds(double seconds) {
  return fmt::format("{:.3f} ms", seconds * 1e3);
}

std::string source_of(const std::string& kernel) {
  const Op* const op = registry().find(kernel);
  return op == nullptr ? "" : to_string(op->info().sources);
}

/// Kernels of one name as one, in the order in which they first ran.
struct KernelSum {
  std::string name;
  double seconds = 0;
  int runs = 0;
};
std::vector<KernelSum> summed(const std::vector<KernelRun>& kernels) {
  std::vector<KernelSum> sums;
  for (const KernelRun& run : kernels) {
    auto found = std::find_if(sums.begin(), sums.end(), [&](const KernelSum& sum) { return sum.name == run.name; });
    if (found == sums.end()) found = sums.insert(sums.end(), {run.name});
    found->seconds += run.seconds;
    ++found->runs;
  }
  return sums;
}

bool has_sibling(const std::vector<GraphNode>& graph, std::size_t i, int depth) {
  for (std::size_t j = i + 1; j < graph.size() && graph[j].record.depth >= depth; ++j)
    if (graph[j].record.depth == depth) return true;
  return false;
}

/// What stands before a line of the tree at node i: its branch, or for lines beneath it the stems that go on.
std::string branch(const std::vector<GraphNode>& graph, std::size_t i, bool beneath) {
  std::string text;
  const int depth = graph[i].record.depth;
  for (int d = 1; d <= depth; ++d) {
    const bool more = has_sibling(graph, i, d);
    const bool own = d == depth && !beneath;
    text += own ? (more ? "├─> " : "└─> ") : more ? "│   " : "    ";
  }
  return text;
}

/// Callers of node i from the outermost to itself.
std::vector<std::size_t> chain_to(const std::vector<GraphNode>& graph, std::size_t i) {
  std::vector<std::size_t> chain{i};
  for (std::size_t j = i; j-- > 0;)
    if (graph[j].record.depth < graph[chain.back()].record.depth) chain.push_back(j);
  std::reverse(chain.begin(), chain.end());
  return chain;
}

std::string kernel_list(const GraphNode& node) {
  std::string text;
  for (const KernelSum& kernel : summed(node.kernels))
    text += (text.empty() ? "" : ", ") + ("`" + kernel.name + "`") + (kernel.runs > 1 ? " x " + std::to_string(kernel.runs) : "");
  return text;
}

/// For each kernel the chains that lead to it, each once.
std::map<std::string, std::vector<std::string>> chains_of(const std::vector<GraphNode>& graph) {
  std::map<std::string, std::vector<std::string>> chains;
  for (std::size_t i = 0; i < graph.size(); ++i)
    for (const KernelSum& kernel : summed(graph[i].kernels)) {
      std::string text, indent;
      for (const std::size_t caller : chain_to(graph, i)) {
        text += indent.empty() ? "" : indent + "└─> ";
        text += title_of(graph[caller].record) + "\n";
        indent += indent.empty() ? "  " : "    ";
      }
      text += indent + "└─> " + source_of(kernel.name) + ": " + kernel.name + "()" +
              (kernel.runs > 1 ? " x " + std::to_string(kernel.runs) : "") + "\n";
      auto& known = chains[kernel.name];
      if (std::find(known.begin(), known.end(), text) == known.end()) known.push_back(text);
    }
  return chains;
}

std::pair<std::string, std::string> split_shapes(const std::string& shapes) {
  const std::size_t arrow = shapes.find(" -> ");
  return arrow == std::string::npos ? std::pair(shapes, std::string()) : std::pair(shapes.substr(0, arrow), shapes.substr(arrow + 4));
}

io::Json node_json(const std::vector<GraphNode>& graph, std::size_t& i) {
  const GraphNode& node = graph[i];
  io::Json kernels = io::Json::array(), children = io::Json::array();
  for (const KernelRun& kernel : node.kernels)
    kernels.push_back({{"kernel", kernel.name}, {"source", source_of(kernel.name)}, {"seconds", kernel.seconds}});
  const int depth = node.record.depth;
  for (++i; i < graph.size() && graph[i].record.depth > depth;) children.push_back(node_json(graph, i));
  return {{"op", node.record.op},           {"note", node.record.note}, {"shapes", node.record.shapes},
          {"seconds", node.record.seconds}, {"kernels", kernels},       {"children", children}};
}

}  // namespace

std::function<void(const TraceEvent&)> GraphRecorder::calls() {
  return [this](const TraceEvent& event) { pending_.push_back({std::string(event.op), event.seconds}); };
}

model::Observer GraphRecorder::ops() {
  pending_.clear();
  of_ops_.clear();
  return [this](const model::OpRecord& record, const NamedTensors&) {
    if (!record.group) {
      // Calls between ops make weights ready: they are none of this op's kernels.
      std::erase_if(pending_, [&](const KernelRun& run) { return record.kernels.find(run.name) == std::string::npos; });
      of_ops_.push_back(std::move(pending_));
    }
    pending_.clear();
  };
}

std::vector<GraphNode> GraphRecorder::graph(const std::vector<model::OpRecord>& records) const {
  std::vector<GraphNode> graph;
  std::size_t next = 0;
  for (const model::OpRecord& record : records) {
    GraphNode& node = graph.emplace_back(GraphNode{record, {}});
    if (!record.group && next < of_ops_.size()) node.kernels = of_ops_[next++];
  }
  return graph;
}

model::LanguageModel::Hooks ModelGraph::hooks() {
  model::LanguageModel::Hooks hooks;
  hooks.before_layer = [this](std::int64_t, model::Trace& trace) { trace.observe(recorder_.ops()); };
  hooks.traced = [this](std::int64_t layer, const model::Trace& trace) {
    for (GraphNode& node : recorder_.graph(trace.records())) {
      if (node.record.depth == 0) node.record.note = std::to_string(layer);
      ++node.record.depth;
      nodes_.push_back(std::move(node));
    }
  };
  hooks.outer = [this](const model::OpRecord& record) {
    GraphNode node{record, {}};
    node.record.depth = 1;
    if (!record.kernels.empty()) node.kernels.push_back({record.kernels, record.seconds});
    nodes_.push_back(std::move(node));
  };
  return hooks;
}

std::vector<GraphNode> ModelGraph::graph() const {
  GraphNode model{{.op = "self.model()", .group = true}, {}};
  for (const GraphNode& node : nodes_)
    if (node.record.depth == 1) model.record.seconds += node.record.seconds;
  std::vector<GraphNode> all{std::move(model)};
  all.insert(all.end(), nodes_.begin(), nodes_.end());
  return all;
}

std::string graph_text(const std::vector<GraphNode>& graph) {
  std::string text;
  for (std::size_t i = 0; i < graph.size(); ++i) {
    const model::OpRecord& record = graph[i].record;
    text += branch(graph, i, false) + title_of(record) + (record.shapes.empty() ? "" : "  " + record.shapes) + "  " +
            milliseconds(record.seconds) + "\n";
    for (const KernelSum& kernel : summed(graph[i].kernels))
      text += branch(graph, i, true) + "    - " + source_of(kernel.name) + ": " + kernel.name +
              (kernel.runs > 1 ? " x " + std::to_string(kernel.runs) : "") + "  " + milliseconds(kernel.seconds) + "\n";
  }
  return text;
}

std::string graph_markdown(const std::vector<GraphNode>& graph, const GraphTitle& title) {
  std::string text =
      "# " + title.model + ": execution ops\n\n" + title.what + "\n\n## Execution path\n\n```\n" + graph_text(graph) + "```\n\n";
  text += "## Ops\n\n| Op | Input Shape | Output Shape | Kernel | Time |\n|----|-------------|--------------|--------|------|\n";
  for (const GraphNode& node : graph) {
    if (node.record.group) continue;
    const auto [inputs, outputs] = split_shapes(node.record.shapes);
    text += "| `" + title_of(node.record) + "` | " + inputs + " | " + outputs + " | " + kernel_list(node) + " | " +
            milliseconds(node.record.seconds) + " |\n";
  }
  text += "\n## Call chains\n";
  for (const auto& [kernel, chains] : chains_of(graph)) {
    text += "\n### " + kernel + "\n\n**Source:** " + source_of(kernel) + "\n";
    for (const std::string& chain : chains) text += "\n```\n" + chain + "```\n";
  }
  return text;
}

std::string graph_html(const std::vector<GraphNode>& graph, const GraphTitle& title) {
  using oracle::escaped;
  std::string text =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>" + escaped(title.model) +
      ": execution ops</title>\n<style>body{font:14px/1.4 system-ui,sans-serif;margin:2em}pre{background:#f6f6f6;padding:1em;"
      "overflow-x:auto}table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:2px 8px;text-align:left}"
      "td:last-child{text-align:right}</style>\n<h1>" +
      escaped(title.model) + ": execution ops</h1>\n<p>" + escaped(title.what) + "</p>\n<h2>Execution path</h2>\n<pre>" +
      escaped(graph_text(graph)) +
      "</pre>\n<h2>Ops</h2>\n<table>\n<tr><th>Op</th><th>Input Shape</th><th>Output Shape</th><th>Kernel</th><th>Time</th></tr>\n";
  for (const GraphNode& node : graph) {
    if (node.record.group) continue;
    const auto [inputs, outputs] = split_shapes(node.record.shapes);
    std::string kernels;
    for (const KernelSum& kernel : summed(node.kernels)) kernels += (kernels.empty() ? "" : ", ") + kernel.name;
    text += "<tr><td>" + escaped(title_of(node.record)) + "</td><td>" + escaped(inputs) + "</td><td>" + escaped(outputs) + "</td><td>" +
            escaped(kernels) + "</td><td>" + milliseconds(node.record.seconds) + "</td></tr>\n";
  }
  text += "</table>\n<h2>Call chains</h2>\n";
  for (const auto& [kernel, chains] : chains_of(graph)) {
    text += "<h3>" + escaped(kernel) + " (" + escaped(source_of(kernel)) + ")</h3>\n";
    for (const std::string& chain : chains) text += "<pre>" + escaped(chain) + "</pre>\n";
  }
  return text + "</html>\n";
}

io::Json graph_json(const std::vector<GraphNode>& graph) {
  std::size_t i = 0;
  return graph.empty() ? io::Json() : node_json(graph, i);
}

io::Json chrome_trace(const std::vector<GraphNode>& graph, const GraphTitle& title) {
  io::Json events = io::Json::array();
  const auto name_track = [&](int track, const std::string& name) {
    events.push_back({{"name", "thread_name"}, {"ph", "M"}, {"pid", 1}, {"tid", track}, {"args", {{"name", name}}}});
  };
  events.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", 1}, {"args", {{"name", title.model + ", " + title.what}}}});
  name_track(1, "model ops");
  name_track(2, "kernels");
  const auto span = [&](int track, const std::string& name, double begin, double seconds, io::Json args) {
    events.push_back(
        {{"name", name}, {"ph", "X"}, {"pid", 1}, {"tid", track}, {"ts", begin * 1e6}, {"dur", seconds * 1e6}, {"args", std::move(args)}});
  };
  double now = 0;
  for (const GraphNode& node : graph) {
    const model::OpRecord& r = node.record;
    span(1, title_of(r), now, r.seconds, {{"shapes", r.shapes}, {"kernels", r.kernels}, {"bytes", r.work.bytes}, {"flops", r.work.flops}});
    if (r.group) continue;
    double at = now;
    for (const KernelRun& kernel : node.kernels) {
      span(2, kernel.name, at, kernel.seconds, {{"source", source_of(kernel.name)}});
      at += kernel.seconds;
    }
    now += r.seconds;
  }
  return {{"traceEvents", events}, {"displayTimeUnit", "ms"}};
}

void GraphOptions::add(CLI::App& command, const std::string& what) {
  command
      .add_option("--graph", graph,
                  "Show the execution graph instead" + what +
                      ": text, json, md or html, with shapes, kernels, their sources, times and the chains of callers that lead to each "
                      "kernel. It is all that is printed")
      ->check(CLI::IsMember({"text", "json", "md", "html"}));
  command.add_option("--chrome-trace", chrome_trace,
                     "Write the run to this file in the Trace Event Format, for Perfetto: spans of model ops and kernels; arithmetic "
                     "alone, without what makes weights ready between ops");
}

void GraphOptions::show(const std::vector<GraphNode>& nodes, const GraphTitle& title) const {
  if (graph == "text") fmt::print("{}", graph_text(nodes));
  if (graph == "md") fmt::print("{}", graph_markdown(nodes, title));
  if (graph == "html") fmt::print("{}", graph_html(nodes, title));
  if (graph == "json") fmt::print("{}\n", io::json_text({{"model", title.model}, {"step", title.what}, {"graph", graph_json(nodes)}}, 2));
  if (chrome_trace.empty()) return;
  const std::string text = io::json_text(tools::chrome_trace(nodes, title)) + "\n";
  io::write_file(chrome_trace, std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace dodona::tools
