#include "io/command.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "dodona/error.h"

namespace dodona::io {
namespace {

constexpr std::size_t kept = 4096;

[[noreturn]] void become(const std::string& command, int pipe_end) {
  ::setpgid(0, 0);
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  ::dup2(pipe_end, STDOUT_FILENO);
  ::dup2(pipe_end, STDERR_FILENO);
  ::execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
  ::_exit(127);
}

void keep_tail(std::string& text) {
  if (text.size() > kept) text.erase(0, text.size() - kept);
}

}  // namespace

CommandResult run_command(const std::string& command, double seconds) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw Error(ErrorCode::bad_option, "", "command", std::string("cannot be started: ") + std::strerror(errno));
  const pid_t child = ::fork();
  if (child < 0) {
    const int reason = errno;
    ::close(ends[0]), ::close(ends[1]);
    throw Error(ErrorCode::bad_option, "", "command", std::string("cannot be started: ") + std::strerror(reason));
  }
  if (child == 0) become(command, ends[1]);
  ::setpgid(child, child);
  ::close(ends[1]);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  CommandResult result;
  const auto begin = std::chrono::steady_clock::now();
  int status = 0;
  // Done is when the command itself has ended: what it left running in the background may hold the pipe open.
  while (true) {
    pollfd waiting{ends[0], POLLIN, 0};
    ::poll(&waiting, 1, 10);
    std::array<char, 4096> buffer;
    ssize_t n = 0;
    while ((n = ::read(ends[0], buffer.data(), buffer.size())) > 0) {
      result.output.append(buffer.data(), static_cast<std::size_t>(n));
      keep_tail(result.output);
    }
    if (::waitpid(child, &status, WNOHANG) == child) break;
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() <= seconds) {
      if (n == 0) ::usleep(2000);
      continue;
    }
    result.timed_out = true;
    ::kill(-child, SIGKILL);
    ::waitpid(child, &status, 0);
    break;
  }
  ::close(ends[0]);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace dodona::io
