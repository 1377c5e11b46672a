// Faults of the call as a whole, in rotations and heads: which columns are rotated, which heads belong together, one mistake made with
// every operand. The op is computed anew.
#include <array>
#include <limits>
#include <optional>
#include <string>

#include "core/storage.h"
#include "oracle/cases/window.h"
#include "oracle/faults/tables/composed.h"
#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

// ---- the whole head rotated

struct PartlyRotated {
  std::string table;
  Tensor angles;  ///< [positions, rotated columns]
  std::int64_t head;
};
std::optional<PartlyRotated> partly_rotated(Site s) {
  if (s.call.op.info().category != Category::rope) return std::nullopt;
  const AttrValue* const given = s.call.inputs.find_attr("head_size");
  const auto* const head = given != nullptr ? std::get_if<std::int64_t>(given) : nullptr;
  for (const TensorSpec& spec : s.call.op.schema().tensors)
    if (const Tensor* const tensor = s.call.inputs.find(spec.name); spec.role == Role::cos_sin && tensor != nullptr &&
                                                                    tensor->rank() == 2 && head != nullptr && *head % 2 == 0 &&
                                                                    *head > tensor->size(1) && tensor->size(1) >= 2)
      return PartlyRotated{spec.name, *tensor, *head};
  return std::nullopt;
}
Values ways_to_more_angles(Site s) {
  if (!partly_rotated(s)) return {};
  return {std::string("angles repeated"), std::string("rows read on")};
}
void rotate_whole_head(Site s, Arguments& inputs) {
  const PartlyRotated call = *partly_rotated(s);
  const std::int64_t positions = call.angles.size(0), width = call.angles.size(1), half = call.head / 2;
  const Tensor wide(call.angles.dtype(), {positions, call.head});
  const bool repeated = word(s) == "angles repeated";
  for (std::int64_t p = 0; p < positions; ++p)
    for (std::int64_t c = 0; c < call.head; ++c) {
      const std::int64_t from = repeated ? p * width + c % half % (width / 2) + c / half * (width / 2) : p * width + c;
      quant::set_bits(wide, p * call.head + c, quant::get_bits(call.angles, from % call.angles.elements()));
    }
  inputs.set(call.table, wide);
}
std::string whole_head_in_words(Site s) {
  const PartlyRotated call = *partly_rotated(s);
  return "the whole head of " + std::to_string(call.head) + " columns is rotated, not its first " + std::to_string(call.angles.size(1)) +
         (word(s) == "angles repeated" ? ": with the same angles once more" : ": with what lies behind a row of " + call.table);
}

// ---- pairs half a head apart

/// Columns i and i + half the rotated ones are a pair; where the rotated ones are at most half of the head, others may lie half a head
/// away.
Values wide_pairs(Site s) {
  const auto call = partly_rotated(s);
  const AttrValue* const given = s.call.inputs.find_attr("is_neox");
  const AttrSpec* const spec = s.call.op.schema().find_attr("is_neox");
  if (!call || spec == nullptr || !std::get<bool>(given != nullptr ? *given : spec->default_value) || call->angles.size(1) > call->head / 2)
    return {};
  return {std::string("half a head")};
}
/// The partners of a pair and what lies half a head behind its first change places.
Tensor with_pairs_moved(const PartlyRotated& call, const Tensor& heads) {
  const Tensor moved = heads.clone();
  const std::int64_t half = call.angles.size(1) / 2, away = call.head / 2;
  gather(heads, moved, [&](std::int64_t i) {
    const std::int64_t c = i % call.head;
    return c >= half && c < 2 * half ? i + away - half : c >= away && c < away + half ? i - away + half : i;
  });
  return moved;
}
bool rotated_heads(Site s, const std::string& name) {
  const TensorSpec* const spec = s.call.op.schema().find_tensor(name);
  return spec->direction == Direction::inout && spec->role == Role::values;
}
void pairs_moved(Site s, Arguments& inputs) {
  const PartlyRotated call = *partly_rotated(s);
  for (const TensorSpec& spec : s.call.op.schema().tensors)
    if (const Tensor* const tensor = s.call.inputs.find(spec.name); tensor != nullptr && tensor->defined() && rotated_heads(s, spec.name))
      inputs.set(spec.name, with_pairs_moved(call, *tensor));
}
void pairs_moved_back(Site s, NamedTensors& outputs, bool) {
  const PartlyRotated call = *partly_rotated(s);
  for (auto& [name, tensor] : outputs)
    if (rotated_heads(s, name)) tensor = with_pairs_moved(call, tensor);
}
std::string wide_pairs_in_words(Site s) {
  const PartlyRotated call = *partly_rotated(s);
  return "pairs lie half a head apart: column i is rotated with i + " + std::to_string(call.head / 2) + ", not with i + " +
         std::to_string(call.angles.size(1) / 2);
}

// ---- heads of keys

struct SharedHeads {
  std::string symbol;  ///< of the keys' heads
  std::int64_t of_keys, of_queries;
};
/// Heads of keys and values that several heads of the output share: an input's second dimension, whose symbol no output has.
std::optional<SharedHeads> shared_heads(Site s) {
  if (s.call.op.info().category != Category::attention || s.call.golden.outputs.empty()) return std::nullopt;
  const auto& [output, out] = s.call.golden.outputs.front();
  const auto of_output = dims_of(s.call.op.schema().find_tensor(output)->shape, out.rank());
  if (out.rank() != 3 || of_output.size() != 3) return std::nullopt;
  for (const TensorSpec& spec : s.call.op.schema().tensors) {
    const Tensor* const tensor = s.call.inputs.find(spec.name);
    if (spec.direction != Direction::in || spec.role != Role::values || tensor == nullptr || !tensor->defined() || tensor->rank() != 3)
      continue;
    const auto dims = dims_of(spec.shape, 3);
    if (dims.size() == 3 && dims[1] != of_output[1] && tensor->size(1) >= 2 && out.size(1) > tensor->size(1) &&
        out.size(1) % tensor->size(1) == 0)
      return SharedHeads{dims[1], tensor->size(1), out.size(1)};
  }
  return std::nullopt;
}
bool has_shared_heads(const TensorSpec& spec, const Tensor* tensor, const SharedHeads& heads) {
  if (spec.direction != Direction::in || tensor == nullptr || !tensor->defined() || tensor->rank() != 3) return false;
  const auto dims = dims_of(spec.shape, 3);
  return dims.size() == 3 && dims[1] == heads.symbol;
}
Values ways_to_share(Site s) {
  if (!shared_heads(s)) return {};
  return {std::string("in turn"), std::string("over the groups"), std::string("the first")};
}
/// `its own`; `in turn of k_buffer`: of one operand alone.
Values rarer_ways_to_share(Site s) {
  const auto heads = shared_heads(s);
  if (!heads) return {};
  Values values{std::string("its own")};
  std::vector<std::string> operands;
  for (const TensorSpec& spec : s.call.op.schema().tensors)
    if (has_shared_heads(spec, s.call.inputs.find(spec.name), *heads)) operands.push_back(spec.name);
  for (const std::string& operand : operands)
    for (const char* const how : {"in turn", "over the groups", "the first", "its own"})
      if (operands.size() >= 2) values.emplace_back(how + (" of " + operand));
  return values;
}
/// How heads are shared, and by which operand alone; none: by all.
struct Sharing {
  std::string how, operand;

  explicit Sharing(const std::string& text) : how(text.substr(0, text.find(" of "))) {
    if (how != text) operand = text.substr(how.size() + 4);
  }
};
void share_heads_otherwise(Site s, Arguments& inputs) {
  const SharedHeads heads = *shared_heads(s);
  const Sharing sharing(word(s));
  const auto head_of = [&](std::int64_t query, const std::string& how) {
    if (how == "the first") return std::int64_t{0};
    if (how == "its own") return query;
    if (how == "in turn") return query % heads.of_keys;
    return how == "over the groups" ? std::min(query / heads.of_keys, heads.of_keys - 1) : query / (heads.of_queries / heads.of_keys);
  };
  for (const TensorSpec& spec : s.call.op.schema().tensors) {
    const Tensor* const tensor = inputs.find(spec.name);
    if (!has_shared_heads(spec, tensor, heads)) continue;
    const std::string how = sharing.operand.empty() || sharing.operand == spec.name ? sharing.how : "right";
    const Tensor original = *tensor, wide(original.dtype(), {original.size(0), heads.of_queries, original.size(2)});
    const std::int64_t width = original.size(2);
    for (std::int64_t i = 0; i < wide.elements(); ++i) {
      const std::int64_t row = i / width / heads.of_queries, head = head_of(i / width % heads.of_queries, how),
                         from = (row * heads.of_keys + head) * width + i % width;
      // Nobody knows what lies behind the last token.
      if (from < original.elements()) {
        quant::set_bits(wide, i, quant::get_bits(original, from));
      } else {
        quant::set(wide, i, std::numeric_limits<double>::quiet_NaN());
      }
    }
    inputs.set(spec.name, wide);
  }
}
std::string shared_in_words(Site s) {
  const SharedHeads heads = *shared_heads(s);
  const Sharing sharing(word(s));
  const std::string right = ", not h / " + std::to_string(heads.of_queries / heads.of_keys), count = std::to_string(heads.of_keys),
                    of = sharing.operand.empty() ? "" : sharing.operand + " (the others are right): ";
  if (sharing.how == "the first") return of + "all query heads have the first key head" + right;
  if (sharing.how == "over the groups")
    return of + "query head h has key head h / " + count + ", the number of key heads" + right + ", how many share one";
  if (sharing.how == "its own")
    return of + "a query head has the key head of its own number, h" + right +
           ": as if there were as many heads of keys, those of tokens behind";
  return of + "heads of keys are dealt out in turn: query head h has key head h mod " + count + right;
}

// ---- one mistake with every operand

/// Faults of one operand that a kernel makes with all of them alike.
constexpr std::array with_every_operand{
    "pairs-for-halves", "halves-for-pairs",    "operand-halves-exchanged", "operand-neighbours-exchanged", "read-as-packed",
    "operand-narrowed", "operand-cut-to-tf32", "dimensions-exchanged",     "other-order-of-dimensions"};
std::vector<Placed> operands_of(Site s, std::string_view id) {
  for (const auto faults : {input_faults(), address_faults(), row_faults()})
    for (const Fault& fault : faults)
      if (fault.id == id) return placements(fault, s.call);
  return {};
}
std::string variant_of(const Placed& placed) {
  return std::string(placed.fault->id) + (placed.site.taken ? "=" + to_string(*placed.site.taken) : "");
}
/// `id`, or `id=variant`.
std::vector<Placed> operands_struck(Site s, const std::string& text) {
  std::vector<Placed> struck;
  for (Placed& placed : operands_of(s, text.substr(0, text.find('='))))
    if (variant_of(placed) == text) struck.push_back(std::move(placed));
  return struck;
}
Values faults_of_every_operand(Site s) {
  Values found;
  for (const char* id : with_every_operand) {
    std::vector<std::string> seen;
    for (const Placed& placed : operands_of(s, id))
      if (const std::string text = variant_of(placed); std::find(seen.begin(), seen.end(), text) == seen.end()) {
        seen.push_back(text);
        if (operands_struck(s, text).size() >= 2) found.emplace_back(text);
      }
  }
  return found;
}
void strike_every_operand(Site s, Arguments& inputs) {
  for (const Placed& placed : operands_struck(s, word(s))) inputs.set(placed.site.name, *inputs_with(placed).find(placed.site.name));
}
std::string every_operand_in_words(Site s) {
  const std::vector<Placed> all = operands_struck(s, word(s));
  std::string names;
  for (const Placed& placed : all) names += (names.empty() ? "" : ", ") + placed.site.name;
  const std::string first = all.front().text(), own = all.front().site.name + ": ";
  return names + ": " + (first.starts_with(own) ? first.substr(own.size()) : std::string(all.front().fault->summary));
}

constexpr std::array table{
    Fault{.id = "whole-head-rotated",
          .summary = "all columns of a head are rotated, not the first ones alone",
          .strikes = call,
          .severity = gross,
          .applies = always,
          .variants = ways_to_more_angles,
          .recall = rotate_whole_head,
          .words = whole_head_in_words},
    Fault{.id = "pairs-half-a-head-apart",
          .summary = "partners of a rotation lie half a head apart where the rotated part is narrower",
          .strikes = call,
          .severity = gross,
          .applies = always,
          .variants = wide_pairs,
          .recall = pairs_moved,
          .rewrite = pairs_moved_back,
          .words = wide_pairs_in_words},
    Fault{.id = "heads-in-turn",
          .summary = "query heads share the heads of keys in turn, or in other groups",
          .strikes = call,
          .severity = gross,
          .applies = always,
          .variants = ways_to_share,
          .recall = share_heads_otherwise,
          .words = shared_in_words},
    Fault{.id = "every-operand",
          .summary = "all operands are taken so",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = faults_of_every_operand,
          .recall = strike_every_operand,
          .words = every_operand_in_words},
};

/// For where no mistake that has a name of its own reproduces the outputs.
constexpr std::array composed{
    Fault{.id = "heads-of-one-operand",
          .summary = "query heads have other heads of keys, or of values alone, than theirs",
          .strikes = call,
          .severity = gross,
          .applies = always,
          .variants = rarer_ways_to_share,
          .recall = share_heads_otherwise,
          .words = shared_in_words,
          .reads_beyond = true},
};

}  // namespace

std::span<const Fault> head_faults() {
  return table;
}
std::span<const Fault> shared_head_faults() {
  return composed;
}

}  // namespace dodona::oracle
