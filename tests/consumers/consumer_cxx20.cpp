// rmsnorm of (3, 4) with weights 1: both over sqrt(12.5).
#include <cmath>
#include <cstdio>

#include "dodona/error.h"
#include "dodona/op.h"
#include "dodona/version.h"

int main() {
  float x[2] = {3, 4}, weight[2] = {1, 1};
  dodona::Arguments arguments;
  arguments.set("input", dodona::Tensor(x, dodona::DType::f32, {1, 2}));
  arguments.set("weight", dodona::Tensor(weight, dodona::DType::f32, {2}));
  for (const dodona::Mode mode : {dodona::Mode::golden, dodona::Mode::fast}) {
    dodona::Exec exec;
    exec.mode = mode;
    dodona::Arguments call = arguments;
    dodona::registry().at("rmsnorm").run(call, exec);
    const float* y = call.find("output")->as<float>();
    if (std::fabs(y[0] - 0.8485281f) > 1e-5f || std::fabs(y[1] - 1.1313708f) > 1e-5f) return 1;
  }
  try {
    dodona::registry().at("rmsnrom");
    return 2;
  } catch (const dodona::Error& error) {
    std::printf("dodona %s: %s\n", dodona::version().c_str(), error.what());
  }
  return 0;
}
