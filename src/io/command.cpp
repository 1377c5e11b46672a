#include "io/command.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "dodona/error.h"
#include "io/stopwatch.h"

namespace dodona::io {
namespace {

constexpr std::size_t kept = 4096;

[[noreturn]] void cannot_start(const std::string& program, int reason) {
  throw Error(ErrorCode::bad_option, "", "command", "'" + program + "' cannot be started: " + std::strerror(reason));
}

/// Two ends of a channel, closed with the object unless they were taken.
struct Ends {
  std::array<int, 2> fd{-1, -1};
  ~Ends() {
    for (const int end : fd)
      if (end >= 0) ::close(end);
  }
  int take(std::size_t i) { return std::exchange(fd[i], -1); }
};

/// Only what may be called between fork and exec. `failure` is told why the program could not be started.
[[noreturn]] void become(char* const* words, int in, int out, int failure, bool dies_with_parent) {
  ::setpgid(0, 0);
  if (dies_with_parent) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::dup2(in, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(out, STDERR_FILENO);
  ::execvp(words[0], words);
  const int reason = errno;
  [[maybe_unused]] const ssize_t told = ::write(failure, &reason, sizeof reason);
  ::_exit(127);
}

void keep_tail(std::string& text) {
  if (text.size() > kept) text.erase(0, text.size() - kept);
}

bool begins_with_one(const std::string& line, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (line == word || line.starts_with(word + " ")) return true;
  return false;
}

}  // namespace

Command::Command(const std::vector<std::string>& words, End end, Stopped stopped) : stopped_(stopped) {
  if (words.empty() || words.front().empty()) throw Error(ErrorCode::bad_option, "", "command", "is empty");
  std::vector<char*> list;
  list.reserve(words.size() + 1);
  for (const std::string& word : words) list.push_back(const_cast<char*>(word.c_str()));
  list.push_back(nullptr);
  Ends in, out, failure;
  // A socket, so that writing to a command that has ended is an error and no signal.
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in.fd.data()) != 0 || ::pipe2(out.fd.data(), O_CLOEXEC) != 0 ||
      ::pipe2(failure.fd.data(), O_CLOEXEC) != 0)
    cannot_start(words.front(), errno);
  child_ = ::fork();
  if (child_ < 0) cannot_start(words.front(), errno);
  if (child_ == 0) become(list.data(), in.fd[1], out.fd[1], failure.fd[1], end == End::with_this_process);
  ::setpgid(child_, child_);
  ::close(failure.take(1));
  int reason = 0;
  if (::read(failure.fd[0], &reason, sizeof reason) == static_cast<ssize_t>(sizeof reason)) {
    ::waitpid(child_, nullptr, 0);
    cannot_start(words.front(), reason);
  }
  in_ = in.take(0), out_ = out.take(0);
  ::fcntl(out_, F_SETFL, O_NONBLOCK);
}

Command::~Command() {
  end();
  close_stdin();
  ::close(out_);
}

void Command::close_stdin() {
  if (in_ >= 0) ::close(in_);
  in_ = -1;
}

bool Command::has_ended() {
  if (!ended_) ended_ = ::waitpid(child_, &status_, WNOHANG) == child_;
  return ended_;
}

void Command::end() {
  ::kill(-child_, SIGKILL);
  if (!ended_) ::waitpid(child_, &status_, 0);
  ended_ = true;
}

/// Whether anything came within the time.
bool Command::read_some(int milliseconds) {
  pollfd waiting{out_, POLLIN, 0};
  ::poll(&waiting, 1, milliseconds);
  std::array<char, 4096> buffer;
  bool any = false;
  for (ssize_t n = 0; (n = ::read(out_, buffer.data(), buffer.size())) > 0; any = true)
    waiting_.append(buffer.data(), static_cast<std::size_t>(n));
  return any;
}

Command::Answer Command::ask(const std::string& line, const std::vector<std::string>& words, double seconds) {
  const Stopwatch clock;
  const std::string sent = line + "\n";
  for (std::size_t done = 0; done < sent.size();) {
    const ssize_t n = ::send(in_, sent.data() + done, sent.size() - done, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;  // it has ended: said below
    done += static_cast<std::size_t>(n);
  }
  while (true) {
    for (std::size_t end = 0; (end = waiting_.find('\n')) != std::string::npos;) {
      std::string text = waiting_.substr(0, end);
      waiting_.erase(0, end + 1);
      if (begins_with_one(text, words)) return {Answer::Kind::line, text};
      if (!text.empty()) printed_ += text + "\n";
      keep_tail(printed_);
    }
    // A line without an end is not kept for ever.
    if (waiting_.size() > 16 * kept) waiting_.erase(0, waiting_.size() - kept);
    if (read_some(10)) continue;
    if (has_ended()) {
      if (read_some(0)) continue;
      printed_ += std::exchange(waiting_, {});
      keep_tail(printed_);
      return {Answer::Kind::ended, {}};
    }
    if (!is_over(clock.seconds(), seconds)) {
      ::usleep(200);
      continue;
    }
    end();
    return {Answer::Kind::timed_out, {}};
  }
}

CommandResult Command::wait(double seconds) {
  const Stopwatch clock;
  close_stdin();
  CommandResult result;
  // Done is when the command itself has ended: what it left running in the background may hold the pipe open.
  while (!has_ended()) {
    if (is_over(clock.seconds(), seconds)) {
      result.timed_out = true;
      end();
      break;
    }
    if (!read_some(2)) ::usleep(1000);
    printed_ += std::exchange(waiting_, {});
    keep_tail(printed_);
  }
  read_some(0);
  printed_ += std::exchange(waiting_, {});
  keep_tail(printed_);
  result.output = printed_;
  result.status = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  return result;
}

CommandResult run_command(const std::string& command, double seconds, Command::Stopped stopped) {
  return Command({"/bin/sh", "-c", command}, Command::End::by_itself, stopped).wait(seconds);
}

std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace dodona::io
