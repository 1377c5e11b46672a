#include "ptx/special_registers.h"

#include <algorithm>

namespace dodona::ptx {
namespace {

struct Where {
  const Machine& m;
  std::uint32_t lane;
  std::uint64_t linear() const { return std::uint64_t{m.warp->index} * warp_lanes + lane; }
  Dim3 size() const { return m.launch().block; }
};

using Value = std::uint64_t (*)(const Where&);
struct Special {
  std::string_view name;
  int bytes;
  Value value;
};

std::uint64_t zero(const Where&) {
  return 0;
}
std::uint64_t one(const Where&) {
  return 1;
}

constexpr Special table[] = {
    {"%tid.x", 4, [](const Where& w) -> std::uint64_t { return w.linear() % w.size().x; }},
    {"%tid.y", 4, [](const Where& w) -> std::uint64_t { return w.linear() / w.size().x % w.size().y; }},
    {"%tid.z", 4, [](const Where& w) -> std::uint64_t { return w.linear() / w.size().x / w.size().y; }},
    {"%ntid.x", 4, [](const Where& w) -> std::uint64_t { return w.size().x; }},
    {"%ntid.y", 4, [](const Where& w) -> std::uint64_t { return w.size().y; }},
    {"%ntid.z", 4, [](const Where& w) -> std::uint64_t { return w.size().z; }},
    {"%ctaid.x", 4, [](const Where& w) -> std::uint64_t { return w.m.block_index().x; }},
    {"%ctaid.y", 4, [](const Where& w) -> std::uint64_t { return w.m.block_index().y; }},
    {"%ctaid.z", 4, [](const Where& w) -> std::uint64_t { return w.m.block_index().z; }},
    {"%nctaid.x", 4, [](const Where& w) -> std::uint64_t { return w.m.launch().grid.x; }},
    {"%nctaid.y", 4, [](const Where& w) -> std::uint64_t { return w.m.launch().grid.y; }},
    {"%nctaid.z", 4, [](const Where& w) -> std::uint64_t { return w.m.launch().grid.z; }},
    {"%laneid", 4, [](const Where& w) -> std::uint64_t { return w.lane; }},
    {"%warpid", 4, [](const Where& w) -> std::uint64_t { return w.m.warp->index; }},
    {"%nwarpid", 4, [](const Where&) -> std::uint64_t { return 64; }},
    {"%smid", 4, zero},
    {"%nsmid", 4, [](const Where&) -> std::uint64_t { return 132; }},
    {"%gridid", 8, zero},
    {"%lanemask_eq", 4, [](const Where& w) -> std::uint64_t { return 1u << w.lane; }},
    {"%lanemask_lt", 4, [](const Where& w) -> std::uint64_t { return (1u << w.lane) - 1; }},
    {"%lanemask_le", 4, [](const Where& w) -> std::uint64_t { return (2u << w.lane) - 1; }},
    {"%lanemask_gt", 4, [](const Where& w) -> std::uint64_t { return ~((2u << w.lane) - 1); }},
    {"%lanemask_ge", 4, [](const Where& w) -> std::uint64_t { return ~((1u << w.lane) - 1); }},
    {"%dynamic_smem_size", 4, [](const Where& w) -> std::uint64_t { return w.m.launch().dynamic_shared; }},
    {"%total_smem_size", 4, [](const Where& w) -> std::uint64_t { return w.m.launch().shared_bytes; }},
    {"%aggr_smem_size", 4, [](const Where& w) -> std::uint64_t { return w.m.launch().shared_bytes; }},
    {"%cluster_ctaid.x", 4, zero},
    {"%cluster_ctaid.y", 4, zero},
    {"%cluster_ctaid.z", 4, zero},
    {"%cluster_nctaid.x", 4, one},
    {"%cluster_nctaid.y", 4, one},
    {"%cluster_nctaid.z", 4, one},
    {"%cluster_ctarank", 4, zero},
    {"%cluster_nctarank", 4, one},
    {"%clusterid.x", 4, [](const Where& w) -> std::uint64_t { return w.m.block_index().x; }},
    {"%clusterid.y", 4, [](const Where& w) -> std::uint64_t { return w.m.block_index().y; }},
    {"%clusterid.z", 4, [](const Where& w) -> std::uint64_t { return w.m.block_index().z; }},
    {"%nclusterid.x", 4, [](const Where& w) -> std::uint64_t { return w.m.launch().grid.x; }},
    {"%nclusterid.y", 4, [](const Where& w) -> std::uint64_t { return w.m.launch().grid.y; }},
    {"%nclusterid.z", 4, [](const Where& w) -> std::uint64_t { return w.m.launch().grid.z; }},
    {"%is_explicit_cluster", 1, zero},
};

const Special* find(std::string_view name) {
  const auto found = std::find_if(std::begin(table), std::end(table), [&](const Special& s) { return s.name == name; });
  return found == std::end(table) ? nullptr : found;
}

}  // namespace

int special_bytes(std::string_view name) {
  const Special* const special = find(name);
  return special == nullptr ? 0 : special->bytes;
}

void fill_special(Machine& m, const SpecialRegister& s) {
  const Special& special = *find(s.name);
  for (std::uint32_t lane = 0; lane < warp_lanes; ++lane) {
    const std::uint64_t value = special.value({m, lane});
    if (special.bytes == 8) {
      m.wide(s.slot)[lane] = value;
    } else if (special.bytes == 4) {
      m.narrow(s.slot)[lane] = static_cast<std::uint32_t>(value);
    } else {
      m.predicate(s.slot) = value != 0 ? all_lanes : 0;
    }
  }
}

}  // namespace dodona::ptx
