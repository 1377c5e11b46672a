#include <algorithm>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "dodona/error.h"
#include "dodona/exec.h"

namespace dodona {
namespace {
constexpr std::align_val_t line{64};
}

/// What is not in use, smallest first.
struct Scratch::Idle {
  struct Block {
    Memory memory;
    std::size_t bytes;
    std::thread::id last_user = std::this_thread::get_id();
  };
  std::mutex mutex;
  std::vector<Block> blocks;
  std::size_t in_use = 0;

  /// The smallest block that is large enough, of those that this thread had last if it can be, for they lie in its core's cache; else the
  /// largest, which is to be replaced.
  Block pick(std::size_t bytes) {
    const std::lock_guard lock(mutex);
    blocks.reserve(blocks.size() + in_use + 1);  // so that giving back needs no memory
    ++in_use;
    if (blocks.empty()) return {nullptr, 0};
    const auto enough = std::find_if(blocks.begin(), blocks.end(), [&](const Block& block) { return block.bytes >= bytes; });
    const auto own =
        std::find_if(enough, blocks.end(), [me = std::this_thread::get_id()](const Block& block) { return block.last_user == me; });
    const auto found = own != blocks.end() ? own : enough != blocks.end() ? enough : enough - 1;
    Block block = std::move(*found);
    blocks.erase(found);
    return block;
  }

  void put(Block block) {
    const std::lock_guard lock(mutex);
    --in_use;
    if (block.memory == nullptr) return;
    const auto larger = std::find_if(blocks.begin(), blocks.end(), [&](const Block& other) { return other.bytes > block.bytes; });
    blocks.insert(larger, std::move(block));
  }
};

void Scratch::Free::operator()(std::byte* memory) const {
  ::operator delete(memory, line);
}

Scratch::Scratch(Memory memory, std::size_t bytes, std::shared_ptr<Idle> home)
    : memory_(std::move(memory)), bytes_(bytes), home_(std::move(home)) {}

Scratch::~Scratch() {
  if (home_ != nullptr) home_->put({std::move(memory_), bytes_});
}

ScratchPool::ScratchPool() : idle_(std::make_shared<Scratch::Idle>()) {}

Scratch ScratchPool::take(std::size_t bytes) const {
  Scratch::Idle::Block block = idle_->pick(bytes);
  Scratch scratch(std::move(block.memory), block.bytes, idle_);
  if (scratch.memory_ != nullptr && scratch.bytes_ >= bytes) return scratch;
  scratch.memory_.reset();
  scratch.memory_.reset(static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), line, std::nothrow)));
  if (scratch.memory_ == nullptr)
    throw Error(ErrorCode::out_of_memory, "", "", "scratch memory of " + std::to_string(bytes) + " bytes cannot be had");
  scratch.bytes_ = bytes;
  return scratch;
}

std::size_t ScratchPool::kept() const {
  const std::lock_guard lock(idle_->mutex);
  std::size_t bytes = 0;
  for (const auto& block : idle_->blocks) bytes += block.bytes;
  return bytes;
}

}  // namespace dodona
