// A launch of PTX as a command line gives it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common.h"
#include "dodona/ptx.h"
#include "oracle/cases/case_file.h"

namespace dodona::tools {

struct PtxLaunchOptions {
  std::string file, kernel, contract = "auto", element;
  std::string machine_code, ptxas, disassembler, ptxas_flags;
  std::vector<std::string> arguments;
  std::vector<std::uint32_t> grid{1}, block;
  std::size_t shared = 0;
  std::uint64_t limit = 20'000'000, terms = 4096;
  int depth = 0;

  /// Which kernel of the file, and how its open sums are read.
  void add_file_options(CLI::App& app);
  /// Grid, block, arguments, and what is traced.
  void add_launch_options(CLI::App& app);
};

struct PtxLaunch {
  std::shared_ptr<ptx::Module> module;
  std::string kernel;
  ptx::Launch launch;
  NamedTensors memory;  ///< what the launch reads and writes, by the names of --arg
};

/// Throws bad_file.
std::string read_text(const std::string& path);
/// A case file's inputs (and outputs), or those that a case line draws.
oracle::Case inputs_of(const std::string& text, int threads);
ptx::Toolchain tools_of(const PtxLaunchOptions& options);
std::string text_of(const ptx::OpenReading& o);
/// Throws Error naming --arg, --element and so on.
PtxLaunch prepare(const PtxLaunchOptions& options, const oracle::Case& c, int threads);
ptx::TraceRequest element_of(const PtxLaunchOptions& options, const PtxLaunch& launch);

}  // namespace dodona::tools
