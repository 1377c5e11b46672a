"""What Dodona has: the kernels that were counted and the ops, as this tree's sources say."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess

from .sources import BadInput


# Kernels whose ops have another name than upstream's call.
OTHER_NAMES = {
    "BatchMLAPagedAttentionWrapper.plan": "batch_mla_paged_attention",
    "BatchMLAPagedAttentionWrapper.run": "batch_mla_paged_attention",
    "BatchPrefillWithRaggedKVCacheWrapper.forward": "batch_prefill_with_ragged_kv_cache",
    "Buffer.combine": "deepep_combine",
    "Buffer.dispatch": "deepep_dispatch",
    "Buffer.low_latency_combine": "deepep_low_latency_combine",
    "Buffer.low_latency_dispatch": "deepep_low_latency_dispatch",
    "_get_k_and_s_triton_kernel": "get_index_k_scale_buffer",
    "_set_k_and_s_triton_kernel": "set_index_k_scale_buffer",
    "fp8_m_grouped_gemm_nt_masked": "m_grouped_fp8_gemm_nt_masked",
}
# Files whose functions are called as others are, and do another thing.
NAMESAKES = ("double_sparsity_attention.py",)


class Inventory:
    def __init__(self, counted: dict[str, str], ops: dict[str, str]):
        self.counted = counted  # kernel: its source, as the inventory has it
        self.ops = ops  # op: the version that first had it

    def op_of(self, kernel: str) -> str | None:
        """The op of the kernel's name; a Triton kernel `x_kernel` may be the op x."""
        return next((name for name in (kernel, kernel.removesuffix("_kernel"), OTHER_NAMES.get(kernel)) if name in self.ops), None)

    def op_around(self, functions: list[tuple[str, pathlib.Path]]) -> str | None:
        """The op that stands for one of these functions, of which each calls the next, and the last a kernel: the innermost."""
        for function, path in reversed(functions):
            for name in (function, function.removesuffix("_triton")):
                if name in self.ops and path.name not in NAMESAKES:
                    return name
        return None


def of_tree(root: pathlib.Path) -> Inventory:
    """From ops/kernels.cpp and ops/inventory.cpp; versions from the history of the latter, where there is one."""
    kernels, inventory = root / "ops" / "kernels.cpp", root / "ops" / "inventory.cpp"
    for path in (kernels, inventory):
        if not path.is_file():
            raise BadInput(f"{path}: expected the inventory of a Dodona source tree, found no such file")
    counted = {name: source.replace("_", "-") for name, source in re.findall(r'^\s*\{"(\w+)",\s*(\w+),', kernels.read_text(), re.MULTILINE)}
    ops = re.findall(r"^\s*OP\((\w+)\)", inventory.read_text(), re.MULTILINE)
    now = version_in((root / "CMakeLists.txt").read_text())
    first = first_versions(root)
    return Inventory(counted, {op: first.get(op, now) for op in ops})


def of_listing(path: pathlib.Path) -> Inventory:
    """From a file with what `dodona list --inventory --json` printed."""
    try:
        rows = json.loads(path.read_text())
        return Inventory({r["name"]: r["source"] for r in rows}, {r["name"]: "an unknown version" for r in rows if r["in"]})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadInput(f"{path}: expected what `dodona list --inventory --json` prints ({error})") from None


def version_in(cmake: str) -> str:
    found = re.search(r"project\(dodona VERSION ([\d.]+)", cmake)
    return found.group(1) if found else "unknown"


def first_versions(root: pathlib.Path) -> dict[str, str]:
    """op: the project's version in the first commit whose inventory has it. Empty where there is no history."""

    def git(*arguments):
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else ""

    first, commit, versions = {}, "", {}
    for line in git("log", "--reverse", "--format=commit %H", "-p", "--", "ops/inventory.cpp").splitlines():
        if line.startswith("commit "):
            commit = line.split()[1]
        elif (found := re.match(r"\+\s*OP\((\w+)\)", line)) and found.group(1) not in first:
            if commit not in versions:
                versions[commit] = version_in(git("show", f"{commit}:CMakeLists.txt"))
            first[found.group(1)] = versions[commit]
    return first
