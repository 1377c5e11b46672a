// Tests that every op gets for nothing are swept over the inventory: the lines to run, and buffers that notice what they should not see.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/call.h"
#include "core/case_line.h"
#include "core/storage.h"
#include "dodona/error.h"
#include "dodona/op.h"
#include "oracle/cases/case_file.h"
#include "oracle/cases/generate.h"
#include "oracle/judge/judge.h"
#include "quant/swizzle.h"

namespace dodona::sweep {

inline CaseLine parse(const Op& op, const std::string& rest) {
  return parse_case_line(std::string(op.name()) + " " + rest);
}

/// The op's own case lines.
inline std::vector<CaseLine> own_lines(const Op& op) {
  std::vector<CaseLine> lines;
  for (const std::string& rest : op.cases()) lines.push_back(parse(op, rest));
  return lines;
}

/// Sizes that a symbol may take, in units of what it must be a multiple of.
inline std::vector<std::int64_t> sizes_for(const Op& op, const std::string& symbol, const std::vector<std::int64_t>& units) {
  std::vector<std::int64_t> sizes;
  for (const SymbolSpec& spec : op.schema().symbols) {
    if (spec.name != symbol) continue;
    if (!spec.choices.empty()) return {};
    for (const std::int64_t unit : units) {
      // Of what comes in whole vectors 16 end as 2 do, and 31 as 15.
      if (spec.multiple_of >= 16 && (unit == 16 || unit == 31)) continue;
      if (unit * spec.multiple_of >= spec.minimum && unit * spec.multiple_of <= spec.maximum) sizes.push_back(unit * spec.multiple_of);
    }
    return sizes;
  }
  return units;
}

/// A kernel of fixed, large sizes: sweeping others costs seconds a line, so its edges are its own test's business.
inline bool too_large_to_sweep(const CaseLine& line) {
  const Op& op = registry().at(line.op);
  for (const PlannedTensor& planned : plan(op.info(), op.schema(), line, attributes_of(line, op.schema())))
    if (element_count(planned.shape) > std::int64_t{1} << 20) return true;
  return false;
}

/// The size that is room for scales whose rows are placed by other inputs: any value that is large enough will do.
inline std::string room_of(const Op& op) {
  for (const TensorSpec& spec : op.schema().tensors)
    if (spec.direction == Direction::in && spec.storage.scales && spec.storage.scales->by_expert)
      return spec.shape.substr(0, spec.shape.find(' '));
  return {};
}

/// The op's own lines, with every size in turn set to each of `units`; each line once.
inline std::vector<CaseLine> size_lines(const Op& op, const std::vector<std::int64_t>& units) {
  constexpr std::int64_t room_for_all = 64 * 128;
  const std::string room = room_of(op);
  std::vector<CaseLine> lines;
  std::set<std::string> seen;
  for (const CaseLine& base : own_lines(op)) {
    if (too_large_to_sweep(base)) continue;
    for (const auto& [symbol, value] : base.symbols) {
      if (symbol == room) continue;
      for (const std::int64_t size : sizes_for(op, symbol, units)) {
        CaseLine line = base;
        line.symbols[symbol] = size;
        // Sweeps look at edges, not at bulk: the other sizes shrink to a few rows.
        for (auto& [other, count] : line.symbols)
          if (other != symbol && other != room && sizes_for(op, other, {1}).size() == 1 && count > 256 && count % 64 == 0) {
            const std::int64_t unit = std::max<std::int64_t>(64, sizes_for(op, other, {1}).front());
            count = std::max(unit, count / 32 / unit * unit);
          }
        if (!room.empty()) line.symbols[room] = room_for_all;
        if (seen.insert(to_string(line)).second) lines.push_back(line);
      }
    }
  }
  return lines;
}

/// Lines of changed sizes, some of which an op may refuse: counted, and a refusal must be by a rule that the op declares.
class Tried {
 public:
  explicit Tried(const Op& op) : op_(op) {}

  /// The arguments of a line, or nothing when the op refuses that combination of sizes.
  std::optional<Arguments> arguments_of(const CaseLine& line) {
    ++lines_;
    try {
      Arguments arguments = oracle::generate(line);
      Arguments probe = oracle::runnable(op_, arguments);
      op_.prepare(probe);
      return arguments;
    } catch (const Error& error) {
      EXPECT_TRUE(is_declared(error)) << to_string(line) << " is refused by no rule of the op: " << error.what();
      ++refused_[error.argument()];
      return std::nullopt;
    }
  }

  /// How many were refused by which argument; an op that refuses nearly everything is swept by nothing.
  void expect_most_ran(double least_share) {
    if (lines_ == 0) return;
    int refused = 0;
    std::string by;
    for (const auto& [argument, count] : refused_) {
      refused += count;
      by += (by.empty() ? "" : ", ") + argument + " " + std::to_string(count);
    }
    if (refused > 0) std::cout << op_.name() << " refuses " << refused << " of " << lines_ << " lines: " << by << "\n";
    EXPECT_GE(lines_ - refused, std::max(1.0, least_share * lines_)) << op_.name() << " refuses " << refused << " of " << lines_;
  }

 private:
  bool is_declared(const Error& error) const {
    const bool by_rule = error.code() == ErrorCode::bad_shape || error.code() == ErrorCode::bad_value;
    const OpSchema& schema = op_.schema();
    return by_rule && error.op() == op_.name() &&
           (schema.find_tensor(error.argument()) != nullptr || schema.find_attr(error.argument()) != nullptr ||
            schema.compiled->symbols.find(error.argument()) >= 0);
  }

  const Op& op_;
  int lines_ = 0;
  std::map<std::string, int> refused_;
};

/// The arguments of a line, or nothing when the op refuses it: for tests that other sweeps run the same lines of.
inline std::optional<Arguments> arguments_of(const Op& op, const CaseLine& line) {
  return Tried(op).arguments_of(line);
}

inline Exec exec_of(Mode mode, int threads = 1, Isa isa = available_isas().back()) {
  Exec exec;
  exec.mode = mode;
  exec.threads = threads;
  exec.isa = isa;
  return exec;
}

/// Outputs of a run on copies of the in-place arguments.
inline oracle::NamedTensors run(const Op& op, const Arguments& inputs, const Exec& exec) {
  Arguments arguments = oracle::runnable(op, inputs);
  op.run(arguments, exec);
  return oracle::outputs_of(op, arguments);
}

/// Whether an input is padded at places that its shape alone says: not where they depend on what other inputs hold.
inline bool has_padding(const TensorSpec& spec) {
  const auto& scales = spec.storage.scales;
  return spec.direction == Direction::in && spec.padded && scales && !scales->by_expert && scales->order == ScaleOrder::swizzled_128x4;
}

/// Where that padding lies, of scales in tiles: true for what no row and group of the scaled tensor owns.
inline std::vector<bool> padding_of(const Op& op, const TensorSpec& spec, const Arguments& arguments) {
  const auto& scales = spec.storage.scales;
  const Tensor& stored = *arguments.find(spec.name);
  const Tensor scaled = as_codes(*arguments.find(scales->of), op.schema().find_tensor(scales->of)->storage);
  const std::int64_t rows = scaled.size(-2), groups = scaled.size(-1) / scales->columns, size = stored.size(-2) * stored.size(-1);
  std::vector<bool> padding(static_cast<std::size_t>(stored.elements()), true);
  for (std::int64_t matrix = 0; matrix < stored.elements(); matrix += size)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t g = 0; g < groups; ++g)
        padding[static_cast<std::size_t>(matrix + quant::scale_offset(quant::ScaleLayout::swizzled_128x4, r, g, groups))] = false;
  return padding;
}

inline std::vector<std::byte> bytes_of(const Tensor& tensor) {
  const Tensor dense = tensor.clone();
  const auto* begin = static_cast<const std::byte*>(dense.data());
  return {begin, begin + bytes_for(dense.dtype(), dense.elements())};
}

/// A writable copy of a tensor (same layout) between guard zones filled with a pattern.
class Guarded {
 public:
  static constexpr std::int64_t guard = 256;

  Guarded(const Tensor& like, bool copy_values, std::byte fill) {
    extent_ = like.extent_bytes();
    memory_.resize(static_cast<std::size_t>(extent_ + 2 * guard + 64), canary);
    auto address = reinterpret_cast<std::uintptr_t>(memory_.data()) + guard;
    address = (address + 63) / 64 * 64;
    begin_ = reinterpret_cast<std::byte*>(address);
    std::fill(begin_, begin_ + extent_, fill);
    tensor_ = Tensor(begin_, like.dtype(), like.shape(), like.strides());
    if (copy_values) copy(like, tensor_);
    before_.assign(begin_, begin_ + extent_);
  }
  const Tensor& tensor() const { return tensor_; }
  bool guards_intact() const {
    for (const std::byte* p = memory_.data(); p < memory_.data() + memory_.size(); ++p)
      if ((p < begin_ || p >= begin_ + extent_) && *p != canary) return false;
    return true;
  }
  bool unchanged() const { return std::equal(before_.begin(), before_.end(), begin_); }

 private:
  static constexpr std::byte canary{0xC5};
  std::vector<std::byte> memory_, before_;
  std::byte* begin_ = nullptr;
  std::int64_t extent_ = 0;
  Tensor tensor_;
};

/// One test per op of the inventory.
class EveryOp : public testing::TestWithParam<std::string> {
 protected:
  const Op& op() const { return registry().at(GetParam()); }
};

/// The ops that a rule applies to: a test runs for those alone, so that none is skipped.
template <class Applies>
std::vector<std::string> names_of_ops(Applies&& applies) {
  std::vector<std::string> names;
  for (const auto& op : registry().all())
    if (applies(*op)) names.emplace_back(op->name());
  return names;
}

inline std::string name_of_instance(const testing::TestParamInfo<std::string>& instance) {
  return instance.param;
}

}  // namespace dodona::sweep
