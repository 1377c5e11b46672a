// What every op gets for nothing: each test runs for each op of the inventory.
#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "core/call.h"
#include "core/shape_expr.h"
#include "ops/about.h"
#include "oracle/judge/verify.h"
#include "quant/element.h"
#include "tests/errors.h"
#include "tests/ops/sweep.h"

namespace dodona::sweep {
namespace {

INSTANTIATE_TEST_SUITE_P(Inventory, EveryOp, testing::ValuesIn(names_of_ops([](const Op&) { return true; })), name_of_instance);

/// Names of the sizes in a shape: "M K/2" has M and K.
std::set<std::string> sizes_in(const std::string& shape) {
  std::set<std::string> sizes;
  for (std::size_t at = 0; at < shape.size();) {
    std::size_t end = at;
    while (end < shape.size() && (std::isalnum(static_cast<unsigned char>(shape[end])) != 0 || shape[end] == '_')) ++end;
    if (std::isalpha(static_cast<unsigned char>(shape[at])) != 0) sizes.insert(shape.substr(at, end - at));
    at = std::max(end, at + 1);
  }
  return sizes;
}

/// Whether two of the arguments that a case line gives have a size in common.
bool sizes_meet(const Op& op) {
  std::set<std::string> all;
  for (const auto& [name, tensor] : oracle::generate(own_lines(op).front()).tensors)
    for (const std::string& size : sizes_in(op.schema().find_tensor(name)->shape))
      if (!all.insert(size).second) return true;
  return false;
}

class OpsWithAxesThatMayBeEmpty : public EveryOp {};
class OpsWithOptionalArguments : public EveryOp {};
class OpsWithPadding : public EveryOp {};
class OpsThatWorkInPlace : public EveryOp {};
class OpsWithIndependentRows : public EveryOp {};
/// A view is no computation: there is nothing to record.
class OpsThatCompute : public EveryOp {};

INSTANTIATE_TEST_SUITE_P(Inventory, OpsWithAxesThatMayBeEmpty,
                         testing::ValuesIn(names_of_ops([](const Op& op) { return !size_lines(op, {0}).empty(); })), name_of_instance);
INSTANTIATE_TEST_SUITE_P(Inventory, OpsWithOptionalArguments, testing::ValuesIn(names_of_ops([](const Op& op) {
                           const auto& tensors = op.schema().tensors;
                           return std::any_of(tensors.begin(), tensors.end(), [](const TensorSpec& spec) { return spec.optional; });
                         })),
                         name_of_instance);
INSTANTIATE_TEST_SUITE_P(Inventory, OpsWithPadding, testing::ValuesIn(names_of_ops([](const Op& op) {
                           const auto& tensors = op.schema().tensors;
                           return std::any_of(tensors.begin(), tensors.end(), has_padding);
                         })),
                         name_of_instance);
INSTANTIATE_TEST_SUITE_P(Inventory, OpsThatWorkInPlace,
                         testing::ValuesIn(names_of_ops([](const Op& op) { return !op.schema().properties.in_place.empty(); })),
                         name_of_instance);
INSTANTIATE_TEST_SUITE_P(Inventory, OpsWithIndependentRows,
                         testing::ValuesIn(names_of_ops([](const Op& op) { return !op.schema().properties.rows_independent.empty(); })),
                         name_of_instance);
INSTANTIATE_TEST_SUITE_P(Inventory, OpsThatCompute, testing::ValuesIn(names_of_ops([](const Op& op) {
                           const auto& tensors = op.schema().tensors;
                           return std::none_of(tensors.begin(), tensors.end(),
                                               [](const TensorSpec& spec) { return !spec.view_of.empty(); });
                         })),
                         name_of_instance);

const std::vector<std::int64_t> odd_sizes{1, 2, 15, 16, 17, 31};

std::string error_of(const Op& op, Arguments arguments) {
  return helpers::message_in([&] { op.prepare(arguments); });
}

bool is_view(const Op& op, const std::string& name) {
  return !op.schema().find_tensor(name)->view_of.empty();
}

void expect_same_bits(const Op& op, const oracle::NamedTensors& a, const oracle::NamedTensors& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_EQ(bytes_of(a[i].second), bytes_of(b[i].second)) << op.name() << " output " << a[i].first << ": " << what;
}

TEST_P(EveryOp, SchemaIsDocumentedAndConsistent) {
  EXPECT_FALSE(op().contract().empty());
  const std::string_view about = ops::about(op().name());
  EXPECT_NE(about.find("Source: "), std::string_view::npos)
      << "the comment above the op's struct says what it computes, and whose it is: '" << about << "'";
  EXPECT_GT(about.find("Source: "), 20U) << about;
  EXPECT_FALSE(op().cases().empty()) << "no case lines: no sweep would run";
  EXPECT_FALSE(op().bench_cases().empty());
  EXPECT_TRUE(op().has(Mode::fast) && op().has(Mode::golden));
  bool has_output = false;
  std::set<std::string> names;
  for (const TensorSpec& spec : op().schema().tensors) {
    EXPECT_FALSE(spec.doc.empty()) << spec.name << " has no description";
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name << " is declared twice";
    EXPECT_FALSE(spec.shape.empty() && spec.dtypes.empty()) << spec.name;
    has_output = has_output || spec.direction != Direction::in;
  }
  EXPECT_TRUE(has_output);
  for (const AttrSpec& spec : op().schema().attrs) {
    EXPECT_FALSE(spec.doc.empty()) << spec.name << " has no description";
    for (const auto& [dialect, value] : spec.dialect_values) {
      EXPECT_NE(std::find(dialects().begin(), dialects().end(), dialect), dialects().end()) << dialect;
      if (!spec.choices.empty())
        EXPECT_NE(std::find(spec.choices.begin(), spec.choices.end(), std::get<std::string>(value)), spec.choices.end()) << spec.name;
    }
  }
}

TEST_P(EveryOp, EveryCaseLineRunsAndParsesBack) {
  for (const CaseLine& line : own_lines(op())) {
    EXPECT_EQ(to_string(parse_case_line(to_string(line))), to_string(line));
    EXPECT_NO_THROW(run(op(), oracle::generate(line), exec_of(Mode::fast))) << to_string(line);
  }
}

TEST_P(EveryOp, WrongRankIsRejectedNamingTheArgument) {
  const Arguments good = oracle::generate(own_lines(op()).front());
  for (const auto& [name, tensor] : good.tensors) {
    if (op().schema().find_tensor(name)->shape.find("...") != std::string::npos || tensor.rank() + 2 > max_rank) continue;
    Arguments bad = good;
    Dims shape = tensor.shape();
    shape.push_back(1);
    shape.push_back(1);
    bad.set(name, Tensor(tensor.dtype(), shape));
    const std::string error = error_of(op(), bad);
    EXPECT_NE(error.find(name), std::string::npos) << "'" << error << "'";
    EXPECT_NE(error.find("rank"), std::string::npos) << "'" << error << "'";
  }
}

/// Whether `text` holds `word` as a word of its own.
bool mentions(const std::string& text, const std::string& word) {
  const auto is_letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const bool begins = at == 0 || !is_letter(text[at - 1]), ends = at + word.size() == text.size() || !is_letter(text[at + word.size()]);
    if (begins && ends) return true;
  }
  return false;
}

/// What speaks against the size that `name` has now: other arguments and attributes that the error names, or a rule of its own.
std::set<std::string> witnesses_beside(const Op& op, const std::string& name, const std::string& error) {
  std::set<std::string> found;
  for (const TensorSpec& spec : op.schema().tensors)
    if (spec.name != name && mentions(error, spec.name)) found.insert(spec.name);
  for (const AttrSpec& spec : op.schema().attrs)
    if (mentions(error, spec.name)) found.insert(spec.name);
  for (const SymbolSpec& spec : op.schema().symbols)
    if (mentions(error, spec.name)) found.insert("the rule of " + spec.name);
  return found;
}

/// Whether a dimension of the tensor is a number, a multiple or a whole share of something: no other witness is needed.
bool has_fixed_dimension(const TensorSpec& spec) {
  SymbolNames names;
  const ShapeExpr shape = ShapeExpr::parse(spec.shape, names);
  for (const ShapeAlternative& alternative : shape.alternatives())
    for (const DimExpr& dim : alternative.dims)
      if (dim.symbols().empty() || dim.text().find_first_of("/*") != std::string::npos) return true;
  return false;
}

TEST_P(EveryOp, WrongSizeIsRejectedNamingBothWitnesses) {
  const Arguments good = oracle::generate(own_lines(op()).front());
  int rejected = 0;
  for (const auto& [name, tensor] : good.tensors)
    for (int d = 0; d < tensor.rank(); ++d) {
      Arguments bad = good;
      Dims shape = tensor.shape();
      shape[d] += 1;
      bad.set(name, Tensor(tensor.dtype(), shape));
      const std::string error = error_of(op(), bad);
      if (error.empty()) continue;  // a size that nothing else depends on
      ++rejected;
      EXPECT_EQ(error.rfind(std::string(op().name()) + ": ", 0), 0u) << error;
      EXPECT_NE(error.find("expected"), std::string::npos) << error;
      EXPECT_TRUE(mentions(error, name)) << name << " " << to_string(shape) << " is not named: " << error;
      EXPECT_FALSE(witnesses_beside(op(), name, error).empty() && !has_fixed_dimension(*op().schema().find_tensor(name)))
          << "nothing is named that speaks against " << name << " " << to_string(shape) << ": " << error;
    }
  EXPECT_TRUE(rejected > 0 || !sizes_meet(op())) << "no wrong size was noticed";
  for (const AttrSpec& spec : op().schema().attrs) {
    if (!std::holds_alternative<std::int64_t>(spec.default_value) || op().schema().compiled->symbols.find(spec.name) < 0) continue;
    Arguments bad = good;
    bad.set_attr(spec.name, std::int64_t{-1});
    EXPECT_NE(error_of(op(), bad).find(spec.name), std::string::npos) << spec.name << " -1: " << error_of(op(), bad);
  }
}

TEST_P(EveryOp, WrongDtypeIsRejected) {
  const Arguments good = oracle::generate(own_lines(op()).front());
  for (const auto& [name, tensor] : good.tensors) {
    const TensorSpec& spec = *op().schema().find_tensor(name);
    if (spec.dtypes.size() >= static_cast<std::size_t>(dtype_count)) continue;
    Arguments bad = good;
    bad.set(name, Tensor(DType::i16, tensor.shape()));
    const std::string error = error_of(op(), bad);
    EXPECT_NE(error.find("dtype i16, expected"), std::string::npos) << name << ": '" << error << "'";
  }
}

TEST_P(EveryOp, MissingArgumentIsRejected) {
  const Arguments good = oracle::generate(own_lines(op()).front());
  for (std::size_t i = 0; i < good.tensors.size(); ++i) {
    if (op().schema().find_tensor(good.tensors[i].first)->optional) continue;
    Arguments bad = good;
    bad.tensors.erase(bad.tensors.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_NE(error_of(op(), bad).find("is missing"), std::string::npos) << good.tensors[i].first;
  }
}

TEST_P(EveryOp, InnerStrideOtherThanOneIsRejectedWhereTheSchemaForbidsIt) {
  const Arguments good = oracle::generate(own_lines(op()).front());
  for (const auto& [name, tensor] : good.tensors) {
    const Layout layout = op().schema().find_tensor(name)->layout;
    if (layout == Layout::any || layout == Layout::column_major || tensor.rank() == 0 || tensor.size(-1) < 2 || is_packed(tensor.dtype()))
      continue;
    Arguments bad = good;
    Dims strides = contiguous_strides(tensor.shape());
    for (int d = 0; d < strides.rank(); ++d) strides[d] *= 2;
    Tensor spread = make_strided(tensor.dtype(), tensor.shape(), strides);
    copy(tensor, spread);
    bad.set(name, spread);
    EXPECT_NE(error_of(op(), bad).find("has strides"), std::string::npos) << name;
  }
}

TEST_P(EveryOp, ReadOnlyOutputsAreRejectedBeforeAnythingIsWritten) {
  Arguments arguments = oracle::runnable(op(), oracle::generate(own_lines(op()).front()));
  Arguments prepared = arguments;
  op().prepare(prepared);
  for (const auto& [name, tensor] : oracle::outputs_of(op(), prepared)) {
    if (is_view(op(), name)) continue;
    Arguments bad = arguments;
    const auto before = bytes_of(tensor);
    bad.set(name, tensor.read_only());
    EXPECT_NE(error_of(op(), bad).find("read-only"), std::string::npos) << name;
    EXPECT_EQ(bytes_of(tensor), before);
  }
}

TEST_P(EveryOp, OutputsThatOverlapAnInputAreRejected) {
  Arguments arguments = oracle::runnable(op(), oracle::generate(own_lines(op()).front()));
  Arguments prepared = arguments;
  op().prepare(prepared);
  for (const TensorSpec& out : op().schema().tensors) {
    if (out.direction == Direction::in || !out.view_of.empty()) continue;
    const Tensor* output = prepared.find(out.name);
    if (output == nullptr || output->elements() < 4) continue;
    for (const auto& [name, tensor] : arguments.tensors) {
      if (name == out.name || tensor.extent_bytes() == 0) continue;
      // Both begin in one buffer, the output 64 bytes behind: whatever their types, they share bytes.
      const std::int64_t bytes = std::max(tensor.extent_bytes(), output->extent_bytes()) + 64;
      if (tensor.extent_bytes() <= 64) continue;
      Tensor buffer(DType::u8, {bytes});
      Arguments bad = arguments;
      Tensor input_view(buffer.data(), tensor.dtype(), tensor.shape(), tensor.strides());
      copy(tensor, input_view);
      Tensor output_view(static_cast<std::byte*>(buffer.data()) + 64, output->dtype(), output->shape(), output->strides());
      bad.set(name, input_view);
      bad.set(out.name, output_view);
      if (out.direction == Direction::inout) copy(*output, output_view);
      EXPECT_FALSE(error_of(op(), bad).empty()) << out.name << " over " << name;
    }
  }
}

TEST_P(OpsWithAxesThatMayBeEmpty, EmptyAxesAreAccepted) {
  const auto lines = size_lines(op(), {0});
  Tried tried(op());
  for (const CaseLine& line : lines)
    if (const auto arguments = tried.arguments_of(line))
      for (const Mode mode : op().modes())
        if (op().supports(oracle::runnable(op(), *arguments), mode))
          EXPECT_NO_THROW(run(op(), *arguments, exec_of(mode))) << to_string(line);
  tried.expect_most_ran(0.1);
}

TEST_P(EveryOp, EveryTierAndThreadCountGivesTheSameBits) {
  Tried tried(op());
  auto lines = size_lines(op(), odd_sizes);
  for (const CaseLine& line : own_lines(op())) lines.push_back(line);
  // Where there are many lines, the number of threads goes round: every tier has each of them on some.
  const bool goes_round = lines.size() >= 12;
  const Isa fastest = available_isas().back();
  for (std::size_t at = 0; at < lines.size(); ++at) {
    const auto arguments = tried.arguments_of(lines[at]);
    if (!arguments) continue;
    const auto expected = run(op(), *arguments, exec_of(Mode::fast, 1, fastest));
    std::size_t round = at + at / odd_sizes.size();
    for (const Isa isa : available_isas()) {
      ++round;
      for (const int threads : {1, 2, 3}) {
        if ((isa == fastest && threads == 1) || (goes_round && threads != static_cast<int>(1 + round % 3))) continue;
        expect_same_bits(op(), expected, run(op(), *arguments, exec_of(Mode::fast, threads, isa)),
                         to_string(lines[at]) + " on " + std::string(name(isa)) + " with " + std::to_string(threads) + " threads");
      }
    }
    if (HasFailure()) return;
  }
  tried.expect_most_ran(0.25);
}

TEST_P(EveryOp, OtherModesDependOnTierAndThreadCountNoMore) {
  for (const CaseLine& line : own_lines(op())) {
    const Arguments arguments = oracle::generate(line);
    for (const Mode mode : op().modes()) {
      if (mode == Mode::fast || !op().supports(oracle::runnable(op(), arguments), mode)) continue;
      const auto expected = run(op(), arguments, exec_of(mode, 1));
      for (const Exec& other : {exec_of(mode, 3), exec_of(mode, 2, Isa::generic)})
        expect_same_bits(op(), expected, run(op(), arguments, other), to_string(line) + ", " + std::string(name(mode)) + " mode");
    }
  }
}

/// Blocks of scratch memory that hold what no result may depend on.
void soil(const ScratchPool& pool, int fill) {
  const Scratch large = pool.take(std::size_t{4} << 20), other = pool.take(std::size_t{1} << 20);
  std::memset(large.as(), fill, std::size_t{4} << 20);
  std::memset(other.as(), fill, std::size_t{1} << 20);
}

TEST_P(EveryOp, ScratchMemoryOfEarlierCallsDoesNotShow) {
  auto lines = own_lines(op());
  for (const CaseLine& line : size_lines(op(), {1, 17})) lines.push_back(line);
  std::vector<std::pair<std::string, Arguments>> calls;
  for (const CaseLine& line : lines)
    if (auto arguments = arguments_of(op(), line)) calls.emplace_back(to_string(line), std::move(*arguments));
  for (const Mode mode : op().modes()) {
    // Forwards and back, so that large calls follow small ones and small ones large ones, in memory full of NaNs and of ones.
    Exec shared = exec_of(mode, 2);
    std::vector<oracle::NamedTensors> expected;
    for (const auto& [line, arguments] : calls) {
      const bool supported = op().supports(oracle::runnable(op(), arguments), mode);
      expected.push_back(supported ? run(op(), arguments, exec_of(mode, 2)) : oracle::NamedTensors{});
    }
    for (const int fill : {0xFF, 0x3F}) {
      soil(shared.scratch, fill);
      for (std::size_t i = 0; i < 2 * calls.size(); ++i) {
        const std::size_t c = i < calls.size() ? i : 2 * calls.size() - 1 - i;
        if (!expected[c].empty()) expect_same_bits(op(), expected[c], run(op(), calls[c].second, shared), calls[c].first + " after others");
      }
      if (HasFailure()) return;
    }
  }
}

TEST_P(EveryOp, AModeThatIsNotToBeHadSaysWhyInOnePlace) {
  for (const CaseLine& line : own_lines(op())) {
    const Arguments inputs = oracle::generate(line);
    for (const Mode mode : {Mode::fast, Mode::golden, Mode::hopper}) {
      Arguments arguments = oracle::runnable(op(), inputs);
      const auto refusal = op().refusal(arguments, mode);
      EXPECT_EQ(op().supports(arguments, mode), !refusal);
      if (!refusal) continue;
      EXPECT_FALSE(refusal->reason.empty());
      if (op().has(mode)) EXPECT_TRUE(op().schema().find_tensor(refusal->argument) || op().schema().find_attr(refusal->argument));
      const Error error = helpers::error_from([&] { op().run(arguments, exec_of(mode)); });
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_EQ(error.op(), op().name());
      EXPECT_EQ(error.argument(), refusal->argument);
      EXPECT_EQ(error.message(), refusal->reason);
    }
  }
}

TEST_P(EveryOp, FastStaysWithinTheBudgetOfGolden) {
  Tried tried(op());
  auto lines = size_lines(op(), odd_sizes);
  const auto own = own_lines(op());
  const std::vector<std::string> dists{"normal", "uniform", "outliers", "wide-exponent", "ties", "edge"};
  for (std::size_t at = 0; at < own.size(); ++at)
    for (std::size_t d = 0; d < dists.size(); ++d) {
      // Of large lines behind the first one each, in turn.
      if (at > 0 && d != at % dists.size() && too_large_to_sweep(own[at])) continue;
      CaseLine line = own[at];
      line.dist = dists[d];
      lines.push_back(line);
    }
  for (const CaseLine& line : lines) {
    const auto arguments = tried.arguments_of(line);
    if (!arguments) continue;
    const auto verdict = oracle::judge(op(), *arguments, run(op(), *arguments, exec_of(Mode::fast)), {});
    for (const auto& output : verdict.outputs) {
      EXPECT_EQ(output.failing, 0) << to_string(line) << " output " << output.name << ": " << output.pattern << "; worst "
                                   << (output.worst.empty() ? "" : to_string(output.worst[0].index)) << " golden "
                                   << (output.worst.empty() ? 0 : output.worst[0].golden) << " actual "
                                   << (output.worst.empty() ? 0 : output.worst[0].actual);
    }
    if (HasFailure()) return;
  }
  tried.expect_most_ran(0.25);
}

TEST_P(OpsWithOptionalArguments, CaseLinesHaveEachOptionalArgumentAndLackIt) {
  std::map<std::string, int> seen;
  int lines = 0;
  for (const CaseLine& line : own_lines(op())) {
    Arguments arguments = oracle::runnable(op(), oracle::generate(line));
    op().prepare(arguments);
    ++lines;
    for (const auto& [name, tensor] : arguments.tensors) ++seen[name];
  }
  for (const TensorSpec& spec : op().schema().tensors) {
    if (!spec.optional) continue;
    EXPECT_GT(seen[spec.name], 0) << "no case line has " << spec.name;
    EXPECT_LT(seen[spec.name], lines) << "every case line has " << spec.name;
  }
}

TEST_P(EveryOp, ACallThatWritesNothingIsVacuous) {
  for (const CaseLine& line : own_lines(op())) {
    const Arguments arguments = oracle::generate(line);
    const auto outputs = run(op(), arguments, exec_of(Mode::fast));
    // Of a call that writes nothing there is nothing to compare, which is no pass.
    const bool writes = std::any_of(outputs.begin(), outputs.end(), [](const auto& output) { return output.second.elements() > 0; });
    EXPECT_EQ(oracle::judge(op(), arguments, outputs, {}).outcome == oracle::Outcome::vacuous, !writes) << to_string(line);
  }
}

TEST_P(OpsWithPadding, PaddingOfInputsMayHoldAnything) {
  int filled = 0;
  for (const CaseLine& line : own_lines(op())) {
    const Arguments inputs = oracle::generate(line);
    Arguments junk = inputs;
    for (const TensorSpec& spec : op().schema().tensors) {
      if (!has_padding(spec) || inputs.find(spec.name) == nullptr) continue;
      const auto padding = padding_of(op(), spec, inputs);
      const Tensor changed = inputs.find(spec.name)->clone();
      for (std::int64_t i = 0; i < changed.elements(); ++i)
        if (padding[static_cast<std::size_t>(i)]) quant::set_bits(changed, i, 0x7F), ++filled;  // NaN in e4m3
      junk.set(spec.name, changed);
    }
    for (const Mode mode : op().modes())
      if (op().supports(oracle::runnable(op(), inputs), mode))
        expect_same_bits(op(), run(op(), inputs, exec_of(mode)), run(op(), junk, exec_of(mode)),
                         to_string(line) + " with junk in the padding");
  }
  EXPECT_GT(filled, 0) << "no case line has padding";
}

TEST_P(EveryOp, OutputsAreWrittenWholeAndNothingElseIs) {
  for (const CaseLine& line : own_lines(op())) {
    const Arguments inputs = oracle::generate(line);
    for (const Mode mode : op().modes()) {
      if (!op().supports(oracle::runnable(op(), inputs), mode)) continue;
      std::vector<std::vector<std::byte>> first;
      // Two fills: what a run leaves unwritten differs between them.
      for (const std::byte fill : {std::byte{0xFF}, std::byte{0x00}}) {
        Arguments prepared = oracle::runnable(op(), inputs);
        op().prepare(prepared);
        std::vector<std::unique_ptr<Guarded>> guards;
        Arguments guarded;
        guarded.attrs = prepared.attrs;
        for (const auto& [name, tensor] : prepared.tensors) {
          const TensorSpec& spec = *op().schema().find_tensor(name);
          if (!spec.view_of.empty()) continue;
          guards.push_back(std::make_unique<Guarded>(tensor, spec.direction != Direction::out, fill));
          guarded.set(name, guards.back()->tensor());
        }
        const Arguments kept = guarded;
        op().run(guarded, exec_of(mode, 2));
        std::size_t g = 0, o = 0;
        for (const auto& [name, tensor] : kept.tensors) {
          const TensorSpec& spec = *op().schema().find_tensor(name);
          EXPECT_TRUE(guards[g]->guards_intact()) << to_string(line) << " writes outside " << name;
          if (spec.direction == Direction::in) EXPECT_TRUE(guards[g]->unchanged()) << to_string(line) << " changes " << name;
          if (spec.direction == Direction::out) {
            if (first.size() <= o) {
              first.push_back(bytes_of(tensor));
            } else {
              EXPECT_EQ(first[o], bytes_of(tensor)) << to_string(line) << " leaves part of " << name << " unwritten";
            }
            ++o;
          }
          ++g;
        }
      }
    }
  }
}

TEST_P(OpsThatWorkInPlace, InPlaceEqualsOutOfPlace) {
  for (const auto& [output, input] : op().schema().properties.in_place)
    for (const CaseLine& line : own_lines(op()))
      for (const Mode mode : {Mode::fast, Mode::golden}) {
        const Arguments inputs = oracle::generate(line);
        const auto expected = run(op(), inputs, exec_of(mode));
        Arguments aliased = inputs;
        aliased.set(input, inputs.find(input)->clone());
        aliased.set(output, *aliased.find(input));
        op().run(aliased, exec_of(mode));
        for (const auto& [name, tensor] : expected)
          if (name == output) EXPECT_EQ(bytes_of(*aliased.find(output)), bytes_of(tensor)) << to_string(line) << " " << dodona::name(mode);
      }
}

/// The first dimension of the tensor's first shape alternative is the row symbol.
bool leads_with(const TensorSpec& spec, const std::string& symbol) {
  const std::string first = spec.shape.substr(0, spec.shape.find_first_of(" |"));
  return first == symbol || first == symbol + "...";
}

TEST_P(OpsWithIndependentRows, ARowAloneEqualsTheRowInItsBatch) {
  int compared = 0;
  for (const std::string& symbol : op().schema().properties.rows_independent)
    for (const CaseLine& line : own_lines(op())) {
      const Arguments inputs = oracle::generate(line);
      const auto size = line.symbols.find(symbol);
      if (size == line.symbols.end() || size->second < 2) continue;
      for (const Mode mode : {Mode::fast, Mode::golden}) {
        const auto batch = run(op(), inputs, exec_of(mode, 2));
        for (const std::int64_t row : {std::int64_t{0}, size->second / 2, size->second - 1}) {
          Arguments alone = inputs;
          for (auto& [name, tensor] : alone.tensors) {
            const TensorSpec& spec = *op().schema().find_tensor(name);
            if (!leads_with(spec, symbol)) continue;
            tensor = tensor.slice(0, row, row + 1);
            // Without gaps again.
            if (spec.layout == Layout::column_major) tensor = tensor.transpose(-1, -2).clone().transpose(-1, -2);
          }
          const auto single = run(op(), alone, exec_of(mode));
          for (std::size_t i = 0; i < batch.size(); ++i) {
            const TensorSpec& spec = *op().schema().find_tensor(batch[i].first);
            if (!leads_with(spec, symbol)) continue;
            ++compared;
            EXPECT_EQ(bytes_of(single[i].second), bytes_of(batch[i].second.slice(0, row, row + 1)))
                << to_string(line) << " row " << row << " of " << batch[i].first << " in " << name(mode) << " mode";
          }
        }
      }
    }
  EXPECT_GT(compared, 0) << "no case line has two rows";
}

TEST_P(EveryOp, EveryDialectRuns) {
  for (const auto dialect : dialects()) {
    CaseLine line = own_lines(op()).front();
    line.dialect = dialect;
    const Arguments arguments = oracle::generate(line);
    EXPECT_EQ(oracle::judge(op(), arguments, run(op(), arguments, exec_of(Mode::fast)), {}).failing(), 0) << to_string(line);
  }
}

/// Recorded cases: those in the repository, those beside it, and DODONA_GOLDEN_PATH.
std::vector<std::string> recordings() {
  std::vector<std::string> folders;
  for (const std::string& folder : {std::string(DODONA_SOURCE_DIR "/tests/golden"), std::string(DODONA_SOURCE_DIR "/../shared/golden")})
    if (std::filesystem::is_directory(folder)) folders.push_back(folder);
  for (const std::string& folder : oracle::golden_path()) folders.push_back(folder);
  return folders;
}

TEST_P(OpsThatCompute, RecordedCasesPassInEveryMode) {
  const auto list = oracle::find_cases(recordings(), std::string(op().name()));
  ASSERT_FALSE(list.files.empty()) << "no recorded case in the repository";
  for (const auto& result : oracle::verify(list.files, op().modes(), exec_of(Mode::fast, 2))) {
    EXPECT_EQ(result.error, "");
    if (!result.verdict) continue;
    EXPECT_LT(result.verdict->outcome, oracle::Outcome::vacuous) << result.path << " in " << name(result.mode) << " mode";
  }
}

}  // namespace
}  // namespace dodona::sweep
