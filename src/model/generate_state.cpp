#include "model/generate_state.h"

#include <algorithm>

#include "dodona/error.h"
#include "dodona/op.h"
#include "dodona/version.h"
#include "io/bytes.h"
#include "io/safetensors.h"
#include "io/sha256.h"

namespace dodona::model {
namespace {

constexpr const char* key_name = "dodona_generate";

std::string text_of(const io::Json* value) {
  constexpr std::size_t longest = 80;
  if (value == nullptr) return "not there";
  const std::string text = io::json_text(*value);
  return text.size() <= longest ? text : text.substr(0, longest) + "...";
}

}  // namespace

void GenerateState::put(const std::string& name, const std::vector<std::int64_t>& numbers) {
  const Tensor tensor(DType::i64, {static_cast<std::int64_t>(numbers.size())});
  std::copy(numbers.begin(), numbers.end(), tensor.as<std::int64_t>());
  put(name, tensor);
}

const Tensor& GenerateState::tensor(const std::string& name) const {
  const Tensor* const found = find(tensors_, name);
  if (found == nullptr) throw Error(ErrorCode::bad_value, "", "state", "has no " + name);
  return *found;
}

std::vector<std::int64_t> GenerateState::numbers(const std::string& name) const {
  const Tensor& list = tensor(name);
  if (list.dtype() != DType::i64 || list.shape().rank() != 1)
    throw Error(ErrorCode::bad_value, "", "state", name + " is no list of numbers");
  return {list.as<const std::int64_t>(), list.as<const std::int64_t>() + list.elements()};
}

void write_state(const std::string& path, const GenerateState& state, const io::Json& key) {
  io::write_safetensors(path, state.tensors(), {{key_name, io::json_text(key)}});
}

GenerateState read_state(const std::string& path, const io::Json& key) {
  // A copy: the file is written anew while its rows are in use.
  const auto file = io::SafetensorsFile::open(path, io::Access::read);
  const auto made = file.metadata().find(key_name);
  if (made == file.metadata().end()) throw Error(ErrorCode::bad_file, "", "", path + ": no state of generate");
  const io::Json theirs = io::parse_json(made->second, path);
  const auto compare = [&](const std::string& name) {
    const io::Json *const there = io::find_field(theirs, name.c_str()), *const here = io::find_field(key, name.c_str());
    if (there != nullptr && here != nullptr && *there == *here) return;
    throw Error(ErrorCode::bad_value, "", "",
                path + ": is the state of another call: " + name + " is " + text_of(there) + ", expected " + text_of(here));
  };
  if (!theirs.is_object()) throw Error(ErrorCode::bad_file, "", "", path + ": no state of generate");
  for (const auto& [name, value] : key.items()) compare(name);
  for (const auto& [name, value] : theirs.items()) compare(name);
  NamedTensors tensors;
  for (const io::SafetensorsEntry& entry : file.entries()) tensors.emplace_back(entry.name, file.tensor(entry));
  return GenerateState(std::move(tensors));
}

io::Json versions_json() {
  std::string contracts;
  for (const auto& op : registry().all()) contracts += std::string(op->name()) + ":" + std::to_string(op->contract_version()) + "\n";
  io::Sha256 hash;
  hash.update(io::as_bytes(contracts));
  return {{"version", std::string(version())}, {"contracts", io::to_hex(hash.digest())}};
}

}  // namespace dodona::model
