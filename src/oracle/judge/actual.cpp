#include "oracle/judge/actual.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>

#include "dodona/error.h"
#include "io/npy.h"
#include "io/npz.h"
#include "io/safetensors.h"
#include "io/tensor_bytes.h"
#include "io/text.h"
#include "oracle/cases/window.h"

namespace dodona::oracle {
namespace {

std::string describe(DType dtype, const Dims& shape) {
  return std::string(name(dtype)) + " " + to_string(shape);
}

/// NumPy and most exporters have no name for these.
bool lacks_name(DType type) {
  return io::npy_side_dtype(type).has_value();
}

/// Raw codes as what they stand for: u1, i1, u2, i2 of the same width (halved rows for packed types). Anything else stays as it is.
Tensor reinterpreted(const Tensor& tensor, DType wanted) {
  const bool raw = tensor.dtype() == DType::u8 || tensor.dtype() == DType::i8 || tensor.dtype() == DType::i16;
  if (!raw || !lacks_name(wanted)) return tensor;
  if (is_packed(wanted)) {
    if (bits(tensor.dtype()) != 8 || tensor.rank() == 0) return tensor;
    const Tensor dense = tensor.contiguous() ? tensor : tensor.clone();
    Dims shape = dense.shape();
    shape[shape.rank() - 1] *= 2;
    return {dense.owner(), dense.data(), wanted, shape, contiguous_strides(shape), dense.writable()};
  }
  return bits(tensor.dtype()) == bits(wanted) ? tensor.bitcast(wanted) : tensor;
}

/// A file as named tensors. `read` is asked for a tensor with the type that it should have.
struct Contents {
  std::vector<std::string> names;
  std::function<Tensor(const std::string&, DType wanted)> read;
};

Contents safetensors_contents(const std::string& path) {
  const auto file = io::SafetensorsFile::open(path);
  Contents contents;
  for (const auto& entry : file.entries()) contents.names.push_back(entry.name);
  contents.read = [file](const std::string& name, DType wanted) {
    const io::SafetensorsEntry& entry = *file.find(name);
    // Tensors here have no u16; as raw codes it is welcome.
    if (entry.dtype_name == "U16" && bits(wanted) == 16 && lacks_name(wanted))
      return io::tensor_over(file.bytes(entry), nullptr, wanted, io::to_dims(entry.shape, name), false, name).clone();
    return reinterpreted(file.tensor(entry), wanted);
  };
  return contents;
}

/// `read(override)` reads an array; the override only where the array's own type does not say what it is.
Tensor numpy_array(DType wanted, const std::function<Tensor(std::optional<DType>)>& read) {
  if (!lacks_name(wanted)) return read(std::nullopt);
  try {
    return read(wanted);
  } catch (const Error& error) {
    // Another type altogether: let it be told by its own name.
    if (error.code() != ErrorCode::bad_dtype) throw;
    return reinterpreted(read(std::nullopt), wanted);
  }
}

Contents npz_contents(const std::string& path) {
  const auto file = io::NpzFile::open(path);
  return {file.names(), [file](const std::string& name, DType wanted) {
            return numpy_array(wanted, [&](std::optional<DType> override) { return file.tensor(name, override); });
          }};
}

Contents npy_contents(const std::string& path, const Op& op, const std::vector<ExpectedOutput>& expected) {
  if (expected.size() != 1) {
    std::string names;
    for (const ExpectedOutput& output : expected) names += (names.empty() ? "" : ", ") + output.name;
    throw Error(ErrorCode::bad_file, std::string(op.name()), path,
                "is an npy file, one array; the op has the outputs " + names + ": give an npz or safetensors file");
  }
  return {{expected.front().name}, [path](const std::string&, DType wanted) {
            return numpy_array(wanted, [&](std::optional<DType> override) { return io::read_npy(path, override); });
          }};
}

Contents open(const std::string& path, const Op& op, const std::vector<ExpectedOutput>& expected) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 6> head{};
  file.read(head.data(), head.size());
  const std::string_view begin(head.data(), static_cast<std::size_t>(file.gcount()));
  if (begin.starts_with("\x93NUMPY")) return npy_contents(path, op, expected);
  if (begin.starts_with("PK")) return npz_contents(path);
  return safetensors_contents(path);
}

/// The window's rows of what the whole call gave, or the tensor as it is where it is not that.
Tensor window_of(const Op& op, const ExpectedOutput& output, const Tensor& tensor, const Window& window) {
  if (window.empty()) return tensor;
  try {
    const Tensor rows = windowed(op, NamedTensors{{output.name, tensor}}, window).front().second;
    return rows.shape() == output.shape ? rows.clone() : tensor;
  } catch (const Error&) {
    return tensor;  // of fewer rows: told by its shape
  }
}

/// An array as its own type says; what NumPy has no name for is bf16 where it has its width.
Tensor untold_array(const std::function<Tensor(std::optional<DType>)>& read) {
  try {
    return read(std::nullopt);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return read(DType::bf16);
  }
}

Contents untold_contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 6> head{};
  file.read(head.data(), head.size());
  const std::string_view begin(head.data(), static_cast<std::size_t>(file.gcount()));
  if (begin.starts_with("\x93NUMPY"))
    return {{"output"}, [path](const std::string&, DType) {
              return untold_array([&](std::optional<DType> override) { return io::read_npy(path, override); });
            }};
  if (!begin.starts_with("PK")) return safetensors_contents(path);
  const auto archive = io::NpzFile::open(path);
  return {archive.names(), [archive](const std::string& name, DType) {
            return untold_array([&](std::optional<DType> override) { return archive.tensor(name, override); });
          }};
}

}  // namespace

NamedTensors load_outputs(const std::string& path) {
  const Contents contents = untold_contents(path);
  const bool prefixed = std::any_of(contents.names.begin(), contents.names.end(), [](const auto& n) { return n.starts_with("out."); });
  NamedTensors outputs;
  for (const std::string& stored : contents.names)
    if (!prefixed || stored.starts_with("out.")) outputs.emplace_back(stored.substr(prefixed ? 4 : 0), contents.read(stored, DType::bf16));
  return outputs;
}

std::vector<ExpectedOutput> expected_outputs(const Op& op, const Arguments& inputs) {
  Arguments arguments = runnable(op, inputs);
  op.prepare(arguments);
  std::vector<ExpectedOutput> outputs;
  for (const TensorSpec& spec : op.schema().tensors) {
    if (spec.direction == Direction::in) continue;
    const Tensor* tensor = arguments.find(spec.view_of.empty() ? spec.name : spec.view_of);
    if (tensor != nullptr && tensor->defined()) outputs.push_back({spec.name, tensor->dtype(), tensor->shape()});
  }
  return outputs;
}

NamedTensors load_actual(const std::string& path, const Op& op, const Arguments& inputs, const Window& window) {
  const auto expected = expected_outputs(op, inputs);
  const Contents contents = open(path, op, expected);
  const bool prefixed = std::any_of(contents.names.begin(), contents.names.end(), [](const auto& n) { return n.starts_with("out."); });
  NamedTensors actual;
  std::string faults;
  const auto fault = [&](const std::string& text) { faults += (faults.empty() ? "" : "; ") + text; };
  for (const ExpectedOutput& output : expected) {
    const std::string stored = (prefixed ? "out." : "") + output.name;
    if (std::find(contents.names.begin(), contents.names.end(), stored) == contents.names.end()) {
      fault("lacks the output " + output.name + " (" + describe(output.dtype, output.shape) + ")");
      continue;
    }
    Tensor tensor = contents.read(stored, output.dtype);
    if (!(tensor.shape() == output.shape)) tensor = window_of(op, output, tensor, window);
    if (tensor.dtype() != output.dtype || !(tensor.shape() == output.shape)) {
      fault(output.name + " is " + describe(tensor.dtype(), tensor.shape()) + ", expected " + describe(output.dtype, output.shape));
      continue;
    }
    actual.emplace_back(output.name, std::move(tensor));
  }
  for (const std::string& stored : contents.names) {
    if (prefixed && !stored.starts_with("out.")) continue;
    const std::string name = stored.substr(prefixed ? 4 : 0);
    const bool known = std::any_of(expected.begin(), expected.end(), [&](const ExpectedOutput& o) { return o.name == name; });
    if (!known) fault("holds " + io::quote(stored) + ", which is no output of this call");
  }
  if (!faults.empty()) throw Error(ErrorCode::bad_file, std::string(op.name()), path, faults);
  return actual;
}

}  // namespace dodona::oracle
