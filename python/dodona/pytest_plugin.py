"""pytest: the fixture `dodona`, a marker for case lines, the verdict in the report of a failure.

    @pytest.mark.dodona("rmsnorm T=4 H=7168", "rmsnorm T=1 H=512 --dist outliers")
    def test_my_rmsnorm(dodona):
        dodona.check(my_rmsnorm(**dodona.case.arguments()))

    def test_my_triton_kernel(dodona):                      # on a machine without a GPU: the bits that an H100 would give
        dodona.triton.run(kernel, gpu="h100")[grid](x, out, n, BLOCK=128)
        dodona.check(out, case=line)

The test runs once for each line; `dodona.case` is the case of its line. `--dodona-report DIR` writes a page for every verdict.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

_VERDICTS = pytest.StashKey[list]()


class Oracle:
    """What the fixture gives: the module's functions, and checks that end up in the report."""

    def __init__(self, request: pytest.FixtureRequest, line: str | None) -> None:
        import dodona

        self._request, self._module = request, dodona
        self.line = line
        self._case: Any = None
        request.node.stash[_VERDICTS] = []

    @property
    def case(self) -> Any:
        """The case of the marker's line."""
        if self.line is None:
            raise pytest.UsageError('the test has no case line: mark it with @pytest.mark.dodona("OP SYM=N...")')
        if self._case is None:
            self._case = self._module.gen(self.line)
        return self._case

    def check(self, outputs: Any = None, /, *, case: Any = None, mode: str | None = None, gpu: str | None = None, **named: Any) -> Any:
        """Fails the test unless the outputs pass; `case` is a Case or a line, by default the marker's."""
        __tracebackhide__ = True
        chosen = self.case if case is None else self._module.gen(case) if isinstance(case, str) else case
        verdict = chosen.check(outputs, mode=mode, gpu=gpu, **named)
        self._request.node.stash[_VERDICTS].append(verdict)
        if not verdict:
            failing = ", ".join(f"{name}: {output.outcome}" for name, output in verdict.outputs.items() if output.outcome != "pass")
            pytest.fail(f"dodona: {chosen.line or chosen.op}: {failing}", pytrace=False)
        return verdict

    @property
    def triton(self) -> Any:
        """dodona.triton: Triton kernels on this CPU with a GPU's bits. The test is skipped where Triton is not installed."""
        pytest.importorskip("triton", reason="Triton is not installed")
        import dodona.triton

        return dodona.triton

    @property
    def ptx(self) -> Any:
        """dodona.ptx: kernels as PTX."""
        import dodona.ptx

        return dodona.ptx

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("dodona").addoption("--dodona-report", metavar="DIR", help="write an HTML page for every verdict to this folder")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "dodona(line, ...): run the test once for each case line; the fixture `dodona` has the case")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("dodona")
    if marker is not None and "dodona" in metafunc.fixturenames:
        metafunc.parametrize("dodona", marker.args, indirect=True)


@pytest.fixture
def dodona(request: pytest.FixtureRequest) -> Oracle:
    """The oracle; see dodona.pytest_plugin."""
    return Oracle(request, getattr(request, "param", None))


def _write_pages(item: pytest.Item, verdicts: list) -> list[str]:
    folder = item.config.getoption("--dodona-report")
    if folder is None:
        return []
    pages = []
    Path(folder).mkdir(parents=True, exist_ok=True)
    for number, verdict in enumerate(verdicts):
        name = re.sub(r"[^A-Za-z0-9_.=-]+", "_", item.nodeid)[-150:] + (f"_{number}" if number else "") + ".html"
        page = Path(folder) / name
        page.write_text(verdict.html(), encoding="utf-8")
        pages.append(str(page))
    return pages


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Any:
    outcome = yield
    report = outcome.get_result()
    verdicts = item.stash.get(_VERDICTS, [])
    if report.when != "call" or not verdicts:
        return
    pages = _write_pages(item, verdicts)
    if not report.failed:
        return
    text = []
    for verdict in verdicts:
        if not verdict:
            text.append(verdict.text + (f"reproduce: {verdict.reproduce}\n" if verdict.reproduce else ""))
    text += [f"report: {page}" for page in pages]
    if text:
        report.sections.append(("dodona", "\n".join(text)))
