"""Grading kernels that are not trusted, as `dodona grade` does."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any, Sequence

from ._library import BadValue, Handle, fail, lib, made, options_bytes, text_bytes


class Grade:
    """What a grading found. True when every call passes; prints as the command does."""

    score: float
    """passing calls as a share of those that could have failed"""
    calls: list[dict[str, Any]]
    """case, kind, outcome (pass, vacuous, fail, refused, broken, foul), cause, kernel_seconds, judge_seconds"""
    nonce: str
    """what everything that was drawn follows from: Grader(..., nonce=...) makes the same calls"""

    def __init__(self, text: str) -> None:
        self.json: dict[str, Any] = json.loads(text)
        self.text: str = self.json.pop("text")
        self.passes: bool = self.json["verdict"] == "pass"
        self.score, self.calls, self.nonce, self.notes = (self.json[name] for name in ("score", "calls", "nonce", "notes"))

    @property
    def causes(self) -> list[str]:
        """Why calls do not pass, each once."""
        return list(dict.fromkeys(call["cause"] for call in self.calls if call["outcome"] not in ("pass", "vacuous")))

    def __bool__(self) -> bool:
        return self.passes

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Grade of {self.json['op']}: {self.json['verdict']}, score {self.score:.3f}>"


class Grader:
    """Grades kernels of an op: Grader("rmsnorm T=1..4096 H=7168").grade("kernel.py:rmsnorm").

    The claim is a case line: what it names (sizes, where ranges are allowed, types, attributes, optional arguments, a distribution) is what
    kernels take, everything else varies. Every grading draws inputs that nobody has seen, unless a nonce is given. Options: calls (40),
    nonce, mode ("golden"; a GPU's mode asks for its bits), threads, seconds (for a call), explain_seconds, same_bits."""

    def __init__(self, claim: str, **options: Any) -> None:
        self.claim, self.options = claim, options

    def grade(self, kernel: str | None = None, *, command: Sequence[str] | None = None, torch: str | None = None) -> Grade:
        """kernel: FILE.py:FUNCTION or MODULE:FUNCTION, run by dodona.serve in a process of its own that does not find this package by
        way of this one; torch: the device where it gets torch tensors, instead of NumPy arrays. command: any other program, see
        docs/grading.md."""
        if (kernel is None) == (command is None):
            raise fail("takes a kernel or a command", kind=BadValue, code="bad_option", argument="grade")
        words = list(command) if command is not None else self._served(kernel or "", torch)
        listed = (ctypes.c_char_p * len(words))(*(os.fsencode(word) for word in words))
        options = options_bytes(self.options)
        handle: Handle = made(
            lambda place: lib.dodona_grade(text_bytes(self.claim, "claim", "a case line"), listed, len(words), options, place), lib.dodona_record_free
        )
        return Grade(lib.dodona_record_text(handle.value).decode())

    @staticmethod
    def _served(kernel: str, torch: str | None) -> list[str]:
        words = ["env", "-u", "PYTHONPATH", "-u", "DODONA_LIBRARY", sys.executable, str(Path(__file__).with_name("serve.py")), kernel]
        return words + (["--torch", torch] if torch is not None else [])


__all__ = ["Grade", "Grader"]
