"""`paceline doctor`: which backends work here, and why the others do not (D-08)."""

import importlib.util
import os
import sys

import pytest

from paceline.cluster import doctor


@pytest.fixture(scope="module")
def diagnoses():
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("OPENBLAS", "PACELINE"))}
    return doctor.diagnose(environ | {"OPENBLAS_CORETYPE": "Haswell"})


def test_d_08_every_part_is_named_with_its_version_or_a_reason(diagnoses):
    parts = [found.part for found in diagnoses]
    for part in ("Python", "NumPy", "malloc", "grpcio", "mpi4py", "mpirun", "CuPy"):
        assert part in parts
    assert "kernels" in parts
    assert {found.state for found in diagnoses} <= {"ok", "warning", "absent", "broken"}
    assert all(found.text for found in diagnoses)


def test_what_paceline_needs_is_here(diagnoses):
    states = {found.part: found.state for found in diagnoses if found.part != "NumPy"}
    for part in ("Python", "pydantic", "rich", "grpcio"):
        assert states[part] == "ok"


@pytest.mark.parametrize(
    ("requirement", "installed", "is_told"),
    [
        ("numpy>=2.2", "2.1.3", True),
        ("numpy>=2.2", "2.2.0", False),
        ("numpy>=2.2", "2.10.1", False),
        ("rich>=13", "12.6.0", True),
        ("rich>=13", "13.0.0rc1", False),
        ('mpi4py>=4; extra == "mpi"', "3.1.6", True),
        ('mpi4py>=4; extra == "mpi"', None, False),
        ("fsspec", "2020.1", False),
    ],
)
def test_a_package_older_than_the_metadata_asks_for_is_told(requirement, installed, is_told):
    found = list(doctor.examine_versions([requirement, requirement], lambda name: installed))
    assert len(found) == is_told
    for diagnosis in found:
        assert diagnosis.state == "broken"
        assert f"version {installed} is installed, but paceline needs" in diagnosis.text
        assert "pip install --upgrade '" in diagnosis.text


def test_what_is_not_installed_says_how_to_install_it(diagnoses):
    for found in diagnoses:
        if "not installed" in found.text:
            assert found.state == "absent"
            assert "pip install" in found.text


def test_the_compiled_loops_in_use_are_named(diagnoses):
    (found,) = [found for found in diagnoses if found.part == "kernels"]
    numba = importlib.util.find_spec("numba")
    assert found.state == ("ok" if numba else "absent")
    assert ("compiled by numba" if numba else "paceline[fast]") in found.text


def test_a_forced_blas_kernel_is_warned_of(diagnoses):
    (found,) = [found for found in diagnoses if "OPENBLAS_CORETYPE" in found.text]
    assert found.state == "warning"
    assert "unset" in found.text


@pytest.mark.parametrize(
    ("value", "state", "text"),
    [
        ("", "absent", "secrets.token_hex"),
        ("guess", "broken", "at least 16 characters"),
        ("0123456789abcdef", "ok", "PACELINE_TOKEN is set"),
    ],
)
def test_e3_the_secret_of_the_job_is_judged_but_not_shown(value, state, text):
    found = doctor.examine_token({"PACELINE_TOKEN": value})
    assert found.state == state
    assert text in found.text
    assert not value or value not in found.text


def test_blas_says_its_kernels_and_threads():
    core, threads = doctor.openblas_core()
    assert (core == "") == (threads == 0)


def test_a_secret_in_a_file_is_told_by_the_name_of_the_variable_of_files(tmp_path):
    path = tmp_path / "token"
    path.write_text("0123456789abcdef")
    path.chmod(0o600)
    found = doctor.examine_token({"PACELINE_TOKEN_FILE": str(path)})
    assert (found.state, found.text) == ("ok", "PACELINE_TOKEN_FILE is set")


@pytest.mark.parametrize(
    ("code", "works", "text"),
    [
        ("print('1.2')", True, "1.2"),
        ("import no_such_library", False, "ModuleNotFoundError: No module named 'no_such_library'"),
        ("import os; os._exit(3)", False, "exit code 3"),
    ],
)
def test_a_library_is_tried_in_a_process_of_its_own(code, works, text):
    assert doctor.try_python(code) == (works, text)


def test_the_examination_imports_no_backend_into_this_process(diagnoses):
    assert not {"mpi4py.MPI", "cupy"} & set(sys.modules)
