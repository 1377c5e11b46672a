// Synthetic tensors: what each one's bytes are.
//
// All are functions of the seed and of the tensor's name in the checkpoint, from words w of Stream(seed, name) (core/random.h), so any
// tensor, and any part of it, can be made alone. The bytes of the words, little-endian, are b[0], b[1], ...; their halves h[0], h[1], ...
// are int16.
//   NVFP4 weight          byte i = b[i]: all sixteen codes alike, mean square 68.5/8
//   NVFP4 weight_scale    byte i = 0x68 + (b[i] mod 16): e4m3 from 64 to 240, mean square 22000
//   NVFP4 weight_scale_2  deviation / sqrt(68.5/8 * 22000)
//   NVFP4 input_scale, w4a8 input_scale  largest input / (448 * 6), for w4a8 / 448: 8 for normed inputs, 16 for what activations and
//   attention give (down_proj, o_proj) fp8-block, fp8 weight    byte i = (b[i] and 0x9F) + 0x38: e4m3 of 1 to 15, both signs, mean
//   square 45.654296875 int8 weight              byte i = b[i]: -128 to 127, mean square 5461.5 w4a8 weight              byte i = b[i]: two
//   codes of -8 to 7, mean square 21.5 their weight_scale, weight_scale_inv  fp32(base + fp32(int32(w[i])) * fp32(base * 2^-33)): within a
//   quarter of base, so that the mean
//                            square is base^2 * 49/48; base = deviation / sqrt(mean square of codes * 49/48)
//   QServe qweight           byte i = b[i]: two codes of 0 to 15
//   QServe s1_scales         fp16(base + fp32(h[i]) * fp32(base * 2^-17)), base as above with 21.25 (channel) or 2956.25 (group)
//   QServe s1_szeros         fp16(7.5 * s1_scales[i])
//   QServe s2_scales, s2_zeros  with c[i] the bytes of the stream of s2_scales: 8 + c[i] mod 8, and -s2_scales[i] * (7 + c[i] / 8 mod 2)
//   bf16 linear           bf16(fp32(h[i]) * fp32(deviation * sqrt(3) / 32768)): uniform
//   embed_tokens          the same with deviation 1
//   norm weights          bf16(1 + h[i] / 2^18): within 1/8 of 1
//   e_score_correction_bias  fp32(int32(w[i]) * 2^-31 / 20): within 1/20 of 0
//   k_scale, v_scale      1
// The deviation of a linear of K columns is gain / sqrt(K); gains make up for what lies between linears so that every model op gives
// values of rms about 1 for such inputs: down_proj 1.7 (silu(x) * y of normal x, y has rms 0.6), o_proj 2 (attention averages), others 1.
#pragma once

#include <cstdint>
#include <span>

#include "dodona/exec.h"
#include "model/weights/tensor_list.h"

namespace dodona::model {

/// Writes the bytes of `info` (its first dtype) to `out`, which has that size; of a part, those that it has in the whole.
void synthesize(const TensorInfo& info, std::uint64_t seed, const Exec& exec, std::span<std::byte> out);

}  // namespace dodona::model
