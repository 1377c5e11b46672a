#include "oracle/fib/fib_inputs.h"

#include <cstring>
#include <filesystem>

#include "dodona/error.h"
#include "io/mapped_file.h"
#include "io/safetensors.h"
#include "io/text.h"
#include "oracle/fib/fib_constraint.h"

namespace dodona::oracle::fib {
namespace {

/// The file below `root`: a path of somebody else's may not lead out of it.
std::string path_below(const std::string& root, const std::string& path, const std::string& where) {
  const std::filesystem::path relative = std::filesystem::path(path).lexically_normal();
  if (relative.empty() || relative.is_absolute() || *relative.begin() == "..")
    throw Error(ErrorCode::bad_file, "", where, "has the path " + io::quote(path) + ", which leads out of the set");
  return (std::filesystem::path(root) / relative).string();
}

/// Blobs live in Git LFS: a clone without it holds pointers.
void refuse_pointer(const std::string& path) {
  constexpr std::string_view pointer = "version https://git-lfs.github.com/spec/";
  const auto file = io::MappedFile::open(path);
  const auto bytes = file.bytes();
  if (bytes.size() >= pointer.size() && std::memcmp(bytes.data(), pointer.data(), pointer.size()) == 0)
    throw Error(ErrorCode::bad_file, "", path, "is a Git LFS pointer, not the data: fetch it with `git lfs pull`");
}

}  // namespace

Inputs::Inputs(const Definition& definition, const Workload& workload, std::string root)
    : definition_(definition), workload_(workload), root_(std::move(root)), axes_(axis_values(definition, workload)) {
  for (const auto& [name, source] : workload.inputs)
    if (definition.input(name) == nullptr) fail(name, "is no input of " + definition.name);
}

void Inputs::fail(const std::string& what, const std::string& why) const {
  throw Error(ErrorCode::bad_file, "", workload_.where + " " + what, why);
}

std::int64_t Inputs::axis(const std::string& name) const {
  const auto found = axes_.find(name);
  if (found == axes_.end()) throw Error(ErrorCode::bad_file, "", definition_.path, "has no axis " + name);
  return found->second;
}

const Source& Inputs::source(const Field& field) const {
  static const Source random;
  const auto found = workload_.inputs.find(field.name);
  if (found != workload_.inputs.end()) return found->second;
  if (!field.optional && !workload_.inputs.empty()) fail(field.name, "is missing among the inputs");
  return random;
}

Tensor Inputs::load(const Field& field, std::optional<DType> type) const {
  const Source& from = source(field);
  const std::string path = path_below(root_, from.path, workload_.where + " inputs." + field.name);
  refuse_pointer(path);
  const auto file = io::SafetensorsFile::open(path);
  if (file.find(from.key) == nullptr) fail(field.name, "names the tensor " + io::quote(from.key) + ", which " + path + " does not hold");
  Tensor tensor = file.tensor(from.key);
  const auto declared = parse_fib_dtype(field.dtype);
  if (declared && tensor.dtype() != *declared && !stands_for(tensor.dtype(), *declared))
    fail(field.name, "has dtype " + std::string(name(tensor.dtype())) + " in the file, expected " + field.dtype);
  if (type && tensor.dtype() != *type && stands_for(tensor.dtype(), *type)) tensor = tensor.bitcast(*type);
  if (const Dims wanted = shape(field); !(tensor.shape() == wanted))
    fail(field.name, "has shape " + to_string(tensor.shape()) + " in the file, expected " + to_string(wanted));
  return tensor;
}

double Inputs::scalar(const Field& field) const {
  const Source& from = source(field);
  if (from.kind != Source::Kind::scalar) fail(field.name, "must be a scalar");
  return from.value.is_boolean() ? static_cast<double>(from.value.get<bool>()) : from.value.get<double>();
}

void Inputs::check_constraints(const std::map<std::string, Tensor>& tensors, std::vector<std::string>& notes) const {
  const ConstraintContext context{axes_, [&](std::string_view name) {
                                    const auto found = tensors.find(std::string(name));
                                    return found == tensors.end() ? nullptr : &found->second;
                                  }};
  for (const std::string& constraint : definition_.constraints) {
    std::string why;
    switch (evaluate_constraint(constraint, context, why)) {
      case Holds::yes: break;
      case Holds::no: fail("", "breaks the constraint " + io::quote(constraint) + " of " + definition_.name + ": " + why);
      case Holds::unknown: notes.push_back("constraint " + io::quote(constraint) + " was not evaluated: it " + why);
    }
  }
}

}  // namespace dodona::oracle::fib
