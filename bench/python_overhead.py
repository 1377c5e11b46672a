"""What a call from Python costs beyond the C call, and what the import costs. Run from the build tree:

    PYTHONPATH=python DODONA_LIBRARY=build/release/libdodona.so python3 bench/python_overhead.py

Figures are the fastest of many short batches, and processor time for imports: a busy machine disturbs the rest.
"""

import subprocess
import sys
import timeit

import numpy as np

import dodona
from dodona import _library, _ops

try:
    import torch
except ImportError:
    torch = None


def microseconds(call) -> float:
    return min(timeit.repeat(call, number=20, repeat=2000)) / 20 * 1e6


def seconds_of(program: str) -> float:
    def once() -> float:
        script = f"import time; begin = time.process_time(); {program}; print(time.process_time() - begin)"
        return float(subprocess.run([sys.executable, "-c", script, _library.__file__], capture_output=True, text=True, check=True).stdout)

    return min(once() for _ in range(10))


def rows(label: str, arrays: tuple) -> dict[str, float]:
    x, weight, out = arrays
    calls = {
        "out=": lambda: dodona.rmsnorm(x, weight, out=out),
        "new output": lambda: dodona.rmsnorm(x, weight),
        "new output, eps given": lambda: dodona.rmsnorm(x, weight, eps=1e-5),
    }
    return {f"{label}, {name}": microseconds(call) for name, call in calls.items()}


def first_call() -> float:
    """Seconds of the first C call in a process that has loaded the library: by its own clock, the fastest of many."""
    script = """
import ctypes, runpy, sys, time
library = runpy.run_path(sys.argv[1])
CTensor, lib = library["CTensor"], library["lib"]
memory = [(ctypes.c_float * 8)() for _ in range(3)]
tensors = (CTensor * 3)()
for tensor, floats, (name, shape) in zip(tensors, memory, ((b"input", (1, 8)), (b"weight", (8,)), (b"output", (1, 8)))):
    tensor.name, tensor.data, tensor.dtype, tensor.rank = name, ctypes.addressof(floats), 1, len(shape)
    tensor.shape[: len(shape)] = shape
begin = time.perf_counter()
status = lib.dodona_run(b"rmsnorm", tensors, 3, None, 0, None, None)
print(time.perf_counter() - begin if status == 0 else lib.dodona_last_error())
"""

    def once() -> float:
        return float(subprocess.run([sys.executable, "-c", script, _library.__file__], capture_output=True, text=True, check=True).stdout)

    return min(once() for _ in range(10))


def main() -> None:
    x, weight, out = np.ones((1, 8), np.float32), np.ones(8, np.float32), np.empty((1, 8), np.float32)
    plan, keep = _ops.plan_of("rmsnorm"), []
    packed = b"".join(slot.pack(array, keep, []) for slot, array in zip(plan.slots, (x, weight, out)))
    run = _library.lib.dodona_run
    c_call = microseconds(lambda: run(plan.c_name, packed, 3, None, 0, None, None))
    print(f"rmsnorm [1, 8] fp32: the C call {c_call:.2f} us")
    of_numpy = rows("from Python", (x, weight, out))
    for label, took in of_numpy.items():
        print(f"  {label}: {took:.2f} us, {took - c_call:.2f} us beyond it")
    if torch is not None:
        for label, took in rows("torch tensors", tuple(torch.from_numpy(array) for array in (x, weight, out))).items():
            beyond = took - of_numpy[label.replace("torch tensors", "from Python")]
            print(f"  {label}: {took:.2f} us, {beyond:.2f} us beyond NumPy's arrays")
    print(f"the first call in a process {1e6 * first_call():.0f} us")
    print(f"import dodona {1e3 * seconds_of('import dodona'):.0f} ms, of which numpy {1e3 * seconds_of('import numpy'):.0f} ms")


if __name__ == "__main__":
    main()
