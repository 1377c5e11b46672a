// The C interface: what bad calls get, many threads at once, and what the shared library shows.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "dodona/c.h"
#include "dodona/op.h"
#include "oracle/cases/case_file.h"
#include "tests/temp_folder.h"

namespace {

/// A correct rmsnorm call in fp32, to be spoiled.
struct Call {
  std::vector<float> x = std::vector<float>(2 * 8, 1), w = std::vector<float>(8, 2), y = std::vector<float>(2 * 8, -1);
  std::array<dodona_tensor, 3> tensors{{{"input", x.data(), DODONA_F32, 2, {2, 8}, 0, {}},
                                        {"weight", w.data(), DODONA_F32, 1, {8}, 0, {}},
                                        {"output", y.data(), DODONA_F32, 2, {2, 8}, 0, {}}}};
  std::vector<dodona_attr> attrs;
  dodona_exec exec{DODONA_FAST, 1, nullptr};

  int run() { return dodona_run("rmsnorm", tensors.data(), tensors.size(), attrs.data(), attrs.size(), &exec, nullptr); }
  void refused(int status, const std::string& argument, const std::string& words) {
    EXPECT_EQ(run(), status) << dodona_last_error();
    EXPECT_EQ(dodona_last_error_code(), status);
    EXPECT_EQ(dodona_last_error_argument(), argument);
    EXPECT_NE(std::string(dodona_last_error()).find(words), std::string::npos) << dodona_last_error();
    for (const float value : y) EXPECT_EQ(value, -1) << "something was written";
  }
};

TEST(CApi, NullPointersGiveCodes) {
  Call call;
  EXPECT_EQ(dodona_run(nullptr, nullptr, 0, nullptr, 0, nullptr, nullptr), DODONA_BAD_CALL);
  EXPECT_EQ(dodona_run("rmsnorm", nullptr, 3, nullptr, 0, nullptr, nullptr), DODONA_BAD_CALL);
  EXPECT_EQ(dodona_run("rmsnorm", call.tensors.data(), 3, nullptr, 1, nullptr, nullptr), DODONA_BAD_CALL);
  EXPECT_EQ(dodona_run("rmsnorm", call.tensors.data(), ~std::size_t{0}, nullptr, 0, nullptr, nullptr), DODONA_BAD_CALL);
  EXPECT_EQ(dodona_case_from_line(nullptr, nullptr, nullptr), DODONA_BAD_CALL);
  EXPECT_EQ(dodona_case_from_line("rmsnorm T=1 H=8", nullptr, nullptr), DODONA_BAD_CALL);
  dodona_case* c = nullptr;
  EXPECT_EQ(dodona_case_from_line(nullptr, nullptr, &c), DODONA_BAD_CALL);
  EXPECT_EQ(dodona_case_load(nullptr, nullptr, &c), DODONA_BAD_CALL);
  EXPECT_EQ(dodona_case_from_call(nullptr, nullptr, 0, nullptr, 0, &c), DODONA_BAD_CALL);
  EXPECT_EQ(c, nullptr);
  EXPECT_EQ(dodona_case_save(nullptr, "x", 0, nullptr), DODONA_BAD_CALL);
  EXPECT_EQ(dodona_case_op(nullptr), nullptr);
  EXPECT_EQ(dodona_case_inputs(nullptr), nullptr);
  dodona_tensors* outputs = nullptr;
  EXPECT_EQ(dodona_case_run(nullptr, nullptr, &outputs), DODONA_BAD_CALL);
  dodona_verdict* verdict = nullptr;
  EXPECT_EQ(dodona_case_check(nullptr, nullptr, 0, nullptr, &verdict), DODONA_BAD_CALL);
  EXPECT_EQ(dodona_tensors_count(nullptr), 0U);
  dodona_tensor view;
  EXPECT_EQ(dodona_tensors_get(nullptr, 0, &view), DODONA_BAD_CALL);
  EXPECT_EQ(dodona_op_schema(nullptr), nullptr);
  EXPECT_FALSE(dodona_verdict_passes(nullptr));
  EXPECT_STREQ(dodona_verdict_text(nullptr), "");
  EXPECT_STREQ(dodona_verdict_html(nullptr), "");
  dodona_case_free(nullptr);
  dodona_tensors_free(nullptr);
  dodona_verdict_free(nullptr);
}

TEST(CApi, WhatIsWrongWithATensorIsSaidOfIt) {
  const auto spoiled = [](auto spoil, int status, const std::string& argument, const std::string& words) {
    Call call;
    spoil(call);
    call.refused(status, argument, words);
  };
  spoiled([](Call& c) { c.tensors[0].name = nullptr; }, DODONA_BAD_CALL, "", "name");
  spoiled([](Call& c) { c.tensors[0].name = "imput"; }, DODONA_UNKNOWN_ARGUMENT, "imput", "input");
  spoiled([](Call& c) { c.tensors[1].name = "input"; }, DODONA_UNKNOWN_ARGUMENT, "input", "twice");
  spoiled([](Call& c) { c.tensors[0].data = nullptr; }, DODONA_BAD_VALUE, "input", "null pointer");
  spoiled([](Call& c) { c.tensors[0].dtype = 99; }, DODONA_BAD_DTYPE, "input", "99");
  spoiled([](Call& c) { c.tensors[0].dtype = -1; }, DODONA_BAD_DTYPE, "input", "-1");
  spoiled([](Call& c) { c.tensors[0].dtype = DODONA_I32; }, DODONA_BAD_DTYPE, "input", "i32");
  spoiled([](Call& c) { c.tensors[0].rank = 7; }, DODONA_BAD_SHAPE, "input", "rank 7");
  spoiled([](Call& c) { c.tensors[0].rank = -1; }, DODONA_BAD_SHAPE, "input", "rank -1");
  spoiled([](Call& c) { c.tensors[0].shape[0] = -2; }, DODONA_BAD_SHAPE, "input", "negative");
  spoiled([](Call& c) { c.tensors[0].shape[0] = PTRDIFF_MAX; }, DODONA_BAD_SHAPE, "input", "too many");
  spoiled([](Call& c) { c.tensors[1].shape[0] = 7; }, DODONA_BAD_SHAPE, "weight", "expected [H]");
  spoiled([](Call& c) { c.tensors[2].flags = DODONA_READ_ONLY; }, DODONA_BAD_VALUE, "output", "read-only");
  spoiled([](Call& c) { c.tensors[2].data = c.x.data(), c.tensors[2].shape[1] = 7; }, DODONA_BAD_SHAPE, "output", "[2, 7]");
  spoiled([](Call& c) { c.tensors[0].flags = DODONA_STRIDED, c.tensors[0].strides[0] = 1, c.tensors[0].strides[1] = 2; }, DODONA_BAD_STRIDE,
          "input", "inner stride of 1");
  spoiled([](Call& c) { c.attrs = {{"epsilon", nullptr, 1}}; }, DODONA_UNKNOWN_ARGUMENT, "epsilon", "eps");
  spoiled([](Call& c) { c.attrs = {{nullptr, nullptr, 1}}; }, DODONA_BAD_CALL, "", "name");
  spoiled([](Call& c) { c.attrs = {{"eps", "many", 0}}; }, DODONA_BAD_VALUE, "eps", "many");
  spoiled([](Call& c) { c.attrs = {{"eps", nullptr, -1}}; }, DODONA_BAD_VALUE, "eps", "at least");
  spoiled([](Call& c) { c.attrs = {{"enable_pdl", nullptr, 2}}; }, DODONA_BAD_VALUE, "enable_pdl", "true or false");
  spoiled([](Call& c) { c.exec.mode = 99; }, DODONA_BAD_CALL, "", "mode 99");
  spoiled([](Call& c) { c.exec.threads = -1; }, DODONA_BAD_CALL, "", "threads");
  spoiled([](Call& c) { c.exec.isa = "z80"; }, DODONA_BAD_OPTION, "isa", "z80");
}

/// Inputs of a case line, by name.
struct Inputs {
  explicit Inputs(const char* line) {
    EXPECT_EQ(dodona_case_from_line(line, nullptr, &made), DODONA_OK) << dodona_last_error();
    const dodona_tensors* const inputs = dodona_case_inputs(made);
    for (std::size_t i = 0; i < dodona_tensors_count(inputs); ++i) dodona_tensors_get(inputs, i, &all.emplace_back());
  }
  ~Inputs() { dodona_case_free(made); }
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;
  std::vector<dodona_tensor> named(const std::set<std::string>& names, bool wanted) const {
    std::vector<dodona_tensor> list;
    for (const dodona_tensor& tensor : all)
      if ((names.count(tensor.name) != 0) == wanted) list.push_back(tensor);
    return list;
  }
  dodona_case* made = nullptr;
  std::vector<dodona_tensor> all;
};
std::vector<std::byte> take_bytes(dodona_tensors* made) {
  dodona_tensor view;
  EXPECT_EQ(dodona_tensors_get(made, 0, &view), DODONA_OK);
  const auto* const begin = static_cast<const std::byte*>(view.data);
  std::vector<std::byte> bytes(begin, begin + view.shape[0] * view.shape[1] * 2);
  dodona_tensors_free(made);
  return bytes;
}

TEST(CApi, PreparedWeightsGiveTheBitsOfRawOnes) {
  const Inputs inputs("cutlass_fp4_group_mm M=40 N=32 K=96 E=4 R=512");
  const char* const op = "cutlass_fp4_group_mm";
  const auto weights = inputs.named({"b_fp4", "b_blockscale"}, true), rest = inputs.named({"b_fp4", "b_blockscale"}, false);
  dodona_tensors* made = nullptr;
  ASSERT_EQ(dodona_run(op, inputs.all.data(), inputs.all.size(), nullptr, 0, nullptr, &made), DODONA_OK) << dodona_last_error();
  const auto expected = take_bytes(made);

  dodona_prepared* whole = nullptr;
  ASSERT_EQ(dodona_prepare(op, weights.data(), weights.size(), nullptr, &whole), DODONA_OK) << dodona_last_error();
  ASSERT_EQ(dodona_run_prepared(op, whole, rest.data(), rest.size(), nullptr, 0, nullptr, &made), DODONA_OK) << dodona_last_error();
  EXPECT_EQ(take_bytes(made), expected);
  EXPECT_EQ(dodona_prepared_bytes(whole), 4U * 32 / 16 * 2 * 576);

  std::array<dodona_prepared*, 4> parts{};
  const std::array<std::size_t, 4> index{3, 2, 1, 0};
  for (std::size_t i = 0; i < 4; ++i) {
    auto part = weights;
    for (dodona_tensor& tensor : part) {
      tensor.shape[0] = 1;
      tensor.data = static_cast<std::byte*>(tensor.data) + static_cast<std::ptrdiff_t>(index[i]) * tensor.shape[1] * tensor.shape[2];
    }
    ASSERT_EQ(dodona_prepare(op, part.data(), part.size(), nullptr, &parts[i]), DODONA_OK) << dodona_last_error();
  }
  dodona_prepared* gathered = nullptr;
  ASSERT_EQ(dodona_prepared_gather(4, index.data(), parts.data(), 4, &gathered), DODONA_OK) << dodona_last_error();
  for (dodona_prepared* part : parts) dodona_prepared_free(part);
  ASSERT_EQ(dodona_run_prepared(op, gathered, rest.data(), rest.size(), nullptr, 0, nullptr, &made), DODONA_OK) << dodona_last_error();
  EXPECT_EQ(take_bytes(made), expected);

  // Bad use: one status each, and words.
  const auto refused = [&](int got, int status, const char* words) {
    EXPECT_EQ(got, status);
    EXPECT_NE(std::string(dodona_last_error()).find(words), std::string::npos) << dodona_last_error();
    EXPECT_EQ(made, nullptr);
  };
  const dodona_exec golden{DODONA_GOLDEN, 1, nullptr};
  refused(dodona_run_prepared(op, whole, rest.data(), rest.size(), nullptr, 0, &golden, &made), DODONA_UNSUPPORTED, "golden mode needs");
  refused(dodona_run_prepared(op, nullptr, rest.data(), rest.size(), nullptr, 0, nullptr, &made), DODONA_BAD_CALL, "prepared");
  refused(dodona_run_prepared("cutlass_scaled_fp4_mm", whole, nullptr, 0, nullptr, 0, nullptr, &made), DODONA_BAD_VALUE,
          "prepared holds weights of cutlass_fp4_group_mm, expected those of this op");
  refused(dodona_run_prepared(op, whole, inputs.all.data(), inputs.all.size(), nullptr, 0, nullptr, &made), DODONA_UNKNOWN_ARGUMENT,
          "is given, and prepared weights stand for it");
  dodona_prepared* none = nullptr;
  EXPECT_EQ(dodona_prepare(op, weights.data(), 1, nullptr, &none), DODONA_MISSING_ARGUMENT);
  EXPECT_EQ(dodona_prepare("rmsnorm", nullptr, 0, nullptr, &none), DODONA_UNSUPPORTED);
  EXPECT_EQ(dodona_prepare(op, weights.data(), 2, nullptr, nullptr), DODONA_BAD_CALL);
  EXPECT_EQ(dodona_prepared_gather(4, nullptr, nullptr, 1, &none), DODONA_BAD_CALL);
  EXPECT_EQ(dodona_prepared_gather(2, index.data(), &whole, 1, &none), DODONA_BAD_CALL);
  EXPECT_EQ(dodona_prepared_gather(4, index.data(), &whole, 1, &none), DODONA_BAD_SHAPE);
  EXPECT_EQ(dodona_prepared_gather(4, nullptr, nullptr, 0, &none), DODONA_MISSING_ARGUMENT);
  EXPECT_EQ(none, nullptr);
  dodona_prepared_free(whole);
  dodona_prepared_free(gathered);
  dodona_prepared_free(nullptr);
  EXPECT_EQ(dodona_prepared_bytes(nullptr), 0U);
}

TEST(CApi, AttributesComeAsNumbersOrAsWords) {
  Call numbers, words;
  numbers.attrs = {{"eps", nullptr, 0.5}, {"enable_pdl", nullptr, 1}};
  words.attrs = {{"eps", "0.5", 0}, {"enable_pdl", "true", 0}, {"weight_order", "fused", 0}};
  ASSERT_EQ(numbers.run(), DODONA_OK) << dodona_last_error();
  ASSERT_EQ(words.run(), DODONA_OK) << dodona_last_error();
  EXPECT_EQ(numbers.y, words.y);
}

TEST(CApi, StridesAreElements) {
  Call dense, strided;
  std::vector<float> wide(2 * 12, 99);
  for (int i = 0; i < 16; ++i)
    dense.x[static_cast<std::size_t>(i)] = wide[static_cast<std::size_t>(i / 8 * 12 + i % 8)] = static_cast<float>(i);
  strided.tensors[0].data = wide.data();
  strided.tensors[0].flags = DODONA_STRIDED;
  strided.tensors[0].strides[0] = 12;
  strided.tensors[0].strides[1] = 1;
  ASSERT_EQ(dense.run(), DODONA_OK);
  ASSERT_EQ(strided.run(), DODONA_OK) << dodona_last_error();
  EXPECT_EQ(dense.y, strided.y);
}

TEST(CApi, LastErrorsBelongToTheirThread) {
  EXPECT_EQ(dodona_op_schema("here"), nullptr);
  std::thread([] {
    EXPECT_EQ(dodona_last_error_code(), DODONA_OK);
    EXPECT_STREQ(dodona_last_error(), "");
    EXPECT_EQ(dodona_op_schema("there"), nullptr);
    EXPECT_NE(std::string(dodona_last_error()).find("there"), std::string::npos);
  }).join();
  EXPECT_NE(std::string(dodona_last_error()).find("here"), std::string::npos);
}

TEST(CApi, CaseLinesAndFilesThatCannotBe) {
  dodona_case* c = nullptr;
  EXPECT_EQ(dodona_case_from_line("", nullptr, &c), DODONA_BAD_OPTION);
  EXPECT_EQ(dodona_case_from_line("nothing T=1", nullptr, &c), DODONA_UNKNOWN_OP);
  EXPECT_EQ(dodona_case_from_line("rmsnorm T=1", nullptr, &c), DODONA_BAD_SHAPE);
  EXPECT_EQ(dodona_case_from_line("rmsnorm T=1099511627776 H=1099511627776", nullptr, &c), DODONA_BAD_SHAPE) << dodona_last_error();
  EXPECT_EQ(dodona_case_load("/no/such/file", nullptr, &c), DODONA_BAD_FILE);
  EXPECT_EQ(c, nullptr);
}

TEST(CApi, OutputsToJudgeMustBeThoseOfTheCall) {
  dodona_case* c = nullptr;
  ASSERT_EQ(dodona_case_from_line("rmsnorm T=2 H=8 --dtype input=f32", nullptr, &c), DODONA_OK);
  Call call;
  dodona_verdict* verdict = nullptr;
  EXPECT_EQ(dodona_case_check(c, nullptr, 0, nullptr, &verdict), DODONA_MISSING_ARGUMENT);
  EXPECT_EQ(dodona_case_check(c, call.tensors.data(), 1, nullptr, &verdict), DODONA_UNKNOWN_ARGUMENT);
  call.tensors[2].dtype = DODONA_I32;
  EXPECT_EQ(dodona_case_check(c, &call.tensors[2], 1, nullptr, &verdict), DODONA_BAD_DTYPE);
  call.tensors[2].dtype = DODONA_F32;
  call.tensors[2].shape[0] = 1;
  EXPECT_EQ(dodona_case_check(c, &call.tensors[2], 1, nullptr, &verdict), DODONA_BAD_SHAPE);
  EXPECT_EQ(verdict, nullptr);
  dodona_case_free(c);
}

TEST(CApi, ACaseOfOnesOwnInputsKeepsThem) {
  Call call;
  for (std::size_t i = 0; i < call.x.size(); ++i) call.x[i] = static_cast<float>(i) - 7;
  dodona_case* c = nullptr;
  ASSERT_EQ(dodona_case_from_call("rmsnorm", call.tensors.data(), 2, nullptr, 0, &c), DODONA_OK) << dodona_last_error();
  ASSERT_EQ(call.run(), DODONA_OK);
  std::fill(call.x.begin(), call.x.end(), 0.0F);
  dodona_verdict* verdict = nullptr;
  ASSERT_EQ(dodona_case_check(c, &call.tensors[2], 1, nullptr, &verdict), DODONA_OK) << dodona_last_error();
  EXPECT_TRUE(dodona_verdict_passes(verdict)) << dodona_verdict_text(verdict);
  dodona_verdict_free(verdict);
  dodona_case_free(c);
}

TEST(CApi, EveryOpHasASchemaWhoseParametersAreItsOwn) {
  for (std::size_t i = 0; i < dodona_op_count(); ++i) {
    const char* text = dodona_op_schema(dodona_op_name(i));
    ASSERT_NE(text, nullptr) << dodona_op_name(i) << ": " << dodona_last_error();
    const auto schema = nlohmann::json::parse(text);
    std::set<std::string> fields, seen;
    for (const char* kind : {"tensors", "attributes"})
      for (const auto& field : schema[kind]) fields.insert(field["name"].get<std::string>());
    for (const auto& parameter : schema["parameters"]) {
      const auto field = parameter["field"].get<std::string>();
      EXPECT_TRUE(field.empty() || fields.count(field)) << dodona_op_name(i) << " " << field;
      EXPECT_TRUE(seen.insert(parameter["name"].get<std::string>()).second) << dodona_op_name(i) << " " << parameter;
    }
  }
}

/// Everything at once, on shared and on own handles: results must be those of one thread, and thread sanitizers silent.
TEST(CApi, ManyThreadsAtOnce) {
  dodona_case* shared = nullptr;
  ASSERT_EQ(dodona_case_from_line("fused_add_rmsnorm T=3 H=64 --seed 3", nullptr, &shared), DODONA_OK);
  Call expected;
  ASSERT_EQ(expected.run(), DODONA_OK);
  std::vector<std::thread> threads;
  std::array<int, 8> passed{};
  for (std::size_t t = 0; t < passed.size(); ++t)
    threads.emplace_back([&, t] {
      const dodona_exec one{DODONA_FAST, 1, nullptr};
      for (int round = 0; round < 5; ++round) {
        Call call;
        const bool ran = call.run() == DODONA_OK && call.y == expected.y;
        dodona_tensors* outputs = nullptr;
        dodona_verdict* verdict = nullptr;
        std::array<dodona_tensor, 2> actual{};
        const bool judged = dodona_case_run(shared, &one, &outputs) == DODONA_OK &&
                            dodona_tensors_get(outputs, 0, &actual[0]) == DODONA_OK &&
                            dodona_tensors_get(outputs, 1, &actual[1]) == DODONA_OK &&
                            dodona_case_check(shared, actual.data(), 2, &one, &verdict) == DODONA_OK &&
                            dodona_verdict_passes(verdict) == 1 && std::strlen(dodona_verdict_html(verdict)) > 100;
        const std::string name = "op" + std::to_string(t);
        const bool refused = dodona_op_schema(name.c_str()) == nullptr && std::string(dodona_last_error()).find(name) != std::string::npos;
        passed[t] += ran && judged && refused ? 1 : 0;
        dodona_verdict_free(verdict);
        dodona_tensors_free(outputs);
      }
    });
  for (auto& thread : threads) thread.join();
  for (const int count : passed) EXPECT_EQ(count, 5);
  dodona_case_free(shared);
}

/// Every op runs from a case line through C, with the bytes that the library gives in C++.
TEST(CApi, EveryOpGivesTheSameBytesAsTheLibrary) {
  for (std::size_t i = 0; i < dodona_op_count(); ++i) {
    const dodona::Op& op = dodona::registry().at(dodona_op_name(i));
    const std::string line = std::string(op.name()) + " " + op.cases().front();
    dodona_case* c = nullptr;
    ASSERT_EQ(dodona_case_from_line(line.c_str(), nullptr, &c), DODONA_OK) << dodona_last_error();
    dodona_tensors* outputs = nullptr;
    const dodona_exec one{DODONA_FAST, 1, nullptr};
    ASSERT_EQ(dodona_case_run(c, &one, &outputs), DODONA_OK) << line << ": " << dodona_last_error();
    // Once more through dodona_run, with the case's inputs as the caller's own (what is written in place is written).
    std::vector<dodona_tensor> inputs(dodona_tensors_count(dodona_case_inputs(c)));
    for (std::size_t k = 0; k < inputs.size(); ++k) dodona_tensors_get(dodona_case_inputs(c), k, &inputs[k]);
    std::vector<dodona_attr> attrs;
    const auto json = nlohmann::json::parse(dodona_case_attrs(c));
    std::vector<std::string> names, texts;
    names.reserve(json.size()), texts.reserve(json.size());
    for (const auto& [name, value] : json.items()) {
      names.push_back(name);
      texts.push_back(value.is_string() ? value.get<std::string>() : value.dump());
      attrs.push_back({names.back().c_str(), texts.back().c_str(), 0});
    }
    dodona_tensors* made = nullptr;
    ASSERT_EQ(dodona_run(op.name().data(), inputs.data(), inputs.size(), attrs.data(), attrs.size(), &one, &made), DODONA_OK)
        << line << ": " << dodona_last_error();
    std::size_t compared = 0;
    for (std::size_t k = 0; k < dodona_tensors_count(outputs); ++k) {
      dodona_tensor by_case, by_run;
      dodona_tensors_get(outputs, k, &by_case);
      bool found = false;
      for (std::size_t m = 0; m < dodona_tensors_count(made) && !found; ++m)
        found = dodona_tensors_get(made, m, &by_run) == DODONA_OK && std::strcmp(by_run.name, by_case.name) == 0;
      for (const auto& input : inputs)
        if (!found && std::strcmp(input.name, by_case.name) == 0) by_run = input, found = true;
      ASSERT_TRUE(found) << line << " " << by_case.name;
      const dodona::Dims shape(
          std::span<const std::int64_t>(reinterpret_cast<const std::int64_t*>(by_case.shape), static_cast<std::size_t>(by_case.rank)));
      if (((by_case.flags | by_run.flags) & DODONA_STRIDED) != 0) continue;
      const auto bytes = dodona::bytes_for(static_cast<dodona::DType>(by_case.dtype), dodona::element_count(shape));
      EXPECT_EQ(by_case.dtype, by_run.dtype);
      if (bytes > 0) EXPECT_EQ(std::memcmp(by_case.data, by_run.data, static_cast<std::size_t>(bytes)), 0) << line << " " << by_case.name;
      ++compared;
    }
    EXPECT_GT(compared, 0U) << line;
    dodona_tensors_free(made);
    dodona_tensors_free(outputs);
    dodona_case_free(c);
  }
}

/// What `dodona generate` does, and how a caller stops it and goes on.
TEST(CApi, AModelIsContinuedAndStoppedAndGoneOnWith) {
  using nlohmann::json;
  const auto generate = [](json options, dodona_behind_layer behind, void* user) {
    dodona_record* record = nullptr;
    const int status = dodona_generate(options.dump().c_str(), behind, user, &record);
    const json told = status == DODONA_OK ? json::parse(dodona_record_text(record)) : json();
    EXPECT_EQ(record == nullptr, status != DODONA_OK);
    dodona_record_free(record);
    return std::pair(status, told);
  };
  const dodona::helpers::TempFolder folder;
  const json call{{"preset", "tiny"}, {"prompt_ids", {{5, 17, 3}, {1}}}, {"max_new", 3}, {"threads", 1}};
  const auto [status, plain] = generate(call, nullptr, nullptr);
  ASSERT_EQ(status, DODONA_OK) << dodona_last_error();
  ASSERT_EQ(plain["tokens"].size(), 2U);
  EXPECT_EQ(plain["tokens"][0].size(), 3U);
  EXPECT_EQ(plain["layers"], 9);

  json drafted = call;
  drafted.update(
      {{"speculative", "nextn"}, {"speculative_num_steps", 2}, {"speculative_eagle_topk", 2}, {"speculative_num_draft_tokens", 4}});
  EXPECT_EQ(generate(drafted, nullptr, nullptr).second["tokens"], plain["tokens"]);

  std::ptrdiff_t left = 5;
  const auto stop = [](std::ptrdiff_t, std::ptrdiff_t layers, void* user) {
    EXPECT_EQ(layers, 3);
    return --*static_cast<std::ptrdiff_t*>(user) == 0 ? 1 : 0;
  };
  json kept = call;
  kept["state"] = folder.file("state");
  EXPECT_EQ(generate(kept, stop, &left).first, DODONA_BAD_VALUE);
  EXPECT_NE(std::string(dodona_last_error()).find("stopped by its caller behind layer 1"), std::string::npos) << dodona_last_error();
  kept["resume"] = true;
  const json rest = generate(kept, nullptr, nullptr).second;
  EXPECT_EQ(rest["tokens"], plain["tokens"]);
  EXPECT_EQ(rest["layers"], 4);

  const auto refuses = [&](const json& options, const std::string& words) {
    EXPECT_NE(generate(options, nullptr, nullptr).first, DODONA_OK) << words;
    EXPECT_NE(std::string(dodona_last_error()).find(words), std::string::npos) << dodona_last_error();
  };
  refuses({{"preset", "tiny"}}, "prompt_ids");
  refuses({{"prompt_ids", {{1}}}, {"temprature", 1}}, "temprature is no option of generate");
  refuses({{"prompt_ids", {{1}}}, {"preset", "nothing"}}, "nothing");
  refuses({{"prompt_ids", {{512}}}}, "holds token 512");
  refuses({{"prompt_ids", {{1}}}, {"speculative_eagle_topk", 2}}, "is given without speculative");
  refuses({{"prompt_ids", {{1}}}, {"resume", true}}, "resume needs a state");
  refuses({{"prompt_ids", {1}}}, "prompt_ids");
  EXPECT_EQ(dodona_generate(nullptr, nullptr, nullptr, nullptr), DODONA_BAD_CALL);
}

TEST(CApi, TheSharedLibraryShowsTheCInterfaceAlone) {
  FILE* pipe = popen("nm -D --defined-only '" DODONA_LIBRARY "'", "r");
  ASSERT_NE(pipe, nullptr);
  std::array<char, 512> line;
  int shown = 0;
  while (std::fgets(line.data(), line.size(), pipe) != nullptr) {
    const std::string text = line.data();
    EXPECT_NE(text.find(" dodona_"), std::string::npos) << text;
    ++shown;
  }
  pclose(pipe);
  EXPECT_GT(shown, 30);
}

}  // namespace
