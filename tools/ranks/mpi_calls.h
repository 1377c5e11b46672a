// What the command asks of MPI: a table that a module gives, so that a process without ranks never loads an MPI library.
#pragma once

#include <cstdint>

namespace dodona::tools {

/// Groups are numbers: 0 is all ranks. One thread calls at a time. MPI's own error handler ends the job where a call fails.
struct MpiCalls {
  /// Joins the job.
  void (*start)(int* rank, int* ranks);
  /// The ranks that give the same colour, in the order of their ranks; all ranks call it.
  int (*split)(int colour);
  /// all has room for `bytes` of each rank of the group.
  void (*gather)(int group, const void* mine, std::int64_t bytes, void* all);
  /// sizes[r] bytes of rank r, one behind the other.
  void (*gather_sizes)(int group, const void* mine, const std::int64_t* sizes, int ranks, void* all);
  /// sizes_out[r] bytes for rank r and sizes_in[r] from it, each one behind the other; the latter must be what that rank gives, see
  /// exchange_sizes.
  void (*exchange)(int group, const void* out, const std::int64_t* sizes_out, void* in, const std::int64_t* sizes_in, int ranks);
  /// What each rank has for this one, a number each.
  void (*exchange_sizes)(int group, const std::int64_t* out, std::int64_t* in);
  /// A message to one rank of all; returns when `message` may change.
  void (*send)(int to, const void* message, std::int64_t bytes);
  /// Whose message waits for this rank, and of how many bytes; -1 where none does. Does not wait.
  std::int64_t (*waiting)(int* from);
  /// The message that waits.
  void (*receive)(int from, void* message, std::int64_t bytes);
  /// Leaves the job; all ranks call it.
  void (*finish)();
};

/// Of the module, by this name, which changes with the table.
using GetMpiCalls = const MpiCalls*();
inline constexpr const char* get_mpi_calls = "dodona_mpi_calls_3";

}  // namespace dodona::tools
