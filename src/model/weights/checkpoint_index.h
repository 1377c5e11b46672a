// Which tensor lies in which file of a checkpoint, and whether it is what a configuration expects.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/safetensors.h"
#include "model/weights/tensor_list.h"

namespace dodona::model {

inline constexpr const char* index_name = "model.safetensors.index.json";
inline constexpr const char* single_name = "model.safetensors";

struct CheckpointIndex {
  /// A file that the folder does not have, and what the index places in it.
  struct Absent {
    std::string shard;
    std::vector<std::string> tensors;
  };
  std::vector<std::string> shards;                                 ///< file names inside the folder
  std::vector<std::pair<std::string, std::size_t>> shard_of = {};  ///< sorted by tensor name; of shards that are there
  std::vector<Absent> absent = {};
  std::vector<std::string> unfinished = {};  ///< files of downloads that did not end

  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  /// Where in shard_of, or none; at once for one that lies beside `near`, as the next of a model does.
  std::size_t position(std::string_view tensor, std::size_t near) const;
  /// The shard, by its number.
  std::optional<std::size_t> find(std::string_view tensor) const;
};

/// Of a folder with an index, or with one `model.safetensors`. Throws Error (bad_file) for a folder without either, an index that is none,
/// and shards that are no plain file names.
CheckpointIndex read_index(const std::string& folder);
/// "; ... looks like a download that was interrupted", where one does.
std::string unfinished_advice(const CheckpointIndex& index);

enum class Fit { fits, wrong_type, wrong_shape, transposed };
/// Scalars may come as [] or [1].
Fit fit_of(const io::SafetensorsEntry& entry, const TensorInfo& info);
/// "BF16 [768, 192]"
std::string expected_text(const TensorInfo& info);
std::string found_text(const io::SafetensorsEntry& entry);

}  // namespace dodona::model
