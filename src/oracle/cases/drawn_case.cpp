#include "oracle/cases/drawn_case.h"

#include <algorithm>
#include <string>

#include "core/fixed_math.h"
#include "core/random.h"
#include "core/special.h"
#include "dodona/error.h"
#include "oracle/cases/case_file.h"
#include "oracle/cases/generate.h"

namespace dodona::oracle {
namespace {

constexpr int attempts = 30;          // at a combination that the op takes
constexpr int plain_attempts = 20;    // without the recipe of the op's own line
constexpr int attempts_at_sizes = 6;  // then the op's own sizes, with other seeds

/// Numbers in the order in which they are asked for.
class Draws {
 public:
  Draws(std::uint64_t seed, const Op& op, int index, int attempt)
      : stream_(seed, "alarms/" + std::string(op.name()) + "/" + std::to_string(index) + "/" + std::to_string(attempt)) {}
  std::uint64_t below(std::uint64_t n) { return integer_below(stream_, next_++, n); }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  double unit() { return static_cast<double>(uniform(stream_, 2 * (std::uint64_t{1} << 20) + next_++)); }

 private:
  Stream stream_;
  std::uint64_t next_ = 0;
};

/// Small sizes are as likely as large ones: uniform in the logarithm, up to that of the op's own line.
std::int64_t drawn_size(Draws& draws, const OpSchema& schema, const std::string& symbol, std::int64_t own) {
  const auto spec = std::find_if(schema.symbols.begin(), schema.symbols.end(), [&](const SymbolSpec& s) { return s.name == symbol; });
  const SymbolSpec rules = spec != schema.symbols.end() ? *spec : SymbolSpec{};
  if (!rules.choices.empty()) return rules.choices[draws.below(rules.choices.size())];
  const double units = static_cast<double>(own) / static_cast<double>(rules.multiple_of);
  const auto count = static_cast<std::int64_t>(fixed::exp(draws.unit() * fixed::log(units + 1.0)));
  return std::clamp(std::max<std::int64_t>(1, count) * rules.multiple_of, std::max<std::int64_t>(rules.minimum, 1), rules.maximum);
}

/// A size where kernels take another path: powers of two and their neighbours, the op's own size and those next to it.
std::int64_t edge_size(Draws& draws, const OpSchema& schema, const std::string& symbol, std::int64_t own) {
  const auto spec = std::find_if(schema.symbols.begin(), schema.symbols.end(), [&](const SymbolSpec& s) { return s.name == symbol; });
  const SymbolSpec rules = spec != schema.symbols.end() ? *spec : SymbolSpec{};
  if (!rules.choices.empty()) return rules.choices[draws.below(rules.choices.size())];
  std::int64_t size = own;
  if (draws.one_in(2)) {
    for (size = 1; size < own && !draws.one_in(8);) size *= 2;
  }
  size += (static_cast<std::int64_t>(draws.below(3)) - 1) * rules.multiple_of;
  size -= size % rules.multiple_of;
  return std::clamp(size, std::max<std::int64_t>(rules.minimum, 1), rules.maximum);
}

void draw_attributes(Draws& draws, const OpSchema& schema, const Kept& kept, CaseLine& line) {
  for (const AttrSpec& spec : schema.attrs) {
    if ((spec.ignored && !spec.recipe) || (spec.recipe && kept.strict) || !draws.one_in(2)) continue;
    if (!spec.choices.empty()) line.attrs.set_attr(spec.name, spec.choices[draws.below(spec.choices.size())]);
    if (!spec.dtypes.empty()) line.attrs.set_attr(spec.name, std::string(name(spec.dtypes[draws.below(spec.dtypes.size())])));
    if (std::holds_alternative<bool>(spec.default_value)) line.attrs.set_attr(spec.name, draws.one_in(2));
  }
}

void draw_types(Draws& draws, const OpSchema& schema, CaseLine& line) {
  for (const TensorSpec& spec : schema.tensors) {
    // The type of another argument is one more to draw.
    const std::size_t choices = spec.dtypes.size() + (spec.same_dtype_as.empty() ? 0 : 1);
    if (spec.direction == Direction::out || spec.dtypes.empty() || choices < 2 || !draws.one_in(2)) continue;
    if (const std::size_t drawn = draws.below(choices); drawn < spec.dtypes.size()) {
      line.dtypes[spec.name] = spec.dtypes[drawn];
    } else {
      line.dtypes.erase(spec.name);
    }
  }
}

/// Optional inputs that the line has are left out, and those that it lacks are asked for.
void draw_presence(Draws& draws, const OpSchema& schema, CaseLine& line) {
  for (const TensorSpec& spec : schema.tensors) {
    if (!spec.optional || spec.direction != Direction::in || !draws.one_in(4)) continue;
    const bool asked = line.with.erase(spec.name) > 0, left_out = line.without.count(spec.name) > 0;
    if (asked && spec.on_request) line.without.insert(spec.name);  // whose sizes the line gives
    if (!asked && !left_out) (spec.on_request ? line.with : line.without).insert(spec.name);
  }
}

/// Types of tensors that the line leaves out would be refused.
void forget_absent_types(const OpSchema& schema, CaseLine& line) {
  for (const TensorSpec& spec : schema.tensors)
    if (line.without.count(spec.name) != 0 || (spec.on_request && line.with.count(spec.name) == 0)) line.dtypes.erase(spec.name);
}

/// The inputs of a line. Throws Error when the op refuses them.
Arguments inputs_of(const Op& op, const CaseLine& line) {
  Arguments inputs = generate(line);
  Arguments probe = runnable(op, inputs);
  op.prepare(probe);
  return inputs;
}

/// One of the op's own lines, `plain`: without the recipe that it may name.
CaseLine own_line(const Op& op, std::size_t index, bool plain) {
  CaseLine line = parse_case_line(std::string(op.name()) + " " + op.cases()[index]);
  if (!plain) return line;
  line.dialect.clear();
  std::erase_if(line.attrs.attrs, [&](const auto& attr) {
    const AttrSpec* spec = op.schema().find_attr(attr.first);
    return spec != nullptr && spec->recipe;
  });
  return line;
}

/// The line with what is kept in place of what was drawn.
void keep(const Kept& kept, CaseLine& line) {
  for (const auto& [symbol, size] : kept.line.symbols) line.symbols[symbol] = size;
  for (const auto& [name, value] : kept.line.attrs.attrs) line.attrs.set_attr(name, value);
  for (const auto& [name, dtype] : kept.line.dtypes) line.dtypes[name] = dtype;
  for (const std::string& name : kept.line.with) line.without.erase(name), line.with.insert(name);
  for (const std::string& name : kept.line.without) line.with.erase(name), line.without.insert(name);
  if (!kept.line.dialect.empty()) line.dialect = kept.line.dialect;
  for (const Special special : kept.line.specials) line.specials.insert(special);
  if (kept.dist) line.dist = kept.line.dist;
}

CaseLine drawn_line(const Op& op, std::uint64_t seed, int index, int attempt, const Kept& kept) {
  Draws draws(seed, op, index, attempt);
  const auto own = static_cast<std::size_t>(index) / drawn_distributions.size() % op.cases().size();
  // A line may need its recipe: the last attempts leave it there.
  CaseLine line = own_line(op, own, kept.strict && attempt < plain_attempts);
  line.dist = drawn_distributions[static_cast<std::size_t>(index) % drawn_distributions.size()];
  line.seed = draws.below(kept.seeds);
  if (attempt >= (kept.strict ? 2 * attempts_at_sizes : attempts_at_sizes)) {
    keep(kept, line);
    return line;
  }
  for (auto& [symbol, size] : line.symbols) {
    if (kept.strict && draws.one_in(2)) {
      size = edge_size(draws, op.schema(), symbol, size);
    } else if (!draws.one_in(4)) {
      size = drawn_size(draws, op.schema(), symbol, size);
    }
  }
  // Later attempts ask for less.
  if (attempt < 4) draw_types(draws, op.schema(), line);
  if (attempt < 2) draw_attributes(draws, op.schema(), kept, line);
  if (attempt < 2) draw_presence(draws, op.schema(), line);
  if ((kept.strict || kept.specials) && attempt < 12 && draws.one_in(2))
    line.specials.insert(static_cast<Special>(draws.below(specials().size())));
  forget_absent_types(op.schema(), line);
  keep(kept, line);
  return line;
}

}  // namespace

void require_taken(const Op& op, const Arguments& inputs) {
  Arguments arguments = runnable(op, inputs);
  Exec exec;
  exec.threads = 1;
  op.run(arguments, exec);
}

DrawnCase drawn_case(const Op& op, std::uint64_t seed, int index, const Kept& kept) {
  for (int attempt = 0; attempt < attempts; ++attempt) {
    CaseLine line = drawn_line(op, seed, index, attempt, kept);
    try {
      Arguments inputs = inputs_of(op, line);
      if (kept.strict || kept.specials) require_taken(op, inputs);
      return {std::move(line), std::move(inputs)};
    } catch (const Error&) {
      // Drawn anew.
    }
  }
  CaseLine line = own_line(op, 0, false);
  keep(kept, line);
  Arguments inputs = inputs_of(op, line);
  return {std::move(line), std::move(inputs)};
}

}  // namespace dodona::oracle
