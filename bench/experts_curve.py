"""How the routed experts of a full-size layer take more tokens: tools/experts-curve builds, then runs this. Each number is one run of `dodona layer
--cold`, weights from memory; of its fastest repetition the time of all that belongs to the experts, and its share of the limit that binds, which
the same run measured. Nothing of them is left out: permutes, quantization, both products, the sum."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

# Name, and what makes it so.
WAYS = {
    "NVFP4 cutlass": ["--preset", "r1-nvfp4", "--experts", "cutlass"],
    "NVFP4 trtllm": ["--preset", "r1-nvfp4", "--experts", "trtllm"],
    "NVFP4 flashinfer_cutlass": ["--preset", "r1-nvfp4", "--experts", "flashinfer_cutlass"],
    "FP8 cutlass": ["--preset", "r1", "--experts", "cutlass"],
    "FP8 triton": ["--preset", "r1", "--experts", "triton"],
    "FP8 deepgemm": ["--preset", "r1", "--experts", "deepgemm"],
    "FP8 deepep": ["--preset", "r1", "--experts", "deepep"],
    "FP8 trtllm": ["--preset", "r1", "--experts", "trtllm"],
    "FP8 flashinfer_cutlass": ["--preset", "r1", "--experts", "flashinfer_cutlass"],
    "W4A8 cutlass": ["--linear", "w4a8"],
}


def measured(way: list[str], batch: int, repeat: int) -> tuple[float, str]:
    """Milliseconds, and the share of the limit that binds."""
    command = [os.environ["DODONA_COMMAND"], "layer", *way, "--batch", str(batch), "--kv-len", "16", "--cold", "--repeat", str(repeat), "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {run.stderr.strip()}")
    report = json.loads(run.stdout)
    experts = next(op for op in report["ops"] if op["op"] == "self.experts()")
    seconds = experts["seconds"]
    shares = {
        "R": experts["bytes"] / seconds / report["R_GBps"] / 1e9,
        "F": experts["flops"] / seconds / report["F_GFLOPps"] / 1e9,
        "V": experts["int8_ops"] / seconds / report["V_GOPps"] / 1e9,
    }
    limit = max(shares, key=lambda name: shares[name])
    return 1e3 * seconds, f"{shares[limit]:.2f} {limit}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="experts-curve", description="Times of DeepSeek-R1's routed experts by tokens, as a table in Markdown")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16, 64, 256], help="Tokens (default: 1 16 64 256); 256 take 12 GB in FP8")
    parser.add_argument("--only", default="", help="Ways whose name has this in it: " + ", ".join(WAYS))
    parser.add_argument("--repeat", type=int, default=5, help="Runs of each step; the fastest counts (default 5)")
    options = parser.parse_args()
    ways = {name: way for name, way in WAYS.items() if options.only.lower() in name.lower()}
    if not ways:
        parser.error(f"--only {options.only!r} leaves nothing")
    print("| experts | " + " | ".join(f"B = {b}" for b in options.batch) + " |\n| --- |" + " ---: |" * len(options.batch))
    for name, way in ways.items():
        cells = []
        for batch in options.batch:
            try:
                milliseconds, share = measured(way, batch, options.repeat)
                cells.append(f"{milliseconds:.3g} ms, {share}")
            except RuntimeError as error:
                print(f"experts-curve: {error}", file=sys.stderr)
                cells.append("")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
