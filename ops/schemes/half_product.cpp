#include "ops/schemes/half_product.h"

#include <string>
#include <vector>

#include "ops/sums/products_gpu.h"

namespace dodona::ops {

using enum DType;

namespace {

std::vector<Product> products_of(const HalfProduct& product) {
  return batched_products(product.operands.a, product.operands.b);
}

}  // namespace

void check_half_product(const HalfProduct& product) {
  const DType type = product.operands.a.dtype();
  if (product.out_dtype != type && product.out_dtype != f32)
    throw Error(ErrorCode::bad_dtype, "", "out_dtype",
                "is " + std::string(name(product.out_dtype)) + ", expected f32" + (type == f32 ? "" : " or " + std::string(name(type))) +
                    ", as " + std::string(product.a_name) + " has " + std::string(name(type)));
  if (!has_dense_columns_or_rows(product.operands.b))
    throw Error(ErrorCode::bad_stride, "", std::string(product.b_name),
                "has strides " + to_string(product.operands.b.strides()) + ", expected one of the last two to be 1");
  check_split_k(product.split, product.operands.a.size(2));
}

void golden_half_product(const HalfProduct& product, const Exec& exec, Reference* reference) {
  golden_products(products_of(product), half_in_parts, product.out, reference, product.out_name, exec);
}

void half_product_on_gpu(const HalfProduct& product, const Exec& exec) {
  gpu_products(products_of(product), in_chunks(half_in_parts, product.split), product.out, exec);
}

std::optional<Refusal> unsupported_half_product(const HalfProduct& product, Mode mode) {
  if (!of_a_gpu(mode)) return {};
  return unknown_half_product(mode, product.a_name, product.operands.a.dtype(), product.b_name, product.operands.b.dtype());
}

}  // namespace dodona::ops
