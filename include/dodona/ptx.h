// Kernels as PTX, run on the CPU to a GPU's bits: what Triton and nvcc compile for compute capability 8.0 to 9.0 (sm_90a).
//
//   const ptx::Module module(text, "kernel.ptx");
//   ptx::Launch launch;
//   launch.grid = {blocks};
//   launch.block = {128};
//   launch.arguments = {ptx::buffer(x, bytes), ptx::buffer(y, bytes), ptx::value(n)};
//   const ptx::Report report = module.launch("kernel", launch);
//
// Tensor cores and approximate functions give a Hopper GPU's bits, whatever the target. What a kernel does that it must not (memory out of
// bounds, races, diverged barriers...) is a finding of the report, and the kernel goes on; what cannot be run is an Error.
//
// Source: the PTX ISA, version 8.8.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dodona::ptx {

struct Program;

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
  std::uint64_t count() const { return std::uint64_t{x} * y * z; }
};

struct Parameter {
  std::string name, type;  ///< type as the PTX has it, "u64", "b8"...
  std::size_t bytes = 0, align = 0, offset = 0;
  bool pointer = false;  ///< `.ptr`, or 64 bits wide
};

/// A sum of a product, neither with a rounding (`mul` then `add`): PTX leaves open whether both round or the sum alone.
struct OpenReading {
  int line = 0;           ///< of the sum
  std::string text;       ///< "mul.f32 (line 11) then add.f32, into %f5"
  std::size_t place = 0;  ///< of the sum in the text, for Launch::fused
  bool fused = false;     ///< read as one `fma`: by a launch, by ptxas, or as is customary
};

struct Kernel {
  std::string name;
  std::vector<Parameter> parameters;
  std::optional<Dim3> block;                          ///< `.reqntid`
  std::uint64_t max_threads = 0;                      ///< `.maxntid`; 0: not said
  std::size_t static_shared = 0;                      ///< bytes
  bool dynamic_shared = false;                        ///< has an `extern .shared` array
  std::map<std::string, std::uint64_t> instructions;  ///< opcodes and how often they stand there
  std::vector<std::string> missing;                   ///< "line 12: foo.bar ...": an error when one is reached
  std::vector<OpenReading> open;                      ///< `fused`: ptxas is known to read such sums so
};

/// A bulk copy's descriptor, with the meaning of cuTensorMapEncodeTiled's arguments; sizes count elements, the innermost dimension first.
struct TensorMap {
  std::size_t buffer = 0;    ///< index among the launch's arguments
  std::uint64_t offset = 0;  ///< bytes into it
  std::string dtype = "bf16";
  std::vector<std::uint64_t> shape, strides;  ///< strides: bytes, of every dimension but the innermost
  std::vector<std::uint32_t> box, element_strides;
  int swizzle = 0;  ///< 0, 32, 64 or 128
  int interleave = 0;
  bool nan_fill = false;
};

struct Argument {
  enum class Kind {
    buffer,      ///< a pointer parameter: `bytes` of the caller's memory at `data`, written in place
    value,       ///< a parameter's bytes
    tensor_map,  ///< a 128-byte descriptor
    memory,      ///< memory that no parameter points to: tables of pointers may
  } kind = Kind::value;
  void* data = nullptr;
  std::size_t bytes = 0;
  bool read_only = false, uninitialised = false;  ///< of memory: stores are findings; loads before stores are findings
  std::vector<std::byte> value = {};
  TensorMap map = {};
};

inline Argument buffer(void* data, std::size_t bytes) {
  return {Argument::Kind::buffer, data, bytes};
}
template <class T>
Argument value(const T& x) {
  Argument argument;
  argument.value.resize(sizeof x);
  std::memcpy(argument.value.data(), &x, sizeof x);
  return argument;
}

/// The device address of the memory of an argument: it depends on nothing but the argument's place, so results do not either.
constexpr std::uint64_t device_address(std::size_t argument) {
  return (std::uint64_t{argument} + 1) << 36;
}

enum class Check { automatic, on, off };  ///< automatic: on for launches of few threads

/// How sums of products that are left open are read.
enum class Contract {
  customary,  ///< as ptxas reads such sums: those that take in a product of their block which nothing else needs are one `fma`
  off,        ///< two roundings each
  on,         ///< one
};

struct Launch {
  Dim3 grid, block;
  std::size_t dynamic_shared = 0;
  std::vector<Argument> arguments;
  int threads = 0;  ///< of the CPU; 0: all
  Check race = Check::automatic, uninitialised = Check::automatic;
  Contract contract = Contract::customary;
  std::optional<std::vector<std::size_t>> fused = {};       ///< places of the sums that round once, whatever `contract` says
  std::uint64_t limit = 20'000'000;                         ///< instructions of one warp, then it counts as an endless loop
  std::size_t findings = 32;                                ///< at most so many are kept
  std::optional<std::array<std::uint64_t, 2>> blocks = {};  ///< [begin, end) of the grid in linear order; default all
};

/// Where something happened.
struct Place {
  int line = 0;                     ///< of the PTX
  std::string instruction, source;  ///< source: "kernel.py:41" where `.loc` says so
  Dim3 block{0, 0, 0}, thread{0, 0, 0};
  int lane = 0, warp = 0;
};

struct Finding {
  std::string kind;   ///< out_of_bounds, uninitialised, misaligned, read_only, diverged, race, wgmma_fence, proxy_fence, assertion
  std::string space;  ///< global, shared, local, constant, parameter or empty
  Place place;
  std::string address;              ///< "args[2]+0x40", "shared+0x10"
  std::optional<Place> other = {};  ///< the other access of a race
  std::uint64_t count = 1;          ///< how often
  std::string text;                 ///< all of it in a line
};

struct Report {
  std::string kernel;
  std::uint64_t blocks = 0, threads_per_block = 0, warp_instructions = 0, lane_instructions = 0;
  double seconds = 0;
  bool race_checked = false, uninitialised_checked = false;
  std::vector<Finding> findings;
  std::vector<OpenReading> open;  ///< sums that PTX leaves open, as this launch read them
};

/// What one element of memory was made of.
struct TraceRequest {
  std::size_t argument = 0, offset = 0, bytes = 4;
  int depth = 0;             ///< operations below the root that are written out; 0: all
  std::size_t terms = 4096;  ///< at most so many nodes are written
};
struct Trace {
  std::string expression;  ///< one definition a line, the last is the element
  Place place;             ///< of the store
  std::uint64_t nodes = 0;
};

/// Programs that make machine code of PTX, and text of machine code.
struct Toolchain {
  std::string ptxas, disassembler;  ///< cuobjdump or nvdisasm; empty: none
  std::string flags;                ///< of ptxas beside the target's: "--fmad=false"

  /// Those of $TRITON_PTXAS_PATH, of the PATH, of CUDA's usual folder: what is not there is empty.
  static Toolchain find();
};

/// How ptxas read the sums that PTX leaves open.
struct Readings {
  std::string kernel;
  std::vector<OpenReading> open;                ///< `fused`: what ptxas did, where that is known
  bool settled = false;                         ///< the machine code is that of the text with these readings written out
  std::string said;                             ///< what was compared with what
  std::map<std::string, std::uint64_t> counts;  ///< float instructions of the machine code: "fma.f32", "mul.f32", "add.f16x2"...
};

/// A module, read and compiled once. Launches may run at once.
class Module {
 public:
  /// Throws bad_file with the line for what is no PTX that is known here.
  explicit Module(std::string_view text, std::string name = "ptx");

  const std::string& version() const;  ///< ".version"
  const std::string& target() const;   ///< "sm_90a"
  const std::vector<Kernel>& kernels() const;
  /// Throws unknown_argument; an empty name is the only kernel.
  const Kernel& kernel(std::string_view name) const;

  /// Throws bad_value, missing_argument, unsupported (an instruction that is not there was reached), bad_shape (grid or block).
  Report launch(std::string_view kernel, const Launch& launch) const;
  /// How ptxas read a kernel's open sums: the machine code that `tools` make of the text is compared with that of the text with each
  /// reading written out, by its instructions and by the counts of float instructions. `machine_code`: a cubin, or a disassembler's text,
  /// that is compared in its place; empty: none. Throws bad_file, and bad_option for tools that fail.
  Readings readings(std::string_view kernel, const Toolchain& tools, const std::string& machine_code = {}) const;
  /// Runs the launch, and writes how one element of its memory was computed.
  Trace trace(std::string_view kernel, const Launch& launch, const TraceRequest& request) const;

 private:
  std::shared_ptr<const Program> program_;
};

}  // namespace dodona::ptx
