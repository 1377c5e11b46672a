// A generation as the command and the C interface ask for it: its weights opened, its state kept in a file.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "model/generate.h"

namespace dodona::model {

struct GenerateCall {
  ModelConfig config;
  std::string weights;  ///< folder of a checkpoint; empty: synthesized from weights_seed
  std::uint64_t weights_seed = 0;
  LayerSetting setting;
  GenerateRequest request;
  std::string state;    ///< a file that keeps what is done; empty: none
  bool resume = false;  ///< go on from it
  Exec exec;
};
/// Everything that the tokens depend on, but for what may be another one when a call goes on: threads, tier, chunk, and without drafts
/// max_new and end_token.
io::Json key_of(const GenerateCall& call, const std::string& weights);

/// Whether the file is what several ranks name the parts of their state in: JSON that begins with their split.
bool names_parts(const std::string& path);

struct GenerateHooks {
  std::function<void(std::int64_t rounds_left)> round = {};  ///< one begins
  std::function<bool(const LayerTiming&)> layer = {};        ///< one is done; false stops the run
};

class GenerateRun {
 public:
  /// Opens the weights and reads the state that it goes on from. Throws Error as Generation and read_state do; bad_option for resume
  /// without a state.
  explicit GenerateRun(const GenerateCall& call);

  /// To the end, or until a hook stops it: whether the texts are done. The state is written behind each round, behind the layer at which it
  /// is stopped, and once a minute of a long round.
  bool run(const GenerateHooks& hooks = {});

  const WeightSource& source() const { return *source_; }
  Generation& generation() { return *generation_; }

 private:
  void keep();

  std::string state_;
  io::Json key_;
  std::unique_ptr<WeightSource> source_;
  std::unique_ptr<Generation> generation_;
  std::chrono::steady_clock::time_point kept_ = std::chrono::steady_clock::now();
};

}  // namespace dodona::model
