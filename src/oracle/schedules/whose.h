// Which kernel made these numbers? Outputs held against every schedule of their op, bit by bit.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dodona/op.h"
#include "io/json.h"
#include "oracle/schedules/schedules.h"

namespace dodona::oracle {

/// How far the outputs of a schedule are from those in question.
struct Compared {
  Schedule schedule;
  std::int64_t elements = 0, differing = 0;
};

enum class WhoseAnswer {
  named,   ///< one schedule gives every bit, or several that inputs made for it do not tell apart, or that differ in fine attributes alone
  unsure,  ///< several that other inputs would tell apart; or not everything could be compared in time
  none,    ///< no schedule gives them. That accuses nobody
};
std::string_view name(WhoseAnswer answer);

struct Whose {
  std::string op;
  WhoseAnswer answer = WhoseAnswer::none;
  std::int64_t elements = 0;  ///< of the outputs; `compared` of them were compared with those that are named
  std::int64_t compared = 0;
  bool several_machines = false;
  /// What gives every bit that was compared. Schedules of one group also gave the same bits of inputs made to tell them apart: sums that
  /// cancel, wide exponents, edges; in the finest type that the op's outputs may have.
  std::vector<std::vector<Schedule>> found;
  std::vector<Compared> apart;   ///< how far groups of `found` are from the first of them, in outputs of other inputs
  std::vector<Compared> others;  ///< nearest first
  int tried = 0, left = 0;       ///< left: not tried, the time was up
};

struct WhoseOptions {
  Exec exec = {};
  double seconds = 60;
  std::function<void(std::size_t, std::size_t, const std::string&)> progress = {};
};

/// Throws Error: `unsupported` where the call has fewer than two schedules, and where `actual` are not its outputs (names, types, shapes).
Whose whose(const Op& op, const Arguments& inputs, const NamedTensors& actual, const WhoseOptions& options);

/// One line, for a verdict: `these are the bits of split_k=4`.
std::string line_of(const Whose& whose);
/// Several, for people.
std::string text_of(const Whose& whose);
io::Json to_json(const Whose& whose);

}  // namespace dodona::oracle
