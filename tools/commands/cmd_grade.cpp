#include <fmt/format.h>

#include "dodona/error.h"
#include "oracle/grade/grade.h"
#include "tools/common.h"
#include "tools/interrupt.h"
#include "tools/ranks/graded_ranks.h"
#include "tools/ranks/mpi_job.h"

namespace dodona::tools {
namespace {

struct GradeOptions : ExecOptions, CaseLineOptions {
  oracle::GradeRequest request;
};

oracle::GradeRequest request_of(GradeOptions& options) {
  if (options.request.command.empty())
    throw Error(ErrorCode::bad_option, "", "COMMAND", "is missing: dodona grade OP [SYM=N...] -- COMMAND...");
  options.request.claim = options.text();
  const Exec exec = options.exec(Mode::golden);
  options.request.exec = exec;
  options.request.mode = exec.mode;
  if (exec.mode == Mode::fast)
    throw Error(ErrorCode::bad_option, "", "--mode", "must be " + either_of(std::span(mode_list).subspan(1)) + ", got 'fast'");
  return options.request;
}

int show(const oracle::Grade& made, bool json) {
  if (json) {
    fmt::print("{}\n", io::json_text(oracle::to_json(made), 2));
  } else {
    fmt::print("{}", oracle::grade_text(made));
  }
  return made.passes() ? exit_pass : exit_fail;
}

int run(GradeOptions& options) {
  Progress drawn(options.json || options.quiet);
  const auto progress = [&](int done, int total) { drawn.step(static_cast<std::size_t>(done), static_cast<std::size_t>(total), "calls"); };
  const auto finished = [&](const oracle::Grade& made) {
    drawn.finish();
    return show(made, options.json);
  };
  if (started_ranks() > 1) return grade_over_mpi([&] { return request_of(options); }, progress, finished);
  // The kernel and its folder in memory go with this process.
  const Interrupt interrupt;
  options.request.stopped = Interrupt::asked;
  return finished(oracle::grade(request_of(options), progress));
}

}  // namespace

void add_grade(CLI::App& app, int& exit_code, const std::vector<std::string>& behind_dashes) {
  auto options = std::make_shared<GradeOptions>();
  options->request.command = behind_dashes;
  auto* command = app.add_subcommand("grade", "Grade a kernel that is not trusted: fresh secret inputs, another process, a score");
  command
      ->add_option("LINE", options->words,
                   "OP and, for a kernel that takes no others, sizes (ranges allowed: T=1..4096), types and attributes, with the options "
                   "below; what is not named varies. Then -- COMMAND")
      ->required();
  options->add_line_options(*command);
  command->add_option("--calls", options->request.calls, "Calls of the kernel")->capture_default_str()->check(CLI::Range(1, 1000000));
  command->add_option("--nonce", options->request.nonce, "Hexadecimal digits of an earlier grading: its calls once more");
  command->add_option("--seconds", options->request.seconds, "Time for a call, twice as much for the first one")
      ->capture_default_str()
      ->check(above_zero());
  command->add_flag("--same-bits", options->request.same_bits, "Outputs of the same inputs must be the same bits");
  command
      ->add_option("--explain-seconds", options->request.explain_seconds, "How long to look for the mistake behind the first failing call")
      ->capture_default_str()
      ->check(not_below_zero());
  options->add_mode(*command, "What outputs are held against: golden (default: budgets), or equal bits with a GPU's mode");
  options->add_threads_and_isa(*command);
  options->add_json(*command);
  command->add_flag("-q,--quiet", options->quiet, "No progress");
  command->footer(
      "COMMAND with the word {call} is run for every call, that word replaced by the path of the call's file. Any other is started once,\n"
      "reads a PATH a line on its stdin and answers by a line on its stdout: done PATH, refused PATH REASON or failed PATH REASON. It is "
      "a\n"
      "safetensors file: in.NAME are the inputs, the metadata `attrs` holds the attributes, and outputs are written in place over "
      "out.NAME.\n"
      "python -m dodona.serve FILE.py:FUNCTION does all that for a Python function. docs/grading.md says what a grading finds.\n"
      "mpirun -n N dodona grade shares the calls out: each rank starts COMMAND for itself, rank 0 gives the report of one process.\n"
      "Exit codes: 0 every call passes, 1 some do not, 2 nothing could be graded.");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace dodona::tools
