"""What is installed, what importing it costs and does, and what the public names are."""

import configparser
import os
import shutil
import subprocess
import sys
import zipfile
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


@pytest.mark.parametrize("name", paceline.__all__)
def test_every_public_name_is_there(name):
    assert getattr(paceline, name) is not None


def test_public_names_are_listed_in_order():
    packages = [paceline, paceline.nn, paceline.inputs, paceline.strategies, paceline.autodiff]
    for package in (*packages, paceline.checkpoint, paceline.estimator):
        capitals_first = sorted(package.__all__, key=lambda n: (not n[0].isupper(), n))
        assert len(set(package.__all__)) == len(package.__all__)
        assert set(package.__all__) == set(capitals_first)


def test_importing_needs_no_backend_and_starts_nothing():
    code = """
import os, sys, threading
before = dict(os.environ)
import paceline
assert dict(os.environ) == before
assert threading.active_count() == 1
loaded = {"cupy", "mpi4py", "grpc", "rich", "safetensors", "sklearn", "torch"} & set(sys.modules)
assert not loaded, loaded
"""
    run_python(code)


def test_importing_takes_less_than_80_mb():
    peak = run_python("""
import paceline
status = open("/proc/self/status").read()
print(next(l.split()[1] for l in status.splitlines() if l.startswith("VmRSS")))
""")
    assert int(peak) < 80 * 1024
