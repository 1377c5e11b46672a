"""The pytest plug-in, from the outside: its runs are pytest runs."""

import os

import pytest


@pytest.fixture
def inner(pytester, request):
    """Runs tests in a folder of their own, with the plug-in."""

    def run(source, *options):
        pytester.makepyfile(source)
        installed = request.config.pluginmanager.hasplugin("dodona.pytest_plugin") and "-p" not in request.config.invocation_params.args
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *([] if installed else ["-p", "dodona.pytest_plugin"]), *options)

    return run


RIGHT = """
    import pytest

    @pytest.mark.dodona("rmsnorm T=2 H=16", "rmsnorm T=1 H=32 --seed 4")
    def test_kernel(dodona):
        dodona.check(dodona.rmsnorm(**dodona.case.arguments()))
"""

WRONG = """
    import numpy, pytest

    @pytest.mark.dodona("rmsnorm T=2 H=16 --dtype input=f32")
    def test_kernel(dodona):
        y = dodona.case.golden()["output"].copy()
        y[1, 3] += 1
        dodona.check(y)
"""


def test_a_marker_runs_the_test_once_for_each_line(inner):
    inner(RIGHT).assert_outcomes(passed=2)


def test_a_failure_shows_the_verdict_and_the_line(inner):
    result = inner(WRONG)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*- dodona -*", "*1 of 32 elements*", "*reproduce: dodona gen rmsnorm H=16 T=2 --dtype input=f32*"])


def test_a_verdict_that_compared_nothing_fails(inner):
    result = inner(
        """
        import pytest

        @pytest.mark.dodona("trtllm_batch_decode_with_kv_cache_mla B=1 Q=1 N=2 pages=2 P=32 W=1 --attr bmm1_scale=1e36")
        def test_kernel(dodona):
            dodona.check(dodona.case.golden())
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*out: vacuous*", "*nothing was compared*"])


def test_pages_are_written_where_asked(inner, pytester):
    result = inner(WRONG, "--dodona-report", "pages")
    pages = os.listdir(pytester.path / "pages")
    assert len(pages) == 1 and pages[0].endswith(".html")
    assert "<html" in (pytester.path / "pages" / pages[0]).read_text()
    result.stdout.fnmatch_lines([f"report: *{pages[0]}"])


def test_without_a_marker_the_case_is_named_in_the_call(inner):
    inner(
        """
        def test_kernel(dodona):
            line = "rmsnorm T=2 H=16"
            dodona.check(dodona.golden(line), case=line)
        """
    ).assert_outcomes(passed=1)
    result = inner("def test_kernel(dodona):\n    dodona.case")
    result.stdout.fnmatch_lines(["*no case line*"])
