// Validation of calls, on an op made for the purpose.
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "core/case_line.h"
#include "core/define.h"
#include "core/storage.h"
#include "dodona/error.h"
#include "quant/element.h"
#include "tests/errors.h"

namespace dodona {

std::unique_ptr<Op> op_linear();
std::unique_ptr<Op> op_rmsnorm();

namespace {

using enum DType;

struct Sample {
  Tensor x, weight, positions, scale, extra, wish, y, twice;
  double eps = 1e-6;
  std::int64_t head_size = 4;
  std::string order = "fused";
  DType dtype = bf16;
  bool double_it = false;

  static constexpr OpInfo info{"sample", Category::utility, Source::torch};
  void describe(auto& op) {
    op.in("x", x, {bf16, f32}, "T Nq*head_size | T Nq head_size").aligned(16).doc("rows");
    op.in("weight", weight, same_as("x"), "Nq*head_size").layout(Layout::contiguous).doc("factors");
    op.in("positions", positions, {i32, i64}, "T").role(Role::positions, "P").doc("rows of scale");
    op.in("scale", scale, {f32}, "P | ").role(Role::scale).doc("scales");
    op.in("extra", extra, {bf16}, "T E").optional().doc("made where E is known");
    op.in("wish", wish, {i32}, "T").on_request().kin("the row's number").doc("made where it is asked for");
    op.attr("eps", eps, at_least(0.0)).doc("a number");
    op.attr("head_size", head_size, between(1, 1024)).doc("elements of a head");
    op.choice("order", order, {"fused", "rounded"}).dialect("deepseek", "rounded").doc("a recipe");
    op.dtype_attr("dtype", dtype, {bf16, f16}).doc("element type of y");
    op.out("y", y, dtype_of_attr("dtype"), "T Nq*head_size").doc("what comes out");
    op.out("twice", twice, {f32}, "T").when("double_it").doc("written when given");
    op.attr("double_it", double_it).doc("makes twice");
    op.symbol("Nq", {.multiple_of = 2});
  }
};

void number_rows(Sample& op, std::uint64_t seed) {
  for (std::int64_t i = 0; op.wish.defined() && i < op.wish.size(0); ++i)
    op.wish.as<std::int32_t>()[i] = static_cast<std::int32_t>(i + static_cast<std::int64_t>(seed));
}
void nothing(const Sample&, const Exec&) {}
void nothing_golden(const Sample&, const Exec&, Reference*) {}

const Op& sample() {
  static const auto op = define<Sample>(
      {.contract = "none", .golden = nothing_golden, .fast = nothing, .make_inputs = number_rows, .cases = {"T=1"}, .bench_cases = {}});
  return *op;
}

Arguments good() {
  Arguments a;
  a.set("x", Tensor(bf16, {3, 8}));
  a.set("weight", Tensor(bf16, {8}));
  a.set("positions", Tensor(i64, {3}));
  a.set("scale", Tensor(f32, {5}));
  return a;
}

std::string error_of(Arguments a) {
  const auto error = helpers::error_in([&] { sample().run(a, {}); });
  if (!error) return {};
  EXPECT_EQ(error->op(), "sample");
  return error->what();
}

TEST(Call, AGoodCallAllocatesItsOutputByAttributeAndShape) {
  Arguments a = good();
  a.set_attr("dtype", std::string("F16"));
  sample().run(a, {});
  EXPECT_EQ(a.find("y")->dtype(), f16);
  EXPECT_EQ(a.find("y")->shape(), Dims({3, 8}));
}

TEST(Call, AClashNamesArgumentSymbolBothValuesAndWhereTheFirstCameFrom) {
  Arguments a = good();
  a.set("weight", Tensor(bf16, {7}));
  EXPECT_EQ(error_of(a), "sample: weight has shape [7], expected [Nq*head_size] with Nq = 2 (from x [3, 8]), head_size = 4");
}

TEST(Call, RanksPickTheAlternative) {
  Arguments a = good();
  a.set("x", Tensor(bf16, {3, 2, 4}));
  EXPECT_EQ(error_of(a), "");
  a.set("x", Tensor(bf16, {3, 2, 2, 2}));
  EXPECT_EQ(error_of(a), "sample: x has rank 4 (shape [3, 2, 2, 2]), expected [T, Nq*head_size] or [T, Nq, head_size]");
}

TEST(Call, DtypesAreHeldAgainstTheListTheTwinAndTheAttribute) {
  Arguments a = good();
  a.set("x", Tensor(i8, {3, 8}));
  EXPECT_EQ(error_of(a), "sample: x has dtype i8, expected one of bf16, f32");
  a = good();
  a.set("weight", Tensor(f32, {8}));
  EXPECT_EQ(error_of(a), "sample: weight has dtype f32, expected bf16 as x");
  a = good();
  a.set("y", Tensor(f16, {3, 8}));
  EXPECT_EQ(error_of(a), "sample: y has dtype f16, expected bf16 (from attribute dtype)");
}

TEST(Call, SymbolRulesNameTheSizeAndTheRule) {
  Arguments a = good();
  a.set("x", Tensor(bf16, {3, 12}));
  a.set("weight", Tensor(bf16, {12}));
  EXPECT_EQ(error_of(a), "sample: x has shape [3, 12]: Nq = 3, expected a multiple of 2");
}

TEST(Call, PositionsOutOfRangeAreFoundBeforeAnythingRuns) {
  Arguments a = good();
  a.find("positions")->as<std::int64_t>()[1] = 5;
  EXPECT_EQ(error_of(a), "sample: positions holds 5 at element 1, expected 0 to 4 (below P = 5)");
  a = good();
  a.find("positions")->as<std::int64_t>()[2] = -1;
  EXPECT_NE(error_of(a).find("holds -1 at element 2"), std::string::npos);
}

TEST(Call, NanScalesAreRejected) {
  Arguments a = good();
  a.find("scale")->as<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(error_of(a), "sample: scale holds NaN at element 3, expected a scale");
}

TEST(Call, LayoutAndAlignmentAreChecked) {
  Arguments a = good();
  a.set("weight", make_strided(bf16, {8}, {2}));
  EXPECT_EQ(error_of(a), "sample: weight has strides [2] for shape [8], expected contiguous");
  a = good();
  a.set("x", Tensor(bf16, {3, 9}).slice(1, 1, 9));
  EXPECT_EQ(error_of(a), "sample: x begins 2 bytes past a multiple of 16, expected 16-byte alignment");
  a = good();
  a.set("x", Tensor(static_cast<void*>(nullptr), bf16, {3, 8}));
  EXPECT_NE(error_of(a).find("null pointer"), std::string::npos);
}

TEST(Call, OutputsMayNotShareMemoryOrOverlapThemselvesOrBeReadOnly) {
  Arguments a = good();
  a.set("y", *a.find("x"));
  EXPECT_EQ(error_of(a), "sample: y shares memory with x, expected separate memory");
  a = good();
  a.set("y", Tensor(bf16, {8}).slice(0, 0, 8));
  EXPECT_NE(error_of(a).find("has rank 1"), std::string::npos);
  a = good();
  const Tensor row(bf16, {8});
  a.set("y", Tensor(row.data(), bf16, {3, 8}, {0, 1}));
  EXPECT_NE(error_of(a).find("its own elements overlap"), std::string::npos);
  a = good();
  a.set("y", Tensor(bf16, {3, 8}).read_only());
  EXPECT_EQ(error_of(a), "sample: y is read-only, expected writable memory");
}

TEST(Call, UnknownAndMissingNamesAreNamed) {
  Arguments a = good();
  a.set("wieght", Tensor(bf16, {8}));
  EXPECT_EQ(error_of(a),
            "sample: wieght is not an argument of this op; its tensors are x, weight, positions, scale, extra, wish, y, twice");
  a = good();
  a.set_attr("epsilon", 1.0);
  EXPECT_EQ(error_of(a), "sample: epsilon is not an attribute of this op; its attributes are eps, head_size, order, dtype, double_it");
  a = good();
  a.tensors.erase(a.tensors.begin());
  EXPECT_EQ(error_of(a), "sample: x is missing");
}

TEST(Call, AttributesAreTypedAndRanged) {
  const auto with = [](const char* name, AttrValue value) {
    Arguments a = good();
    a.set_attr(name, std::move(value));
    return error_of(a);
  };
  EXPECT_EQ(with("eps", -1.0), "sample: eps must be at least 0, got -1");
  EXPECT_EQ(with("eps", std::numeric_limits<double>::quiet_NaN()), "sample: eps must be a number, got NaN");
  EXPECT_EQ(with("eps", std::int64_t{1}), "");
  EXPECT_EQ(with("eps", std::string("small")), "sample: eps must be a number, got small");
  EXPECT_EQ(with("head_size", std::int64_t{0}), "sample: head_size must be from 1 to 1024, got 0");
  EXPECT_EQ(with("head_size", 2.5), "sample: head_size must be a whole number, got 2.5");
  EXPECT_EQ(with("order", std::string("loose")), "sample: order must be one of fused, rounded, got 'loose'");
  EXPECT_EQ(with("dtype", std::string("f64")), "sample: dtype must be one of bf16, f16, got f64");
  EXPECT_EQ(with("dtype", std::string("f12")), "sample: dtype must be a dtype, got f12");
}

TEST(Call, NothingIsWrittenWhenValidationFails) {
  Arguments a = good();
  const Tensor y(bf16, {3, 8});
  a.set("y", y);
  a.find("positions")->as<std::int64_t>()[0] = 99;
  EXPECT_NE(error_of(a), "");
  for (int i = 0; i < 24; ++i) EXPECT_EQ(y.as<std::uint16_t>()[i], 0);
}

TEST(Call, SchemasThatContradictThemselvesAreBugs) {
  const OpInfo info{"broken", Category::utility, Source::torch};
  OpSchema schema;
  schema.tensors.push_back({});
  schema.tensors.back().name = "x";
  schema.tensors.back().same_dtype_as = "nothing";
  schema.tensors.back().shape = "T";
  EXPECT_THROW(compile(info, schema), std::logic_error);
}

/// What is wrong with an op of one tensor as `change` leaves it; empty when nothing is.
template <class Change>
std::string flaw_of(const Change& change) {
  const OpInfo info{"flawed", Category::utility, Source::torch};
  OpSchema schema;
  SchemaWriter writer(schema);
  Tensor unused;
  writer.in("x", unused, {u8}, "T").doc("bytes");
  try {
    change(schema, writer);
    compile(info, schema);
    require_complete(info, schema, false, false);
  } catch (const std::logic_error& error) {
    EXPECT_NE(std::string(error.what()).find("flawed"), std::string::npos) << "the op is not named";
    return error.what();
  }
  return {};
}

TEST(Call, ASchemaThatLeavesOutWhatItMustSayIsABug) {
  using Writer = SchemaWriter;
  Tensor t;
  bool flag = false;
  EXPECT_EQ(flaw_of([](OpSchema&, Writer&) {}), "");
  EXPECT_NE(flaw_of([&](OpSchema&, Writer& op) { op.in("w", t, {f32}, "T"); }).find("w has no description"), std::string::npos);
  EXPECT_NE(flaw_of([&](OpSchema&, Writer& op) { op.attr("a", flag); }).find("a has no description"), std::string::npos);
  EXPECT_NE(flaw_of([&](OpSchema&, Writer& op) { op.in("w", t, {f32}, "T").codes(f4_e2m1).doc("w"); }).find("made of no integers"),
            std::string::npos);
  EXPECT_NE(flaw_of([&](OpSchema&, Writer& op) { op.in("w", t, {f32}, "T").scales("q", 1, 16).doc("w"); }).find("no tensor q"),
            std::string::npos);
  EXPECT_NE(flaw_of([&](OpSchema&, Writer& op) { op.in("w", t, {i32}, "T").kin("ones").doc("w"); }).find("no make_inputs"),
            std::string::npos);
  EXPECT_NE(flaw_of([&](OpSchema&, Writer& op) { op.out("w", t, {i32}, "T").judged(Judge::top_k).doc("w"); }).find("no condition"),
            std::string::npos);
}

TEST(Call, MoreFieldsThanACallHoldsAreABugOfTheSchemaAndNeverAnOverflow) {
  Tensor t;
  const auto many = [&](int count, auto& op) {
    for (int i = 1; i < count; ++i) op.in("t" + std::to_string(i), t, {f32}, "T").doc("one more");
  };
  EXPECT_EQ(flaw_of([&](OpSchema&, SchemaWriter& op) { many(Fields::capacity, op); }), "");
  EXPECT_NE(flaw_of([&](OpSchema&, SchemaWriter& op) { many(Fields::capacity + 1, op); }).find("more than"), std::string::npos);
  Fields fields;
  FieldCollector collector(fields);
  for (int i = 0; i < Fields::capacity; ++i) collector.in("t", t, {f32}, "T");
  EXPECT_THROW(collector.in("t", t, {f32}, "T"), std::logic_error);
  EXPECT_GE(Fields::capacity, 40) << "fused mixtures of experts have 20 tensors, and may have twice as many";
}

/// Names of the tensors that the line's call has, outputs that it does not make left out.
std::set<std::string> planned(const std::string& options) {
  std::set<std::string> names;
  const CaseLine line = parse_case_line("sample T=3 Nq=2 P=5" + options);
  for (const PlannedTensor& tensor : plan(Sample::info, sample().schema(), line, line.attrs)) names.insert(tensor.spec->name);
  return names;
}

std::string plan_error(const std::string& options) {
  return helpers::message_in([&] { planned(options); });
}

TEST(Presence, IsAsTheLineSaysAndElseAsItsSizesSay) {
  EXPECT_EQ(planned("").count("extra"), 0u);
  EXPECT_EQ(planned(" E=2").count("extra"), 1u);
  EXPECT_EQ(planned(" E=2 --without extra").count("extra"), 0u);
  EXPECT_EQ(planned("").count("wish"), 0u) << "only on request, though its size is known";
  EXPECT_EQ(planned(" --with wish").count("wish"), 1u);
}

TEST(Presence, ThatCannotBeIsOneErrorThatNamesTheArgument) {
  EXPECT_EQ(plan_error(" --with extra"), "sample: extra has shape [T, E], and the given sizes do not determine E");
  EXPECT_EQ(plan_error(" --without x"), "sample: x is not optional, --without names it");
  EXPECT_EQ(plan_error(" --with x"), "sample: x is not optional, --with names it");
  EXPECT_EQ(plan_error(" --without nothing"), "sample: nothing is not an argument of this op, --without names it");
  EXPECT_EQ(plan_error(" --without twice"), "sample: twice is an output that attribute double_it asks for, --without names it");
}

/// The call that the line describes is that of all its words, or it is none.
TEST(Presence, SizesAndTypesThatNoTensorReadsAreErrorsThatNameThem) {
  const auto error_of = [](const std::string& text) {
    const CaseLine line = parse_case_line(text);
    const Op& op = registry().at(line.op);
    return helpers::message_in([&] { plan(op.info(), op.schema(), line, line.attrs); });
  };
  EXPECT_EQ(plan_error(" X=1"), "sample: X is not a size of this op; its sizes are T, Nq, P, E");
  EXPECT_EQ(plan_error(" head_size=8"), "sample: head_size is an attribute of this op, expected --attr head_size=8 instead of a size");
  EXPECT_EQ(plan_error(" --dtype weight=f32"), "sample: weight cannot be f32, expected bf16 as x");
  EXPECT_EQ(error_of("silu_and_mul T=2 D=8 --dtype out=f32"), "silu_and_mul: out cannot be f32, expected bf16 as input");
  EXPECT_EQ(error_of("rotary_embedding T=4 B=2 P=9 R=8 Nq=2 Nk=1 --attr head_size=8"),
            "rotary_embedding: B is a size of no tensor of this call; their sizes are T, Nq, Nk, P, R");
  EXPECT_THROW(parse_case_line("rmsnorm T=2 H=8 --dtype weight=bf16 --dtype weight=f16"), Error);
  EXPECT_EQ(error_of("trtllm_bf16_moe T=2 H=128 --without routing_bias --dtype routing_bias=f32 --attr num_experts=4 --attr top_k=2 "
                     "--attr intermediate_size=128 --attr local_num_experts=4"),
            "trtllm_bf16_moe: routing_bias is not in this call, --dtype says that it is f32");
}

TEST(Presence, OfSeveralShapesThatIsTakenWhichHasAllGivenSizes) {
  const auto shape_of = [](const std::string& sizes, const char* argument) {
    const CaseLine line = parse_case_line("transfer_kv_per_layer n=2 Ss=4 Sd=5 " + sizes);
    const Op& op = registry().at(line.op);
    for (const PlannedTensor& tensor : plan(op.info(), op.schema(), line, line.attrs))
      if (tensor.spec->name == argument) return to_string(tensor.shape);
    return std::string();
  };
  EXPECT_EQ(shape_of("D=8", "dst_v"), "[5, 8]");
  EXPECT_EQ(shape_of("H=3 D=8", "dst_v"), "[5, 3, 8]");
  EXPECT_EQ(shape_of("H=3 D=8", "src_k"), "[4, 3, 8]");
}

TEST(Kinship, InputsAreMadeOfOthersBeforeAnythingIsValidated) {
  Arguments a = good();
  a.set("wish", Tensor(i32, {3}));
  sample().make_inputs(a, 7);
  EXPECT_EQ(a.find("wish")->as<std::int32_t>()[2], 9);
}

TEST(StorageOf, CodesAreElementsOverTheSameMemory) {
  const Tensor bytes(u8, {2, 3});
  bytes.as<std::uint8_t>()[4] = 0xA5;
  const Tensor codes = as_codes(bytes, Storage{f4_e2m1, {}});
  EXPECT_EQ(codes.shape(), (Dims{2, 6}));
  EXPECT_EQ(quant::get_bits(codes, 8), 0x5u) << "the first code is in the low nibble";
  EXPECT_EQ(quant::get_bits(codes, 9), 0xAu);
  quant::set_bits(codes, 0, 7);
  EXPECT_EQ(bytes.as<std::uint8_t>()[0], 7);
  EXPECT_EQ(as_codes(bytes, {}).dtype(), u8) << "what the schema does not call codes is none";
}

TEST(StorageOf, IsToldInWords) {
  const auto told = [](const Storage& storage) { return to_string(storage); };
  EXPECT_EQ(told({}), "");
  EXPECT_EQ(told({f4_e2m1, {}}), "f4_e2m1 codes, two a byte, the even column in the low nibble");
  EXPECT_EQ(told({{}, Storage::Scales{"a", 0, 0}}), "the scale of a");
  EXPECT_EQ(told({{}, Storage::Scales{"a", 1, 0}}), "a scale for each row of a");
  EXPECT_EQ(told({{}, Storage::Scales{"a", 128, 128, ScaleOrder::m_major}}), "a scale for 128 x 128 elements of a, group by group");
}

TEST(Registry, NamesAreThoseOfTheOps) {
  const auto entries = registry().entries();
  const auto all = registry().all();
  ASSERT_EQ(entries.size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(entries[i].name, all[i]->name());
    EXPECT_EQ(registry().find(entries[i].name), all[i].get());
  }
}

TEST(Registry, MakesAnOpWhenItIsAskedForAndOnce) {
  static int made = 0;
  const auto make = []() -> std::unique_ptr<Op> { return ++made, op_rmsnorm(); };
  const Registry::Entry entries[] = {{"rmsnorm", make}, {"linear", [] { return op_linear(); }}};
  const Registry registry(entries);
  EXPECT_EQ(registry.find("silu_and_mul"), nullptr);
  EXPECT_EQ(registry.at("linear").name(), "linear");
  EXPECT_THROW(registry.at("rmsnrom"), Error);
  EXPECT_EQ(made, 0);
  const Op* const op = registry.find("rmsnorm");
  EXPECT_EQ(made, 1);
  EXPECT_EQ(registry.all()[0].get(), op);
  EXPECT_EQ(made, 1);
}

TEST(Registry, UnknownOpsNameTheNearest) {
  const Error error = helpers::error_from([&] { registry().at("rmsnrom"); });
  EXPECT_EQ(error.code(), ErrorCode::unknown_op);
  EXPECT_STREQ(error.what(), "there is no op 'rmsnrom'; did you mean rmsnorm?");
}

}  // namespace
}  // namespace dodona
