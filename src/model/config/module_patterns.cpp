#include "model/config/module_patterns.h"

#include <algorithm>

namespace dodona::model {

bool glob_matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, retry = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      // The last star takes one character more; earlier stars need no second look.
      p = star + 1;
      t = ++retry;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

ModulePatterns::ModulePatterns(std::initializer_list<std::string> patterns) : ModulePatterns(std::vector<std::string>(patterns)) {}
ModulePatterns::ModulePatterns(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) add(pattern);
}

void ModulePatterns::add(const std::string& pattern) {
  list_.push_back(pattern);
  if (pattern.find('*') == std::string::npos)
    names_.insert(pattern);
  else
    globs_.push_back(pattern);
}

bool ModulePatterns::match(std::string_view module) const {
  return names_.contains(module) || std::any_of(globs_.begin(), globs_.end(), [&](const auto& glob) { return glob_matches(glob, module); });
}

bool ModulePatterns::name_what_holds(std::string_view module) const {
  if (names_.empty()) return false;
  for (std::size_t begin = 0, dot = 0; dot != std::string_view::npos; begin = dot + 1) {
    for (std::size_t end = begin; end < module.size();) {
      end = std::min(module.find('.', end + 1), module.size());
      if (names_.contains(module.substr(begin, end - begin))) return true;
    }
    dot = module.find('.', begin);
  }
  return false;
}

}  // namespace dodona::model
