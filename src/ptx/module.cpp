// What users call: modules and launches.
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "core/threads.h"
#include "dodona/error.h"
#include "dodona/exec.h"
#include "dodona/ptx.h"
#include "io/stopwatch.h"
#include "ptx/machine.h"
#include "ptx/prepare.h"
#include "ptx/tensor_map.h"

namespace dodona::ptx {
namespace {

constexpr std::uint64_t most_threads = 1024, most_blocks = std::uint64_t{1} << 31, most_shared = 232448,
                        largest_buffer = std::uint64_t{1} << 36;
/// Launches of at most so many threads are watched unless it is asked otherwise.
constexpr std::uint64_t watched_threads = 16384;

std::string argument_name(std::size_t index) {
  return "args[" + std::to_string(index) + "]";
}

[[noreturn]] void fail(ErrorCode code, const CompiledKernel& kernel, const std::string& argument, const std::string& what) {
  throw Error(code, kernel.shown.name, argument, what);
}

std::string shown(const Dim3& d) {
  return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
}

bool checks(Check asked, std::uint64_t threads) {
  return asked == Check::on || (asked == Check::automatic && threads <= watched_threads);
}

const CompiledKernel& find_kernel(const Program& program, std::string_view name) {
  if (name.empty()) {
    if (program.kernels.size() == 1) return program.kernels.front();
    throw Error(ErrorCode::missing_argument, "", program.name, "has " + std::to_string(program.kernels.size()) + " kernels: say which");
  }
  for (const CompiledKernel& k : program.kernels)
    if (k.shown.name == name) return k;
  std::string known;
  for (const CompiledKernel& k : program.kernels) known += (known.empty() ? "" : ", ") + k.shown.name;
  throw Error(ErrorCode::unknown_argument, "", program.name, "has no kernel '" + std::string(name) + "'; it has " + known);
}

void check_sizes(const CompiledKernel& kernel, const Launch& launch, Prepared& p) {
  LaunchState& s = p.state;
  s.grid = launch.grid;
  s.block = launch.block;
  if (s.block.count() == 0 && kernel.shown.block) s.block = *kernel.shown.block;
  if (s.grid.count() == 0 || s.grid.x > 0x7FFFFFFFu || s.grid.y > 65535 || s.grid.z > 65535 || s.grid.count() > most_blocks)
    fail(ErrorCode::bad_shape, kernel, "grid", "must be 1 to 2147483647, 65535 and 65535 blocks, got " + shown(s.grid));
  if (s.block.count() == 0 || s.block.count() > most_threads || s.block.z > 64)
    fail(ErrorCode::bad_shape, kernel, "block", "must be 1 to 1024 threads, at most 64 deep, got " + shown(s.block));
  if (kernel.shown.block) {
    const Dim3& wanted = *kernel.shown.block;
    if (wanted.x != s.block.x || wanted.y != s.block.y || wanted.z != s.block.z)
      fail(ErrorCode::bad_shape, kernel, "block", "must be " + shown(wanted) + " (.reqntid), got " + shown(s.block));
  }
  if (kernel.shown.max_threads != 0 && s.block.count() > kernel.shown.max_threads)
    fail(ErrorCode::bad_shape, kernel, "block",
         "must be at most " + std::to_string(kernel.shown.max_threads) + " threads (.maxntid), got " + shown(s.block));
  if (kernel.clusters)
    fail(ErrorCode::unsupported, kernel, "grid", "wants clusters of several blocks (.reqnctapercluster), which are not there");
  s.dynamic_shared = launch.dynamic_shared;
  s.shared_bytes = kernel.static_shared + launch.dynamic_shared;
  if (s.shared_bytes > most_shared)
    fail(ErrorCode::bad_value, kernel, "shared",
         "is " + std::to_string(s.shared_bytes) + " bytes with the kernel's own, at most " + std::to_string(most_shared) + " are there");
  p.last = s.grid.count();
  if (launch.blocks) {
    p.first = (*launch.blocks)[0];
    p.last = (*launch.blocks)[1];
    if (p.first > p.last || p.last > s.grid.count())
      fail(ErrorCode::bad_value, kernel, "blocks", "must be a range within the grid's " + std::to_string(s.grid.count()) + " blocks");
  }
}

void place_arguments(const CompiledKernel& kernel, const Launch& launch, Prepared& p) {
  LaunchState& s = p.state;
  s.parameters.assign(kernel.parameter_bytes, std::byte{0});
  s.buffers.resize(launch.arguments.size());
  p.written.resize(launch.arguments.size());
  const std::vector<Parameter>& parameters = kernel.shown.parameters;
  std::size_t next = 0;
  for (std::size_t index = 0; index < launch.arguments.size(); ++index) {
    const Argument& a = launch.arguments[index];
    const std::string name = argument_name(index);
    if (a.kind == Argument::Kind::buffer || a.kind == Argument::Kind::memory) {
      if (a.data == nullptr && a.bytes != 0)
        fail(ErrorCode::bad_value, kernel, name, "is a null pointer to " + std::to_string(a.bytes) + " bytes");
      if (a.bytes >= largest_buffer) fail(ErrorCode::bad_value, kernel, name, "is larger than 64 GiB");
      Buffer& b = s.buffers[index];
      b.data = static_cast<std::byte*>(a.data);
      b.bytes = a.bytes;
      b.read_only = a.read_only;
      if (a.uninitialised && s.check_uninitialised) {
        p.written[index].assign(a.bytes, 0);
        b.written = p.written[index].data();
      }
    }
    if (a.kind == Argument::Kind::memory) continue;
    if (next >= parameters.size())
      fail(ErrorCode::unknown_argument, kernel, name,
           "is one too many: the kernel has " + std::to_string(parameters.size()) + " parameters");
    const Parameter& parameter = parameters[next++];
    std::byte* const to = s.parameters.data() + parameter.offset;
    const std::string which = " (parameter " + std::to_string(next - 1) + ", ." + parameter.type + " " + parameter.name + ")";
    if (a.kind == Argument::Kind::buffer) {
      if (parameter.bytes != 8 || !parameter.pointer)
        fail(ErrorCode::bad_dtype, kernel, name,
             "is memory, but the kernel takes " + std::to_string(parameter.bytes) + " bytes that are no pointer" + which);
      const std::uint64_t address = a.data == nullptr ? 0 : device_address(index);
      std::memcpy(to, &address, 8);
    } else if (a.kind == Argument::Kind::tensor_map) {
      if (parameter.bytes != 128)
        fail(ErrorCode::bad_dtype, kernel, name,
             "is a tensor map, but the kernel takes " + std::to_string(parameter.bytes) + " bytes" + which);
      const TensorBox box = encode(a.map, launch.arguments.size(), index);
      std::memcpy(to, &box, sizeof box);
    } else {
      if (parameter.bytes != a.value.size())
        fail(ErrorCode::bad_dtype, kernel, name,
             "has " + std::to_string(a.value.size()) + " bytes, but the kernel takes " + std::to_string(parameter.bytes) + which);
      std::copy(a.value.begin(), a.value.end(), to);
    }
  }
  for (; next < parameters.size(); ++next)
    if (!parameters[next].pointer || parameters[next].bytes != 8)
      fail(ErrorCode::missing_argument, kernel, "args",
           "are too few: parameter " + std::to_string(next) + " (." + parameters[next].type + " " + parameters[next].name + ") has none");
}

}  // namespace

Prepared prepare(const Program& program, std::string_view name, const Launch& launch) {
  const CompiledKernel& kernel = find_kernel(program, name);
  Prepared p;
  LaunchState& s = p.state;
  s.program = &program;
  s.kernel = &kernel;
  s.code = &program.code;
  check_sizes(kernel, launch, p);
  const std::uint64_t threads = s.block.count() * (p.last - p.first);
  s.check_races = checks(launch.race, threads);
  s.check_uninitialised = checks(launch.uninitialised, threads);
  s.limit = launch.limit;
  s.findings = launch.findings;
  s.isa = default_isa();
  s.variables = program.variables;
  place_arguments(kernel, launch, p);
  const int asked = launch.threads > 0 ? launch.threads : default_threads();
  p.threads =
      kernel.in_order
          ? 1
          : static_cast<int>(std::min<std::uint64_t>(static_cast<std::uint64_t>(asked), std::max<std::uint64_t>(p.last - p.first, 1)));
  return p;
}

namespace {

std::string place_text(const Place& p) {
  std::string text = "line " + std::to_string(p.line);
  if (!p.source.empty()) text += " (" + p.source + ")";
  return text + ": " + p.instruction;
}

const char* words_of(const std::string& kind) {
  constexpr std::array<std::array<const char*, 2>, 10> table{
      {{"out_of_bounds", "outside of the memory that the kernel was given"},
       {"uninitialised", "reads what nobody has written"},
       {"misaligned", "an address that is no multiple of its size"},
       {"read_only", "writes memory that is read only"},
       {"diverged", "lanes wait for others that never come"},
       {"race", "touches what another thread touches, with no barrier between them"},
       {"wgmma_fence", "registers of wgmma without wgmma.fence before it"},
       {"proxy_fence", "reads shared memory that a thread wrote without fence.proxy.async"},
       {"assertion", "an assertion does not hold"},
       {"trap", "a trap"}}};
  for (const auto& [name, words] : table)
    if (kind == name) return words;
  return "";
}

void write_text(Finding& f) {
  f.text = f.kind + ": " + words_of(f.kind) + ": " + place_text(f.place) + "; block " + shown(f.place.block) + ", thread " +
           shown(f.place.thread);
  if (!f.address.empty()) f.text += ", at " + f.address;
  if (f.other) f.text += "; the other: thread " + shown(f.other->thread) + ", " + place_text(*f.other);
  if (f.count > 1) f.text += " (" + std::to_string(f.count) + " times)";
}

/// Of several workers: of each kind and place the one of the first block.
using Found = std::map<Machine::FindingKey, Machine::Kept>;
void merge(Found& into, Found& from) {
  for (auto& [key, kept] : from) {
    const auto [at, added] = into.emplace(key, kept);
    if (added) continue;
    const std::uint64_t count = at->second.finding.count + kept.finding.count;
    if (kept.block < at->second.block) at->second = std::move(kept);
    at->second.finding.count = count;
  }
}

}  // namespace

Module::Module(std::string_view text, std::string name) : program_(std::make_shared<const Program>(compile(parse(text, name), text))) {}

const std::string& Module::version() const {
  return program_->version;
}
const std::string& Module::target() const {
  return program_->target;
}
const std::vector<Kernel>& Module::kernels() const {
  return program_->shown;
}
const Kernel& Module::kernel(std::string_view name) const {
  return find_kernel(*program_, name).shown;
}

Report Module::launch(std::string_view name, const Launch& launch) const {
  const io::Stopwatch clock;
  const std::shared_ptr<const Program> program = reading_of(program_, launch);
  const Prepared p = prepare(*program, name, launch);
  Report report;
  report.kernel = p.state.kernel->shown.name;
  report.blocks = p.last - p.first;
  report.threads_per_block = p.state.block.count();
  report.race_checked = p.state.check_races;
  report.uninitialised_checked = p.state.check_uninitialised;

  Found found;
  std::mutex mutex;
  std::atomic<std::uint64_t> next = p.first;
  const auto work = [&](std::int64_t) {
    Machine machine(p.state);
    for (std::uint64_t block = next++; block < p.last; block = next++) machine.run_block(block);
    const std::scoped_lock lock(mutex);
    merge(found, machine.findings);
    report.warp_instructions += machine.warp_instructions;
    report.lane_instructions += machine.lane_instructions;
  };
  parallel_for(p.threads, p.threads, 1e9, work);

  for (auto& [key, kept] : found) {
    write_text(kept.finding);
    report.findings.push_back(std::move(kept.finding));
  }
  std::stable_sort(report.findings.begin(), report.findings.end(),
                   [](const Finding& a, const Finding& b) { return a.place.line < b.place.line; });
  report.open = p.state.kernel->shown.open;
  report.seconds = clock.seconds();
  return report;
}

}  // namespace dodona::ptx
