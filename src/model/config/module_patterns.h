// Names of modules and globs, which every module of a model is held against.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace dodona::model {

/// Whether `pattern` matches all of `text`; `*` is any text, also none. Time is the product of the lengths at most.
bool glob_matches(std::string_view pattern, std::string_view text);

/// The names among them are looked up and the globs tried: ModelOpt's configurations list hundreds, for tens of thousands of modules.
class ModulePatterns {
 public:
  ModulePatterns() = default;
  ModulePatterns(std::initializer_list<std::string> patterns);
  ModulePatterns(const std::vector<std::string>& patterns);

  void add(const std::string& pattern);
  const std::vector<std::string>& list() const { return list_; }

  /// Whether one of them matches the whole name.
  bool match(std::string_view module) const;
  /// Whether one of them is a run of whole components of the name, "layers.3" of "model.layers.3.mlp".
  bool name_what_holds(std::string_view module) const;

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::vector<std::string> list_, globs_;
  std::unordered_set<std::string, Hash, std::equal_to<>> names_;
};

}  // namespace dodona::model
