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
    slots_ = std::vector<Slot>(index_.shards.size());
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

  void check_layer(std::int64_t layer) const override { check_all(layer_tensors(config(), layer, shard())); }
  void check_outer() const override { check_all(outer_tensors(config(), shard())); }

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
    Slot& slot = slots_[*find_shard(name)];
    const std::lock_guard lock(slot.mutex);
    if (!slot.file) return;
    if (const io::SafetensorsEntry* const entry = slot.file->find(name)) io::hint(slot.file->bytes(*entry), wanted);
  }

  /// The tensor, which is as the configuration says it must be.
  Found find(std::string_view name) const {
    auto info = find_tensor_info(config(), name, shard());
    if (!info) fail(ErrorCode::missing_argument, name, local().name + " has none of that name");
    const std::size_t at = index_.position(name, index_.shard_of.size() / 2);
    if (at == CheckpointIndex::none) fail_missing(name);
    io::SafetensorsFile file = open(at);
    const io::SafetensorsEntry* const entry = checked_entry(file, at, *info);
    require_unchanged(file, name);
    return {std::move(file), entry, *std::move(info)};
  }

  /// Every tensor once, and every file that holds one of them.
  void check_all(const std::vector<TensorInfo>& infos) const {
    std::vector<std::optional<io::SafetensorsFile>> files(index_.shards.size());
    std::size_t near = 0;
    for (const TensorInfo& info : infos) {
      const std::size_t at = index_.position(info.name, near);
      if (at == CheckpointIndex::none) {
        if (info.optional) continue;
        fail_missing(info.name);
      }
      near = at;
      auto& file = files[index_.shard_of[at].second];
      if (!file) {
        file = open(at);
        require_unchanged(*file, info.name);
      }
      checked_entry(*file, at, info);
    }
  }

  [[noreturn]] void fail_missing(std::string_view name) const {
    fail(ErrorCode::missing_argument, name, "missing from checkpoint " + folder_ + hint(name));
  }
  /// What the file holds under the name at `at` of the index, which is as the configuration says it must be.
  const io::SafetensorsEntry* checked_entry(const io::SafetensorsFile& file, std::size_t at, const TensorInfo& info) const {
    const io::SafetensorsEntry* const entry = file.find(info.name);
    if (entry == nullptr)
      fail(ErrorCode::bad_file, info.name,
           std::string(index_name) + " places it in " + io::quote(index_.shards[index_.shard_of[at].second]) + ", which does not hold it");
    check(*entry, info, file.source());
    return entry;
  }
  static void require_unchanged(const io::SafetensorsFile& file, std::string_view tensor) {
    try {
      file.require_unchanged();
    } catch (const Error& error) {
      throw Error(error.code(), "", "", about(tensor) + error.message());
    }
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

  /// A shard, mapped on first use; each by one thread, and several at once by several.
  struct Slot {
    std::mutex mutex;
    std::optional<io::SafetensorsFile> file;
  };
  /// That of the tensor at `at` of the index, of which what goes wrong is told.
  io::SafetensorsFile open(std::size_t at) const {
    const auto& [tensor, shard] = index_.shard_of[at];
    Slot& slot = slots_[shard];
    const std::lock_guard lock(slot.mutex);
    if (!slot.file) {
      try {
        slot.file = io::SafetensorsFile::open((fs::path(folder_) / index_.shards[shard]).string());
      } catch (const Error& error) {
        throw Error(error.code(), "", "", about(tensor) + error.message());
      }
    }
    return *slot.file;
  }

  std::string folder_;
  CheckpointIndex index_;
  mutable std::vector<Slot> slots_;
};

}  // namespace

std::unique_ptr<WeightSource> open_checkpoint(const std::string& folder, ModelConfig config, const Shard& shard) {
  return std::make_unique<Checkpoint>(folder, std::move(config), shard);
}

}  // namespace dodona::model
