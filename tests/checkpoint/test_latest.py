"""Which checkpoint a run resumes from: the one that is promised, else the newest whole one."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from paceline.checkpoint import (
    CheckpointError,
    Saver,
    best_checkpoint,
    fingerprint,
    latest_checkpoint,
    list_checkpoints,
    read_latest,
    record_metrics,
    save,
)

SHARD = "data-00000-of-00001.safetensors"


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    for step in (5, 10, 100):
        save(tmp_path, step, {"x": np.arange(3)})
    return tmp_path


@pytest.fixture(autouse=True)
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, logger="paceline")
    return lambda: [record.getMessage() for record in caplog.records]


def test_b11_latest_is_the_one_saved_last(model_dir: Path, warnings: Callable) -> None:
    assert latest_checkpoint(model_dir) == str(model_dir / "model.ckpt-100")
    assert warnings() == []


def test_all_are_listed_by_step(model_dir: Path) -> None:
    expected = [(str(model_dir / f"model.ckpt-{step}"), step) for step in (5, 10, 100)]
    assert list_checkpoints(str(model_dir)) == expected


def test_a_directory_moved_elsewhere_still_knows_its_latest(model_dir: Path) -> None:
    moved = model_dir.rename(model_dir.with_name("moved"))
    assert latest_checkpoint(moved) == str(moved / "model.ckpt-100")


@pytest.mark.parametrize("name", [".", "absent"])
def test_where_nothing_was_saved_there_is_no_latest_and_no_fuss(
    tmp_path: Path, name: str, warnings: Callable
) -> None:
    assert latest_checkpoint(tmp_path / name) is None
    assert list_checkpoints(tmp_path / name) == []
    assert warnings() == []


def test_editing_the_state_file_goes_back(model_dir: Path) -> None:
    file = model_dir / "checkpoint"
    file.write_text(file.read_text().replace("model.ckpt-100", "model.ckpt-5", 1))
    assert latest_checkpoint(model_dir) == str(model_dir / "model.ckpt-5")


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff\xfe", b'model_checkpoint_path: "x"'])
def test_an_unreadable_state_file_gives_a_warning_and_the_newest(
    model_dir: Path, content: bytes, warnings: Callable
) -> None:
    (model_dir / "checkpoint").write_bytes(content)
    assert latest_checkpoint(model_dir) == str(model_dir / "model.ckpt-100")
    assert len(warnings()) == 1
    assert "checkpoint' is unreadable" in warnings()[0]


def test_a_checkpoint_that_a_killed_save_could_not_list_is_the_latest_and_it_says_so(
    model_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="paceline")
    before = (model_dir / "checkpoint").read_text()
    path = save(model_dir, 200, {"x": np.arange(3)})
    (model_dir / "checkpoint").write_text(before)
    assert latest_checkpoint(model_dir) == latest_checkpoint(model_dir, verify=True) == path
    assert f"'{path}' is newer than those that the state file lists" in caplog.text
    save(model_dir, 201, {"x": np.arange(3)})
    caplog.clear()
    assert latest_checkpoint(model_dir) == str(model_dir / "model.ckpt-201")
    assert caplog.text == ""


def test_one_that_is_not_listed_because_it_is_old_is_not(
    model_dir: Path, warnings: Callable
) -> None:
    """A reader may have kept it from being deleted."""
    shutil.copytree(model_dir / "model.ckpt-100", model_dir / "kept")
    save(model_dir, 7, {"x": np.arange(3)}, keep_max=1)
    (model_dir / "kept").rename(model_dir / "model.ckpt-100")
    assert latest_checkpoint(model_dir) == str(model_dir / "model.ckpt-7")
    assert warnings() == []


def test_a_damaged_one_that_is_not_listed_is_passed_over_with_a_warning(
    model_dir: Path, warnings: Callable
) -> None:
    before = (model_dir / "checkpoint").read_text()
    flip_in_shard(Path(save(model_dir, 200, {"x": np.arange(3)})))
    (model_dir / "checkpoint").write_text(before)
    assert latest_checkpoint(model_dir, verify=True) == str(model_dir / "model.ckpt-100")
    assert len(warnings()) == 1
    assert "model.ckpt-200" in warnings()[0]


FIND = {
    "latest": latest_checkpoint,
    "verified": lambda path: latest_checkpoint(path, verify=True),
    "read": read_latest,
    "save": lambda path: save(path, 1, {}),
    "job": Saver,
}


@pytest.mark.parametrize("find", FIND.values(), ids=FIND.keys())
def test_a_directory_of_tensorflows_is_refused_and_left_as_it_is(
    tmp_path: Path, find: Callable[[Path], object]
) -> None:
    """It is no empty one: training would begin at step 0, and overwrite its state file."""
    state = 'model_checkpoint_path: "model.ckpt-1000"\n'
    (tmp_path / "checkpoint").write_text(state)
    for suffix in ("index", "data-00000-of-00001", "meta"):
        (tmp_path / f"model.ckpt-1000.{suffix}").write_text("")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(
        CheckpointError, match=r"TensorFlow's \(model\.ckpt-1000\.index\).*choose another model_dir"
    ):
        find(tmp_path)
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "checkpoint").read_text() == state


def test_a_missing_state_file_gives_a_warning_and_the_newest(
    model_dir: Path, warnings: Callable
) -> None:
    (model_dir / "checkpoint").unlink()
    assert latest_checkpoint(model_dir) == str(model_dir / "model.ckpt-100")
    assert "there is no state file" in warnings()[0]


DAMAGES: dict[str, Callable[[Path], object]] = {
    "directory gone": shutil.rmtree,
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "half a manifest": lambda path: (path / "manifest.json").write_text('{"sha256": '),
    "no shard": lambda path: (path / SHARD).unlink(),
    "half a shard": lambda path: (path / SHARD).write_bytes(b"half"),
    "another step's": lambda path: shutil.copytree(
        path.with_name("model.ckpt-5"), path, dirs_exist_ok=True
    ),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_b11_latest_that_is_damaged_gives_a_warning_and_the_newest_whole_one(
    model_dir: Path, damage: Callable[[Path], object], warnings: Callable
) -> None:
    damage(model_dir / "model.ckpt-100")
    assert latest_checkpoint(model_dir) == str(model_dir / "model.ckpt-10")
    assert "model.ckpt-100" in warnings()[0]
    assert [step for _, step in list_checkpoints(model_dir)] == [5, 10]


def test_b12_silent_step_0_but_an_error_if_all_are_damaged(model_dir: Path) -> None:
    for path, _ in list_checkpoints(model_dir):
        (Path(path) / "manifest.json").write_text("{}")
    with pytest.raises(
        CheckpointError, match=r"no checkpoint .* is whole.*model\.ckpt-100.*step 0"
    ):
        latest_checkpoint(model_dir)


def test_a_state_file_without_any_checkpoint_gives_a_warning_and_none(
    model_dir: Path, warnings: Callable
) -> None:
    """The user deleted the checkpoints to start afresh."""
    for path, _ in list_checkpoints(model_dir):
        shutil.rmtree(path)
    assert latest_checkpoint(model_dir) is None
    assert "holds no checkpoint" in warnings()[0]


def test_a_model_dir_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for search in (latest_checkpoint, list_checkpoints):
        with pytest.raises(CheckpointError, match=r"model_dir .*file.*in the way"):
            search(tmp_path / "file")


def flip_in_shard(path: Path) -> None:
    shard = path / SHARD
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)


def test_a_flipped_bit_is_found_and_skipped_where_latest_verifies(
    model_dir: Path, warnings: Callable
) -> None:
    flip_in_shard(model_dir / "model.ckpt-100")
    assert latest_checkpoint(model_dir) == str(model_dir / "model.ckpt-100")
    assert warnings() == []
    assert latest_checkpoint(model_dir, verify=True) == str(model_dir / "model.ckpt-10")
    assert any("bytes of tensor 'x' do not fit" in message for message in warnings())


def test_a_verified_latest_passes_over_any_number_of_damaged_ones(model_dir: Path) -> None:
    (model_dir / "model.ckpt-100" / SHARD).unlink()
    flip_in_shard(model_dir / "model.ckpt-10")
    assert latest_checkpoint(model_dir, verify=True) == str(model_dir / "model.ckpt-5")
    flip_in_shard(model_dir / "model.ckpt-5")
    with pytest.raises(CheckpointError, match=r"no checkpoint .* is whole.*newest because .*-100/"):
        latest_checkpoint(model_dir, verify=True)


def test_where_nothing_was_saved_verifying_finds_nothing_either(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path, verify=True) is None


def test_a_fingerprint_changes_with_what_there_is_to_be_found_and_only_then(tmp_path: Path) -> None:
    seen = [fingerprint(tmp_path)]
    for act in (
        lambda: save(tmp_path, 1, {}),
        lambda: save(tmp_path, 1, {}),
        lambda: save(tmp_path, 2, {}),
        lambda: shutil.rmtree(tmp_path / "model.ckpt-2"),
    ):
        act()
        record_metrics(tmp_path / "model.ckpt-1", {"loss": len(seen)})
        seen += [fingerprint(tmp_path)]
        assert fingerprint(tmp_path) == seen[-1]
    assert len(set(seen)) == 5


def test_the_best_of_those_that_were_evaluated(tmp_path: Path) -> None:
    assert best_checkpoint(tmp_path, "loss") is None
    for step, loss in ((1, 3.0), (2, 1.0), (3, 1.0), (4, float("nan"))):
        record_metrics(save(tmp_path, step, {}), {"loss": loss})
    save(tmp_path, 5, {})
    assert best_checkpoint(tmp_path, "loss") == str(tmp_path / "model.ckpt-3")
    assert best_checkpoint(tmp_path, "loss", "max") == str(tmp_path / "model.ckpt-1")
    assert best_checkpoint(tmp_path, "accuracy") is None
