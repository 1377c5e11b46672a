// What a generation that was left goes on from, as a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dodona/tensor.h"
#include "io/json.h"

namespace dodona::model {

/// Tensors and lists of numbers by name.
class GenerateState {
 public:
  GenerateState() = default;
  explicit GenerateState(NamedTensors tensors) : tensors_(std::move(tensors)) {}

  void put(const std::string& name, const Tensor& tensor) { tensors_.emplace_back(name, tensor); }
  void put(const std::string& name, const std::vector<std::int64_t>& numbers);
  bool has(const std::string& name) const { return find(tensors_, name) != nullptr; }
  /// Throw Error (bad_value) where there is none of the name, or no list.
  const Tensor& tensor(const std::string& name) const;
  std::vector<std::int64_t> numbers(const std::string& name) const;

  const NamedTensors& tensors() const { return tensors_; }

 private:
  NamedTensors tensors_;
};

/// The file, anew and at once, with a digest of all that it holds. `key` is an object that names what made the state: everything that the
/// same tokens depend on.
void write_state(const std::string& path, const GenerateState& state, const io::Json& key);
/// Throws Error: bad_file for what is no such file, or not bit by bit what was written; bad_value naming the first member of the key that
/// is another one there.
GenerateState read_state(const std::string& path, const io::Json& key);

/// Version of the library and of the contracts of all ops, which a key has beside what was asked for.
io::Json versions_json();

}  // namespace dodona::model
