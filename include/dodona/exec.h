// How an op is executed: precision mode, threads, instruction set, scratch memory, tracer.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "dodona/isa.h"

namespace dodona {

enum class Mode {
  fast,       ///< fp32 SIMD, the contract's roundings
  golden,     ///< sums and transcendentals in double, the contract's roundings
  hopper,     ///< what an H200 computes, to the bit; the modes below are of other GPUs, see caveat()
  blackwell,  ///< a B200
  ada,        ///< an L40S
  ampere,     ///< an A100
};
inline constexpr std::array<Mode, 6> mode_list{Mode::fast, Mode::golden, Mode::hopper, Mode::blackwell, Mode::ada, Mode::ampere};
/// Whether a mode gives a GPU's bits: outputs are held against it bit by bit.
constexpr bool of_a_gpu(Mode mode) {
  return mode != Mode::fast && mode != Mode::golden;
}
std::string_view name(Mode mode);
std::optional<Mode> parse_mode(std::string_view text);
/// The mode of a GPU: h100, h200, b200, l40s, a100 (gpu_names()).
std::optional<Mode> mode_of_gpu(std::string_view gpu);
/// What a reader of its bits must know of a mode: empty for those that recordings confirm.
std::string_view caveat(Mode mode);
std::span<const std::string_view> gpu_names();
/// `fast, golden or hopper`, for readers.
std::string either_of(std::span<const Mode> modes);

/// `DODONA_NUM_THREADS`, else OpenMP's number of processors. Throws bad_option when it is not a positive number.
int default_threads();

/// Memory that a call needs while it runs: 64-byte aligned, contents indeterminate. It goes back to its pool when this ends.
class Scratch {
 public:
  Scratch(Scratch&&) noexcept = default;
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch();
  template <class T = std::byte>
  T* as() const {
    return reinterpret_cast<T*>(memory_.get());
  }

 private:
  friend class ScratchPool;
  struct Free {
    void operator()(std::byte* memory) const;
  };
  using Memory = std::unique_ptr<std::byte, Free>;
  struct Idle;
  Scratch(Memory memory, std::size_t bytes, std::shared_ptr<Idle> home);

  Memory memory_;
  std::size_t bytes_;
  std::shared_ptr<Idle> home_;
};

/// Keeps scratch memory from call to call. Copies are the same pool, so an Exec and its copies share one; calls may take from it at once.
class ScratchPool {
 public:
  ScratchPool();
  /// At least `bytes`. Throws out_of_memory.
  Scratch take(std::size_t bytes) const;
  /// Bytes that wait for the next call.
  std::size_t kept() const;

 private:
  std::shared_ptr<Scratch::Idle> idle_;
};

/// What a tracer learns of a finished call.
struct TraceEvent {
  std::string_view op;
  Mode mode;
  Isa isa;
  int threads;
  double seconds;
};

/// Sees the arguments of each call, see dodona/op.h.
class Witness;
/// What golden mode is to compute otherwise than contracts say, inside of what many kernels share: src/core/flaw.h.
class Flaw;

struct Exec {
  Mode mode = Mode::fast;
  int threads = default_threads();
  Isa isa = default_isa();
  ScratchPool scratch = {};                            ///< what calls with this Exec or a copy of it leave for each other
  std::function<void(const TraceEvent&)> tracer = {};  ///< optional; called after each op
  Witness* witness = nullptr;                          ///< optional; sees each call before and after
  const Flaw* flaw = nullptr;                          ///< optional; golden mode alone heeds it
};

}  // namespace dodona
