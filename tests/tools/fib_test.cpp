// dodona import --fib and export --fib: the traps of FlashInfer-Bench's data, and every op out and in again.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>

#include "command.h"
#include "core/case_line.h"
#include "dodona/op.h"
#include "io/safetensors.h"
#include "oracle/cases/case_file.h"
#include "oracle/cases/make_case.h"
#include "quant/element.h"

namespace dodona::tools_test {
namespace {

const json norm_inputs = {{"hidden_states", {{"shape", {"batch_size", "hidden_size"}}, {"dtype", "bfloat16"}}},
                          {"weight", {{"shape", {"hidden_size"}}, {"dtype", "bfloat16"}}}};

class Fib : public Command {
 protected:
  std::string set() const { return (folder_ / "set").string(); }
  std::string out() const { return (folder_ / "out").string(); }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / "set" / name).parent_path());
    std::ofstream(folder_ / "set" / name, std::ios::binary) << text;
  }
  static json norm(const std::string& name = "rmsnorm_h64") {
    return {{"name", name},
            {"op_type", "rmsnorm"},
            {"axes", {{"batch_size", {{"type", "var"}}}, {"hidden_size", {{"type", "const"}, {"value", 64}}}}},
            {"inputs", norm_inputs},
            {"outputs", {{"output", {{"shape", {"batch_size", "hidden_size"}}, {"dtype", "bfloat16"}}}}},
            {"reference", "import torch\n\ndef run(hidden_states, weight):\n    pass"}};
  }
  void define(const json& definition) const {
    write("definitions/" + definition.at("op_type").get<std::string>() + "/" + definition.at("name").get<std::string>() + ".json",
          definition.dump());
  }
  void use(const std::string& definition, const json& axes, const json& inputs, const std::string& uuid = "u1") const {
    const json line = {{"definition", definition},
                       {"workload", {{"uuid", uuid}, {"axes", axes}, {"inputs", inputs}}},
                       {"solution", nullptr},
                       {"evaluation", nullptr}};
    write("workloads/x/" + definition + ".jsonl", line.dump() + "\n\n");
  }
  Output import_set(const std::string& options = "") const { return run("import --fib " + set() + " -o " + out() + " " + options); }
  void expect_refused(const std::string& expected, const std::string& options = "") const {
    const Output output = import_set(options);
    EXPECT_EQ(output.status, 2) << output.out;
    EXPECT_NE((output.out + output.err).find(expected), std::string::npos) << expected << "\n" << output.out << output.err;
  }
  /// The one case that an import made.
  oracle::Case made(const std::string& options = "") const {
    const Output output = import_set(options + " --json");
    EXPECT_EQ(output.status, 0) << output.out << output.err;
    const json report = json::parse(output.out);
    for (const json& one : report.at("workloads"))
      if (one.contains("path")) return oracle::load_case(one.at("path"));
    throw std::runtime_error("no case was made: " + output.out);
  }

  // ---- paged MLA decode, pages of 64

  static json mla() {
    const auto tensor = [](std::vector<std::string> shape, const char* type) { return json{{"shape", shape}, {"dtype", type}}; };
    json axes;
    for (const char* name : {"batch_size", "num_pages", "len_indptr", "num_kv_indices"}) axes[name] = {{"type", "var"}};
    for (const auto& [name, value] :
         std::map<std::string, int>{{"num_qo_heads", 4}, {"head_dim_ckv", 512}, {"head_dim_kpe", 64}, {"page_size", 64}})
      axes[name] = {{"type", "const"}, {"value", value}};
    return {{"name", "mla_paged_decode_h4_ckv512_kpe64_ps64"},
            {"op_type", "mla_paged"},
            {"tags", {"fi_api:flashinfer.mla.BatchMLAPagedAttentionWrapper"}},
            {"axes", axes},
            {"constraints", {"len_indptr == batch_size + 1", "num_kv_indices == kv_indptr[-1].item()"}},
            {"inputs",
             {{"q_nope", tensor({"batch_size", "num_qo_heads", "head_dim_ckv"}, "bfloat16")},
              {"q_pe", tensor({"batch_size", "num_qo_heads", "head_dim_kpe"}, "bfloat16")},
              {"ckv_cache", tensor({"num_pages", "page_size", "head_dim_ckv"}, "bfloat16")},
              {"kpe_cache", tensor({"num_pages", "page_size", "head_dim_kpe"}, "bfloat16")},
              {"kv_indptr", tensor({"len_indptr"}, "int32")},
              {"kv_indices", tensor({"num_kv_indices"}, "int32")},
              {"kv_last_page_len", tensor({"batch_size"}, "int32")},
              {"sm_scale", {{"shape", nullptr}, {"dtype", "float32"}}}}},
            {"outputs",
             {{"output", tensor({"batch_size", "num_qo_heads", "head_dim_ckv"}, "bfloat16")},
              {"lse", tensor({"batch_size", "num_qo_heads"}, "float32")}}},
            {"reference", "def run(*args):\n    pass"}};
  }
  static Tensor numbers(const std::vector<int>& values) {
    Tensor tensor(DType::i32, {static_cast<std::int64_t>(values.size())});
    for (std::size_t i = 0; i < values.size(); ++i) tensor.as<std::int32_t>()[i] = values[i];
    return tensor;
  }
  /// A captured workload: page lists from a file, the cache random and a gigabyte by its declared size.
  void use_mla(const std::vector<int>& indptr, const std::vector<int>& indices, const std::vector<int>& last,
               json axes = json::object()) const {
    fs::create_directories(folder_ / "set/blob");
    io::write_safetensors((folder_ / "set/blob/pages.safetensors").string(),
                          {{"kv_indptr", numbers(indptr)}, {"kv_indices", numbers(indices)}, {"kv_last_page_len", numbers(last)}});
    const auto file = [](const char* key) {
      return json{{"type", "safetensors"}, {"path", "./blob/pages.safetensors"}, {"tensor_key", key}};
    };
    const json random{{"type", "random"}};
    json sizes{{"batch_size", last.size()}, {"num_pages", 989669}, {"len_indptr", indptr.size()}, {"num_kv_indices", indices.size()}};
    sizes.update(axes);
    use("mla_paged_decode_h4_ckv512_kpe64_ps64", sizes,
        {{"q_nope", random},
         {"q_pe", random},
         {"ckv_cache", random},
         {"kpe_cache", random},
         {"kv_indptr", file("kv_indptr")},
         {"kv_indices", file("kv_indices")},
         {"kv_last_page_len", file("kv_last_page_len")},
         {"sm_scale", {{"type", "scalar"}, {"value", 0.1352337788608801}}}});
  }
};

const json random_norm = {{"hidden_states", {{"type", "random"}}}, {"weight", {{"type", "random"}}}};

TEST_F(Fib, RandomInputsComeFromASeed) {
  define(norm());
  use("rmsnorm_h64", {{"batch_size", 3}}, random_norm);
  const oracle::Case c = made();
  EXPECT_EQ(c.op->name(), "rmsnorm");
  EXPECT_EQ(c.inputs.find("input")->shape(), (Dims{3, 64}));
  const std::string path = out() + "/rmsnorm/rmsnorm_h64_u1.safetensors", first = read_raw(path);
  made();
  EXPECT_EQ(read_raw(path), first);
  made("--seed 1");
  EXPECT_NE(read_raw(path), first);
  EXPECT_EQ(run("verify --mode all " + path).status, 0);
}

TEST_F(Fib, AFusedAddNormLeavesItsOutputsInItsArguments) {
  json definition = norm("fused_add_rmsnorm_h64");
  definition["inputs"]["residual"] = norm_inputs["hidden_states"];
  define(definition);
  json inputs = random_norm;
  inputs["residual"] = {{"type", "random"}};
  use("fused_add_rmsnorm_h64", {{"batch_size", 2}}, inputs);
  EXPECT_EQ(made().op->name(), "fused_add_rmsnorm");
}

TEST_F(Fib, AGemmaNormIsNotTakenForAPlainOne) {
  define(norm("gemma_rmsnorm_h64"));
  use("gemma_rmsnorm_h64", {{"batch_size", 2}}, random_norm);
  expect_refused("skipped: ");
}

TEST_F(Fib, TheRouterGemmIsHalfPrecisionAsDeclared) {
  const auto tensor = [](const char* a, const char* b) { return json{{"shape", {a, b}}, {"dtype", "float16"}}; };
  define({{"name", "gemm_n16_k64"},
          {"op_type", "gemm"},
          {"axes", {{"M", {{"type", "var"}}}, {"N", {{"type", "const"}, {"value", 16}}}, {"K", {{"type", "const"}, {"value", 64}}}}},
          {"inputs", {{"A", tensor("M", "K")}, {"B", tensor("N", "K")}}},
          {"outputs", {{"C", tensor("M", "N")}}},
          {"reference", "def run(A, B):\n    return A @ B.T"}});
  use("gemm_n16_k64", {{"M", 5}}, {{"A", {{"type", "random"}}}, {"B", {{"type", "random"}}}});
  const oracle::Case c = made();
  EXPECT_EQ(c.op->name(), "linear");
  ASSERT_EQ(c.outputs.size(), 1U);
  EXPECT_EQ(c.outputs[0].second.dtype(), DType::f16);
}

TEST_F(Fib, OnlyPagesThatAreNamedAreMade) {
  define(mla());
  use_mla({0, 2, 3}, {989668, 7, 7}, {64, 1});
  const oracle::Case c = made();
  EXPECT_EQ(c.op->name(), "trtllm_batch_decode_with_kv_cache_mla");
  EXPECT_EQ(c.inputs.find("kv_cache")->shape(), (Dims{2, 64, 576}));
  EXPECT_EQ(quant::get(*c.inputs.find("seq_lens"), 0), 128);
  EXPECT_EQ(quant::get(*c.inputs.find("seq_lens"), 1), 1);
  // A page is the same whatever else is in use.
  use_mla({0, 1}, {7}, {64});
  const oracle::Case alone = made();
  const Tensor in_both = c.inputs.find("kv_cache")->slice(0, 1, 2).clone();
  EXPECT_EQ(std::memcmp(in_both.data(), alone.inputs.find("kv_cache")->data(), 64 * 576 * 2), 0);
}

TEST_F(Fib, TheLogSumExpIsBaseTwo) {
  define(mla());
  use_mla({0, 1}, {3}, {2});
  const oracle::Case c = made();
  const Tensor *query = c.inputs.find("query"), *cache = c.inputs.find("kv_cache");
  double sum = 0;
  for (int key = 0; key < 2; ++key) {
    double score = 0;
    for (int k = 0; k < 576; ++k) score += quant::get(*query, k) * quant::get(*cache, key * 576 + k);
    sum += std::exp(0.1352337788608801 * score);
  }
  const auto lse = std::find_if(c.outputs.begin(), c.outputs.end(), [](const auto& output) { return output.first == "lse"; });
  ASSERT_NE(lse, c.outputs.end());
  EXPECT_NEAR(quant::get(lse->second, 0), std::log2(sum), 1e-4);
}

TEST_F(Fib, RequestsWithoutPagesAreLeftOutAndSaid) {
  define(mla());
  use_mla({0, 1, 1}, {5}, {3, 1});
  const oracle::Case c = made();
  EXPECT_EQ(c.inputs.find("query")->size(0), 1);
  EXPECT_NE(c.notes.find("1 of 2 requests have no page"), std::string::npos) << c.notes;
}

TEST_F(Fib, ConstraintsHoldOrAreNamed) {
  define(mla());
  use_mla({0, 1, 2, 2}, {5, 6}, {3, 1});  // one entry too many: num_pages + 1 is what a page of documentation says
  expect_refused("breaks the constraint 'len_indptr == batch_size + 1'");
  use_mla({0, 1, 3}, {5, 6}, {3, 1});
  expect_refused("breaks the constraint 'num_kv_indices == kv_indptr[-1].item()'");
}

TEST_F(Fib, PagesOutOfRangeAreRefused) {
  define(mla());
  use_mla({0, 1}, {989669}, {3});
  expect_refused("page 989669 of 989669");
  use_mla({0, 1}, {1}, {65});
  expect_refused("kv_last_page_len is 65");
}

TEST_F(Fib, GitLfsPointersAreNamed) {
  define(norm());
  write("blob/w.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 128\n");
  json inputs = random_norm;
  inputs["weight"] = {{"type", "safetensors"}, {"path", "./blob/w.safetensors"}, {"tensor_key", "weight"}};
  use("rmsnorm_h64", {{"batch_size", 3}}, inputs);
  expect_refused("is a Git LFS pointer");
}

TEST_F(Fib, PathsStayInTheSet) {
  define(norm());
  json inputs = random_norm;
  for (const char* path : {"../secret.safetensors", "/etc/passwd", "blob/../../x"}) {
    inputs["weight"] = {{"type", "safetensors"}, {"path", path}, {"tensor_key", "weight"}};
    use("rmsnorm_h64", {{"batch_size", 3}}, inputs);
    expect_refused("leads out of the set");
  }
}

TEST_F(Fib, DumpsAreReadAndTheirDeviationsListed) {
  json definition = norm();
  definition["reference"] = "def _rmsnorm_reference(hidden_states, weight):\n    pass";
  definition["inputs"]["weight"]["dtype"] = "unknown";
  definition["inputs"]["weight"]["optional"] = false;
  definition["tags"] = {"fi_api:flashinfer.norm.rmsnorm"};
  write("rmsnorm_h64.json", definition.dump());  // no definitions/, no workloads: a folder of dumps
  expect_refused("give its sizes with --axis");
  const Output output = import_set("--axis batch_size=4 --json");
  ASSERT_EQ(output.status, 0) << output.out << output.err;
  const json one = json::parse(output.out).at("workloads").at(0);
  EXPECT_EQ(one.at("dialect"), "fi_trace");
  const std::string notes = one.at("notes").dump();
  for (const char* deviation : {"no top-level function 'run'", "has dtype 'unknown'", "has the field 'optional'"})
    EXPECT_NE(notes.find(deviation), std::string::npos) << notes;
}

TEST_F(Fib, ADumpWhoseOutputIsNotOursIsRefused) {
  const json field{{"shape", {"num_tokens", "hidden_size"}}, {"dtype", "bfloat16"}};  // as captured: input and output of one width
  define({{"name", "silu_and_mul_h64"},
          {"op_type", "activation"},
          {"tags", {"fi_api:flashinfer.activation.silu_and_mul"}},
          {"axes", {{"num_tokens", {{"type", "var"}}}, {"hidden_size", {{"type", "const"}, {"value", 64}}}}},
          {"inputs", {{"input", field}}},
          {"outputs", {{"output", field}}},
          {"reference", "def _f(input):\n    pass"}});
  expect_refused("says that output is [2, 64], silu_and_mul gives [2, 32]", "--axis num_tokens=2");
}

TEST_F(Fib, WorkThatNoOpDoesIsSkippedWithAReason) {
  json definition = norm("moe_fp8_block_scale_ds_routing_topk8");
  definition["op_type"] = "moe";
  define(definition);
  use("moe_fp8_block_scale_ds_routing_topk8", {{"batch_size", 1}}, random_norm);
  expect_refused("hidden_states_scale is transposed there");
}

TEST_F(Fib, BadFilesGetOneErrorThatNamesTheField) {
  const std::vector<std::pair<std::string, std::string>> bad{
      {R"({"op_type": "rmsnorm"})", "name"},
      {R"({"name": "../x", "op_type": "r"})", "cannot be part of a file name"},
      {R"({"name": "x", "op_type": "r", "axes": {"a": {"type": "dyn"}}})", "expected 'const' or 'var'"},
      {R"({"name": "x", "op_type": "r", "axes": {"a": {"type": "const", "value": -1}}})", "negative"},
      {R"({"name": "x", "op_type": "r", "axes": {}, "inputs": {"a": {"shape": 3, "dtype": "int8"}}, "outputs": {}})", "inputs.a"},
      {R"([])", "expected a JSON object"},
      {R"({"name": )", "definitions/x.json"}};
  for (const auto& [text, expected] : bad) {
    write("definitions/x.json", text);
    expect_refused(expected);
  }
  write("definitions/x.json", norm().dump());
  use("rmsnorm_h64", json::object(), random_norm);
  expect_refused("does not give the axis batch_size");
  use("rmsnorm_h64", {{"batch_size", 1}, {"hidden_size", 65}}, random_norm);
  expect_refused("fixes at 64");
  use("rmsnorm_h64", {{"batch_size", 1}}, {{"hidden_states", {{"type", "random"}}}});
  expect_refused("weight");
  use("rmsnorm_h64", {{"batch_size", 1}, {"x", 1}}, random_norm);
  expect_refused("does not have");
  expect_error("import --fib " + (folder_ / "nowhere").string() + " -o " + out(), "holds no Definition");
}

TEST_F(Fib, TracesOfOurOwnRunHaveFlashInferBenchsForm) {
  define(norm());
  use("rmsnorm_h64", {{"batch_size", 3}}, random_norm);
  made("--trace " + (folder_ / "trace.jsonl").string());
  const json trace = json::parse(read_raw(folder_ / "trace.jsonl"));
  EXPECT_EQ(trace.at("definition"), "rmsnorm_h64");
  EXPECT_EQ(trace.at("workload").at("uuid"), "u1");
  EXPECT_EQ(trace.at("evaluation").at("status"), "PASSED");
  EXPECT_EQ(trace.at("evaluation").at("environment").at("hardware"), "cpu-oracle");
  EXPECT_TRUE(trace.at("evaluation").at("performance").at("latency_ms").is_number());
}

/// Every attribute that has an effect, given or not.
std::map<std::string, std::string> effective(const Op& op, const Arguments& arguments) {
  std::map<std::string, std::string> values;
  for (const AttrSpec& spec : op.schema().attrs) {
    const AttrValue* given = arguments.find_attr(spec.name);
    if (!spec.ignored) values[spec.name] = to_string(given != nullptr ? *given : spec.default_value);
  }
  return values;
}

TEST_F(Fib, ExportsOfAllOpsKeepTheRulesAndComeBackAsTheSameCases) {
  ASSERT_EQ(run("export --fib " + set()).status, 0);
  const std::string rules =
      std::string("python3 ") + DODONA_SOURCE_DIR "/tests/tools/fib_rules.py " + set() + " > " + (folder_ / "rules").string();
  EXPECT_EQ(std::system(rules.c_str()), 0) << read_raw(folder_ / "rules");
  const Output output = import_set("--json");
  ASSERT_EQ(output.status, 0) << output.out << output.err;
  const json report = json::parse(output.out);
  EXPECT_EQ(report.at("skipped"), 0);
  std::map<std::string, std::size_t> imported;
  for (const json& one : report.at("workloads")) {
    EXPECT_EQ(one.at("dialect"), "flashinfer-bench") << one.dump();
    const oracle::Case c = oracle::load_case(one.at("path"));
    const std::string op(c.op->name());
    ++imported[op];
    // `rmsnorm_c2` is the op's second case line.
    const std::string name = one.at("definition");
    const std::size_t number = std::stoul(name.substr(name.rfind("_c") + 2)) - 1;
    const oracle::Case wanted = oracle::make_case(parse_case_line(op + " " + c.op->cases().at(number)), Exec{}, true);
    auto digests = oracle::digests_of(c.inputs, c.outputs);
    for (const TensorSpec& spec : c.op->schema().tensors)
      if (oracle::is_memory_of_output(spec)) digests.erase("in." + spec.name);
    EXPECT_EQ(digests, wanted.digests) << name;
    EXPECT_EQ(effective(*c.op, c.inputs), effective(*c.op, wanted.inputs)) << name;
  }
  for (const auto& op : registry().all()) EXPECT_EQ(imported[std::string(op->name())], op->cases().size()) << op->name();
}

TEST_F(Fib, CaseLinesWithSpecialInputsComeBackAsTheSameCases) {
  const std::vector<std::string> lines{"rmsnorm T=9 H=64 --special zero-rows --special gaps --seed 3",
                                       "merge_state T=3 N=6 D=32 --special empty-lse --special one-sided-lse",
                                       "trtllm_batch_decode_with_kv_cache_mla B=3 Q=1 N=2 pages=8 P=32 W=2 --attr bmm1_scale=0.1 --special "
                                       "stale-cache --special edge-lengths --special shared-pages",
                                       "fp8_gemm_nt M=9 N=24 K=144 --special zero-scales --window M=2..7"};
  std::string quoted;
  for (const std::string& line : lines) quoted += " '" + line + "'";
  ASSERT_EQ(run("export --fib " + set() + quoted).status, 0);
  const Output output = import_set("--json");
  ASSERT_EQ(output.status, 0) << output.out << output.err;
  std::set<std::string> left(lines.begin(), lines.end());
  const json report = json::parse(output.out);
  for (const json& one : report.at("workloads")) {
    const oracle::Case c = oracle::load_case(one.at("path"));
    const auto line =
        std::find_if(left.begin(), left.end(), [&](const std::string& l) { return l.starts_with(std::string(c.op->name()) + " "); });
    ASSERT_NE(line, left.end()) << one.dump();
    EXPECT_EQ(oracle::digests_of(c.inputs, c.outputs), oracle::make_case(parse_case_line(*line), Exec{}, true).digests) << *line;
    left.erase(line);
  }
  EXPECT_TRUE(left.empty());
}

}  // namespace
}  // namespace dodona::tools_test
