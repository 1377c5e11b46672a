#!/usr/bin/env python3
"""Public bugs of kernels, each as a wrong and a mended kernel in NumPy: is the wrong one caught, the mended one accepted, the cause named?

    run.py [--seeds N] [NAME...]

A bug is a file NAME.py of this folder: SOURCE, the public thread; LINE, the case; NAMES, what the explanation has to say of the cause (a
regular expression); kernel(x, wrong), the op from inputs and attributes alone; perhaps edit(inputs), inputs that the bug needs and no line
makes. UNNAMED says why no explanation is expected, KNOWN_DEFECT that upstream's own kernel is known to do the same: the verdict is that known
defect, by name. Exit code 1 unless every bug is caught, every mended kernel accepted and every cause
named that has to be.
"""

import argparse
import importlib
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import dodona

HERE = Path(__file__).parent
NO_BUGS = {"honest", "run"}
ENOUGH = 600  # seconds for an explanation: that a machine is busy costs no cause its name


def case_of(bug, seed):
    case = dodona.gen(f"{bug.LINE} --seed {seed}")
    if not hasattr(bug, "edit"):
        return case
    edited = {**case.arguments(), **bug.edit(case.inputs)}
    return dodona.Case.of(case.op, **edited), edited


def arguments_of(case, edited=None):
    """What a kernel sees: arrays and attributes by name."""
    given = dict(edited if edited is not None else case.arguments())
    plain = {name: getattr(value, "array", value) for name, value in given.items()}
    return SimpleNamespace(**{**plain, **{k: v for k, v in case.attrs.items() if k not in plain}})


def judged(bug, seed, wrong, seconds):
    made = case_of(bug, seed)
    case, edited = made if isinstance(made, tuple) else (made, None)
    return case.check(bug.kernel(arguments_of(case, edited), wrong), explain=seconds)


def words_of(verdict):
    """The likeliest cause, and what else the verdict says of it."""
    others = [e["text"] for e in verdict.json.get("explanations", {}).get("found", [])]
    said = [text for output in verdict.json["outputs"] for text in [*output.get("relations", []), output.get("pattern", "")] if text]
    known = next((output["known_defect"] for output in verdict.json["outputs"] if output.get("known_defect")), None)
    if known is not None and verdict.outcome == "known defect":
        return [known]
    return [verdict.cause, *others, *said]


def outcome_of(bug):
    """What is to be said of the wrong kernel: KNOWN_DEFECT names what upstream's kernel has too, as a recording shows; the judge says it."""
    return "known defect" if hasattr(bug, "KNOWN_DEFECT") else "fail"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1, help="how many inputs each kernel is judged on")
    parser.add_argument("--markdown", action="store_true", help="print the table for a page")
    parser.add_argument("names", nargs="*", help="bugs to try (default: all)")
    options = parser.parse_args()
    sys.path.insert(0, str(HERE))
    names = options.names or sorted(p.stem for p in HERE.glob("*.py") if p.stem not in NO_BUGS)
    caught = accepted = named = expected = 0
    wrong_ones, slowest = [], 0.0
    for name in names:
        bug = importlib.import_module(name)
        mended = [judged(bug, seed, False, 0) for seed in range(options.seeds)]
        began = time.monotonic()
        verdicts = [judged(bug, seed, True, ENOUGH if seed == 0 else 0) for seed in range(options.seeds)]
        slowest = max(slowest, time.monotonic() - began)
        is_caught, is_accepted = all(v.outcome == outcome_of(bug) for v in verdicts), all(v.passes for v in mended)
        words = words_of(verdicts[0])
        is_named = re.search(bug.NAMES, words[0]) is not None
        behind = any(re.search(bug.NAMES, text) for text in words[1:])
        caught, accepted, named = caught + is_caught, accepted + is_accepted, named + is_named
        expected += not hasattr(bug, "UNNAMED")
        state = "named" if is_named else "behind others" if behind else "not named"
        if options.markdown:
            print(f"| [{name.replace('_', ' ')}]({bug.SOURCE}) | `{bug.LINE.split()[0]}` | {bug.__doc__.strip()} | {state} |")
        else:
            print(f"{name:24} {'caught' if is_caught else 'MISSED':7} {'accepted' if is_accepted else 'REJECTED':9} {state:14} {words[0][:150]}")
        if not is_accepted:
            print("\n".join(next(v for v in mended if not v.passes).text.splitlines()[:12]))
        if not (is_caught and is_accepted and (is_named or hasattr(bug, "UNNAMED"))):
            wrong_ones.append(name)
    print(f"{len(names)} bugs: {caught} caught, {accepted} mended kernels accepted, {named} causes named first ({expected} are to be); slowest {slowest:.1f} s")
    if wrong_ones:
        print("not as they should be: " + ", ".join(wrong_ones))
    return 1 if wrong_ones else 0


if __name__ == "__main__":
    sys.exit(main())
