// A run of a layer as the execution graph shows it: every model op with its shapes, kernels, time, bytes and output statistics.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dodona/exec.h"
#include "dodona/tensor.h"
#include "model/layer/shape_book.h"

namespace dodona::model {

/// What a model op costs at least: bytes that it must read and write, each once, and its arithmetic by unit.
struct Work {
  double bytes = 0;         ///< weights, cache, activations
  double flops = 0;         ///< fp32 multiply-adds, two each
  double int8_ops = 0;      ///< products of narrow integers and their sums, two each
  double weight_bytes = 0;  ///< the part of `bytes` that is weights
  Work& operator+=(const Work& other);
};

/// One line of the execution tree.
struct OpRecord {
  std::string op, note;  ///< "self.q_b_proj()"; the note tells ops of one name apart
  int depth = 0;         ///< nesting in the execution graph
  bool group = false;    ///< a caller of other model ops: its time is theirs
  std::string shapes;    ///< "[B, 1536] -> [B, 24576]"
  std::string kernels;   ///< each once, in the order in which they first ran
  double seconds = 0;
  Work work;
  double rms = 0;  ///< of the first output
  std::int64_t not_finite = 0;
  NamedTensors outputs;  ///< kept when the trace keeps outputs
};

/// What a model op gives.
struct OpOutput {
  std::string_view label;  ///< the book's; "output" stands for an unlabelled one
  DType dtype{};
  Dims shape = {};  ///< of an output that the book does not have, and so does not check
};

/// A model op as it is asked for.
struct ModelOp {
  Part part{};
  std::string_view name, note = {};
  std::vector<ActualShape> inputs;  ///< labels as those of outputs
  std::vector<OpOutput> outputs;
  Work work;  ///< without the bytes of the outputs, which are added
};

/// Told of each model op when it is done, and of each group when its result is known. What it writes into the outputs of an op goes on to
/// the ops that follow.
using Observer = std::function<void(const OpRecord& record, const NamedTensors& outputs)>;

/// Runs model ops one by one, holds their shapes and kernels against the book, and keeps the records.
class Trace {
 public:
  enum class Bodies {
    run,
    leave_out,  ///< a plan: outputs have the book's shapes and no memory, kernels are the book's, nothing takes time
  };

  /// `checked` is a book whose batch is known; `shown` gives the texts.
  Trace(ShapeBook checked, ShapeBook shown, Exec exec, Bodies bodies = Bodies::run);
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  void observe(Observer observer) { observer_ = std::move(observer); }
  /// Records hold copies of the outputs from now on.
  void keep_outputs() { keep_outputs_ = true; }
  /// Records have no rms and no count of values that are not finite: a pass over every output less.
  void leave_out_statistics() { statistics_ = false; }
  bool plans() const { return bodies_ == Bodies::leave_out; }

  /// What ops inside the model op are called with: its tracer collects the kernels' names.
  const Exec& exec() const { return exec_; }
  const std::vector<OpRecord>& records() const { return records_; }

  /// Runs one model op, or plans it. `body` gives the outputs in the order in which `op` lists them, and so does this. Throws Error: the
  /// body's own, under the model op's name; bad_shape for a shape, unsupported for a kernel that is not the book's.
  std::vector<Tensor> run(const ModelOp& op, const std::function<std::vector<Tensor>()>& body);
  /// The only output of an op.
  Tensor run1(const ModelOp& op, const std::function<Tensor()>& body);

  /// Ops between `enter` and `leave` are shown below this line. With a part, its shapes are shown too.
  void enter(std::string_view name);
  void enter(Part part, std::string_view name);
  void leave();
  /// A model op of a trace of its own, or what was done between ops: below the group that was entered last, whose time and work it is.
  void add(OpRecord record);
  /// The result of the group that was entered last, for the records and the observer.
  void gives(const NamedTensors& outputs);
  class Scope {
   public:
    explicit Scope(Trace& trace) : trace_(trace) {}
    ~Scope() { trace_.leave(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Trace& trace_;
  };

 private:
  std::vector<Tensor> execute(const ModelOp& op, const BookEntry& expected, const std::function<std::vector<Tensor>()>& body,
                              OpRecord& record);
  std::vector<Tensor> planned(const ModelOp& op, const BookEntry& expected, OpRecord& record) const;
  OpRecord& push(std::string_view name, std::string_view note, std::string shapes);
  void hand_out(OpRecord& record, const NamedTensors& outputs);

  ShapeBook checked_, shown_;
  Exec exec_;
  Bodies bodies_;
  bool keep_outputs_ = false, statistics_ = true;
  Observer observer_;
  std::vector<OpRecord> records_;
  std::vector<std::string> kernels_;
  std::vector<std::size_t> open_;
};

/// "[B, 1536] -> [B, 24576]", as the book has them with numbers.
std::string shapes_text(const BookEntry& entry);

}  // namespace dodona::model
