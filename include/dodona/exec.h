// How an op is executed: precision mode, threads, instruction set, workspace, tracer.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace dodona {

enum class Mode {
  fast,    ///< fp32 SIMD, the contract's roundings
  golden,  ///< sums and transcendentals in double, the contract's roundings
  hopper,  ///< what an H200 computes, to the bit
};
std::string_view name(Mode mode);
std::optional<Mode> parse_mode(std::string_view text);

/// Instruction-set tiers, in order; each one includes those before it on the same architecture.
enum class Isa {
  generic,  ///< scalar code with std::fma
  v3,       ///< x86-64-v3: AVX2, FMA, F16C
  v4,       ///< x86-64-v4: AVX-512 F/BW/DQ/VL/CD
  v4_vnni,  ///< v4 with AVX512-VNNI
  neon,     ///< AArch64 Advanced SIMD
};
inline constexpr int isa_count = 5;
std::string_view name(Isa isa);
std::optional<Isa> parse_isa(std::string_view text);

/// Tiers that this build contains and this CPU (and operating system) can run, slowest first.
const std::vector<Isa>& available_isas();
/// The fastest available tier, or what `DODONA_ISA` names. Throws bad_option if that one is unknown or cannot run here.
Isa default_isa();
/// `DODONA_NUM_THREADS`, else OpenMP's number of processors. Throws bad_option when it is not a positive number.
int default_threads();

/// Scratch memory that grows and is reused from call to call. Not for use by two calls at once.
class Workspace {
 public:
  /// 64-byte aligned, at least `bytes`; contents are indeterminate. Valid until the next call of `get`.
  std::byte* get(std::size_t bytes);
  std::size_t capacity() const { return capacity_; }

 private:
  std::shared_ptr<std::byte> memory_;
  std::size_t capacity_ = 0;
};

/// What a tracer learns of a finished call.
struct TraceEvent {
  std::string_view op;
  Mode mode;
  Isa isa;
  int threads;
  double seconds;
};

struct Exec {
  Mode mode = Mode::fast;
  int threads = default_threads();
  Isa isa = default_isa();
  Workspace* workspace = nullptr;                      ///< optional; a call makes its own if it needs one
  std::function<void(const TraceEvent&)> tracer = {};  ///< optional; called after each op
};

}  // namespace dodona
