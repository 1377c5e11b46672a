#include <fmt/format.h>

#include <algorithm>

#include "core/random.h"
#include "dodona/error.h"
#include "model/speculative.h"
#include "tools/common.h"

namespace dodona::tools {
namespace {

struct SpecOptions {
  model::SpeculativeSetting setting;
  ExecOptions exec;
  std::int64_t vocabulary = 64, batch = 1, prompt = 4, tokens = 32;
  std::uint64_t seed = 0;
  double sharpness = 2, agreement = 0.9;
};

using Tokens = std::vector<std::int64_t>;

std::vector<Tokens> prompts_of(const SpecOptions& options) {
  std::vector<Tokens> prompts;
  const InputDraw draw(options.seed, "prompt");
  for (std::int64_t b = 0; b < options.batch; ++b) {
    Tokens& prompt = prompts.emplace_back();
    // Prompts of different lengths, so that requests do not stand at the same position.
    for (std::int64_t i = 0; i < options.prompt + b % 3; ++i)
      prompt.push_back(static_cast<std::int64_t>(draw.below(b * 4096 + i, static_cast<std::uint64_t>(options.vocabulary))));
  }
  return prompts;
}

/// Numbers in [0, 1): those of the stream are in (0, 1].
Tensor coins(const SpecOptions& options, const std::string& name, const Dims& shape) {
  Tensor t(DType::f32, shape);
  fill_uniform(Stream(options.seed, name), 0, {t.as<float>(), static_cast<std::size_t>(t.elements())});
  for (std::int64_t i = 0; i < t.elements(); ++i) t.as<float>()[i] = 1.0f - t.as<float>()[i];
  return t;
}

struct Run {
  std::vector<Tokens> texts;  ///< as many tokens of each request as were asked for
  std::int64_t steps = 0, accepted = 0, emitted = 0;
  std::vector<io::Json> trail;
};

/// Of each request, the nodes of a tree counted.
std::int64_t most_tokens(const SpecOptions& options) {
  return options.prompt + 3 + options.tokens + 2 * options.setting.draft_tokens;
}

/// A cache beyond the machine's memory would be killed while it is filled.
void check_cache(const SpecOptions& options) {
  constexpr std::int64_t most = 1 << 24;
  const std::int64_t page = std::max<std::int64_t>(options.setting.page_size, 1), pages = (most_tokens(options) + page - 1) / page;
  if (const std::int64_t tokens = options.batch * pages * page; tokens > most)
    throw Error(ErrorCode::bad_option, "", "--tokens",
                fmt::format("is {}: with --batch {} and --page-size {} the cache has {} slots, expected {} at most", options.tokens,
                            options.batch, page, tokens, most));
}

Run decode(const SpecOptions& options, const model::BigramTarget& target, const std::vector<Tokens>& prompts) {
  const model::BlurredDraft draft(target, options.seed + 1, options.sharpness, options.agreement);
  const std::int64_t most = most_tokens(options);
  const Tensor first = coins(options, "first", {options.batch});
  model::SpeculativeDecoder decoder(target, draft, options.setting, prompts, most,
                                    {first.as<const float>(), static_cast<std::size_t>(options.batch)}, options.exec.exec());
  Run run;
  const auto going = [&](std::int64_t b) {
    return !decoder.finished(b) && static_cast<std::int64_t>(decoder.text(b).size()) < options.tokens;
  };
  const auto any = [&] {
    for (std::int64_t b = 0; b < options.batch; ++b)
      if (going(b)) return true;
    return false;
  };
  // A request that has enough goes on with the others as long as its cache has room.
  for (; any() && run.steps < options.tokens; ++run.steps) {
    const std::string name = "step " + std::to_string(run.steps);
    const auto step = decoder.step(
        {coins(options, name + " nodes", {options.batch, options.setting.draft_tokens}), coins(options, name + " last", {options.batch})});
    io::Json record = io::Json::array();
    for (const auto& request : step.requests) {
      run.accepted += request.accepted;
      run.emitted += static_cast<std::int64_t>(request.tokens.size());
      record.push_back({{"accepted", request.accepted}, {"tokens", request.tokens}});
    }
    run.trail.push_back(record);
    bool room = true;
    for (std::int64_t b = 0; b < options.batch; ++b) room = room && decoder.length(b) + options.setting.draft_tokens <= most;
    if (!room) break;
  }
  for (std::int64_t b = 0; b < options.batch; ++b) {
    run.texts.push_back(decoder.text(b));
    if (static_cast<std::int64_t>(run.texts.back().size()) > options.tokens)
      run.texts.back().resize(static_cast<std::size_t>(options.tokens));
  }
  return run;
}

std::string joined(const Tokens& tokens) {
  return fmt::format("{}", fmt::join(tokens, " "));
}

/// Of each request, whether its text is what plain decoding gives; only a temperature of 0 has one text.
std::vector<bool> equal_plain(const SpecOptions& options, const model::BigramTarget& target, const std::vector<Tokens>& prompts,
                              const Run& run) {
  std::vector<bool> equal;
  for (std::size_t b = 0; b < prompts.size(); ++b) {
    const auto length = static_cast<std::int64_t>(run.texts[b].size());
    equal.push_back(run.texts[b] == model::decode_greedily(target, prompts[b], length, options.setting.end_token));
  }
  return equal;
}

int spec(const SpecOptions& options) {
  if (options.vocabulary < 1 || options.vocabulary > 1 << 20)
    throw Error(ErrorCode::bad_option, "", "--vocabulary", "is " + std::to_string(options.vocabulary) + ", expected 1 to 1048576");
  if (const Mode mode = options.exec.exec().mode; of_a_gpu(mode) && mode != Mode::hopper)
    throw Error(ErrorCode::unsupported, "", options.exec.gpu.empty() ? "--mode" : "--gpu",
                "asks for " + std::string(name(mode)) + " mode, expected fast, golden or hopper");
  model::check_setting(options.setting, options.vocabulary);
  check_cache(options);
  const model::BigramTarget target(options.vocabulary, options.seed, options.sharpness);
  const std::vector<Tokens> prompts = prompts_of(options);
  const Run run = decode(options, target, prompts);
  const bool greedy = options.setting.temperature == 0;
  const std::vector<bool> equal = greedy ? equal_plain(options, target, prompts, run) : std::vector<bool>{};
  const bool all_equal = std::find(equal.begin(), equal.end(), false) == equal.end();
  if (options.exec.json) {
    io::Json json{{"steps", run.steps}, {"accepted", run.accepted}, {"emitted", run.emitted},
                  {"prompts", prompts}, {"texts", run.texts},       {"trail", run.trail}};
    if (greedy) json["equals_plain_decoding"] = all_equal;
    fmt::print("{}\n", io::json_text(json, 2));
    return all_equal ? exit_pass : exit_fail;
  }
  for (std::size_t b = 0; b < prompts.size(); ++b) {
    fmt::print("request {}: {} | {}\n", b, joined(prompts[b]), joined(run.texts[b]));
    if (greedy) fmt::print("  {}\n", equal[b] ? "equals plain greedy decoding" : colored("differs from plain greedy decoding", "31"));
  }
  fmt::print("{} steps, {} tokens emitted, {:.2f} drafted tokens accepted for each request and step\n", run.steps, run.emitted,
             static_cast<double>(run.accepted) / std::max<double>(1.0, static_cast<double>(run.emitted - run.accepted)));
  return all_equal ? exit_pass : exit_fail;
}

}  // namespace

void add_spec(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<SpecOptions>();
  auto* command = app.add_subcommand("spec",
                                     "Decode speculatively, as EAGLE and NextN do: draft tree, verification, accepted path, cache, next "
                                     "draft. Target and draft are tables "
                                     "drawn from the seed; with temperature 0 the text is held against plain greedy decoding");
  command->add_option("--vocabulary", options->vocabulary, "Tokens that there are (default 64)");
  command->add_option("--batch", options->batch, "Requests (default 1)")->check(CLI::Range(1, 1024));
  command->add_option("--prompt", options->prompt, "Tokens of the first prompt; every third is as long (default 4)")
      ->check(CLI::Range(1, 4096));
  command->add_option("--tokens", options->tokens, "Tokens to emit for each request (default 32)")->check(CLI::Range(1, 1 << 20));
  command->add_option("--steps", options->setting.steps, "Draft steps (default 3)");
  command->add_option("--topk", options->setting.topk, "Beams of a draft (default 1)");
  command->add_option("--draft-tokens", options->setting.draft_tokens, "Nodes of a tree, the root counted (default 4)");
  command->add_option("--temperature", options->setting.temperature, "0 for the most probable tokens (default), else tokens are sampled");
  command->add_option("--threshold-single", options->setting.threshold_single,
                      "Accept what is as probable; below 1 favours drafts (default 1)");
  command->add_option("--threshold-acc", options->setting.threshold_acc,
                      "Divides accumulated probabilities; below 1 favours drafts (default 1)");
  command->add_option("--page-size", options->setting.page_size, "Slots of a page of the cache (default 1)");
  command->add_option("--end-token", options->setting.end_token, "Token behind which a request is finished (default none)");
  command->add_option("--agreement", options->agreement, "How near the draft's table is to the target's, 0 to 1 (default 0.9)")
      ->check(within(0, 1));
  command->add_option("--sharpness", options->sharpness, "Deviation of the tables' logits (default 2)")->check(within(0, 1000));
  command->add_option("--seed", options->seed, "Seed of tables, prompts and coins (default 0)")->check(whole_number());
  options->exec.add_mode(*command, "fast (default), golden, or hopper: the kernels' arithmetic");
  options->exec.add_threads_and_isa(*command);
  options->exec.add_json(*command);
  command->callback([options, &exit_code] { exit_code = spec(*options); });
}

}  // namespace dodona::tools
