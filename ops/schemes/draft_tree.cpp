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
  for (std::int64_t i = 0; i < links.elements(); ++i)
    if (link[i] < -1 || link[i] >= nodes) bad(argument, link[i], i, "-1 or a node, 0 to " + std::to_string(nodes - 1));
}

/// Every chain is followed as far as no chain before it went.
void check_siblings_end(const TreeLinks& links) {
  const std::int64_t nodes = links.nodes();
  std::vector<std::int64_t> seen_from(static_cast<std::size_t>(nodes));
  for (std::int64_t b = 0; b < links.requests(); ++b) {
    const auto* const next = links.retrive_next_sibling.as<const std::int64_t>() + b * nodes;
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

std::vector<bool> linked_nodes(const TreeLinks& links) {
  std::vector<bool> linked(static_cast<std::size_t>(links.requests() * links.nodes()), false);
  for (const Tensor* list : {&links.retrive_next_token, &links.retrive_next_sibling})
    for (std::int64_t i = 0; i < list->elements(); ++i)
      if (const std::int64_t node = list->as<const std::int64_t>()[i]; node >= 0)
        linked[static_cast<std::size_t>(i / links.nodes() * links.nodes() + node)] = true;
  return linked;
}

void check_links(const TreeLinks& links, std::int64_t places) {
  check_nodes(links.retrive_next_token, "retrive_next_token", links.nodes());
  check_nodes(links.retrive_next_sibling, "retrive_next_sibling", links.nodes());
  check_siblings_end(links);
  const std::vector<bool> linked = linked_nodes(links);
  const auto* index = links.retrive_index.as<const std::int64_t>();
  for (std::int64_t i = 0; i < links.retrive_index.elements(); ++i)
    if ((i % links.nodes() == 0 || linked[static_cast<std::size_t>(i)]) && (index[i] < 0 || index[i] >= places))
      bad("retrive_index", index[i], i, "0 to " + std::to_string(places - 1));
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
