// tools/confirm-blackwell: what it packs, and what it says of results.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "command.h"
#include "io/safetensors.h"

namespace dodona::tools_test {
namespace {

const std::string steps = std::string(DODONA_SOURCE_DIR) + "/tests/golden/_hardware/tensor_core_steps/";
const std::vector<std::string> instructions{"sm100_bf16",           "sm100_f16",       "sm100_e4m3",
                                            "sm100_e5m2",           "sm100_mxf8_e4m3", "sm100_mxf8_e5m2",
                                            "sm100_mxf8_e4m3_e2m1", "sm100_mxf4",      "sm100_nvf4"};

class ConfirmBlackwell : public Command {
 protected:
  Output tool(const std::string& arguments) const {
    const fs::path out = folder_ / "stdout", err = folder_ / "stderr";
    const std::string command =
        std::string(DODONA_SOURCE_DIR) + "/tools/confirm-blackwell " + arguments + " >'" + out.string() + "' 2>'" + err.string() + "'";
    Output output;
    output.status = WEXITSTATUS(std::system(command.c_str()));
    output.out = read_raw(out);
    output.err = read_raw(err);
    return output;
  }
  /// What the program would print on a GPU that gives the model's bits, but for `flipped` results of sm100_nvf4.
  std::string results(int flipped = 0) const {
    std::string text = "device NVIDIA B200 (compute capability 10.0)\n";
    for (const std::string& name : instructions) {
      const Tensor d = io::SafetensorsFile::open(steps + name + ".safetensors").tensor("d").clone();
      text += "file " + name + " " + std::to_string(d.elements()) + "\n";
      for (std::int64_t i = 0; i < d.elements(); ++i) {
        std::array<char, 16> word;
        const bool flip = name == "sm100_nvf4" && i >= d.elements() - flipped;
        std::snprintf(word.data(), word.size(), "%08x\n", static_cast<unsigned>(d.as<std::int32_t>()[i]) ^ (flip ? 1u : 0u));
        text += word.data();
      }
    }
    return text;
  }
};

TEST_F(ConfirmBlackwell, PacksTheStepsTheProgramAndHowToRunIt) {
  const std::string archive = (folder_ / "packed.tar.gz").string();
  ASSERT_EQ(tool("-o " + archive).status, 0);
  ASSERT_EQ(std::system(("tar -C '" + folder_.string() + "' -xzf '" + archive + "'").c_str()), 0);
  const fs::path packed = folder_ / "confirm-blackwell";
  for (const std::string& name : instructions)
    EXPECT_EQ(read_raw(packed / "steps" / (name + ".safetensors")), read_raw(steps + name + ".safetensors")) << name;
  EXPECT_EQ(read_raw(packed / "confirm-blackwell.cu"), read_raw(std::string(DODONA_SOURCE_DIR) + "/tools/confirm-blackwell.cu"));
  EXPECT_NE(read_raw(packed / "README.txt").find("sm_100a"), std::string::npos);
}

TEST_F(ConfirmBlackwell, ReadsResultsAndSaysWhatDiffers) {
  const Output same = tool("--read " + file("same.txt", results()));
  EXPECT_EQ(same.status, 0) << same.out << same.err;
  EXPECT_NE(same.out.find("every step gives the model's bits"), std::string::npos) << same.out;
  const Output other = tool("--read " + file("other.txt", results(3)));
  EXPECT_EQ(other.status, 1);
  EXPECT_NE(other.out.find("sm100_nvf4                 2000       3"), std::string::npos) << other.out;
  EXPECT_NE(other.out.find("step 1999 (random)"), std::string::npos) << other.out;
  EXPECT_NE(other.out.find("the model is not confirmed"), std::string::npos);
}

TEST_F(ConfirmBlackwell, MissingInstructionsAreNoConfirmationAndOtherTextIsNoResult) {
  const std::string whole = results();
  const Output part = tool("--read " + file("part.txt", whole.substr(0, whole.find("file sm100_nvf4"))));
  EXPECT_EQ(part.status, 1);
  EXPECT_NE(part.out.find("missing"), std::string::npos);
  for (const std::string& text : {std::string(), std::string("file sm100_nvf4 2000\nhello\n"), std::string("00000000\n")}) {
    const Output output = tool("--read " + file("bad.txt", text));
    EXPECT_EQ(output.status, 2) << text;
    EXPECT_EQ(output.out, "");
  }
  EXPECT_EQ(tool("--read " + (folder_ / "none").string()).status, 2);
}

}  // namespace
}  // namespace dodona::tools_test
