// dodona layer as a user meets it: what it prints, what it writes, what it refuses.
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>

#include "command.h"
#include "io/safetensors.h"
#include "quant/element.h"

namespace dodona::tools_test {
namespace {

constexpr const char* shard = "model-00001-of-00001.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";
const std::string up = "model.layers.1.mlp.experts.3.up_proj";
const std::string q_b = "model.layers.1.self_attn.q_b_proj.weight";

class LayerCommand : public Command {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  /// A bad call: exit 2, one line that holds `expected`, nothing written.
  void refuses(const std::string& arguments, const std::string& expected) const {
    const auto listing = [this] {
      std::vector<std::string> names;
      for (const auto& entry : fs::recursive_directory_iterator(folder_))
        if (entry.path().filename() != "stderr") names.push_back(entry.path().string());
      return names.size();
    };
    const std::size_t before = listing();
    const Output output = run("layer " + arguments);
    EXPECT_EQ(output.status, 2) << arguments << "\n" << output.out << output.err;
    EXPECT_NE(output.err.find(expected), std::string::npos) << arguments << "\nexpected " << expected << "\n" << output.err;
    EXPECT_EQ(output.err.find('\n'), output.err.size() - 1) << arguments << ": more than one line\n" << output.err;
    EXPECT_EQ(output.out, "") << arguments;
    EXPECT_EQ(listing(), before) << arguments << " wrote something";
  }
};

TEST_F(LayerCommand, ShowsTheExecutionTreeAndWritesItsOutput) {
  const Output output = run("layer --preset tiny --layer 1 --batch 2 --kv-len 20,3 --repeat 1 -o " + path("out.safetensors"));
  ASSERT_EQ(output.status, 0) << output.err;
  for (const char* part : {"layer 1 of tiny (MoE), decode, B=2, kv per request", "self.q_b_proj()", "[B, 192] -> [B, 768]", "└─ self.mlp()",
                           "scaled_fp4_quant + cutlass_scaled_fp4_mm", "bmm_fp8() (q_nope * w_kc)", "peak memory", "digest "})
    EXPECT_NE(output.out.find(part), std::string::npos) << part << "\n" << output.out;
  const auto file = io::SafetensorsFile::open(path("out.safetensors"));
  EXPECT_EQ(to_string(file.tensor("hidden").shape()), "[2, 256]");
  EXPECT_EQ(to_string(file.tensor("residual").shape()), "[2, 256]");
  EXPECT_NE(output.out.find("digest " + file.metadata().at("digest")), std::string::npos);
}

TEST_F(LayerCommand, ShowsTheRunAsAGraphAndATrace) {
  const std::string options =
      "layer --preset tiny --layer 1 --phase extend --kv-len 20,9 --prefix-len 12,0 --path mha-chunked --prefix-chunk 10 ";
  const std::string text = run(options + "--graph text").out;
  for (const char* part : {"layer()", "├─> self._chunked_prefix_attn_mha()", "merge_state_v2()", "- sgl-kernel: merge_state_v2", " ms\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const std::string page = run(options + "--graph md").out;
  for (const char* part : {"## Execution path", "| `self.o_proj()` | [T, 512] | [T, 256] |", "### trtllm_ragged_attention_deepseek",
                           "**Source:** flashinfer", "└─> flashinfer: trtllm_ragged_attention_deepseek()"})
    EXPECT_NE(page.find(part), std::string::npos) << part << "\n" << page;
  EXPECT_NE(run(options + "--graph html").out.find("</html>"), std::string::npos);

  const json tree = json::parse(run(options + "--graph json --chrome-trace " + path("trace.json")).out);
  EXPECT_EQ(tree["graph"]["op"], "layer()");
  EXPECT_EQ(tree["graph"]["children"][0]["kernels"][0]["kernel"], "fused_add_rmsnorm");
  std::ifstream file(path("trace.json"));
  const json trace = json::parse(file);
  double ops = 0, whole = 0, end = 0;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    end = std::max(end, event["ts"].get<double>() + event["dur"].get<double>());
    if (event["name"] == "layer()") whole = event["dur"];
    if (event["tid"] == 1 && !event["args"]["kernels"].get<std::string>().empty()) ops += event["dur"].get<double>();
  }
  EXPECT_NEAR(ops, whole, 1e-6 * whole);
  EXPECT_LE(end, 1.5 * whole);
}

TEST_F(LayerCommand, SaysWhetherTheWeightsCameFromMemory) {
  const std::string options = "layer --preset tiny --layer 1 --kv-len 5 --repeat 2 ";
  EXPECT_NE(run(options, "DODONA_LLC_MIB=1").out.find("left them: the last-level cache of 1.0 MB can hold "), std::string::npos);
  EXPECT_NE(run(options + "--cold", "DODONA_LLC_MIB=1").out.find("weights cold; 537 MB read through before each run"), std::string::npos);

  const json warm = json::parse(run(options + "--json", "DODONA_LLC_MIB=64").out), seen = warm["weights_measured"];
  EXPECT_EQ(seen["cold"], false);
  EXPECT_EQ(seen["could_stay"], 1.0) << "the tiny model's weights fit into 64 MiB";
  EXPECT_EQ(seen["read_through_bytes"], 0);
  const json cold = json::parse(run(options + "--cold --json", "DODONA_LLC_MIB=200").out);
  EXPECT_EQ(cold["weights_measured"]["cold"], true);
  EXPECT_EQ(cold["weights_measured"]["could_stay"], 0.0);
  EXPECT_EQ(cold["weights_measured"]["last_level_cache_bytes"], 200 << 20);
  EXPECT_NEAR(cold["weights_measured"]["read_through_bytes"].get<double>(), 600 << 20, 1 << 20) << "each thread has an equal part";
  EXPECT_EQ(cold["digest"], warm["digest"]);
  EXPECT_LT(cold["peak_memory_MB"].get<double>(), 500) << "the buffer is not the layer's";
}

TEST_F(LayerCommand, ThePlanAllocatesNothingAndIsWhatTheRunDoes) {
  for (const int layer : {0, 1}) {
    const std::string options = "layer --preset tiny --batch 1 --kv-len 5 --repeat 1 --json --layer " + std::to_string(layer);
    const json run_json = json::parse(run(options).out), plan = json::parse(run(options + " --plan").out);
    EXPECT_EQ(run_json["digest"].get<std::string>().size(), 64u);
    std::map<std::string, json> planned;
    for (const json& op : plan["ops"]) planned[op["op"].get<std::string>() + op["note"].get<std::string>()] = op;
    std::size_t found = 0;
    for (const json& op : run_json["ops"]) {
      const auto it = planned.find(op["op"].get<std::string>() + op["note"].get<std::string>());
      if (it == planned.end()) continue;
      ++found;
      for (const char* field : {"shapes", "bytes", "weight_bytes", "flops", "int8_ops"})
        EXPECT_EQ(op[field], it->second[field]) << op["op"] << field;
      EXPECT_NE(op["kernels"].get<std::string>().find(it->second["kernel"].get<std::string>()), std::string::npos) << op["op"];
    }
    EXPECT_EQ(found, planned.size());
    EXPECT_EQ(run_json["weight_bytes"], plan["weight_bytes_read"]);
    double bytes = 0;
    for (const json& op : plan["ops"]) bytes += op["bytes"].get<double>();
    EXPECT_EQ(run_json["ops"][0]["bytes"].get<double>(), bytes);
  }
  // 147 TB of cache: far beyond any machine.
  const Output large = run("layer --preset r1-nvfp4 --batch 1000000 --kv-len 131072 --plan --json");
  EXPECT_EQ(large.status, 0);
  EXPECT_GT(json::parse(large.out)["kv_cache_bytes"].get<double>(), 1e14);
}

TEST_F(LayerCommand, ACheckpointGivesTheDigestOfItsSeed) {
  ASSERT_EQ(run("synth " + path("model") + " --preset tiny --layers 0..1 --seed 3").status, 0);
  const std::string options = "layer --batch 2 --kv-len 9 --seed 3 --repeat 1 --json --layer 1 ";
  const json disk = json::parse(run(options + "--weights " + path("model")).out);
  const json memory = json::parse(run(options + "--preset tiny").out);
  EXPECT_EQ(disk["digest"], memory["digest"]);
  EXPECT_EQ(disk["weights"], "checkpoint " + path("model"));
}

TEST_F(LayerCommand, OptionsThatCannotBeAreNamed) {
  const std::string tiny = "--preset tiny ";
  refuses(tiny + "--batch 0", "--batch is 0, expected 1 to 1048576");
  refuses(tiny + "--batch -3", "--batch is -3");
  refuses(tiny + "--batch 99999999999", "--batch is 99999999999");
  refuses(tiny + "--batch 1000000 --kv-len 163840", "--batch of 1000000 requests needs");
  refuses(tiny + "--kv-len 0", "--kv-len is 0, expected 1 to 163840 (max_position_embeddings)");
  refuses(tiny + "--kv-len 5,163841", "--kv-len is 163841");
  refuses(tiny + "--batch 2 --kv-len 1,2,3", "--kv-len has 3 values, expected one, or one for each of 2 requests");
  refuses(tiny + "--layer 4", "layer 4 is out of range: tiny has layers 0 to 3");
  refuses(tiny + "--layer -1", "layer -1 is out of range");
  refuses(tiny + "--layer 0 --fused-shared-expert", "--fused-shared-expert is given, but layer 0 is dense");
  refuses(tiny + "--layer 0 --fused-shared-expert --plan", "--fused-shared-expert");
  refuses(tiny + "--phase warm", "--phase is 'warm', expected prefill, extend, decode or verify");
  refuses(tiny + "--phase extend", "--prefix-len is missing");
  refuses(tiny + "--kv-len 8 --prefix-len 3", "--prefix-len is given, but the phase is decode");
  expect_error("layer --preset tiny --kv-len 9999999999999999999999",
               "--kv-len: must be a whole number of 64 bits, got '9999999999999999999999'");
  expect_error("layer --preset tiny --seed -1", "--seed: must be a whole number from 0, got '-1'");
  refuses(tiny + "--layer 0 --dual-stream", "--dual-stream is given, but layer 0 is dense");
  refuses(tiny + "--layer 0 --experts cutlass", "--experts is given, but layer 0 is dense");
  refuses(tiny + "--layer 0 --expert-weights fp8", "--expert-weights is given, but layer 0 is dense");
  refuses(tiny + "--dual-stream --fused-shared-expert", "--dual-stream is given, but no shared expert runs beside the routed ones");
  refuses("--preset v2 --plan --fused-shared-expert", "--fused-shared-expert needs exactly one shared expert, v2 has 2");
  refuses(tiny + "--prefix-chunk 4", "--prefix-chunk is given, but the way through attention is mla, not mha-chunked");
  refuses(tiny + "--prefix-chunk 0", "--prefix-chunk is 0, expected 1 to 1073741824");
  refuses(tiny + "--plan --nodes 0", "--nodes is 0, expected 1 or more");
  refuses(tiny + "--kv-cache-dtype fp8_e4m3",
          "--kv-cache-dtype is fp8_e4m3 behind backend cutlass_mla, but cutlass_mla_decode wants a cache in bf16");
  refuses(tiny + "--trail " + path("x.jsonl") + " -o " + path("x.jsonl"), "--output and --trail name one file");
  fs::create_directory(path("folder"));
  fs::create_directory_symlink(path("folder"), path("link"));
  refuses(tiny + "--trail " + path("folder/x") + " -o " + path("link/x"), "--output and --trail name one file");
  for (const char* option : {"--repeat", "--layer", "--tp", "--prefix-len", "--draft-tokens"})
    refuses(tiny + option + " 99999999999999999999",
            option + std::string(": must be a whole number of 64 bits, got '99999999999999999999'"));
  refuses(tiny + "--experts bogus", "--experts are 'bogus', expected one of cutlass, plain");
  refuses(tiny + "--backend fa9", "--backend is 'fa9', expected one of cutlass_mla, trtllm_mla");
  refuses(tiny + "--path sideways", "--path is 'sideways', expected one of mha, mha-one-shot");
  refuses(tiny + "--phase extend --kv-len 8 --prefix-len 3 --path mha", "which sees no prefix");
  refuses(tiny + "--linear int8 --kv-len 9 --experts triton --against-experts triton", "--experts are run by triton as they are stored");
  for (const char* experts : {"bogus", "w4a8"}) {
    refuses(tiny + "--kv-len 9 --chrome-trace " + path("w.json") + " --against-experts " + experts, "--against-experts are ");
    EXPECT_FALSE(fs::exists(path("w.json"))) << experts;
  }
  refuses(tiny + "--chrome-trace " + path("nowhere/trace.json"), "nowhere/trace.json");
  refuses(tiny + "--mode exact", "--mode must be fast, golden, hopper, blackwell, ada or ampere");
  refuses(tiny + "--isa sse9", "--isa must be one of");
  refuses(tiny + "--repeat 0", "--repeat is 0");
  refuses(tiny + "--trail-tensors", "--trail-tensors needs --trail FILE");
  refuses(tiny + "--trail " + path("t.jsonl") + " --trail-tensors", "ends in .safetensors");
  refuses("--preset r2", "must be one of");
}

/// What is refused is called as it was typed, and what is not the way's is not told to be possible.
TEST_F(LayerCommand, AUseThatNothingRunsIsNamedAsItWasTyped) {
  const std::string tiny = "--preset tiny --kv-len 9 ";
  refuses(tiny + "--phase prefill --use attn_mha=merge_state",
          "--use attn_mha=merge_state is asked for, but nothing runs merge_state_v2 on this way");
  refuses(tiny + "--use attn_mha=merge_state",
          "--use attn_mha=merge_state cannot be: nothing runs merge_state_v2 on path mla, expected path mha, mha-one-shot or mha-chunked; "
          "possible here: none");
  for (const char* preset : {"tiny", "r1"})
    refuses(std::string("--kv-len 9 --use _concat_and_cast_mha_k=concat_mla_k --preset ") + preset,
            "_concat_and_cast_mha_k=concat_mla_k cannot be: nothing runs _concat_and_cast_mha_k on path mla");
  refuses(tiny + "--phase prefill --use attn_mqa=flash_mla_with_kvcache", "on path mha-chunked, expected path mla or mla-fused-rope");
  EXPECT_EQ(run("layer " + tiny + "--repeat 1 --phase extend --prefix-len 8 --use attn_mqa=decode_attention_fwd_grouped_rope").status, 0);
  refuses("--preset tiny-v32 --kv-len 9 --use attn_mqa=flash_mla_with_kvcache",
          "what the indexer of tiny-v32 chose is attended to by cutlass_mla_decode; possible here: cutlass_mla_decode");
  EXPECT_EQ(run("layer --repeat 1 --preset tiny-v32 --kv-len 9 --use attn_mqa=cutlass_mla_decode").status, 0);
}

/// By the plan as by the run.
TEST_F(LayerCommand, AModeThatTheLayerDoesNotHaveIsRefused) {
  for (const char* plan : {"", "--plan ", "--plan --nodes 2 "}) {
    refuses(std::string(plan) + "--preset tiny-fp8 --kv-len 9 --backend flashmla --rounding off --mode hopper",
            "--rounding is off, expected bf16 in hopper mode");
    refuses(std::string(plan) + "--preset tiny-fp8 --kv-len 9 --mode hopper",
            "--mode is hopper, which these kernels of the layer do not have: cutlass_mla_decode");
  }
  EXPECT_EQ(run("layer --plan --preset tiny-fp8 --kv-len 9 --backend flashmla --mode hopper").status, 0);
  for (const char* option : {"--against-whole", "--trail-tensors"})
    EXPECT_EQ(run(std::string("layer --plan --preset tiny --kv-len 9 --tp 2 ") + option).status, 2) << option;
}

TEST_F(LayerCommand, AllKernelsWithoutTheModeAreNamedAtOnce) {
  refuses("--preset tiny --mode blackwell",
          "mode is blackwell, which these kernels of the layer do not have: fused_add_rmsnorm (self.input_layernorm(), "
          "self.post_attention_layernorm()), rmsnorm (self.q_a_layernorm(), self.kv_a_layernorm()), ");
  refuses(
      "--preset tiny --mode hopper",
      "do not have: cutlass_mla_decode (self.attn_mqa()), cutlass_scaled_fp4_mm (self.o_proj(), self.gate_up_proj(), self.down_proj()), "
      "cutlass_fp4_group_mm (cutlass_fp4_group_mm); expected fast or golden for this layer");
  EXPECT_EQ(run("layer --preset tiny-fp8 --backend flashmla --mode hopper").status, 0);
}

TEST_F(LayerCommand, FilesThatCannotBeAreRefusedBeforeTheRun) {
  for (const char* option : {"-o ", "--trail "}) {
    refuses(std::string("--preset tiny ") + option + path("no/out.safetensors"), "no/out.safetensors: cannot create a file");
    refuses(std::string("--preset tiny ") + option + folder_.string(), folder_.string());
  }
  refuses("--preset tiny --against " + path("absent"), "absent");
  refuses("--preset tiny --weights " + path("absent"), "absent");
  refuses("--config " + path("absent"), "absent: not a folder");
}

TEST_F(LayerCommand, BrokenCheckpointsAreRefusedByTensor) {
  ASSERT_EQ(run("synth " + path("whole") + " --preset tiny --layers 1 --seed 3").status, 0);
  const auto original = io::SafetensorsFile::open(path("whole/") + shard, io::Access::read);
  const auto broken = [&](const std::function<void()>& breaking, const std::string& expected) {
    fs::remove_all(folder_ / "model");
    fs::copy(folder_ / "whole", folder_ / "model");
    breaking();
    refuses("--kv-len 2 --weights " + path("model") + " -o " + path("out.safetensors"), expected);
  };
  const auto change = [&](const std::string& name, const std::function<Tensor(const Tensor&)>& action) {
    return [&, name, action] {
      io::NamedTensors tensors;
      for (const auto& entry : original.entries())
        tensors.emplace_back(entry.name, entry.name == name ? action(original.tensor(entry)) : original.tensor(entry));
      io::write_safetensors(path("model/") + shard, tensors);
    };
  };
  const auto index = [&](const std::function<void(json&)>& action) {
    return [&, action] {
      json content = json::parse(read_raw(folder_ / "model" / index_file));
      action(content["weight_map"]);
      std::ofstream(folder_ / "model" / index_file) << content;
    };
  };
  broken(index([](json& map) { map.erase(up + ".weight_scale"); }), up + ".weight_scale");
  broken(index([](json& map) {
           map.erase(q_b);
           map["model.layers.1.self_attn.q_b_prj.weight"] = shard;
         }),
         q_b);
  broken(index([](json& map) { map["model.layers.1.input_layernorm.weight"] = "model-00002-of-00002.safetensors"; }),
         "model-00002-of-00002.safetensors");
  broken(change(q_b, [](const Tensor& t) { return t.transpose(0, 1); }), q_b);
  broken(change(up + ".weight", [](const Tensor& t) { return t.slice(0, 0, 127); }), up + ".weight");
  broken(change(q_b, [](const Tensor& t) { return t.bitcast(DType::f16); }), q_b);
  broken([&] { ASSERT_EQ(::truncate((path("model/") + shard).c_str(), 100'000), 0); }, shard);
  broken([&] { std::ofstream(path("model/") + shard) << "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"; },
         "Git LFS pointer");
  broken(
      [&] {
        json config = json::parse(read_raw(folder_ / "model/config.json"));
        config["topk_group"] = 5;
        std::ofstream(folder_ / "model/config.json") << config;
      },
      "topk_group is 5");
  broken(
      [&] {
        json config = json::parse(read_raw(folder_ / "model/config.json"));
        config["moe_intermediate_size"] = 256;
        std::ofstream(folder_ / "model/config.json") << config;
      },
      "expected U8 [256, 128], found U8 [128, 128]");
}

TEST_F(LayerCommand, ATrailFindsTheFirstOpThatDiffers) {
  const std::string options = "layer --preset tiny --layer 1 --batch 2 --kv-len 9 --repeat 1 ";
  ASSERT_EQ(run(options + "--trail " + path("trail.safetensors") + " --trail-tensors").status, 0);
  const auto trail = io::SafetensorsFile::open(path("trail.safetensors"));
  EXPECT_EQ(to_string(trail.tensor("input.kv_cache").shape()), "[2, 9, 576]");
  // The tensors alone are a dump, as another implementation would write it; here with one wrong element.
  io::NamedTensors tensors;
  for (const auto& entry : trail.entries()) tensors.emplace_back(entry.name, trail.tensor(entry).clone());
  for (auto& [name, tensor] : tensors)
    if (name == "self.kv_a_layernorm()") quant::set(tensor, 700, 9.0);
  io::write_safetensors(path("dump.safetensors"), tensors);
  const Output dump = run(options + "--mode golden --json --against " + path("dump.safetensors"));
  EXPECT_EQ(dump.status, 1) << dump.err;
  const json against = json::parse(dump.out)["against"];
  EXPECT_EQ(against["judge"], "budget");
  EXPECT_EQ(against["difference"]["output"], "self.kv_a_layernorm()");
  EXPECT_EQ(against["difference"]["index"], json({1, 188}));
  EXPECT_EQ(against["difference"]["beyond"], 1);
  const Output same = run(options + "--threads 1 --against " + path("trail.safetensors"));
  EXPECT_EQ(same.status, 0) << same.out << same.err;
  EXPECT_NE(same.out.find("no difference"), std::string::npos);
  refuses("--preset tiny --layer 1 --batch 2 --kv-len 10 --against " + path("trail.safetensors"), "kv_len [9,9], expected [10,10]");
}

TEST_F(LayerCommand, AComparisonIsSaidBesideAGraphToo) {
  const std::string step = "layer --preset tiny --layer 1 --kv-len 9 --repeat 1 ", trail = path("t.jsonl");
  ASSERT_EQ(run(step + "--mode golden --trail " + trail).status, 0);
  const Output differs = run(step + "--graph text --against " + trail), same = run(step + "--mode golden --graph json --against " + trail);
  EXPECT_EQ(differs.status, 1) << differs.err;
  EXPECT_NE(differs.err.find("first difference: "), std::string::npos) << differs.err;
  EXPECT_EQ(differs.out.find("first difference: "), std::string::npos) << differs.out;
  EXPECT_EQ(same.status, 0) << same.err;
  EXPECT_NE(same.err.find("no difference"), std::string::npos) << same.err;
  EXPECT_TRUE(json::parse(same.out).contains("graph"));
  const Output experts = run("layer --preset tiny-fp8 --kv-len 9 --graph text --experts triton --against-experts deepgemm");
  EXPECT_EQ(experts.status, 0) << experts.err;
  EXPECT_NE(experts.err.find("experts by triton against deepgemm"), std::string::npos) << experts.err;
}

TEST_F(LayerCommand, AGraphAndJsonAreNotPrintedTogether) {
  expect_error("layer --preset tiny --kv-len 9 --graph text --json", "--graph excludes --json");
}

TEST_F(LayerCommand, ThePlanLooksAtTheWeightsThatTheRunWouldTake) {
  ASSERT_EQ(run("synth " + path("part") + " --preset tiny --layers 1").status, 0);
  EXPECT_EQ(run("layer --plan --weights " + path("part")).status, 0);
  for (const char* plan : {"--plan ", "--plan --tp 2 ", "--plan --nodes 2 "}) {
    refuses(plan + ("--layer 2 --weights " + path("part")), "model.layers.2.input_layernorm.weight': missing from checkpoint");
    refuses(plan + ("--preset tiny --weights " + path("nowhere")), "nowhere");
  }
}

TEST_F(LayerCommand, TrailsOfTwoRunsAreComparedByDiff) {
  const std::string run_of = "layer --preset tiny --layer 1 --batch 2 --kv-len 5 --repeat 1 ";
  const std::string lines = path("a.jsonl"), tensors = path("a.safetensors"), golden = path("golden.safetensors");
  ASSERT_EQ(run(run_of + "--threads 1 --page-seed 3 --trail-tensors --trail " + tensors).status, 0);
  ASSERT_EQ(run(run_of + "--mode golden --trail-tensors --trail " + golden).status, 0);
  const json against = json::parse(run(run_of + "--json --trail " + lines + " --against " + golden).out).at("against");
  const Output same = run("diff " + lines + " " + tensors);
  EXPECT_EQ(same.status, 0) << same.out << same.err;
  EXPECT_NE(same.out.find("outputs are the same"), std::string::npos) << same.out;
  const Output digests = run("diff " + lines + " " + golden), elements = run("diff " + tensors + " " + golden);
  for (const Output* output : {&digests, &elements}) {
    EXPECT_EQ(output->status, 1) << output->err;
    EXPECT_NE(output->out.find("first difference: "), std::string::npos) << output->out;
  }
  EXPECT_NE(digests.out.find("digest "), std::string::npos) << digests.out;
  EXPECT_NE(elements.out.find(" elements; the worst, "), std::string::npos) << elements.out;
  // It is where a run held against the trail parts from it.
  const json report = json::parse(run("diff --json " + lines + " " + golden).out);
  EXPECT_EQ(report.at("same"), false);
  EXPECT_EQ(report.at("first_difference").at("output"), against.at("difference").at("output"));
  EXPECT_EQ(report.at("equal_outputs").get<int>() + 1, against.at("compared").get<int>());
  std::string other = read_raw(lines);
  other.replace(other.find("\"seed\":0"), 8, "\"seed\":1");
  expect_error("diff " + lines + " " + file("seed.jsonl", other), "seed 1, expected 0");
  expect_error("diff " + lines + " " + file("no.jsonl", "{\"setting\": {}}\n"), "is no trail");
  expect_error("diff " + lines + " " + path("nowhere"), "does not exist");
}

}  // namespace
}  // namespace dodona::tools_test
