#include "common.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "dodona/error.h"

namespace dodona::tools {
namespace {

bool no_color() {
  const char* value = std::getenv("NO_COLOR");
  return value != nullptr && *value != '\0';
}

}  // namespace

void ExecOptions::add_threads_and_isa(CLI::App& app) {
  app.add_option("--threads", threads, "Threads to use (default: DODONA_NUM_THREADS, else all processors)")->check(CLI::Range(1, 4096));
  app.add_option("--isa", isa, "Instruction-set tier: generic, v3, v4, v4_vnni or neon (default: DODONA_ISA, else the fastest)");
}

void ExecOptions::add_mode(CLI::App& app, const std::string& says) {
  app.add_option("--mode", mode, says);
  app.add_option("--gpu", gpu, fmt::format("The GPU whose bits are asked for, instead of its mode: {}", fmt::join(gpu_names(), ", ")));
}

CLI::Option* ExecOptions::add_json(CLI::App& app) {
  return app.add_flag("--json", json, "Print one JSON value instead of text");
}

Exec ExecOptions::exec(Mode default_mode) const {
  Exec exec;
  exec.mode = default_mode;
  if (threads > 0) exec.threads = threads;
  if (!isa.empty()) {
    const auto wanted = parse_isa(isa);
    const auto& available = available_isas();
    if (!wanted || std::find(available.begin(), available.end(), *wanted) == available.end()) {
      std::string known;
      for (const Isa tier : available) known += (known.empty() ? "" : ", ") + std::string(name(tier));
      throw Error(ErrorCode::bad_option, "", "--isa", "must be one of " + known + " (what this machine can run), got '" + isa + "'");
    }
    exec.isa = *wanted;
  }
  exec.mode = mode_asked_for().value_or(default_mode);
  return exec;
}

CLI::Validator above_zero() {
  return CLI::Validator(
      [](const std::string& text) {
        double value = 0;
        const bool good = CLI::detail::lexical_cast(text, value) && std::isfinite(value) && value > 0;
        return good ? std::string() : "must be a number above 0, got '" + text + "'";
      },
      "POSITIVE");
}

CLI::Validator not_below_zero() {
  return CLI::Validator(
      [](const std::string& text) {
        double value = 0;
        const bool good = CLI::detail::lexical_cast(text, value) && value >= 0;
        return good ? std::string() : "must be a number from 0, got '" + text + "'";
      },
      "NONNEGATIVE");
}

/// CLI::Range lets what is no number pass.
CLI::Validator within(double least, double most) {
  return CLI::Validator(
      [least, most](const std::string& text) {
        double value = 0;
        const bool good = CLI::detail::lexical_cast(text, value) && value >= least && value <= most;
        return good ? std::string() : fmt::format("must be a number from {:g} to {:g}, got '{}'", least, most, text);
      },
      fmt::format("FLOAT in [{:g} - {:g}]", least, most));
}

namespace {
template <class Number>
CLI::Validator parsed_as(const char* what) {
  return CLI::Validator(
      [what](const std::string& text) {
        Number value{};
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool good = error == std::errc() && end == text.data() + text.size();
        return good ? std::string() : std::string("must be ") + what + ", got '" + text + "'";
      },
      "");
}
}  // namespace

CLI::Validator whole_number() {
  return parsed_as<std::uint64_t>("a whole number from 0");
}
CLI::Validator integer() {
  return parsed_as<std::int64_t>("a whole number of 64 bits");
}
CLI::Validator number() {
  return CLI::Validator(
      [](const std::string& text) {
        double value = 0;
        return CLI::detail::lexical_cast(text, value) ? std::string() : "must be a number, got '" + text + "'";
      },
      "");
}

std::optional<Mode> ExecOptions::mode_asked_for() const {
  const auto wanted = parse_mode(mode), of_gpu = mode_of_gpu(gpu);
  if (!mode.empty() && !wanted)
    throw Error(ErrorCode::bad_option, "", "--mode", "must be " + either_of(mode_list) + ", got '" + mode + "'");
  if (!gpu.empty() && !of_gpu)
    throw Error(ErrorCode::bad_option, "", "--gpu", fmt::format("must be one of {}, got '{}'", fmt::join(gpu_names(), ", "), gpu));
  if (wanted && of_gpu && wanted != of_gpu)
    throw Error(ErrorCode::bad_option, "", "--gpu", fmt::format("{} is {} mode, but --mode asks for {}", gpu, name(*of_gpu), mode));
  return of_gpu ? of_gpu : wanted;
}

namespace {
std::string names_of_specials() {
  std::string names;
  for (const SpecialText& text : specials()) names += (names.empty() ? "" : ", ") + std::string(text.name);
  return names;
}
}  // namespace

void CaseLineOptions::add_line_options(CLI::App& app) {
  app.add_option("--attr", attrs, "An attribute of the case line, NAME=VALUE; may be repeated")->expected(1)->take_all();
  app.add_option("--dtype", dtypes, "The element type of an argument, ARGUMENT=TYPE; may be repeated")->expected(1)->take_all();
  app.add_option("--with", with, "An optional argument that the call is to have; may be repeated")->expected(1)->take_all();
  app.add_option("--without", without, "An optional argument to leave out; may be repeated")->expected(1)->take_all();
  app.add_option("--dist", dist, "How values are drawn: normal, uniform, outliers, wide-exponent, ties, edge");
  app.add_option("--special", special,
                 "Special inputs, which strike by role: " + names_of_specials() + " (docs/inputs.md); may be repeated, they combine")
      ->expected(1)
      ->take_all();
  app.add_option("--variant", variant,
                 "Another upstream's documented behaviour in the place of the contract's, to check against: "
                 "scale-of-zero-rows:output_s=1e-10 (docs/numerics.md); may be repeated, they combine")
      ->expected(1)
      ->take_all();
  app.add_option("--window", window,
                 "These rows of the call alone, T=0..8: only they are made, and golden computes no others; may be repeated (sizes that "
                 "`dodona info OP` calls independent)")
      ->expected(1)
      ->take_all();
  app.add_option("--seed", seed, "Seed of the inputs (default 0)");
  app.add_option("--dialect", dialect, "Whose numerics: sglang (default), flashinfer, trtllm, deepseek");
}

std::string CaseLineOptions::text() const {
  std::string line;
  const auto add = [&](const std::string& option, const std::string& value) {
    if (!value.empty()) line += (line.empty() ? "" : " ") + (option.empty() ? "" : option + " ") + value;
  };
  for (const std::string& word : words) add("", word);
  for (const std::string& attr : attrs) add("--attr", attr);
  for (const std::string& dtype : dtypes) add("--dtype", dtype);
  for (const std::string& argument : with) add("--with", argument);
  for (const std::string& argument : without) add("--without", argument);
  add("--dist", dist);
  for (const std::string& name : special) add("--special", name);
  for (const std::string& id : variant) add("--variant", id);
  for (const std::string& range : window) add("--window", range);
  add("--seed", seed);
  add("--dialect", dialect);
  return line;
}

Progress::Progress(bool quiet, bool anywhere, double after)
    : enabled_(!quiet && (anywhere || isatty(STDERR_FILENO) != 0)),
      lines_(isatty(STDERR_FILENO) == 0),
      next_(std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<int>(after * 1000))) {}

void Progress::step(std::size_t done, std::size_t total, const std::string& what) {
  const auto now = std::chrono::steady_clock::now();
  if (!enabled_ || now < next_) return;
  if (lines_) {
    fmt::print(stderr, "{}/{} {}\n", done, total, what);
    next_ = now + std::chrono::seconds(1);
    return;
  }
  constexpr std::size_t width = 24;
  const std::size_t filled = total > 0 ? done * width / total : 0;
  const std::string label = what.size() > 60 ? "..." + what.substr(what.size() - 57) : what;
  fmt::print(stderr, "\r[{}{}] {}/{} {:<60}", std::string(filled, '='), std::string(width - filled, ' '), done, total, label);
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::finish() {
  if (drawn_) fmt::print(stderr, "\r{:<110}\r", "");
  drawn_ = false;
}

bool use_color() {
  return isatty(STDOUT_FILENO) != 0 && !no_color();
}

std::string colored(const std::string& text, const char* code) {
  return use_color() ? fmt::format("\033[{}m{}\033[0m", code, text) : text;
}

}  // namespace dodona::tools
