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


def microseconds(call) -> float:
    return min(timeit.repeat(call, number=20, repeat=2000)) / 20 * 1e6


def seconds_of(program: str) -> float:
    def once() -> float:
        script = f"import time; begin = time.process_time(); {program}; print(time.process_time() - begin)"
        return float(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)

    return min(once() for _ in range(10))


def main() -> None:
    x, weight, out = np.ones((1, 8), np.float32), np.ones(8, np.float32), np.empty((1, 8), np.float32)
    plan, keep = _ops.plan_of("rmsnorm"), []
    packed = b"".join(slot.pack(array, keep, []) for slot, array in zip(plan.slots, (x, weight, out)))
    run = _library.lib.dodona_run
    c_call = microseconds(lambda: run(plan.c_name, packed, 3, None, 0, None, None))
    print(f"rmsnorm [1, 8] fp32: the C call {c_call:.2f} us")
    for label, call in (
        ("out=", lambda: dodona.rmsnorm(x, weight, out=out)),
        ("new output", lambda: dodona.rmsnorm(x, weight)),
        ("new output, eps given", lambda: dodona.rmsnorm(x, weight, eps=1e-5)),
    ):
        took = microseconds(call)
        print(f"  from Python, {label}: {took:.2f} us, {took - c_call:.2f} us beyond it")
    print(f"import dodona {1e3 * seconds_of('import dodona'):.0f} ms, of which numpy {1e3 * seconds_of('import numpy'):.0f} ms")


if __name__ == "__main__":
    main()
