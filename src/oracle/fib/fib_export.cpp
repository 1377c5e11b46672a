#include "oracle/fib/fib_export.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <sstream>

#include "core/call.h"
#include "core/case_line.h"
#include "dodona/error.h"
#include "io/atomic_file.h"
#include "io/safetensors.h"
#include "oracle/cases/make_case.h"
#include "quant/element.h"

namespace dodona::oracle::fib {
namespace {

/// Axes of one Definition, made as tensors name them.
class Axes {
 public:
  explicit Axes(const OpSchema& schema) {
    const auto& independent = schema.properties.rows_independent;
    free_.insert(independent.begin(), independent.end());
    // The reference makes outputs that the caller gives: their sizes stand in it as numbers.
    for (const TensorSpec& spec : schema.tensors)
      if (spec.given) std::erase_if(free_, [&](const std::string& symbol) { return names_symbol(spec.shape, symbol); });
  }

  /// The axis of one size, called by its expression. Sizes that rows are independent along are var, all others const.
  std::string name_of(const std::string& expression, std::int64_t size) {
    std::string name;
    for (const char c : expression) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
    while (name.ends_with("_")) name.pop_back();
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name.front())) != 0) name = "size_" + name;
    // One expression may come to two sizes (packs, alternatives of a shape).
    while (axes_.contains(name) && size_of(name) != size) name += "_";
    const bool variable = free_.contains(expression);
    if (!axes_.contains(name)) {
      axes_[name] = variable ? io::Json{{"type", "var"}} : io::Json{{"type", "const"}, {"value", size}};
      if (variable) values_[name] = size;
    }
    return name;
  }
  const io::Json& axes() const { return axes_; }
  const io::Json& values() const { return values_; }

 private:
  std::int64_t size_of(const std::string& name) const {
    return values_.contains(name) ? values_[name].get<std::int64_t>() : axes_[name]["value"].get<std::int64_t>();
  }
  static bool names_symbol(const std::string& shape, const std::string& symbol) {
    std::istringstream words(shape);
    for (std::string word; words >> word;)
      if (word == symbol) return true;
    return false;
  }
  std::set<std::string> free_;
  io::Json axes_ = io::Json::object(), values_ = io::Json::object();
};

/// The tensor as the schema can name it: same shape, the bits of types that it lacks as whole numbers.
Tensor carried(const Tensor& tensor) {
  if (fib_has(tensor.dtype())) return tensor;
  if (bits(tensor.dtype()) == 8) return tensor.clone().bitcast(DType::i8);
  if (bits(tensor.dtype()) == 64) return tensor.clone().bitcast(DType::i64);
  throw Error(ErrorCode::unsupported, "", "", "a tensor of " + std::string(name(tensor.dtype())) + " has no name in a Definition");
}

io::Json field_of(const TensorSpec& spec, const Tensor& tensor, Axes& axes) {
  const ShapeAlternative* alternative = nullptr;
  SymbolNames names;
  const ShapeExpr expression = ShapeExpr::parse(spec.shape, names);
  alternative = expression.for_rank(tensor.rank());
  io::Json shape = io::Json::array();
  const int lead = alternative != nullptr ? tensor.rank() - static_cast<int>(alternative->dims.size()) : tensor.rank();
  for (int d = 0; d < tensor.rank(); ++d) {
    const std::string text = d >= lead                ? alternative->dims[static_cast<std::size_t>(d - lead)].text()
                             : alternative != nullptr ? names.name(alternative->pack)
                                                      : spec.name + std::to_string(d);
    shape.push_back(axes.name_of(text, tensor.shape()[d]));
  }
  std::string description = spec.doc;
  if (!fib_has(tensor.dtype())) description += " (the bits of " + std::string(name(tensor.dtype())) + ")";
  return {{"shape", shape}, {"dtype", std::string(fib_dtype(tensor.dtype()))}, {"description", description}};
}

/// Whether an attribute is a number that a call passes; others (words, dtypes) are part of the recipe.
bool is_number(const AttrSpec& spec) {
  return !std::holds_alternative<std::string>(spec.default_value) && !std::holds_alternative<DType>(spec.default_value);
}

io::Json scalar_field(const AttrSpec& spec) {
  const char* type = std::holds_alternative<bool>(spec.default_value)           ? "bool"
                     : std::holds_alternative<std::int64_t>(spec.default_value) ? "int64"
                                                                                : "float32";
  return {{"shape", nullptr}, {"dtype", type}, {"description", spec.doc}};
}

io::Json scalar_value(const AttrValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return *whole;
  return std::get<double>(value);
}

std::string quoted(const std::string& text) {
  return '"' + text + '"';
}

/// A call of the Python package. Workloads hold torch tensors as a Definition can name them: dodona.fib makes the call's arguments of them,
/// and of its results what the Definition declares.
std::string reference_of(const Case& c, const io::Json& inputs, const std::vector<std::string>& recipe) {
  const OpSchema& schema = c.op->schema();
  std::string parameters, call = quoted(std::string(c.op->name())), names;
  const auto add = [](std::string& list, const std::string& item) { list += (list.empty() ? "" : ", ") + item; };
  for (const auto& [name, tensor] : c.outputs) add(names, quoted(name) + ": " + quoted(std::string(fib_dtype(tensor.dtype()))));
  add(call, "{" + names + "}");
  bool typed = false;
  for (const auto& [name, field] : inputs.items()) {
    add(parameters, name);
    const Tensor* tensor = field["shape"].is_null() ? nullptr : c.inputs.find(name);
    // Names of types that may come as raw codes: what whole numbers stand for, and the small floats of a Python that lacks them.
    const bool told =
        tensor != nullptr &&
        (!fib_has(tensor->dtype()) || (bits(tensor->dtype()) <= 8 && tensor->dtype() != DType::i8 && tensor->dtype() != DType::boolean));
    typed = typed || told;
    add(call, name + "=" + (told ? "dodona.as_dtype(" + name + ", " + quoted(std::string(dodona::name(tensor->dtype()))) + ")" : name));
  }
  for (const TensorSpec& spec : schema.tensors) {
    const Tensor* tensor = c.inputs.find(spec.name);
    if (!spec.given || tensor == nullptr) continue;
    std::string sizes;
    for (const std::int64_t size : tensor->shape()) add(sizes, std::to_string(size));
    add(call, spec.name + "=fib.empty([" + sizes + "], " + quoted(std::string(dodona::name(tensor->dtype()))) + ")");
  }
  for (const std::string& choice : recipe) {
    const std::size_t equals = choice.find('=');
    add(call, choice.substr(0, equals) + "=" + quoted(choice.substr(equals + 1)));
  }
  return std::string(typed ? "import dodona\n" : "") + "from dodona import fib\n\n\ndef run(" + parameters + "):\n    return fib.call(" +
         call + ")\n";
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  io::write_file(path.string(), std::as_bytes(std::span(text)));
}

std::string op_type_of(const Op& op) {
  return std::string(dodona::name(op.info().category));
}

/// A name that holds the op and the number of the line.
std::string export_case(const std::filesystem::path& root, const Op& op, std::size_t number, const CaseLine& line, int threads) {
  Exec exec;
  exec.mode = Mode::golden;
  exec.threads = threads;
  const Case c = make_case(line, exec);
  const OpSchema& schema = op.schema();
  Axes axes(schema);
  std::string name = std::string(op.name()) + "_c" + std::to_string(number + 1);
  const std::string blob = "blob/workloads/" + op_type_of(op) + "/" + name + "/" + name + "_1.safetensors";
  io::Json inputs = io::Json::object(), outputs = io::Json::object(), sources = io::Json::object();
  io::NamedTensors stored;
  std::vector<std::pair<std::string, DType>> types;
  for (const TensorSpec& spec : schema.tensors) {
    const Tensor* tensor = spec.direction != Direction::out ? c.inputs.find(spec.name) : nullptr;
    if (tensor == nullptr) continue;
    inputs[spec.name] = field_of(spec, *tensor, axes);
    sources[spec.name] = {{"type", "safetensors"}, {"path", "./" + blob}, {"tensor_key", spec.name}};
    stored.emplace_back(spec.name, carried(*tensor));
    types.emplace_back(spec.name, tensor->dtype());
  }
  std::vector<std::string> recipe;
  for (const AttrSpec& spec : schema.attrs) {
    if (spec.ignored && !spec.recipe) continue;
    if (inputs.contains(spec.name)) continue;  // a tensor of that name is there in the number's place
    const AttrValue* given = c.inputs.find_attr(spec.name);
    const AttrValue value = given != nullptr ? *given : spec.default_value;
    if (is_number(spec)) {
      inputs[spec.name] = scalar_field(spec);
      sources[spec.name] = {{"type", "scalar"}, {"value", scalar_value(value)}};
    } else {
      recipe.push_back(spec.name + "=" + to_string(value));
    }
  }
  for (const auto& [output, tensor] : c.outputs) {
    const TensorSpec& spec = *schema.find_tensor(output);
    const std::string field = inputs.contains(output) ? output + "_out" : output;
    outputs[field] = field_of(spec, tensor, axes);
    types.emplace_back(field, tensor.dtype());
  }
  io::Json tags{"dodona:" + std::string(op.name()), "status:verified"};
  if (op.info().sources.first() == dodona::Source::flashinfer) tags.push_back("fi_api:flashinfer." + std::string(op.name()));
  for (const std::string& choice : recipe) tags.push_back("recipe:" + choice);
  // What stands for an int8: its bits are those of another type.
  for (const auto& [field, type] : types)
    if (!fib_has(type)) tags.push_back("bits:" + field + "=" + std::string(dodona::name(type)));
  const io::Json definition{{"name", name},
                            {"op_type", op_type_of(op)},
                            {"description", c.line + ". " + op.contract()},
                            {"tags", tags},
                            {"axes", axes.axes()},
                            {"inputs", inputs},
                            {"outputs", outputs},
                            {"reference", reference_of(c, inputs, recipe)}};
  const io::Json workload{{"definition", name},
                          {"workload", {{"uuid", name + "_1"}, {"axes", axes.values()}, {"inputs", sources}}},
                          {"solution", nullptr},
                          {"evaluation", nullptr}};
  std::filesystem::create_directories((root / blob).parent_path());
  io::write_safetensors((root / blob).string(), stored);
  write_text(root / "definitions" / op_type_of(op) / (name + ".json"), io::json_text(definition, 2) + "\n");
  write_text(root / "workloads" / op_type_of(op) / (name + ".jsonl"), io::json_text(workload) + "\n");
  return name;
}

}  // namespace

std::vector<std::string> export_set(const std::string& folder, const std::vector<std::string>& wanted, int threads) {
  std::set<std::string> ops;
  std::map<std::string, std::vector<CaseLine>> lines;
  for (const std::string& word : wanted) {
    const CaseLine line = parse_case_line(word);
    refuse_variants(line, "the export");
    const std::string op(registry().at(line.op).name());
    if (word.find(' ') == std::string::npos) {
      ops.insert(op);
    } else {
      lines[op].push_back(line);
    }
  }
  std::vector<std::string> names;
  for (const auto& op : registry().all()) {
    const std::string name(op->name());
    std::vector<CaseLine> its;
    if (wanted.empty() || ops.contains(name))
      for (const std::string& rest : op->cases()) its.push_back(parse_case_line(name + " " + rest));
    its.insert(its.end(), lines[name].begin(), lines[name].end());
    for (std::size_t i = 0; i < its.size(); ++i) names.push_back(export_case(folder, *op, i, its[i], threads));
  }
  return names;
}

}  // namespace dodona::oracle::fib
