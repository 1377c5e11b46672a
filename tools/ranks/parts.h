// Reports in parts: what job arrays and CI matrices run apart, `dodona merge` joins.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/common.h"

namespace dodona::tools {

/// --part I/N: the cases at positions I - 1, I - 1 + N and so on.
struct PartOption {
  std::string text;

  /// `gives`: what a part is.
  void add(CLI::App& command, const char* gives = "with --json, for dodona merge to join with the other N - 1 parts");
  bool given() const { return !text.empty(); }
  /// Throws Error (bad_option) for what is no I/N with 1 <= I <= N.
  void check() const;
  /// Also where the report is not --json.
  void check(bool json) const;
  /// From 0.
  std::size_t index() const;
  std::size_t count() const;
  bool takes(std::size_t position) const;
  /// Takes from `all` what is not this part's, and gives the positions of what is left.
  template <class T>
  std::vector<std::int64_t> select(std::vector<T>& all) const {
    std::vector<std::int64_t> positions;
    std::vector<T> mine;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (takes(i)) positions.push_back(static_cast<std::int64_t>(i)), mine.push_back(std::move(all[i]));
    all = std::move(mine);
    return positions;
  }
  /// What joins the report again: which command's, of how many, and where each entry of the report's `list` stands among all.
  void mark(io::Json& report, const char* command, const char* list, const std::vector<std::int64_t>& positions) const;
};

void add_merge(CLI::App& app, int& exit_code);

}  // namespace dodona::tools
