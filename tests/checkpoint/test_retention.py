"""Which checkpoints remain, and what the state file says of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paceline.checkpoint import latest_checkpoint, list_checkpoints, save
from paceline.checkpoint._retention import Saved, checkpoints_to_delete
from paceline.checkpoint._state_file import format_state, parse_state, read_state


def history(*steps: int) -> list[Saved]:
    return [Saved(step, float(index)) for index, step in enumerate(steps)]


def steps_on_disk(model_dir: Path) -> list[int]:
    return [step for _, step in list_checkpoints(model_dir)]


@pytest.mark.parametrize(
    ("saved", "keep_max", "deleted"),
    [
        ([], 5, []),
        ([1, 2, 3], 5, []),
        ([1, 2, 3], 3, []),
        ([1, 2, 3, 4], 3, [1]),
        ([1, 2, 3, 4, 5, 6, 7], 2, [1, 2, 3, 4, 5]),
        ([30, 40, 10, 20], 2, [30, 40]),
        ([1, 2, 3], None, []),
        ([1, 2, 3], 0, []),
    ],
)
def test_the_oldest_beyond_the_limit_are_deleted_down_to_the_limit(
    saved: list[int], keep_max: int | None, deleted: list[int]
) -> None:
    """D-12: not one a save, but as many as it takes."""
    doomed = checkpoints_to_delete(history(*saved), keep_max)
    assert [entry.step for entry in doomed] == deleted


def test_a_negative_limit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"keep_max must be at least 0, or None .* got -1"):
        save(tmp_path / "new", 1, {}, keep_max=-1)
    assert not (tmp_path / "new").exists()


def test_ck_05_seven_saves_leave_the_last_five(tmp_path: Path) -> None:
    for step in range(7):
        save(tmp_path, step, {})
    assert steps_on_disk(tmp_path) == [2, 3, 4, 5, 6]


def test_d_12_lowering_the_limit_deletes_down_to_it(tmp_path: Path) -> None:
    for step in range(5):
        save(tmp_path, step, {})
    save(tmp_path, 5, {}, keep_max=2)
    assert steps_on_disk(tmp_path) == [4, 5]


@pytest.mark.parametrize("keep_max", [0, None])
def test_no_limit_keeps_all(tmp_path: Path, keep_max: int | None) -> None:
    for step in range(7):
        save(tmp_path, step, {}, keep_max=keep_max)
    assert steps_on_disk(tmp_path) == list(range(7))


def test_training_that_went_back_keeps_what_it_saved_last(tmp_path: Path) -> None:
    for step in (10, 20, 30, 5):
        save(tmp_path, step, {}, keep_max=3)
    assert steps_on_disk(tmp_path) == [5, 20, 30]
    assert latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-5")


def test_a_checkpoint_saved_again_becomes_the_newest(tmp_path: Path) -> None:
    for step in (1, 2, 1, 3):
        save(tmp_path, step, {}, keep_max=2)
    assert steps_on_disk(tmp_path) == [1, 3]


def test_checkpoints_that_the_state_file_lost_are_still_deleted_in_their_turn(
    tmp_path: Path,
) -> None:
    """A kill between the commit and the state file leaves such a one."""
    for step in (1, 2):
        save(tmp_path, step, {})
    (tmp_path / "checkpoint").unlink()
    save(tmp_path, 3, {}, keep_max=2)
    assert steps_on_disk(tmp_path) == [2, 3]


def test_a_clock_that_went_back_does_not_make_the_newest_old(tmp_path: Path) -> None:
    save(tmp_path, 1, {})
    (tmp_path / "checkpoint").write_text(format_state([Saved(1, 4e9)]))
    save(tmp_path, 2, {}, keep_max=1)
    assert steps_on_disk(tmp_path) == [2]


def test_what_is_not_named_like_a_checkpoint_is_never_deleted(tmp_path: Path) -> None:
    for name in ("model.ckpt-1.index", "model.ckpt-best", "model.ckpt-007", "eval"):
        (tmp_path / name).mkdir()
    before = set(os.listdir(tmp_path))
    for step in (1, 2):
        save(tmp_path, step, {}, keep_max=1)
    assert before < set(os.listdir(tmp_path))


def test_the_state_file_lists_the_survivors_oldest_first_with_their_times(tmp_path: Path) -> None:
    for step in (10, 20, 15):
        save(tmp_path, step, {}, keep_max=2)
    lines = (tmp_path / "checkpoint").read_text().splitlines()
    assert lines[:3] == [
        'model_checkpoint_path: "model.ckpt-15"',
        'all_model_checkpoint_paths: "model.ckpt-20"',
        'all_model_checkpoint_paths: "model.ckpt-15"',
    ]
    times = [float(line.removeprefix("all_model_checkpoint_timestamps: ")) for line in lines[3:]]
    assert len(times) == 2
    assert times == sorted(times)


def test_the_state_file_reads_back_as_written() -> None:
    state = parse_state(format_state(history(10, 20, 15)))
    assert (state.latest_step, list(state.history)) == (15, history(10, 20, 15))


def test_fields_of_other_writers_and_comments_are_passed_over() -> None:
    text = '# back to 5\nmodel_checkpoint_path: "model.ckpt-5"\n\nlast_preserved_timestamp: 1.5\n'
    assert parse_state(text).latest_step == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must hold model_checkpoint_path once, found 0"),
        ('model_checkpoint_path: "model.ckpt-5"\n' * 2, "once, found 2"),
        ("nonsense", "line 1 is not of the form 'field: value'"),
        ('model_checkpoint_path: "../other/model.ckpt-5"', "must look like"),
        ("model_checkpoint_path: model.ckpt-5", "must look like"),
        ('model_checkpoint_path: ""', "must look like"),
        ("model_checkpoint_path:", "must look like"),
        (
            'model_checkpoint_path: "model.ckpt-5"\nall_model_checkpoint_paths: "model.ckpt-5"',
            "1 paths but 0 timestamps",
        ),
        (format_state([Saved(5, float("inf"))]), "must be finite"),
    ],
)
def test_a_state_file_that_says_something_else_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_state(text)


def test_no_state_file_is_no_error(tmp_path: Path) -> None:
    assert read_state(str(tmp_path)) is None
