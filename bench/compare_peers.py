"""What tools/compare runs beside Dodona: what is installed of it, and how each peer does the work of one of our ops.

A peer is an instance of its class, or a text that says why it is absent. A function here takes the peer, the op's inputs (NumPy arrays by
name, raw codes) and `turns(bytes)`, the number of copies of so many bytes that no cache holds together; it returns calls to be made in
turn and the function that gives the last call's result as fp32.
"""

from __future__ import annotations

import ctypes
import glob
import importlib.util
import itertools
import os
import pathlib
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int, c_int64, c_size_t, c_void_p

import numpy as np

# ---- numbers


def bf16_to_f32(codes: np.ndarray) -> np.ndarray:
    return (codes.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def e4m3_to_f32(codes: np.ndarray) -> np.ndarray:
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    magnitude = np.where(exponent == 0, mantissa / 512, (8 + mantissa) / 8 * 2.0 ** (exponent - 7.0))
    magnitude[[0x7F, 0xFF]] = np.nan
    return np.where(code < 128, magnitude, -magnitude).astype(np.float32)[codes.view(np.uint8)]


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
# Both values of a byte.
E2M1_PAIRS = np.stack([E2M1[np.arange(256) & 15], E2M1[np.arange(256) >> 4]], axis=1)


def block_scales(swizzled: np.ndarray, rows: int, blocks: int) -> np.ndarray:
    """Scales [rows, blocks] in fp32 out of tiles of 128 x 4."""
    i, j = np.arange(rows)[:, None], np.arange(blocks)[None, :]
    at = i // 128 * 128 * swizzled.shape[1] + j // 4 * 512 + i % 32 * 16 + i % 128 // 32 * 4 + j % 4
    return e4m3_to_f32(swizzled).reshape(-1)[at]


def fp4_to_f32(codes: np.ndarray, swizzled: np.ndarray) -> np.ndarray:
    rows, k = codes.shape[0], codes.shape[1] * 2
    scales = block_scales(swizzled, rows, k // 16)
    return (E2M1_PAIRS[codes].reshape(rows, k // 16, 16) * scales[:, :, None]).reshape(rows, k)


def in_turn(items: list, call) -> list:
    return [lambda item=item: call(item) for item in items]


def copies(array: np.ndarray, turns) -> list[np.ndarray]:
    return [array.copy() for _ in range(turns(array.nbytes))]


# ---- OpenBLAS


class OpenBlas:
    def __init__(self, threads: int) -> None:
        self.lib = ctypes.CDLL("libopenblas.so.0")
        self.lib.openblas_get_config.restype = self.lib.openblas_get_corename.restype = c_char_p
        self.lib.openblas_set_num_threads(threads)
        self.lib.cblas_sgemm.argtypes = [c_int] * 6 + [c_float, c_void_p, c_int, c_void_p, c_int, c_float, c_void_p, c_int]
        config = self.lib.openblas_get_config().decode().split()
        self.version = f"{config[1]}, kernels for {self.lib.openblas_get_corename().decode()}"


def openblas_linear(blas: OpenBlas, a: dict, turns):
    x, weight = bf16_to_f32(a["input"]), bf16_to_f32(a["weight"])
    (m, k), n = x.shape, weight.shape[0]
    out = np.empty((m, n), np.float32)
    row_major, as_is, transposed = 101, 111, 112

    def call(w: np.ndarray) -> None:
        blas.lib.cblas_sgemm(row_major, as_is, transposed, m, n, k, 1.0, x.ctypes.data, k, w.ctypes.data, k, 0.0, out.ctypes.data, n)

    return in_turn(copies(weight, turns), call), lambda: out


# ---- ggml


class Ggml:
    """The CPU backend: libraries in the folder DODONA_GGML, else in the Python package libggml."""

    F32, BF16, MXFP4, NVFP4 = 0, 30, 39, 40

    class _Init(ctypes.Structure):
        _fields_ = [("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool)]

    def __init__(self, threads: int) -> None:
        folder = os.environ.get("DODONA_GGML")
        if not folder:
            package = importlib.util.find_spec("libggml")
            if package is None:
                raise OSError("neither DODONA_GGML nor the package libggml-python")
            folder = str(pathlib.Path(package.origin).parent / "lib64")
        found = {name: sorted(glob.glob(f"{folder}/**/{name}.so", recursive=True)) for name in ("libggml-base", "libggml-cpu")}
        if not all(found.values()):
            raise OSError("no libggml-base.so and libggml-cpu.so in DODONA_GGML")
        self.base, self.cpu = (ctypes.CDLL(paths[0], ctypes.RTLD_GLOBAL) for paths in found.values())
        self._declare()
        self.quiet = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)(lambda *_: None)
        self.base.ggml_log_set(self.quiet, None)
        self.backend = self.cpu.ggml_backend_cpu_init()
        self.cpu.ggml_backend_cpu_set_n_threads(self.backend, threads)
        features = ["avx2", "avx512", "avx512_vnni", "amx_int8", "llamafile"]
        has = [name for name in features if getattr(self.cpu, f"ggml_cpu_has_{name}")()]
        self.version = f"{self.base.ggml_version().decode()}, built with {', '.join(has) or 'none of its vector code'}"

    def _declare(self) -> None:
        pointers = {
            self.base: {
                "ggml_init": [self._Init], "ggml_new_tensor_2d": [c_void_p, c_int, c_int64, c_int64], "ggml_mul_mat": [c_void_p] * 3,
                "ggml_new_graph": [c_void_p], "ggml_backend_alloc_ctx_tensors_from_buft": [c_void_p] * 2,
                "ggml_backend_cpu_buffer_type": [], "ggml_backend_reg_dev_get": [c_void_p, c_size_t],
                "ggml_backend_reg_get_proc_address": [c_void_p, c_char_p],
            },
            self.cpu: {"ggml_backend_cpu_init": [], "ggml_backend_cpu_reg": []},
        }  # fmt: skip
        for library, functions in pointers.items():
            for name, arguments in functions.items():
                getattr(library, name).restype, getattr(library, name).argtypes = c_void_p, arguments
        self.base.ggml_version.restype = c_char_p
        sizes = {"ggml_quantize_chunk": [c_int, c_void_p, c_void_p, c_int64, c_int64, c_int64, c_void_p], "ggml_row_size": [c_int, c_int64],
                 "ggml_tensor_overhead": [], "ggml_graph_overhead": []}  # fmt: skip
        for name, arguments in sizes.items():
            getattr(self.base, name).restype, getattr(self.base, name).argtypes = c_size_t, arguments
        for name in ("ggml_backend_tensor_set", "ggml_backend_tensor_get"):
            getattr(self.base, name).argtypes = [c_void_p, c_void_p, c_size_t, c_size_t]
        self.base.ggml_build_forward_expand.argtypes = self.base.ggml_backend_graph_compute.argtypes = [c_void_p] * 2
        self.base.ggml_free.argtypes = self.base.ggml_backend_buffer_free.argtypes = [c_void_p]
        self.cpu.ggml_backend_cpu_set_n_threads.argtypes = [c_void_p, c_int]

    def repacking(self) -> list[int]:
        """Buffer types that keep weights in another order; which one takes a type is found by trying."""
        registry = self.cpu.ggml_backend_cpu_reg()
        address = self.base.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_dev_get_extra_bufts")
        if not address:
            return []
        types = ctypes.CFUNCTYPE(POINTER(c_void_p), c_void_p)(address)(self.base.ggml_backend_reg_dev_get(registry, 0))
        return list(itertools.takewhile(lambda pointer: pointer, (types[i] for i in range(16)))) if types else []

    def product(self, kind: int, x: np.ndarray, weight: np.ndarray, turns, repack: bool):
        (m, k), n = x.shape, weight.shape[0]
        codes = np.empty(self.base.ggml_row_size(kind, k) * n, np.uint8)
        self.base.ggml_quantize_chunk(kind, weight.ctypes.data, codes.ctypes.data, 0, n, k, None)
        count = turns(codes.nbytes)
        room = self.base.ggml_tensor_overhead() * (2 * count + 2) + self.base.ggml_graph_overhead() * count + 4096
        weights, rest = (self.base.ggml_init(self._Init(room, None, True)) for _ in range(2))
        matrices = [self.base.ggml_new_tensor_2d(weights, kind, k, n) for _ in range(count)]
        memory = (self.repacking() if repack else []) + ([] if repack else [self.base.ggml_backend_cpu_buffer_type()])
        buffers = [next((buffer for kind_of in memory if (buffer := self.base.ggml_backend_alloc_ctx_tensors_from_buft(weights, kind_of))), None)]
        if buffers[0] is None:
            raise OSError("this build repacks no weights")
        vector = self.base.ggml_new_tensor_2d(rest, self.F32, k, m)
        results = [self.base.ggml_mul_mat(rest, matrix, vector) for matrix in matrices]
        graphs = [self.base.ggml_new_graph(rest) for _ in results]
        for graph, result in zip(graphs, results):
            self.base.ggml_build_forward_expand(graph, result)
        buffers.append(self.base.ggml_backend_alloc_ctx_tensors_from_buft(rest, self.base.ggml_backend_cpu_buffer_type()))
        for matrix in matrices:
            self.base.ggml_backend_tensor_set(matrix, codes.ctypes.data, 0, codes.nbytes)
        self.base.ggml_backend_tensor_set(vector, x.ctypes.data, 0, x.nbytes)
        out = np.empty((m, n), np.float32)

        def result() -> np.ndarray:
            self.base.ggml_backend_tensor_get(results[0], out.ctypes.data, 0, out.nbytes)
            return out

        def free() -> None:
            for buffer in buffers:
                self.base.ggml_backend_buffer_free(buffer)
            for context in (weights, rest):
                self.base.ggml_free(context)

        calls = in_turn(graphs, lambda graph: self.base.ggml_backend_graph_compute(self.backend, graph))
        return calls, result, free


def ggml_linear(ggml: Ggml, a: dict, turns):
    return ggml.product(ggml.BF16, bf16_to_f32(a["input"]), bf16_to_f32(a["weight"]), turns, repack=False)


def _ggml_fp4(ggml: Ggml, a: dict, turns, kind: int, repack: bool):
    x, weight = fp4_to_f32(a["a"], a["block_scale_a"]), fp4_to_f32(a["b"], a["block_scale_b"])
    calls, result, free = ggml.product(kind, x, weight, turns, repack)
    return calls, lambda: result() * np.float32(a["alpha"].reshape(-1)[0]), free


def ggml_nvfp4(ggml: Ggml, a: dict, turns):
    return _ggml_fp4(ggml, a, turns, ggml.NVFP4, False)


def ggml_mxfp4(ggml: Ggml, a: dict, turns):
    return _ggml_fp4(ggml, a, turns, ggml.MXFP4, True)


# ---- torch


class Torch:
    def __init__(self, threads: int) -> None:
        import torch

        self.torch = torch
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        flags = pathlib.Path("/proc/cpuinfo").read_text() if os.path.exists("/proc/cpuinfo") else ""
        self.version = f"{torch.__version__.split('+')[0]}, {torch.backends.cpu.get_cpu_capability()}{', AMX' if 'amx_bf16' in flags else ''}"

    def bf16(self, codes: np.ndarray):
        return self.torch.from_numpy(codes.view(np.int16)).view(self.torch.bfloat16)


def _last(call):
    """A call that keeps its result, and the function that gives it in fp32."""
    kept = []

    def keep(*arguments) -> None:
        kept[:] = [call(*arguments)]

    return keep, lambda: kept[0].float().numpy()


def torch_linear_f32(torch: Torch, a: dict, turns):
    x = torch.torch.from_numpy(bf16_to_f32(a["input"]))
    weights = [torch.torch.from_numpy(w) for w in copies(bf16_to_f32(a["weight"]), turns)]
    call, result = _last(lambda w: torch.torch.nn.functional.linear(x, w))
    return in_turn(weights, call), result


def torch_linear_bf16(torch: Torch, a: dict, turns):
    x = torch.bf16(a["input"])
    call, result = _last(lambda w: torch.torch.nn.functional.linear(x, w))
    return in_turn([torch.bf16(w) for w in copies(a["weight"], turns)], call), result


def _torch_fp4(torch: Torch, a: dict, dtype):
    """Weights by a table of both values of a byte, as fast as torch does it; then one product."""
    t = torch.torch
    n, k = a["b"].shape[0], a["b"].shape[1] * 2
    x = t.from_numpy(fp4_to_f32(a["a"], a["block_scale_a"]) * np.float32(a["alpha"].reshape(-1)[0])).to(dtype)
    codes, table = t.from_numpy(a["b"].reshape(-1).astype(np.int32)), t.from_numpy(E2M1_PAIRS).to(dtype)
    scales = t.from_numpy(block_scales(a["block_scale_b"], n, k // 16)).to(dtype)[:, :, None]

    def product():
        weight = table.index_select(0, codes).view(n, k // 16, 16).mul_(scales).view(n, k)
        return t.nn.functional.linear(x, weight)

    call, result = _last(product)
    return [call], result


def torch_nvfp4(torch: Torch, a: dict, turns):
    return _torch_fp4(torch, a, torch.torch.float32)


def torch_nvfp4_f64(torch: Torch, a: dict, turns):
    return _torch_fp4(torch, a, torch.torch.float64)


def torch_linear_f64(torch: Torch, a: dict, turns):
    x, weight = torch.bf16(a["input"]), torch.bf16(a["weight"])
    call, result = _last(lambda: torch.torch.nn.functional.linear(x.double(), weight.double()))
    return [call], result


def _torch_mla(torch: Torch, a: dict, dtype):
    """Per request: scores, softmax, weighted sum. The keys of the pages were gathered before."""
    t = torch.torch
    queries = t.cat([torch.bf16(a["q_nope"]), torch.bf16(a["q_pe"])], dim=-1).to(dtype)
    pages = torch.bf16(a["kv_c_and_k_pe_cache"])
    table = t.from_numpy(a["page_table"]).long()
    keys = [pages[table[b]].reshape(-1, 576)[: int(length)].to(dtype) for b, length in enumerate(a["seq_lens"])]
    scale = float(a["sm_scale"])

    def attend():
        return t.stack([t.softmax(q @ k.T * scale, dim=-1) @ k[:, :512] for q, k in zip(queries, keys)])

    call, result = _last(attend)
    return [call], result


def torch_mla_f32(torch: Torch, a: dict, turns):
    return _torch_mla(torch, a, torch.torch.float32)


def torch_mla_bf16(torch: Torch, a: dict, turns):
    return _torch_mla(torch, a, torch.torch.bfloat16)


def torch_mla_f64(torch: Torch, a: dict, turns):
    return _torch_mla(torch, a, torch.torch.float64)


def torch_rmsnorm(torch: Torch, a: dict, turns):
    weight, eps = torch.bf16(a["weight"]), float(a["eps"])
    call, result = _last(lambda x: torch.torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, eps))
    return in_turn([torch.bf16(x) for x in copies(a["input"], turns)], call), result


def torch_rmsnorm_f64(torch: Torch, a: dict, turns):
    x, weight, eps = torch.bf16(a["input"]), torch.bf16(a["weight"]), float(a["eps"])
    call, result = _last(lambda: torch.torch.nn.functional.rms_norm(x.double(), (x.shape[-1],), weight.double(), eps))
    return [call], result


def torch_silu(torch: Torch, a: dict, turns):
    d = a["input"].shape[-1] // 2
    call, result = _last(lambda x: torch.torch.nn.functional.silu(x[:, :d]) * x[:, d:])
    return in_turn([torch.bf16(x) for x in copies(a["input"], turns)], call), result


def torch_quant_fp8(torch: Torch, a: dict, turns):
    t = torch.torch

    def quantize(x):
        x = x.float()
        scale = x.abs().amax(dim=-1, keepdim=True).clamp_(min=1e-10) / 448
        return (x / scale).clamp_(-448, 448).to(t.float8_e4m3fn)

    call, result = _last(quantize)
    return in_turn([torch.bf16(x) for x in copies(a["input"], turns)], call), result


# ---- mmasim


class MmaSim:
    def __init__(self, threads: int) -> None:
        import importlib.metadata

        from mmasim.nv_ptx import MMA, WGMMA

        self.torch = Torch(threads)
        self.mma, self.wgmma, self.version = MMA, WGMMA, importlib.metadata.version("mmasim")


def mmasim_fused_a(sim: MmaSim, a: dict, turns):
    """Four quarters of K, as the kernel's warps have them, added in order."""
    t, step = sim.torch, sim.mma("Hopper", "m16n8k16.f32.bf16.bf16.f32").arithmetic_op
    x, weight = t.bf16(a["mat_a"]).chunk(4, dim=1), t.bf16(np.ascontiguousarray(a["mat_b"].T)).T.chunk(4, dim=0)
    zero = t.torch.zeros(x[0].shape[0], weight[0].shape[1])
    call, result = _last(lambda: sum(step(left, right, zero) for left, right in zip(x, weight)).bfloat16())
    return [call], result


def mmasim_bmm_fp8(sim: MmaSim, a: dict, turns):
    t, step = sim.torch.torch, sim.wgmma("Hopper", "m64n8k32.f32.e4m3.e4m3").arithmetic_op
    left, right = (t.from_numpy(np.ascontiguousarray(m).view(np.uint8)).view(t.float8_e4m3fn) for m in (a["A"], a["B"]))
    scale = t.from_numpy(a["A_scale"]).reshape(-1)[0] * t.from_numpy(a["B_scale"]).reshape(-1)[0]

    def product():
        return t.stack([(step(x, y, t.zeros(x.shape[0], y.shape[1])) * scale).bfloat16() for x, y in zip(left, right)])

    call, result = _last(product)
    return [call], result


CLASSES = {"OpenBLAS": OpenBlas, "ggml": Ggml, "torch": Torch, "mmasim": MmaSim}


def find(threads: int) -> dict:
    """Each peer by name: an instance, or why it is absent."""
    peers = {}
    for name, kind in CLASSES.items():
        try:
            peers[name] = kind(threads)
        except (ImportError, OSError) as error:
            peers[name] = str(error)
    return peers


def torch_topk_softmax(torch: Torch, a: dict, turns):
    t, x, k = torch.torch, torch.torch.from_numpy(a["gating_output"]), a["topk_weights"].shape[1]
    call, result = _last(lambda: t.topk(t.softmax(x, dim=-1), k)[0])
    return [call], result


def torch_topk_sigmoid(torch: Torch, a: dict, turns):
    t, x, k = torch.torch, torch.torch.from_numpy(a["gating_output"]), a["topk_weights"].shape[1]
    call, result = _last(lambda: t.topk(t.sigmoid(x), k)[0])
    return [call], result


def torch_align(torch: Torch, a: dict, turns):
    """A stable sort of the ids, and counts."""
    t, block, room = torch.torch, int(a["block_size"]), a["sorted_token_ids"].shape[0]
    ids, slots = t.from_numpy(a["topk_ids"]).flatten(), int(a["num_experts"])

    def align():
        order = t.argsort(ids, stable=True)
        count = t.bincount(ids + 1, minlength=slots)
        padded = (count + block - 1) // block * block
        begin, first = t.cumsum(padded, 0) - padded, t.cumsum(count, 0) - count
        slot = (ids[order] + 1).long()
        tokens = t.full((room,), ids.numel(), dtype=t.int32)
        tokens[begin[slot] + t.arange(ids.numel()) - first[slot]] = order.int()
        experts = t.repeat_interleave(t.arange(-1, slots - 1), padded // block)
        return padded.sum().reshape(1), tokens, experts

    kept = []
    return [lambda: kept.__setitem__(slice(None), align())], lambda: kept[0].float().numpy()


def torch_sum_reduce(torch: Torch, a: dict, turns):
    factor = float(a["routed_scaling_factor"])
    call, result = _last(lambda x: x.sum(dim=1) * factor)
    return in_turn([torch.bf16(x) for x in copies(a["input_tensor"], turns)], call), result
