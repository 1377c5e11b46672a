#include "oracle/fib/fib_import.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>

#include "core/call.h"
#include "dodona/error.h"
#include "dodona/version.h"
#include "io/stopwatch.h"
#include "oracle/cases/generate.h"
#include "oracle/fib/fib_inputs.h"
#include "oracle/fib/fib_mapping.h"
#include "oracle/fib/fib_mla.h"
#include "oracle/judge/judge.h"
#include "quant/element.h"

namespace dodona::oracle::fib {
namespace {

/// Sizes that the shapes of a call give the schema's symbols.
SymbolValues symbols_of(const OpSchema& schema, const std::map<std::string, Dims>& shapes, const Arguments& attrs) {
  const CompiledSchema& compiled = *schema.compiled;
  SymbolValues values(compiled.symbols.count());
  for (int s = 0; s < compiled.symbols.count(); ++s)
    if (const AttrValue* value = attrs.find_attr(compiled.symbols.name(s)))
      if (const auto* whole = std::get_if<std::int64_t>(value)) values.bind(s, *whole, -1);
  for (int pass = 0; pass < 2; ++pass)
    for (std::size_t t = 0; t < schema.tensors.size(); ++t) {
      const auto shape = shapes.find(schema.tensors[t].name);
      if (shape == shapes.end()) continue;
      const ShapeAlternative* alternative = compiled.tensors[t].shape.for_rank(shape->second.rank());
      if (alternative == nullptr) continue;
      const int lead = shape->second.rank() - static_cast<int>(alternative->dims.size());
      for (std::size_t d = 0; d < alternative->dims.size(); ++d)
        alternative->dims[d].match(shape->second[lead + static_cast<int>(d)], values, static_cast<int>(t));
    }
  return values;
}

std::int64_t bound_of(const OpSchema& schema, const TensorSpec& spec, const SymbolValues& values) {
  const auto& bound = schema.compiled->tensors[static_cast<std::size_t>(&spec - schema.tensors.data())].bound;
  if (!bound) return 0;
  const auto& symbols = bound->symbols();
  const bool known = std::all_of(symbols.begin(), symbols.end(), [&](int symbol) { return values.bound(symbol); });
  return known ? bound->evaluate(values) : 0;
}

AttrValue attr_from(const AttrSpec& spec, double value) {
  if (std::holds_alternative<bool>(spec.default_value)) return value != 0;
  if (std::holds_alternative<std::int64_t>(spec.default_value)) return static_cast<std::int64_t>(value);
  return value;
}

/// `recipe:NAME=VALUE` tags of our own exports.
void read_recipe(const Definition& d, const Op& op, Arguments& arguments) {
  for (const std::string& tag : d.tags) {
    if (!tag.starts_with("recipe:")) continue;
    const std::size_t equals = tag.find('=');
    if (equals == std::string::npos) continue;
    const std::string attr = tag.substr(7, equals - 7);
    // Words and dtypes: one of them is `nan`, which would read as a number.
    if (op.schema().find_attr(attr) != nullptr) arguments.set_attr(attr, tag.substr(equals + 1));
  }
}

/// The element type that our argument takes of a declared one. A tag of our own exports says what an int8 stands for.
DType type_for(const Definition& d, const Field& field, const TensorSpec& spec, const Arguments& arguments) {
  if (const auto meant = parse_dtype(d.tag("bits:" + field.name + "="))) return *meant;
  if (const auto declared = parse_fib_dtype(field.dtype)) return *declared;
  // Dumps say `unknown`.
  if (const Tensor* other = arguments.find(spec.same_dtype_as); other != nullptr && !spec.same_dtype_as.empty()) return other->dtype();
  if (spec.dtypes.empty()) throw Error(ErrorCode::bad_file, "", d.path, field.name + " has dtype '" + field.dtype + "'");
  return spec.dtypes.front();
}

Case import_by_names(const Inputs& inputs, const Mapping& mapping, const ImportOptions& options, std::vector<std::string>& notes) {
  const Definition& d = inputs.definition();
  const OpSchema& schema = mapping.op->schema();
  Case c;
  c.op = mapping.op;
  read_recipe(d, *mapping.op, c.inputs);
  std::map<std::string, Dims> shapes;
  for (const auto& [ours, theirs] : mapping.arguments) {
    const Field& field = *d.input(theirs);
    if (const AttrSpec* attr = schema.find_attr(ours); attr != nullptr && (field.scalar || schema.find_tensor(ours) == nullptr)) {
      if (inputs.source(field).kind == Source::Kind::scalar) {
        c.inputs.set_attr(ours, attr_from(*attr, inputs.scalar(field)));
      } else if (attr->required) {
        throw Error(ErrorCode::bad_file, "", d.name, ours + " must be a scalar of the workload");
      }
    } else if (!field.scalar) {
      shapes[ours] = inputs.shape(field);
    } else {
      shapes[ours] = Dims{1};
    }
  }
  const SymbolValues symbols = symbols_of(schema, shapes, c.inputs);
  std::map<std::string, Tensor> known;
  bool seeded = false;
  for (const auto& [ours, theirs] : mapping.arguments) {
    const TensorSpec* spec = schema.find_tensor(ours);
    const Field& field = *d.input(theirs);
    // One name may be both an output and the attribute that asks for it: the input is the attribute.
    if (spec == nullptr || (field.scalar && schema.find_attr(ours) != nullptr)) continue;
    const Source& source = inputs.source(field);
    if (field.optional && source.kind == Source::Kind::random && spec->optional) continue;
    const DType type = type_for(d, field, *spec, c.inputs);
    Tensor tensor;
    if (source.kind == Source::Kind::file) {
      tensor = inputs.load(field, type);
    } else {
      tensor = Tensor(type, shapes.at(ours));
      if (source.kind == Source::Kind::scalar) {
        quant::set(tensor, 0, inputs.scalar(field));
      } else {
        fill(tensor, spec->role, bound_of(schema, *spec, symbols), "normal", options.seed, ours, options.threads);
        seeded = true;
      }
    }
    known[theirs] = tensor;
    // A file may keep a tensor where the op would not have it.
    const bool misplaced = reinterpret_cast<std::uintptr_t>(tensor.data()) % static_cast<std::uintptr_t>(spec->alignment) != 0;
    Tensor placed = misplaced ? tensor.clone() : tensor;
    if (spec->layout == Layout::column_major && placed.rank() >= 2) placed = placed.transpose(-1, -2).clone().transpose(-1, -2);
    c.inputs.set(ours, placed);
  }
  if (seeded) notes.push_back("random inputs are drawn by role with seed " + std::to_string(options.seed));
  inputs.check_constraints(known, notes);
  for (const auto& [ours, theirs] : mapping.outputs) {
    if (d.output(theirs) == nullptr) continue;
    const TensorSpec& spec = *schema.find_tensor(ours);
    const Field& field = *d.output(theirs);
    if (!spec.dtype_attr.empty() && c.inputs.find_attr(spec.dtype_attr) == nullptr)
      if (const auto type = parse_fib_dtype(field.dtype)) c.inputs.set_attr(spec.dtype_attr, *type);
    if (asked_for_by_memory(spec) && c.inputs.find(ours) == nullptr)
      c.inputs.set(ours, Tensor(type_for(d, field, spec, c.inputs), inputs.shape(field)));
  }
  return c;
}

/// Our outputs must be what the Definition says they are.
void check_outputs_of(const Inputs& inputs, const Mapping& mapping, const Case& c) {
  const Definition& d = inputs.definition();
  for (const auto& [ours, theirs] : mapping.outputs) {
    const auto found =
        std::find_if(c.outputs.begin(), c.outputs.end(), [&, &ours = ours](const auto& output) { return output.first == ours; });
    // A Definition may leave out what an op leaves in its arguments.
    if (found == c.outputs.end() || d.output(theirs) == nullptr) continue;
    const Field& field = *d.output(theirs);
    const auto declared = parse_fib_dtype(field.dtype);
    const Dims wanted = inputs.shape(field);
    if (!(found->second.shape() == wanted))
      throw Error(ErrorCode::bad_shape, "", d.path,
                  "says that " + theirs + " is " + to_string(wanted) + ", " + std::string(c.op->name()) + " gives " +
                      to_string(found->second.shape()));
    const bool same = !declared || *declared == found->second.dtype() || stands_for(*declared, found->second.dtype());
    if (!same)
      throw Error(ErrorCode::bad_dtype, "", d.path,
                  "says that " + theirs + " is " + field.dtype + ", " + std::string(c.op->name()) + " gives " +
                      std::string(name(found->second.dtype())));
  }
}

std::string file_part(const std::string& text) {
  std::string out;
  for (const char c : text) out += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' ? c : '_';
  return out;
}

std::vector<std::string> files_below(const std::filesystem::path& folder, const char* extension) {
  std::vector<std::string> files;
  if (std::filesystem::is_directory(folder))
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
      if (entry.is_regular_file() && entry.path().extension() == extension) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

/// A workload of the given axes whose inputs are all random.
Workload made_workload(const Definition& d, const ImportOptions& options) {
  Workload workload;
  workload.definition = d.name;
  workload.uuid = "axes";
  workload.where = d.path;
  for (const Axis& axis : d.axes)
    if (const auto given = options.axes.find(axis.name); !axis.value && given != options.axes.end())
      workload.axes[axis.name] = given->second;
  workload.json = {{"uuid", workload.uuid}, {"axes", workload.axes}, {"inputs", io::Json::object()}};
  for (const Field& field : d.inputs) workload.json["inputs"][field.name] = {{"type", "random"}};
  return workload;
}

}  // namespace

Case import_workload(const Definition& d, const Workload& workload, const std::string& root, const ImportOptions& options,
                     std::vector<std::string>& notes) {
  const auto wanted = options.ops.find(d.name);
  const Mapping mapping = mapping_of(d, wanted == options.ops.end() ? "" : wanted->second);
  const Inputs inputs(d, workload, root);
  for (const std::string& deviation : d.deviations) notes.push_back("fi_trace: " + deviation);
  Case c = mapping.paged_mla ? import_paged_mla(inputs, options, notes) : import_by_names(inputs, mapping, options, notes);
  c.name = file_part(d.name + "_" + workload.uuid);
  c.match = "golden";
  c.contract_version = c.op->contract_version();
  Exec golden;
  golden.mode = Mode::golden;
  golden.threads = options.threads;
  Arguments arguments = runnable(*c.op, c.inputs);
  c.op->run(arguments, golden);
  c.outputs = outputs_of(*c.op, arguments);
  check_outputs_of(inputs, mapping, c);
  c.provenance = io::json_text({{"kind", "golden"},
                                {"dodona", std::string(version())},
                                {"definition", d.name},
                                {"workload", workload.uuid},
                                {"dialect", std::string(d.dialect())},
                                {"seed", options.seed}});
  for (const std::string& note : notes) c.notes += (c.notes.empty() ? "" : "; ") + note;
  return c;
}

void import_set(const std::string& root, const ImportOptions& options, const std::function<void(Imported)>& take) {
  const std::filesystem::path folder(root);
  auto definition_files = files_below(folder / "definitions", ".json");
  if (definition_files.empty()) definition_files = files_below(folder, ".json");
  if (definition_files.empty())
    throw Error(ErrorCode::bad_file, "", root, "holds no Definition: expected definitions/<op_type>/<name>.json, or dumps *.json");
  std::map<std::string, std::vector<Workload>> workloads;
  for (const std::string& path : files_below(folder / "workloads", ".jsonl")) {
    try {
      for (Workload& workload : read_workloads(path)) workloads[workload.definition].push_back(std::move(workload));
    } catch (const Error& error) {
      take({.definition = path, .error = error.what()});
    }
  }
  std::map<std::string, std::string> seen;
  for (const std::string& path : definition_files) {
    Imported result{.definition = path};
    try {
      const Definition d = read_definition(path);
      result.definition = d.name;
      result.dialect = d.dialect();
      if (!options.only.empty() && std::find(options.only.begin(), options.only.end(), d.name) == options.only.end()) continue;
      if (const auto [first, added] = seen.try_emplace(d.name, path); !added)
        throw Error(ErrorCode::bad_file, "", path, "has the name " + d.name + " of " + first->second);
      std::vector<Workload> mine = workloads.contains(d.name) ? std::move(workloads[d.name]) : std::vector<Workload>{};
      if (mine.empty() && !options.axes.empty()) mine.push_back(made_workload(d, options));
      if (mine.empty()) {
        result.skipped = "has no workload; give its sizes with --axis NAME=N";
        take(std::move(result));
      }
      for (Workload& workload : mine) {
        Imported one{.definition = d.name, .uuid = workload.uuid, .dialect = std::string(d.dialect())};
        try {
          one.made = import_workload(d, workload, root, options, one.notes);
          one.op = one.made->op->name();
        } catch (const Error& error) {
          (error.code() == ErrorCode::unsupported ? one.skipped : one.error) = error.what();
        }
        one.workload = std::move(workload);
        take(std::move(one));
      }
    } catch (const Error& error) {
      result.error = error.what();
      take(std::move(result));
    }
  }
}

namespace {

/// JSON has no infinities: flashinfer-bench writes them as words.
io::Json number_or_word(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

std::string now() {
  const std::time_t time = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return text;
}

double timed_run(const Case& c, const Exec& exec, NamedTensors& outputs) {
  Arguments arguments = runnable(*c.op, c.inputs);
  const io::Stopwatch clock;
  c.op->run(arguments, exec);
  const double milliseconds = clock.seconds() * 1e3;
  outputs = outputs_of(*c.op, arguments);
  return milliseconds;
}

}  // namespace

std::string trace_of(const Case& c, const Workload& workload, const Exec& exec) {
  io::Json evaluation{{"status", "PASSED"},     {"environment", {{"hardware", "cpu-oracle"}, {"libs", {{"dodona", version()}}}}},
                      {"timestamp", now()},     {"log", ""},
                      {"correctness", nullptr}, {"performance", nullptr}};
  try {
    NamedTensors actual, golden;
    const double latency = timed_run(c, exec, actual);
    Exec golden_exec = exec;
    golden_exec.mode = Mode::golden;
    const double reference = timed_run(c, golden_exec, golden);
    const Verdict verdict = judge(*c.op, c.inputs, actual, {.exec = golden_exec});
    double absolute = 0, relative = 0;
    for (std::size_t o = 0; o < actual.size() && o < golden.size(); ++o)
      for (std::int64_t i = 0; i < actual[o].second.elements(); ++i) {
        const double want = quant::get(golden[o].second, i), got = quant::get(actual[o].second, i);
        if (want == got || std::isnan(want)) continue;
        absolute = std::fmax(absolute, std::fabs(got - want));
        relative = std::fmax(relative, std::fabs(got - want) / (std::fabs(want) + 1e-8));
      }
    const bool passes = verdict.outcome == Outcome::pass || verdict.outcome == Outcome::known_defect;
    evaluation["status"] = passes ? "PASSED" : "INCORRECT_NUMERICAL";
    evaluation["correctness"] = {
        {"max_relative_error", number_or_word(relative)},
        {"max_absolute_error", number_or_word(absolute)},
        {"extra", {{"verdict", std::string(name(verdict.outcome))}, {"budget_used", number_or_word(verdict.max_share())}}}};
    if (passes)
      evaluation["performance"] = {
          {"latency_ms", latency}, {"reference_latency_ms", reference}, {"speedup_factor", latency > 0 ? reference / latency : 0.0}};
  } catch (const Error& error) {
    evaluation["status"] = "RUNTIME_ERROR";
    evaluation["log"] = error.what();
  }
  return io::json_text({{"definition", workload.definition},
                        {"workload", workload.json},
                        {"solution", "dodona-" + std::string(c.op->name()) + "-" + std::string(name(exec.mode))},
                        {"evaluation", evaluation}});
}

}  // namespace dodona::oracle::fib
