"""What is installed, what importing it costs and does, and what the public names are."""

import ast
import configparser
import os
import shutil
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path

import pytest

import paceline

ROOT = Path(__file__).parents[2]


def run_python(code, **environ):
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
        cwd="/",
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.mark.parametrize("name", ["ones", "full", "eye", "identity", "tri"])
def test_no_array_is_made_by_what_cupy_would_refuse(name):
    """NumPy writes these in Python, and with `like=` they hand on `device=None`."""
    calls = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in ROOT.rglob("*.py")
        if not {".venv", "build", "tests"} & set(path.relative_to(ROOT).parts)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == f"np.{name}"
        if any(keyword.arg == "like" for keyword in node.keywords)
    ]
    assert not calls, "use autodiff's `filled` and `identity`"


def test_setup_cfg_lists_every_package():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    outside = {".venv", "build", "tests", "examples", "benchmarks", "docs"}
    there = {
        ".".join(["paceline", *path.parent.relative_to(ROOT).parts])
        for path in ROOT.rglob("__init__.py")
        if not outside & set(path.relative_to(ROOT).parts)
    }
    assert listed == there


def test_the_wheel_holds_no_tests(tmp_path):
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__", "runs")
    shutil.copytree(ROOT, source, ignore=ignored)
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, source],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "paceline/py.typed" in names
    assert "paceline/estimator/estimator.py" in names
    strays = ("tests/", "/tests/", "examples/", "benchmarks/")
    assert not [n for n in names if any(s in n for s in strays)]


def seen_by_type_checkers():
    """Name → the package that it comes from, in the imports that only type checkers read."""
    tree = ast.parse((ROOT / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@pytest.mark.parametrize("name", paceline.__all__)
def test_every_public_name_is_what_type_checkers_take_it_for(name):
    package = seen_by_type_checkers()[name]
    home = import_module(f"paceline.{package}") if package else paceline
    expected = getattr(home, name) if package else import_module(f"paceline.{name}")
    assert getattr(paceline, name) is expected


def test_type_checkers_see_the_public_names_and_no_others():
    assert set(seen_by_type_checkers()) == set(paceline.__all__)


def test_editors_see_the_public_names_before_they_are_used():
    run_python("""
import paceline
assert set(paceline.__all__) <= set(dir(paceline))
""")


def test_a_name_that_does_not_exist_is_refused_like_that_of_any_module():
    with pytest.raises(AttributeError, match="module 'paceline' has no attribute 'Optimiser'"):
        _ = paceline.Optimiser


def test_public_names_are_listed_in_order():
    packages = [paceline, paceline.nn, paceline.inputs, paceline.strategies, paceline.autodiff]
    for package in (*packages, paceline.checkpoint, paceline.estimator):
        capitals_first = sorted(package.__all__, key=lambda n: (not n[0].isupper(), n))
        assert len(set(package.__all__)) == len(package.__all__)
        assert set(package.__all__) == set(capitals_first)


def test_importing_loads_nothing_but_the_public_face():
    loaded = run_python("""
import sys
import paceline
print(*sorted(name for name in sys.modules if name.startswith("paceline.")))
for library in ("numpy", "pydantic", "grpc", "mpi4py", "rich", "multiprocessing"):
    assert library not in sys.modules, library
""")
    assert loaded == ""


OF_PARAMETER_SERVERS = [
    "paceline.strategies.parameter_server",
    "paceline.collectives.parameter_server",
    "paceline.collectives.session",
]


@pytest.mark.parametrize(
    ("name", "libraries"),
    [
        ("Tensor", ["pydantic"]),
        ("Dataset", ["pydantic", "multiprocessing", "csv"]),
        ("MirroredStrategy", ["pydantic", *OF_PARAMETER_SERVERS]),
        ("Estimator", ["multiprocessing", *OF_PARAMETER_SERVERS]),
    ],
)
def test_a_name_loads_only_what_its_package_needs(name, libraries):
    run_python(f"""
import sys
import paceline
paceline.{name}
assert not sys.modules.keys() & {libraries}, sys.modules.keys() & {libraries}
""")


def test_using_all_names_needs_no_backend_and_starts_nothing():
    run_python("""
import os, sys, threading
before = dict(os.environ)
from paceline import *
assert dict(os.environ) == before
assert threading.active_count() == 1
unwanted = {"cupy", "mpi4py", "grpc", "numba", "rich", "sklearn", "torch"}
loaded = unwanted & set(sys.modules)
assert not loaded, loaded
""")


def test_using_all_names_takes_less_than_80_mb():
    peak = run_python("""
from paceline import *
status = open("/proc/self/status").read()
print(next(l.split()[1] for l in status.splitlines() if l.startswith("VmRSS")))
""")
    assert int(peak) < 80 * 1024
