// The command `spec` as a user meets it.
#include "command.h"

namespace dodona::tools_test {
namespace {

class SpecCommand : public Command {};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(SpecCommand, TextsOfTemperatureZeroAreThoseOfPlainDecoding) {
  for (const char* arguments : {"spec", "spec --topk 3 --draft-tokens 9 --batch 3 --page-size 4 --agreement 0.3 --mode golden"}) {
    const Output result = run(arguments);
    EXPECT_EQ(result.status, 0) << arguments;
    EXPECT_TRUE(has(result.out, "equals plain greedy decoding")) << result.out;
    EXPECT_FALSE(has(result.out, "differs")) << result.out;
  }
}

TEST_F(SpecCommand, StepsAreThereAsJson) {
  const Output result = run("spec --tokens 8 --json");
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(has(result.out, "\"equals_plain_decoding\": true")) << result.out;
  EXPECT_TRUE(has(result.out, "\"accepted\""));
}

TEST_F(SpecCommand, ImpossibleDraftsAreRefused) {
  expect_error("spec --draft-tokens 9", "--draft-tokens is 9, expected 1 to 4");
  expect_error("spec --vocabulary 0", "--vocabulary is 0");
  expect_error("spec --vocabulary 2 --topk 4 --draft-tokens 8", "--topk is 4, expected at most 2, the tokens that there are");
}

TEST_F(SpecCommand, ValuesThatMeanNothingAreRefusedAsTheyWereTyped) {
  expect_error("spec --temperature -1", "--temperature is -1, expected a finite number from 0");
  expect_error("spec --temperature inf", "--temperature is inf, expected a finite number from 0");
  expect_error("spec --temperature nan", "--temperature is nan, expected a finite number from 0");
  expect_error("spec --end-token 64", "--end-token is 64, expected 0 to 63, or -1 for none");
  expect_error("spec --end-token -5", "--end-token is -5");
  for (const char* options : {"--temperature 1 ", ""}) {
    expect_error(std::string("spec --threshold-acc -3 ") + options, "--threshold-acc is -3, expected 0 to 1");
    expect_error(std::string("spec --threshold-single nan ") + options, "--threshold-single is nan, expected 0 to 1");
  }
  expect_error("spec --gpu b200", "--gpu asks for blackwell mode, expected fast, golden or hopper");
  expect_error("spec --seed -1", "--seed: must be a whole number from 0, got '-1'");
  expect_error("spec --agreement nan", "--agreement: must be a number from 0 to 1, got 'nan'");
  expect_error("spec --sharpness nan", "--sharpness: must be a number from 0 to 1000, got 'nan'");
  expect_error("spec --batch 1024 --tokens 1048576",
               "--tokens is 1048576: with --batch 1024 and --page-size 1 the cache has 1073757184 slots");
}

}  // namespace
}  // namespace dodona::tools_test
