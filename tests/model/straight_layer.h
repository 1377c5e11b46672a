// One decoder layer in the decode phase as plain formulas in double: no op, no kernel, no quantizer of the library. Only tensors of the
// weight source and of the recorded run are read.
#pragma once

#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "model/layer/decoder.h"
#include "quant/element.h"

namespace dodona::model::testing {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// ---- number formats, from their definitions

/// To nearest even with `digits` significant bits and no finer than 2^(lowest - digits + 1).
inline double round_binary(double x, int digits, int lowest) {
  if (x == 0 || !std::isfinite(x)) return x;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(x), lowest) - digits + 1);
  return std::nearbyint(x / unit) * unit;
}
inline double to_bf16(double x) {
  return round_binary(x, 8, -126);
}
inline double to_e4m3(double x) {
  return std::clamp(round_binary(x, 4, -6), -448.0, 448.0);
}
inline double to_e2m1(double x) {
  return std::clamp(round_binary(x, 2, 0), -6.0, 6.0);
}
inline double from_e4m3(unsigned byte) {
  const int exponent = static_cast<int>(byte >> 3 & 15), mantissa = static_cast<int>(byte & 7);
  const double size = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return byte >> 7 != 0 ? -size : size;
}
inline double from_e2m1(unsigned code) {
  constexpr double sizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return (code & 8) != 0 ? -sizes[code & 7] : sizes[code & 7];
}

/// Rows of the last dimension.
inline Matrix matrix_of(const Tensor& tensor) {
  const std::int64_t columns = tensor.rank() > 0 ? tensor.size(-1) : 1;
  Matrix m(tensor.elements() / columns, columns);
  if (tensor.contiguous()) {
    quant::to_f64(tensor.dtype(), tensor.data(), m.data(), tensor.elements());
  } else {
    for (std::int64_t i = 0; i < tensor.elements(); ++i) m.data()[i] = quant::get(tensor, i);
  }
  return m;
}

/// Blocks of 16 of each row in NVFP4: what the codes stand for, without the scale of the whole; and the codes.
struct Nvfp4 {
  Matrix values, codes;
};
inline Nvfp4 to_nvfp4(const Matrix& x, float input_scale) {
  Nvfp4 result{Matrix(x.rows(), x.cols()), Matrix(x.rows(), x.cols())};
  const float encode = 1.0f / input_scale;
  for (Eigen::Index t = 0; t < x.rows(); ++t)
    for (Eigen::Index k = 0; k < x.cols(); k += 16) {
      const auto amax = static_cast<float>(x.row(t).segment(k, 16).cwiseAbs().maxCoeff());
      const auto scale = static_cast<float>(to_e4m3(static_cast<double>(encode * (amax * (1.0f / 6.0f)))));
      const float r = scale != 0 ? 1.0f / (scale * (1.0f / encode)) : 0.0f;
      for (Eigen::Index i = k; i < k + 16; ++i) {
        const double code = to_e2m1(static_cast<double>(static_cast<float>(x(t, i)) * r));
        result.codes(t, i) = code;
        result.values(t, i) = code * static_cast<double>(scale);
      }
    }
  return result;
}

/// A linear's weight: values * scale.
struct Weight {
  Matrix values;
  float scale = 1, input_scale = 1;
  bool nvfp4 = false;
};
inline Weight weight_of(const WeightSource& source, const std::string& module) {
  Weight weight;
  weight.nvfp4 = source.config().form_of(module) == WeightForm::nvfp4;
  const Tensor stored = source.get(module + ".weight");
  if (!weight.nvfp4) {
    weight.values = matrix_of(stored);
    return weight;
  }
  const Tensor scales = source.get(module + ".weight_scale");
  weight.scale = *source.get(module + ".weight_scale_2").as<float>();
  weight.input_scale = *source.get(module + ".input_scale").as<float>();
  std::vector<double> scale_of(256), code_of(16);
  for (unsigned i = 0; i < 256; ++i) scale_of[i] = from_e4m3(i);
  for (unsigned i = 0; i < 16; ++i) code_of[i] = from_e2m1(i);
  weight.values.resize(stored.size(0), 2 * stored.size(1));
  for (Eigen::Index n = 0; n < weight.values.rows(); ++n)
    for (Eigen::Index k = 0; k < weight.values.cols(); ++k) {
      const unsigned byte = stored.as<std::uint8_t>()[n * stored.size(1) + k / 2];
      weight.values(n, k) = code_of[k % 2 == 0 ? byte & 15 : byte >> 4] * scale_of[scales.as<std::uint8_t>()[n * scales.size(1) + k / 16]];
    }
  return weight;
}

/// A run of the layer, and what went in.
struct LayerRun {
  std::vector<OpRecord> records;
  LayerState output;
  Tensor hidden, residual;
  std::vector<std::int64_t> lengths;
  std::vector<Matrix> history;  ///< of each request: tokens before the new one, [latent | k_pe]
};

/// Follows the run op by op. With roundings each op is fed what the run gave before it, so that its own output is held tightly: two exact
/// sums rounded once differ only where the sum lies on a rounding's border, and then by one unit in the last place. Without roundings the
/// formulas run on their own numbers from end to end.
class StraightLayer {
 public:
  StraightLayer(const WeightSource& source, std::int64_t layer, Rounding rounding, bool fused_shared, Residual residual,
                const LayerRun& run)
      : source_(source),
        config_(source.config()),
        prefix_("model.layers." + std::to_string(layer) + "."),
        layer_(layer),
        rounded_(rounding == Rounding::bf16),
        fused_shared_(fused_shared),
        pre_added_(residual == Residual::pre_added),
        run_(run),
        tokens_(static_cast<Eigen::Index>(run.lengths.size())) {}

  void follow() {
    Matrix residual = run_.residual.defined() ? matrix_of(run_.residual) : Matrix();
    const Matrix x = normed("self.input_layernorm()", "input_layernorm", matrix_of(run_.hidden), residual);
    const Matrix attended = attention(x);
    const Matrix y = normed("self.post_attention_layernorm()", "post_attention_layernorm", attended, residual);
    const Matrix out = config_.is_moe_layer(layer_) ? moe(y) : mlp("mlp", y);
    compare("hidden", out, matrix_of(run_.output.hidden));
    compare("residual", residual, matrix_of(run_.output.residual));
  }

  /// Σ_j p_j v_j of every head with keys and values expanded from the latents, [B, Nh * Dv], from the run's q and cached rows.
  Matrix expanded_attention() const {
    const Matrix q = recorded("self.q_b_proj()"), q_pe = recorded("self.rotary_emb()", "", "q_pe");
    const Matrix rows = new_rows(recorded("self.kv_a_layernorm()"), recorded("self.rotary_emb()", "", "k_pe"));
    const Matrix w = kv_b();
    Matrix out(tokens_, heads() * config_.v_head_dim);
    for (Eigen::Index b = 0; b < tokens_; ++b)
      for (Eigen::Index h = 0; h < heads(); ++h) {
        const Matrix cached = cache_of(b, rows);
        const Matrix c = cached.leftCols(latent()), k_pe = cached.rightCols(config_.qk_rope_head_dim);
        const Matrix k_nope = c * key_half(w, h).transpose(), v = c * value_half(w, h).transpose();
        const Eigen::VectorXd scores = k_nope * q.row(b).segment(h * config_.qk_head_dim(), config_.qk_nope_head_dim).transpose() +
                                       k_pe * q_pe.row(b * heads() + h).transpose();
        out.row(b).segment(h * config_.v_head_dim, config_.v_head_dim) = softmax(scores).transpose() * v;
      }
    return out;
  }
  Matrix recorded(const std::string& op, const std::string& note = "", const std::string& label = "") const {
    return matrix_of(tensor(op, note, label));
  }

 private:
  Eigen::Index heads() const { return config_.num_attention_heads; }
  Eigen::Index latent() const { return config_.kv_lora_rank; }

  const Tensor& tensor(const std::string& op, const std::string& note, const std::string& label) const {
    for (const OpRecord& record : run_.records) {
      if (record.op != op || record.note != note || record.group) continue;
      for (const auto& [name, value] : record.outputs)
        if (label.empty() || name == label) return value;
    }
    ADD_FAILURE() << "no output " << label << " of " << op << " " << note;
    static const Tensor zero(DType::f32, {1, 1});
    return zero;
  }

  Matrix rounded(Matrix m) const {
    if (rounded_)
      for (Eigen::Index i = 0; i < m.size(); ++i) m.data()[i] = to_bf16(m.data()[i]);
    return m;
  }
  void compare(const std::string& what, const Matrix& expected, const Matrix& found) const {
    ASSERT_EQ(expected.size(), found.size()) << what;
    std::int64_t other = 0;
    for (Eigen::Index i = 0; i < expected.size(); ++i) {
      const double e = expected.data()[i], f = found.data()[i];
      const Eigen::Index row = i / expected.cols();
      const double allowed =
          rounded_ ? std::ldexp(1.0, (e == 0 ? -126 : std::ilogb(e)) - 7) : 1e-5 * expected.row(row).cwiseAbs().maxCoeff();
      other += e != f ? 1 : 0;
      ASSERT_LE(std::fabs(e - f), allowed) << what << " [" << row << ", " << i % expected.cols() << "]: expected " << e << ", found " << f;
    }
    if (rounded_) EXPECT_LE(other, 1 + expected.size() / 1000) << what << " of " << expected.size();
  }
  /// What goes on from an op: the run's output where ops are held one by one, else the formula's.
  Matrix take(const std::string& op, const Matrix& expected, const std::string& note = "", const std::string& label = "") const {
    const Matrix flat = recorded(op, note, label);
    const Matrix found = Eigen::Map<const Matrix>(flat.data(), expected.rows(), flat.size() / expected.rows());
    compare(op + " " + note + " " + label, expected, found);
    return rounded_ ? found : expected;
  }

  Matrix linear(const Weight& w, const Matrix& x) const {
    if (!w.nvfp4 || !rounded_) return rounded(x * w.values.transpose() * static_cast<double>(w.scale));
    return rounded(to_nvfp4(x, w.input_scale).values * w.values.transpose() * static_cast<double>(w.input_scale * w.scale));
  }
  Matrix linear(const std::string& module, const Matrix& x) const { return linear(weight_of(source_, prefix_ + module), x); }
  Matrix side_by_side(const Matrix& a, const Matrix& b) const {
    Matrix both(a.rows(), a.cols() + b.cols());
    both << a, b;
    return both;
  }

  Matrix rmsnorm(const Matrix& x, const std::string& name) const {
    const Matrix weight = matrix_of(source_.get(prefix_ + name + ".weight"));
    Matrix out = x;
    for (Eigen::Index t = 0; t < x.rows(); ++t)
      out.row(t) =
          x.row(t).cwiseProduct(weight.row(0)) / std::sqrt(x.row(t).squaredNorm() / static_cast<double>(x.cols()) + config_.rms_norm_eps);
    return rounded(out);
  }
  /// The norm of x + residual, which becomes the residual.
  Matrix normed(const std::string& op, const std::string& weight, const Matrix& x, Matrix& residual) const {
    Matrix sum = x;
    if (residual.size() > 0) sum = (x + residual).cast<float>().cast<double>();
    const Matrix stored = residual.size() > 0 ? rounded(sum) : sum;
    const Matrix out = take(op, rmsnorm(pre_added_ ? stored : sum, weight));
    residual = take(op, stored, "", "residual");
    return out;
  }

  // ---- attention

  /// [Nh * (Dn + Dv), Lkv]: per head the keys' rows, then the values'.
  Matrix kv_b() const {
    const Weight w = weight_of(source_, prefix_ + "self_attn.kv_b_proj");
    if (!w.nvfp4 || !rounded_) return w.values * static_cast<double>(w.scale);
    Matrix dense = w.values;
    for (Eigen::Index i = 0; i < dense.size(); ++i)
      dense.data()[i] = to_bf16(static_cast<double>(static_cast<float>(dense.data()[i]) * w.scale));
    return dense;
  }
  Matrix key_half(const Matrix& w, Eigen::Index h) const {
    return w.middleRows(h * (config_.qk_nope_head_dim + config_.v_head_dim), config_.qk_nope_head_dim);
  }
  Matrix value_half(const Matrix& w, Eigen::Index h) const {
    return w.middleRows(h * (config_.qk_nope_head_dim + config_.v_head_dim) + config_.qk_nope_head_dim, config_.v_head_dim);
  }
  /// The absorbed products of a quantized kv_b_proj are in e4m3, one scale per tensor on either side.
  float to_fp8(Matrix& m) const {
    const float scale = std::max(static_cast<float>(m.cwiseAbs().maxCoeff()), 1e-12f) / 448.0f, reciprocal = 1.0f / scale;
    for (Eigen::Index i = 0; i < m.size(); ++i)
      m.data()[i] = to_e4m3(static_cast<double>(std::clamp(static_cast<float>(m.data()[i]) * reciprocal, -448.0f, 448.0f)));
    return scale;
  }
  /// out[b, h] = x[b, h] W[h]^T for x [B, Nh, columns of W]; `half` gives W[h].
  template <class Half>
  Matrix per_head(Matrix x, const Half& half) const {
    Matrix w = kv_b();
    double factor = 1;
    if (rounded_ && config_.form_of(prefix_ + "self_attn.kv_b_proj") == WeightForm::nvfp4) {
      const float right = to_fp8(w), left = to_fp8(x);
      factor = static_cast<double>(left * right);
    }
    const Eigen::Index columns = half(w, 0).cols(), rows = half(w, 0).rows();
    Matrix out(tokens_, heads() * rows);
    for (Eigen::Index h = 0; h < heads(); ++h)
      out.middleCols(h * rows, rows) = factor * (x.middleCols(h * columns, columns) * half(w, h).transpose());
    return rounded(out);
  }

  /// Angles are products in fp32 of the position and the dimension's frequency; pairs are neighbours.
  Matrix rotated(const Matrix& x, Eigen::Index width) const {
    const Eigen::Index half = width / 2, per_token = x.cols() / width;
    Matrix out = x;
    for (Eigen::Index b = 0; b < tokens_; ++b)
      for (Eigen::Index i = 0; i < half; ++i) {
        const float angle = static_cast<float>(run_.lengths[static_cast<std::size_t>(b)] - 1) * frequency(i, half);
        const double c = static_cast<float>(std::cos(static_cast<double>(angle))),
                     s = static_cast<float>(std::sin(static_cast<double>(angle)));
        for (Eigen::Index h = 0; h < per_token; ++h) {
          const double u = x(b, h * width + 2 * i), v = x(b, h * width + 2 * i + 1);
          out(b, h * width + 2 * i) = u * c - v * s;
          out(b, h * width + 2 * i + 1) = v * c + u * s;
        }
      }
    return rounded(out);
  }
  /// R1's YaRN: dimensions that turn more than 32 times over 4096 positions keep their frequency, those that turn less than once have a
  /// fortieth of it, with a linear blend between. All sizes of the tests' models are R1's: 64 dimensions, base 10000.
  float frequency(Eigen::Index i, Eigen::Index half) const {
    const auto power =
        static_cast<float>(std::pow(config_.rope_theta, static_cast<double>(static_cast<float>(i) / static_cast<float>(half))));
    const float ramp = std::clamp((static_cast<float>(i) - 10.0f) / 13.0f, 0.0f, 1.0f), keep = 1.0f - ramp;
    return 1.0f / (40.0f * power) * (1.0f - keep) + 1.0f / power * keep;
  }

  Matrix new_rows(const Matrix& c, const Matrix& k_pe) const { return side_by_side(c, k_pe); }
  /// Rows of request b: its history and the new token.
  Matrix cache_of(Eigen::Index b, const Matrix& rows) const {
    const Matrix& history = run_.history[static_cast<std::size_t>(b)];
    Matrix all(history.rows() + 1, rows.cols());
    all.topRows(history.rows()) = history;
    all.bottomRows(1) = rows.row(b);
    return all;
  }
  Eigen::VectorXd softmax(const Eigen::VectorXd& scores) const {
    // 192^-0.5 times YaRN's correction, (0.1 ln 40 + 1)^2; kernels take it in fp32.
    const double g = 0.1 * std::log(40.0) + 1, scale = static_cast<float>(g * g / std::sqrt(192.0));
    const Eigen::VectorXd p = ((scores.array() - scores.maxCoeff()) * scale).exp();
    return p / p.sum();
  }

  Matrix attention(const Matrix& x) const {
    const Eigen::Index q_rank = config_.q_lora_rank, rope = config_.qk_rope_head_dim, nope = config_.qk_nope_head_dim;
    const Matrix qkv =
        take("self.fused_qkv_a_proj_with_mqa()", side_by_side(linear("self_attn.q_a_proj", x), linear("self_attn.kv_a_proj_with_mqa", x)));
    const Matrix q_a = take("self.q_a_layernorm()", rmsnorm(qkv.leftCols(q_rank), "self_attn.q_a_layernorm"));
    const Matrix q = take("self.q_b_proj()", linear("self_attn.q_b_proj", q_a));
    const Matrix c = take("self.kv_a_layernorm()", rmsnorm(qkv.middleCols(q_rank, latent()), "self_attn.kv_a_layernorm"));
    Matrix q_nope(tokens_, heads() * nope), q_rope(tokens_, heads() * rope);
    for (Eigen::Index h = 0; h < heads(); ++h) {
      q_nope.middleCols(h * nope, nope) = q.middleCols(h * (nope + rope), nope);
      q_rope.middleCols(h * rope, rope) = q.middleCols(h * (nope + rope) + nope, rope);
    }
    const Matrix q_abs =
        take("bmm_fp8()", per_head(q_nope, [&](const Matrix& w, Eigen::Index h) { return Matrix(key_half(w, h).transpose()); }),
             "q_nope * w_kc");
    const Matrix q_pe = take("self.rotary_emb()", rotated(q_rope, rope), "", "q_pe");
    const Matrix k_pe = take("self.rotary_emb()", rotated(qkv.rightCols(rope), rope), "", "k_pe");
    const Matrix rows = new_rows(c, k_pe);
    Matrix o_latent(tokens_, heads() * latent());
    for (Eigen::Index b = 0; b < tokens_; ++b) {
      const Matrix cached = cache_of(b, rows);
      for (Eigen::Index h = 0; h < heads(); ++h) {
        const Eigen::VectorXd scores = cached.leftCols(latent()) * q_abs.row(b).segment(h * latent(), latent()).transpose() +
                                       cached.rightCols(rope) * q_pe.row(b).segment(h * rope, rope).transpose();
        o_latent.row(b).segment(h * latent(), latent()) = softmax(scores).transpose() * cached.leftCols(latent());
      }
    }
    o_latent = take("self.attn_mqa()", rounded(o_latent));
    const Matrix o =
        take("bmm_fp8()", per_head(o_latent, [&](const Matrix& w, Eigen::Index h) { return value_half(w, h); }), "attn_output * w_vc");
    return take("self.o_proj()", linear("self_attn.o_proj", o));
  }

  // ---- MLP and experts

  Matrix silu_and_mul(const Matrix& gate_up) const {
    const Eigen::Index n = gate_up.cols() / 2;
    const auto gate = gate_up.leftCols(n).array(), up = gate_up.rightCols(n).array();
    return rounded((gate / (1 + (-gate).exp()) * up).matrix());
  }
  Matrix gate_up(const std::string& module, const Matrix& x) const {
    return side_by_side(linear(module + ".gate_proj", x), linear(module + ".up_proj", x));
  }
  Matrix mlp(const std::string& module, const Matrix& x) const {
    const Matrix both = take("self.gate_up_proj()", gate_up(module, x));
    const Matrix activated = take("self.act_fn()", silu_and_mul(both));
    return take("self.down_proj()", linear(module + ".down_proj", activated));
  }

  struct Choice {
    std::vector<std::vector<int>> ids;
    Matrix weights;
  };
  /// The choice follows sigmoid + bias, the weights the sigmoid alone; the fused shared expert weighs 1 after all scaling.
  Choice topk(const Matrix& logits, double factor) const {
    const auto experts = static_cast<int>(config_.n_routed_experts), groups = static_cast<int>(config_.n_group), size = experts / groups;
    const auto chosen = static_cast<int>(config_.num_experts_per_tok);
    const Matrix bias = matrix_of(source_.get(prefix_ + "mlp.gate.e_score_correction_bias"));
    Choice choice{{}, Matrix(tokens_, chosen + (fused_shared_ ? 1 : 0))};
    for (Eigen::Index t = 0; t < tokens_; ++t) {
      std::vector<double> s, key;
      for (int e = 0; e < experts; ++e) {
        s.push_back(1 / (1 + std::exp(-logits(t, e))));
        key.push_back(s.back() + bias.data()[e]);
      }
      std::vector<std::pair<double, int>> by_group;
      for (int g = 0; g < groups; ++g) {
        std::vector<double> keys(key.begin() + g * size, key.begin() + (g + 1) * size);
        std::sort(keys.rbegin(), keys.rend());
        by_group.emplace_back(keys[0] + keys[1], g);
      }
      std::sort(by_group.rbegin(), by_group.rend());
      std::vector<std::pair<double, int>> by_expert;
      for (int kept = 0; kept < static_cast<int>(config_.topk_group); ++kept)
        for (int e = 0; e < size; ++e) {
          const int id = by_group[static_cast<std::size_t>(kept)].second * size + e;
          by_expert.emplace_back(key[static_cast<std::size_t>(id)], id);
        }
      std::sort(by_expert.rbegin(), by_expert.rend());
      std::vector<int> ids;
      double sum = 0;
      for (int j = 0; j < chosen; ++j) {
        ids.push_back(by_expert[static_cast<std::size_t>(j)].second);
        sum += s[static_cast<std::size_t>(ids.back())];
      }
      for (int j = 0; j < chosen; ++j) choice.weights(t, j) = s[static_cast<std::size_t>(ids[static_cast<std::size_t>(j)])] / sum * factor;
      if (fused_shared_) {
        ids.push_back(experts);
        choice.weights(t, chosen) = factor / config_.routed_scaling_factor;
      }
      choice.ids.push_back(ids);
    }
    return choice;
  }
  std::string expert(int id) const { return id == config_.n_routed_experts ? "mlp.shared_experts" : "mlp.experts." + std::to_string(id); }

  Matrix moe(const Matrix& x) const {
    const bool nvfp4 = rounded_ && config_.form_of(prefix_ + "mlp.experts.0.gate_proj") == WeightForm::nvfp4;
    const Matrix logits = take("self.gate()", linear("mlp.gate", x));
    Choice choice = topk(logits, nvfp4 ? config_.routed_scaling_factor : 1.0);
    const Matrix ids = recorded("self.topk()", "", "topk_ids"), weights = recorded("self.topk()", "", "topk_weights");
    for (Eigen::Index t = 0; t < tokens_; ++t)
      for (Eigen::Index j = 0; j < ids.cols(); ++j) {
        EXPECT_EQ(ids(t, j), choice.ids[static_cast<std::size_t>(t)][static_cast<std::size_t>(j)]) << "token " << t << " choice " << j;
        // fp32: a sigmoid, a sum of up to eight, a division and a scale.
        EXPECT_NEAR(weights(t, j), choice.weights(t, j), 16 * 0x1p-24 * choice.weights(t, j)) << "token " << t << " choice " << j;
      }
    if (rounded_) choice.weights = weights;
    const Matrix routed = nvfp4 ? experts_nvfp4(x, choice) : experts_plain(x, choice);
    if (fused_shared_) return routed;
    return rounded((routed + mlp("mlp.shared_experts", x)).cast<float>().cast<double>());
  }

  /// Triton's runner: the router's weight is applied to the unrounded product; the sum is scaled and rounded once.
  Matrix experts_plain(const Matrix& x, const Choice& choice) const {
    Matrix out = Matrix::Zero(tokens_, x.cols());
    for (Eigen::Index t = 0; t < tokens_; ++t) {
      for (std::size_t j = 0; j < choice.ids[static_cast<std::size_t>(t)].size(); ++j) {
        const std::string module = expert(choice.ids[static_cast<std::size_t>(t)][j]);
        const Matrix activated = silu_and_mul(gate_up(module, x.row(t)));
        const Weight down = weight_of(source_, prefix_ + module + ".down_proj");
        out.row(t) += rounded(activated * down.values.transpose() *
                              (static_cast<double>(down.scale) * choice.weights(t, static_cast<Eigen::Index>(j))));
      }
    }
    return take("self.experts()", rounded(out * config_.routed_scaling_factor));
  }

  /// The cutlass runner: rows sorted by expert; where row (t, j) lies is the run's to choose, within its expert.
  Matrix experts_nvfp4(const Matrix& x, const Choice& choice) const {
    const Eigen::Index k = choice.weights.cols(), rows = tokens_ * k, hidden = config_.hidden_size, wide = config_.moe_intermediate_size;
    const Matrix place = recorded("prepare_moe_input");
    std::vector<int> expert_of_row(static_cast<std::size_t>(rows), -1);
    const auto row_of = [&](Eigen::Index t, Eigen::Index j) { return static_cast<Eigen::Index>(place.data()[t * k + j]); };
    const auto id_of = [&](Eigen::Index t, Eigen::Index j) { return choice.ids[static_cast<std::size_t>(t)][static_cast<std::size_t>(j)]; };
    Matrix permuted(rows, hidden);
    for (Eigen::Index t = 0; t < tokens_; ++t)
      for (Eigen::Index j = 0; j < k; ++j) {
        expert_of_row[static_cast<std::size_t>(row_of(t, j))] = id_of(t, j);
        permuted.row(row_of(t, j)) = x.row(t);
      }
    EXPECT_TRUE(std::is_sorted(expert_of_row.begin(), expert_of_row.end()) && expert_of_row.front() >= 0) << "no order by expert";
    permuted = take("shuffle_rows", permuted);
    const auto each_row = [&](Eigen::Index columns, const auto& formula) {
      Matrix out(rows, columns);
      for (Eigen::Index r = 0; r < rows; ++r) out.row(r) = formula(r, expert(expert_of_row[static_cast<std::size_t>(r)]));
      return out;
    };
    check_codes("gate_up", permuted, expert_of_row, ".gate_proj");
    const Matrix both =
        take("cutlass_fp4_group_mm", each_row(2 * wide, [&](Eigen::Index r, const std::string& m) { return gate_up(m, permuted.row(r)); }),
             "gate_up");
    const Matrix activated = take("silu_and_mul", silu_and_mul(both));
    check_codes("down", activated, expert_of_row, ".down_proj");
    const Matrix down =
        take("cutlass_fp4_group_mm",
             each_row(hidden, [&](Eigen::Index r, const std::string& m) { return linear(m + ".down_proj", activated.row(r)); }), "down");
    Matrix out = Matrix::Zero(tokens_, hidden);
    for (Eigen::Index t = 0; t < tokens_; ++t)
      for (Eigen::Index j = 0; j < k; ++j) out.row(t) += to_bf16(choice.weights(t, j)) * down.row(row_of(t, j));
    return take("apply_shuffle_mul_sum", rounded(out));
  }
  void check_codes(const std::string& note, const Matrix& x, const std::vector<int>& expert_of_row, const std::string& linear_name) const {
    const Matrix bytes = recorded("scaled_fp4_experts_quant", note, "output");
    for (Eigen::Index r = 0; r < x.rows(); ++r) {
      const std::string module = prefix_ + expert(expert_of_row[static_cast<std::size_t>(r)]) + linear_name;
      const Matrix codes = to_nvfp4(x.row(r), *source_.get(module + ".input_scale").as<float>()).codes;
      for (Eigen::Index i = 0; i < codes.cols(); ++i) {
        const auto byte = static_cast<unsigned>(bytes(r, i / 2));
        ASSERT_EQ(from_e2m1(i % 2 == 0 ? byte & 15 : byte >> 4), codes(0, i)) << note << " row " << r << " element " << i;
      }
    }
  }

  const WeightSource& source_;
  const ModelConfig& config_;
  std::string prefix_;
  std::int64_t layer_;
  bool rounded_, fused_shared_, pre_added_;
  const LayerRun& run_;
  Eigen::Index tokens_;
};

}  // namespace dodona::model::testing
