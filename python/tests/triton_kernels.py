"""Triton kernels to run here and on a GPU: what the compiler makes of them covers the instructions that kernels are made of."""

import triton
import triton.language as tl


@triton.jit
def softmax_rows(x_ptr, y_ptr, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + at, mask=at < columns, other=float("-inf")).to(tl.float32)
    power = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * stride + at, power / tl.sum(power, 0), mask=at < columns)


@triton.jit
def rmsnorm_rows(x_ptr, w_ptr, y_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + at, mask=at < columns, other=0.0).to(tl.float32)
    factor = tl.rsqrt(tl.sum(x * x, 0) / columns + eps)
    tl.store(y_ptr + row * columns + at, x * factor * w, mask=at < columns)


@triton.jit
def quantize_groups(x_ptr, q_ptr, s_ptr, top, GROUP: tl.constexpr):
    group = tl.program_id(0)
    at = group * GROUP + tl.arange(0, GROUP)
    x = tl.load(x_ptr + at).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), 0), 1e-10) / top
    q = tl.clamp(x / scale, -top, top)
    tl.store(q_ptr + at, q.to(q_ptr.dtype.element_ty))
    tl.store(s_ptr + group, scale)


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WIDE: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=WIDE)
    for start in range(0, K, BK):
        a = tl.load(a_ptr + m[:, None] * K + (start + k)[None, :], mask=(m[:, None] < M) & ((start + k)[None, :] < K), other=0.0)
        b = tl.load(b_ptr + n[None, :] * K + (start + k)[:, None], mask=(n[None, :] < N) & ((start + k)[:, None] < K), other=0.0)
        total = tl.dot(a, b, total, out_dtype=WIDE)
    tl.store(c_ptr + m[:, None] * N + n[None, :], total.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def attention(q_ptr, k_ptr, v_ptr, o_ptr, keys, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + m[:, None] * D + d[None, :])
    best = tl.full((BM,), float("-inf"), tl.float32)
    mass = tl.zeros((BM,), tl.float32)
    out = tl.zeros((BM, D), tl.float32)
    for start in range(0, keys, BN):
        n = start + tl.arange(0, BN)
        k = tl.load(k_ptr + n[None, :] * D + d[:, None], mask=n[None, :] < keys, other=0.0)
        s = tl.where(n[None, :] < keys, tl.dot(q, k) * scale, float("-inf"))
        now = tl.maximum(best, tl.max(s, 1))
        p = tl.exp2((s - now[:, None]) * 1.4426950408889634)
        old = tl.exp2((best - now) * 1.4426950408889634)
        v = tl.load(v_ptr + n[:, None] * D + d[None, :], mask=n[:, None] < keys, other=0.0)
        out = tl.dot(p.to(v.dtype), v, out * old[:, None])
        mass = mass * old + tl.sum(p, 1)
        best = now
    tl.store(o_ptr + m[:, None] * D + d[None, :], (out / mass[:, None]).to(o_ptr.dtype.element_ty))


@triton.jit
def functions(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside, other=1.0)
    size = tl.abs(x) + 0.125
    tl.store(y_ptr + 0 * n + at, tl.exp(x), mask=inside)
    tl.store(y_ptr + 1 * n + at, tl.exp2(x), mask=inside)
    tl.store(y_ptr + 2 * n + at, tl.log(size), mask=inside)
    tl.store(y_ptr + 3 * n + at, tl.log2(size), mask=inside)
    tl.store(y_ptr + 4 * n + at, tl.sqrt(size), mask=inside)
    tl.store(y_ptr + 5 * n + at, tl.rsqrt(size), mask=inside)
    tl.store(y_ptr + 6 * n + at, tl.sigmoid(x), mask=inside)
    tl.store(y_ptr + 7 * n + at, tl.erf(x), mask=inside)
    tl.store(y_ptr + 8 * n + at, x / size, mask=inside)
    tl.store(y_ptr + 9 * n + at, tl.div_rn(x, size), mask=inside)
    tl.store(y_ptr + 10 * n + at, tl.sqrt_rn(size), mask=inside)
    tl.store(y_ptr + 11 * n + at, tl.floor(x) + tl.ceil(x * 0.5), mask=inside)
    tl.store(y_ptr + 12 * n + at, tl.fma(x, size, x), mask=inside)
    tl.store(y_ptr + 13 * n + at, tl.math.cos(x), mask=inside)
    tl.store(y_ptr + 14 * n + at, tl.math.sin(x), mask=inside)


@triton.jit
def scans(x_ptr, sum_ptr, best_ptr, sorted_ptr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * BLOCK + at)
    tl.store(sum_ptr + row * BLOCK + at, tl.cumsum(x, 0))
    tl.store(best_ptr + row, tl.argmax(x, 0))
    tl.store(sorted_ptr + row * BLOCK + at, tl.sort(x))


@triton.jit
def count_values(x_ptr, counts_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.atomic_add(counts_ptr + x, 1, mask=at < n)


@triton.jit
def matmul_descriptors(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        total = tl.dot(a_desc.load([m, start]), b_desc.load([n, start]).T, total)
    c_desc.store([m, n], total.to(tl.bfloat16))


@triton.jit
def twice_by_descriptors(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    given = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    made = tl.make_tensor_descriptor(y, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    block = given.load([tl.program_id(0) * BM, 0])
    made.store([tl.program_id(0) * BM, 0], block + block)


@triton.jit
def open_sum(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    given = tl.load(x + at)
    product = tl.inline_asm_elementwise("mul.f32 $0, $1, $1;", "=r,r", [given], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(y + at, tl.inline_asm_elementwise("add.f32 $0, $1, $2;", "=r,r,r", [product, given], dtype=tl.float32, is_pure=True, pack=1))
