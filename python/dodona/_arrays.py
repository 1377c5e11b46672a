"""Between Python's arrays and the library's tensors. Nothing is copied where the memory can be described as it lies."""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import struct
import sys
from typing import Any, Iterator

import numpy as np

from ._library import ARRAY_INTERFACE, MAX_RANK, READ_ONLY, STRIDED, BadType, BadValue, CTensor, Handle, check, fail, lib

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

DTYPES = ("f64", "f32", "f16", "bf16", "f8_e4m3", "f8_e5m2", "f8_e8m0", "f4_e2m1", "i4", "i8", "u8", "i16", "i32", "i64", "bool")
CODES = {name: code for code, name in enumerate(DTYPES)}
# What other libraries call them.
ALIASES = {
    "float64": "f64", "double": "f64", "float32": "f32", "float": "f32", "float16": "f16", "half": "f16", "bfloat16": "bf16",
    "float8_e4m3fn": "f8_e4m3", "float8_e5m2": "f8_e5m2", "float8_e8m0fnu": "f8_e8m0", "int8": "i8", "uint8": "u8", "int16": "i16",
    "int32": "i32", "int64": "i64", "bool": "bool", "bool_": "bool", "float4_e2m1fn_x2": "u8",
}  # fmt: skip
_RAW = {"bf16": np.uint16, "f8_e4m3": np.uint8, "f8_e5m2": np.uint8, "f8_e8m0": np.uint8, "f4_e2m1": np.uint8, "i4": np.uint8}
_PLAIN = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "i8": np.int8, "u8": np.uint8, "i16": np.int16, "i32": np.int32,
    "i64": np.int64, "bool": np.bool_,
}  # fmt: skip
_ML = {"bf16": "bfloat16", "f8_e4m3": "float8_e4m3fn", "f8_e5m2": "float8_e5m2", "f8_e8m0": "float8_e8m0fnu"}


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype that stands for ours: ml_dtypes' where it is installed, else raw codes of the same width."""
    if name in _PLAIN:
        return np.dtype(_PLAIN[name])
    if ml_dtypes is not None and hasattr(ml_dtypes, _ML.get(name, "")):
        return np.dtype(getattr(ml_dtypes, _ML[name]))
    return np.dtype(_RAW[name])


# NumPy dtype to code, when nothing is known of the argument. Raw codes are added per argument, see Slot.
KNOWN = {np.dtype(kind): CODES[name] for name, kind in _PLAIN.items()}
KNOWN.update({numpy_dtype(name): CODES[name] for name in _ML if numpy_dtype(name) != np.dtype(_RAW[name])})


def dtype_name(value: Any, op: str = "", argument: str = "") -> str:
    """Our name of a dtype given as ours, NumPy's, ml_dtypes' or torch's."""
    text = value if isinstance(value, str) else str(value).removeprefix("torch.")
    text = text.removeprefix("torch.")
    if text in CODES:
        return text
    if text in ALIASES:
        return ALIASES[text]
    try:
        named = np.dtype(value).name
    except (TypeError, ValueError):
        named = ""
    if named in ALIASES:
        return ALIASES[named]
    raise fail(f"must be a dtype, got {value!r}", kind=BadType, code="bad_dtype", op=op, argument=argument)


class Typed:
    """An array of raw codes with what they are codes of; see dodona.as_dtype."""

    __slots__ = ("array", "dtype")

    def __init__(self, array: Any, dtype: str) -> None:
        self.array, self.dtype = array, dtype


def as_dtype(array: Any, dtype: Any) -> Typed:
    """`array`, whose elements are raw codes of `dtype`: as_dtype(codes_u8, "f8_e5m2"). Only needed where an argument takes several
    types of that width, for uint16 is read as bf16, and uint8 as the first 8-bit type that the argument takes."""
    return Typed(array, dtype_name(dtype))


_device_copies = contextvars.ContextVar("dodona_device_copies", default=False)


@contextlib.contextmanager
def device_copies(enabled: bool = True) -> Iterator[None]:
    """Within it, tensors on a GPU are copied to the host for a call, and what the call writes is copied back."""
    token = _device_copies.set(enabled)
    try:
        yield
    finally:
        _device_copies.reset(token)


# dodona_tensor: name, data, dtype, rank, shape, flags, strides.
_pack_array = struct.Struct(f"PPii{8 * MAX_RANK}xi4x{8 * MAX_RANK}x").pack
_pack_tensor = struct.Struct(f"PPii{MAX_RANK}ni4x{MAX_RANK}n").pack
assert struct.calcsize(f"PPii{MAX_RANK}ni4x{MAX_RANK}n") == ctypes.sizeof(CTensor)
# By rank, without the sizes and strides that there are not.
_pack_ranks = tuple(struct.Struct(f"PPii{r}n{8 * (MAX_RANK - r)}xi4x{r}n{8 * (MAX_RANK - r)}x").pack for r in range(MAX_RANK + 1))

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_DLPACK = {
    (0, 8): "i8", (0, 16): "i16", (0, 32): "i32", (0, 64): "i64", (1, 8): "u8", (2, 16): "f16", (2, 32): "f32", (2, 64): "f64",
    (4, 16): "bf16", (6, 8): "bool", (10, 8): "f8_e4m3", (12, 8): "f8_e5m2", (14, 8): "f8_e8m0",
}  # fmt: skip
_HOST_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost


def is_torch(value: Any) -> bool:
    return hasattr(value, "data_ptr") and hasattr(value, "stride")


# torch's own tensor types, whose attributes are what they seem (subclasses may be anything), and the layout that is described by strides.
# Known once such a tensor has been seen.
TORCH: dict[type, Any] = {}


def _know_torch(value: Any) -> None:
    torch = sys.modules.get("torch")
    if torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter):
        TORCH[type(value)] = torch.strided


def empty_like(source: Any) -> Any:
    """An array of NumPy or torch of the same shape and type, without gaps."""
    if type(source) is np.ndarray:
        return np.empty(source.shape, source.dtype)
    return sys.modules["torch"].empty_like(source) if source.is_contiguous() else source.new_empty(source.shape)


def _accepted(spec: dict, tensors: dict[str, dict], attrs: dict[str, dict]) -> list[str]:
    if spec.get("same_dtype_as"):
        return [*_accepted(tensors[spec["same_dtype_as"]], tensors, attrs), *spec["dtypes"]]
    if spec.get("dtype_attr"):
        return attrs[spec["dtype_attr"]]["dtypes"]
    return spec["dtypes"]


class Slot:
    """One tensor argument of an op: how Python values become it."""

    __slots__ = ("op", "name", "written", "codes", "torch_codes", "_name", "pointer", "spec")

    def __init__(self, op: str, spec: dict, tensors: dict[str, dict], attrs: dict[str, dict]) -> None:
        self.op, self.name, self.spec = op, spec["name"], spec
        self.written = spec["direction"] != "in"
        self._name = ctypes.create_string_buffer(self.name.encode())
        self.pointer = ctypes.addressof(self._name)
        self.torch_codes: dict[Any, int] = {}  # what _pack_torch found, by torch's dtype
        accepted = _accepted(spec, tensors, attrs)
        self.codes = dict(KNOWN)
        for raw in (np.uint16, np.uint8):
            if raw == np.uint8 and "u8" in accepted:
                continue
            first = next((name for name in accepted if _RAW.get(name) is raw), None)
            if first is not None:
                self.codes[np.dtype(raw)] = CODES[first]

    def refuse(self, message: str, kind: type = BadType, code: str = "bad_dtype") -> Exception:
        return fail(message, kind=kind, code=code, op=self.op, argument=self.name)

    def pack(self, value: Any, keep: list, back: list) -> bytes:
        """dodona_tensor as bytes. `keep` holds what must live during the call, `back` what is copied to a device after it."""
        if type(value) is np.ndarray:
            code = self.codes.get(value.dtype)
            if code is not None:
                capsule = value.__array_struct__
                keep.append(capsule)
                return _pack_array(self.pointer, _capsule_pointer(capsule, None), code, 0, ARRAY_INTERFACE)
        elif type(value) in TORCH:
            code = self.torch_codes.get(value.dtype)
            strided = value.layout is TORCH[type(value)]
            if code is not None and strided and value.is_cpu and not (self.written and value.requires_grad):
                try:
                    shape = value.shape
                    rank = len(shape)
                    return _pack_ranks[rank](self.pointer, value.data_ptr(), code, rank, *shape, STRIDED, *value.stride())
                except (RuntimeError, IndexError):  # no memory, or too many dimensions: refused below
                    pass
        return self._pack_other(value, keep, back)

    def _pack_other(self, value: Any, keep: list, back: list) -> bytes:
        forced = None
        if isinstance(value, Typed):
            forced, value = value.dtype, value.array
        if isinstance(value, np.ndarray):
            return self._pack_numpy(value, forced, keep)
        if is_torch(value):
            return self._pack_torch(value, forced, keep, back)
        if hasattr(value, "__dlpack__"):
            return self._pack_dlpack(value, forced, keep)
        raise self.refuse(f"is {type(value).__name__}, expected an array (NumPy, torch, or anything with __dlpack__)")

    def _pack_numpy(self, value: np.ndarray, forced: str | None, keep: list) -> bytes:
        code = self.codes.get(value.dtype) if forced is None else CODES[forced]
        if code is None:
            raise self.refuse(f"has dtype {value.dtype}, which no op takes")
        if forced is not None and value.dtype.itemsize != numpy_dtype(forced).itemsize:
            raise self.refuse(f"has dtype {value.dtype}, which cannot be codes of {forced}")
        array = np.asarray(value)
        if forced in ("f4_e2m1", "i4"):  # two elements a byte: sizes count elements
            if not array.flags.c_contiguous or array.ndim == 0:
                raise self.refuse("has packed elements, expected contiguous bytes", BadValue, "bad_stride")
            shape = array.shape[:-1] + (2 * array.shape[-1],)
            keep.append(array)
            return self._pack(array.ctypes.data, code, shape, None, not array.flags.writeable)
        capsule = array.__array_struct__
        keep.append(capsule)
        return _pack_array(self.pointer, _capsule_pointer(capsule, None), code, 0, ARRAY_INTERFACE)

    def _pack_torch(self, value: Any, forced: str | None, keep: list, back: list) -> bytes:
        if value.layout is not None and "strided" not in str(value.layout):
            raise self.refuse(f"has layout {value.layout}, expected a strided tensor")
        host = value
        if value.device.type == "meta":
            raise self.refuse("is on the meta device, which holds no values", BadValue, "bad_value")
        if self.written and getattr(value, "requires_grad", False):
            raise self.refuse("requires grad, and is written by a call that autograd knows nothing of: detach() it", BadValue, "bad_value")
        if value.device.type != "cpu":
            if not _device_copies.get():
                raise self.refuse(f"is on {value.device}, expected the cpu; within dodona.device_copies() it is copied there and back")
            host = value.detach().cpu()
            if self.written:
                back.append((value, host))
        name = str(value.dtype).removeprefix("torch.")
        if forced is None and name not in ALIASES and name != "uint16":
            raise self.refuse(f"has dtype {value.dtype}, which no op takes")
        raw = self.codes.get(np.dtype(np.uint16)) if name == "uint16" else None
        if forced is None and name == "uint8":
            raw = self.codes[np.dtype(np.uint8)]
        code = CODES[forced] if forced is not None else raw if raw is not None else CODES[ALIASES[name]] if name in ALIASES else None
        if code is None:
            raise self.refuse(f"has dtype {value.dtype}, which it does not take")
        keep.append(host)
        try:
            address = host.data_ptr()
        except RuntimeError as error:  # a fake one, as compilers trace with
            raise self.refuse(f"has no memory: {error}", BadValue, "bad_value") from error
        if forced is None:
            self.torch_codes[value.dtype] = code
            _know_torch(value)
        shape, strides = tuple(host.shape), tuple(host.stride())
        if forced in ("f4_e2m1", "i4"):  # two elements a byte: sizes count elements
            if not shape or not host.is_contiguous():
                raise self.refuse("has packed elements, expected contiguous bytes", BadValue, "bad_stride")
            shape, strides = shape[:-1] + (2 * shape[-1],), None
        return self._pack(address, code, shape, strides, False)

    def _pack_dlpack(self, value: Any, forced: str | None, keep: list) -> bytes:
        device = value.__dlpack_device__() if hasattr(value, "__dlpack_device__") else (1, 0)
        if int(device[0]) not in _HOST_DEVICES:
            if not _device_copies.get() or self.written:
                raise self.refuse(f"is on device {tuple(map(int, device))} (DLPack's numbers), expected the cpu")
            capsule = value.__dlpack__(dl_device=(1, 0), copy=True)
        else:
            try:
                capsule = value.__dlpack__()
            except Exception as error:
                raise self.refuse(f"cannot be exported: {error}", BadValue, "bad_value") from error
        keep.append(capsule)  # never taken over: when it goes, it frees what it holds
        tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
        name = _DLPACK.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
        if forced is None and (tensor.code, tensor.bits, tensor.lanes) == (1, 16, 1):
            name = "bf16"
        if forced is None and name == "u8":
            name = DTYPES[self.codes[np.dtype(np.uint8)]]
        if name is None and forced is None:
            raise self.refuse(f"has a dtype that no op takes (DLPack code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes)")
        shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
        strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else None
        return self._pack((tensor.data or 0) + tensor.byte_offset, CODES[forced or name], shape, strides, False)

    def _pack(self, data: int, code: int, shape: tuple, strides: tuple | None, read_only: bool) -> bytes:
        rank = len(shape)
        if rank > MAX_RANK:
            raise self.refuse(f"has rank {rank}, expected at most {MAX_RANK}", BadValue, "bad_shape")
        rest = (0,) * (MAX_RANK - rank)
        flags = (0 if strides is None else STRIDED) | (READ_ONLY if read_only else 0)
        return _pack_tensor(self.pointer, data, code, rank, *shape, *rest, flags, *(strides or shape), *rest)




class _Memory:
    """Memory of a handle as NumPy asks for it. Arrays over it hold this object, which holds the handle."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, interface: dict, owner: Any) -> None:
        self.__array_interface__, self.owner = interface, owner


_TYPESTR = {
    "f64": "<f8", "f32": "<f4", "f16": "<f2", "bf16": "<u2", "i8": "|i1", "i16": "<i2", "i32": "<i4", "i64": "<i8", "bool": "|b1",
}  # fmt: skip


def over(tensor: CTensor, owner: Any, writable: bool = True) -> np.ndarray:
    """An array over a tensor of the library, without a copy; it keeps `owner` alive. Packed types are bytes."""
    name = DTYPES[tensor.dtype]
    dtype = numpy_dtype(name)
    shape = tuple(tensor.shape[: tensor.rank])
    if name in ("f4_e2m1", "i4"):
        shape = shape[:-1] + ((shape[-1] + 1) // 2,) if shape else (1,)
    if not tensor.data or 0 in shape:
        return np.empty(shape, dtype)
    interface = {
        "version": 3,
        "shape": shape,
        "typestr": _TYPESTR.get(name, "|u1"),
        "data": (tensor.data, not writable or bool(tensor.flags & READ_ONLY)),
    }
    if tensor.flags & STRIDED:
        interface["strides"] = tuple(stride * dtype.itemsize for stride in tensor.strides[: tensor.rank])
    array = np.asarray(_Memory(interface, owner))
    return array if array.dtype == dtype else array.view(dtype)


def listed(tensors: int, owner: Any, writable: bool = True) -> dict[str, np.ndarray]:
    """All tensors of a handle by name."""
    result = {}
    view = CTensor()
    for index in range(lib.dodona_tensors_count(tensors)):
        check(lib.dodona_tensors_get(tensors, index, ctypes.byref(view)))
        result[view.name.decode()] = over(view, owner, writable)
    return result


def dtypes_of(tensors: int) -> dict[str, str]:
    """Our names of the dtypes of a handle's tensors, which raw codes do not tell."""
    names = {}
    view = CTensor()
    for index in range(lib.dodona_tensors_count(tensors)):
        check(lib.dodona_tensors_get(tensors, index, ctypes.byref(view)))
        names[view.name.decode()] = DTYPES[view.dtype]
    return names


def made_tensors(value: int) -> dict[str, np.ndarray]:
    """The tensors of a handle that the caller owns."""
    handle = Handle(value, lib.dodona_tensors_free)
    return listed(value, handle)


_TORCH_RAW = {"bf16": (np.int16, "bfloat16"), "f8_e4m3": (np.uint8, "float8_e4m3fn"), "f8_e5m2": (np.uint8, "float8_e5m2"),
              "f8_e8m0": (np.uint8, "float8_e8m0fnu")}  # fmt: skip


def like_torch(array: np.ndarray, name: str, model: Any) -> Any:
    """`array` (of our dtype `name`) as a torch tensor on the device of `model`; shares memory on the cpu."""
    import torch

    if name in _TORCH_RAW:
        raw, torch_name = _TORCH_RAW[name]
        tensor = torch.from_numpy(array.view(raw))
        kind = getattr(torch, torch_name, None)
        tensor = tensor if kind is None else tensor.view(kind)
    else:
        tensor = torch.from_numpy(array)
    return tensor if model.device.type == "cpu" else tensor.to(model.device)
