#include "oracle/alternatives/alternative.h"

#include <algorithm>
#include <iterator>

#include "oracle/alternatives/families.h"

namespace dodona::oracle {
namespace {

struct Entry {
  std::string_view op;
  bool (*compute)(const alternatives::Call&);
};

#define DODONA_ENTRY(op) {#op, alternatives::op},
constexpr Entry entries[] = {DODONA_ALTERNATIVES(DODONA_ENTRY)};
#undef DODONA_ENTRY

const Entry* find(std::string_view op) {
  const auto* found = std::find_if(std::begin(entries), std::end(entries), [&](const Entry& entry) { return entry.op == op; });
  return found != std::end(entries) ? found : nullptr;
}

}  // namespace

bool has_alternative(std::string_view op) {
  return find(op) != nullptr;
}

bool compute_otherwise(const Op& op, const Arguments& arguments, Way way) {
  const Entry* entry = find(op.name());
  return entry != nullptr && entry->compute({op, arguments, way});
}

}  // namespace dodona::oracle
