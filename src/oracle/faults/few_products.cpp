#include "oracle/faults/few_products.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "dodona/error.h"
#include "oracle/faults/few_rows.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

/// A sum and what its addends are together without their signs.
struct Sum {
  double value = 0, magnitude = 0;
};
Sum sum_of(const ProductModel& model, const ProductModel::Factors& factors, std::int64_t element) {
  const std::int64_t per_batch = model.rows() * model.columns(), l = element / per_batch, m = element / model.columns() % model.rows(),
                     n = element % model.columns(), depth = model.depth();
  const float* const a = factors.a.data() + (l * model.rows() + m) * depth;
  const float* const b = factors.b.data() + (l * model.columns() + n) * depth;
  Sum sum;
  for (std::int64_t k = 0; k < depth; ++k) {
    const double product = static_cast<double>(a[k]) * static_cast<double>(b[k]);
    sum.value += product, sum.magnitude += std::fabs(product);
  }
  const double outer = factors.outer[static_cast<std::size_t>(element)];
  return {sum.value * outer, std::fabs(sum.magnitude * outer)};
}

}  // namespace

std::unique_ptr<FewProducts> FewProducts::of(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict) {
  constexpr std::int64_t worth_it = 1 << 16;  // products
  constexpr std::size_t few_rows = 6, few_columns = 8, enough = 8;
  auto model = ProductModel::of(call);
  if (!model || model->batches() * model->rows() * model->columns() * model->depth() < worth_it) return nullptr;
  const Tensor* const given = find(actual, model->output());
  const auto output =
      std::find_if(verdict.outputs.begin(), verdict.outputs.end(), [&](const auto& o) { return o.name == model->output(); });
  if (given == nullptr || output == verdict.outputs.end() || output->detail == nullptr) return nullptr;
  const auto addends = model->addends(model->factors());
  if (!addends) return nullptr;
  std::unique_ptr<FewProducts> found(new FewProducts(call, std::move(*model), *given));
  const ProductModel& its = found->model_;
  // Of a few rows and columns, evenly taken from what fails.
  const std::vector<std::int64_t>& failing = output->detail->failing;
  std::set<std::int64_t> rows, columns;
  for (std::size_t k = 0; k < failing.size(); k += failing.size() / 256 + 1) {
    const std::int64_t row = failing[k] / its.columns(), column = failing[k] % its.columns();
    if (rows.size() < few_rows) rows.insert(row);
    if (columns.size() < few_columns && rows.count(row) > 0) columns.insert(column);
  }
  for (const std::int64_t i : failing)
    if (rows.count(i / its.columns()) > 0 && columns.count(i % its.columns()) > 0 && std::isfinite(quant::get(*given, i)))
      found->elements_.push_back(i), found->addends_.push_back((*addends)[static_cast<std::size_t>(i)]);
  found->some_ = {{rows.begin(), rows.end()}, {columns.begin(), columns.end()}};
  return found->elements_.size() >= enough ? std::move(found) : nullptr;
}

bool FewProducts::rule_out(const Placed& placed) const {
  if (!is_another_call(placed)) return false;
  try {
    const Arguments changed = inputs_with(placed);
    const auto model = ProductModel::of(FaultCase{call_.op, changed, call_.golden, call_.exec});
    if (!model || model->batches() != model_.batches() || model->rows() != model_.rows() || model->columns() != model_.columns())
      return false;
    const ProductModel::Factors factors = model->factors(some_);
    std::size_t far = 0;
    for (std::size_t k = 0; k < elements_.size(); ++k) {
      const Sum sum = sum_of(*model, factors, elements_[k]);
      const double wanted = sum.value + addends_[k], distance = std::fabs(quant::get(actual_, elements_[k]) - wanted);
      far += distance > 0x1p-6 * std::fabs(wanted) + 0x1p-8 * sum.magnitude + 0x1p-6 * std::fabs(addends_[k]) ? 1 : 0;
    }
    return 2 * far > elements_.size();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace dodona::oracle
