// What the commands share: options, progress, tables.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/case_line.h"
#include "dodona/exec.h"
#include "io/json.h"
#include "oracle/report/report_text.h"

namespace dodona::tools {

inline constexpr int exit_pass = 0;    ///< everything asked for holds
inline constexpr int exit_fail = 1;    ///< a verdict fails
inline constexpr int exit_cannot = 2;  ///< bad usage, unusable input, or nothing could be judged

/// Execution options of a command line; empty ones leave detection and the environment in charge.
struct ExecOptions {
  std::string mode, gpu, isa;
  int threads = 0;
  bool json = false, quiet = false;

  /// --mode, of which `says` tells what each is for, and --gpu.
  void add_mode(CLI::App& app, const std::string& says);
  void add_threads_and_isa(CLI::App& app);
  CLI::Option* add_json(CLI::App& app);
  /// Throws Error (bad_option) for a tier that this machine cannot run.
  Exec exec(Mode default_mode = Mode::fast) const;
  /// What --mode and --gpu ask for, if either does. Throws Error (bad_option) for other words, and where the two do not agree.
  std::optional<Mode> mode_asked_for() const;
};

/// What options of numbers are checked by, on the text, so that what is refused is shown as it was typed: numbers above 0 that are finite;
/// numbers of a range, ends included; whole numbers from 0; and whole numbers that a 64-bit number holds.
CLI::Validator above_zero();
CLI::Validator not_below_zero();
CLI::Validator within(double least, double most);
CLI::Validator whole_number();
CLI::Validator integer();
CLI::Validator number();

/// The parts of a case line as a command line gives them.
struct CaseLineOptions {
  std::vector<std::string> words, attrs, dtypes, with, without, special, variant, window;
  std::string dist, seed, dialect;

  /// --attr, --dtype, --dist, --special, --variant, --window, --seed and --dialect; the positional words are the command's own.
  void add_line_options(CLI::App& app);
  /// The case line as one text, to be read by the one parser of case lines.
  std::string text() const;
};

/// A progress line on stderr: redrawn on a terminal, silent otherwise. Honours NO_COLOR and --quiet. `anywhere`: also where stderr is no
/// terminal, a line of its own a second; nothing is drawn before `after` seconds have passed.
class Progress {
 public:
  explicit Progress(bool quiet, bool anywhere = false, double after = 0);
  void step(std::size_t done, std::size_t total, const std::string& what);
  void finish();
  ~Progress() { finish(); }

 private:
  bool enabled_, lines_, drawn_ = false;
  std::chrono::steady_clock::time_point next_;
};

/// Whether stdout may be coloured.
bool use_color();
/// `text` in green, red or yellow when colours are allowed.
std::string colored(const std::string& text, const char* code);

using oracle::percent;
using oracle::table;

void add_list(CLI::App& app, int& exit_code);
void add_info(CLI::App& app, int& exit_code);
void add_run(CLI::App& app, int& exit_code);
void add_gen(CLI::App& app, int& exit_code);
void add_check(CLI::App& app, int& exit_code);
void add_record(CLI::App& app, int& exit_code);
void add_diff(CLI::App& app, int& exit_code);
void add_shrink(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code);
void add_whose(CLI::App& app, int& exit_code);
void add_audit(CLI::App& app, int& exit_code);
void add_alarms(CLI::App& app, int& exit_code);
void add_score(CLI::App& app, int& exit_code);
/// `behind_dashes`: the words of the command line behind `--`.
void add_grade(CLI::App& app, int& exit_code, const std::vector<std::string>& behind_dashes);
void add_doctor(CLI::App& app, int& exit_code);
void add_docs(CLI::App& app, int& exit_code);
void add_import(CLI::App& app, int& exit_code);
void add_export(CLI::App& app, int& exit_code);
void add_layer(CLI::App& app, int& exit_code);
void add_shapes(CLI::App& app, int& exit_code);
void add_spec(CLI::App& app, int& exit_code);
void add_synth(CLI::App& app, int& exit_code);
void add_inspect(CLI::App& app, int& exit_code);
void add_generate(CLI::App& app, int& exit_code);

}  // namespace dodona::tools
