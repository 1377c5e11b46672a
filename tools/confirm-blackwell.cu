// Single steps of a B200's tensor cores (tcgen05.mma), recorded: what tools/confirm-blackwell packs for who owns one.
//
//   nvcc -std=c++17 -gencode arch=compute_100a,code=sm_100a -o confirm-blackwell confirm-blackwell.cu && ./confirm-blackwell steps > results.txt
//
// Every step is a row of A times a row of B and an accumulator. 128 steps go through one instruction of 128 x 128: row s of A, column s of
// B, and of the results the diagonal. Before each kind's steps a product of small whole numbers is made, which has one right answer under
// any rule of rounding: where it is wrong, this program lays operands out wrongly, and the steps of that kind are not written.
//
// Source of layouts and descriptors: PTX ISA, "tcgen05 MMA", K-major operands without swizzle: cores of 8 rows of 16 bytes, those of the
// next 16 bytes of K 128 bytes on, those of the next 8 rows 256 bytes on. Scales: lane r mod 32, column r / 32 of tensor memory.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

constexpr int rows = 128;       // of A, of B, and steps an instruction
constexpr int line_bytes = 32;  // of K, for every kind
constexpr int tile_bytes = rows * line_bytes;
constexpr int columns_taken = 256;  // of tensor memory: 128 of results, 4 and 4 of scales

enum Kind { f16_kind, f8f6f4, mxf8f6f4, mxf4, mxf4nvf4 };

struct Job {
  uint8_t a[tile_bytes], b[tile_bytes];   // as shared memory has them
  uint32_t scale_a[rows], scale_b[rows];  // up to four codes a row
  uint32_t c[rows], d[rows];              // of the diagonal
};

__device__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ uint64_t descriptor(const void* tile) {
  const uint64_t along_k = 128 >> 4, along_rows = 256 >> 4, version = 1;
  return (shared_address(tile) & 0x3FFFFu) >> 4 | along_k << 16 | along_rows << 32 | version << 46;
}

template <int kind>
__device__ void multiply(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction, uint32_t scale_a, uint32_t scale_b) {
  const uint32_t adds = 1;
  if constexpr (kind == f16_kind)
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\ntcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;\n}" ::"r"(d), "l"(a),
                 "l"(b), "r"(instruction), "r"(adds)
                 : "memory");
  if constexpr (kind == f8f6f4)
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\ntcgen05.mma.cta_group::1.kind::f8f6f4 [%0], %1, %2, %3, p;\n}" ::"r"(d), "l"(a),
                 "l"(b), "r"(instruction), "r"(adds)
                 : "memory");
#define BLOCK_SCALED(kind)                                                                     \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\ntcgen05.mma.cta_group::1.kind::" kind \
               " [%0], %1, %2, %3, [%5], [%6], p;\n}" ::"r"(d),                                \
               "l"(a), "l"(b), "r"(instruction), "r"(adds), "r"(scale_a), "r"(scale_b)         \
               : "memory")
  if constexpr (kind == mxf8f6f4) BLOCK_SCALED("mxf8f6f4.block_scale.scale_vec::1X");
  if constexpr (kind == mxf4) BLOCK_SCALED("mxf4.block_scale.scale_vec::2X");
  if constexpr (kind == mxf4nvf4) BLOCK_SCALED("mxf4nvf4.block_scale.scale_vec::4X");
#undef BLOCK_SCALED
}

__device__ void store_column(uint32_t address, uint32_t value) {
  asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(address), "r"(value) : "memory");
}
__device__ uint32_t load_column(uint32_t address) {
  uint32_t value;
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(value) : "r"(address) : "memory");
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
  return value;
}

/// One instruction; a thread for each row.
template <int kind>
__global__ void run(Job* job, uint32_t instruction) {
  __shared__ alignas(128) uint8_t a[tile_bytes], b[tile_bytes];
  __shared__ alignas(8) uint64_t barrier;
  __shared__ uint32_t tensor_memory;
  const uint32_t row = threadIdx.x, warp = row / 32;
  for (int i = row; i < tile_bytes; i += rows) a[i] = job->a[i], b[i] = job->b[i];
  if (warp == 0) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared_address(&tensor_memory)),
                 "n"(columns_taken)
                 : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
  }
  if (row == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&barrier)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  // A warp reaches its own 32 lanes: rows of the accumulator. Scales stand in each warp's lanes again.
  const uint32_t results = tensor_memory, scale_a = results + 128, scale_b = results + 132, lanes = warp * 32 << 16;
  for (uint32_t column = 0; column < rows; ++column) store_column(results + lanes + column, column == row ? job->c[row] : 0);
  for (uint32_t column = 0; column < 4; ++column) {
    store_column(scale_a + lanes + column, job->scale_a[column * 32 + row % 32]);
    store_column(scale_b + lanes + column, job->scale_b[column * 32 + row % 32]);
  }
  asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  if (row == 0) {
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    multiply<kind>(results, descriptor(a), descriptor(b), instruction, scale_a, scale_b);
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(shared_address(&barrier)) : "memory");
  }
  uint32_t done = 0;
  while (done == 0)
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(shared_address(&barrier))
                 : "memory");
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  for (uint32_t column = 0; column < rows; ++column) {
    const uint32_t value = load_column(results + lanes + column);
    if (column == row) job->d[row] = value;
  }
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  if (warp == 0) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(tensor_memory), "n"(columns_taken));
}

// ---- what is run

struct File {
  const char* name;
  Kind kind;
  int a_format, b_format;  // of the instruction descriptor
  int k, scales;           // numbers and scale codes a line
  bool ue8m0;
  int a_one, b_one;  // codes of 1
};
constexpr File files[] = {
    {"sm100_bf16", f16_kind, 1, 1, 16, 0, false, 0x3F80, 0x3F80},
    {"sm100_f16", f16_kind, 0, 0, 16, 0, false, 0x3C00, 0x3C00},
    {"sm100_e4m3", f8f6f4, 0, 0, 32, 0, false, 0x38, 0x38},
    {"sm100_e5m2", f8f6f4, 1, 1, 32, 0, false, 0x3C, 0x3C},
    {"sm100_mxf8_e4m3", mxf8f6f4, 0, 0, 32, 1, true, 0x38, 0x38},
    {"sm100_mxf8_e5m2", mxf8f6f4, 1, 1, 32, 1, true, 0x3C, 0x3C},
    {"sm100_mxf8_e4m3_e2m1", mxf8f6f4, 0, 5, 32, 1, true, 0x38, 2},
    {"sm100_mxf4", mxf4, 1, 1, 64, 2, true, 2, 2},
    {"sm100_nvf4", mxf4nvf4, 1, 1, 64, 4, false, 2, 2},
};

uint32_t instruction_of(const File& file) {
  uint32_t word =
      static_cast<uint32_t>(file.a_format) << 7 | static_cast<uint32_t>(file.b_format) << 10 | (rows >> 3) << 17 | (rows >> 4) << 24;
  if (file.scales == 0) word |= 1u << 4;  // fp32 accumulators
  if (file.ue8m0) word |= 1u << 23;
  return word;
}

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

void launch(const File& file, Job& job) {
  static Job* device = nullptr;
  if (device == nullptr) check(cudaMalloc(&device, sizeof(Job)), "memory");
  check(cudaMemcpy(device, &job, sizeof job, cudaMemcpyHostToDevice), "copy");
  const uint32_t word = instruction_of(file);
  switch (file.kind) {
    case f16_kind: run<f16_kind><<<1, rows>>>(device, word); break;
    case f8f6f4: run<f8f6f4><<<1, rows>>>(device, word); break;
    case mxf8f6f4: run<mxf8f6f4><<<1, rows>>>(device, word); break;
    case mxf4: run<mxf4><<<1, rows>>>(device, word); break;
    case mxf4nvf4: run<mxf4nvf4><<<1, rows>>>(device, word); break;
  }
  check(cudaGetLastError(), file.name);
  check(cudaMemcpy(&job, device, sizeof job, cudaMemcpyDeviceToHost), file.name);
}

/// Byte `at` of K of a row, where the instruction looks for it.
size_t place(int row, int at) {
  return static_cast<size_t>(row / 8 * 256 + at / 16 * 128 + row % 8 * 16 + at % 16);
}

/// One row of codes as stored in the files: two bytes each, one, or two codes a byte (fp4 of mxf4 and nvf4). e2m1 beside an 8-bit type is
/// one a byte there; in shared memory 16 of them are packed into 8 of 16 bytes.
void put(uint8_t* tile, int row, const uint8_t* codes, bool unpacked_fp4) {
  for (int i = 0; i < line_bytes; ++i) {
    if (!unpacked_fp4) {
      tile[place(row, i)] = codes[i];
    } else {
      tile[place(row, i / 16 * 16 + i % 16 / 2)] |= static_cast<uint8_t>((codes[i] & 15) << (i % 2 * 4));
    }
  }
}

/// Row i is codes of 1 in its first i mod (k + 1) places; products of rows count them, with scales of 1 and c = i.
bool layout_is_right(const File& file) {
  Job job{};
  const int code_bits = file.k == 16 ? 16 : file.k == 64 ? 4 : 8;
  const bool unpacked = file.kind == mxf8f6f4 && file.b_format == 5;
  for (int i = 0; i < rows; ++i) {
    uint8_t a[line_bytes] = {}, b[line_bytes] = {};
    const auto fill = [&](uint8_t* line, int one, int count) {
      for (int k = 0; k < count; ++k) {
        if (code_bits == 16) line[2 * k] = static_cast<uint8_t>(one), line[2 * k + 1] = static_cast<uint8_t>(one >> 8);
        if (code_bits == 8) line[k] = static_cast<uint8_t>(one);
        if (code_bits == 4) line[k / 2] |= static_cast<uint8_t>(one << (k % 2 * 4));
      }
    };
    fill(a, file.a_one, i % (file.k + 1));
    fill(b, file.b_one, (i * 7) % (file.k + 1));
    put(job.a, i, a, false);
    put(job.b, i, b, unpacked);
    job.scale_a[i] = job.scale_b[i] = file.ue8m0 ? 0x7F7F7F7Fu : 0x38383838u;
    const float c = static_cast<float>(i);
    std::memcpy(&job.c[i], &c, 4);
  }
  // Scales of powers of two, so that a wrong row or block shows: 2^(i mod 3) of a.
  for (int i = 0; i < rows; ++i)
    if (file.scales > 0) job.scale_a[i] = file.ue8m0 ? 0x7F7F7F7Fu + 0x01010101u * (i % 3) : 0x38383838u + 0x08080808u * (i % 3);
  launch(file, job);
  for (int i = 0; i < rows; ++i) {
    const int common = std::min(i % (file.k + 1), (i * 7) % (file.k + 1));
    const float expected = static_cast<float>(i + common * (file.scales > 0 ? 1 << i % 3 : 1));
    float got;
    std::memcpy(&got, &job.d[i], 4);
    if (got == expected) continue;
    std::fprintf(stderr, "%s: the layout check gives %g for %g in row %d: operands are laid out wrongly, no steps are recorded\n",
                 file.name, got, expected, i);
    return false;
  }
  return true;
}

/// A tensor of a safetensors file.
std::vector<uint8_t> tensor(const std::string& bytes, const std::string& name) {
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  const size_t at = bytes.find("\"" + name + "\":{", 8), offsets = bytes.find("\"data_offsets\":[", at);
  if (at == std::string::npos || at > header) return {};
  char* next = nullptr;
  const unsigned long begin = std::strtoul(bytes.c_str() + offsets + 16, &next, 10), end = std::strtoul(next + 1, nullptr, 10);
  return {bytes.begin() + static_cast<long>(8 + header + begin), bytes.begin() + static_cast<long>(8 + header + end)};
}

void record(const File& file, const std::string& folder) {
  std::ifstream stream(folder + "/" + file.name + ".safetensors", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (bytes.size() < 8) {
    std::fprintf(stderr, "%s: cannot be read\n", file.name);
    std::exit(1);
  }
  const auto a = tensor(bytes, "a"), b = tensor(bytes, "b"), c = tensor(bytes, "c");
  const auto scale_a = tensor(bytes, "scale_a"), scale_b = tensor(bytes, "scale_b");
  const bool unpacked = file.kind == mxf8f6f4 && file.b_format == 5;
  const int steps = static_cast<int>(c.size() / 4);
  std::printf("file %s %d\n", file.name, steps);
  for (int first = 0; first < steps; first += rows) {
    const int count = std::min(rows, steps - first);
    Job job{};
    for (int i = 0; i < count; ++i) {
      const size_t s = static_cast<size_t>(first + i);
      put(job.a, i, a.data() + s * line_bytes, false);
      put(job.b, i, b.data() + s * line_bytes, unpacked);
      std::memcpy(&job.c[i], c.data() + s * 4, 4);
      const size_t scales = static_cast<size_t>(file.scales);
      if (scales > 0) std::memcpy(&job.scale_a[i], scale_a.data() + s * scales, scales);
      if (scales > 0) std::memcpy(&job.scale_b[i], scale_b.data() + s * scales, scales);
    }
    launch(file, job);
    for (int i = 0; i < count; ++i) std::printf("%08x\n", job.d[i]);
  }
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) {
    std::fprintf(stderr, "usage: confirm-blackwell FOLDER-OF-STEPS > results.txt\n");
    return 2;
  }
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0), "device");
  std::printf("device %s (compute capability %d.%d)\n", device.name, device.major, device.minor);
  if (device.major != 10) {
    std::fprintf(stderr, "%s has no tcgen05.mma: compute capability 10.0 is asked for\n", device.name);
    return 1;
  }
  int missing = 0;
  for (const File& file : files) layout_is_right(file) ? record(file, words[1]) : void(++missing);
  return missing == 0 ? 0 : 1;
}
