// A decoder layer, from C.
#include <algorithm>
#include <array>
#include <memory>

#include "capi/guard.h"
#include "capi/translate.h"
#include "dodona/error.h"
#include "io/json.h"
#include "model/layer_call.h"

struct dodona_record {
  std::string text;
};

namespace dodona::capi {
namespace {

struct LayerCall {
  model::ModelConfig config;
  std::string weights;
  std::int64_t layer = 0;
  std::vector<std::int64_t> lengths;
  std::uint64_t seed = 0;
  Exec exec;
};

[[noreturn]] void bad_option(const std::string& option, const std::string& why) {
  throw Error(ErrorCode::bad_option, "layer", option, why);
}

void check_names(const io::Json& options) {
  static constexpr std::array<std::string_view, 9> known{"preset", "config", "weights", "layer", "kv_len",
                                                         "batch",  "mode",   "threads", "seed"};
  for (const auto& [name, value] : options.items())
    if (std::find(known.begin(), known.end(), name) == known.end()) bad_option(name, "is no option of a layer");
}

std::vector<std::int64_t> lengths_of(const io::Json& options) {
  std::vector<std::int64_t> lengths{1024};
  if (io::find_field(options, "kv_len") != nullptr) lengths = io::get_ints(options, "kv_len");
  const auto given = static_cast<std::int64_t>(lengths.size());
  const std::int64_t batch = io::get_int_or(options, "batch", given);
  constexpr std::int64_t most = 1 << 20;
  if (batch < 1 || batch > most) bad_option("batch", "is " + std::to_string(batch) + ", expected 1 to " + std::to_string(most));
  if (given != 1 && given != batch)
    bad_option("kv_len",
               "has " + std::to_string(given) + " values, expected one, or one for each of " + std::to_string(batch) + " requests");
  lengths.resize(static_cast<std::size_t>(batch), lengths.front());
  return lengths;
}

LayerCall read_call(const char* text) {
  const io::Json options = io::parse_json(text, "layer options");
  check_names(options);
  LayerCall call;
  call.weights = io::get_string_or(options, "weights", "");
  call.config = model::choose_config(io::get_string_or(options, "config", ""), io::get_string_or(options, "preset", ""), call.weights);
  call.layer = io::get_int_or(options, "layer", model::default_layer(call.config));
  call.config.check_layer(call.layer);
  call.lengths = lengths_of(options);
  const std::int64_t seed = io::get_int_or(options, "seed", 0), threads = io::get_int_or(options, "threads", 0);
  if (seed < 0) bad_option("seed", "is negative");
  if (threads < 0 || threads > 4096) bad_option("threads", "is " + std::to_string(threads) + ", expected 1 to 4096");
  call.seed = static_cast<std::uint64_t>(seed);
  const std::string mode = io::get_string_or(options, "mode", "fast");
  const auto parsed = parse_mode(mode);
  if (!parsed) bad_option("mode", "must be fast, golden or hopper, got '" + mode + "'");
  call.exec.mode = *parsed;
  if (threads > 0) call.exec.threads = static_cast<int>(threads);
  return call;
}

void run(const LayerCall& call, dodona_tensors& outputs, dodona_record& record) {
  constexpr auto rounding = model::Rounding::bf16;
  const auto batch = static_cast<std::int64_t>(call.lengths.size());
  model::PagedKvCache cache(call.config, model::activation_type(rounding), call.lengths, 0);
  const auto source = model::open_weights(call.config, call.weights, call.seed, call.exec);
  model::LayerWeights weights(*source, call.layer, rounding, false, call.exec);
  cache.synthesize_history(call.seed, call.lengths, call.exec.threads);
  const model::DecodeStep step = model::draw_step(call.config, call.layer, call.lengths, rounding, call.seed);
  model::Trace trace(model::decode_book(call.config, call.layer, batch, false), model::decode_book(call.config, call.layer, 0, false),
                     call.exec);
  const model::LayerOutput output = model::decode(weights, step, cache, model::Residual::fused, trace);
  outputs.list = {{"hidden", output.hidden.clone()}, {"residual", output.residual.clone()}};
  io::Json ops = io::Json::array();
  for (const model::OpRecord& op : trace.records()) ops.push_back(model::to_json(op));
  record.text = io::json_text(
      {{"digest", model::digest_of(output)}, {"model", call.config.name}, {"layer", call.layer}, {"batch", batch}, {"ops", ops}});
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
    dodona::capi::run(dodona::capi::read_call(&required(options, "options")), *tensors, *text);
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
