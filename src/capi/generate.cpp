// Whole models, from C.
#include <algorithm>
#include <array>
#include <limits>
#include <memory>

#include "capi/guard.h"
#include "capi/record.h"
#include "capi/translate.h"
#include "dodona/error.h"
#include "io/json.h"
#include "model/generate_run.h"
#include "model/layer/kernel_use.h"
#include "model/run.h"

namespace dodona::capi {
namespace {

[[noreturn]] void bad_option(const std::string& option, const std::string& why) {
  throw Error(ErrorCode::bad_option, "generate", option, why);
}

constexpr std::array<std::string_view, 26> known{"prompt_ids",
                                                 "preset",
                                                 "config",
                                                 "weights",
                                                 "weights_seed",
                                                 "linear",
                                                 "max_new",
                                                 "temperature",
                                                 "top_k",
                                                 "top_p",
                                                 "min_p",
                                                 "seed",
                                                 "end_token",
                                                 "speculative",
                                                 "speculative_num_steps",
                                                 "speculative_eagle_topk",
                                                 "speculative_num_draft_tokens",
                                                 "chunk",
                                                 "experts",
                                                 "rounding",
                                                 "use",
                                                 "kv_cache_dtype",
                                                 "mode",
                                                 "threads",
                                                 "state",
                                                 "resume"};

/// Options of the JSON object, typed.
class Options {
 public:
  explicit Options(const char* text) : json_(io::parse_json(text, "generate options")) {
    for (const auto& [name, value] : json_.items())
      if (std::find(known.begin(), known.end(), name) == known.end()) bad_option(name, "is no option of generate");
  }
  bool has(const char* name) const { return io::find_field(json_, name) != nullptr; }
  std::string text(const char* name, const char* otherwise = "") const { return io::get_string_or(json_, name, otherwise); }
  double number(const char* name, double otherwise) const { return io::get_double_or(json_, name, otherwise); }
  bool flag(const char* name) const { return io::get_bool_or(json_, name, false); }
  std::int64_t whole(const char* name, std::int64_t otherwise, std::int64_t least = 0,
                     std::int64_t most = std::numeric_limits<std::int32_t>::max()) const {
    const std::int64_t value = io::get_int_or(json_, name, otherwise);
    if (value < least || value > most)
      bad_option(name, "is " + std::to_string(value) + ", expected " + std::to_string(least) + " to " + std::to_string(most));
    return value;
  }
  std::vector<std::string> texts(const char* name) const { return has(name) ? io::get_strings(json_, name) : std::vector<std::string>(); }
  std::vector<std::vector<std::int64_t>> prompts() const {
    std::vector<std::vector<std::int64_t>> prompts;
    for (const io::Json& each : io::get_array(json_, "prompt_ids", "generate options"))
      prompts.push_back(io::get_ints({{"prompt_ids", each}}, "prompt_ids", "generate options"));
    return prompts;
  }

 private:
  io::Json json_;
};

void read_drafts(const Options& options, model::GenerateRequest& request) {
  const std::string speculative = options.text("speculative");
  if (!speculative.empty() && speculative != "nextn") bad_option("speculative", "must be nextn, got '" + speculative + "'");
  for (const char* name : {"speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens"})
    if (speculative.empty() && options.has(name)) bad_option(name, "is given without speculative");
  if (speculative.empty()) return;
  request.draft_steps = options.whole("speculative_num_steps", 3, 1, 64);
  request.draft_topk = options.whole("speculative_eagle_topk", 1, 1, 64);
  if (request.draft_topk > 1 && !options.has("speculative_num_draft_tokens"))
    bad_option("speculative_num_draft_tokens", "is missing: nodes of a tree, the newest token counted");
  request.draft_tokens = options.whole("speculative_num_draft_tokens", 0);
}

model::GenerateCall read_call(const char* text) {
  const Options options(text);
  model::GenerateCall call;
  call.weights = options.text("weights");
  const std::string preset = options.text("preset"), config = options.text("config");
  call.config = model::choose_config(config, preset.empty() && config.empty() && call.weights.empty() ? "tiny" : preset, call.weights);
  if (const std::string linear = options.text("linear"); !linear.empty())
    call.config = model::with_scheme(std::move(call.config), model::scheme_named(linear));
  call.weights_seed = static_cast<std::uint64_t>(options.whole("weights_seed", 0));
  call.request.prompts = options.prompts();
  call.request.max_new = options.whole("max_new", 16, 1);
  call.request.sampling = {.temperature = options.number("temperature", 0),
                           .top_p = options.number("top_p", 1),
                           .min_p = options.number("min_p", 0),
                           .top_k = options.whole("top_k", -1, -1)};
  call.request.seed = static_cast<std::int32_t>(options.whole("seed", 0));
  call.request.end_token = options.whole("end_token", -1, -1);
  call.request.chunk = options.whole("chunk", 512, 1);
  read_drafts(options, call.request);
  call.setting.experts = options.text("experts");
  const std::string rounding = options.text("rounding", "bf16");
  if (rounding != "bf16" && rounding != "off") bad_option("rounding", "must be bf16 or off, got '" + rounding + "'");
  if (rounding == "off") call.setting.rounding = model::Rounding::off;
  call.setting.kv_cache = model::kv_cache_of(options.text("kv_cache_dtype", "bf16"), call.config, "kv_cache_dtype");
  call.setting = model::for_any_company(std::move(call.setting));
  std::vector<model::KernelUse> uses;
  for (const std::string& use : options.texts("use")) uses.push_back(model::parse_use(use));
  model::apply_uses(call.config, call.setting, uses,
                    {.stored = !call.weights.empty(), .any_layer = true, .drafts = call.request.draft_steps > 0});
  const std::string mode = options.text("mode", "fast");
  const auto parsed = parse_mode(mode);
  if (!parsed) bad_option("mode", "must be " + either_of(mode_list) + ", got '" + mode + "'");
  call.exec.mode = *parsed;
  if (const std::int64_t threads = options.whole("threads", 0, 0, 4096); threads > 0) call.exec.threads = static_cast<int>(threads);
  call.state = options.text("state");
  call.resume = options.flag("resume");
  return call;
}

std::string run(const model::GenerateCall& call, dodona_behind_layer behind_layer, void* user) {
  model::GenerateRun run(call);
  std::int64_t layers = 0, last = 0;
  double arithmetic = 0;
  const auto behind = [&](const model::LayerTiming& timing) {
    ++layers, last = timing.layer;
    arithmetic += timing.arithmetic;
    return behind_layer == nullptr || behind_layer(timing.layer, call.config.num_hidden_layers, user) == 0;
  };
  if (!run.run({.layer = behind}))
    throw Error(ErrorCode::bad_value, "generate", "",
                "stopped by its caller behind layer " + std::to_string(last) +
                    (call.state.empty() ? "" : ": " + call.state + " holds what was done, resume goes on from it"));
  model::Generation& generation = run.generation();
  return io::json_text({{"tokens", generation.texts()},
                        {"model", call.config.name},
                        {"weights", run.source().description()},
                        {"rounds", generation.steps()},
                        {"accepted", generation.accepted()},
                        {"layers", layers},
                        {"arithmetic_seconds", arithmetic}});
}

}  // namespace
}  // namespace dodona::capi

int dodona_generate(const char* options, dodona_behind_layer behind_layer, void* user, dodona_record** record) {
  using dodona::capi::required;
  return dodona::capi::guarded([&] {
    required(record, "the place for the record") = nullptr;
    auto text = std::make_unique<dodona_record>();
    text->text = dodona::capi::run(dodona::capi::read_call(&required(options, "options")), behind_layer, user);
    *record = text.release();
  });
}
