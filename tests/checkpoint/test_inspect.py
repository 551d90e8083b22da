"""`paceline inspect`: what it prints, and its exit codes."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from paceline.checkpoint import TensorSlice, record_metrics, save, save_export
from paceline.checkpoint.inspect import (
    Statistics,
    add_inspect_arguments,
    run_inspect,
    statistics_of,
)

SHARD = "data-00000-of-00001.safetensors"
KERNEL = np.array([[1.0, -2.0], [3.0, 4.0]], np.float32)
Run = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture) -> Run:
    """Carries out the command; exit code, lines of output, and what went to stderr."""

    def run(*arguments: object) -> tuple[int, list[str], str]:
        parser = argparse.ArgumentParser()
        add_inspect_arguments(parser)
        code = run_inspect(parser.parse_args([str(argument) for argument in arguments]))
        out, err = capsys.readouterr()
        return code, out.splitlines(), err

    return run


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    save(tmp_path, 5, {"kernel": KERNEL, "bias": np.zeros(2, np.float16)})
    halves = [TensorSlice(KERNEL[:1], (0, 0), (2, 2)), TensorSlice(KERNEL[1:], (1, 0), (2, 2))]
    save(tmp_path, 10, {"kernel": halves, "steps": np.array(3)}, state={"position": 17})
    return tmp_path


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_a_model_dir_is_listed_with_steps_sizes_and_the_latest(model_dir: Path, run: Run) -> None:
    record_metrics(model_dir / "model.ckpt-5", {"accuracy": 0.875})
    code, lines, err = run(model_dir)
    assert (code, err) == (0, "")
    assert lines[0].split() == ["step", "written", "size", "tensors", "writers"]
    assert lines[1].split()[0] == "5"
    assert lines[1].endswith("accuracy 0.875")
    assert lines[2].split()[0] == "10"
    assert lines[2].endswith("latest")
    assert f"{(model_dir / 'model.ckpt-5' / SHARD).stat().st_size} B" in lines[1]


def test_a_checkpoint_is_listed_with_the_statistics_of_its_tensors(
    model_dir: Path, run: Run
) -> None:
    code, lines, _ = run(model_dir / "model.ckpt-10")
    assert code == 0
    assert lines[0].startswith("step 10, written 20")
    rows = {line.split()[0]: line.split()[1:] for line in lines[2:-2]}
    assert rows["tensor"] == ["shape", "dtype", "min", "mean", "max", "norm", "not", "finite"]
    assert rows["kernel"] == ["(2,", "2)", "float32", "-2", "1.5", "4", "5.47723"]
    assert rows["steps"] == ["()", "int64", "3", "3", "3", "3"]
    assert lines[-1] == "state: position"


@pytest.mark.parametrize("target", ["", "model.ckpt-5"])
def test_damage_is_named_and_the_rest_is_shown(model_dir: Path, run: Run, target: str) -> None:
    flip(model_dir / "model.ckpt-5" / SHARD)
    code, lines, err = run(model_dir / target, "--verify")
    assert code == 1
    assert sum("damaged" in line for line in lines) == 1
    assert "do not fit its checksum" in err
    rest = "kernel" if target else "10"
    assert any(line.startswith(rest) for line in lines)


def test_without_verify_a_model_dir_is_listed_without_reading_tensors(
    model_dir: Path, run: Run
) -> None:
    flip(model_dir / "model.ckpt-5" / SHARD)
    assert run(model_dir)[0] == 0
    (model_dir / "model.ckpt-5" / SHARD).unlink()
    assert run(model_dir)[0] == 1


def test_two_checkpoints_are_compared_whatever_slices_they_are_in(
    model_dir: Path, run: Run
) -> None:
    code, lines, _ = run(model_dir / "model.ckpt-5", "--compare", model_dir)
    assert code == 1
    assert {line.split("  ")[0]: line.split("  ")[-1].strip() for line in lines[4:]} == {
        "bias": "only in the first",
        "steps": "only in the second",
    }


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (KERNEL, KERNEL, "all 1 tensors are the same bit for bit"),
        (KERNEL, KERNEL + np.eye(2, dtype=np.float32) / 2, "2 of 4 elements, by 0.5 at most"),
        (KERNEL, KERNEL[0], "float32 (2, 2) and float32 (2,)"),
        (KERNEL, KERNEL.astype(float), "float32 (2, 2) and float64 (2, 2)"),
        (np.array([np.nan, 1]), np.array([np.nan, 1]), "all 1 tensors are the same bit for bit"),
        (np.array([np.nan, 1]), np.array([np.nan, 3]), "1 of 2 elements, by 2 at most"),
        (np.array([0.0]), np.array([-0.0]), "0 of 1 elements, by 0 at most"),
        (np.array([True]), np.array([False]), "1 of 1 elements, by 1 at most"),
    ],
)
def test_what_differs_is_said(
    tmp_path: Path, run: Run, one: np.ndarray, other: np.ndarray, expected: str
) -> None:
    paths = [save(tmp_path / str(i), 1, {"x": x}) for i, x in enumerate((one, other))]
    code, lines, _ = run(paths[0], "--compare", paths[1])
    assert lines[-1].endswith(expected)
    assert code == int("same" not in expected)


@pytest.mark.parametrize("name", ["", "absent", "file"])
@pytest.mark.parametrize("compare", [False, True])
def test_where_there_is_nothing_to_look_at_it_says_so(
    tmp_path: Path, run: Run, name: str, compare: bool
) -> None:
    (tmp_path / "file").touch()
    code, lines, err = run(tmp_path / name, *(["--compare", tmp_path] if compare else []))
    assert (code, lines) == (2, [])
    assert err.startswith("paceline inspect: ")


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (KERNEL, Statistics(-2, 1.5, 4, math.sqrt(30), 0)),
        (np.array([np.inf, 2, np.nan]), Statistics(2, 2, 2, 2, 2)),
        (np.full(3_000_000, 60_000, np.float16), Statistics(6e4, 6e4, 6e4, 6e4 * 3e6**0.5, 0)),
        (np.array([True, False]), Statistics(0, 0.5, 1, 1, 0)),
        (np.array(7, np.uint8), Statistics(7, 7, 7, 7, 0)),
    ],
)
def test_statistics_are_those_of_the_finite_elements(
    array: np.ndarray, expected: Statistics
) -> None:
    found = statistics_of(array)
    assert found.num_not_finite == expected.num_not_finite
    np.testing.assert_allclose(
        [found.min, found.mean, found.max, found.norm],
        [expected.min, expected.mean, expected.max, expected.norm],
        rtol=1e-12,
    )


@pytest.mark.parametrize("array", [np.zeros((0, 3)), np.array([np.nan])])
def test_where_nothing_is_finite_there_are_no_statistics(array: np.ndarray) -> None:
    found = statistics_of(array)
    assert math.isnan(found.min)
    assert found.norm == 0
    assert found.num_not_finite == array.size


def test_text_of_files_moves_no_cursor_and_forges_no_line(tmp_path: Path, run: Run) -> None:
    evil = "w\x1b]0;owned\x07\x1b[2J\u202e\n12:00:00 ERROR forged"
    path = Path(save(tmp_path, 1, {evil: KERNEL}, state={evil: 1}))
    shown = r"w\x1b]0;owned\x07\x1b[2J\u202e\n12:00:00 ERROR forged"
    record_metrics(path, {evil: 1.0})
    for target in (path, tmp_path):
        code, lines, err = run(target)
        assert (code, err) == (0, "")
        assert any(shown in line for line in lines)
        assert all(line.isprintable() for line in lines)
    flip(path / SHARD)
    code, lines, err = run(path)
    assert code == 1
    assert shown in err
    assert all(line.isprintable() for line in (*lines, *err.splitlines()))


def test_of_an_export_it_tells_which_files_were_verified(tmp_path: Path, run: Run) -> None:
    export = Path(save_export(tmp_path, 1, {"x": KERNEL}, {"a.json": b"{}", "b/c": b"c"}))
    (export / "notes").touch()
    code, lines, err = run(export, "--verify")
    assert (code, err) == (0, "")
    assert lines[-3:] == ["files: a.json, b/c", "", "under no checksum: notes"]
    flip(export / "b" / "c")
    code, lines, err = run(export, "--verify")
    assert (code, err) == (
        1,
        f"cannot read '{export}/b/c': it does not fit its checksum in the manifest\n",
    )
