// What a checkpoint holds, held against its configuration. Headers alone are read, unless values are asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "model/config/config.h"

namespace dodona::model {

enum class Finding {
  missing,    ///< the model has it, the checkpoint not, or not where its index says
  misnamed,   ///< likewise, and one that the model has not is of the same layer, type and shape and nearly of that name
  misshaped,  ///< of another type or shape
  unknown,    ///< the checkpoint has it, or its index says so, the model not
  unread,     ///< in a file that is absent or cannot be read, says the index; counted, not among the tensors
  unusable,   ///< it holds what is no finite number, or a scale that is not positive; looked for where values are
};
std::string_view name(Finding finding);

struct InspectedTensor {
  Finding finding{};
  std::string name;      ///< the model's; of unknown ones the checkpoint's
  std::string expected;  ///< "BF16 [768, 192]"; "finite numbers"; empty for unknown ones
  std::string found;     ///< the same, or the name that is there instead; of missing ones what index and file say of it, if anything;
                         ///< "nan at element 5"
  std::string file;      ///< which holds it, or should
};

/// A layer, or what lies outside of layers.
struct InspectedPart {
  std::string title;                               ///< "layer 3 (MoE)", "embedding, final norm, head"
  std::map<std::string, std::int64_t> forms = {};  ///< linear modules that the configuration has in each form
  std::int64_t expected = 0, present = 0;          ///< tensors; optional ones count where they are there
  std::int64_t bytes = 0;                          ///< of those present
  std::map<Finding, std::int64_t> findings = {};
};

struct Inspection {
  std::vector<InspectedPart> parts;
  std::vector<InspectedTensor> tensors;  ///< those that do not fit
  std::int64_t files = 0, present = 0, bytes = 0;
  std::int64_t spare = 0;               ///< tensors that releases hold and nothing reads: NextN layers' copies of embedding and head, ...
  std::vector<std::string> unreadable;  ///< one message for each file that is absent or no safetensors file
  std::vector<std::string> unfinished;  ///< files of downloads that did not end
  bool fits() const { return tensors.empty() && unreadable.empty(); }
};

/// Whether the values of tensors are looked at too, all of them, and who is told how many of the parts are done before each of them.
struct ValueLook {
  bool wanted = false;
  std::function<void(std::int64_t done, std::int64_t parts)> progress = {};
};

/// Layers first ... last of the checkpoint in `folder` and what lies outside of layers; layers that are not asked for are not looked at.
/// Throws Error (bad_file) for a folder without weights and an index that is none, (bad_value) for layers that the model does not have.
Inspection inspect_checkpoint(const std::string& folder, const ModelConfig& config, std::int64_t first_layer, std::int64_t last_layer,
                              const ValueLook& values = {});

}  // namespace dodona::model
