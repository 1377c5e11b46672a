#include "ops/schemes/draft_tree.h"

#include <algorithm>
#include <string>

#include "dodona/error.h"

namespace dodona::ops {
namespace {

[[noreturn]] void bad(const char* argument, std::int64_t value, std::int64_t element, const std::string& expected) {
  throw Error(ErrorCode::bad_value, "", argument,
              "holds " + std::to_string(value) + " at element " + std::to_string(element) + ", expected " + expected);
}

void check_nodes(const Tensor& links, const char* argument, std::int64_t nodes) {
  const auto* link = links.as<const std::int64_t>();
  bool right = true;
  for (std::int64_t i = 0; i < links.elements(); ++i) right = right && link[i] >= -1 && link[i] < nodes;
  for (std::int64_t i = 0; !right && i < links.elements(); ++i)
    if (link[i] < -1 || link[i] >= nodes) bad(argument, link[i], i, "-1 or a node, 0 to " + std::to_string(nodes - 1));
}

/// Every chain is followed as far as no chain before it went.
void check_siblings_end(const TreeLinks& links) {
  const std::int64_t nodes = links.nodes();
  std::vector<std::int64_t> seen_from(static_cast<std::size_t>(nodes));
  for (std::int64_t b = 0; b < links.requests(); ++b) {
    const auto* const next = links.retrive_next_sibling.as<const std::int64_t>() + b * nodes;
    // Siblings that rise, as built trees have them, end.
    bool rise = true;
    for (std::int64_t t = 0; t < nodes; ++t) rise = rise && (next[t] == -1 || next[t] > t);
    if (rise) continue;
    std::fill(seen_from.begin(), seen_from.end(), -1);
    for (std::int64_t start = 0; start < nodes; ++start) {
      std::int64_t node = start;
      while (node != -1 && seen_from[static_cast<std::size_t>(node)] == -1) {
        seen_from[static_cast<std::size_t>(node)] = start;
        node = next[node];
      }
      if (node != -1 && seen_from[static_cast<std::size_t>(node)] == start)
        bad("retrive_next_sibling", next[node], b * nodes + node, "siblings that end, which these do not");
    }
  }
}

}  // namespace

std::vector<std::uint8_t> linked_nodes(const TreeLinks& links) {
  const std::int64_t nodes = links.nodes();
  std::vector<std::uint8_t> linked(static_cast<std::size_t>(links.requests() * nodes), 0);
  for (std::int64_t b = 0; b < links.requests(); ++b) {
    const TreeRow tree(links, b);
    std::uint8_t* const row = linked.data() + b * nodes;
    for (std::int64_t t = 0; t < nodes; ++t) {
      if (tree.next_token[t] >= 0) row[tree.next_token[t]] = 1;
      if (tree.next_sibling[t] >= 0) row[tree.next_sibling[t]] = 1;
    }
  }
  return linked;
}

void check_links(const TreeLinks& links, std::int64_t places) {
  const std::int64_t nodes = links.nodes();
  check_nodes(links.retrive_next_token, "retrive_next_token", nodes);
  check_nodes(links.retrive_next_sibling, "retrive_next_sibling", nodes);
  check_siblings_end(links);
  const std::vector<std::uint8_t> linked = linked_nodes(links);
  for (std::int64_t b = 0; b < links.requests(); ++b)
    for (std::int64_t t = 0; t < nodes; ++t) {
      const std::int64_t place = TreeRow(links, b).index[t], i = b * nodes + t;
      if ((t == 0 || linked[static_cast<std::size_t>(i)] != 0) && (place < 0 || place >= places))
        bad("retrive_index", place, i, "0 to " + std::to_string(places - 1));
    }
}

void make_links(const Tensor& retrive_index, const Tensor& retrive_next_token, const Tensor& retrive_next_sibling, std::uint64_t seed) {
  const std::int64_t nodes = retrive_index.size(1);
  const InputDraw parents(seed, "retrive_next_token");
  auto *index = retrive_index.as<std::int64_t>(), *child = retrive_next_token.as<std::int64_t>(),
       *sibling = retrive_next_sibling.as<std::int64_t>();
  const std::int64_t count = retrive_index.elements();
  std::fill(child, child + count, -1);
  std::fill(sibling, sibling + count, -1);
  for (std::int64_t i = count; i-- > 0;) {
    index[i] = i;
    const std::int64_t node = i % nodes;
    if (node == 0) continue;
    const std::int64_t parent = i - node + static_cast<std::int64_t>(parents.below(i, static_cast<std::uint64_t>(node)));
    sibling[i] = child[parent];
    child[parent] = node;
  }
}

}  // namespace dodona::ops
