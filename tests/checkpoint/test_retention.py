"""Which checkpoints remain, and what the state file says of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.checkpoint import (
    CheckpointError,
    KeepPolicy,
    Saved,
    Saver,
    keep_any,
    keep_best,
    keep_last,
    keep_one_every_n_hours,
    keep_steps,
    latest_checkpoint,
    list_checkpoints,
    load,
    read_metrics,
    record_metrics,
    save,
)
from paceline.checkpoint.policies import checkpoints_to_delete
from paceline.checkpoint.small_files import format_state, parse_state, read_state


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
def test_b11_retention_deletes_the_oldest_down_to_the_limit(
    saved: list[int], keep_max: int | None, deleted: list[int]
) -> None:
    """D-12: not one a save, but as many as it takes."""
    doomed = checkpoints_to_delete(history(*saved), keep_last(keep_max))
    assert [entry.step for entry in doomed] == deleted


HOUR = 3600.0


def saved_at(*hours: float, metrics: dict[int, float] | None = None) -> list[Saved]:
    """Step 0, 1, … at these hours, with an accuracy for some of them."""
    noted = {step: {"accuracy": value} for step, value in (metrics or {}).items()}
    return [Saved(i, hour * HOUR, noted.get(i, {})) for i, hour in enumerate(hours)]


@pytest.mark.parametrize(
    ("hours", "every", "kept"),
    [
        ([], 1, set()),
        ([0.1, 0.5, 0.9], 1, set()),
        ([0.1, 0.5, 1.2, 1.4, 2.0], 1, {1, 3}),
        ([0.5, 5.5, 5.6], 1, {0}),
        ([1.0, 2.5, 3.1, 4.0], 2, {0, 2}),
        ([0, 100, 2000, 9000], 10_000, set()),
    ],
)
def test_b11_retention_keeps_the_last_one_of_every_n_hours(
    hours: list[float], every: float, kept: set[int]
) -> None:
    assert keep_one_every_n_hours(every)(saved_at(*hours)) == kept


def test_one_every_n_hours_stays_kept_whatever_was_deleted_between() -> None:
    """Applied after every save, as in a run, with little else kept."""
    keep = keep_any(keep_last(2), keep_one_every_n_hours(1))
    left: list[Saved] = []
    for step in range(50):
        left.append(Saved(step, step * 0.3 * HOUR))
        doomed = checkpoints_to_delete(left, keep)
        left = [saved for saved in left if saved not in doomed]
    spans = [int(saved.time_secs // HOUR) for saved in left[:-2]]
    assert spans == list(range(int(48 * 0.3)))[: len(spans)]
    assert len(spans) >= 13


@pytest.mark.parametrize(
    ("values", "num", "mode", "kept"),
    [
        ({}, 1, "max", set()),
        ({0: 0.5, 1: 0.9, 2: 0.7}, 1, "max", {1}),
        ({0: 0.5, 1: 0.9, 2: 0.7}, 2, "min", {0, 2}),
        ({0: 0.5, 2: 0.5}, 1, "min", {2}),
        ({0: float("nan"), 1: float("inf"), 2: 0.1}, 3, "max", {2}),
        ({0: 0.5}, 9, "max", {0}),
    ],
)
def test_the_best_are_kept(values: dict[int, float], num: int, mode: str, kept: set) -> None:
    keep = keep_best("accuracy", num, mode)  # type: ignore[arg-type]
    assert keep(saved_at(1, 2, 3, metrics=values)) == kept


def test_chosen_steps_are_kept_also_by_a_range() -> None:
    assert keep_steps({5, 20})(history(5, 10, 20)) == {5, 20}
    assert keep_steps(range(0, 10**15, 10))(history(5, 10, 20)) == {10, 20}


def test_policies_combine_to_what_any_of_them_keeps() -> None:
    keep = keep_any(keep_last(1), keep_steps({3}), keep_best("accuracy", mode="max"))
    entries = saved_at(*range(6), metrics={1: 0.9, 2: 0.8})
    assert keep(entries) == {1, 3, 5}
    assert [saved.step for saved in checkpoints_to_delete(entries, keep)] == [0, 2, 4]
    assert keep_any()(entries) == set()


@pytest.mark.parametrize("keep", [keep_any(), keep_steps(()), keep_best("nothing")])
def test_the_newest_is_kept_whatever_a_policy_says(keep: KeepPolicy) -> None:
    assert [saved.step for saved in checkpoints_to_delete(history(30, 10, 20), keep)] == [30, 10]
    assert checkpoints_to_delete([], keep) == []


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: keep_one_every_n_hours(0),
        lambda: keep_one_every_n_hours(float("inf")),
        lambda: keep_best("loss", 0),
        lambda: keep_best("loss", mode="least"),  # type: ignore[arg-type]
        lambda: keep_last(-1),
    ],
)
def test_policies_refuse_what_makes_no_sense(wrong: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="must be"):
        wrong()


def test_the_best_by_a_metric_noted_beside_it_survives_on_disk(tmp_path: Path) -> None:
    with Saver(tmp_path, keep_any(keep_last(2), keep_best("accuracy", mode="max"))) as saver:
        for step, accuracy in enumerate([0.1, 0.9, 0.3, 0.5, 0.2]):
            saver.save(step, {})
            saver.wait()
            path, _ = saver.finished()[0]
            record_metrics(path, {"accuracy": accuracy, "loss": 1})
            assert read_metrics(path) == {"accuracy": accuracy, "loss": 1.0}
    assert steps_on_disk(tmp_path) == [1, 3, 4]
    load(tmp_path / "model.ckpt-1").verify()


def test_metrics_need_a_checkpoint_to_be_noted_beside(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint"):
        record_metrics(tmp_path / "model.ckpt-1", {"loss": 1})


@pytest.mark.parametrize("content", ["", "[]", "{", '{"accuracy": "high"}', "null"])
def test_damaged_metrics_count_as_none(tmp_path: Path, content: str) -> None:
    path = save(tmp_path, 1, {})
    (Path(path) / "metrics.json").write_text(content)
    assert read_metrics(path) == {}


def test_a_negative_limit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"number to keep must be at least 0, or None .* got -1"):
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


def test_b11_state_file_lists_the_survivors_oldest_first_with_their_times(tmp_path: Path) -> None:
    for step in (10, 20, 15):
        save(tmp_path, step, {}, keep_max=2)
    lines = (tmp_path / "checkpoint").read_text().splitlines()
    assert lines[:3] == [
        'model_checkpoint_path: "model.ckpt-15"',
        'all_model_checkpoint_paths: "model.ckpt-20"',
        'all_model_checkpoint_paths: "model.ckpt-15"',
    ]
    assert [line.partition(" was saved at 20")[0] for line in lines[3::2]] == [
        "# model.ckpt-20",
        "# model.ckpt-15",
    ]
    times = [float(line.removeprefix("all_model_checkpoint_timestamps: ")) for line in lines[4::2]]
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
        (format_state([Saved(5, 0.5)]).replace("0.5", "inf"), "seconds since 1970, found inf"),
        (format_state([Saved(5, 0.5)]).replace("0.5", "nan"), "seconds since 1970"),
        (format_state([Saved(5, 0.5)]).replace("0.5", "1e300"), "seconds since 1970"),
    ],
)
def test_a_state_file_that_says_something_else_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_state(text)


def test_no_state_file_is_no_error(tmp_path: Path) -> None:
    assert read_state(str(tmp_path)) is None
