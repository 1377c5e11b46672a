#include "model/weights/inspect.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>

#include "core/threads.h"
#include "dodona/error.h"
#include "dodona/exec.h"
#include "io/safetensors.h"
#include "model/weights/checkpoint_index.h"
#include "model/weights/tensor_list.h"
#include "quant/element.h"
#include "quant/finite.h"

namespace dodona::model {
namespace {

/// A tensor that is there.
struct Entry {
  io::SafetensorsEntry entry;
  std::string file;
  bool taken = false;
};
using Entries = std::map<std::string, Entry, std::less<>>;

/// A tensor of the model about which index and files do not agree: no reader finds it.
struct Astray {
  std::string found, file;
};
struct Contents {
  Entries entries;  ///< every tensor that the index places where it is, and those that the model does not have
  std::map<std::string, Astray, std::less<>> astray = {};
  std::set<std::string, std::less<>> unread = {};  ///< whose files cannot be
};

/// What releases hold beside the weights: computed, or a copy of what the model has elsewhere.
bool nobody_reads(std::string_view name) {
  for (const char* end : {".rotary_emb.inv_freq", ".shared_head.head.weight", ".embed_tokens.weight"})
    if (name.starts_with("model.layers.") && name.ends_with(end)) return true;
  return false;
}

/// "model.layers.3." of a name, or nothing.
std::string_view layer_of(std::string_view name) {
  constexpr std::string_view layers = "model.layers.";
  if (!name.starts_with(layers)) return {};
  const std::size_t dot = name.find('.', layers.size());
  return dot == std::string_view::npos ? std::string_view{} : name.substr(0, dot + 1);
}

/// Insertions, deletions and replacements that make one of the other.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t before = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, before + (a[i - 1] == b[j - 1] ? 0 : 1)});
      before = above;
    }
  }
  return row.back();
}

/// What the files that can be read hold.
Contents read_contents(const std::string& folder, const ModelConfig& config, const CheckpointIndex& index, Inspection& result) {
  struct Shard {
    std::vector<io::SafetensorsEntry> entries;
    std::optional<std::string> error;
  };
  std::vector<Shard> shards(index.shards.size());
  parallel_for(Exec().threads, static_cast<std::int64_t>(shards.size()), 1e6, [&](std::int64_t i) {
    Shard& shard = shards[static_cast<std::size_t>(i)];
    try {
      const auto file = io::SafetensorsFile::open((std::filesystem::path(folder) / index.shards[static_cast<std::size_t>(i)]).string());
      shard.entries.assign(file.entries().begin(), file.entries().end());
    } catch (const Error& error) {
      shard.error = error.message();
    }
  });
  Contents contents;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    // Shards hold neighbours, most of them in order.
    auto next = contents.entries.end();
    for (io::SafetensorsEntry& entry : shards[i].entries) {
      std::string name = entry.name;
      const auto place = index.find(name);
      if (place && *place != i) continue;
      if (!place && find_tensor_info(config, name))
        contents.astray[name] = {"a tensor that " + std::string(index_name) + " does not list", index.shards[i]};
      else
        next = std::next(contents.entries.try_emplace(next, std::move(name), Entry{std::move(entry), index.shards[i]}));
    }
    if (shards[i].error) result.unreadable.push_back(*shards[i].error);
  }
  for (const auto& [name, shard] : index.shard_of)
    if (shards[shard].error)
      contents.unread.insert(name);
    else if (!contents.entries.contains(name))
      contents.astray[name] = {"nothing of that name", index.shards[shard]};
  for (const CheckpointIndex::Absent& absent : index.absent) {
    contents.unread.insert(absent.tensors.begin(), absent.tensors.end());
    result.unreadable.push_back((std::filesystem::path(folder) / absent.shard).string() + ": not in the folder, but " + index_name +
                                " places tensors in it (" + absent.tensors.front() + ")");
  }
  return contents;
}

/// What of a tensor's values no kernel takes.
struct Unusable {
  std::string expected, found;
};
/// Scalars are scales, all of them.
std::optional<Unusable> unusable_values(const TensorInfo& info, const io::SafetensorsFile& file, const io::SafetensorsEntry& entry) {
  const void* const values = file.bytes(entry).data();
  const std::int64_t count = element_count(info.whole);
  const bool scalar = info.whole.rank() == 0;
  const auto at_element = [&](std::int64_t at) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", quant::load(*entry.dtype, values, at));
    return text + (scalar ? std::string() : " at element " + std::to_string(at));
  };
  const std::int64_t at = quant::first_not_finite(*entry.dtype, values, count);
  if (scalar && (at == 0 || !(quant::load(*entry.dtype, values, 0) > 0))) return Unusable{"a positive number", at_element(0)};
  if (at < count) return Unusable{"finite numbers", at_element(at)};
  return std::nullopt;
}

class Inspector {
 public:
  Inspector(const std::string& folder, const ModelConfig& config, Contents& contents, const ValueLook& values, std::int64_t parts,
            Inspection& result)
      : folder_(folder),
        config_(config),
        entries_(contents.entries),
        contents_(contents),
        values_(values),
        parts_(parts),
        result_(result) {}

  void part(std::string title, const std::vector<TensorInfo>& tensors) {
    InspectedPart part{.title = std::move(title)};
    std::vector<const TensorInfo*> missing;
    std::vector<Fitting> fitting;
    for (const TensorInfo& info : tensors) {
      if (info.columns > 0 && info.name.ends_with(tensors_of(info.form).front().suffix)) ++part.forms[std::string(name(info.form))];
      const auto at = entries_.find(info.name);
      if (at == entries_.end()) {
        if (info.optional) continue;
        ++part.expected;
        if (contents_.unread.contains(info.name))
          ++part.findings[Finding::unread];
        else
          missing.push_back(&info);
        continue;
      }
      ++part.expected;
      take(part, at->second);
      if (fit_of(at->second.entry, info) != Fit::fits)
        add(part, {Finding::misshaped, info.name, expected_text(info), found_text(at->second.entry), at->second.file});
      else
        fitting.push_back({&info, &at->second});
    }
    for (const TensorInfo* const info : missing) {
      Entry* const instead = meant(*info);
      if (instead == nullptr) {
        const auto at = contents_.astray.find(info->name);
        const Astray place = at == contents_.astray.end() ? Astray() : at->second;
        add(part, {Finding::missing, info->name, expected_text(*info), place.found, place.file});
        continue;
      }
      take(part, *instead);
      add(part, {Finding::misnamed, info->name, expected_text(*info), instead->entry.name, instead->file});
    }
    if (values_.wanted) look_at_values(part, fitting);
    result_.parts.push_back(std::move(part));
  }

  /// What no part has taken.
  void others() {
    InspectedPart part{.title = "others"};
    for (auto& [name, entry] : entries_) {
      if (entry.taken || in_other_layer(name)) continue;
      if (nobody_reads(name)) {
        ++result_.spare;
        continue;
      }
      take(part, entry);
      add(part, {Finding::unknown, name, "", found_text(entry.entry), entry.file});
    }
    for (const auto& [name, place] : contents_.astray)
      if (!in_other_layer(name) && !nobody_reads(name)) add(part, {Finding::unknown, name, "", place.found, place.file});
    if (!part.findings.empty()) result_.parts.push_back(std::move(part));
  }

 private:
  struct Fitting {
    const TensorInfo* info;
    const Entry* entry;
  };
  void look_at_values(InspectedPart& part, const std::vector<Fitting>& tensors) {
    if (values_.progress) values_.progress(static_cast<std::int64_t>(result_.parts.size()), parts_);
    std::map<std::string, io::SafetensorsFile> files;
    for (const Fitting& each : tensors)
      if (const std::string& file = each.entry->file; !files.contains(file))
        files.emplace(file, io::SafetensorsFile::open((std::filesystem::path(folder_) / file).string()));
    std::vector<std::optional<Unusable>> found(tensors.size());
    constexpr double work = 1e6;  // of a tensor, whichever: enough for threads
    parallel_for(Exec().threads, static_cast<std::int64_t>(tensors.size()), work, [&](std::int64_t i) {
      const auto& [info, entry] = tensors[static_cast<std::size_t>(i)];
      found[static_cast<std::size_t>(i)] = unusable_values(*info, files.at(entry->file), entry->entry);
    });
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (found[i]) add(part, {Finding::unusable, tensors[i].info->name, found[i]->expected, found[i]->found, tensors[i].entry->file});
  }
  void take(InspectedPart& part, Entry& entry) {
    const std::uint64_t bytes = entry.entry.end - entry.entry.begin;
    entry.taken = true;
    ++part.present, ++result_.present;
    part.bytes += static_cast<std::int64_t>(bytes), result_.bytes += static_cast<std::int64_t>(bytes);
  }
  void add(InspectedPart& part, InspectedTensor tensor) {
    ++part.findings[tensor.finding];
    result_.tensors.push_back(std::move(tensor));
  }
  bool in_other_layer(std::string_view name) const {
    return find_tensor_info(config_, name).has_value();  // of a layer that was not asked for, or told of there
  }

  /// The nearest name of the same layer that the model has not, whose tensor would fit.
  Entry* meant(const TensorInfo& info) {
    Entry* best = nullptr;
    std::size_t nearest = info.name.size() / 3;
    const std::string_view layer = layer_of(info.name);
    for (auto at = entries_.lower_bound(layer); at != entries_.end() && at->first.starts_with(layer); ++at) {
      Entry& entry = at->second;
      if (entry.taken || nobody_reads(at->first) || fit_of(entry.entry, info) != Fit::fits || find_tensor_info(config_, at->first))
        continue;
      if (const std::size_t d = distance(at->first, info.name); d < nearest) best = &entry, nearest = d;
    }
    return best;
  }

  const std::string& folder_;
  const ModelConfig& config_;
  Entries& entries_;
  const Contents& contents_;
  const ValueLook& values_;
  std::int64_t parts_;
  Inspection& result_;
};

std::string title_of(const ModelConfig& config, std::int64_t layer) {
  const char* const kind = config.is_nextn_layer(layer) ? "NextN" : config.is_moe_layer(layer) ? "MoE" : "dense";
  return "layer " + std::to_string(layer) + " (" + kind + ")";
}

}  // namespace

std::string_view name(Finding finding) {
  constexpr std::array<std::string_view, 6> names{"missing", "misnamed", "misshaped", "unknown", "unread", "unusable"};
  return names.at(static_cast<std::size_t>(finding));
}

Inspection inspect_checkpoint(const std::string& folder, const ModelConfig& config, std::int64_t first_layer, std::int64_t last_layer,
                              const ValueLook& values) {
  config.check_layer(first_layer);
  config.check_layer(last_layer);
  Inspection result;
  const CheckpointIndex index = read_index(folder);
  result.files = static_cast<std::int64_t>(index.shards.size());
  result.unfinished = index.unfinished;
  Contents contents = read_contents(folder, config, index, result);
  Inspector inspector(folder, config, contents, values, last_layer - first_layer + 2, result);
  inspector.part("embedding, final norm, head", outer_tensors(config));
  for (std::int64_t layer = first_layer; layer <= last_layer; ++layer)
    inspector.part(title_of(config, layer), layer_tensors(config, layer));
  inspector.others();
  return result;
}

}  // namespace dodona::model
