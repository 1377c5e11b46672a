#include "model/weights/checkpoint_index.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "dodona/error.h"
#include "io/json.h"
#include "io/text.h"

namespace dodona::model {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& where, const std::string& message) {
  throw Error(ErrorCode::bad_file, "", "", where + ": " + message);
}

std::string about(std::string_view tensor) {
  return "tensor " + io::quote(tensor, 160) + ": ";
}

/// Names in an index are anybody's: one must name a file of this folder and nothing else.
void check_shard_name(const std::string& shard, const std::string& tensor, const std::string& where) {
  if (shard.empty() || shard == "." || shard == ".." || shard.find('/') != std::string::npos || shard.find('\0') != std::string::npos)
    fail(where, about(tensor) + "shard " + io::quote(shard) + " is no plain file name");
}

/// What downloaders call a file that they have not finished.
std::vector<std::string> unfinished_files(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code ignored;
  for (const fs::path& place : {fs::path(folder), fs::path(folder) / ".cache/huggingface/download"})
    for (const auto& entry : fs::directory_iterator(place, ignored))
      for (const char* end : {".incomplete", ".part", ".aria2", ".crdownload", ".download"})
        if (entry.path().filename().string().ends_with(end)) found.push_back(entry.path().filename().string());
  std::sort(found.begin(), found.end());
  return found;
}

void read_map(const std::string& folder, CheckpointIndex& index) {
  const std::string where = (fs::path(folder) / index_name).string();
  const io::Json json = io::read_json(where);
  const io::Json& map = io::get_object(json, "weight_map", where);
  struct Number {
    bool there;
    std::size_t at;  ///< of the shards, or of the absent ones
  };
  std::map<std::string, Number, std::less<>> numbers;
  for (const auto& [tensor, value] : map.items()) {
    if (!value.is_string()) fail(where, about(tensor) + "the shard is no string");
    const auto& shard = value.get_ref<const std::string&>();
    auto known = numbers.find(shard);
    if (known == numbers.end()) {
      check_shard_name(shard, tensor, where);
      std::error_code ignored;
      const bool there = fs::exists(fs::path(folder) / shard, ignored);
      known = numbers.emplace(shard, Number{there, there ? index.shards.size() : index.absent.size()}).first;
      if (there)
        index.shards.push_back(shard);
      else
        index.absent.push_back({shard, {}});
    }
    if (known->second.there)
      index.shard_of.emplace_back(tensor, known->second.at);
    else
      index.absent[known->second.at].tensors.push_back(tensor);
  }
}

}  // namespace

std::optional<std::size_t> CheckpointIndex::find(std::string_view tensor) const {
  const auto at = std::lower_bound(shard_of.begin(), shard_of.end(), tensor,
                                   [](const auto& entry, std::string_view wanted) { return entry.first < wanted; });
  if (at == shard_of.end() || at->first != tensor) return std::nullopt;
  return at->second;
}

CheckpointIndex read_index(const std::string& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) fail(folder, "not a folder");
  CheckpointIndex index;
  index.unfinished = unfinished_files(folder);
  if (fs::exists(fs::path(folder) / index_name, ignored)) {
    read_map(folder, index);
  } else if (fs::exists(fs::path(folder) / single_name, ignored)) {
    index.shards = {single_name};
    const auto file = io::SafetensorsFile::open((fs::path(folder) / single_name).string());
    for (const io::SafetensorsEntry& entry : file.entries()) index.shard_of.emplace_back(entry.name, 0);
  } else {
    fail(folder, std::string("neither ") + index_name + " nor " + single_name + " is in it" + unfinished_advice(index));
  }
  std::sort(index.shard_of.begin(), index.shard_of.end());
  return index;
}

std::string unfinished_advice(const CheckpointIndex& index) {
  return index.unfinished.empty() ? "" : "; " + io::quote(index.unfinished.front()) + " looks like a download that was interrupted";
}

Fit fit_of(const io::SafetensorsEntry& entry, const TensorInfo& info) {
  if (!entry.dtype || std::find(info.dtypes.begin(), info.dtypes.end(), *entry.dtype) == info.dtypes.end()) return Fit::wrong_type;
  const std::vector<std::int64_t> shape(info.whole.begin(), info.whole.end());
  if (entry.shape == shape || (shape.empty() && entry.shape == std::vector<std::int64_t>{1})) return Fit::fits;
  const bool transposed = shape.size() == 2 && entry.shape == std::vector<std::int64_t>{shape[1], shape[0]};
  return transposed ? Fit::transposed : Fit::wrong_shape;
}

std::string expected_text(const TensorInfo& info) {
  std::string text;
  for (const DType dtype : info.dtypes) text += (text.empty() ? "" : " or ") + std::string(safetensors_name(dtype));
  return text + " " + to_string(info.whole);
}

std::string found_text(const io::SafetensorsEntry& entry) {
  std::string text = std::string(entry.dtype_name) + " [";
  for (std::size_t i = 0; i < entry.shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(entry.shape[i]);
  return text + "]";
}

}  // namespace dodona::model
