"""The map as text, JSON and Markdown."""

from __future__ import annotations

import json
import pathlib

from .inventory import Inventory
from .trace import ENTRIES, CallSite, Kernel

TITLES = {
    "sgl-kernel": "sgl-kernel", "flashinfer": "FlashInfer", "deep-gemm": "DeepGEMM", "deep-ep": "DeepEP", "triton": "Triton", "torch.ops": "torch.ops",
    "sglang-jit": "compiled by sglang at the first call",
}  # fmt: skip

MOST_SITES = 3  # of one kernel whose chains the page shows; JSON has all


class Map:
    """Everything that a page says, with paths relative to where they were found."""

    def __init__(self, kernels: list[Kernel], inventory: Inventory, roots: dict[str, pathlib.Path], about: str, elsewhere: dict, places: int):
        self.kernels, self.inventory, self.roots, self.about, self.elsewhere, self.places = kernels, inventory, roots, about, elsewhere, places

    def path(self, path: pathlib.Path | str) -> str:
        for name, root in self.roots.items():
            if pathlib.Path(path).is_relative_to(root):
                return str(pathlib.Path(name) / pathlib.Path(path).relative_to(root))
        return str(path)

    def place(self, path, line: int) -> str:
        return f"{self.path(path)}:{line}"

    def defined(self, kernel: Kernel) -> str:
        found = kernel.definition
        return self.place(found.path, found.line) if found.path is not None else found.what

    def standing(self, kernel: Kernel) -> str:
        if kernel.op is None:
            return "in the inventory, no op yet" if kernel.standing == "counted" else "missing"
        named = "" if kernel.op == kernel.name else f"{kernel.op}, "
        return f"{named}since {self.inventory.ops[kernel.op]}"

    def conditions(self, site: CallSite) -> list[str]:
        """The tests around the call, and those around the import of its name."""
        found = [guard.text for guard in site.frames[-1].guards]
        for _, _, guards in site.imports:
            found += [f"imported if {guard.text}" for guard in guards]
        return list(dict.fromkeys(found))

    def lacking(self) -> list[Kernel]:
        return [kernel for kernel in self.kernels if kernel.standing != "implemented"]

    def counts(self) -> str:
        by = {word: sum(k.standing == word for k in self.kernels) for word in ("implemented", "counted", "missing")}
        return (
            f"{len(self.kernels)} kernels, {sum(len(k.sites) for k in self.kernels)} call sites: {by['implemented']} have an op, {by['counted']} more are in "
            f"the inventory, {by['missing']} are missing"
        )


def short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def as_json(found: Map) -> str:
    def site(one: CallSite):
        return {
            "file": found.path(one.path), "line": one.line, "part": one.part, "conditions": found.conditions(one), "used_by": one.used_by,
            "imports": [found.place(path, line) for path, line, _ in one.imports],
            "chain": [{"function": f.function, "file": found.path(f.path), "line": f.line, "calls": f.call, "conditions": [g.text for g in f.guards]}
                      for f in one.frames],
        }  # fmt: skip

    rows = [
        {
            "name": k.name, "source": k.source, "dotted": k.dotted, "definition": found.defined(k),
            "registrations": [{"what": what, "place": found.place(path, line)} for what, path, line in k.definition.cpp],
            "standing": k.standing, "op": k.op, "since": found.inventory.ops[k.op] if k.op else None, "sites": [site(s) for s in k.sites],
        }
        for k in found.kernels
    ]  # fmt: skip
    gone = {name: [found.place(path, line) + f" ({what})" for path, line, what in places] for name, places in found.elsewhere.items()}
    return json.dumps({"about": found.about, "kernels": rows, "not_reached": gone, "places": found.places}, indent=1)


def as_text(found: Map) -> str:
    lines = [found.about, found.counts(), ""]
    for source, title in TITLES.items():
        rows = [k for k in found.kernels if k.source == source]
        if rows:
            lines += [f"{title} ({len(rows)})", ""]
        for kernel in rows:
            lines += [f"{kernel.name}  [{found.standing(kernel)}]", f"  defined in {found.defined(kernel)}"]
            lines += [f"             {what}: {found.place(path, line)}" for what, path, line in kernel.definition.cpp]
            for site in kernel.sites:
                lines += [f"  {found.place(site.path, site.line)}  ({site.part})"]
                lines += [f"    when {condition}" for condition in found.conditions(site)]
                lines += [f"    {'  ' * depth}{f.function} -> {f.call}  {found.place(f.path, f.line)}" for depth, f in enumerate(site.frames)]
            lines.append("")
    lines += [f"{name}: in the inventory, not reached" for name in found.elsewhere]
    return "\n".join(lines) + "\n"


def backtrace(found: Map, site: CallSite) -> list[str]:
    """The call itself first, then who called, as a debugger shows it."""
    places = [found.place(f.path, f.line).removeprefix("python/sglang/srt/") for f in site.frames]
    return [f"#{n:<2} {f.function} calls {f.call} at {place}" for n, (f, place) in enumerate(zip(reversed(site.frames), reversed(places)))]


def as_markdown(found: Map) -> str:
    lines = [
        "# Kernel map",
        "",
        f"{found.about} Made by `tools/kernel-map`, from the sources alone: nothing is imported or run. {found.counts()}.",
        f"{found.places} places (file and line) are named in all, and each was looked up.",
        "",
        "Branches that an NVIDIA GPU never takes are left out, as are modules for other machines and other models. Where a value is known by its annotation alone",
        "(`attn_backend: AttentionBackend`, `quant_config: QuantizationConfig`), every class derived from it counts: a kernel is in the map when some configuration",
        "reaches it. A wrapper's methods (`plan`, `run`) count one by one. *Since* is the version of Dodona whose inventory first had the op, when this page was made;",
        "*in the inventory* is a kernel that was counted and has no op yet. Where an op is named, it is that of a function through which every call comes to the kernel,",
        "or has another name than the call. Chains are the shortest, the call itself first; of kernels that are missing here, their ends.",
        "",
        "## Summary",
        "",
        "| kernel | source | here | part | first call site | used by |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for kernel in found.kernels:
        site = kernel.sites[0]
        used = short(", ".join(f"`{name.removeprefix('self.')}`" for name in site.used_by[:3]) + (" ..." if len(site.used_by) > 3 else ""), 120)
        lines.append(
            f"| `{kernel.name}` | {TITLES[kernel.source] if kernel.source != 'sglang-jit' else 'sglang-jit'} | {found.standing(kernel)} | {site.part} | "
            f"`{found.place(site.path, site.line)}` | {used} |"
        )
    lines += ["", "## Inventory and map", ""]
    names = {kernel.name: kernel for kernel in found.kernels}
    counted = found.inventory.counted
    lines.append(f"{sum(name in names for name in counted)} of the inventory's {len(counted)} kernels are reached. What differs from the inventory:")
    lines.append("")
    for name, places in found.elsewhere.items():
        called = [found.place(path, line) for path, line, what in places if what == "called"]
        defined = [found.place(path, line) for path, line, what in places if what != "called"]
        why = f"a Python function of sglang has this name (`{'`, `'.join(defined)}`), and it is what the calls reach" if defined else (
            "nothing that the models make leads to its calls (`" + "`, `".join(called[:3]) + "`)" if called else "nothing in sglang calls it")  # fmt: skip
        lines.append(f"- `{name}`: not reached; {why}.")
    for kernel in found.kernels:
        if not kernel.definition.launches:
            where = found.defined(kernel)
            lines.append(f"- `{kernel.name}`: reached; {kernel.source}'s function (`{where}`) launches no kernel of its own but calls torch.")
    for name, source in counted.items():
        sources = [k.source for k in found.kernels if k.name == name]
        if sources and source not in sources:
            lines.append(f"- `{name}`: counted for {source}; the name comes from {' and '.join(sources)} here (`{names[name].dotted}`).")
    lines += ["", "## By source"]
    for source, title in TITLES.items():
        rows = [k for k in found.kernels if k.source == source]
        if not rows:
            continue
        lines += ["", f"### {title} ({len(rows)})", "", "| kernel | definition | registered and defined in C++ |", "| --- | --- | --- |"]
        for kernel in rows:
            cpp = ", ".join(f"{what} `{found.place(path, line)}`" for what, path, line in kernel.definition.cpp)
            lines.append(f"| `{kernel.name}` | `{found.defined(kernel)}` | {cpp} |")
    lines += ["", "## Calls and their conditions", "", "Files are named from python/sglang/srt.", ""]
    for kernel in found.kernels:
        whole = kernel.standing != "missing"
        lines.append(f"### {kernel.name} ({kernel.source})")
        lines.append("")
        for site in kernel.sites[: MOST_SITES if whole else 1]:
            conditions = "; ".join(f"`{short(text, 100)}`" for text in found.conditions(site)) or "always, where its caller runs"
            lines += [f"When: {cell(conditions)}", "", "```", *backtrace(found, site)[: None if whole else 3], "```", ""]
        others = [f"`{found.place(site.path, site.line)}`" for site in kernel.sites[MOST_SITES if whole else 1 :]]
        if others:
            lines += [f"Also called at {', '.join(others)}.", ""]
    parts = "; ".join(f"*{e.title}*: {', '.join(f'`{f}`' for f in e.files)}" + (f", within `{e.within[0]}`" if e.within else "") for e in ENTRIES)
    lines += ["## Where the map begins", "", parts + ".", ""]
    return "\n".join(lines)


FORMATS = {"text": as_text, "json": as_json, "md": as_markdown}
