// The `dodona` command.
#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "common.h"
#include "dodona/error.h"
#include "dodona/version.h"
#include "io/lost_files.h"
#include "tools/commands/cmd_ptx.h"
#include "tools/ranks/parts.h"

namespace dodona::tools {
namespace {

/// The words behind the first `--`, which are taken off: another command's, with options of its own.
std::vector<std::string> words_behind_dashes(int& argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) != "--") continue;
    std::vector<std::string> words(argv + i + 1, argv + argc);
    argc = i;
    return words;
  }
  return {};
}

/// OpenMP's threads wait for each other by spinning, 3 ms of it before they sleep: on a machine that has other work too, most of a
/// command's time. A fifteenth of that is enough between the ops of a layer. The runtime reads its environment before main, so that the
/// program begins anew.
void wait_briefly(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  std::error_code failed;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed || ::setenv("GOMP_SPINCOUNT", "20000", 1) != 0) return;
  ::execv(self.c_str(), argv);
}

/// Each op gives tensors of its own, which the next op's find free: memory that went back to the system in between would come back page by
/// page, cleared, in the time of the op that touches it first.
void keep_freed_memory() {
#ifdef M_MMAP_THRESHOLD
  constexpr int megabyte = 1 << 20;
  static_cast<void>(::mallopt(M_MMAP_THRESHOLD, 32 * megabyte));  // the most that glibc takes
  static_cast<void>(::mallopt(M_TRIM_THRESHOLD, 512 * megabyte));
#endif
}

/// What the library names as an argument of Python is told as the option that was typed.
Error as_typed(const CLI::App& app, const Error& error) {
  if (!error.op().empty() || error.argument().empty()) return error;
  std::string name = "--" + error.argument();
  std::replace(name.begin(), name.end(), '_', '-');
  for (const CLI::App* const command : app.get_subcommands())
    if (const CLI::Option* const option = command->get_option_no_throw(name); option != nullptr && option->count() > 0)
      return {error.code(), "", option->get_name(), error.message()};
  return error;
}

/// CLI11 takes the nearest number for one that 64 bits do not hold, and does not say what it expects in the place of what is none. The name
/// of a type may have those of validators behind it.
void check_numbers(CLI::App& app) {
  for (CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; }))
    for (CLI::Option* const option : command->get_options())
      for (const auto& [type, validator] : {std::pair{"INT", integer()}, {"UINT", whole_number()}, {"FLOAT", number()}})
        if (const std::string name = option->get_type_name(); name.substr(0, name.find(':')) == type) option->check(validator);
}

/// CLI11 says of an unknown command that there is none.
void require_known_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || *argv[1] == '-') return;
  std::string known;
  for (const CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->check_name(argv[1])) return;
    known += (known.empty() ? "" : ", ") + command->get_name();
  }
  throw Error(ErrorCode::bad_option, "", "command", "'" + std::string(argv[1]) + "' is not there, expected one of " + known);
}

int run(int argc, char** argv) {
  const bool grades = argc > 1 && std::string_view(argv[1]) == "grade";
  const std::vector<std::string> behind_dashes = grades ? words_behind_dashes(argc, argv) : std::vector<std::string>{};
  CLI::App app("dodona: what should this kernel have returned? CPU oracle for the kernels of DeepSeek inference.", "dodona");
  app.require_subcommand(1);
  app.set_version_flag("--version", version_text());
  app.footer(
      "Exit codes: 0 everything passes, 1 a verdict fails, 2 bad usage or input, or nothing could be judged, "
      "3 a check is vacuous (audit --strict).\n"
      "Environment: DODONA_ISA, DODONA_NUM_THREADS, DODONA_LLC_MIB (last-level cache, where it is detected wrongly), "
      "DODONA_AMX (0: no matrix tiles; 1: an error where there are none), "
      "DODONA_GOLDEN_PATH (folders of cases, separated by ':'), GOMP_SPINCOUNT and OMP_WAIT_POLICY (how threads wait for each other; "
      "else 0.2 ms awake), NO_COLOR.");
  app.get_formatter()->column_width(34);
  int exit_code = exit_pass;
  add_list(app, exit_code);
  add_info(app, exit_code);
  add_run(app, exit_code);
  add_gen(app, exit_code);
  add_check(app, exit_code);
  add_whose(app, exit_code);
  add_shrink(app, exit_code);
  add_verify(app, exit_code);
  add_record(app, exit_code);
  add_diff(app, exit_code);
  add_audit(app, exit_code);
  add_alarms(app, exit_code);
  add_score(app, exit_code);
  add_merge(app, exit_code);
  add_grade(app, exit_code, behind_dashes);
  add_layer(app, exit_code);
  add_shapes(app, exit_code);
  add_spec(app, exit_code);
  add_synth(app, exit_code);
  add_inspect(app, exit_code);
  add_generate(app, exit_code);
  add_ptx(app, exit_code);
  add_import(app, exit_code);
  add_export(app, exit_code);
  add_doctor(app, exit_code);
  add_docs(app, exit_code);
  check_numbers(app);
  app.failure_message([](const CLI::App*, const CLI::Error& error) { return "dodona: " + std::string(error.what()) + " (see --help)\n"; });
  require_known_command(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? exit_pass : exit_cannot;
  } catch (const Error& error) {
    throw as_typed(app, error);
  }
  return exit_code;
}

int output_lost(const std::string& why) {
  std::fprintf(stderr, "dodona: cannot write to stdout%s\n", why.c_str());
  return exit_cannot;
}

/// What is printed stays in a buffer at first: only here it shows that whoever reads it did not get it all. A command of which that is so
/// has failed, whatever it found.
int all_printed(int exit_code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  return output_lost(errno != 0 ? ": " + std::generic_category().message(errno) : "");
}

int run_and_say(int argc, char** argv) {
  try {
    return all_printed(run(argc, argv));
  } catch (const std::bad_alloc&) {
    std::fputs("dodona: out of memory\n", stderr);
  } catch (const std::filesystem::filesystem_error& error) {
    std::fprintf(stderr, "dodona: %s: %s\n", error.path1().c_str(), error.code().message().c_str());
  } catch (const std::system_error& error) {
    // Of a full buffer that could not be emptied.
    if (std::ferror(stdout) != 0) return output_lost(": " + error.code().message());
    std::fprintf(stderr, "dodona: %s\n", error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "dodona: %s\n", error.what());
  }
  return exit_cannot;
}

/// A file that is opened takes the place of a stream that is closed, and gets what is told there. What is written to stdout fails as it
/// would have; what stderr is told is for nobody.
void fill_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) == -1 && errno == EBADF)
      static_cast<void>(::open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY));
}

}  // namespace
}  // namespace dodona::tools

int main(int argc, char** argv) {
  dodona::tools::fill_closed_streams();
  dodona::tools::wait_briefly(argv);
  dodona::tools::keep_freed_memory();
  dodona::io::report_lost_files();
  // A file that may not grow is a write that fails: one error, and nothing half written.
  std::signal(SIGXFSZ, SIG_IGN);
  return dodona::tools::run_and_say(argc, argv);
}
