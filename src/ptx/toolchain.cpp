#include "ptx/toolchain.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "dodona/error.h"
#include "io/command.h"
#include "io/temporary_folder.h"

namespace dodona::ptx {
namespace {

namespace fs = std::filesystem;
constexpr double patience = 300;  // seconds: ptxas takes minutes for the largest kernels

std::string content(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw Error(ErrorCode::bad_file, "", path, "cannot be read");
  return {std::istreambuf_iterator<char>(stream), {}};
}

void run(const std::string& program, const std::string& command) {
  const io::CommandResult result = io::run_command(command, patience);
  if (result.timed_out)
    throw Error(ErrorCode::bad_option, "", program, "is not done after " + std::to_string(static_cast<int>(patience)) + " s");
  if (result.status != 0)
    throw Error(ErrorCode::bad_option, "", program, "ends with exit status " + std::to_string(result.status) + ": " + result.output);
}

/// The first of a name in $PATH, then in CUDA's usual folder.
std::string in_path(const std::string& name) {
  const char* const path = std::getenv("PATH");
  const std::string folders = std::string(path == nullptr ? "" : path) + ":/usr/local/cuda/bin";
  for (std::size_t begin = 0; begin <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    std::string file = folders.substr(begin, end - begin) + "/" + name;
    if (::access(file.c_str(), X_OK) == 0) return file;
    begin = end + 1;
  }
  return {};
}

}  // namespace

Toolchain Toolchain::find() {
  Toolchain tools;
  const char* const of_triton = std::getenv("TRITON_PTXAS_PATH");
  tools.ptxas = of_triton != nullptr && *of_triton != '\0' ? of_triton : in_path("ptxas");
  // Beside ptxas first: the two are of one version then.
  for (const char* name : {"cuobjdump", "nvdisasm"}) {
    const std::string beside = tools.ptxas.empty() ? "" : (fs::path(tools.ptxas).parent_path() / name).string();
    if (tools.disassembler.empty() && !beside.empty() && ::access(beside.c_str(), X_OK) == 0) tools.disassembler = beside;
  }
  for (const char* name : {"cuobjdump", "nvdisasm"})
    if (tools.disassembler.empty()) tools.disassembler = in_path(name);
  return tools;
}

std::string disassembled(const Toolchain& tools, const std::string& path) {
  std::string bytes = content(path);
  if (!bytes.starts_with("\x7F"
                         "ELF"))
    return bytes;
  if (tools.disassembler.empty())
    throw Error(ErrorCode::bad_option, "", path, "is a cubin, and no cuobjdump or nvdisasm is there to read it");
  const io::TemporaryFolder folder("dodona-ptx");
  const bool dumps = fs::path(tools.disassembler).filename().string().starts_with("cuobjdump");
  run(tools.disassembler, io::shell_quoted(tools.disassembler) + (dumps ? " -sass " : " ") + io::shell_quoted(path) + " > " +
                              io::shell_quoted(folder.file("text")));
  return content(folder.file("text"));
}

std::string assembled(const Toolchain& tools, const std::string& ptx, const std::string& target) {
  if (tools.ptxas.empty()) throw Error(ErrorCode::bad_option, "", "ptxas", "is not there");
  const io::TemporaryFolder folder("dodona-ptx");
  {
    std::ofstream stream(folder.file("in.ptx"), std::ios::binary);
    stream << ptx;
    if (!stream.flush()) throw Error(ErrorCode::bad_file, "", folder.file("in.ptx"), "cannot be written");
  }
  const std::string cubin = folder.file("out.cubin");
  run(tools.ptxas, io::shell_quoted(tools.ptxas) + " -arch=" + io::shell_quoted(target) + (tools.flags.empty() ? "" : " " + tools.flags) +
                       " -o " + io::shell_quoted(cubin) + " " + io::shell_quoted(folder.file("in.ptx")));
  return disassembled(tools, cubin);
}

}  // namespace dodona::ptx
