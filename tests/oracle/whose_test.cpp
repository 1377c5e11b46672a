// Which schedule made these outputs? Right ones are named, wrong ones never.
#include "oracle/schedules/whose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/case_line.h"
#include "dodona/error.h"
#include "oracle/cases/generate.h"
#include "oracle/cases/make_case.h"
#include "oracle/cases/window.h"
#include "oracle/report/check.h"
#include "quant/element.h"
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

bool names(const Whose& answer, const Schedule& schedule) {
  return std::any_of(answer.found.begin(), answer.found.end(), [&](const auto& group) {
    return std::any_of(group.begin(), group.end(), [&](const Schedule& s) { return name(s, true) == name(schedule, true); });
  });
}

TEST(Whose, EveryScheduleIsNamedByItsOutputs) {
  for (const std::string line :
       {"linear T=8 N=96 K=712 --attr out_dtype=f32", "linear T=8 N=256 K=512 --dist outliers",
        "bmm L=2 M=7 N=64 K=456 --attr out_dtype=f32", "bmm_fp8 L=2 M=8 N=64 K=400", "fp8_blockwise_scaled_mm M=12 N=256 K=512"}) {
    const Call call(line);
    for (const Schedule& schedule : schedules_of(call.op, call.inputs)) {
      const Whose answer = call.asked(call.outputs(schedule));
      EXPECT_TRUE(names(answer, schedule)) << line << ": " << name(schedule) << "\n" << text_of(answer);
      EXPECT_NE(answer.answer, WhoseAnswer::none);
      if (line.find("f32") != std::string::npos) EXPECT_EQ(answer.answer, WhoseAnswer::named) << line << "\n" << text_of(answer);
    }
  }
}

TEST(Whose, WhatNoScheduleGivesIsNobodys) {
  const Call call("linear T=8 N=96 K=712 --attr out_dtype=f32");
  EXPECT_EQ(call.asked(call.outputs(Mode::golden)).answer, WhoseAnswer::none);
  EXPECT_EQ(call.asked(call.outputs(Mode::fast)).answer, WhoseAnswer::none);

  // Three chunks, added from the last to the first: a kernel that there could be, and that is not declared.
  NamedTensors backwards;
  for (const std::int64_t begin : {512, 256, 0}) {
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
  EXPECT_EQ(name(answer.others.front().schedule), "split_k=3") << "the nearest is told, without an accusation";
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
  EXPECT_EQ(name(answer.others.front().schedule), name(schedule));
  EXPECT_EQ(answer.others.front().differing, 1);
}

TEST(Whose, FewElementsLeaveSeveralAndSaySo) {
  const Call call("linear T=1 N=8 K=1024");
  const Schedule schedule = schedules_of(call.op, call.inputs)[4];
  const Whose answer = call.asked(call.outputs(schedule));
  EXPECT_EQ(answer.answer, WhoseAnswer::unsure);
  EXPECT_GT(answer.found.size(), 1U);
  EXPECT_TRUE(names(answer, schedule));
  EXPECT_NE(text_of(answer).find("more rows would"), std::string::npos);
}

TEST(Whose, SchedulesThatNoInputTellsApartAreOneAnswer) {
  // Five tiles in three or four chunks are chunks of two tiles.
  const Call call("linear T=8 N=96 K=320 --attr out_dtype=f32");
  const Whose answer = call.asked(call.outputs({Mode::hopper, {{"split_k", std::int64_t{4}}}}));
  EXPECT_EQ(answer.answer, WhoseAnswer::named);
  ASSERT_EQ(answer.found.size(), 1U);
  // A B200's unit adds bf16 as an H200's does.
  ASSERT_EQ(answer.found.front().size(), 4U);
  EXPECT_EQ(name(answer.found.front()[0]), "split_k=3");
  EXPECT_EQ(name(answer.found.front()[1]), "split_k=4");
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
  for (const std::string line : {"rmsnorm T=2 H=64", "linear T=2 N=8 K=256 --dtype weight=f32",
                                 "cutlass_mla_get_workspace_size --attr max_seq_len=64 --attr num_batches=1"}) {
    const Call call(line);
    try {
      call.asked(call.outputs(Mode::golden));
      ADD_FAILURE() << line;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported) << line;
      EXPECT_NE(std::string(error.what()).find("schedule"), std::string::npos) << error.what();
    }
  }
}

TEST(Whose, OutputsOfAnotherShapeAreRefused) {
  const Call call("linear T=4 N=16 K=256"), other("linear T=3 N=16 K=256");
  EXPECT_THROW(call.asked(other.outputs(Mode::hopper)), Error);
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
