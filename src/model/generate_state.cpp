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

constexpr const char *key_name = "dodona_generate", *digest_name = "digest";

std::string text_of(const io::Json* value) {
  constexpr std::size_t longest = 80;
  if (value == nullptr) return "not there";
  const std::string text = io::json_text(*value);
  return text.size() <= longest ? text : text.substr(0, longest) + "...";
}

/// Of the key and of every tensor by its name: a file that differs in one bit would be gone on from to other tokens.
std::string digest_of(const std::string& key, NamedTensors tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string lines = key + "\n";
  for (const auto& [name, tensor] : tensors) lines += name + " " + io::to_hex(io::tensor_digest(tensor)) + "\n";
  return io::to_hex(io::sha256(io::as_bytes(lines)));
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
  const std::string text = io::json_text(key);
  io::write_safetensors(path, state.tensors(), {{key_name, text}, {digest_name, digest_of(text, state.tensors())}});
}

GenerateState read_state(const std::string& path, const io::Json& key) {
  const auto refuse = [&](const std::string& why) { throw Error(ErrorCode::bad_file, "", "", path + ": " + why); };
  // A copy: the file is written anew while its rows are in use.
  const auto file = io::SafetensorsFile::open(path, io::Access::read);
  const auto made = file.metadata().find(key_name), digest = file.metadata().find(digest_name);
  if (made == file.metadata().end()) refuse("no state of generate");
  NamedTensors tensors;
  for (const io::SafetensorsEntry& entry : file.entries()) tensors.emplace_back(entry.name, file.tensor(entry));
  if (digest == file.metadata().end()) refuse("holds no digest of its contents: it is damaged, or of an older version");
  if (digest->second != digest_of(made->second, tensors)) refuse("is damaged: its contents have another digest than what was written");
  const io::Json theirs = io::parse_json(made->second, path);
  if (!theirs.is_object()) refuse("no state of generate");
  const auto compare = [&](const std::string& name) {
    const io::Json *const there = io::find_field(theirs, name.c_str()), *const here = io::find_field(key, name.c_str());
    if (there != nullptr && here != nullptr && *there == *here) return;
    throw Error(ErrorCode::bad_value, "", "",
                path + ": is the state of another call: " + name + " is " + text_of(there) + ", expected " + text_of(here));
  };
  for (const auto& [name, value] : key.items()) compare(name);
  for (const auto& [name, value] : theirs.items()) compare(name);
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
