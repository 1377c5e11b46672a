#include "eigen_reference.h"

#include <Eigen/Dense>
#include <cmath>
#include <cstdint>
#include <map>

#include "core/threads.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/element.h"

namespace dodona {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Output = Eigen::Map<Matrix>;

/// The rows of a tensor of rank 2 whose elements lie next to each other along the second dimension.
Matrix rows_of(const Tensor& t, int threads) {
  Matrix result(t.size(0), t.size(1));
  parallel_for(threads, t.size(0), static_cast<double>(t.size(1)), [&](std::int64_t i) {
    quant::to_f32(t.dtype(), t.as<std::byte>() + i * t.stride(0) * bits(t.dtype()) / 8, result.row(i).data(), t.size(1));
  });
  return result;
}
/// Matrix `i` of a batch.
Tensor matrix_of(const Tensor& batch, std::int64_t i) {
  return batch.slice(0, i, i + 1).reshape({batch.size(1), batch.size(2)});
}
float number(const Arguments& arguments, const char* name) {
  return *arguments.find(name)->as<float>();
}

/// Codes [rows, K/2], two a byte, with scales in tiles of 128 x 4.
Matrix fp4_rows(const Tensor& codes, const Tensor& scales, int threads) {
  const std::int64_t k = codes.size(1) * 2, scale_columns = scales.size(1);
  Matrix result(codes.size(0), k);
  parallel_for(threads, codes.size(0), static_cast<double>(k), [&](std::int64_t i) {
    const auto* const row = codes.as<std::uint8_t>() + i * k / 2;
    const auto* const tile = scales.as<std::uint8_t>() + i / 128 * 128 * scale_columns + i % 32 * 16 + i % 128 / 32 * 4;
    for (std::int64_t block = 0; block < k / 16; ++block) {
      const float scale = quant::e4m3_to_f32(tile[block / 4 * 512 + block % 4]);
      for (std::int64_t j = block * 16; j < block * 16 + 16; ++j)
        result(i, j) = scale * quant::e2m1_to_f32(static_cast<std::uint8_t>(row[j / 2] >> (j % 2 * 4) & 15));
    }
  });
  return result;
}

using Product = std::vector<float> (*)(const Arguments&, int threads);

/// left [M, K] times right [N, K] transposed.
std::vector<float> product(const Matrix& left, const Matrix& right, float factor = 1) {
  std::vector<float> out(static_cast<std::size_t>(left.rows() * right.rows()));
  Output(out.data(), left.rows(), right.rows()).noalias() = factor * left * right.transpose();
  return out;
}

std::vector<float> linear(const Arguments& a, int threads) {
  return product(rows_of(*a.find("input"), threads), rows_of(*a.find("weight"), threads));
}
std::vector<float> router(const Arguments& a, int threads) {
  return product(rows_of(*a.find("hidden_states"), threads), rows_of(*a.find("router_weights"), threads));
}
std::vector<float> fused_a(const Arguments& a, int threads) {
  return product(rows_of(*a.find("mat_a"), threads), rows_of(a.find("mat_b")->transpose(0, 1), threads));
}
std::vector<float> scaled_fp4(const Arguments& a, int threads) {
  return product(fp4_rows(*a.find("a"), *a.find("block_scale_a"), threads), fp4_rows(*a.find("b"), *a.find("block_scale_b"), threads),
                 number(a, "alpha"));
}

/// Batches of A [M, K] times B [K, N], whose memory is [N, K].
std::vector<float> batches(const Tensor& a, const Tensor& b, float factor, int threads) {
  const Tensor columns = b.transpose(1, 2).clone();
  const std::int64_t size = a.size(1) * b.size(2);
  std::vector<float> out(static_cast<std::size_t>(a.size(0) * size));
  for (std::int64_t l = 0; l < a.size(0); ++l) {
    const Matrix left = rows_of(matrix_of(a, l), threads), right = rows_of(matrix_of(columns, l), threads);
    Output(out.data() + l * size, left.rows(), right.rows()).noalias() = factor * left * right.transpose();
  }
  return out;
}
std::vector<float> bmm(const Arguments& a, int threads) {
  return batches(*a.find("mat1"), *a.find("mat2"), 1, threads);
}
std::vector<float> bmm_fp8(const Arguments& a, int threads) {
  return batches(*a.find("A"), *a.find("B"), number(a, "A_scale") * number(a, "B_scale"), threads);
}

std::vector<float> group_mm(const Arguments& a, int threads) {
  const Tensor codes = *a.find("a_fp4"), weights = *a.find("b_fp4"), a_scales = *a.find("a_blockscale"), b_scales = *a.find("b_blockscale");
  const auto* const offsets = a.find("expert_offsets")->as<std::int32_t>();
  const std::int64_t experts = weights.size(0), n = weights.size(1);
  std::vector<float> out(static_cast<std::size_t>(codes.size(0) * n));
  std::int64_t scale_row = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::int64_t begin = offsets[e], end = e + 1 < experts ? offsets[e + 1] : codes.size(0);
    if (begin == end) continue;
    const std::int64_t scale_rows = (end - begin + 127) / 128 * 128;
    const Matrix left = fp4_rows(codes.slice(0, begin, end), a_scales.slice(0, scale_row, scale_row + scale_rows), threads);
    const Matrix right = fp4_rows(matrix_of(weights, e), matrix_of(b_scales, e), threads);
    Output(out.data() + begin * n, left.rows(), right.rows()).noalias() = a.find("alphas")->as<float>()[e] * left * right.transpose();
    scale_row += scale_rows;
  }
  return out;
}

/// Softmax of queries [N, 576] over keys [S, 576], weighing the first 512 of each key.
void attend(const Matrix& queries, const Matrix& keys, float scale, float* out) {
  Matrix scores = scale * queries * keys.transpose();
  scores.colwise() -= scores.rowwise().maxCoeff().eval();
  scores = scores.array().exp().matrix();
  const Eigen::VectorXf sums = scores.rowwise().sum();
  Output(out, queries.rows(), 512).noalias() = sums.cwiseInverse().asDiagonal() * (scores * keys.leftCols(512));
}
Matrix gathered(const Tensor& cache, const Tensor& table, std::int64_t b, std::int64_t length, int threads) {
  const std::int64_t width = cache.size(-1), page_size = cache.size(-2);
  const Tensor rows = cache.reshape({cache.elements() / width, width});
  Matrix keys(length, width);
  parallel_for(threads, length, static_cast<double>(width), [&](std::int64_t s) {
    const std::int64_t page = table.as<std::int32_t>()[b * table.size(1) + s / page_size], slot = page * page_size + s % page_size;
    quant::to_f32(rows.dtype(), rows.as<std::byte>() + slot * width * bits(rows.dtype()) / 8, keys.row(s).data(), width);
  });
  return keys;
}
float attr(const Arguments& arguments, const char* name) {
  const AttrValue* const value = arguments.find_attr(name);
  return value ? static_cast<float>(std::get<double>(*value)) : 1.0f;
}
std::vector<float> cutlass_mla(const Arguments& a, int threads) {
  const Tensor nope = *a.find("q_nope"), rope = *a.find("q_pe");
  const std::int64_t requests = nope.size(0), heads = nope.size(1);
  std::vector<float> out(static_cast<std::size_t>(requests * heads * 512));
  for (std::int64_t b = 0; b < requests; ++b) {
    Matrix queries(heads, 576);
    queries << rows_of(matrix_of(nope, b), threads), rows_of(matrix_of(rope, b), threads);
    const Matrix keys =
        gathered(*a.find("kv_c_and_k_pe_cache"), *a.find("page_table"), b, a.find("seq_lens")->as<std::int32_t>()[b], threads);
    attend(queries, keys, attr(a, "sm_scale"), out.data() + b * heads * 512);
  }
  return out;
}
/// One query a request.
std::vector<float> trtllm_mla(const Arguments& a, int threads) {
  const Tensor query = *a.find("query");
  const std::int64_t requests = query.size(0), heads = query.size(2);
  const Tensor queries = query.reshape({requests, heads, 576});
  std::vector<float> out(static_cast<std::size_t>(requests * heads * 512));
  for (std::int64_t b = 0; b < requests; ++b) {
    const Matrix keys = gathered(*a.find("kv_cache"), *a.find("block_tables"), b, a.find("seq_lens")->as<std::int32_t>()[b], threads);
    attend(rows_of(matrix_of(queries, b), threads), keys, attr(a, "bmm1_scale"), out.data() + b * heads * 512);
  }
  return out;
}

}  // namespace

std::vector<float> eigen_reference(std::string_view op, const Arguments& arguments, int threads) {
  static const std::map<std::string_view, Product> references{
      {"linear", linear},
      {"bmm", bmm},
      {"bmm_fp8", bmm_fp8},
      {"dsv3_router_gemm", router},
      {"dsv3_fused_a_gemm", fused_a},
      {"cutlass_scaled_fp4_mm", scaled_fp4},
      {"cutlass_fp4_group_mm", group_mm},
      {"cutlass_mla_decode", cutlass_mla},
      {"trtllm_batch_decode_with_kv_cache_mla", trtllm_mla},
  };
  const auto found = references.find(op);
  if (found == references.end()) return {};
  Eigen::setNbThreads(threads);
  return found->second(arguments, threads);
}

}  // namespace dodona
