// dodona generate and dodona inspect as a user meets them.
#include <algorithm>
#include <limits>
#include <tuple>

#include "command.h"
#include "io/safetensors.h"
#include "quant/element.h"

namespace dodona::tools_test {
namespace {

/// Stands in for Hugging Face's package: a file of words, one token each.
constexpr const char* stand_in = R"(
import json
class Encoding:
    def __init__(self, ids): self.ids = ids
class Tokenizer:
    def __init__(self, words): self.words = words
    @staticmethod
    def from_file(path):
        return Tokenizer(json.load(open(path))["model"]["vocab"])
    def get_vocab(self, with_added_tokens=True): return self.words
    def encode(self, text): return Encoding([self.words[word] for word in text.split()])
    def decode(self, ids, skip_special_tokens=True):
        names = {number: word for word, number in self.words.items()}
        return " ".join(names.get(i, "?") for i in ids)
)";

/// In the format of the library: one token for each word.
constexpr const char* tokenizer_json = R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
 "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
 "model": {"type": "WordLevel", "vocab": {"a": 0, "rose": 5, "is": 17}, "unk_token": "a"}})";

class GenerateCommand : public Command {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string with_tokenizers() const {
    fs::create_directory(folder_ / "site");
    file("site/tokenizers.py", stand_in);
    return "PYTHONPATH=" + path("site");
  }
  std::string tokenizer() const { return " --tokenizer " + file("tokenizer.json", tokenizer_json) + " "; }
};

const std::string call = "generate --preset tiny --prompt-ids 5,17,3 --max-new 3 --quiet ";

TEST_F(GenerateCommand, TokensGoToStdoutAndTheRestToStderr) {
  const Output plain = run(call), with_progress = run("generate --preset tiny --prompt-ids 5,17,3 --max-new 3");
  EXPECT_EQ(plain.status, 0) << plain.err;
  EXPECT_EQ(plain.err, "");
  EXPECT_EQ(plain.out, with_progress.out);
  EXPECT_NE(with_progress.err.find("layer 3 of 3: "), std::string::npos) << with_progress.err;
  EXPECT_NE(with_progress.err.find(" GB/s"), std::string::npos) << with_progress.err;
  for (const char* part : {" of arithmetic, ", " times the ", " of making weights; "})
    EXPECT_NE(with_progress.err.find(part), std::string::npos) << with_progress.err;
  EXPECT_NE(with_progress.err.find("peak memory"), std::string::npos);
  const json result = json::parse(run(call + "--json").out);
  ASSERT_EQ(result["each_layer"].size(), 9U);
  for (const char* part : {"making_seconds", "arithmetic_seconds", "least_seconds"}) {
    double sum = 0;
    for (const json& layer : result["each_layer"]) {
      EXPECT_GT(layer[part].get<double>(), 0) << part;
      sum += layer[part].get<double>();
    }
    EXPECT_NEAR(result[part].get<double>(), sum, 1e-9) << part;
  }
  EXPECT_DOUBLE_EQ(result["arithmetic_over_least"].get<double>(),
                   result["arithmetic_seconds"].get<double>() / result["least_seconds"].get<double>());
  std::string ids;
  for (const auto& token : result["tokens"][0]) ids += (ids.empty() ? "" : ",") + std::to_string(token.get<int>());
  EXPECT_EQ(plain.out, ids + "\n");
  EXPECT_EQ(result["tokens"][0].size(), 3U);
}

TEST_F(GenerateCommand, TheGraphHasEveryLayerOfEveryRoundAndWhatIsAroundThem) {
  const std::string trace = (folder_ / "trace.json").string();
  const Output output = run(call + "--graph json --chrome-trace " + trace);
  ASSERT_EQ(output.status, 0) << output.err;
  const json graph = json::parse(output.out)["graph"];
  EXPECT_EQ(graph["op"], "self.model()");
  std::map<std::string, int> count;
  double seconds = 0;
  for (const json& child : graph["children"]) ++count[child["op"]], seconds += child["seconds"].get<double>();
  // Three tokens, of which the first comes out of the prompt's round.
  EXPECT_EQ(count, (std::map<std::string, int>{{"self.embed_tokens()", 3}, {"layer()", 9}, {"self.norm()", 3}, {"self.lm_head()", 3}}));
  EXPECT_NEAR(graph["seconds"].get<double>(), seconds, 1e-9);
  EXPECT_EQ(graph["children"][1]["children"][0]["kernels"][0]["kernel"], "rmsnorm");
  EXPECT_EQ(graph["children"][2]["note"], "1");
  EXPECT_GT(json::parse(read_raw(trace))["traceEvents"].size(), 100U);
  EXPECT_EQ(run(call + "--chrome-trace " + trace).out, run(call).out);
}

TEST_F(GenerateCommand, DraftsCountAndAreDrawnAsTheOtherLayersAre) {
  const json drawn = json::parse(run(call + "--speculative nextn --graph json").out)["graph"];
  std::map<std::string, int> count;
  int drafts = 0;
  for (const json& child : drawn["children"]) {
    ++count[child["op"]];
    drafts += child["note"] == "3" ? 1 : 0;
  }
  EXPECT_GT(drafts, 0);
  for (const char* op : {"self.enorm()", "self.hnorm()", "self.eh_proj()", "self.shared_head.norm()"}) EXPECT_EQ(count[op], drafts) << op;
  const json told = json::parse(run(call + "--speculative nextn --json").out);
  int timed = 0;
  double making = 0;
  for (const json& layer : told["each_layer"]) {
    timed += layer["layer"] == 3 ? 1 : 0;
    making += layer["making_seconds"].get<double>();
  }
  EXPECT_EQ(timed, drafts);
  EXPECT_NEAR(told["making_seconds"].get<double>(), making, 1e-9);
  EXPECT_EQ(static_cast<int>(told["each_layer"].size()), told["layers"].get<int>() + timed);
}

TEST_F(GenerateCommand, KernelsAndTheCacheMayBeChosenAndCompanyStillChangesNoToken) {
  const std::string choice = call + "--use o_proj=int8_scaled_mm --use experts=fused_moe_kernel --kv-cache-dtype auto ";
  const Output plain = run(call), chosen = run(choice);
  EXPECT_EQ(chosen.status, 0) << chosen.err;
  EXPECT_NE(chosen.out, plain.out);
  EXPECT_EQ(run(choice + "--chunk 1 --threads 3").out, chosen.out);
  expect_error(call + "--use rotary_emb=rotary_embedding", "single layers alone");
  expect_error(call + "--use gate=dsv3_router_gemm", "tokens must not depend on how many go together");
}

TEST_F(GenerateCommand, ACheckpointGivesWhatItsSeedGives) {
  ASSERT_EQ(run("synth " + path("model") + " --preset tiny-fp8 --layers 0..3 --outer --seed 9 --quiet").status, 0);
  const Output whole = run("generate --weights " + path("model") + " --prompt-ids 5,17,3 --max-new 3 --quiet");
  EXPECT_EQ(whole.status, 0) << whole.err;
  EXPECT_EQ(whole.out, run("generate --preset tiny-fp8 --weights-seed 9 --prompt-ids 5,17,3 --max-new 3 --quiet").out);
}

TEST_F(GenerateCommand, AStateIsGoneOnFromAndOnlyByTheSameCall) {
  const std::string state = " --state " + path("state");
  const Output first = run("generate --preset tiny --prompt-ids 5,17,3 --max-new 2 --quiet" + state),
               second = run(call + state + " --resume");
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(second.out, run(call).out) << second.err;
  expect_error(call + "--resume", "--resume needs --state");
  expect_error(call + state + " --resume --tp 2", "state holds the state of one process, expected that of --tp 2");
  expect_error(call + state + " --resume --temperature 0 --seed 5", "is the state of another call: seed is 0, expected 5");
  expect_error(call + state + " --resume --speculative nextn", "is the state of another call: draft steps is 0, expected 3");
  file("other", "not a state");
  expect_error(call + "--resume --state " + path("other"), path("other"));
  expect_error(call + "--resume --state " + file("other.json", "{\n  \"version\": 1\n}\n"), "other.json: a header of ");
}

TEST_F(GenerateCommand, TextGoesThroughTheTokenizer) {
  const std::string python = with_tokenizers();
  const Output text = run("generate --preset tiny --max-new 2 --quiet --json --prompt 'a rose is a rose'" + tokenizer(), python);
  ASSERT_EQ(text.status, 0) << text.err;
  const json result = json::parse(text.out);
  EXPECT_EQ(result["prompts"], json::parse("[[0, 5, 17, 0, 5]]"));
  EXPECT_EQ(result["texts"].size(), 1U);
  // The library itself, where it is installed and asked for.
  if (std::getenv("DODONA_TEST_TOKENIZERS") != nullptr)
    EXPECT_EQ(
        json::parse(run("generate --preset tiny --max-new 2 --quiet --json --prompt 'a rose is a rose'" + tokenizer()).out)["prompts"],
        result["prompts"]);
}

TEST_F(GenerateCommand, ATokenizerThatDoesNotFitOrIsNotThereIsOneClearError) {
  const std::string python = with_tokenizers(), prompt = "generate --preset tiny --quiet --prompt rose ";
  const auto refuses = [&](const std::string& arguments, const std::string& environment, const std::string& expected) {
    const Output output = run(arguments, environment);
    EXPECT_EQ(output.status, 2) << arguments;
    EXPECT_NE(output.err.find(expected), std::string::npos) << expected << "\n" << output.err;
    EXPECT_EQ(output.err.find('\n'), output.err.size() - 1) << output.err;
    EXPECT_EQ(output.out, "");
  };
  const std::string large = file("large.json", R"({"model": {"vocab": {"rose": 512}}})");
  refuses(prompt + "--tokenizer " + large, python, "gives tokens up to 512, but the vocabulary of tiny ends at 511");
  refuses(prompt + "--tokenizer " + file("no.json", "{"), python, "no tokenizer that the package tokenizers reads");
  refuses(prompt + "--tokenizer " + file("lfs.json", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"), python,
          "Git LFS pointer");
  refuses(prompt, python, "no tokenizer.json lies beside");
  // As Kimi-K2's files are.
  refuses(prompt + "--tokenizer " + file("tiktoken.model", "IQ== 0\n"), python, "make a tokenizer.json of it");
  refuses(prompt + tokenizer(), "DODONA_PYTHON=/nowhere/python", "DODONA_PYTHON");
  file("site/tokenizers.py", "raise ImportError('not here')");
  refuses(prompt + tokenizer(), python, "has no package 'tokenizers'");
}

TEST_F(GenerateCommand, BadUseGetsOneClearError) {
  expect_error("generate --preset tiny", "--prompt");
  expect_error("generate --preset tiny --prompt-ids 5,x", "--prompt-ids must be tokens");
  expect_error("generate --preset tiny --prompt-ids 512", "holds token 512, expected 0 to 511");
  expect_error("generate --preset tiny --prompt-ids 5 --max-new 163840", "go beyond the 163840 positions");
  expect_error("generate --preset tiny --prompt-ids 5 --speculative eagle", "must be nextn");
  expect_error("generate --preset tiny --prompt-ids 5 --speculative-eagle-topk 2", "is given without --speculative nextn");
  expect_error("generate --preset tiny --prompt-ids 5 --speculative nextn --speculative-eagle-topk 2",
               "--speculative-num-draft-tokens is missing");
  expect_error("generate --preset tiny --prompt-ids 5 --weights /nowhere", "/nowhere: not a folder");
  expect_error("generate --preset tiny --prompt-ids 5 -o /nowhere/a", "/nowhere");
  expect_error("generate --prompt-ids 5 --weights /nowhere --weights-seed 3", "--weights-seed is given, but weights are those of /nowhere");
  for (const char* other : {"x", "./x"})
    expect_error("generate --preset tiny --prompt-ids 5 --state " + path("x") + " -o " + path(other), "--state and --output name one file");
  expect_error("generate --preset tiny --prompt-ids 5 --dp-attention 2", "--dp-attention is 2, expected 1, as --ep has it");
  expect_error("generate --preset tiny --prompt-ids 5 --end-token 512", "--end-token is 512, expected 0 to 511, the vocabulary of tiny");
  expect_error("generate --preset tiny --prompt-ids 5 --end-token -5", "--end-token is -5");
  expect_error("generate --preset tiny --prompt-ids 5 --seed -1", "--seed: must be a whole number from 0, got '-1'");
  expect_error("generate --preset tiny --prompt-ids 5 --temperature -1", "--temperature is -1, expected a finite number from 0");
  expect_error("generate --preset tiny --prompt-ids 5 --temperature inf", "--temperature is inf, expected a finite number from 0");
  expect_error("generate --preset tiny --prompt-ids 5 --temperature 1 --top-k 0", "--top-k is 0, expected -1 or at least 1");
  expect_error("generate --preset tiny --prompt-ids 5 --speculative nextn --speculative-eagle-topk 2 --speculative-num-draft-tokens 90",
               "--speculative-num-draft-tokens is 90, expected 1 to 11");
}

/// Temperature 0 is the default, so that what shapes draws would be ignored; said outright it is what upstream takes it for, greedy.
TEST_F(GenerateCommand, WhatShapesDrawsNeedsATemperature) {
  for (const std::string option : {"--top-k 5", "--top-p 0.5", "--min-p 0.1", "--seed 3"})
    expect_error(call + option, option.substr(0, option.find(' ')) + " requires --temperature");
  const Output greedy = run(call), filtered = run(call + "--temperature 0 --top-k 5 --top-p 0.5 --min-p 0.1 --seed 3");
  EXPECT_EQ(filtered.status, 0) << filtered.err;
  EXPECT_EQ(filtered.out, greedy.out);
}

TEST_F(GenerateCommand, AGraphAndJsonAreNotPrintedTogether) {
  expect_error(call + "--graph text --json", "--graph excludes --json");
}

/// A GPU's bits depend on the company, which tokens here do not.
TEST_F(GenerateCommand, AGpusModeIsRefusedBeforeAnythingRuns) {
  for (const char* preset : {"tiny", "tiny-fp8", "tiny-v32"})
    expect_error(std::string("generate --quiet --prompt-ids 5 --mode hopper --preset ") + preset,
                 "--mode is hopper, expected fast or golden");
  expect_error("generate --preset tiny --prompt-ids 5 --mode hopper --ep 2", "mode is hopper, expected fast or golden");
}

TEST_F(GenerateCommand, ASplitThatCannotBeIsRefusedHoweverFewRanksItComesTo) {
  for (const std::string option : {"--tp", "--ep", "--pp"})
    for (const std::string value : {"0", "-1", "-2"}) {
      expect_error(call + option + " " + value, option + " is " + value + ", expected 1");
      expect_error("generate --preset tiny --plan " + option + " " + value, option + " is " + value + ", expected 1");
    }
  expect_error(call + "--dp-attention 2", "--dp-attention is 2, expected 1");
  expect_error(call + "--dp-attention 0", "--dp-attention is 0, expected 1");
  expect_error(call + "--tp 8", "--tp is 8, but heads of tiny do not divide into 8 parts: num_attention_heads is 4");
}

TEST_F(GenerateCommand, ThePlanIsOfWhatRunsAndTakesNoOptionThatItSaysNothingOf) {
  EXPECT_EQ(run("generate --preset tiny --kv-cache-dtype fp8_e4m3 --plan").status, 0);
  EXPECT_EQ(run("generate --preset r1-nvfp4 --kv-cache-dtype auto --plan").status, 0);
  for (const char* option :
       {"--temperature 1", "--speculative nextn", "--mode golden", "--state s", "-o o.json", "--prompt-ids 1", "--temperature 1 --seed 1"})
    expect_error(std::string("generate --preset tiny --plan ") + option, "excludes");
  expect_error("generate --plan --weights " + path("nowhere"), "nowhere");
  ASSERT_EQ(run("synth " + path("part") + " --preset tiny --layers 1..2").status, 0);
  expect_error("generate --plan --weights " + path("part"), "missing from checkpoint " + path("part"));
  expect_error("generate --preset tiny --plan --weights " + path("nowhere"), "nowhere");
  expect_error("generate --preset tiny --plan --batch 0", "--batch: must be a number above 0, got '0'");
  for (const char* wrong : {"0", "-3", "nan", "inf"})
    expect_error(std::string("generate --preset tiny --plan --nodes 4 --R ") + wrong,
                 std::string("--R: must be a number above 0, got '") + wrong);
}

/// A file may not grow beyond a few kB: what a disk without room does to a write.
TEST_F(GenerateCommand, AFullDiskIsOneClearErrorAndLeavesNothingHalfWritten) {
  const auto files = [this] {
    std::size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) count += entry.path().filename() != "stderr" ? 1 : 0;
    return count;
  };
  for (const std::string& arguments :
       {call + "--state " + path("state.safetensors"), call + "--chrome-trace " + path("trace.json"),
        "synth " + path("model") + " --preset tiny --layers 0..3 --quiet",
        "layer --preset tiny --kv-len 900 --repeat 1 --trail-tensors --trail " + path("trail.safetensors")}) {
    const Output output = run(arguments, "ulimit -f 8;");
    EXPECT_EQ(output.status, 2) << arguments << "\n" << output.out << output.err;
    EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
    EXPECT_NE(output.err.find("File too large"), std::string::npos) << output.err;
    EXPECT_EQ(files(), 0U) << arguments;
  }
}

/// A file would take its place, and be told of the progress.
TEST_F(GenerateCommand, AClosedStderrIsNoReasonToStop) {
  const std::string loud = " generate --preset tiny --prompt-ids 5,17,3 --max-new 2 --state '" + path("state") + "' <&- >/dev/null 2>&-";
  EXPECT_EQ(std::system((DODONA_COMMAND + loud).c_str()), 0);
  EXPECT_TRUE(fs::exists(path("state")));
}

TEST_F(GenerateCommand, CtrlCLeavesNothingHalfWritten) {
  const std::string begun = DODONA_COMMAND " synth " + path("model") + " --preset r1-nvfp4 --layers 3 --quiet 2>'" + path("stderr") + "'";
  // Twice, as wrappers signal a process and then its group; not before there is something to take back.
  // A file shows in the folder, or, where it has no name yet, among those that the process has open.
  const std::string twice = " & command=$!; for i in $(seq 600); do { ls -A '" + folder_.string() + "'; ls -l /proc/$command/fd | grep '" +
                            folder_.string() +
                            "'; } | grep -qv stderr && break; sleep 0.05; done; sleep 0.2; kill -INT $command; sleep 0.01; "
                            "kill -INT $command 2>/dev/null; wait $command";
  const int status = std::system((begun + twice).c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_NE(helpers::read_raw(path("stderr")).find("interrupted: "), std::string::npos) << helpers::read_raw(path("stderr"));
  std::size_t left = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) left += entry.path().filename() != "stderr" ? 1 : 0;
  EXPECT_EQ(left, 0U);
}

/// Stopped wherever it is when the signal comes: behind the layer that it is at the state holds what was done.
TEST_F(GenerateCommand, CtrlCKeepsTheLayersSoFarAndResumeGoesOnToTheSameTokens) {
  const std::string trees =
      "generate --preset tiny --prompt-ids 5,17,3,8 --max-new 60 --threads 1 --quiet --speculative nextn --speculative-num-steps 2 "
      "--speculative-eagle-topk 2 --speculative-num-draft-tokens 5 ";
  const std::string state = "--state " + path("state") + " ";
  const std::string begun = DODONA_COMMAND " " + trees + state + "2>'" + path("stderr") + "'";
  const int status = std::system((begun + " & command=$!; for i in $(seq 600); do test -s '" + path("state") +
                                  "' && break; sleep 0.05; done; kill -INT $command; wait $command")
                                     .c_str());
  // A fast machine may be done before.
  ASSERT_TRUE(WEXITSTATUS(status) == 2 || WEXITSTATUS(status) == 0) << helpers::read_raw(path("stderr"));
  if (WEXITSTATUS(status) == 2)
    EXPECT_NE(helpers::read_raw(path("stderr")).find("holds what was done, up to layer "), std::string::npos)
        << helpers::read_raw(path("stderr"));
  const Output rest = run(trees + state + "--resume"), whole = run(trees);
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(rest.out, whole.out);
  EXPECT_EQ(whole.out, run("generate --preset tiny --prompt-ids 5,17,3,8 --max-new 60 --threads 1 --quiet").out);
}

/// What becomes of the checkpoint once the first layer has gone by: the command waits on its progress, so that it cannot be done before.
TEST_F(GenerateCommand, ACheckpointThatChangesWhileItIsReadIsOneClearError) {
  struct Change {
    const char* what;
    std::vector<std::string> told;  // one of these
  };
  for (const Change& change :
       {Change{"truncate -s 20000 $F", {"changed while it was in use", "was cut short"}},
        Change{"cp $F $F.new; mv $F.new $F", {"was replaced by another file while it was in use"}},
        Change{"touch -d 2001-01-01 $F", {"was written to while it was in use"}}, Change{"rm $F", {"is gone since it was opened"}},
        Change{"echo version https://git-lfs.github.com/spec/v1 > $F", {"changed while it was in use", "was cut short"}}}) {
    fs::remove_all(path("model"));
    ASSERT_EQ(run("synth " + path("model") + " --preset tiny --layers 0..3 --outer --quiet").status, 0);
    const std::string script = "cd '" + folder_.string() +
                               "'; F=model/model-00001-of-00001.safetensors; rm -f told; mkfifo told; " DODONA_COMMAND
                               " generate --weights model --prompt-ids 5,17,3 --max-new 5000 --threads 1 -o out.json 2>told >tokens & "
                               "command=$!; exec 9<told; read -r line <&9; " +
                               std::string(change.what) + "; cat <&9 >rest; wait $command";
    EXPECT_EQ(WEXITSTATUS(std::system(script.c_str())), 2) << change.what;
    const std::string rest = helpers::read_raw(path("rest"));
    const std::size_t at = rest.find("dodona: ");
    ASSERT_NE(at, std::string::npos) << change.what << "\n" << rest;
    EXPECT_EQ(rest.find('\n', at), rest.size() - 1) << rest;
    EXPECT_NE(rest.find("model-00001-of-00001.safetensors", at), std::string::npos) << rest;
    EXPECT_TRUE(std::any_of(change.told.begin(), change.told.end(),
                            [&](const std::string& words) { return rest.find(words, at) != std::string::npos; }))
        << change.what << "\n"
        << rest;
    EXPECT_EQ(helpers::read_raw(path("tokens")), "");
    EXPECT_FALSE(fs::exists(path("out.json")));
  }
}

TEST_F(GenerateCommand, ALfsPointerIsNamedWhereverItStands) {
  ASSERT_EQ(run("synth " + path("model") + " --preset tiny --layers 0..3 --outer --quiet").status, 0);
  for (const char* name : {"model-00001-of-00001.safetensors", "model.safetensors.index.json", "config.json"}) {
    const std::string kept = helpers::read_raw(path("model/" + std::string(name)));
    file("model/" + std::string(name), "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
    for (const std::string command : {"generate --prompt-ids 5 --quiet --weights ", "layer --kv-len 9 --repeat 1 --weights "}) {
      const Output output = run(command + path("model"));
      EXPECT_EQ(output.status, 2) << command << name;
      EXPECT_NE(output.err.find("Git LFS pointer"), std::string::npos) << output.err;
      EXPECT_NE(output.err.find(name), std::string::npos) << output.err;
      EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
    }
    EXPECT_EQ(run("inspect " + path("model")).status, 2) << name;
    file("model/" + std::string(name), kept);
  }
}

/// Releases in NVFP4 leave the NextN layer in bf16: what reads the others' form does not read its.
TEST_F(GenerateCommand, AUseThatTheDraftsLayerDoesNotTakeIsRefusedBeforeAnythingRuns) {
  ASSERT_EQ(run("synth " + path("model") + " --preset tiny --layers 0..3 --outer --quiet").status, 0);
  const std::string generate = "generate --prompt-ids 5,17 --max-new 1 --weights " + path("model") + " --use ";
  for (const std::string use : {"o_proj=cutlass_scaled_fp4_mm", "shared_experts=cutlass_scaled_fp4_mm"}) {
    EXPECT_EQ(run(generate + use).status, 0) << use;
    const std::string arguments = generate + use + " --speculative nextn";
    expect_error(arguments, "--use " + use + " cannot be: model.layers.3.");
    EXPECT_NE(run(arguments).err.find(" is stored as bf16, in the NextN layer, which drafts; possible here: none\n"), std::string::npos);
    EXPECT_EQ(run(arguments).err.find("layer 1 of 3"), std::string::npos);
  }
  for (const char* use : {"q_b_proj=linear", "down_proj=cutlass_scaled_fp4_mm", "experts=cutlass_fp4_group_mm"})
    EXPECT_EQ(run(generate + use + " --speculative nextn").status, 0) << use;
  expect_error(generate + "kv_b_proj=linear", "it is chosen for single layers alone");
}

TEST_F(GenerateCommand, InspectShowsAsManyFindingsAsItIsAskedFor) {
  ASSERT_EQ(run("synth " + path("model") + " --preset tiny --layers 0 --outer --quiet").status, 0);
  const auto shown = [&](const std::string& most) {
    const Output output = run("inspect " + path("model") + " --layers 0..1 " + most);
    EXPECT_EQ(output.status, 1) << output.err;
    std::int64_t lines = 0;
    for (std::size_t at = output.out.find("\nmissing  "); at != std::string::npos; at = output.out.find("\nmissing  ", at + 1)) ++lines;
    return std::pair(lines, output.out);
  };
  EXPECT_EQ(shown("").first, 40);
  EXPECT_EQ(shown("--most 2").first, 2);
  EXPECT_NE(shown("--most 2").second.find("more; --most shows them, --json all"), std::string::npos);
  EXPECT_EQ(shown("--most 0").first, 0);
  const auto [all, text] = shown("--most 100000");
  EXPECT_GT(all, 40);
  EXPECT_EQ(text.find("--most shows them"), std::string::npos);
  expect_error("inspect " + path("model") + " --most -1", "--most: must be a whole number from 0, got '-1'");
}

void break_element(const std::string& path, const std::string& name, std::int64_t element) {
  const auto file = io::SafetensorsFile::open(path, io::Access::read);
  io::NamedTensors tensors;
  for (const auto& entry : file.entries()) tensors.emplace_back(entry.name, file.tensor(entry).clone());
  for (const auto& [each, tensor] : tensors)
    if (each == name) quant::set(tensor, element, std::numeric_limits<double>::quiet_NaN());
  io::write_safetensors(path, tensors);
}

/// Codes of e4m3 that are no numbers, in weights and in scales, which no header shows.
TEST_F(GenerateCommand, InspectLooksAtValuesWhereItIsAsked) {
  for (const auto& [preset, tensor, element] : {std::tuple{"tiny", "model.layers.1.mlp.experts.3.up_proj.weight_scale", 5},
                                                std::tuple{"tiny-fp8", "model.layers.1.self_attn.o_proj.weight", 99},
                                                std::tuple{"tiny-fp8", "model.layers.1.mlp.experts.3.up_proj.weight_scale_inv", 1}}) {
    const std::string model = path(std::string(preset) + std::to_string(element)), file = model + "/model-00001-of-00001.safetensors";
    ASSERT_EQ(run("synth " + model + " --preset " + preset + " --layers 1 --outer --quiet").status, 0);
    const std::string inspect = "inspect " + model + " --layers 1 ";
    const Output whole = run(inspect + "--values");
    EXPECT_EQ(whole.status, 0) << whole.out << whole.err;
    EXPECT_NE(whole.out.find("every value is a finite number"), std::string::npos) << whole.out;
    break_element(file, tensor, element);
    EXPECT_EQ(run(inspect).status, 0) << "headers alone";
    const Output broken = run(inspect + "--values");
    EXPECT_EQ(broken.status, 1) << broken.out << broken.err;
    EXPECT_NE(broken.out.find(std::string("unusable   ") + tensor + ": expected finite numbers, found nan at element " +
                              std::to_string(element) + " in model-00001-of-00001.safetensors\n"),
              std::string::npos)
        << broken.out;
    const json told = json::parse(run(inspect + "--values --json").out);
    EXPECT_EQ(told["fits"], false);
    EXPECT_EQ(told["findings"].at(0)["finding"], "unusable");
    EXPECT_EQ(told["findings"].at(0)["name"], tensor);
  }
}

TEST_F(GenerateCommand, InspectHasAnExitCodeForEachOutcome) {
  ASSERT_EQ(run("synth " + path("model") + " --preset tiny --layers 0..3 --outer --quiet").status, 0);
  const Output whole = run("inspect " + path("model"));
  EXPECT_EQ(whole.status, 0) << whole.out << whole.err;
  EXPECT_NE(whole.out.find("layers 1 to 2 (MoE)"), std::string::npos) << whole.out;
  EXPECT_NE(whole.out.find("every tensor fits"), std::string::npos) << whole.out;
  const Output other = run("inspect " + path("model") + " --preset tiny-v32");
  EXPECT_EQ(other.status, 1);
  EXPECT_NE(other.out.find("missing    model.layers.0.self_attn.indexer.wk.weight: expected BF16 [128, 256]"), std::string::npos)
      << other.out;
  EXPECT_EQ(json::parse(run("inspect " + path("model") + " --json").out)["fits"], true);
  fs::resize_file(path("model/model-00001-of-00001.safetensors"), 100000);
  const Output cut = run("inspect " + path("model"));
  EXPECT_EQ(cut.status, 2);
  EXPECT_NE(cut.out.find("unreadable: "), std::string::npos) << cut.out;
  expect_error("inspect " + path("nowhere"), "not a folder");
}

}  // namespace
}  // namespace dodona::tools_test
