#!/usr/bin/env python3
"""Holds a FlashInfer-Bench set against the rules of its schema. usage: fib_rules.py FOLDER; prints what is broken, exits 1."""
import ast
import json
import pathlib
import struct
import sys

DTYPES = {"float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1", "int64", "int32", "int16", "int8", "bool"}
STORED = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F4": "float4_e2m1",
          "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "BOOL": "bool"}
root = pathlib.Path(sys.argv[1])
broken = []


def check(holds, *what):
    if not holds:
        broken.append(" ".join(map(str, what)))


definitions = {}
for path in sorted((root / "definitions").rglob("*.json")):
    d = json.loads(path.read_text())
    check(d["name"] not in definitions, path, "repeats a name")
    definitions[d["name"]] = d
    check(path.parent.name == d["op_type"] and path.stem == d["name"], path, "is not definitions/<op_type>/<name>.json")
    check(all(isinstance(d[key], str) and d[key] for key in ("name", "op_type", "reference")), path, "lacks a text")
    for name, axis in d["axes"].items():
        const = axis["type"] == "const" and isinstance(axis.get("value"), int) and axis["value"] >= 0
        check(const or axis == {"type": "var"}, path, "axis", name)
    check(not set(d["inputs"]) & set(d["outputs"]), path, "has a name on both sides")
    check(d["inputs"] and d["outputs"], path, "has no inputs or outputs")
    for name, field in {**d["inputs"], **d["outputs"]}.items():
        check(set(field) <= {"shape", "dtype", "description"}, path, name, "has other fields")
        check(field["dtype"] in DTYPES, path, name, field["dtype"])
        check(field["shape"] is None or set(field["shape"]) <= set(d["axes"]), path, name, "uses an undeclared axis")
    run = [node for node in ast.parse(d["reference"]).body if isinstance(node, ast.FunctionDef) and node.name == "run"]
    check(len(run) == 1, path, "has no top-level run")
    check(run and [a.arg for a in run[0].args.args] == list(d["inputs"]), path, "run does not take the inputs in order")

lines = 0
for path in sorted((root / "workloads").rglob("*.jsonl")):
    for line in path.read_text().splitlines():
        lines += 1
        trace = json.loads(line)
        d, workload = definitions[trace["definition"]], trace["workload"]
        check(trace["solution"] is None and trace["evaluation"] is None, path, "is no workload")
        check(path.stem == d["name"] and path.parent.name == d["op_type"], path, "is not workloads/<op_type>/<name>.jsonl")
        variable = {name for name, axis in d["axes"].items() if axis["type"] == "var"}
        check(set(workload["axes"]) == variable, path, "gives other axes than the var ones")
        sizes = {**{name: axis.get("value") for name, axis in d["axes"].items()}, **workload["axes"]}
        check(set(workload["inputs"]) == set(d["inputs"]), path, "gives other inputs")
        for name, source in workload["inputs"].items():
            check(source["type"] != "random", path, name, "is random")
            if source["type"] != "safetensors":
                continue
            blob = (root / source["path"]).read_bytes()
            entry = json.loads(blob[8:8 + struct.unpack("<Q", blob[:8])[0]])[source["tensor_key"]]
            check(STORED.get(entry["dtype"]) == d["inputs"][name]["dtype"], path, name, entry["dtype"])
            check(entry["shape"] == [sizes[axis] for axis in d["inputs"][name]["shape"]], path, name, entry["shape"])
check(lines == len(definitions) and lines > 0, "a definition lacks its workload")
print("\n".join(broken[:20]) or f"{lines} definitions keep the rules")
sys.exit(1 if broken else 0)
