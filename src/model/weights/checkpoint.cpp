// Weights in a folder of safetensors files.
#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>

#include "dodona/error.h"
#include "io/json.h"
#include "io/page_hints.h"
#include "io/safetensors.h"
#include "io/text.h"
#include "model/weights/tensor_list.h"
#include "model/weights/weights.h"

namespace dodona::model {
namespace {

namespace fs = std::filesystem;

constexpr const char* index_name = "model.safetensors.index.json";
constexpr const char* single_name = "model.safetensors";

std::string about(std::string_view tensor) {
  return "tensor " + io::quote(tensor, 160) + ": ";
}

[[noreturn]] void fail(ErrorCode code, std::string_view tensor, const std::string& message) {
  throw Error(code, "", "", about(tensor) + message);
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

std::string dtype_names(const std::vector<DType>& dtypes) {
  std::string text;
  for (const DType dtype : dtypes) text += (text.empty() ? "" : " or ") + std::string(safetensors_name(dtype));
  return text;
}

/// Shards by number, and which one holds each tensor.
struct Index {
  std::vector<std::string> shards;                                 ///< file names inside the folder
  std::vector<std::pair<std::string, std::size_t>> shard_of = {};  ///< sorted by tensor name
};

/// Names in an index are anybody's: one must name a file of this folder and nothing else.
void check_shard_name(const std::string& shard, const std::string& tensor, const std::string& where) {
  if (shard.empty() || shard == "." || shard == ".." || shard.find('/') != std::string::npos || shard.find('\0') != std::string::npos)
    throw Error(ErrorCode::bad_file, "", "", where + ": " + about(tensor) + "shard " + io::quote(shard) + " is no plain file name");
}

Index read_index(const std::string& folder) {
  const std::string where = (fs::path(folder) / index_name).string();
  const io::Json json = io::read_json(where);
  const io::Json& map = io::get_object(json, "weight_map", where);
  Index index;
  std::map<std::string, std::size_t, std::less<>> numbers;
  for (const auto& [tensor, value] : map.items()) {
    if (!value.is_string()) throw Error(ErrorCode::bad_file, "", "", where + ": " + about(tensor) + "the shard is no string");
    const auto& shard = value.get_ref<const std::string&>();
    auto known = numbers.find(shard);
    if (known == numbers.end()) {
      check_shard_name(shard, tensor, where);
      std::error_code ignored;
      if (!fs::exists(fs::path(folder) / shard, ignored))
        throw Error(ErrorCode::bad_file, "", "",
                    where + ": " + about(tensor) + "expected in shard " + io::quote(shard) + ", but the folder has no such file");
      known = numbers.emplace(shard, index.shards.size()).first;
      index.shards.push_back(shard);
    }
    index.shard_of.emplace_back(tensor, known->second);
  }
  std::sort(index.shard_of.begin(), index.shard_of.end());
  return index;
}

class Checkpoint final : public WeightSource {
 public:
  Checkpoint(std::string folder, ModelConfig config, const Shard& shard)
      : WeightSource(std::move(config), shard), folder_(std::move(folder)) {
    std::error_code ignored;
    if (!fs::is_directory(folder_, ignored)) throw Error(ErrorCode::bad_file, "", "", folder_ + ": not a folder");
    if (fs::exists(fs::path(folder_) / index_name, ignored)) {
      index_ = read_index(folder_);
      files_.resize(index_.shards.size());
    } else if (fs::exists(fs::path(folder_) / single_name, ignored)) {
      index_.shards = {single_name};
      files_.emplace_back(io::SafetensorsFile::open((fs::path(folder_) / single_name).string()));
      for (const io::SafetensorsEntry& entry : files_[0]->entries()) index_.shard_of.emplace_back(entry.name, 0);
      std::sort(index_.shard_of.begin(), index_.shard_of.end());
    } else {
      throw Error(ErrorCode::bad_file, "", "", folder_ + ": neither " + index_name + " nor " + single_name + " is in it");
    }
  }

  std::string description() const override { return "checkpoint " + folder_; }
  bool has(std::string_view name) const override { return find_shard(name).has_value(); }

  Tensor get(std::string_view name) const override {
    const Found found = find(name);
    const Tensor part = found.part();
    return part.contiguous() ? part : part.clone().read_only();
  }

  void read(std::string_view name, std::span<std::byte> out) const override {
    const Found found = find(name);
    const Tensor part = found.part();
    const std::int64_t bytes = bytes_for(part.dtype(), part.elements());
    if (bytes != static_cast<std::int64_t>(out.size()))
      fail(ErrorCode::bad_shape, name, "takes " + std::to_string(bytes) + " bytes, got room for " + std::to_string(out.size()));
    copy(part, Tensor(static_cast<void*>(out.data()), part.dtype(), part.shape()));
  }

  void check_layer(std::int64_t layer) const override {
    for (const TensorInfo& info : layer_tensors(config(), layer, shard()))
      if (!info.optional || has(info.name)) find(info.name);
  }

  void prefetch(std::int64_t layer) const override {
    for (const TensorInfo& info : layer_tensors(config(), layer, shard()))
      if (info.name.find(".mlp.experts.") == std::string::npos && has(info.name)) advise(info.name, io::Wanted::soon);
  }
  void release(std::int64_t layer) const override {
    for (const TensorInfo& info : layer_tensors(config(), layer, shard()))
      if (has(info.name)) advise(info.name, io::Wanted::not_soon);
  }

 private:
  struct Found {
    io::SafetensorsFile file;
    const io::SafetensorsEntry* entry;
    TensorInfo info;

    /// The shard's part of the tensor, a view of the file.
    Tensor part() const {
      const Tensor stored = file.tensor(*entry), whole = stored.shape() == info.whole ? stored : stored.reshape(info.whole);
      return info.split < 0 ? whole : whole.slice(info.split, info.begin, info.begin + info.shape[info.split]);
    }
  };

  std::optional<std::size_t> find_shard(std::string_view name) const {
    const auto at = std::lower_bound(index_.shard_of.begin(), index_.shard_of.end(), name,
                                     [](const auto& entry, std::string_view wanted) { return entry.first < wanted; });
    if (at == index_.shard_of.end() || at->first != name) return std::nullopt;
    return at->second;
  }

  /// A hint: what is wrong with a file is told when a tensor of it is asked for.
  void advise(std::string_view name, io::Wanted wanted) const {
    const std::size_t shard = *find_shard(name);
    const std::lock_guard lock(mutex_);
    if (!files_[shard]) return;
    if (const io::SafetensorsEntry* const entry = files_[shard]->find(name)) io::hint(files_[shard]->bytes(*entry), wanted);
  }

  /// The tensor, which is as the configuration says it must be.
  Found find(std::string_view name) const {
    auto info = find_tensor_info(config(), name, shard());
    if (!info) fail(ErrorCode::missing_argument, name, local().name + " has none of that name");
    const auto shard = find_shard(name);
    if (!shard) fail(ErrorCode::missing_argument, name, "missing from checkpoint " + folder_ + hint(name));
    io::SafetensorsFile file = open(*shard, name);
    const io::SafetensorsEntry* entry = file.find(name);
    if (entry == nullptr)
      fail(ErrorCode::bad_file, name,
           std::string(index_name) + " places it in " + io::quote(index_.shards[*shard]) + ", which does not hold it");
    check(*entry, *info, file.source());
    return {std::move(file), entry, *std::move(info)};
  }

  static void check(const io::SafetensorsEntry& entry, const TensorInfo& info, const std::string& source) {
    const std::string expected = "expected " + dtype_names(info.dtypes) + " " + to_string(info.whole);
    const std::string found = ", found " + std::string(entry.dtype_name) + " " + shape_text(entry.shape) + " in " + source;
    const bool dtype_fits = entry.dtype && std::find(info.dtypes.begin(), info.dtypes.end(), *entry.dtype) != info.dtypes.end();
    if (!dtype_fits) fail(ErrorCode::bad_dtype, info.name, expected + found);
    const std::vector<std::int64_t> shape(info.whole.begin(), info.whole.end());
    // Scalars come as [] or [1].
    const bool shape_fits = entry.shape == shape || (shape.empty() && entry.shape == std::vector<std::int64_t>{1});
    const bool transposed = shape.size() == 2 && entry.shape == std::vector<std::int64_t>{shape[1], shape[0]};
    if (!shape_fits) fail(ErrorCode::bad_shape, info.name, expected + found + (transposed ? " (transposed)" : ""));
  }

  /// A name of the same module's kind that the model does not have, or nothing: what a misspelt tensor was meant to be.
  std::string hint(std::string_view name) const {
    constexpr std::string_view layers = "model.layers.";
    const std::size_t dot = name.starts_with(layers) ? name.find('.', layers.size()) : std::string_view::npos;
    if (dot == std::string_view::npos) return {};
    const std::string_view prefix = name.substr(0, dot + 1);
    auto at = std::lower_bound(index_.shard_of.begin(), index_.shard_of.end(), prefix,
                               [](const auto& entry, std::string_view wanted) { return entry.first < wanted; });
    bool any = false;
    for (; at != index_.shard_of.end() && at->first.starts_with(prefix); ++at) {
      any = true;
      if (!find_tensor_info(config(), at->first))
        return ", which holds " + io::quote(at->first, 160) + " instead, a name that the model does not have";
    }
    return any ? "" : ", which holds nothing of that layer";
  }

  /// The shard, mapped on first use; what goes wrong is told of the tensor that was wanted.
  io::SafetensorsFile open(std::size_t shard, std::string_view tensor) const {
    const std::lock_guard lock(mutex_);
    auto& file = files_[shard];
    if (!file) {
      try {
        file = io::SafetensorsFile::open((fs::path(folder_) / index_.shards[shard]).string());
      } catch (const Error& error) {
        throw Error(error.code(), "", "", about(tensor) + error.message());
      }
    }
    return *file;
  }

  std::string folder_;
  Index index_;
  mutable std::mutex mutex_;
  mutable std::vector<std::optional<io::SafetensorsFile>> files_;
};

}  // namespace

std::unique_ptr<WeightSource> open_checkpoint(const std::string& folder, ModelConfig config, const Shard& shard) {
  return std::make_unique<Checkpoint>(folder, std::move(config), shard);
}

}  // namespace dodona::model
