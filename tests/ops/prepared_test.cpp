// Ops whose fast mode takes packed weights: they change no bit, whoever packed them and in how many parts, and bad use is refused.
#include "dodona/prepared.h"

#include <cstring>

#include "core/define.h"
#include "ops/gemm/cutlass_scaled_fp4_mm.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"
#include "tests/ops/sweep.h"

namespace dodona {
namespace {

using namespace sweep;

bool is_prepared(const Op& op, const std::string& name) {
  const auto& names = op.schema().properties.prepared;
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// The arguments that are packed, with the attributes, which may say how they lie, and the others.
struct Split {
  Arguments weights, rest;
};
Split split(const Op& op, const Arguments& arguments) {
  Split parts{{}, arguments};
  parts.weights.attrs = arguments.attrs;
  std::erase_if(parts.rest.tensors, [&](const auto& entry) { return is_prepared(op, entry.first); });
  for (const auto& [name, tensor] : arguments.tensors)
    if (is_prepared(op, name)) parts.weights.set(name, tensor);
  return parts;
}

std::vector<std::byte> bytes_of(const Prepared& prepared) {
  std::vector<std::byte> bytes;
  for (std::int64_t i = 0; i < prepared.parts(); ++i)
    bytes.insert(bytes.end(), prepared.part(i), prepared.part(i) + prepared.bytes() / prepared.parts());
  return bytes;
}

class PreparedOps : public EveryOp {};

TEST_P(PreparedOps, PreparedWeightsGiveTheBitsOfRawOnesOnEveryTierAndThreadCount) {
  int ran = 0;
  auto lines = size_lines(op(), {0, 1, 3, 5});
  for (const CaseLine& line : own_lines(op())) lines.push_back(line);
  for (const CaseLine& line : lines) {
    const auto arguments = arguments_of(op(), line);
    if (!arguments) continue;
    ++ran;
    const auto expected = run(op(), *arguments, exec_of(Mode::fast, 1, Isa::generic));
    auto [weights, rest] = split(op(), *arguments);
    for (const Isa isa : available_isas())
      for (const int threads : {1, 2, 3}) {
        rest.prepared = op().pack(weights, exec_of(Mode::fast, threads, isa));
        const auto actual = run(op(), rest, exec_of(Mode::fast, threads, isa));
        ASSERT_EQ(actual.size(), expected.size());
        for (std::size_t i = 0; i < actual.size(); ++i)
          ASSERT_EQ(sweep::bytes_of(actual[i].second), sweep::bytes_of(expected[i].second))
              << to_string(line) << " on " << name(isa) << " with " << threads << " threads";
      }
  }
  EXPECT_GT(ran, 0);
}

TEST_P(PreparedOps, PackingForOneTierServesAllOthers) {
  for (const CaseLine& line : own_lines(op())) {
    const auto weights = split(op(), *arguments_of(op(), line)).weights;
    const auto expected = bytes_of(op().pack(weights, exec_of(Mode::fast, 1, Isa::generic)));
    for (const Isa isa : available_isas()) EXPECT_EQ(bytes_of(op().pack(weights, exec_of(Mode::fast, 3, isa))), expected) << name(isa);
  }
}

TEST_P(PreparedOps, RawWeightsAreNeededNoMore) {
  const CaseLine line = own_lines(op()).front();
  const Arguments arguments = *arguments_of(op(), line);
  const auto expected = run(op(), arguments, exec_of(Mode::fast));
  auto [weights, rest] = split(op(), arguments);
  for (auto& [name, tensor] : weights.tensors) {
    const Tensor own = make_strided(tensor.dtype(), tensor.shape(), tensor.strides());
    copy(tensor, own);
    tensor = own;
  }
  rest.prepared = op().pack(weights, exec_of(Mode::fast));
  for (auto& [name, tensor] : weights.tensors) std::memset(tensor.data(), 0x7E, static_cast<std::size_t>(tensor.extent_bytes()));
  EXPECT_EQ(sweep::bytes_of(run(op(), rest, exec_of(Mode::fast)).front().second), sweep::bytes_of(expected.front().second));
}

TEST(Prepared, PartsPackedOneByOneAreThoseOfTheWhole) {
  const Op& op = registry().at("cutlass_fp4_group_mm");
  const auto weights = split(op, *arguments_of(op, own_lines(op).front())).weights;
  const Prepared whole = op.pack(weights, exec_of(Mode::fast));
  ASSERT_GT(whole.parts(), 3);
  std::vector<Prepared> alone;
  std::vector<Prepared::Place> places;
  for (std::int64_t i = 0; i < whole.parts(); ++i) {
    Arguments part;
    for (const auto& [name, tensor] : weights.tensors) part.set(name, tensor.slice(0, i, i + 1));
    alone.push_back(op.pack(part, exec_of(Mode::fast)));
  }
  for (std::int64_t i = 0; i < whole.parts(); ++i) places.push_back({i, &alone[static_cast<std::size_t>(i)]});
  const Prepared gathered = Prepared::gather(whole.parts(), places);
  EXPECT_EQ(bytes_of(gathered), bytes_of(whole));
  ASSERT_EQ(gathered.arguments().size(), whole.arguments().size());
  for (std::size_t i = 0; i < whole.arguments().size(); ++i) EXPECT_EQ(gathered.arguments()[i].shape, whole.arguments()[i].shape);

  const auto refused = [&](const char* words, std::int64_t count, std::vector<Prepared::Place> bad) {
    const std::string error = helpers::message_in([&] { Prepared::gather(count, bad); });
    EXPECT_NE(error.find(words), std::string::npos) << "'" << error << "'";
  };
  refused("expected at least one", 4, {});
  refused("places[1] has index 4, expected 0 to 3", 4, {places[0], {4, &alone[1]}});
  refused("places[0] has index -1", 4, {{-1, &alone[1]}});
  refused("is taken", 4, {places[0], {0, &alone[1]}});
  refused("has no prepared weights", 4, {{0, nullptr}});
  refused("parts, expected one", 4, {{0, &whole}});
}

TEST_P(PreparedOps, OtherModesAndJudgesRefuse) {
  auto [weights, rest] = split(op(), *arguments_of(op(), own_lines(op()).front()));
  rest.prepared = op().pack(weights, exec_of(Mode::fast));
  for (const Mode mode : {Mode::golden, Mode::hopper})
    EXPECT_NE(helpers::message_in([&, &rest = rest] {
                run(op(), rest, exec_of(mode));
              }).find(std::string(name(mode)) + " mode needs the arguments that they stand for: " + weights.tensors.front().first),
              std::string::npos);
  Reference reference;
  EXPECT_NE(helpers::message_in([&, &rest = rest] { op().reference(rest, exec_of(Mode::golden), reference); }).find("golden mode needs"),
            std::string::npos);
}

TEST_P(PreparedOps, ShapesAreCheckedAgainstWhatWasPacked) {
  const Arguments arguments = *arguments_of(op(), own_lines(op()).front());
  auto [weights, rest] = split(op(), arguments);
  rest.prepared = op().pack(weights, exec_of(Mode::fast));
  for (const auto& [name, tensor] : rest.tensors)
    for (int d = 0; d < tensor.rank(); ++d) {
      Arguments raw = arguments, prepared = rest;
      Dims shape = tensor.shape();
      shape[d] += 1;
      raw.set(name, Tensor(tensor.dtype(), shape));
      prepared.set(name, *raw.find(name));
      EXPECT_EQ(helpers::message_in([&] { run(op(), prepared, exec_of(Mode::fast)); }),
                helpers::message_in([&] { run(op(), raw, exec_of(Mode::fast)); }));
    }
}

TEST_P(PreparedOps, WhatIsPackedIsValidated) {
  const Arguments arguments = *arguments_of(op(), own_lines(op()).front());
  const auto [weights, rest] = split(op(), arguments);
  const auto refused = [&](const Arguments& bad, const std::string& words) {
    const std::string error = helpers::message_in([&] { op().pack(bad, exec_of(Mode::fast)); });
    EXPECT_EQ(error.rfind(std::string(op().name()) + ": ", 0), 0U) << error;
    EXPECT_NE(error.find(words), std::string::npos) << error;
  };
  refused(rest, "is not prepared; expected " + weights.tensors.front().first);
  for (std::size_t i = 0; i < weights.tensors.size(); ++i) {
    const auto& [name, tensor] = weights.tensors[i];
    Arguments bad = weights;
    bad.tensors.erase(bad.tensors.begin() + static_cast<std::ptrdiff_t>(i));
    refused(bad, name + " is missing");
    bad = weights;
    bad.set(name, Tensor(DType::i16, tensor.shape()));
    refused(bad, name + " has dtype i16");
    bad = weights;
    Dims shape = tensor.shape();
    shape[shape.rank() - 1] += 1;
    bad.set(name, Tensor(tensor.dtype(), shape));
    refused(bad, "expected");
  }
}

TEST_P(PreparedOps, WeightsGivenTwiceOrOfAnotherOpAreRefused) {
  const Arguments arguments = *arguments_of(op(), own_lines(op()).front());
  auto [weights, rest] = split(op(), arguments);
  Arguments both = arguments;
  both.prepared = rest.prepared = op().pack(weights, exec_of(Mode::fast));
  EXPECT_NE(helpers::message_in([&] { run(op(), both, exec_of(Mode::fast)); }).find("is given, and prepared weights stand for it"),
            std::string::npos);
  EXPECT_NE(helpers::message_in([&, &rest = rest] { op().pack(rest, exec_of(Mode::fast)); }).find("packing needs"), std::string::npos);
  for (const auto& other : registry().all()) {
    if (other.get() == &op()) continue;
    Arguments wrong = split(*other, *arguments_of(*other, own_lines(*other).front())).rest;
    wrong.prepared = rest.prepared;
    EXPECT_NE(helpers::message_in([&] {
                run(*other, wrong, exec_of(Mode::fast));
              }).find("prepared holds weights of " + std::string(op().name()) + ", expected those of this op"),
              std::string::npos)
        << other->name();
  }
}

INSTANTIATE_TEST_SUITE_P(Inventory, PreparedOps,
                         testing::ValuesIn(names_of_ops([](const Op& op) { return !op.schema().properties.prepared.empty(); })),
                         name_of_instance);

TEST(Prepared, OpsThatReadTheirArgumentsAsTheyAreSaySo) {
  const Op& rmsnorm = registry().at("rmsnorm");
  EXPECT_NE(helpers::message_in([&] { rmsnorm.pack({}, exec_of(Mode::fast)); }).find("rmsnorm: has nothing to prepare"), std::string::npos);
  EXPECT_EQ(Prepared().bytes(), 0);
  EXPECT_EQ(Prepared().parts(), 0);
  EXPECT_EQ(Prepared().op(), "");
}

TEST(Prepared, WhatContentsOfWeightsForbidNamesTheOp) {
  const Op& op = registry().at("qserve_w4a8_per_group_gemm");
  Arguments weights = split(op, *arguments_of(op, own_lines(op).front())).weights;
  Tensor scales = weights.find("scales_i8")->clone();
  scales.as<std::int8_t>()[1] = 18;
  weights.set("scales_i8", scales);
  EXPECT_EQ(helpers::message_in([&] {
              op.pack(weights, exec_of(Mode::fast));
            }).rfind("qserve_w4a8_per_group_gemm: scales_i8 holds 18 at element 1", 0),
            0U);
}

TEST(Prepared, TypedCallsLeaveTheWeightsUndefined) {
  const Arguments arguments = oracle::generate(parse_case_line("cutlass_scaled_fp4_mm M=4 N=32 K=64"));
  ops::CutlassScaledFp4Mm op{.a = *arguments.find("a"),
                             .b = *arguments.find("b"),
                             .block_scale_a = *arguments.find("block_scale_a"),
                             .block_scale_b = *arguments.find("block_scale_b"),
                             .alpha = *arguments.find("alpha")};
  const auto raw = ops::run(op, exec_of(Mode::fast));
  const Prepared weights = ops::prepare(ops::CutlassScaledFp4Mm{.b = op.b, .block_scale_b = op.block_scale_b}, exec_of(Mode::fast));
  op.b = op.block_scale_b = Tensor();
  std::string traced;
  Exec exec = exec_of(Mode::fast);
  exec.tracer = [&](const TraceEvent& event) { traced += event.op; };
  const auto prepared = ops::run(op, exec, weights);
  EXPECT_TRUE(helpers::same_bits(prepared.out, raw.out));
  EXPECT_FALSE(prepared.b.defined() || prepared.block_scale_b.defined());
  EXPECT_EQ(traced, "cutlass_scaled_fp4_mm");
}

}  // namespace
}  // namespace dodona
