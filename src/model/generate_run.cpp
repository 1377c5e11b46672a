#include "model/generate_run.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "dodona/error.h"
#include "io/bytes.h"
#include "io/sha256.h"
#include "model/run.h"

namespace dodona::model {
namespace {

namespace fs = std::filesystem;

std::string digest(const std::string& text) {
  io::Sha256 hash;
  hash.update(io::as_bytes(text));
  return io::to_hex(hash.digest());
}

/// Which files the folder holds, how large they are and when they were written.
std::string files_of(const std::string& folder) {
  std::vector<std::string> lines;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".safetensors")
      lines.push_back(entry.path().filename().string() + " " + std::to_string(entry.file_size(ignored)) + " " +
                      std::to_string(entry.last_write_time(ignored).time_since_epoch().count()));
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return digest(text);
}

struct Stopped {};

}  // namespace

bool names_parts(const std::string& path) {
  constexpr std::string_view begin = "{\n  \"split\": ";
  std::string text(begin.size(), ' ');
  return std::ifstream(path).read(text.data(), static_cast<std::streamsize>(text.size())) && text == begin;
}

io::Json key_of(const GenerateCall& call, const std::string& weights) {
  const GenerateRequest& r = call.request;
  io::Json uses = io::Json::array();
  for (const KernelUse& use : call.setting.use) uses.push_back(use.op + "=" + use.kernel);
  io::Json key = versions_json();
  key.update({{"model", call.config.name},
              {"config", digest(config_json(call.config))},
              {"weights", weights},
              {"files of weights", call.weights.empty() ? "" : files_of(call.weights)},
              {"prompts", r.prompts},
              {"temperature", r.sampling.temperature},
              {"top_k", r.sampling.top_k},
              {"top_p", r.sampling.top_p},
              {"min_p", r.sampling.min_p},
              {"seed", r.seed},
              {"draft steps", r.draft_steps},
              {"experts", call.setting.experts},
              {"rounding", call.setting.rounding == Rounding::bf16 ? "bf16" : "off"},
              {"use", uses},
              {"kv_cache_dtype", std::string(name(call.setting.cache_type()))},
              {"mode", std::string(name(call.exec.mode))}});
  if (r.draft_steps > 0)
    key.update({{"draft beams", r.draft_topk}, {"draft tokens", r.nodes()}, {"max_new", r.max_new}, {"end_token", r.end_token}});
  return key;
}

GenerateRun::GenerateRun(const GenerateCall& call) : state_(call.state) {
  if (call.resume && call.state.empty()) throw Error(ErrorCode::bad_option, "", "resume", "needs a state");
  source_ = open_weights(call.config, call.weights, call.weights_seed, call.exec);
  key_ = key_of(call, source_->description());
  generation_ = std::make_unique<Generation>(*source_, call.setting, call.request, call.exec);
  if (!call.resume) return;
  if (names_parts(call.state))
    throw Error(ErrorCode::bad_value, "", "resume", call.state + " holds the state of several ranks: it is gone on from by that many");
  generation_->resume(read_state(call.state, key_));
}

void GenerateRun::keep() {
  if (state_.empty()) return;
  write_state(state_, generation_->state(), key_);
  kept_ = std::chrono::steady_clock::now();
}

bool GenerateRun::run(const GenerateHooks& hooks) {
  constexpr std::chrono::minutes longest(1);
  try {
    while (!generation_->done()) {
      if (hooks.round) hooks.round(generation_->rounds_left());
      generation_->round([&](const LayerTiming& timing) {
        const bool stop = hooks.layer && !hooks.layer(timing);
        if (stop || std::chrono::steady_clock::now() - kept_ > longest) keep();
        if (stop) throw Stopped();
      });
      keep();
    }
  } catch (const Stopped&) {
    return false;
  }
  return true;
}

}  // namespace dodona::model
