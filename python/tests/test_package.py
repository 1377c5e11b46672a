"""The package's metadata: what pyproject.toml says is what is here."""

import ast
import importlib
import pathlib
import re

import dodona

try:
    import tomllib
except ImportError:  # before Python 3.11
    import tomli as tomllib

ROOT = pathlib.Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_version_is_the_librarys():
    assert PROJECT["project"]["version"] == dodona.__version__
    assert f"VERSION {dodona.__version__} " in (ROOT.parent / "CMakeLists.txt").read_text()


def test_every_file_of_the_package_is_in_the_wheel():
    (package,) = PROJECT["tool"]["scikit-build"]["wheel"]["packages"]
    assert (ROOT / package).resolve() == pathlib.Path(dodona.__file__).parent.resolve()
    assert (ROOT / package / "py.typed").exists()
    for path in (ROOT / package).rglob("*.py"):
        assert (path.parent / "__init__.py").exists(), f"{path} stands in a folder that is no package"


def test_the_wheel_gets_the_library_under_the_name_that_is_looked_for():
    (target,) = PROJECT["tool"]["scikit-build"]["build"]["targets"]
    text = (ROOT / "CMakeLists.txt").read_text()
    assert f"install(TARGETS {target} LIBRARY DESTINATION dodona)" in text
    assert f"add_library({target} SHARED" in (ROOT.parent / "CMakeLists.txt").read_text()
    assert f"set_target_properties({target} PROPERTIES OUTPUT_NAME dodona " in (ROOT.parent / "CMakeLists.txt").read_text()
    assert 'with_name("libdodona.so")' in (ROOT / "dodona" / "_library.py").read_text()


def test_entry_points_and_files_exist():
    for group in PROJECT["project"]["entry-points"].values():
        for module in group.values():
            assert importlib.import_module(module)
    assert (ROOT / PROJECT["project"]["readme"]).exists()


def test_only_numpy_is_required():
    assert [re.match(r"[\w-]+", requirement).group() for requirement in PROJECT["project"]["dependencies"]] == ["numpy"]


def test_the_oldest_python_that_is_promised_can_read_the_sources():
    oldest = tuple(int(part) for part in re.fullmatch(r">=(\d+)\.(\d+)", PROJECT["project"]["requires-python"]).groups())
    for path in (ROOT / "dodona").rglob("*.py"):
        ast.parse(path.read_text(), str(path), feature_version=oldest)
