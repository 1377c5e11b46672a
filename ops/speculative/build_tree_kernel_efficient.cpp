#include "ops/speculative/build_tree_kernel_efficient.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "core/random.h"
#include "core/threads.h"
#include "ops/base/golden_output.h"

namespace dodona::ops {
namespace {

using Build = BuildTreeKernelEfficient;

constexpr std::int64_t most_bits = 32;

/// The rule itself, and mistakes of such kernels.
enum class Rule { right, siblings_from_the_last, itself_unseen, root_counts, root_sees_all };

/// Bytes of a row of bits.
std::int64_t packed_bytes(std::int64_t nodes) {
  return nodes > 16 ? 4 : nodes > 8 ? 2 : 1;
}

/// Elements of a request's mask.
std::int64_t mask_elements(const Build& op, std::int64_t length) {
  const std::int64_t nodes = op.draft_token_num;
  return op.packed() ? nodes * packed_bytes(nodes) : nodes * (nodes + (op.tree_mask_mode == 0 ? length : 0));
}

std::span<const std::int64_t> lengths(const Build& op) {
  return {op.verified_seq_len.as<const std::int64_t>(), static_cast<std::size_t>(op.verified_seq_len.elements())};
}

/// Throws for lengths that no mask has.
std::int64_t all_mask_elements(const Build& op) {
  std::int64_t total = 0, b = 0;
  for (const std::int64_t length : lengths(op)) {
    const std::int64_t most = std::numeric_limits<std::int32_t>::max();
    if (length < 0 || length > most)
      throw Error(ErrorCode::bad_value, "", "verified_seq_len",
                  "holds " + std::to_string(length) + " at element " + std::to_string(b) + ", expected 0 to " + std::to_string(most));
    total += mask_elements(op, length);
    // Upstream's offsets have 32 bits.
    if (total > most)
      throw Error(ErrorCode::bad_value, "", "verified_seq_len",
                  "asks for a mask of more than " + std::to_string(most) + " elements with request " + std::to_string(b));
    ++b;
  }
  return total;
}

void make_beam(const Build& op, std::uint64_t seed) {
  const InputDraw draw(seed, "parent_list");
  const std::int64_t topk = op.topk, width = op.parent_list.size(1);
  for (std::int64_t b = 0; b < op.parent_list.size(0); ++b) {
    auto* const parents = op.parent_list.as<std::int64_t>() + b * width;
    for (std::int64_t s = 0; s < width; ++s) {
      const std::int64_t step = s > topk ? (s - 1) / topk : 0, rank = s > 0 ? (s - 1) % topk : 0;
      // Each beam of a later step goes on from one candidate of its own among topk.
      const auto choice = static_cast<std::int64_t>(draw.below(b * width + s, static_cast<std::uint64_t>(topk)));
      parents[s] = s <= topk ? s - 1 : topk + topk * topk * (step - 1) + topk * rank + choice;
    }
  }
}

void make_selection(const Build& op, std::uint64_t seed) {
  const InputDraw draw(seed, "selected_index");
  const std::int64_t topk = op.topk, width = op.parent_list.size(1), count = op.selected_index.size(1);
  for (std::int64_t b = 0; b < op.requests(); ++b) {
    const auto* const parents = op.parent_list.as<const std::int64_t>() + b * width;
    std::vector<std::int64_t> open(static_cast<std::size_t>(topk)), chosen;
    for (std::int64_t c = 0; c < topk; ++c) open[static_cast<std::size_t>(c)] = c;
    for (std::int64_t i = 0; i < count && !open.empty(); ++i) {
      const auto at = open.begin() + static_cast<std::ptrdiff_t>(draw.below(b * count + i, open.size()));
      const std::int64_t candidate = *at;
      open.erase(at);
      chosen.push_back(candidate);
      if (const auto* const slot = std::find(parents + 1, parents + width, candidate); slot != parents + width)
        for (std::int64_t c = 0; c < topk; ++c) open.push_back((slot - parents) * topk + c);
      std::sort(open.begin(), open.end());
    }
    std::sort(chosen.begin(), chosen.end());
    std::copy(chosen.begin(), chosen.end(), op.selected_index.as<std::int64_t>() + b * count);
  }
}

void make_lengths(const Build& op, std::uint64_t seed) {
  const InputDraw draw(seed, "verified_seq_len");
  const std::int64_t requests = op.requests(), nodes = op.draft_token_num;
  auto* const length = op.verified_seq_len.as<std::int64_t>();
  for (std::int64_t b = 0; b < requests; ++b) length[b] = static_cast<std::int64_t>(draw.below(b, 1000));
  if (op.tree_mask_mode != 0) return;
  const std::int64_t total = std::max<std::int64_t>(0, op.tree_mask.elements() / nodes - requests * nodes);
  std::vector<std::int64_t> cuts{0};
  for (std::int64_t b = 0; b + 1 < requests; ++b)
    cuts.push_back(static_cast<std::int64_t>(draw.below(b, static_cast<std::uint64_t>(total + 1))));
  std::sort(cuts.begin(), cuts.end());
  cuts.push_back(total);
  for (std::int64_t b = 0; b < requests; ++b) length[b] = cuts[static_cast<std::size_t>(b + 1)] - cuts[static_cast<std::size_t>(b)];
}

void make_inputs(Build& op, std::uint64_t seed) {
  make_beam(op, seed);
  make_selection(op, seed);
  make_lengths(op, seed);
}

void check(const Build& op) {
  if (op.packed() && op.draft_token_num > most_bits)
    throw Error(ErrorCode::bad_value, "", "draft_token_num",
                "is " + std::to_string(op.draft_token_num) + ", expected at most 32, the bits of a row, in mode 2");
  if (op.tree_mask.dtype() != (op.packed() ? u8 : boolean))
    throw Error(ErrorCode::bad_dtype, "", "tree_mask",
                "has dtype " + std::string(name(op.tree_mask.dtype())) + ", expected " + (op.packed() ? "u8" : "bool") + " in mode " +
                    std::to_string(op.tree_mask_mode));
  if (const std::int64_t elements = all_mask_elements(op); op.tree_mask.elements() < elements)
    throw Error(ErrorCode::bad_shape, "", "tree_mask",
                "has shape " + to_string(op.tree_mask.shape()) + ", expected [" + std::to_string(elements) +
                    "] or more for draft_token_num and verified_seq_len");
}

/// Parents of a request's nodes 1 to D - 1, found among its selected candidates.
class Parents {
 public:
  explicit Parents(const Build& op) : op_(op), order_(static_cast<std::size_t>(op.draft_token_num - 1)) {}

  /// Throws Error for a candidate that is none, for a parent that is not selected, and for nodes that are their own ancestors.
  void find(std::int64_t request, std::int32_t* parent) {
    const auto count = static_cast<std::int64_t>(order_.size());
    const std::int64_t* const selected = op_.selected_index.as<const std::int64_t>() + request * count;
    const std::int64_t width = op_.depth > 1 ? op_.parent_list.size(1) : 1;
    sort(selected);
    std::int64_t known_slot = 0;
    std::int32_t known_parent = 0;
    bool rising = true;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t candidate = selected[i], element = request * count + i;
      if (candidate < 0 || candidate >= op_.topk * width) fail(candidate, element, "expected 0 to " + std::to_string(op_.topk * width - 1));
      const std::int64_t slot = static_cast<std::uint32_t>(candidate) / static_cast<std::uint32_t>(op_.topk);
      if (slot != known_slot) {
        known_slot = slot;
        known_parent = slot == 0 ? 0 : node_of(op_.parent_list.as<const std::int64_t>()[request * width + slot], selected);
      }
      if (known_parent < 0) fail(candidate, element, "whose parent is not selected");
      parent[i + 1] = known_parent;
      rising = rising && known_parent <= i;
    }
    if (!rising) require_roots(request, parent);
  }

 private:
  [[noreturn]] static void fail(std::int64_t candidate, std::int64_t element, const std::string& why) {
    throw Error(ErrorCode::bad_value, "", "selected_index",
                "holds " + std::to_string(candidate) + " at element " + std::to_string(element) + ", " + why);
  }

  void sort(const std::int64_t* selected) {
    for (std::size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<std::int32_t>(i);
    if (std::is_sorted(selected, selected + order_.size())) return;
    std::stable_sort(order_.begin(), order_.end(), [&](std::int32_t a, std::int32_t b) { return selected[a] < selected[b]; });
  }

  /// The first node of this candidate; -1 if it is not selected.
  std::int32_t node_of(std::int64_t candidate, const std::int64_t* selected) const {
    const auto at =
        std::lower_bound(order_.begin(), order_.end(), candidate, [&](std::int32_t i, std::int64_t c) { return selected[i] < c; });
    return at != order_.end() && selected[*at] == candidate ? *at + 1 : -1;
  }

  void require_roots(std::int64_t request, const std::int32_t* parent) const {
    const auto count = static_cast<std::int64_t>(order_.size());
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t steps = 0;
      for (std::int32_t node = static_cast<std::int32_t>(i + 1); node != 0; node = parent[node])
        if (++steps > count)
          fail(op_.selected_index.as<const std::int64_t>()[request * count + i], request * count + i, "which is its own ancestor");
    }
  }

  const Build& op_;
  std::vector<std::int32_t> order_;
};

template <Rule rule>
void write_links(const Build& op, std::int64_t b, const std::int32_t* parent) {
  const std::int64_t nodes = op.draft_token_num, base = b * nodes;
  auto *index = op.retrive_index.as<std::int64_t>() + base, *child = op.retrive_next_token.as<std::int64_t>() + base,
       *sibling = op.retrive_next_sibling.as<std::int64_t>() + base;
  std::fill(child, child + nodes, -1);
  std::fill(sibling, sibling + nodes, -1);
  for (std::int64_t t = 0; t < nodes; ++t) index[t] = base + t;
  const auto link = [&](std::int64_t t) {
    std::int64_t& first = child[parent[t]];
    sibling[t] = first;
    first = t;
  };
  if (rule == Rule::siblings_from_the_last) {
    for (std::int64_t t = 1; t < nodes; ++t) link(t);
  } else {
    for (std::int64_t t = nodes; --t > 0;) link(t);
  }
}

/// Row t of the mask has `row`, zeros before; `mark(node)` sets the node's bit or element. Gives the depth.
template <Rule rule, class Mark>
std::int64_t mark_ancestors(std::int64_t t, const std::int32_t* parent, const Mark& mark) {
  std::int64_t depth = 0;
  for (std::int64_t node = t; node != 0; node = parent[node], ++depth)
    if (rule != Rule::itself_unseen || node != t) mark(node);
  mark(0);
  return depth + (rule == Rule::root_counts && t > 0 ? 1 : 0);
}

template <Rule rule>
void write_rows(const Build& op, std::int64_t b, std::int64_t mask_begin, const std::int32_t* parent) {
  const std::int64_t nodes = op.draft_token_num, length = op.verified_seq_len.as<const std::int64_t>()[b];
  auto* const positions = op.positions.as<std::int64_t>() + b * nodes;
  std::uint8_t* row = op.tree_mask.as<std::uint8_t>() + mask_begin;
  const std::int64_t before = op.tree_mask_mode == 0 ? length : 0, bytes = op.packed() ? packed_bytes(nodes) : before + nodes;
  for (std::int64_t t = 0; t < nodes; ++t, row += bytes) {
    if (op.packed()) {
      std::uint32_t word = 0;
      positions[t] = length + mark_ancestors<rule>(t, parent, [&](std::int64_t node) { word |= std::uint32_t{1} << node; });
      for (std::int64_t i = 0; i < bytes; ++i) row[i] = static_cast<std::uint8_t>(word >> 8 * i);
    } else {
      std::memset(row, 1, static_cast<std::size_t>(before));
      std::memset(row + before, 0, static_cast<std::size_t>(nodes));
      positions[t] = length + mark_ancestors<rule>(t, parent, [&](std::int64_t node) { row[before + node] = 1; });
      if (rule == Rule::root_sees_all && t == 0) std::memset(row + before, 1, static_cast<std::size_t>(nodes));
    }
  }
}

template <Rule rule>
void build(const Build& op) {
  const std::int64_t nodes = op.draft_token_num, requests = op.requests();
  std::vector<std::int32_t> parents(static_cast<std::size_t>(requests * nodes));
  Parents finder(op);
  for (std::int64_t b = 0; b < requests; ++b) finder.find(b, parents.data() + b * nodes);
  std::int64_t mask_begin = 0;
  for (std::int64_t b = 0; b < requests; ++b) {
    const std::int32_t* const parent = parents.data() + b * nodes;
    write_links<rule>(op, b, parent);
    write_rows<rule>(op, b, mask_begin, parent);
    mask_begin += mask_elements(op, lengths(op)[static_cast<std::size_t>(b)]);
  }
  std::memset(op.tree_mask.as<std::uint8_t>() + mask_begin, op.packed() ? 0 : 1,
              static_cast<std::size_t>(op.tree_mask.elements() - mask_begin));
}

void fast(const Build& op, const Exec&) {
  build<Rule::right>(op);
}

template <Rule rule>
void golden(const Build& op, const Exec&, Reference* reference) {
  build<rule>(op);
  record_exact(op.tree_mask, reference, "tree_mask");
  record_exact(op.positions, reference, "positions");
  record_exact(op.retrive_index, reference, "retrive_index");
  record_exact(op.retrive_next_token, reference, "retrive_next_token");
  record_exact(op.retrive_next_sibling, reference, "retrive_next_sibling");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_build_tree_kernel_efficient() {
  return define<ops::BuildTreeKernelEfficient>({
      .contract = R"(
Whole numbers. The outputs are what upstream's kernel leaves in buffers that its callers prepare: links of -1, a mask of true (modes 0
and 1; what lies before the root is not written) or of zeros (mode 2). A candidate that is selected twice is the first of its nodes to
its children. Here errors, where upstream warns, reads outside or never ends: a candidate that is none, a parent that is not selected, a
node that is its own ancestor, more than 32 nodes in mode 2.)",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::fast,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .mistakes = {{"siblings-from-the-last", "links begin with the last child instead of the first",
                    ops::golden<ops::Rule::siblings_from_the_last>},
                   {"itself-unseen", "a node does not see itself", ops::golden<ops::Rule::itself_unseen>},
                   {"root-counts", "depths are counted from 1", ops::golden<ops::Rule::root_counts>},
                   {"root-sees-all", "the root's row of the mask is not cleared: it sees every draft",
                    ops::golden<ops::Rule::root_sees_all>}},
      .customary = {{"*", CustomaryKind::close, 0, 0, "test/srt/test_build_eagle_tree.py"}},
      .cases = {"B=2 n=240 --attr topk=4 --attr depth=3 --attr draft_token_num=8 --attr tree_mask_mode=0",
                "B=3 n=9000 --attr topk=8 --attr depth=4 --attr draft_token_num=16 --attr tree_mask_mode=1",
                "B=2 n=2000 --attr topk=4 --attr depth=4 --attr draft_token_num=16 --attr tree_mask_mode=2 --dtype tree_mask=u8",
                "B=3 n=24 --attr topk=2 --attr depth=3 --attr draft_token_num=8 --attr tree_mask_mode=2 --dtype tree_mask=u8",
                "B=2 n=3000 --attr topk=4 --attr depth=3 --attr draft_token_num=20 --attr tree_mask_mode=2 --dtype tree_mask=u8",
                "B=5 n=1000 --attr topk=1 --attr depth=3 --attr draft_token_num=4 --attr tree_mask_mode=0",
                "B=2 n=600 --attr topk=8 --attr depth=1 --attr draft_token_num=5 --attr tree_mask_mode=1"},
      .bench_cases = {"B=64 n=262144 --attr topk=8 --attr depth=9 --attr draft_token_num=64 --attr tree_mask_mode=1",
                      "B=64 n=257024 --attr topk=1 --attr depth=3 --attr draft_token_num=4 --attr tree_mask_mode=0"},
  });
}
}  // namespace dodona
