// The module that knows MPI.
#include <mpi.h>

#include <vector>

#include "../ranks/mpi_calls.h"

namespace dodona::tools {
namespace {

std::vector<MPI_Comm>& groups() {
  static std::vector<MPI_Comm> all{MPI_COMM_WORLD};
  return all;
}
MPI_Comm group_of(int group) {
  return groups()[static_cast<std::size_t>(group)];
}

void start(int* rank, int* ranks) {
  // One thread calls at a time, but not always the same one.
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  MPI_Comm_size(MPI_COMM_WORLD, ranks);
}

int split(int colour) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, colour, rank, &made);
  groups().push_back(made);
  return static_cast<int>(groups().size()) - 1;
}

void gather(int group, const void* mine, std::int64_t bytes, void* all) {
  const int count = static_cast<int>(bytes);
  MPI_Allgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, group_of(group));
}

struct Places {
  std::vector<int> counts, begins;
  Places(const std::int64_t* sizes, int ranks) {
    int begin = 0;
    for (int r = 0; r < ranks; ++r) {
      counts.push_back(static_cast<int>(sizes[r]));
      begins.push_back(begin);
      begin += counts.back();
    }
  }
};

void gather_sizes(int group, const void* mine, const std::int64_t* sizes, int ranks, void* all) {
  const Places places(sizes, ranks);
  int rank = 0;
  MPI_Comm_rank(group_of(group), &rank);
  MPI_Allgatherv(mine, places.counts[static_cast<std::size_t>(rank)], MPI_BYTE, all, places.counts.data(), places.begins.data(), MPI_BYTE,
                 group_of(group));
}

void exchange(int group, const void* out, const std::int64_t* sizes_out, void* in, const std::int64_t* sizes_in, int ranks) {
  const Places to(sizes_out, ranks), from(sizes_in, ranks);
  MPI_Alltoallv(out, to.counts.data(), to.begins.data(), MPI_BYTE, in, from.counts.data(), from.begins.data(), MPI_BYTE, group_of(group));
}

void exchange_sizes(int group, const std::int64_t* out, std::int64_t* in) {
  MPI_Alltoall(out, 1, MPI_INT64_T, in, 1, MPI_INT64_T, group_of(group));
}

void send(int to, const void* message, std::int64_t bytes) {
  MPI_Send(message, static_cast<int>(bytes), MPI_BYTE, to, 0, MPI_COMM_WORLD);
}

std::int64_t waiting(int* from) {
  int there = 0, bytes = 0;
  MPI_Status status;
  MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &there, &status);
  if (there == 0) return -1;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  *from = status.MPI_SOURCE;
  return bytes;
}

void receive(int from, void* message, std::int64_t bytes) {
  MPI_Recv(message, static_cast<int>(bytes), MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

void finish() {
  MPI_Finalize();
}

}  // namespace
}  // namespace dodona::tools

extern "C" __attribute__((visibility("default"))) const dodona::tools::MpiCalls* dodona_mpi_calls_3() {
  using namespace dodona::tools;
  static constexpr MpiCalls calls{.start = start,
                                  .split = split,
                                  .gather = gather,
                                  .gather_sizes = gather_sizes,
                                  .exchange = exchange,
                                  .exchange_sizes = exchange_sizes,
                                  .send = send,
                                  .waiting = waiting,
                                  .receive = receive,
                                  .finish = finish};
  return &calls;
}
