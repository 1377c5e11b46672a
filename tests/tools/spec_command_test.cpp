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
  expect_error("spec --temperature -1", "--temperature is -1");
  expect_error("spec --vocabulary 0", "--vocabulary is 0");
}

}  // namespace
}  // namespace dodona::tools_test
