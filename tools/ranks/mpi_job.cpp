#include "mpi_job.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <span>

#include "dodona/error.h"
#include "dodona/op.h"
#include "dodona/version.h"
#include "io/sha256.h"
#include "tools/common.h"

namespace dodona::tools {
namespace {

/// Of OpenMPI, and of launchers that speak PMI (MPICH, Slurm).
std::int64_t from_environment(std::initializer_list<const char*> names, std::int64_t otherwise) {
  for (const char* const name : names)
    if (const char* const text = std::getenv(name); text != nullptr) return std::atoll(text);
  return otherwise;
}

/// What sizes and texts are cut to where they must be of one length.
constexpr std::size_t said_bytes = 1024;

}  // namespace

std::int64_t started_ranks() {
  return from_environment({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 1);
}

void watch_over_this_rank() {
  if (started_ranks() < 2) return;
  const pid_t child = ::fork();
  if (child < 0) throw Error(ErrorCode::out_of_memory, "", "mpirun", std::string("rank cannot start: ") + std::strerror(errno));
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    return;
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFSIGNALED(status)) std::_Exit(WEXITSTATUS(status));
  fmt::print(stderr, "dodona: rank {} of {} was killed by signal {} ({}); the run is given up\n",
             from_environment({"OMPI_COMM_WORLD_RANK", "PMI_RANK"}, 0), started_ranks(), WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  std::fflush(stderr);
  std::_Exit(exit_cannot);
}

/// Ranks of one colour.
class MpiJob::Group final : public model::RankGroup {
 public:
  Group(const MpiCalls& calls, std::int64_t colour, std::int64_t ranks)
      : calls_(calls), group_(calls.split(static_cast<int>(colour))), ranks_(ranks) {}

  std::vector<Tensor> gather(const Tensor& mine) override {
    const auto begin = std::chrono::steady_clock::now();
    const std::int64_t bytes = bytes_for(mine.dtype(), mine.elements());
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(ranks_));
    calls_.gather(group_, &bytes, sizeof bytes, sizes.data());
    std::int64_t total = 0;
    for (const std::int64_t size : sizes) total += size;
    std::vector<std::byte> all(static_cast<std::size_t>(total));
    const bool even = std::all_of(sizes.begin(), sizes.end(), [&](std::int64_t size) { return size == bytes; });
    if (even)
      calls_.gather(group_, mine.data(), bytes, all.data());
    else
      calls_.gather_sizes(group_, mine.data(), sizes.data(), static_cast<int>(ranks_), all.data());
    std::vector<Tensor> parts;
    std::int64_t at = 0, row = 1;
    for (int d = 1; d < mine.rank(); ++d) row *= mine.size(d);
    for (const std::int64_t size : sizes) {
      Dims shape = mine.shape();
      shape[0] = size * 8 / bits(mine.dtype()) / std::max<std::int64_t>(1, row);
      parts.push_back(Tensor::uninitialized(mine.dtype(), shape));
      std::memcpy(parts.back().data(), all.data() + at, static_cast<std::size_t>(size));
      at += size;
    }
    count(begin, total);
    return parts;
  }

  /// Nothing is copied but by MPI.
  Tensor gather_alike(const Tensor& mine) override {
    const auto begin = std::chrono::steady_clock::now();
    const std::int64_t bytes = bytes_for(mine.dtype(), mine.elements());
    Dims shape{ranks_};
    for (const std::int64_t size : mine.shape()) shape.push_back(size);
    Tensor all = Tensor::uninitialized(mine.dtype(), shape);
    calls_.gather(group_, mine.data(), bytes, all.data());
    count(begin, bytes * ranks_);
    return all;
  }

  std::vector<Tensor> exchange(std::int64_t, const std::vector<Tensor>& to_each) override {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::int64_t> out, in(to_each.size());
    std::string message;
    for (const Tensor& part : to_each) {
      out.push_back(part.elements());
      message.append(part.as<const char>(), static_cast<std::size_t>(part.elements()));
    }
    calls_.exchange_sizes(group_, out.data(), in.data());
    const std::int64_t total = std::accumulate(in.begin(), in.end(), std::int64_t{0});
    const Tensor all = Tensor::uninitialized(DType::u8, {total});
    calls_.exchange(group_, message.data(), out.data(), all.data(), in.data(), static_cast<int>(ranks_));
    std::vector<Tensor> parts;
    std::int64_t at = 0;
    for (const std::int64_t size : in) parts.push_back(all.slice(0, at, at + size)), at += size;
    count(begin, total);
    return parts;
  }

  Tally tally;

 private:
  void count(std::chrono::steady_clock::time_point begin, std::int64_t bytes) {
    tally.calls += 1, tally.bytes += bytes;
    tally.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  const MpiCalls& calls_;
  int group_;
  std::int64_t ranks_;
};

MpiJob::MpiJob() {
  const std::filesystem::path beside = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  std::string why;
  for (const std::filesystem::path& folder : {beside, beside / ".." / "lib"}) {
    const std::filesystem::path file = folder / "libdodona_mpi.so";
    if (module_ != nullptr || !std::filesystem::exists(file)) continue;
    module_ = ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (module_ == nullptr) why = std::string(", whose libdodona_mpi.so cannot be loaded: ") + ::dlerror();
  }
  if (module_ == nullptr)
    throw Error(
        ErrorCode::unsupported, "", "mpirun",
        "started " + std::to_string(started_ranks()) + " ranks of this command" +
            (why.empty() ? ", but there is no libdodona_mpi.so beside it: the package dodona-mpi has it, and a build where MPI is found"
                         : why));
  const auto get = reinterpret_cast<GetMpiCalls*>(::dlsym(module_, get_mpi_calls));
  if (get == nullptr) throw Error(ErrorCode::unsupported, "", "mpirun", "finds a libdodona_mpi.so of another version");
  calls_ = get();
  int rank = 0, ranks = 1;
  calls_->start(&rank, &ranks);
  rank_ = rank;
  ranks_ = ranks;
}

MpiJob::~MpiJob() {
  groups_.clear();
  calls_->finish();
}

std::vector<std::string> MpiJob::gather(const std::string& mine) const {
  std::string text = mine.substr(0, said_bytes);
  text.resize(said_bytes, '\0');
  std::string all(said_bytes * static_cast<std::size_t>(ranks_), '\0');
  calls_->gather(0, text.data(), said_bytes, all.data());
  std::vector<std::string> said;
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks_); ++r) said.emplace_back(all.substr(r * said_bytes, said_bytes).c_str());
  return said;
}

void MpiJob::agree(const std::string& error, const std::vector<std::pair<std::string, std::string>>& facts) const {
  const std::vector<std::string> errors = gather(error);
  for (std::size_t r = 0; r < errors.size(); ++r)
    if (!errors[r].empty()) throw Error(ErrorCode::bad_value, "", fmt::format("rank {} of {}", r, ranks_), errors[r]);
  std::string contracts;
  for (const auto& op : registry().all()) contracts += std::string(op->name()) + ":" + std::to_string(op->contract_version()) + "\n";
  std::vector<std::pair<std::string, std::string>> all{{"version", version()}, {"set of contracts", contracts}};
  all.insert(all.end(), facts.begin(), facts.end());
  for (const auto& [name, fact] : all) {
    const std::vector<std::string> digests = gather(io::to_hex(io::sha256(std::as_bytes(std::span(fact.data(), fact.size())))));
    for (std::size_t r = 1; r < digests.size(); ++r)
      if (digests[r] != digests[0])
        throw Error(ErrorCode::bad_value, "", fmt::format("rank {} of {}", r, ranks_),
                    fmt::format("has another {} than rank 0: digest {}..., expected {}...", name, digests[r].substr(0, 12),
                                digests[0].substr(0, 12)));
  }
}

model::Ranks MpiJob::groups(const model::Grid& grid) {
  const auto add = [&](std::int64_t colour, std::int64_t ranks) -> model::RankGroup& {
    return *groups_.emplace_back(std::make_unique<Group>(*calls_, colour, ranks));
  };
  model::RankGroup& tensor = add(grid.tensor_group(rank_), grid.tensor);
  model::RankGroup& experts = add(grid.experts_group(rank_), grid.experts);
  return model::groups_of(grid, rank_, tensor, experts, add(grid.pipeline_group(rank_), grid.pipeline));
}

MpiJob::Tally MpiJob::tally() const {
  Tally sum;
  for (const auto& group : groups_) {
    const Tally& one = static_cast<const Group&>(*group).tally;
    sum.calls += one.calls, sum.bytes += one.bytes, sum.seconds += one.seconds;
  }
  return sum;
}

}  // namespace dodona::tools
