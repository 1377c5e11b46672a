// A decoder layer, from C.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "capi/guard.h"
#include "capi/record.h"
#include "capi/translate.h"
#include "dodona/error.h"
#include "io/json.h"
#include "model/layer/kernel_use.h"
#include "model/run.h"

namespace dodona::capi {
namespace {

[[noreturn]] void bad_option(const std::string& option, const std::string& why) {
  throw Error(ErrorCode::bad_option, "layer", option, why);
}

void check_names(const io::Json& options) {
  static constexpr std::array<std::string_view, 26> known{
      "preset",     "config",         "weights",  "layer",          "kv_len",
      "batch",      "mode",           "threads",  "seed",           "phase",
      "prefix_len", "draft_tokens",   "backend",  "path",           "experts",
      "use",        "kv_cache_dtype", "linear",   "expert_weights", "fused_shared_expert",
      "gpu",        "residual",       "rounding", "dual_stream",    "prefix_chunk",
      "page_seed"};
  for (const auto& [name, value] : options.items())
    if (std::find(known.begin(), known.end(), name) == known.end()) bad_option(name, "is no option of a layer");
}

/// Whether the option is the second of two texts, and not the first, which it is where nothing is said.
bool one_of(const io::Json& options, const char* name, const std::string& first, const std::string& second) {
  const std::string text = io::get_string_or(options, name, first);
  if (text != first && text != second) bad_option(name, "must be " + first + " or " + second + ", got '" + text + "'");
  return text == second;
}

/// How much of the batch is new, and by which kernels it goes.
void read_ways(const io::Json& options, model::LayerRequest& request) {
  const auto text = [&](const char* name, const char* otherwise) { return io::get_string_or(options, name, otherwise); };
  std::vector<std::int64_t> prefix_len;
  std::optional<std::int64_t> draft_tokens;
  if (io::find_field(options, "prefix_len") != nullptr) prefix_len = io::get_ints(options, "prefix_len");
  if (io::find_field(options, "draft_tokens") != nullptr) draft_tokens = io::get_int_or(options, "draft_tokens", 0);
  const model::Phases phases =
      model::phases_of(text("phase", "decode"), request.lengths, prefix_len, draft_tokens, {"phase", "prefix_len", "draft_tokens"});
  if (phases.forward != model::Forward::decode) {
    request.forward = phases.forward;
    request.new_tokens = phases.new_tokens;
  }
  request.setting.backend = text("backend", "");
  request.setting.experts = text("experts", "");
  if (one_of(options, "expert_weights", "stored", "fp8")) request.setting.expert_weights = model::ExpertWeights::fp8;
  request.setting.fused_shared = io::get_bool_or(options, "fused_shared_expert", false);
  request.setting.dual_stream = io::get_bool_or(options, "dual_stream", false);
  if (one_of(options, "residual", "fused", "pre-added")) request.setting.residual = model::Residual::pre_added;
  if (one_of(options, "rounding", "bf16", "off")) request.setting.rounding = model::Rounding::off;
  request.setting.prefix_chunk = io::get_int_or(options, "prefix_chunk", request.setting.prefix_chunk);
  if (const std::string path = text("path", ""); !path.empty()) request.setting.path = model::parse_path(path);
  request.setting.kv_cache = model::kv_cache_of(text("kv_cache_dtype", "bf16"), request.config, "kv_cache_dtype");
  std::vector<model::KernelUse> uses;
  if (io::find_field(options, "use") != nullptr)
    for (const std::string& use : io::get_strings(options, "use")) uses.push_back(model::parse_use(use));
  const model::Batch batch = model::batch_of(request);
  model::apply_uses(request.config, request.setting, uses, {.batch = &batch, .stored = !request.weights.empty()});
  model::check_heard(request, io::find_field(options, "prefix_chunk") != nullptr);
}

model::LayerRequest read_request(const char* text) {
  const io::Json options = io::parse_json(text, "layer options");
  check_names(options);
  model::LayerRequest request;
  request.weights = io::get_string_or(options, "weights", "");
  request.config =
      model::choose_config(io::get_string_or(options, "config", ""), io::get_string_or(options, "preset", ""), request.weights);
  if (const std::string linear = io::get_string_or(options, "linear", ""); !linear.empty()) {
    if (!request.weights.empty()) bad_option("linear", "is of weights from the seed, but weights are given");
    request.config = model::with_scheme(std::move(request.config), model::scheme_named(linear));
  }
  request.setting.layer = io::get_int_or(options, "layer", model::default_layer(request.config));
  request.config.check_layer(request.setting.layer);
  std::vector<std::int64_t> kv_len{1024};
  if (io::find_field(options, "kv_len") != nullptr) kv_len = io::get_ints(options, "kv_len");
  if (kv_len.empty()) bad_option("kv_len", "is an empty list");
  request.lengths = model::lengths_of(request.config, kv_len, io::get_int_or(options, "batch", static_cast<std::int64_t>(kv_len.size())),
                                      {"batch", "kv_len"});
  const auto seed = [&](const char* name) {
    const std::int64_t value = io::get_int_or(options, name, 0);
    if (value < 0) bad_option(name, "is " + std::to_string(value) + ", expected 0 or more");
    return static_cast<std::uint64_t>(value);
  };
  const std::int64_t threads = io::get_int_or(options, "threads", 0);
  if (threads < 0 || threads > 4096) bad_option("threads", "is " + std::to_string(threads) + ", expected 1 to 4096");
  request.seed = seed("seed");
  request.page_seed = seed("page_seed");
  const std::string mode = io::get_string_or(options, "mode", "");
  const auto parsed = mode.empty() ? Mode::fast : parse_mode(mode);
  if (!parsed) bad_option("mode", "must be " + either_of(mode_list) + ", got '" + mode + "'");
  request.exec.mode = *parsed;
  if (const std::string gpu = io::get_string_or(options, "gpu", ""); !gpu.empty()) {
    const auto of_gpu = mode_of_gpu(gpu);
    if (!of_gpu) bad_option("gpu", "is '" + gpu + "', which is no GPU that is known");
    if (!mode.empty() && *parsed != *of_gpu)
      bad_option("gpu", "is '" + gpu + "', whose mode is " + std::string(name(*of_gpu)) + ", but mode is " + mode);
    request.exec.mode = *of_gpu;
  }
  if (threads > 0) request.exec.threads = static_cast<int>(threads);
  read_ways(options, request);
  return request;
}

void run(const model::LayerRequest& request, dodona_tensors& outputs, dodona_record& record) {
  model::LayerRun layer(request);
  const model::LayerRun::Result result = layer.run();
  outputs.list = {{"hidden", result.output.hidden.clone()}, {"residual", result.output.residual.clone()}};
  io::Json ops = io::Json::array();
  for (const model::OpRecord& op : result.records) ops.push_back(model::to_json(op));
  record.text = io::json_text({{"digest", model::digest_of(result.output)},
                               {"model", request.config.name},
                               {"layer", request.setting.layer},
                               {"batch", request.lengths.size()},
                               {"ops", ops}});
}

}  // namespace
}  // namespace dodona::capi

int dodona_layer(const char* options, dodona_tensors** outputs, dodona_record** record) {
  using dodona::capi::required;
  return dodona::capi::guarded([&] {
    required(outputs, "the place for outputs") = nullptr;
    required(record, "the place for the record") = nullptr;
    auto tensors = std::make_unique<dodona_tensors>();
    auto text = std::make_unique<dodona_record>();
    dodona::capi::run(dodona::capi::read_request(&required(options, "options")), *tensors, *text);
    *outputs = tensors.release();
    *record = text.release();
  });
}

const char* dodona_record_text(const dodona_record* record) {
  return record == nullptr ? "" : record->text.c_str();
}

void dodona_record_free(dodona_record* record) {
  delete record;
}
