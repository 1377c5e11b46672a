// Our kernels, judged by the oracle. BUG=1 in the environment switches their bugs on.
#include "kernels.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "dodona/testing/gtest.h"

namespace {

bool bug_wanted() {
  const char* bug = std::getenv("BUG");
  return bug != nullptr && std::strcmp(bug, "1") == 0;
}

void must(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

/// An array on the device.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(std::size_t elements) : elements_(elements) { must(cudaMalloc(&data_, elements * sizeof(T))); }
  explicit OnDevice(const dodona::CaseTensor& host) : OnDevice(host.bytes() / sizeof(T)) {
    must(cudaMemcpy(data_, host.data, host.bytes(), cudaMemcpyHostToDevice));
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(data_); }

  T* data() const { return data_; }
  std::vector<T> on_host() const {
    std::vector<T> host(elements_);
    must(cudaMemcpy(host.data(), data_, elements_ * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
  }

 private:
  T* data_ = nullptr;
  std::size_t elements_;
};

/// What the case line says, or `unsaid`: the op's default.
double attribute(const dodona::Case& c, const std::string& name, double unsaid) {
  const std::string attributes = c.attributes(), key = "\"" + name + "\":";
  const std::size_t at = attributes.find(key);
  return at == std::string::npos ? unsaid : std::strtod(attributes.c_str() + at + key.size(), nullptr);
}

class KernelTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    int devices = 0;
    const cudaError_t status = cudaGetDeviceCount(&devices);
    if (status != cudaSuccess || devices == 0)
      GTEST_SKIP() << "needs a CUDA device: " << (status != cudaSuccess ? cudaGetErrorString(status) : "none found");
  }
};

// ---- fused_add_rmsnorm

struct Normalised {
  std::vector<__nv_bfloat16> input, residual;
};

Normalised run_fused_add_rmsnorm(const dodona::Case& c, bool bug) {
  const auto& shape = c.input("input").shape;
  const OnDevice<__nv_bfloat16> input(c.input("input")), residual(c.input("residual")), weight(c.input("weight"));
  must(fused_add_rmsnorm(input.data(), residual.data(), weight.data(), static_cast<int>(shape[0]), static_cast<int>(shape[1]),
                         static_cast<float>(attribute(c, "eps", 1e-6)), bug));
  return {input.on_host(), residual.on_host()};
}

using FusedAddRmsnorm = KernelTest;

TEST_P(FusedAddRmsnorm, ReturnsWhatItShould) {
  const dodona::Case c(GetParam());
  const Normalised actual = run_fused_add_rmsnorm(c, bug_wanted());
  EXPECT_DODONA(c, {"input", actual.input.data()}, {"residual", actual.residual.data()});
}

TEST_P(FusedAddRmsnorm, WouldNotPassWithTheBug) {
  const dodona::Case c(GetParam());
  const Normalised actual = run_fused_add_rmsnorm(c, true);
  EXPECT_FALSE(c.judge({{"input", actual.input.data()}, {"residual", actual.residual.data()}}));
}

INSTANTIATE_TEST_SUITE_P(Lines, FusedAddRmsnorm,
                         testing::Values("fused_add_rmsnorm T=4 H=7168 --seed 1", "fused_add_rmsnorm T=64 H=7168 --seed 2",
                                         "fused_add_rmsnorm T=17 H=1536 --dist outliers --seed 3",
                                         "fused_add_rmsnorm T=7 H=2056 --attr eps=0.001 --seed 4"));

// ---- moe_fused_gate

struct Routed {
  std::vector<float> weights;
  std::vector<int> ids;
};

Routed run_moe_fused_gate(const dodona::Case& c, bool bug) {
  const auto whole = [&](const char* name) { return static_cast<int>(attribute(c, name, 1)); };
  const auto& shape = c.input("input_tensor").shape;
  const int rows = static_cast<int>(shape[0]), experts = static_cast<int>(shape[1]), chosen = whole("topk");
  const OnDevice<float> logits(c.input("input_tensor")), bias(c.input("bias"));
  const OnDevice<float> weights(static_cast<std::size_t>(rows) * chosen);
  const OnDevice<int> ids(static_cast<std::size_t>(rows) * chosen);
  must(moe_fused_gate(logits.data(), bias.data(), weights.data(), ids.data(), rows, experts, whole("num_expert_group"), whole("topk_group"),
                      chosen, bug));
  return {weights.on_host(), ids.on_host()};
}

using MoeFusedGate = KernelTest;

TEST_P(MoeFusedGate, ReturnsWhatItShould) {
  const dodona::Case c(GetParam());
  const Routed actual = run_moe_fused_gate(c, bug_wanted());
  EXPECT_DODONA(c, {"topk_weights", actual.weights.data()}, {"topk_ids", actual.ids.data()});
}

TEST_P(MoeFusedGate, WouldNotPassWithTheBug) {
  const dodona::Case c(GetParam());
  const Routed actual = run_moe_fused_gate(c, true);
  EXPECT_FALSE(c.judge({{"topk_weights", actual.weights.data()}, {"topk_ids", actual.ids.data()}}));
}

INSTANTIATE_TEST_SUITE_P(
    Lines, MoeFusedGate,
    testing::Values("moe_fused_gate T=1 E=256 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8 --seed 1",
                    "moe_fused_gate T=257 E=256 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8 --seed 2",
                    "moe_fused_gate T=64 E=256 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8 --dist ties --seed 3",
                    "moe_fused_gate T=9 E=64 --attr num_expert_group=16 --attr topk_group=5 --attr topk=12 --seed 4"));

}  // namespace
