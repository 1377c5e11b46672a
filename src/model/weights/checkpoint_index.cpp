#include "model/weights/checkpoint_index.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>

#include "dodona/error.h"
#include "io/json.h"
#include "io/json_events.h"
#include "io/mapped_file.h"
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
bool is_plain_name(const std::string& shard) {
  return !shard.empty() && shard != "." && shard != ".." && shard.find('/') == std::string::npos && shard.find('\0') == std::string::npos;
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

/// Which shard each tensor is in, as an index says; shards in the order in which they come.
struct WeightMap {
  std::vector<std::string> shards;
  std::vector<std::pair<std::string, std::size_t>> tensors;

  void add(std::string tensor, std::string_view shard) {
    // Neighbours mostly share one.
    if (shards.empty() || shards[last_] != shard) {
      const auto known = numbers_.find(shard);
      last_ = known != numbers_.end() ? known->second : shards.size();
      if (known == numbers_.end()) shards.emplace_back(shard), numbers_.emplace(shard, last_);
    }
    tensors.emplace_back(std::move(tensor), last_);
  }

 private:
  std::map<std::string, std::size_t, std::less<>> numbers_;
  std::size_t last_ = 0;
};

/// Takes an index as writers make it: `weight_map`, and beside it numbers and texts, on their own or in one object.
class IndexEvents final : public io::JsonEvents {
 public:
  WeightMap map;
  bool whole = false;  ///< the map has come

  bool key(std::string_view value) override {
    if (in_map_) {
      key_ = value;
      return map.tensors.size() < most_tensors;
    }
    if (depth_ == 1) mapped_ = value == map_name;
    std::vector<std::string>& names = depth_ == 1 ? members_ : beside_;
    if (names.size() == most_beside || std::find(names.begin(), names.end(), value) != names.end()) return false;
    names.emplace_back(value);
    return true;
  }
  bool string(std::string_view value) override {
    if (in_map_) map.add(std::move(key_), value);
    return beside() || in_map_;
  }
  bool number(std::uint64_t /*value*/) override { return beside(); }
  bool start_object() override {
    in_map_ = depth_ == 1 && mapped_;
    whole = whole || in_map_;
    beside_.clear();
    return ++depth_ <= 2;
  }
  bool end_object() override {
    in_map_ = false;
    --depth_;
    return true;
  }

 private:
  static constexpr std::size_t most_tensors = 2'000'000, most_beside = 100;  ///< beyond, the tree's limits judge
  static constexpr std::string_view map_name = "weight_map";

  /// Whether what comes now is a value beside the map.
  bool beside() const { return depth_ == 2 ? !in_map_ : !mapped_; }

  int depth_ = 0;
  bool mapped_ = false, in_map_ = false;
  std::string key_;
  std::vector<std::string> members_, beside_;
};

WeightMap map_of_tree(const io::Json& json, const std::string& where) {
  WeightMap map;
  for (const auto& [tensor, value] : io::get_object(json, "weight_map", where).items()) {
    if (!value.is_string()) fail(where, about(tensor) + "the shard is no string");
    map.add(tensor, value.get_ref<const std::string&>());
  }
  return map;
}

bool sorted_without_twins(WeightMap& map) {
  std::sort(map.tensors.begin(), map.tensors.end());
  return std::adjacent_find(map.tensors.begin(), map.tensors.end(), [](const auto& a, const auto& b) { return a.first == b.first; }) ==
         map.tensors.end();
}

WeightMap read_map(const std::string& where) {
  const auto file = io::MappedFile::open(where);
  IndexEvents events;
  const bool taken = io::read_events({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, events);
  if (taken && events.whole && sorted_without_twins(events.map)) return std::move(events.map);
  WeightMap map = map_of_tree(io::read_json(where), where);
  std::sort(map.tensors.begin(), map.tensors.end());
  return map;
}

void take_map(const std::string& folder, CheckpointIndex& index) {
  const std::string where = (fs::path(folder) / index_name).string();
  WeightMap map = read_map(where);
  struct Place {
    bool there;
    std::size_t at;  ///< of the shards, or of the absent ones
  };
  std::vector<Place> places;
  for (std::size_t k = 0; k < map.shards.size(); ++k) {
    const std::string& shard = map.shards[k];
    if (!is_plain_name(shard))
      fail(where,
           about(std::find_if(map.tensors.begin(), map.tensors.end(), [k](const auto& tensor) { return tensor.second == k; })->first) +
               "shard " + io::quote(shard) + " is no plain file name");
    std::error_code ignored;
    const bool there = fs::exists(fs::path(folder) / shard, ignored);
    places.push_back({there, there ? index.shards.size() : index.absent.size()});
    if (there)
      index.shards.push_back(shard);
    else
      index.absent.push_back({shard, {}});
  }
  index.shard_of.reserve(map.tensors.size());
  for (auto& [tensor, shard] : map.tensors)
    if (const Place place = places[shard]; place.there)
      index.shard_of.emplace_back(std::move(tensor), place.at);
    else
      index.absent[place.at].tensors.push_back(std::move(tensor));
}

}  // namespace

std::size_t CheckpointIndex::position(std::string_view tensor, std::size_t near) const {
  const auto before = [&](std::size_t i) { return shard_of[i].first < tensor; };
  // Steps that double, away from `near`, to two places between which it must lie.
  std::size_t low = std::min(near, shard_of.size()), high = low, step = 1;
  for (; high < shard_of.size() && before(high); step *= 2) low = high + 1, high = std::min(high + step, shard_of.size());
  for (step = 1; low > 0 && !before(low - 1); step *= 2) high = low - 1, low -= std::min(low, step);
  while (low < high)
    if (const std::size_t middle = low + (high - low) / 2; before(middle))
      low = middle + 1;
    else
      high = middle;
  return low < shard_of.size() && shard_of[low].first == tensor ? low : none;
}

std::optional<std::size_t> CheckpointIndex::find(std::string_view tensor) const {
  const std::size_t at = position(tensor, shard_of.size() / 2);
  return at == none ? std::nullopt : std::optional(shard_of[at].second);
}

CheckpointIndex read_index(const std::string& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) fail(folder, "not a folder");
  CheckpointIndex index;
  index.unfinished = unfinished_files(folder);
  if (fs::exists(fs::path(folder) / index_name, ignored)) {
    take_map(folder, index);
  } else if (fs::exists(fs::path(folder) / single_name, ignored)) {
    index.shards = {single_name};
    const auto file = io::SafetensorsFile::open((fs::path(folder) / single_name).string());
    for (const io::SafetensorsEntry& entry : file.entries()) index.shard_of.emplace_back(entry.name, 0);
    std::sort(index.shard_of.begin(), index.shard_of.end());
  } else {
    fail(folder, std::string("neither ") + index_name + " nor " + single_name + " is in it" + unfinished_advice(index));
  }
  return index;
}

std::string unfinished_advice(const CheckpointIndex& index) {
  return index.unfinished.empty() ? "" : "; " + io::quote(index.unfinished.front()) + " looks like a download that was interrupted";
}

Fit fit_of(const io::SafetensorsEntry& entry, const TensorInfo& info) {
  if (!entry.dtype || std::find(info.dtypes.begin(), info.dtypes.end(), *entry.dtype) == info.dtypes.end()) return Fit::wrong_type;
  const std::span<const std::int64_t> shape(info.whole.begin(), info.whole.end()), found(entry.shape);
  if (std::ranges::equal(found, shape) || (shape.empty() && found.size() == 1 && found[0] == 1)) return Fit::fits;
  const bool transposed = shape.size() == 2 && found.size() == 2 && found[0] == shape[1] && found[1] == shape[0];
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
