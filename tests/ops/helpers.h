// What tests of single ops have in common: modes, small tensors, calls by name.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "core/case_line.h"
#include "core/define.h"
#include "dodona/op.h"
#include "oracle/cases/case_file.h"
#include "oracle/cases/generate.h"
#include "oracle/judge/judge.h"
#include "quant/element.h"
#include "tests/errors.h"

namespace dodona::helpers {

using Values = std::vector<double>;

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr Mode all_modes[] = {Mode::golden, Mode::fast, Mode::hopper};

inline Exec in_mode(Mode mode, int threads = 2, Isa isa = default_isa()) {
  Exec exec;
  exec.mode = mode;
  exec.threads = threads;
  exec.isa = isa;
  return exec;
}

inline Tensor tensor_of(DType type, const Dims& shape, const Values& values) {
  Tensor tensor(type, shape);
  for (std::size_t i = 0; i < values.size(); ++i) quant::set(tensor, static_cast<std::int64_t>(i), values[i]);
  return tensor;
}
inline Values values_of(const Tensor& tensor) {
  Values values;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) values.push_back(quant::get(tensor, i));
  return values;
}
inline Tensor filled(DType type, const Dims& shape, double value) {
  Tensor tensor(type, shape);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) quant::set(tensor, i, value);
  return tensor;
}
inline Tensor normal(DType type, const Dims& shape, const char* name) {
  Tensor tensor(type, shape);
  oracle::fill(tensor, Role::values, 0, "normal", 1, name);
  return tensor;
}
inline bool same_bits(const Tensor& a, const Tensor& b) {
  for (std::int64_t i = 0; i < a.elements(); ++i)
    if (quant::get_bits(a, i) != quant::get_bits(b, i)) return false;
  return a.elements() == b.elements();
}

/// What fast mode says is wrong about a call; nothing where it is right.
template <class Call>
std::string error_of(const Call& call, Mode mode = Mode::fast) {
  return message_in([&] { ops::run(call, in_mode(mode)); });
}

/// An op called by name on generated arguments.
struct NamedOp {
  std::string name;

  const Op& op() const { return registry().at(name); }
  Arguments case_of(const std::string& rest) const { return oracle::generate(parse_case_line(name + " " + rest)); }
  oracle::NamedTensors outputs(const Arguments& inputs, const Exec& exec) const {
    Arguments arguments = oracle::runnable(op(), inputs);
    op().run(arguments, exec);
    return oracle::outputs_of(op(), arguments);
  }
  std::int64_t failing(const Arguments& inputs, const oracle::NamedTensors& actual) const {
    return oracle::judge(op(), inputs, actual, {}).failing();
  }
};

}  // namespace dodona::helpers
