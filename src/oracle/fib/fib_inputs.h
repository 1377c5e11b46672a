// The inputs of one workload, as tensors.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "oracle/fib/fib_definition.h"
#include "oracle/fib/fib_import.h"

namespace dodona::oracle::fib {

class Inputs {
 public:
  Inputs(const Definition& definition, const Workload& workload, std::string root);

  const Definition& definition() const { return definition_; }
  const std::map<std::string, std::int64_t>& axes() const { return axes_; }
  std::int64_t axis(const std::string& name) const;
  /// The workload's source of an input; random where a dump says that it is optional and the workload nothing. Throws for missing ones.
  const Source& source(const Field& field) const;
  Dims shape(const Field& field) const { return shape_of(definition_, field, axes_); }
  /// A tensor of a file, which must have the declared type and shape; types that the schema lacks come as int8 and become `type`.
  Tensor load(const Field& field, std::optional<DType> type = std::nullopt) const;
  double scalar(const Field& field) const;
  /// Throws Error naming the constraint that does not hold; those that cannot be evaluated are noted.
  void check_constraints(const std::map<std::string, Tensor>& tensors, std::vector<std::string>& notes) const;

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& why) const;
  const Definition& definition_;
  const Workload& workload_;
  std::string root_;
  std::map<std::string, std::int64_t> axes_;
};

}  // namespace dodona::oracle::fib
