// Two CUDA kernels that share no code with the oracle which judges them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

/// h = input + residual;  residual <- bf16(h);  input <- bf16(h * r * weight),  r = 1 / sqrt(mean(h^2) + eps). Row by row, in place.
/// input, residual: [rows, width]; weight: [width]; all on 16-byte boundaries; width a multiple of 8, at most 12000.
/// `bug`: what is normalised is the sum that was stored, rounded to bf16, instead of the sum.
cudaError_t fused_add_rmsnorm(__nv_bfloat16* input, __nv_bfloat16* residual, const __nv_bfloat16* weight, int rows, int width, float eps,
                              bool bug, cudaStream_t stream = nullptr);

/// The router of DeepSeek V3: s = sigmoid(logits), the best `kept_groups` groups by the sum of their two best s + bias, the best `chosen`
/// experts of those by s + bias; weights are s over their sum.
/// logits: [rows, experts]; bias: [experts]; weights, ids: [rows, chosen]. At most 32 groups and 1024 experts.
/// `bug`: weights are made of s + bias, which is meant for choosing only.
cudaError_t moe_fused_gate(const float* logits, const float* bias, float* weights, int* ids, int rows, int experts, int groups,
                           int kept_groups, int chosen, bool bug, cudaStream_t stream = nullptr);
