// From an op's struct and its functions to an entry of the inventory, and typed calls.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "core/call.h"
#include "core/describe.h"
#include "dodona/error.h"
#include "dodona/op.h"

namespace dodona {

/// A known defect of the upstream kernel, and how it shows in actual outputs, if it does.
template <class O>
struct DefectOf {
  std::string_view id, output, summary;  ///< see KnownDefect
  bool (*explains)(const O& actual, std::string_view output, std::int64_t linear) = nullptr;
};

/// A mistake of the op's kernels, and golden mode with it.
template <class O>
struct MistakeOf {
  std::string_view id, text;
  void (*golden)(const O&, const Exec&, Reference*);
  bool may_hide = false;  ///< see KernelMistake
};

/// Weights that are packed once and multiplied often: what Op::pack makes of them, and fast mode that reads it.
template <class O>
struct PreparedForm {
  /// Names of the arguments that it replaces; empty ones are none.
  std::array<std::string_view, 4> arguments = {};
  /// The first dimension of each counts experts, one part for each: parts are packed alone, as calls with E = 1, and may be left out.
  bool by_part = false;
  /// Bytes of one part. Here and in `pack` only the arguments above are there, checked by the schema.
  std::int64_t (*bytes)(const O&) = nullptr;
  /// Writes one part; the bits depend on the arguments alone.
  void (*pack)(const O&, std::byte* part, const Exec&) = nullptr;
  /// Fast mode over what was packed, with the bits of `fast`. The arguments above have dtypes and shapes, but no memory (`check` and
  /// `flops` see them so as well). Throws Error when a part is needed that is not there.
  void (*fast)(const O&, const Prepared&, const Exec&) = nullptr;
};

/// The functions of an op, and what the tools say about it. `golden` and `fast` are required.
template <class O>
struct Implementation {
  /// The contract in words: which values are rounded, to what, when; what may be reordered; where the budget comes from.
  std::string contract;
  int contract_version = 1;
  /// Writes the outputs; with a reference, also what the judge needs.
  void (*golden)(const O&, const Exec&, Reference*) = nullptr;
  void (*fast)(const O&, const Exec&) = nullptr;
  /// GPUs' bits, mode by mode. One function may serve several: exec.mode says which.
  void (*hopper)(const O&, const Exec&) = nullptr;
  void (*blackwell)(const O&, const Exec&) = nullptr;
  void (*ada)(const O&, const Exec&) = nullptr;
  void (*ampere)(const O&, const Exec&) = nullptr;
  /// Why a mode that the op has cannot be asked for with these arguments; they are valid. Where it answers, the mode is never run.
  std::optional<Refusal> (*unsupported)(const O&, Mode) = nullptr;
  PreparedForm<O> prepare = {};
  /// Makes outputs that were not given where their sizes depend on what inputs hold. Called before validation: nothing is certain of
  /// the arguments. Throws Error.
  void (*make_outputs)(O&) = nullptr;
  /// Fills the inputs of case lines that are functions of other inputs: those with `.kin()`. All memory is there, nothing is validated.
  /// What it draws comes from streams named after the argument, see InputDraw, so that docs/regenerate_inputs.py can do the same.
  void (*make_inputs)(O&, std::uint64_t seed) = nullptr;
  /// Checks that the schema cannot express. Throws Error.
  void (*check)(const O&) = nullptr;
  /// See Op::condition.
  void (*condition)(const O& actual, const Exec&, Reference&) = nullptr;
  /// Floating-point operations of a call; 0 where memory is the limit.
  double (*flops)(const O&) = nullptr;
  /// Bytes of arguments that a call reads only parts of (tables looked up by position, caches): what it reads at most. By default all.
  double (*bytes_read)(const O&) = nullptr;
  std::vector<DefectOf<O>> defects = {};
  /// Mistakes that follow from no other arguments; those that do, the oracle knows by itself.
  std::vector<MistakeOf<O>> mistakes = {};
  /// What upstream's own tests compare: our judges are held against it.
  std::vector<Customary> customary = {};
  std::vector<FibNames> fib_names = {};
  /// Case lines without the op's name: `T=4 H=7168`.
  std::vector<std::string> cases;
  std::vector<std::string> bench_cases;
};

/// Throws logic_error naming the op and the field where the schema leaves out what it must say: descriptions, a code for a judge.
void require_complete(const OpInfo& info, const OpSchema& schema, bool has_condition, bool has_make_inputs);

/// White space folded to single spaces: contracts are written as raw strings, in lines.
std::string folded(std::string_view text);

template <class O>
OpSchema schema_of() {
  O op;
  OpSchema schema;
  SchemaWriter writer(schema);
  op.describe(writer);
  return schema;
}

template <class O>
class OpOf final : public Op {
 public:
  explicit OpOf(Implementation<O> implementation) : implementation_(std::move(implementation)) {
    info_ = O::info;
    schema_ = schema_of<O>();
    for (const std::string_view argument : implementation_.prepare.arguments)
      if (!argument.empty()) schema_.properties.prepared.emplace_back(argument);
    compile(info_, schema_);
    require_complete(info_, schema_, implementation_.condition != nullptr, implementation_.make_inputs != nullptr);
    contract_ = folded(implementation_.contract);
    contract_version_ = implementation_.contract_version;
    cases_ = implementation_.cases;
    bench_cases_ = implementation_.bench_cases;
    for (const auto& defect : implementation_.defects) defects_.push_back({defect.id, defect.output, defect.summary});
    customary_ = implementation_.customary;
    fib_names_ = implementation_.fib_names;
  }

  bool has(Mode mode) const override { return !of_a_gpu(mode) || on_gpu(mode) != nullptr; }

  void make_inputs(Arguments& arguments, std::uint64_t seed) const override {
    if (implementation_.make_inputs == nullptr) return;
    O op;
    Fields fields;
    FieldCollector collector(fields);
    op.describe(collector);
    bind(info_, schema_, arguments, fields);
    implementation_.make_inputs(op, seed);
  }

  /// A typed call: validates `op` (its undefined outputs are allocated) and runs it.
  void run_typed(O& op, const Exec& exec, const Prepared& prepared) const {
    Fields fields;
    FieldCollector collector(fields);
    op.describe(collector);
    stand_in(info_, schema_, prepared, fields);
    prepare_fields(op, fields);
    execute(op, prepared, exec);
    for (int i = 0; i < fields.tensor_count; ++i)
      if (fields.stands_in[static_cast<std::size_t>(i)]) *fields.tensors[static_cast<std::size_t>(i)] = Tensor();
  }

  std::optional<Refusal> refusal(const Arguments& arguments, Mode mode) const override {
    O op;
    if (has(mode) && implementation_.unsupported != nullptr) {
      Fields fields;
      bind_and_prepare(op, fields, arguments);
    }
    return refusal_of(op, mode);
  }

  void run(Arguments& arguments, const Exec& exec) const override {
    O op;
    Fields fields;
    bind_and_prepare(op, fields, arguments);
    execute(op, arguments.prepared, exec);
    give_back(schema_, fields, arguments);
  }

  Prepared pack_typed(O& op, const Exec& exec) const {
    Fields fields;
    FieldCollector collector(fields);
    op.describe(collector);
    return pack_fields(op, fields, exec);
  }

  Prepared pack(const Arguments& weights, const Exec& exec) const override {
    refuse_prepared(info_, weights.prepared, "packing");
    O op;
    Fields fields;
    FieldCollector collector(fields);
    op.describe(collector);
    bind(info_, schema_, weights, fields);
    return pack_fields(op, fields, exec);
  }

  void prepare(Arguments& arguments) const override {
    O op;
    Fields fields;
    bind_and_prepare(op, fields, arguments);
    give_back(schema_, fields, arguments);
  }

  void reference(Arguments& arguments, const Exec& exec, Reference& reference) const override {
    reference_by(implementation_.golden, arguments, exec, reference);
  }

  std::vector<KernelMistake> mistakes() const override {
    std::vector<KernelMistake> list;
    for (const auto& mistake : implementation_.mistakes) list.push_back({mistake.id, mistake.text, mistake.may_hide});
    return list;
  }

  void mistaken_reference(std::string_view id, Arguments& arguments, const Exec& exec, Reference& reference) const override {
    for (const auto& mistake : implementation_.mistakes)
      if (mistake.id == id) return reference_by(mistake.golden, arguments, exec, reference);
    throw Error(ErrorCode::bad_option, std::string(info_.name), std::string(id), "is no mistake that this op declares");
  }

  void condition(Arguments& arguments, const Exec& exec, Reference& reference) const override {
    if (implementation_.condition == nullptr) return;
    refuse_prepared(info_, arguments.prepared, "judging");
    O op;
    Fields fields;
    bind_and_prepare(op, fields, arguments);
    implementation_.condition(op, exec, reference);
  }

  bool conditions() const override { return implementation_.condition != nullptr; }

  DefectFinder defect_finder(const Arguments& arguments) const override {
    const auto shows = [](const DefectOf<O>& defect) { return defect.explains != nullptr; };
    if (std::none_of(implementation_.defects.begin(), implementation_.defects.end(), shows)) return {};
    refuse_prepared(info_, arguments.prepared, "judging");
    auto op = std::make_shared<O>();
    Fields fields;
    bind_and_prepare(*op, fields, arguments);
    return [this, op](std::string_view output, std::int64_t linear) -> const KnownDefect* {
      for (std::size_t i = 0; i < defects_.size(); ++i)
        if (const auto explains = implementation_.defects[i].explains; explains != nullptr && explains(*op, output, linear))
          return &defects_[i];
      return nullptr;
    };
  }

  Cost cost(Arguments& arguments) const override {
    O op;
    Fields fields;
    bind_and_prepare(op, fields, arguments);
    Cost cost;
    for (int i = 0; i < fields.tensor_count; ++i) {
      const Tensor& tensor = *fields.tensors[static_cast<std::size_t>(i)];
      if (!tensor.defined()) continue;
      const auto bytes = static_cast<double>(bytes_for(tensor.dtype(), tensor.elements()));
      const Direction direction = schema_.tensors[static_cast<std::size_t>(i)].direction;
      if (direction != Direction::out) cost.bytes_read += bytes;
      if (direction != Direction::in) cost.bytes_written += bytes;
    }
    if (implementation_.flops != nullptr) cost.flops = implementation_.flops(op);
    if (implementation_.bytes_read != nullptr) cost.bytes_read = implementation_.bytes_read(op);
    return cost;
  }

 private:
  void prepare_fields(O& op, Fields& fields) const {
    try {
      if (implementation_.make_outputs != nullptr) implementation_.make_outputs(op);
      validate(info_, schema_, fields);
      if (implementation_.check != nullptr) implementation_.check(op);
    } catch (const Error& error) {
      throw error.within(std::string(info_.name));
    } catch (const std::bad_alloc&) {
      throw out_of_memory();
    }
  }

  void bind_and_prepare(O& op, Fields& fields, const Arguments& arguments) const {
    FieldCollector collector(fields);
    op.describe(collector);
    bind(info_, schema_, arguments, fields);
    prepare_fields(op, fields);
  }

  void reference_by(void (*golden)(const O&, const Exec&, Reference*), Arguments& arguments, const Exec& exec, Reference& reference) const {
    refuse_prepared(info_, arguments.prepared, "golden mode");
    O op;
    Fields fields;
    bind_and_prepare(op, fields, arguments);
    try {
      golden(op, exec, &reference);
    } catch (const Error& error) {
      throw error.within(std::string(info_.name));
    } catch (const std::bad_alloc&) {
      throw out_of_memory();
    }
    give_back(schema_, fields, arguments);
  }

  Prepared pack_fields(O& op, Fields& fields, const Exec& exec) const {
    validate_weights(info_, schema_, fields);
    try {
      return packed(op, fields, exec);
    } catch (const Error& error) {
      throw error.within(std::string(info_.name));
    } catch (const std::bad_alloc&) {
      throw out_of_memory();
    }
  }

  /// Of weights that are valid.
  Prepared packed(O& op, Fields& fields, const Exec& exec) const {
    const PreparedForm<O>& form = implementation_.prepare;
    std::vector<Prepared::Argument> arguments;
    std::vector<std::pair<Tensor*, Tensor>> weights;
    for (int i = 0; i < fields.tensor_count; ++i) {
      Tensor& tensor = *fields.tensors[static_cast<std::size_t>(i)];
      if (!tensor.defined()) continue;
      arguments.push_back({schema_.tensors[static_cast<std::size_t>(i)].name, tensor.dtype(), tensor.shape(), tensor.strides()});
      weights.emplace_back(&tensor, tensor);
    }
    const std::int64_t count = form.by_part ? weights.front().second.size(0) : 1;
    std::vector<Tensor> parts;
    for (std::int64_t part = 0; part < count; ++part) {
      if (form.by_part)
        for (const auto& [field, whole] : weights) *field = whole.slice(0, part, part + 1);
      parts.push_back(Tensor::uninitialized(DType::u8, {form.bytes(op)}));
      form.pack(op, parts.back().as<std::byte>(), exec);
    }
    return Prepared::of(info_.name, form.by_part, std::move(arguments), std::move(parts));
  }

  /// nullptr where the op has no such mode.
  auto on_gpu(Mode mode) const {
    const Implementation<O>& own = implementation_;
    return mode == Mode::hopper ? own.hopper : mode == Mode::blackwell ? own.blackwell : mode == Mode::ada ? own.ada : own.ampere;
  }

  std::optional<Refusal> refusal_of(const O& op, Mode mode) const {
    if (!has(mode)) return Refusal{"", "has no " + std::string(dodona::name(mode)) + " mode, expected " + either_of(modes())};
    return implementation_.unsupported != nullptr ? implementation_.unsupported(op, mode) : std::nullopt;
  }

  Error out_of_memory() const { return {ErrorCode::out_of_memory, std::string(info_.name), "", "needs more memory than can be had"}; }

  void execute(const O& op, const Prepared& prepared, const Exec& exec) const {
    if (exec.mode != Mode::fast) refuse_prepared(info_, prepared, std::string(dodona::name(exec.mode)) + " mode");
    try {
      Reference* const reference = exec.witness != nullptr ? exec.witness->begins(*this, arguments_of(op)) : nullptr;
      execute_mode(op, prepared, exec, reference);
      if (exec.witness != nullptr) exec.witness->ends();
    } catch (const Error& error) {
      throw error.within(std::string(info_.name));
    } catch (const std::bad_alloc&) {
      throw out_of_memory();
    }
  }

  Arguments arguments_of(O op) const {
    Fields fields;
    FieldCollector collector(fields);
    op.describe(collector);
    return dodona::arguments_of(schema_, fields);
  }

  void execute_mode(const O& op, const Prepared& prepared, const Exec& exec, Reference* reference) const {
    // The one place where a mode that is not to be had becomes an error.
    if (const auto refused = refusal_of(op, exec.mode))
      throw Error(ErrorCode::unsupported, std::string(info_.name), refused->argument, refused->reason);
    const auto begin = exec.tracer ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point{};
    switch (exec.mode) {
      case Mode::fast:
        if (prepared.defined()) {
          implementation_.prepare.fast(op, prepared, exec);
        } else {
          implementation_.fast(op, exec);
        }
        break;
      case Mode::golden: implementation_.golden(op, exec, reference); break;
      default: on_gpu(exec.mode)(op, exec);
    }
    if (exec.tracer) {
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
      exec.tracer({info_.name, exec.mode, exec.isa, exec.threads, elapsed.count()});
    }
  }

  Implementation<O> implementation_;
};

template <class O>
std::unique_ptr<Op> define(Implementation<O> implementation) {
  return std::make_unique<OpOf<O>>(std::move(implementation));
}

namespace ops {
template <class O>
const OpOf<O>& entry_of() {
  static const auto& entry = dynamic_cast<const OpOf<O>&>(registry().at(O::info.name));
  return entry;
}

/// Typed call: `ops::run(Rmsnorm{.input = x, .weight = w, .output = y}, exec)`. Returns the op with its outputs filled in.
/// `prepared` stands for the weights that it was made of; those stay undefined.
template <class O>
O run(O op, const Exec& exec, const Prepared& prepared = {}) {
  entry_of<O>().run_typed(op, exec, prepared);
  return op;
}

/// Op::pack, typed: `ops::prepare(CutlassScaledFp4Mm{.b = b, .block_scale_b = scales}, exec)`.
template <class O>
Prepared prepare(O weights, const Exec& exec) {
  return entry_of<O>().pack_typed(weights, exec);
}
}  // namespace ops

}  // namespace dodona
