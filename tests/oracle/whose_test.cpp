// Which schedule made these outputs? Right ones are named, wrong ones never.
#include "oracle/schedules/whose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/case_line.h"
#include "dodona/error.h"
#include "oracle/cases/generate.h"
#include "oracle/cases/make_case.h"
#include "oracle/cases/window.h"
#include "oracle/report/check.h"
#include "quant/element.h"
#include "tests/errors.h"
#include "tests/temp_folder.h"

namespace dodona::oracle {
namespace {

struct Call {
  const Op& op;
  Arguments inputs;

  explicit Call(const std::string& line) : op(registry().at(line.substr(0, line.find(' ')))), inputs(generate(parse_case_line(line))) {}

  NamedTensors outputs(Mode mode, const Schedule& schedule = {}) const {
    Arguments arguments = runnable(op, schedule.of(inputs));
    Exec exec;
    exec.mode = mode;
    op.run(arguments, exec);
    return outputs_of(op, arguments);
  }
  NamedTensors outputs(const Schedule& schedule) const { return outputs(schedule.mode, schedule); }
  Whose asked(const NamedTensors& actual) const { return whose(op, inputs, actual, {}); }
};

bool names(const Whose& answer, const std::string& machine_and_schedule) {
  const Op& op = registry().at(answer.op);
  return std::any_of(answer.found.begin(), answer.found.end(), [&](const auto& group) {
    return std::any_of(group.begin(), group.end(), [&](const Schedule& s) { return name(s, op, true) == machine_and_schedule; });
  });
}
bool names(const Whose& answer, const Schedule& schedule) {
  return names(answer, name(schedule, registry().at(answer.op), true));
}

struct Line {
  const char* line;
  std::size_t step;  ///< every so many schedules are tried
  bool tells;        ///< its outputs tell every schedule
};
const Line lines[] = {
    {"linear T=8 N=32 K=456 --attr out_dtype=f32", 29, true},
    {"linear T=8 N=256 K=512 --dist outliers", 61, false},
    {"bmm L=2 M=7 N=32 K=328 --attr out_dtype=f32", 29, true},
    {"bmm_fp8 L=2 M=8 N=64 K=400", 11, false},
    {"fp8_blockwise_scaled_mm M=12 N=256 K=512", 1, false},
    {"rmsnorm T=4 H=512", 1, false},
    {"fused_add_rmsnorm T=4 H=512", 1, false},
    {"silu_and_mul T=4 D=256", 1, true},
    {"gelu_tanh_and_mul T=4 D=2048", 1, false},
    {"sgl_per_token_group_quant_fp8 M=4 K=512", 1, false},
};

TEST(Whose, EverySchedulesOutputsAreFoundToBeItsOwn) {
  for (const Line& row : lines) {
    const Call call(row.line);
    const std::vector<Schedule> schedules = schedules_of(call.op, call.inputs);
    for (std::size_t i = 0; i < schedules.size(); i += row.step) {
      const Whose answer = call.asked(call.outputs(schedules[i]));
      EXPECT_TRUE(names(answer, schedules[i])) << row.line << ": " << name(schedules[i], call.op) << "\n" << text_of(answer);
      EXPECT_NE(answer.answer, WhoseAnswer::none);
      if (row.tells) EXPECT_EQ(answer.answer, WhoseAnswer::named) << row.line << "\n" << text_of(answer);
    }
  }
}

TEST(Whose, OpsWithSeveralSchedulesAreListedWithWhatTheyDifferIn) {
  const std::vector<Variety> all = varieties();
  const auto by = [&](const std::string& op) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Variety& variety) { return variety.op == op; });
    return found == all.end() ? std::vector<std::string>{} : found->by;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(by("linear"), (Names{"machine", "split_k", "chunk_order", "block_k", "chunks"}));
  EXPECT_EQ(by("silu_and_mul"), Names{"round_activation"});
  EXPECT_EQ(by("rmsnorm"), (Names{"weight_order", "kernel"}));
  EXPECT_EQ(by("gelu_and_mul"), Names{});
  // All others say in one line that there is one.
  for (const auto& op : registry().all()) {
    if (op->cases().empty() || !by(std::string(op->name())).empty()) continue;
    const Call call(std::string(op->name()) + " " + op->cases().front());
    const Error error = helpers::error_from([&] { schedules_of(call.op, call.inputs); });
    const std::string said = error.what();
    EXPECT_NE(said.find("schedule"), std::string::npos) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
}

TEST(Whose, OrdersOfAddingShowInF32AndAreLeftOpenBehindARounding) {
  const Schedule descending{Mode::hopper, {{"split_k", std::int64_t{5}}, {"chunk_order", std::string("descending")}}};
  const Call f32("linear T=8 N=64 K=1024 --attr out_dtype=f32"), bf16("bmm_fp8 L=1 M=16 N=64 K=1024");
  const Whose told = f32.asked(f32.outputs(descending));
  EXPECT_EQ(told.answer, WhoseAnswer::named) << text_of(told);
  EXPECT_EQ(told.found.size(), 1U);
  const Whose open = bf16.asked(bf16.outputs(descending));
  EXPECT_EQ(open.answer, WhoseAnswer::named) << text_of(open);
  EXPECT_TRUE(names(open, "hopper split_k=4 chunk_order=descending"))
      << text_of(open) << "eight tiles in five chunks are four chunks of two";
  EXPECT_TRUE(names(open, "hopper split_k=4")) << text_of(open);
}

TEST(Whose, WhatNoScheduleGivesIsNobodys) {
  const Call call("linear T=8 N=96 K=712 --attr out_dtype=f32");
  EXPECT_EQ(call.asked(call.outputs(Mode::golden)).answer, WhoseAnswer::none);
  EXPECT_EQ(call.asked(call.outputs(Mode::fast)).answer, WhoseAnswer::none);

  // Three chunks, the middle one last: a kernel that there could be, and that is not declared.
  NamedTensors backwards;
  for (const std::int64_t begin : {0, 512, 256}) {
    Arguments part = call.inputs;
    part.set("input", call.inputs.find("input")->slice(1, begin, std::min<std::int64_t>(begin + 256, 712)));
    part.set("weight", call.inputs.find("weight")->slice(1, begin, std::min<std::int64_t>(begin + 256, 712)));
    Exec exec;
    exec.mode = Mode::hopper;
    call.op.run(part, exec);
    const NamedTensors sums = outputs_of(call.op, part);
    if (backwards.empty()) {
      backwards = sums;
      continue;
    }
    float* const total = backwards.front().second.as<float>();
    for (std::int64_t i = 0; i < 8 * 96; ++i) total[i] += sums.front().second.as<float>()[i];
  }
  const Whose answer = call.asked(backwards);
  EXPECT_EQ(answer.answer, WhoseAnswer::none) << text_of(answer);
  EXPECT_FALSE(answer.others.empty()) << "the nearest is told, without an accusation";
  EXPECT_EQ(line_of(answer).find("no schedule of linear gives these bits"), 0U);
}

TEST(Whose, OneWrongElementIsEnough) {
  const Call call("bmm_fp8 L=2 M=8 N=64 K=400");
  const Schedule schedule = schedules_of(call.op, call.inputs).front();
  NamedTensors outputs = call.outputs(schedule);
  auto* const last = outputs.front().second.as<std::uint16_t>() + outputs.front().second.elements() - 1;
  *last = static_cast<std::uint16_t>(*last ^ 1);
  const Whose answer = call.asked(outputs);
  EXPECT_EQ(answer.answer, WhoseAnswer::none);
  EXPECT_EQ(name(answer.others.front().schedule, call.op), name(schedule, call.op));
  EXPECT_EQ(answer.others.front().differing, 1);
}

TEST(Whose, FewElementsLeaveSeveralAndSaySo) {
  const Call call("linear T=1 N=8 K=1024");
  const Schedule schedule = schedules_of(call.op, call.inputs)[4];
  const Whose answer = call.asked(call.outputs(schedule));
  EXPECT_EQ(answer.answer, WhoseAnswer::unsure);
  EXPECT_GT(answer.found.size(), 1U);
  EXPECT_TRUE(names(answer, schedule));
  EXPECT_NE(text_of(answer).find("undecided       these 8 elements do not tell them apart; more rows would: "), std::string::npos)
      << text_of(answer);
  EXPECT_GT(answer.apart.size(), 0U);
}

TEST(Whose, SchedulesThatNoInputTellsApartAreOneAnswer) {
  // Five tiles in three or four chunks are chunks of two tiles.
  const Call call("linear T=8 N=96 K=320 --attr out_dtype=f32");
  const Whose answer = call.asked(call.outputs({Mode::hopper, {{"split_k", std::int64_t{4}}}}));
  EXPECT_EQ(answer.answer, WhoseAnswer::named);
  ASSERT_EQ(answer.found.size(), 1U);
  // A B200's unit adds bf16 as an H200's does.
  ASSERT_EQ(answer.found.front().size(), 2U) << text_of(answer);
  EXPECT_EQ(name(answer.found.front()[0], call.op, true), "hopper split_k=3");
  EXPECT_EQ(name(answer.found.front()[1], call.op, true), "blackwell split_k=3");
  EXPECT_EQ(line_options(answer.found.front()[0], call.op), "--attr split_k=3");
}

TEST(Whose, OrdersOfScalesAreNotTakenForOneAnother) {
  // Few elements, in which both orders round alike: that they differ elsewhere is known.
  const Call call("fp8_blockwise_scaled_mm M=4 N=128 K=512");
  const Whose answer = call.asked(call.outputs(Mode::hopper));
  EXPECT_EQ(answer.answer, WhoseAnswer::unsure) << text_of(answer);
  EXPECT_EQ(answer.found.size(), 2U) << text_of(answer);
}

TEST(Whose, AskingForOneScheduleOrNoneIsRefused) {
  for (const std::string line : {"gelu_and_mul T=2 D=64", "linear T=2 N=8 K=256 --dtype weight=f32",
                                 "cutlass_mla_get_workspace_size --attr max_seq_len=64 --attr num_batches=1"}) {
    const Call call(line);
    const Error error = helpers::error_from([&] { call.asked(call.outputs(Mode::golden)); });
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << line;
    EXPECT_NE(std::string(error.what()).find("schedule"), std::string::npos) << error.what();
  }
}

TEST(Whose, OutputsOfAnotherShapeAreRefused) {
  const Call call("linear T=4 N=16 K=712"), other("linear T=3 N=16 K=712");
  const Error error = helpers::error_from([&] { call.asked(other.outputs(Mode::hopper)); });
  EXPECT_NE(std::string(error.what()).find("expected [4, 16]"), std::string::npos) << error.what();
}

TEST(Whose, AFailingCheckOfBitsSaysWhoseTheyAre) {
  Case c;
  const std::string line = "linear T=8 N=96 K=712 --attr out_dtype=f32";
  const Call call(line);
  c.op = &call.op;
  c.line = line;
  c.inputs = call.inputs;
  const CheckResult result = check(c, call.outputs({Mode::hopper, {{"split_k", std::int64_t{3}}}}), {Mode::hopper});
  EXPECT_EQ(result.outcome, Outcome::fail);
  EXPECT_EQ(result.whose, "these are the bits of hopper split_k=3 = blackwell split_k=3");
  const CheckResult right = check(c, call.outputs(Mode::hopper), {Mode::hopper});
  EXPECT_EQ(right.outcome, Outcome::pass);
  EXPECT_EQ(right.whose, "");
}

// ---- some rows of a call

TEST(Window, RowsOfACallAreACall) {
  const Call call("linear T=9 N=48 K=200 --seed 2");
  const Window window = parse_window("T=3..5");
  const Arguments part = windowed(call.op, call.inputs, window);
  EXPECT_EQ(part.find("input")->size(0), 2);
  EXPECT_EQ(part.find("weight")->size(0), 48);
  const Whose answer = whose(call.op, part, windowed(call.op, call.outputs(Mode::hopper), window), {});
  EXPECT_EQ(answer.elements, 2 * 48);
  EXPECT_TRUE(names(answer, {Mode::hopper, {{"split_k", std::int64_t{1}}}}));
}

TEST(Window, WhatCannotBeCutIsRefusedByName) {
  const Call call("linear T=9 N=48 K=200");
  for (const std::string text : {"K=0..64", "T=9..10", "T=0..100"})
    EXPECT_THROW(windowed(call.op, call.inputs, parse_window(text)), Error) << text;
  for (const std::string text : {"T", "T=1", "T=2..2", "T=3..1", "T=a..b", "=0..1", "T=-1..2"})
    EXPECT_THROW(parse_window(text), Error) << text;
}

TEST(Window, ARecordingOfSomeRowsIsItsLineAndTheOutputs) {
  const helpers::TempFolder folder;
  const std::string path = folder.path() + "/case.safetensors";
  const Call call("linear T=9 N=48 K=200 --attr split_k=2 --seed 2");
  Case recorded = recorded_case(parse_case_line("linear T=9 N=48 K=200 --attr split_k=2 --seed 2"), parse_window("T=4..9"), 1);
  recorded.outputs = windowed(call.op, call.outputs(Mode::hopper), recorded.window);
  save_case(recorded, path);
  EXPECT_LT(helpers::read_raw(path).size(), 3000U) << "inputs come from the line";
  const Case read = load_case(path);
  EXPECT_TRUE(read.recorded());
  ASSERT_EQ(read.outputs.front().second.size(0), 5);
  EXPECT_EQ(check(read, read.outputs, {Mode::hopper}).outcome, Outcome::pass);
  EXPECT_EQ(check(read, read.outputs, {Mode::golden}).outcome, Outcome::pass);
}

}  // namespace
}  // namespace dodona::oracle
