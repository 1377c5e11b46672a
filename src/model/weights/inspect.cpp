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

/// A tensor that is there, in the file of that number; null for one that is not.
struct Entry {
  const io::SafetensorsEntry* entry = nullptr;
  std::size_t shard = 0;
  bool taken = false;
};

/// A tensor of the model about which index and files do not agree: no reader finds it.
struct Astray {
  std::string found, file;
};
struct Contents {
  const CheckpointIndex& index;
  std::vector<std::optional<io::SafetensorsFile>> files = {};  ///< those that can be read
  std::vector<Entry> listed = {};                              ///< for each of index.shard_of, where its file has it
  std::map<std::string, Entry, std::less<>> unlisted = {};     ///< which the index does not list, nor the model
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
  // What both begin and end with takes no part, and is most of names of one layer.
  const auto shared = static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  a.remove_prefix(shared), b.remove_prefix(shared);
  while (!a.empty() && !b.empty() && a.back() == b.back()) a.remove_suffix(1), b.remove_suffix(1);
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

/// Opens what can be opened; of the other files the message is told.
void open_files(const std::string& folder, Contents& contents, Inspection& result) {
  const std::vector<std::string>& names = contents.index.shards;
  contents.files.resize(names.size());
  std::vector<std::optional<std::string>> errors(names.size());
  parallel_for(Exec().threads, static_cast<std::int64_t>(names.size()), 1e6, [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    try {
      contents.files[at] = io::SafetensorsFile::open((std::filesystem::path(folder) / names[at]).string());
    } catch (const Error& error) {
      errors[at] = error.message();
    }
  });
  for (auto& error : errors)
    if (error) result.unreadable.push_back(*std::move(error));
}

/// What the files that can be read hold.
Contents read_contents(const std::string& folder, const ModelConfig& config, const CheckpointIndex& index, Inspection& result) {
  Contents contents{index};
  open_files(folder, contents, result);
  contents.listed.resize(index.shard_of.size());
  parallel_for(Exec().threads, static_cast<std::int64_t>(index.shard_of.size()), 100, [&](std::int64_t i) {
    const auto& [name, shard] = index.shard_of[static_cast<std::size_t>(i)];
    const auto& file = contents.files[shard];
    contents.listed[static_cast<std::size_t>(i)] = {file ? file->find(name) : nullptr, shard};
  });
  std::vector<std::size_t> found(index.shards.size());
  for (std::size_t i = 0; i < index.shard_of.size(); ++i) {
    const auto& [name, shard] = index.shard_of[i];
    if (contents.listed[i].entry != nullptr)
      ++found[shard];
    else if (!contents.files[shard])
      contents.unread.insert(name);
    else
      contents.astray[name] = {"nothing of that name", index.shards[shard]};
  }
  // Files that hold more than the index places there.
  for (std::size_t k = 0; k < contents.files.size(); ++k) {
    if (!contents.files[k] || contents.files[k]->entries().size() == found[k]) continue;
    for (const io::SafetensorsEntry& entry : contents.files[k]->entries()) {
      if (index.find(entry.name)) continue;
      if (find_tensor_info(config, entry.name))
        contents.astray[entry.name] = {"a tensor that " + std::string(index_name) + " does not list", index.shards[k]};
      else
        contents.unlisted.try_emplace(entry.name, Entry{&entry, k});
    }
  }
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
  Inspector(const ModelConfig& config, Contents& contents, const ValueLook& values, std::int64_t parts, Inspection& result)
      : config_(config), contents_(contents), values_(values), parts_(parts), result_(result) {}

  void part(std::string title, const std::vector<TensorInfo>& tensors) {
    InspectedPart part{.title = std::move(title)};
    std::vector<const TensorInfo*> missing;
    std::vector<Fitting> fitting;
    for (const TensorInfo& info : tensors) {
      if (info.columns > 0 && info.name.ends_with(tensors_of(info.form).front().suffix)) ++part.forms[std::string(name(info.form))];
      Entry* const entry = find(info.name);
      if (entry == nullptr) {
        if (info.optional) continue;
        ++part.expected;
        if (contents_.unread.contains(info.name))
          ++part.findings[Finding::unread];
        else
          missing.push_back(&info);
        continue;
      }
      ++part.expected;
      take(part, *entry);
      if (fit_of(*entry->entry, info) != Fit::fits)
        add(part, {Finding::misshaped, info.name, expected_text(info), found_text(*entry->entry), file_of(*entry)});
      else
        fitting.push_back({&info, entry});
    }
    const std::vector<Entry*> strangers = missing.empty() ? std::vector<Entry*>() : strangers_of(layer_of(missing.front()->name));
    for (const TensorInfo* const info : missing) {
      Entry* const instead = meant(*info, strangers);
      if (instead == nullptr) {
        const auto at = contents_.astray.find(info->name);
        const Astray place = at == contents_.astray.end() ? Astray() : at->second;
        add(part, {Finding::missing, info->name, expected_text(*info), place.found, place.file});
        continue;
      }
      take(part, *instead);
      add(part, {Finding::misnamed, info->name, expected_text(*info), instead->entry->name, file_of(*instead)});
    }
    if (values_.wanted) look_at_values(part, fitting);
    result_.parts.push_back(std::move(part));
  }

  /// What no part has taken.
  void others() {
    InspectedPart part{.title = "others"};
    for (Entry* const entry : left_over()) {
      const std::string& name = entry->entry->name;
      if (in_other_layer(name)) continue;
      if (nobody_reads(name)) {
        ++result_.spare;
        continue;
      }
      take(part, *entry);
      add(part, {Finding::unknown, name, "", found_text(*entry->entry), file_of(*entry)});
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
    std::vector<std::optional<Unusable>> found(tensors.size());
    constexpr double work = 1e6;  // of a tensor, whichever: enough for threads
    parallel_for(Exec().threads, static_cast<std::int64_t>(tensors.size()), work, [&](std::int64_t i) {
      const Fitting& each = tensors[static_cast<std::size_t>(i)];
      found[static_cast<std::size_t>(i)] = unusable_values(*each.info, *contents_.files[each.entry->shard], *each.entry->entry);
    });
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (found[i]) add(part, {Finding::unusable, tensors[i].info->name, found[i]->expected, found[i]->found, file_of(*tensors[i].entry)});
  }
  void take(InspectedPart& part, Entry& entry) {
    const std::uint64_t bytes = entry.entry->end - entry.entry->begin;
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

  const std::string& file_of(const Entry& entry) const { return contents_.index.shards[entry.shard]; }
  /// The tensor that a reader finds under that name, or null.
  Entry* find(std::string_view name) {
    const std::size_t at = contents_.index.position(name, near_);
    if (at == CheckpointIndex::none) return nullptr;
    near_ = at;
    return contents_.listed[at].entry != nullptr ? &contents_.listed[at] : nullptr;
  }
  /// What no part has taken, by name.
  std::vector<Entry*> left_over() {
    std::vector<Entry*> left;
    for (Entry& entry : contents_.listed)
      if (entry.entry != nullptr && !entry.taken) left.push_back(&entry);
    for (auto& [name, entry] : contents_.unlisted)
      if (!entry.taken) left.push_back(&entry);
    std::sort(left.begin(), left.end(), [](const Entry* a, const Entry* b) { return a->entry->name < b->entry->name; });
    return left;
  }

  /// Those of a layer that the model does not have, and that nobody is known to have either.
  std::vector<Entry*> strangers_of(std::string_view layer) {
    std::vector<Entry*> strangers = left_over();
    std::erase_if(strangers, [&](const Entry* entry) {
      const std::string& name = entry->entry->name;
      return !name.starts_with(layer) || nobody_reads(name) || find_tensor_info(config_, name);
    });
    return strangers;
  }
  /// The nearest name whose tensor would fit.
  static Entry* meant(const TensorInfo& info, const std::vector<Entry*>& strangers) {
    Entry* best = nullptr;
    std::size_t nearest = info.name.size() / 3;
    for (Entry* const entry : strangers) {
      if (entry->taken || fit_of(*entry->entry, info) != Fit::fits) continue;
      if (const std::size_t d = distance(entry->entry->name, info.name); d < nearest) best = entry, nearest = d;
    }
    return best;
  }

  const ModelConfig& config_;
  Contents& contents_;
  std::size_t near_ = 0;  ///< where the last tensor was
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
  Inspector inspector(config, contents, values, last_layer - first_layer + 2, result);
  inspector.part("embedding, final norm, head", outer_tensors(config));
  for (std::int64_t layer = first_layer; layer <= last_layer; ++layer)
    inspector.part(title_of(config, layer), layer_tensors(config, layer));
  inspector.others();
  return result;
}

}  // namespace dodona::model
