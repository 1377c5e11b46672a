// Running somebody else's command, with a time limit.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace dodona::io {

struct CommandResult {
  bool timed_out = false;
  int status = 0;      ///< exit status; 128 + signal for a command that was killed
  std::string output;  ///< the last 4096 bytes of what it printed, stdout and stderr together
};

/// A command that runs beside this process: it can be asked by lines on its stdin, which it answers by lines on its stdout. It is ended
/// with the object, its children with it.
class Command {
 public:
  /// What ends the command beside this object: nothing, or that the thread that started it ends in whatever way.
  enum class End { by_itself, with_this_process };
  /// Whether a command that is waited for is to be ended, as if its time were over.
  using Stopped = bool (*)();
  /// `words`: the program, looked for as the shell does, and its arguments. Throws Error(bad_option) if it cannot be started.
  explicit Command(const std::vector<std::string>& words, End end = End::by_itself, Stopped stopped = nullptr);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  /// What came of a line that was sent.
  struct Answer {
    enum class Kind { line, ended, timed_out };
    Kind kind = Kind::line;
    std::string text;  ///< the line, without its end
  };
  /// Sends a line and waits for the next one that begins with one of `words`; other lines are printed matter. A command that has not
  /// answered after `seconds` is ended.
  Answer ask(const std::string& line, const std::vector<std::string>& words, double seconds);
  /// Closes its stdin and waits for its end. A command that is not done after `seconds` is ended, its children with it.
  CommandResult wait(double seconds);
  /// The last 4096 bytes of what it printed, without the lines that were answers.
  const std::string& printed() const { return printed_; }

 private:
  bool read_some(int milliseconds);
  bool is_over(double passed, double seconds) const { return passed > seconds || (stopped_ != nullptr && stopped_()); }
  bool has_ended();
  void end();
  void close_stdin();

  Stopped stopped_ = nullptr;
  pid_t child_ = -1;
  int in_ = -1, out_ = -1;
  bool ended_ = false;
  int status_ = 0;
  std::string printed_, waiting_;  ///< waiting_: read of stdout, not looked at
};

/// Runs `command` by the shell, with nothing on its stdin. A command that is not done after `seconds` is ended, its children with it.
/// Throws Error(bad_option) if it cannot be started.
CommandResult run_command(const std::string& command, double seconds, Command::Stopped stopped = nullptr);

/// `text` as one word of the shell.
std::string shell_quoted(const std::string& text);

}  // namespace dodona::io
