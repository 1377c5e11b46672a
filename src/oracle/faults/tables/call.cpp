// Faults in the attributes of a call, and in the call as a whole. The op is computed anew with them.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "core/shape_expr.h"

#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

// ---- attributes

/// What differs between recipes may differ by less than the contract leaves open.
bool flag(Site s) {
  return std::holds_alternative<bool>(s.value) && !s.attr->recipe;
}
bool choice(Site s) {
  if (std::holds_alternative<bool>(s.value)) return s.attr->recipe;
  return std::holds_alternative<std::string>(s.value) && s.attr->choices.size() >= 2;
}
bool number(Site s) {
  return std::holds_alternative<double>(s.value) && std::isfinite(std::get<double>(s.value));
}
bool other_than_zero(Site s) {
  return number(s) && std::get<double>(s.value) != 0;
}
bool epsilon(Site s) {
  return number(s) && s.name.find("eps") != std::string::npos;
}
bool factor(Site s) {
  return other_than_zero(s) && !epsilon(s);
}
bool softmax_scale(Site s) {
  return factor(s) && s.name.find("scale") != std::string::npos;
}
/// Of the scores, not of the output.
bool score_scale(Site s) {
  return softmax_scale(s) && s.name != "bmm2_scale";
}
/// Not the number of a schedule, which says nothing of what is computed.
bool count(Site s) {
  return std::holds_alternative<std::int64_t>(s.value) && !s.attr->recipe;
}
bool even_count(Site s) {
  return count(s) && std::get<std::int64_t>(s.value) >= 2;
}

double number_of(Site s) {
  return std::get<double>(s.value);
}
std::int64_t count_of(Site s) {
  return std::get<std::int64_t>(s.value);
}

template <class T>
Values just(T value) {
  Values values;
  values.emplace_back(value);
  return values;
}

Values flipped(Site s) {
  return just(!std::get<bool>(s.value));
}
Values other_choices(Site s) {
  if (std::holds_alternative<bool>(s.value)) return {false, true};
  return {s.attr->choices.begin(), s.attr->choices.end()};
}
Values none(Site) {
  return just(0.0);
}
Values one(Site) {
  return just(1.0);
}
Values tenfold(Site s) {
  return just(number_of(s) * 10);
}
Values twice(Site s) {
  return just(number_of(s) * number_of(s));
}
Values inverse(Site s) {
  return just(1 / number_of(s));
}
/// The square of (0.1 ln 40 + 1), by which YaRN with DeepSeek's factor of 40 multiplies the softmax scale.
constexpr double yarn_mscale_squared = 1.8738542070926265;

Values without_yarn(Site s) {
  return just(number_of(s) / yarn_mscale_squared);
}
Values with_yarn_twice(Site s) {
  return just(number_of(s) * yarn_mscale_squared);
}
/// What is known as another mistake is not offered again.
Values of_other_widths(Site s) {
  Values values = just(number_of(s) * std::sqrt(192.0 / 576.0));
  for (const double width : {64.0, 128.0, 192.0, 512.0, 576.0}) {
    const double by = 1 / std::sqrt(width) / number_of(s);
    if (std::fabs(by * yarn_mscale_squared - 1) > 1e-3 && std::fabs(by / yarn_mscale_squared - 1) > 1e-3)
      values.emplace_back(1 / std::sqrt(width));
  }
  return values;
}
/// The likeliest first: normal data can hardly tell them apart.
Values usual_epsilons(Site) {
  Values values;
  for (const double usual : {1e-6, 1e-5, 1e-8, 1e-12}) values.emplace_back(usual);
  return values;
}
Values one_less(Site s) {
  return just(count_of(s) - 1);
}
Values one_greater(Site s) {
  return just(count_of(s) + 1);
}
/// What other counts of the call have.
Values other_counts(Site s) {
  Values values;
  for (const AttrSpec& spec : s.call.op.schema().attrs) {
    const AttrValue* const given = s.call.inputs.find_attr(spec.name);
    const AttrValue value = given != nullptr ? *given : spec.default_value;
    const auto* const number = std::get_if<std::int64_t>(&value);
    if (number == nullptr || spec.recipe || spec.name == s.name || *number < 1 || std::llabs(*number - count_of(s)) < 2) continue;
    if (std::none_of(values.begin(), values.end(), [&](const AttrValue& v) { return std::get<std::int64_t>(v) == *number; }))
      values.emplace_back(*number);
  }
  return values;
}
Values half(Site s) {
  return just(count_of(s) / 2);
}
/// What stands where a number was not handed on.
Values zero_or_one(Site) {
  return {std::int64_t{0}, std::int64_t{1}};
}

constexpr Fault in_attribute(std::string_view id, std::string_view summary, Severity severity, bool (*applies)(Site),
                             Values (*variants)(Site)) {
  return {id, summary, attribute, severity, applies, nullptr, nullptr, variants};
}

/// What happens to come to the same as a likelier one.
constexpr Fault unlikely(Fault fault) {
  fault.unlikely = true;
  return fault;
}

constexpr std::array attribute_table{
    in_attribute("other-recipe", "the rounding points or orders of another upstream", fine, choice, other_choices),
    in_attribute("flag-flipped", "a flag is taken for its opposite: pairing, renormalization, scaling on the output", gross, flag, flipped),
    in_attribute("other-epsilon", "the epsilon of another model", fine, epsilon, usual_epsilons),
    in_attribute("constant-dropped", "a constant counts as zero", fine, other_than_zero, none),
    in_attribute("yarn-scale-missing", "the square of YaRN's mscale, (0.1 ln 40 + 1)^2 = 1.874, is missing in the softmax scale", fine,
                 score_scale, without_yarn),
    in_attribute("yarn-scale-twice", "the square of YaRN's mscale, (0.1 ln 40 + 1)^2 = 1.874, is in the softmax scale twice", fine,
                 score_scale, with_yarn_twice),
    in_attribute("factor-left-out", "a factor counts as one", fine, factor, one),
    in_attribute("constant-twice", "a factor is applied twice", fine, other_than_zero, twice),
    in_attribute("factor-inverted", "a factor divides where it should multiply", fine, factor, inverse),
    in_attribute("constant-of-other-width", "a softmax scale made from another number of columns, such as 576 in place of 192", fine,
                 softmax_scale, of_other_widths),
    in_attribute("count-not-handed-on", "a number is not handed on: 0, or 1, stands for it", fine, count, zero_or_one),
    unlikely(in_attribute("count-one-less", "a count is one too small", fine, count, one_less)),
    unlikely(in_attribute("count-one-more", "a count is one too large", fine, count, one_greater)),
    in_attribute("constant-tenfold", "a constant is ten times too large", fine, other_than_zero, tenfold),
    unlikely(in_attribute("count-of-another", "a count is taken for another one of the call", fine, count, other_counts)),
    unlikely(in_attribute("count-halved", "a count is half of what it should be", fine, even_count, half)),
};

// ---- the call as a whole

/// What a dialect chooses otherwise than the call does.
std::vector<std::pair<std::string, AttrValue>> choices_of(Site s, std::string_view dialect) {
  std::vector<std::pair<std::string, AttrValue>> choices;
  for (const AttrSpec& spec : s.call.op.schema().attrs) {
    if (!spec.recipe) continue;
    AttrValue value = spec.default_value;
    for (const auto& [other, its] : spec.dialect_values)
      if (other == dialect) value = its;
    const AttrValue* now = s.call.inputs.find_attr(spec.name);
    if (to_string(value) != to_string(now != nullptr ? *now : spec.default_value)) choices.emplace_back(spec.name, value);
  }
  return choices;
}
/// Those that differ in more than one choice; a single one is other-recipe.
Values other_dialects(Site s) {
  Values found;
  for (const std::string_view dialect : dialects())
    if (choices_of(s, dialect).size() >= 2) found.emplace_back(std::string(dialect));
  return found;
}
void by_dialect(Site s, Arguments& inputs) {
  for (const auto& [name, value] : choices_of(s, std::get<std::string>(*s.taken))) inputs.set_attr(name, value);
}

/// Pairs `a,b` of arguments that could be taken for one another.
Values twins(const std::vector<std::pair<std::string, const Tensor*>>& tensors) {
  Values found;
  for (std::size_t a = 0; a < tensors.size(); ++a)
    for (std::size_t b = a + 1; b < tensors.size(); ++b)
      if (tensors[a].second->dtype() == tensors[b].second->dtype() && tensors[a].second->shape() == tensors[b].second->shape())
        found.emplace_back(tensors[a].first + "," + tensors[b].first);
  return found;
}
Values twin_inputs(Site s) {
  std::vector<std::pair<std::string, const Tensor*>> tensors;
  for (const TensorSpec& spec : s.call.op.schema().tensors)
    if (const Tensor* tensor = s.call.inputs.find(spec.name);
        spec.direction == Direction::in && tensor != nullptr && tensor->defined() && tensor->elements() > 0)
      tensors.emplace_back(spec.name, tensor);
  return twins(tensors);
}
Values twin_outputs(Site s) {
  std::vector<std::pair<std::string, const Tensor*>> tensors;
  for (const auto& [name, tensor] : s.call.golden.outputs)
    if (tensor.elements() > 0 && s.call.op.schema().find_tensor(name)->view_of.empty()) tensors.emplace_back(name, &tensor);
  return twins(tensors);
}
std::pair<std::string, std::string> pair_of(Site s) {
  const auto& text = std::get<std::string>(*s.taken);
  const std::size_t comma = text.find(',');
  return {text.substr(0, comma), text.substr(comma + 1)};
}
void exchange_inputs(Site s, Arguments& inputs) {
  const auto [a, b] = pair_of(s);
  const Tensor keep = *inputs.find(a);
  inputs.set(a, *inputs.find(b));
  inputs.set(b, keep);
}
void exchange_outputs(Site s, NamedTensors& outputs, bool) {
  const auto [a, b] = pair_of(s);
  const auto called = [&](const std::string& name) {
    return std::find_if(outputs.begin(), outputs.end(), [&](const auto& entry) { return entry.first == name; });
  };
  std::swap(called(a)->second, called(b)->second);
}

bool is_logarithm(const TensorSpec& spec) {
  return spec.role == Role::lse_base_2 || spec.role == Role::lse_base_e;
}
Tensor scaled(const Tensor& tensor, double by) {
  Tensor result = tensor.clone();
  each(result, [&](double x) { return x * by; });
  return result;
}
bool reads_and_writes_logarithms(Site s) {
  bool reads = false, writes = false;
  for (const TensorSpec& spec : s.call.op.schema().tensors)
    if (is_logarithm(spec)) (spec.direction == Direction::out ? writes : reads) = true;
  return reads && writes;
}
void logarithms_read(Site s, Arguments& inputs) {
  for (const TensorSpec& spec : s.call.op.schema().tensors)
    if (const Tensor* tensor = inputs.find(spec.name); tensor != nullptr && is_logarithm(spec) && spec.direction != Direction::out)
      inputs.set(spec.name, scaled(*tensor, other_base(spec.role)));
}
void logarithms_written(Site s, NamedTensors& outputs, bool back) {
  for (auto& [name, tensor] : outputs)
    if (const TensorSpec& spec = *s.call.op.schema().find_tensor(name); is_logarithm(spec))
      tensor = scaled(tensor, back ? other_base(spec.role) : 1 / other_base(spec.role));
}

/// Faults of one scale that a kernel makes with all of its scales alike.
constexpr std::array with_every_scale{
    "scale-ignored",          "scale-inverted",          "scale-applied-twice", "scale-power-of-two", "scale-cut-to-power-of-two",
    "scales-read-row-by-row", "scales-read-as-swizzled", "scales-transposed",   "scale-off-by-one",   "scale-of-the-first",
    "scale-rows-off-by-one",  "scale-rows-one-behind",   "scale-narrowed",      "scale-doubled"};
std::vector<Placed> scales_struck(Site s, std::string_view id) {
  const auto faults = input_faults();
  const auto found = std::find_if(faults.begin(), faults.end(), [&](const Fault& fault) { return fault.id == id; });
  return placements(*found, s.call);
}
Values faults_of_every_scale(Site s) {
  Values found;
  for (const char* id : with_every_scale)
    if (scales_struck(s, id).size() >= 2) found.emplace_back(std::string(id));
  return found;
}
void strike_every_scale(Site s, Arguments& inputs) {
  for (const Placed& placed : scales_struck(s, std::get<std::string>(*s.taken)))
    inputs.set(placed.site.name, *inputs_with(placed).find(placed.site.name));
}

std::string every_scale_in_words(Site s) {
  const Placed first = scales_struck(s, std::get<std::string>(*s.taken)).front();
  return "every scale: " + std::string(first.fault->summary);
}

/// Which dimension of a scale goes along K: the one whose symbols no output has. -1 for none. And its symbols, as the schema writes them.
std::string alternative_text(const SymbolNames& names, const std::vector<int>& symbols) {
  std::string text;
  for (const int symbol : symbols) text += names.name(symbol) + " ";
  return text;
}
struct Summed {
  int dimension = -1;
  std::string symbols = {};
};
Summed summed_dimension(Site s, const TensorSpec& spec) {
  SymbolNames names;
  const ShapeExpr shape = ShapeExpr::parse(spec.shape, names);
  std::string outputs = " ";
  for (const TensorSpec& other : s.call.op.schema().tensors)
    if (other.direction != Direction::in) outputs += other.shape + " ";
  for (const auto& alternative : shape.alternatives())
    for (std::size_t d = 0; d < alternative.dims.size(); ++d) {
      const auto symbols = alternative.dims[d].symbols();
      if (!symbols.empty() &&
          std::all_of(symbols.begin(), symbols.end(), [&](int symbol) { return outputs.find(names.name(symbol)) == std::string::npos; }))
        return {static_cast<int>(d), alternative_text(names, symbols)};
    }
  return {};
}
bool scale_of_groups(const TensorSpec& spec, const Tensor* tensor) {
  return spec.role == Role::scale && spec.direction == Direction::in && tensor != nullptr && tensor->defined() && tensor->rank() >= 2 &&
         is_real(tensor->dtype());
}
struct Grouped {
  std::string name;
  int dimension;
};
/// The scales along K, and what has a row for each of their groups too: zero points.
std::vector<Grouped> grouped_inputs(Site s) {
  std::vector<Grouped> found;
  std::string symbols;
  std::int64_t extent = 0;
  for (const TensorSpec& spec : s.call.op.schema().tensors)
    if (const Tensor* const tensor = s.call.inputs.find(spec.name); scale_of_groups(spec, tensor))
      if (const Summed summed = summed_dimension(s, spec); summed.dimension >= 0 && summed.dimension < tensor->rank()) {
        found.push_back({spec.name, summed.dimension});
        symbols = summed.symbols;
        extent = tensor->size(summed.dimension);
      }
  if (found.empty()) return found;
  for (const TensorSpec& spec : s.call.op.schema().tensors) {
    const Tensor* const tensor = s.call.inputs.find(spec.name);
    if (spec.role == Role::scale || spec.direction != Direction::in || tensor == nullptr || !tensor->defined() || tensor->rank() < 2)
      continue;
    if (const Summed summed = summed_dimension(s, spec);
        summed.symbols == symbols && summed.dimension < tensor->rank() && tensor->size(summed.dimension) == extent)
      found.push_back({spec.name, summed.dimension});
  }
  return found;
}
/// `2`: groups of scales along K have the first one's of two; `0`: the second half those of the first; `2,qzeros`: of this input alone.
Values coarse_groups(Site s) {
  const std::vector<Grouped> all = grouped_inputs(s);
  if (all.empty()) return {};
  const TensorSpec& first = *s.call.op.schema().find_tensor(all.front().name);
  const std::int64_t extent = s.call.inputs.find(first.name)->size(all.front().dimension);
  if (extent < 2 || in_tiles(first.storage.scales ? first.storage.scales->order : ScaleOrder::linear)) return {};
  std::vector<std::int64_t> groups{0, extent};
  for (const std::int64_t group : {2, 4, 8})
    if (group < extent) groups.push_back(group);
  Values values;
  for (const std::int64_t group : groups) values.emplace_back(std::to_string(group));
  if (all.size() >= 2)
    for (const Grouped& one : all)
      for (const std::int64_t group : groups) values.emplace_back(std::to_string(group) + "," + one.name);
  return values;
}
struct Coarser {
  std::int64_t group;
  std::string alone;
};
Coarser coarser_of(Site s) {
  const auto& text = std::get<std::string>(*s.taken);
  const std::size_t comma = text.find(',');
  return {std::stoll(text), comma == std::string::npos ? "" : text.substr(comma + 1)};
}
std::string coarser_in_words(Site s) {
  const Coarser coarser = coarser_of(s);
  const std::vector<Grouped> all = grouped_inputs(s);
  const std::int64_t extent = s.call.inputs.find(all.front().name)->size(all.front().dimension);
  std::string what = coarser.alone.empty() ? "scales" : coarser.alone, names;
  for (const Grouped& one : all) names += (names.empty() ? "" : ", ") + one.name;
  const bool more = coarser.alone.empty() && std::any_of(all.begin(), all.end(), [&](const Grouped& one) {
                      return s.call.op.schema().find_tensor(one.name)->role != Role::scale;
                    });
  if (more) what = names;
  if (coarser.group == 0) return what + ": those of the first half of K are used for the second half too";
  if (coarser.group == extent) return what + ": those of the first group are used for all of K, where there are " + std::to_string(extent);
  return what + ": of every " + std::to_string(coarser.group) + " groups along K the first one's are used for all";
}
void repeat_scales(Site s, Arguments& inputs) {
  const auto [group, alone] = coarser_of(s);
  for (const auto& [name, d] : grouped_inputs(s)) {
    if (!alone.empty() && name != alone) continue;
    const Tensor original = *inputs.find(name), changed = make_strided(original.dtype(), original.shape(), original.strides());
    const std::int64_t extent = original.size(d);
    for (std::int64_t i = 0; i < original.elements(); ++i) {
      Dims at = index_of(i, original.shape());
      const std::int64_t half = (extent + 1) / 2;
      at[d] = group > 0 ? at[d] / group * group : at[d] % half;
      std::int64_t from = 0;
      for (int k = 0; k < at.rank(); ++k) from = from * original.size(k) + at[k];
      quant::set_bits(changed, i, quant::get_bits(original, from));
    }
    inputs.set(name, changed);
  }
}

/// `2 1`: groups are counted in halves, and each begins one of them earlier than it does.
Values shifted_groups(Site s) {
  if (grouped_inputs(s).empty()) return {};
  return {std::string("2 1"), std::string("2 -1"), std::string("4 1"), std::string("4 -1"), std::string("4 2"), std::string("4 -2")};
}
/// Of an op that has as many groups as it is given scales; others refuse the call.
void shift_groups(Site s, Arguments& inputs) {
  const std::int64_t parts = std::stoll(word(s)), shift = std::stoll(rest_of(word(s)));
  for (const auto& [name, d] : grouped_inputs(s)) {
    const Tensor original = *inputs.find(name);
    Dims shape = original.shape();
    const std::int64_t groups = shape[d];
    shape[d] = groups * parts;
    const Tensor changed(original.dtype(), shape);
    for (std::int64_t i = 0; i < changed.elements(); ++i) {
      Dims at = index_of(i, shape);
      at[d] = std::clamp<std::int64_t>(at[d] + shift, 0, groups * parts - 1) / parts;
      std::int64_t from = 0;
      for (int k = 0; k < at.rank(); ++k) from = from * original.size(k) + at[k];
      quant::set_bits(changed, i, quant::get_bits(original, from));
    }
    inputs.set(name, changed);
  }
}
std::string shifted_groups_in_words(Site s) {
  const std::int64_t parts = std::stoll(word(s)), shift = std::stoll(rest_of(word(s)));
  std::string names;
  for (const Grouped& one : grouped_inputs(s)) names += (names.empty() ? "" : ", ") + one.name;
  const std::string by = parts == 2 * std::abs(shift) ? "half a group" : "a quarter of a group";
  return names + ": groups along K are taken to begin " + by + (shift > 0 ? " before" : " behind") +
         " where they do, as those of a part of K that begins within one";
}

/// Ops with the same tensors: one activation, one router for another.
bool same_tensors(const Op& a, const Op& b) {
  const auto &left = a.schema().tensors, &right = b.schema().tensors;
  return left.size() == right.size() && std::equal(left.begin(), left.end(), right.begin(), [](const TensorSpec& x, const TensorSpec& y) {
           return x.name == y.name && x.shape == y.shape && x.direction == y.direction && x.role == y.role;
         });
}
Values siblings(Site s) {
  Values found;
  for (const auto& op : registry().all())
    if (op.get() != &s.call.op && same_tensors(*op, s.call.op)) found.emplace_back(std::string(op->name()));
  return found;
}
const Op& sibling_of(Site s) {
  return registry().at(std::get<std::string>(*s.taken));
}
void drop_other_attributes(Site s, Arguments& inputs) {
  const OpSchema& schema = sibling_of(s).schema();
  std::erase_if(inputs.attrs, [&](const auto& attr) { return schema.find_attr(attr.first) == nullptr; });
}
std::string sibling_in_words(Site s) {
  return "computed is " + std::get<std::string>(*s.taken);
}

/// Takes what a row needs from rows far away.
constexpr Fault far(Fault fault) {
  fault.far = true;
  return fault;
}

constexpr std::array call_table{
    Fault{"other-dialect", "every rounding point and order as that upstream has it", call, fine, always, nullptr, nullptr, other_dialects,
          by_dialect},
    Fault{"logarithms-in-other-base", "all log-sum-exps are read and written in the other base", call, gross, reads_and_writes_logarithms,
          nullptr, nullptr, nullptr, logarithms_read, logarithms_written},
    far(Fault{"every-scale", "all scales are taken so", call, fine, always, nullptr, nullptr, faults_of_every_scale, strike_every_scale,
              nullptr, every_scale_in_words}),
    Fault{"scales-of-coarser-groups",
          "the first scale of so many along K is used for all of them; 0: those of the first half for the second half too", call, gross,
          always, nullptr, nullptr, coarse_groups, repeat_scales, nullptr, coarser_in_words},
    Fault{"groups-begin-elsewhere", "groups of scales along K are taken to begin a part of one earlier, or later", call, gross, always,
          nullptr, nullptr, shifted_groups, shift_groups, nullptr, shifted_groups_in_words},
    Fault{"sibling-op", "another op of the same arguments is computed", call, gross, always, nullptr, nullptr, siblings,
          drop_other_attributes, nullptr, sibling_in_words, sibling_of},
    Fault{"inputs-exchanged", "the inputs are taken for one another", call, gross, always, nullptr, nullptr, twin_inputs, exchange_inputs},
    Fault{"outputs-exchanged", "the outputs are written to each other's place", call, gross, always, nullptr, nullptr, twin_outputs,
          nullptr, exchange_outputs},
};

}  // namespace

std::span<const Fault> attribute_faults() {
  return attribute_table;
}

std::span<const Fault> call_faults() {
  return call_table;
}

}  // namespace dodona::oracle
