// How an element was computed: a second run of the blocks that wrote it, with every number's origin beside it.
#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "dodona/error.h"
#include "dodona/ptx.h"
#include "ptx/copies.h"
#include "ptx/lanes.h"
#include "ptx/prepare.h"
#include "ptx/warpgroup.h"

namespace dodona::ptx {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

/// An operation, or what came from memory (no instruction: `text` says from where).
struct Node {
  std::string_view opcode;
  std::string text;
  std::vector<u32> of;
  int line = 0;
};

constexpr u32 unknown = 0;  ///< what depends on no memory: addresses, counters, constants
constexpr std::size_t most_nodes = 30'000'000;

/// Bytes of memory that one store wrote.
struct Cell {
  u32 node;
  u32 bytes;
};

class Tracer : public Observer {
 public:
  Tracer(const Prepared& p, u64 element, std::size_t bytes)
      : code_(*p.state.code), program_(*p.state.program), element_(element), bytes_(bytes) {
    nodes_.push_back({{}, "constant", {}, 0});
  }

  u32 root = unknown;
  bool found = false;
  Place place;

  void before(Machine& m, const Instruction& i) override {
    if (origins_.empty()) origins_.resize(m.warps());
    auto& file = origins_[m.warp->index];
    if (file.empty()) file.assign((code_.rows + 1) * warp_lanes, unknown);
    origin_ = file.data();
    if (nodes_.size() > most_nodes) throw Error(ErrorCode::unsupported, "", "trace", "the block does too much to be traced");
    switch (i.family) {
      case InstructionFamily::plain: return plain(m, i);
      case InstructionFamily::move: return moved(m, i);
      case InstructionFamily::load: return load(m, i);
      case InstructionFamily::store: return store(m, i);
      case InstructionFamily::copy: return copy(m, i);
      case InstructionFamily::shuffle: return shuffle(m, i);
      case InstructionFamily::parts: return parts(m, i);
      case InstructionFamily::whole: return whole(m, i);
      case InstructionFamily::matrices: return matrices(m, i);
      case InstructionFamily::product: return product(m, i);
      case InstructionFamily::warpgroup: return warpgroup(m, i);
      case InstructionFamily::atomic: return atomic(m, i);
      case InstructionFamily::bulk: return bulk(m, i);
      case InstructionFamily::branch: return;
      case InstructionFamily::other: return forget(m, i);
    }
  }
  /// What another block left in registers and in shared memory is nobody's.
  void begin_block() {
    origins_.clear();
    for (auto cell = cells_.begin(); cell != cells_.end();)
      cell = cell->first < device_address(0) || cell->first >= u64{1} << 60 ? cells_.erase(cell) : std::next(cell);
  }

  std::string expression(const TraceRequest& request) const {
    std::vector<std::pair<u32, int>> open{{root, 0}};
    std::map<u32, int> depths;
    while (!open.empty() && depths.size() < request.terms) {
      const auto [node, depth] = open.back();
      open.pop_back();
      const auto known = depths.find(node);
      if (known != depths.end()) continue;
      depths[node] = depth;
      if (request.depth > 0 && depth >= request.depth) continue;
      for (const u32 child : nodes_[node].of) open.emplace_back(child, depth + 1);
    }
    // Nodes are made after what they are made of: their numbers are an order.
    std::string text;
    for (const auto& [node, depth] : depths) {
      const Node& n = nodes_[node];
      if (n.opcode.empty()) continue;
      text += name_of(node) + " = " + std::string(n.opcode) + "(";
      for (std::size_t k = 0; k < n.of.size(); ++k) text += (k == 0 ? "" : ", ") + name_of(n.of[k]);
      text += ")  // line " + std::to_string(n.line) + "\n";
    }
    if (nodes_[root].opcode.empty()) text += name_of(root) + "\n";
    return text;
  }
  u64 size() const { return nodes_.size(); }

 private:
  u32& origin(Slot slot, int lane) { return origin_[slot * warp_lanes + static_cast<u32>(lane)]; }

  std::string name_of(u32 node) const {
    const Node& n = nodes_[node];
    return n.opcode.empty() ? n.text : "v" + std::to_string(node);
  }

  u32 add(Node node) {
    nodes_.push_back(std::move(node));
    return static_cast<u32>(nodes_.size() - 1);
  }
  std::string_view opcode_of(const Instruction& i) const {
    const std::string_view text = program_.texts[static_cast<std::size_t>(i.statement)].text;
    return text.substr(0, text.find(' '));
  }
  u32 constant(Machine& m, Slot slot, int lane, int bytes, std::string_view opcode) {
    char text[32];
    if (bytes == 8) {
      std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(m.wide(slot)[lane]));
    } else if (opcode.ends_with(".f32")) {
      std::snprintf(text, sizeof text, "%.9g", static_cast<double>(std::bit_cast<float>(m.narrow(slot)[lane])));
    } else {
      std::snprintf(text, sizeof text, "0x%x", m.narrow(slot)[lane]);
    }
    const auto [at, added] = constants_.emplace(text, 0);
    if (added) at->second = add({{}, text, {}, 0});
    return at->second;
  }

  void plain(Machine& m, const Instruction& i) {
    const std::string_view opcode = opcode_of(i);
    const bool compares = opcode.starts_with("setp") || i.slots[0] == no_slot;
    if (compares) return;
    const bool selects = opcode.starts_with("selp");
    for_lanes(m.mask, [&](int lane) {
      bool known = false;
      for (u32 k = 1; k <= i.sources && !(selects && k == 3); ++k) known = known || origin(i.slots[k], lane) != unknown;
      u32 node = unknown;
      if (selects) {
        node = origin(i.slots[(m.predicate(i.slots[3]) >> lane & 1u) != 0 ? 1 : 2], lane);
      } else if (known) {
        Node n{opcode, {}, {}, i.line};
        for (u32 k = 1; k <= i.sources; ++k) {
          const u32 of = origin(i.slots[k], lane);
          n.of.push_back(of != unknown ? of : constant(m, i.slots[k], lane, 4, opcode));
        }
        node = add(std::move(n));
      }
      origin(i.slots[0], lane) = node;
    });
  }
  /// What is not followed is what it is: a number of this instruction, made of its first operand.
  void forget(Machine& m, const Instruction& i) {
    // Sums of sparse products, the first of the list: an operation of unknown operands.
    for (u32 k = 0; k < i.list_count && k < i.registers; ++k)
      for_lanes(m.mask, [&](int lane) { origin(m.list(i)[k], lane) = add({opcode_of(i), {}, {}, i.line}); });
    if (i.slots[0] == no_slot || i.slots[0] == 0) return;
    for_lanes(m.mask, [&](int lane) {
      const u32 of = i.slots[1] == no_slot ? unknown : origin(i.slots[1], lane);
      origin(i.slots[0], lane) = of == unknown ? unknown : add({opcode_of(i), {}, {of}, i.line});
    });
  }
  void moved(Machine& m, const Instruction& i) {
    for_lanes(m.mask, [&](int lane) { origin(i.slots[0], lane) = origin(i.slots[1], lane); });
  }
  void parts(Machine& m, const Instruction& i) {
    const Slot* const to = m.list(i);
    static constexpr std::string_view names[] = {"part0", "part1", "part2", "part3", "part4", "part5", "part6", "part7"};
    for_lanes(m.mask, [&](int lane) {
      const u32 of = origin(i.slots[0], lane);
      for (u32 k = 0; k < i.list_count; ++k)
        if (to[k] != no_slot) origin(to[k], lane) = of == unknown ? unknown : add({names[k], {}, {of}, i.line});
    });
  }
  void whole(Machine& m, const Instruction& i) {
    const Slot* const from = m.list(i);
    for_lanes(m.mask, [&](int lane) {
      Node n{"together", {}, {}, i.line};
      bool known = false;
      for (u32 k = 0; k < i.list_count; ++k) {
        const u32 of = origin(from[k], lane);
        known = known || of != unknown;
        n.of.push_back(of != unknown ? of : constant(m, from[k], lane, i.width, {}));
      }
      origin(i.slots[0], lane) = known ? add(std::move(n)) : unknown;
    });
  }
  void shuffle(Machine& m, const Instruction& i) {
    // The instruction itself, on origins in place of numbers.
    std::array<std::byte, row_bytes> value{}, result{};
    std::memcpy(value.data(), m.row(i.slots[1]), row_bytes);
    std::memcpy(result.data(), m.row(i.slots[0]), row_bytes);
    std::memcpy(m.row(i.slots[1]), &origin(i.slots[1], 0), row_bytes);
    i.run(m, i);
    for_lanes(m.mask, [&](int lane) { origin(i.slots[0], lane) = m.narrow(i.slots[0])[lane]; });
    std::memcpy(m.row(i.slots[0]), result.data(), row_bytes);
    std::memcpy(m.row(i.slots[1]), value.data(), row_bytes);
  }

  // ---- memory

  static u64 generic(Space space, u64 address, int lane, const Machine& m) {
    if (space == Space::shared) return shared_window + (address & 0xFFFFFFFFu);
    if (space == Space::local || address >> 32 == 2)  // each thread's own
      return (u64{1} << 60) + ((m.warp->index * u64{warp_lanes} + static_cast<u64>(lane)) << 32) + (address & 0xFFFFFFFFu);
    return address;
  }
  u32 from_memory(u64 address, std::size_t bytes) {
    const u64 argument = (address >> 36) - 1;
    char text[64];
    if (address >> 32 == 4) {
      std::snprintf(text, sizeof text, "parameter[0x%llx:%zu]", static_cast<unsigned long long>(address & 0xFFFFFFFFu), bytes);
    } else if (address >= device_address(0) && address < u64{1} << 60) {
      std::snprintf(text, sizeof text, "args[%llu][0x%llx:%zu]", static_cast<unsigned long long>(argument),
                    static_cast<unsigned long long>(address - device_address(argument)), bytes);
    } else {
      std::snprintf(text, sizeof text, "memory[0x%llx:%zu]", static_cast<unsigned long long>(address), bytes);
    }
    const auto [at, added] = leaves_.emplace(text, 0);
    if (added) at->second = add({{}, text, {}, 0});
    return at->second;
  }
  /// What lies there: a store's number, a piece of one, or several together.
  u32 read(u64 address, std::size_t bytes, int line) {
    constexpr u64 widest = 16;
    const auto after = cells_.upper_bound(address);
    if (after != cells_.begin()) {
      const auto cell = std::prev(after);
      const u64 offset = address - cell->first;
      if (offset < widest && offset + bytes <= cell->second.bytes) {
        if (offset == 0 && bytes == cell->second.bytes) return cell->second.node;
        if (const auto copied = copied_.find(cell->second.node); copied != copied_.end())
          return from_memory(copied->second + offset, bytes);
        return cell->second.node == unknown ? unknown : add({piece(offset, bytes), {}, {cell->second.node}, line});
      }
    }
    Node n{"together", {}, {}, line};
    for (auto cell = cells_.lower_bound(address); cell != cells_.end() && cell->first < address + bytes; ++cell)
      if (cell->second.node != unknown) n.of.push_back(cell->second.node);
    if (!n.of.empty()) return add(std::move(n));
    return address >= device_address(0) || address >> 32 == 4 ? from_memory(address, bytes) : unknown;
  }
  std::string_view piece(u64 offset, std::size_t bytes) {
    return *pieces_.emplace("bytes" + std::to_string(offset) + "to" + std::to_string(offset + bytes)).first;
  }
  void write(u64 address, std::size_t bytes, u32 node) {
    for (auto cell = cells_.lower_bound(address); cell != cells_.end() && cell->first < address + bytes;) cell = cells_.erase(cell);
    cells_[address] = {node, static_cast<u32>(bytes)};
  }

  void load(Machine& m, const Instruction& i) {
    const Slot* const to = m.list(i);
    const auto space = static_cast<Space>(i.sources);
    for_lanes(m.mask, [&](int lane) {
      const u64 address = generic(space, m.wide(i.slots[0])[lane] + i.immediate, lane, m);
      for (u32 k = 0; k < i.list_count; ++k) fresh_[k] = read(address + k * i.width, i.width, i.line);
      for (u32 k = 0; k < i.list_count; ++k) origin(to[k], lane) = fresh_[k];
    });
  }
  void store(Machine& m, const Instruction& i) {
    const Slot* const from = m.list(i);
    const auto space = static_cast<Space>(i.sources);
    for_lanes(m.mask, [&](int lane) {
      const u64 address = generic(space, m.wide(i.slots[0])[lane] + i.immediate, lane, m);
      for (u32 k = 0; k < i.list_count; ++k) {
        u32 node = origin(from[k], lane);
        const u64 at = address + k * i.width;
        if (holds_element(at, i.width)) {
          if (node == unknown) node = constant(m, from[k], lane, i.registers, {});
          take(m, i, lane, at, i.width, node);
        }
        write(at, i.width, node);
      }
    });
  }
  bool holds_element(u64 address, std::size_t bytes) const { return address <= element_ && element_ + bytes_ <= address + bytes; }
  /// This is what the element is made of, so far.
  void take(Machine& m, const Instruction& i, int lane, u64 address, std::size_t bytes, u32 node) {
    root = address == element_ && bytes_ == bytes ? node : add({piece(element_ - address, bytes_), {}, {node}, i.line});
    found = true;
    place.line = i.line;
    place.instruction = program_.texts[static_cast<std::size_t>(i.statement)].text;
    place.source = program_.texts[static_cast<std::size_t>(i.statement)].source;
    place.lane = lane;
    place.warp = static_cast<int>(m.warp->index);
    place.block = m.block_index();
  }

  /// The number that was there, then the operands.
  void atomic(Machine& m, const Instruction& i) {
    const Slot* const slots = m.list(i);
    const u32 count = i.registers;
    const auto space = static_cast<Space>(i.sources);
    for_lanes(m.mask, [&](int lane) {
      const u64 address = generic(space, m.wide(i.slots[0])[lane] + i.immediate, lane, m);
      for (u32 k = 0; k < count; ++k) {
        const u64 at = address + k * i.width;
        const u32 old = read(at, i.width, i.line);
        Node n{opcode_of(i), {}, {old != unknown ? old : from_memory(at, i.width)}, i.line};
        for (u32 operand = 1; operand <= (i.target != 0 ? 2U : 1U); ++operand) {
          const Slot slot = slots[operand * count + k];
          const u32 of = origin(slot, lane);
          n.of.push_back(of != unknown ? of : constant(m, slot, lane, i.width == 8 ? 8 : 4, opcode_of(i)));
        }
        const u32 node = add(std::move(n));
        if (slots[k] != no_slot) origin(slots[k], lane) = old;
        if (holds_element(at, i.width)) take(m, i, lane, at, i.width, node);
        write(at, i.width, node);
      }
    });
  }
  void bulk(Machine& m, const Instruction& i) {
    const bool sums = opcode_of(i).find(".reduce.") != std::string_view::npos;
    for_lanes(m.mask, [&](int lane) {
      for_copied(m, i, lane, [&](const CopiedBytes& c) {
        if (!c.exists) {
          if (c.to >> 32 == shared_window >> 32) write(c.to, c.bytes, unknown);
          return;
        }
        // In the pieces in which it was written, should it have been.
        const u32 step = sums ? i.width : c.from >> 32 == shared_window >> 32 && c.bytes == 16 ? width_at(c.from) : c.bytes;
        for (u32 b = 0; b < c.bytes; b += step) {
          u32 node = read(c.from + b, step, i.line);
          if (sums) {
            const u32 old = read(c.to + b, step, i.line);
            node = add({opcode_of(i), {}, {old != unknown ? old : from_memory(c.to + b, step), node}, i.line});
          } else if (c.from >= device_address(0) && cells_.count(c.from + b) == 0) {
            copied_[node] = c.from + b;
          }
          if (holds_element(c.to + b, step)) take(m, i, lane, c.to + b, step, node);
          write(c.to + b, step, node);
        }
      });
    });
  }
  /// How wide the number is that lies there, if one does, and others of its kind behind it.
  u32 width_at(u64 address) const {
    const auto cell = cells_.find(address);
    return cell != cells_.end() && 16 % cell->second.bytes == 0 ? cell->second.bytes : 16;
  }

  /// The sum, then its row and its column.
  void warpgroup(Machine& m, const Instruction& i) {
    WarpgroupProduct p;
    if (!describe(m, i, p)) return forget(m, i);
    const auto line_of = [&](const std::vector<u64>& addresses, std::string_view name) {
      Node n{name, {}, {}, i.line};
      for (std::size_t k = 0; k < addresses.size(); ++k) {
        // Neighbours in memory are read together, up to a word.
        std::size_t count = 1;
        while ((count + 1) * static_cast<std::size_t>(p.bytes) <= 4 && k + count < addresses.size() &&
               addresses[k + count] == addresses[k] + count * static_cast<std::size_t>(p.bytes))
          ++count;
        n.of.push_back(read(shared_window + addresses[k], count * static_cast<std::size_t>(p.bytes), i.line));
        k += count - 1;
      }
      return add(std::move(n));
    };
    std::array<u32, 16> rows{};
    for (int row = 0; row < 16; ++row) {
      if (!p.a_in_registers) {
        rows[static_cast<std::size_t>(row)] = line_of(p.a_line(m, i, row), "row");
        continue;
      }
      Node n{"row", {}, {}, i.line};
      for (int r = row / 8; r < 4; r += 2)
        for (int t = 0; t < 4; ++t) {
          const int lane = row % 8 * 4 + t;
          const u32 of = origin(p.a[r], lane);
          n.of.push_back(of != unknown ? of : constant(m, p.a[r], lane, 4, {}));
        }
      rows[static_cast<std::size_t>(row)] = add(std::move(n));
    }
    std::vector<u32> columns;
    columns.reserve(static_cast<std::size_t>(p.columns));
    for (int column = 0; column < p.columns; ++column) columns.push_back(line_of(p.b_line(m, i, column), "column"));
    const std::string_view opcode = opcode_of(i);
    const int registers = p.half_sums ? p.columns / 4 : p.columns / 2;
    for (int r = 0; r < registers; ++r)
      for (int lane = 0; lane < warp_lanes; ++lane) {
        // Sums of a register: one of fp32, two neighbours of fp16.
        const int row = lane / 4 + 8 * (p.half_sums ? r & 1 : r >> 1 & 1);
        const int column = 8 * (p.half_sums ? r >> 1 : r >> 2) + 2 * (lane % 4) + (p.half_sums ? 0 : r & 1);
        Node n{opcode, {}, {}, i.line};
        u32& sum = origin(p.sums[r], lane);
        if (p.adds) n.of.push_back(sum != unknown ? sum : constant(m, p.sums[r], lane, 4, p.half_sums ? "" : "x.f32"));
        n.of.push_back(rows[static_cast<std::size_t>(row)]);
        n.of.push_back(columns[static_cast<std::size_t>(column)]);
        if (p.half_sums) n.of.push_back(columns[static_cast<std::size_t>(column) + 1]);
        sum = add(std::move(n));
      }
  }
  void copy(Machine& m, const Instruction& i) {
    for_lanes(m.mask, [&](int lane) {
      const u64 from = m.wide(i.slots[1])[lane] + i.flags, to = generic(Space::shared, m.wide(i.slots[0])[lane] + i.immediate, lane, m);
      const u32 node = from_memory(from, i.width);
      copied_[node] = from;
      write(to, i.width, node);
    });
  }
  void matrices(Machine& m, const Instruction& i) {
    const Slot* const to = m.list(i);
    std::array<u64, warp_lanes> rows{};
    for (std::size_t lane = 0; lane < warp_lanes; ++lane) rows[lane] = generic(Space::shared, m.wide(i.slots[0])[lane] + i.immediate, 0, m);
    for (u32 j = 0; j < i.list_count; ++j)
      for (u32 lane = 0; lane < warp_lanes; ++lane) {
        const u32 g = lane / 4, c = 2 * (lane % 4);
        u32& node = origin(to[j], static_cast<int>(lane));
        if (i.flags == 0) {
          node = read(rows[8 * j + g] + 2 * c, 4, i.line);
        } else {
          const u32 low = read(rows[8 * j + c] + 2 * g, 2, i.line), high = read(rows[8 * j + c + 1] + 2 * g, 2, i.line);
          node = low == unknown || high == unknown ? unknown : add({"together", {}, {low, high}, i.line});
        }
      }
  }
  /// The sum, then the words of a row and those of a column.
  void product(Machine& m, const Instruction& i) {
    const std::string_view opcode = opcode_of(i);
    const int a_count = static_cast<int>(i.flags >> 8 & 15), b_count = static_cast<int>(i.flags >> 12 & 15);
    const int sums = (i.flags >> 24 & 1) != 0 ? 2 : 4;
    const Slot *const d = m.list(i), *const a = d + sums, *const b = a + a_count, *const c = b + b_count;
    std::vector<u32> made(static_cast<std::size_t>(sums) * warp_lanes);
    for (int r = 0; r < sums; ++r)
      for (int lane = 0; lane < warp_lanes; ++lane) {
        Node n{opcode, {}, {}, i.line};
        const auto take = [&](Slot slot, int of_lane) {
          const u32 of = origin(slot, of_lane);
          n.of.push_back(of != unknown ? of : constant(m, slot, of_lane, 4, "x.f32"));
        };
        take(c[r], lane);
        const int down = sums == 4 ? r >> 1 : r, column = 2 * (lane % 4) + (sums == 4 ? r & 1 : 0);
        for (int word = down; word < a_count; word += 2)
          for (int t = 0; t < 4; ++t) take(a[word], lane / 4 * 4 + t);
        for (int word = 0; word < b_count; ++word)
          for (int t = 0; t < 4; ++t) take(b[word], column * 4 + t);
        made[static_cast<std::size_t>(r * warp_lanes + lane)] = add(std::move(n));
      }
    for (int r = 0; r < sums; ++r)
      for (int lane = 0; lane < warp_lanes; ++lane) origin(d[r], lane) = made[static_cast<std::size_t>(r * warp_lanes + lane)];
  }

  const Code& code_;
  const Program& program_;
  u64 element_;
  std::size_t bytes_;
  std::vector<Node> nodes_;
  std::vector<std::vector<u32>> origins_;  ///< by warp: of each lane of each row
  u32* origin_ = nullptr;
  std::map<u64, Cell> cells_;
  std::unordered_map<u32, u64> copied_;  ///< nodes of several bytes that were copied as they are: from where
  std::unordered_map<std::string, u32> constants_, leaves_;
  std::set<std::string> pieces_;
  std::array<u32, 8> fresh_{};
};

}  // namespace

Trace Module::trace(std::string_view name, const Launch& launch, const TraceRequest& request) const {
  const auto fail = [&](const std::string& what) { throw Error(ErrorCode::bad_value, "", "trace", what); };
  if (request.argument >= launch.arguments.size() || launch.arguments[request.argument].bytes < request.offset + request.bytes)
    fail("the element lies outside of the arguments' memory");
  if (request.bytes != 1 && request.bytes != 2 && request.bytes != 4 && request.bytes != 8) fail("an element has 1, 2, 4 or 8 bytes");
  Launch watched = launch;
  watched.race = Check::off;
  watched.uninitialised = Check::on;
  watched.arguments[request.argument].uninitialised = true;
  std::vector<std::vector<std::byte>> before;
  for (const Argument& a : launch.arguments) {
    const auto* const data = static_cast<const std::byte*>(a.data);
    before.emplace_back(data, a.kind == Argument::Kind::buffer || a.kind == Argument::Kind::memory ? data + a.bytes : data);
  }
  const std::shared_ptr<const Program> program = reading_of(program_, launch);

  // Which blocks write it? Of sums over blocks each is a part.
  Prepared p = prepare(*program, name, watched);
  std::set<std::uint64_t> writers;
  {
    Machine machine(p.state);
    for (std::uint64_t block = p.first; block < p.last; ++block) {
      std::uint8_t& written = p.written[request.argument][request.offset];
      written = 0;
      machine.run_block(block);
      if (written != 0) writers.insert(block);
    }
  }
  if (writers.empty()) fail("no block writes this element");

  // Again from the same memory, with origins in the blocks that matter.
  for (std::size_t k = 0; k < before.size(); ++k)
    if (!before[k].empty()) std::memcpy(launch.arguments[k].data, before[k].data(), before[k].size());
  Tracer tracer(p, device_address(request.argument) + request.offset, request.bytes);
  Machine machine(p.state);
  for (std::uint64_t block = p.first; block < p.last; ++block) {
    const bool matters = writers.count(block) > 0;
    if (matters) tracer.begin_block();
    machine.observer = matters ? &tracer : nullptr;
    machine.run_block(block);
  }
  if (!tracer.found) fail("the element was written by something other than a store");
  Trace trace;
  trace.expression = tracer.expression(request);
  trace.place = tracer.place;
  trace.nodes = tracer.size();
  return trace;
}

}  // namespace dodona::ptx
