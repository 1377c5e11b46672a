#include "io/lost_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace dodona::io {
namespace {

void say(std::string_view text) {
  static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size()));
}

/// A number in base 16 that `text` begins with.
std::uintptr_t number(std::string_view text) {
  std::uintptr_t value = 0;
  for (const char c : text) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) break;
    value = value * 16 + static_cast<std::uintptr_t>(digit);
  }
  return value;
}

/// The line of /proc/self/maps that holds the address names the file. Nothing here allocates.
void say_file_at(std::uintptr_t address) {
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return say("a mapped file");
  std::array<char, 8192> buffer;
  std::size_t filled = 0;
  for (ssize_t got = 0; (got = ::read(maps, buffer.data() + filled, buffer.size() - filled)) > 0;) {
    filled += static_cast<std::size_t>(got);
    std::string_view text(buffer.data(), filled);
    for (std::size_t end = 0; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
      const std::string_view line = text.substr(0, end);
      const std::size_t dash = line.find('-'), path = line.find('/');
      if (dash == std::string_view::npos || number(line) > address || number(line.substr(dash + 1)) <= address) continue;
      ::close(maps);
      return say(path == std::string_view::npos ? std::string_view("a mapped file") : line.substr(path));
    }
    filled = text.size();
    std::memmove(buffer.data(), text.data(), filled);
    if (filled == buffer.size()) filled = 0;
  }
  ::close(maps);
  say("a mapped file");
}

void lost(int, siginfo_t* info, void*) {
  say("dodona: ");
  say_file_at(reinterpret_cast<std::uintptr_t>(info->si_addr));
  say(": was cut short, or cannot be read any more, while it was in use\n");
  ::_exit(2);
}

}  // namespace

void report_lost_files() {
  struct sigaction action {};
  action.sa_sigaction = lost;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace dodona::io
