// Weights in a folder of safetensors files.
#include <algorithm>
#include <filesystem>
#include <mutex>
#include <optional>

#include "dodona/error.h"
#include "io/page_hints.h"
#include "io/safetensors.h"
#include "io/text.h"
#include "model/weights/checkpoint_index.h"
#include "model/weights/tensor_list.h"
#include "model/weights/weights.h"

namespace dodona::model {
namespace {

namespace fs = std::filesystem;

std::string about(std::string_view tensor) {
  return "tensor " + io::quote(tensor, 160) + ": ";
}

[[noreturn]] void fail(ErrorCode code, std::string_view tensor, const std::string& message) {
  throw Error(code, "", "", about(tensor) + message);
}

class Checkpoint final : public WeightSource {
 public:
  Checkpoint(std::string folder, ModelConfig config, const Shard& shard)
      : WeightSource(std::move(config), shard), folder_(std::move(folder)) {
    index_ = read_index(folder_);
    if (!index_.absent.empty())
      throw Error(ErrorCode::bad_file, "", "",
                  (fs::path(folder_) / index_name).string() + ": " + about(index_.absent.front().tensors.front()) + "expected in shard " +
                      io::quote(index_.absent.front().shard) + ", but the folder has no such file" + unfinished_advice(index_));
    files_.resize(index_.shards.size());
  }

  std::string description() const override { return "checkpoint " + folder_; }
  bool has(std::string_view name) const override { return find_shard(name).has_value(); }

  Tensor get(std::string_view name) const override {
    const Found found = find(name);
    const Tensor part = found.part();
    return (part.contiguous() ? part : part.clone().read_only()).reshape(found.info.shape);
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
  void check_outer() const override {
    for (const TensorInfo& info : outer_tensors(config(), shard())) find(info.name);
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

    /// The shard's part of the tensor, a view of the file; of tiles, with a row for each row of them.
    Tensor part() const {
      const TensorInfo laid = info.tile_by_tile();
      const Tensor stored = file.tensor(*entry), whole = stored.shape() == laid.whole ? stored : stored.reshape(laid.whole);
      return laid.split < 0 ? whole : whole.slice(laid.split, laid.begin, laid.begin + laid.shape[laid.split]);
    }
  };

  std::optional<std::size_t> find_shard(std::string_view name) const { return index_.find(name); }

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
    try {
      file.require_unchanged();
    } catch (const Error& error) {
      throw Error(error.code(), "", "", about(name) + error.message());
    }
    return {std::move(file), entry, *std::move(info)};
  }

  static void check(const io::SafetensorsEntry& entry, const TensorInfo& info, const std::string& source) {
    const Fit fit = fit_of(entry, info);
    if (fit == Fit::fits) return;
    fail(fit == Fit::wrong_type ? ErrorCode::bad_dtype : ErrorCode::bad_shape, info.name,
         "expected " + expected_text(info) + ", found " + found_text(entry) + " in " + source +
             (fit == Fit::transposed ? " (transposed)" : ""));
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
  CheckpointIndex index_;
  mutable std::mutex mutex_;
  mutable std::vector<std::optional<io::SafetensorsFile>> files_;
};

}  // namespace

std::unique_ptr<WeightSource> open_checkpoint(const std::string& folder, ModelConfig config, const Shard& shard) {
  return std::make_unique<Checkpoint>(folder, std::move(config), shard);
}

}  // namespace dodona::model
