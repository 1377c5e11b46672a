// Some elements of a product: a mistake that leaves most of them far from what was given need not be tried on all.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "oracle/faults/faults.h"
#include "oracle/faults/product_model.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {

class FewProducts {
 public:
  /// Nothing where the call is no single product, or does not fail enough. What fails is asked of the verdict's details.
  static std::unique_ptr<FewProducts> of(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict);

  /// Whether sums of the operands with the mistake, in double, lie far from half of these elements: farther than any order or rounding of
  /// a product takes them. False of mistakes that are no other operands.
  bool rule_out(const Placed& placed) const;

 private:
  FewProducts(const FaultCase& call, ProductModel model, const Tensor& actual) : call_(call), model_(std::move(model)), actual_(actual) {}

  FaultCase call_;
  ProductModel model_;
  Tensor actual_;
  ProductModel::Some some_;
  std::vector<std::int64_t> elements_;
  std::vector<double> addends_;  ///< of these
};

}  // namespace dodona::oracle
