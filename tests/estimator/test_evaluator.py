"""The evaluator beside training (B6, with B12 mended), on a clock of its own."""

import shutil
from pathlib import Path

import pytest

import paceline as pl
from paceline.estimator.evaluator import (
    ContinuousEvaluation,
    EndMarker,
    read_end_marker,
    remove_end_marker,
    write_end_marker,
)


class World:
    """Time that passes only in `sleep`, and what happens at given moments."""

    def __init__(self, events=()):
        self.now = 0.0
        self.slept = 0.0
        self._events = sorted(events, key=lambda event: event[0])

    def clock(self):
        return self.now

    def sleep(self, secs):
        assert secs > 0
        self.now += secs
        while self._events and self._events[0][0] <= self.now:
            self._events.pop(0)[1]()
        assert self.now < 10_000, "the evaluator waits for ever"


@pytest.fixture
def evaluated(estimator, one_pass):
    """`evaluated(events, **spec)`: the end, and the steps that were evaluated."""

    def run(events=(), max_steps=None, **spec):
        world, steps = World(events), []

        class Note(pl.estimator.SessionRunHook):
            def end(self, session):
                steps.append((session.global_step, world.now))

        given = {"start_delay_secs": 0, "throttle_secs": 10, **spec}
        eval_spec = pl.EvalSpec(one_pass, hooks=[Note()], **given)
        evaluation = ContinuousEvaluation(
            estimator, eval_spec, max_steps, clock=world.clock, sleep=world.sleep
        )
        return evaluation.run(), steps

    return run


@pytest.fixture
def train_to(estimator, input_fn):
    return lambda step: lambda: estimator.train(input_fn, max_steps=step)


@pytest.fixture
def end_at(estimator):
    return lambda step: lambda: write_end_marker(estimator.model_dir, EndMarker(step, "it ended"))


def test_a_checkpoint_that_servers_wrote_some_steps_ahead_of_its_name_is_not_the_last(
    evaluated, train_to, estimator
):
    """Its name is the step that the chief knew of; the run goes on to one of its own."""

    def saved_ahead():
        train_to(6)()
        values = pl.checkpoint.load(f"{estimator.model_dir}/model.ckpt-6").arrays()
        shutil.rmtree(estimator.model_dir)
        pl.checkpoint.save(estimator.model_dir, 4, values)

    end, steps = evaluated([(5, saved_ahead), (22, train_to(8))], max_steps=6)
    assert [step for step, _ in steps] == [6, 8]
    assert end == EndMarker(8, "max_steps was reached")


def test_b6_loop_evaluates_what_is_saved_until_the_run_has_ended(evaluated, train_to, end_at):
    end, steps = evaluated(
        [(5, train_to(2)), (22, train_to(4)), (33, train_to(6)), (34, end_at(6))]
    )
    assert [step for step, _ in steps] == [2, 4, 6]
    assert end == EndMarker(6, "it ended")


def test_it_may_start_after_training(evaluated, train_to, end_at):
    train_to(3)()
    end_at(3)()
    assert evaluated()[1] == [(3, pytest.approx(0, abs=1))]


def test_it_may_start_before_training(evaluated, train_to, end_at):
    _, steps = evaluated([(500, train_to(3)), (501, end_at(3))])
    assert [step for step, _ in steps] == [3]


def test_it_waits_at_the_beginning_but_not_for_a_run_that_has_ended(evaluated, train_to, end_at):
    train_to(1)()
    _, steps = evaluated([(300, end_at(1))], start_delay_secs=120)
    assert steps[0][1] == pytest.approx(120)
    _, steps = evaluated(start_delay_secs=120, max_steps=1)
    assert steps[0][1] < 2


def test_it_does_not_evaluate_more_often_than_it_should(evaluated, train_to, end_at):
    _, steps = evaluated([(0, train_to(1)), (1, train_to(2)), (25, train_to(3)), (26, end_at(3))])
    assert steps[1][1] - steps[0][1] >= 10


def test_it_evaluates_a_late_checkpoint_at_once(evaluated, train_to, end_at):
    """What it pauses between is evaluations, not looks."""
    events = [(5, train_to(1)), (700, train_to(2)), (1500, end_at(2))]
    _, steps = evaluated(events, throttle_secs=600)
    assert [step for step, _ in steps] == [1, 2]
    assert steps[0][1] < 6
    assert steps[1][1] < 701


def test_it_misses_no_last_checkpoint_within_its_pause(evaluated, train_to, end_at):
    _, steps = evaluated([(0, train_to(1)), (3, train_to(2)), (4, end_at(2))], throttle_secs=600)
    assert steps[-1][0] == 2
    assert steps[-1][1] < 10


def test_a_last_checkpoint_beyond_max_steps_is_waited_for(evaluated, train_to, end_at):
    """Workers that do not wait for each other go beyond it, some more than others."""
    end, steps = evaluated([(0, train_to(5)), (15, train_to(7)), (16, end_at(7))], max_steps=5)
    assert [step for step, _ in steps] == [5, 7]
    assert end == EndMarker(7, "it ended")


def test_b6_loop_ends_at_max_steps_without_a_mark(evaluated, train_to):
    end, steps = evaluated([(0, train_to(5))], max_steps=5)
    assert [step for step, _ in steps] == [5]
    assert end.global_step == 5


def test_d_28_b12_evaluator_never_ends_but_with_a_run_that_was_stopped_early(
    evaluated, train_to, end_at
):
    end, steps = evaluated([(20, train_to(3)), (21, end_at(3))], max_steps=100)
    assert [step for step, _ in steps] == [3]
    assert end == EndMarker(3, "it ended")


def test_the_mark_of_an_earlier_run_does_not_send_it_away(evaluated, train_to, end_at, estimator):
    """The chief, who removes it, may start later than the evaluator."""
    train_to(2)()
    end_at(2)()
    events = [
        (5, lambda: remove_end_marker(estimator.model_dir)),
        (100, train_to(4)),
        (101, end_at(4)),
    ]
    _, steps = evaluated(events, max_steps=8)
    assert [step for step, _ in steps] == [2, 4]


@pytest.mark.parametrize("max_steps", [None, 8])
def test_where_no_run_follows_it_leaves_soon(evaluated, train_to, end_at, max_steps):
    train_to(2)()
    end_at(2)()
    _, steps = evaluated([(100, pytest.fail)], max_steps=max_steps)
    assert steps == [(2, pytest.approx(0, abs=1))]


def test_b12_unevaluated_notice_names_the_checkpoints_that_are_left_out(
    evaluated, train_to, end_at, lines
):
    events = [(0, train_to(1)), (3, train_to(2)), (4, train_to(3)), (25, train_to(4))]
    _, steps = evaluated([*events, (26, end_at(4))])
    assert [step for step, _ in steps] == [1, 3, 4]
    (line,) = [line for line in lines() if "Not evaluated" in line]
    assert line.endswith("checkpoints of 2.")


@pytest.mark.parametrize("when", ["before it is opened", "while it is read"])
def test_d_11_b12_deletion_race_what_is_deleted_meanwhile_is_passed_over(
    estimator, one_pass, train_to, monkeypatch, when
):
    """The one that came in its place is evaluated."""
    train_to(1)()
    world, deleted = World(), []

    def replaced_by_a_newer_one():
        if not deleted:
            deleted.append(estimator.latest_checkpoint())
            train_to(2)()
            shutil.rmtree(deleted[0])

    def eval_fn():
        replaced_by_a_newer_one()
        return one_pass()

    if when == "before it is opened":
        found = estimator.latest_checkpoint()
        looked = iter([found])

        def latest(model_dir, **options):
            path = next(looked, None)
            if path is not None:
                replaced_by_a_newer_one()
            return path or latest_checkpoint(model_dir, **options)

        latest_checkpoint = pl.checkpoint.latest_checkpoint
        monkeypatch.setattr(pl.checkpoint, "latest_checkpoint", latest)
    spec = pl.EvalSpec(eval_fn, start_delay_secs=0, throttle_secs=10)
    evaluation = ContinuousEvaluation(estimator, spec, 2, clock=world.clock, sleep=world.sleep)
    assert evaluation.run().global_step == 2
    assert deleted
    assert evaluation.metrics["global_step"] == 2


def test_a_last_checkpoint_that_was_deleted_is_told(evaluated, estimator, train_to, end_at, lines):
    """D-13: what was evaluated before is not lost."""

    def delete_newest():
        shutil.rmtree(estimator.latest_checkpoint())

    events = [(0, train_to(1)), (3, train_to(2)), (4, delete_newest), (5, end_at(2))]
    end, steps = evaluated(events)
    assert [step for step, _ in steps] == [1]
    assert end.global_step == 2
    assert any("last evaluation is that of step 1" in line for line in lines())


def damage(path):
    """Let a byte of a tensor be another one."""
    (shard,) = Path(path).glob("*.safetensors")
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)


@pytest.fixture
def damage_newest(estimator):
    return lambda: damage(estimator.latest_checkpoint())


def test_a_damaged_last_checkpoint_is_given_up_and_the_one_before_is_evaluated(
    evaluated, train_to, end_at, damage_newest, lines
):
    events = [(0, train_to(1)), (3, train_to(2)), (4, train_to(3)), (4.1, damage_newest)]
    end, steps = evaluated([*events, (100, end_at(3))])
    assert [step for step, _ in steps] == [1, 2]
    assert end.global_step == 3
    told = [line for line in lines() if "model.ckpt-3" in line and "cannot be read" in line]
    assert 1 <= len(told) <= 3
    assert "do not fit its checksum" in told[-1]
    assert any("last evaluation is that of step 2" in line for line in lines())


def test_one_that_was_damaged_and_is_saved_anew_is_evaluated(
    evaluated, estimator, train_to, end_at, damage_newest
):
    def go_back_and_train():
        shutil.rmtree(estimator.latest_checkpoint())
        train_to(2)()

    events = [(0, train_to(2)), (0.1, damage_newest), (200, go_back_and_train), (201, end_at(2))]
    _, steps = evaluated(events)
    assert [step for step, _ in steps] == [0, 2]


def test_where_all_are_damaged_an_ended_run_is_an_error_and_each_has_a_few_lines(
    evaluated, estimator, train_to, end_at, damage_newest, lines
):
    train_to(1)()
    for path, _ in pl.checkpoint.list_checkpoints(estimator.model_dir):
        damage(path)
    with pytest.raises(ValueError, match=r"ended at step 1, but the checkpoint .* cannot be read"):
        evaluated([(2000, end_at(1))])
    told = [line for line in lines() if "cannot be read" in line]
    assert len(told) == 3 * len(pl.checkpoint.list_checkpoints(estimator.model_dir))


@pytest.mark.parametrize("content", ["{", "[]", '{"global_step": "x", "reason": ""}', "{}"])
def test_a_damaged_end_mark_is_told_once_and_no_end(
    evaluated, estimator, train_to, end_at, lines, content
):
    def spoil():
        (Path(estimator.model_dir) / "training_ended.json").write_text(content)

    end, _ = evaluated([(0, train_to(1)), (5, spoil), (100, end_at(1))])
    assert end == EndMarker(1, "it ended")
    (line,) = [line for line in lines() if "training_ended.json" in line]
    assert "is damaged" in line


def test_a_checkpoint_is_evaluated_once(evaluated, train_to, end_at):
    _, steps = evaluated([(0, train_to(2)), (100, end_at(2))])
    assert [step for step, _ in steps] == [2]


def test_it_reminds_of_a_run_that_saves_nothing_but_not_all_the_time(
    evaluated, train_to, end_at, lines
):
    evaluated([(2000, train_to(1)), (2001, end_at(1))])
    assert 1 <= len([line for line in lines() if "no checkpoint yet" in line]) <= 4


def test_a_run_that_ended_without_a_checkpoint_is_an_error(evaluated, estimator, train_to, end_at):
    train_to(1)()
    end_at(1)()
    shutil.rmtree(estimator.latest_checkpoint())
    for path, _ in pl.checkpoint.list_checkpoints(estimator.model_dir):
        shutil.rmtree(path)
    with pytest.raises((ValueError, pl.checkpoint.CheckpointError)):
        evaluated()


def test_the_end_mark_comes_and_goes(tmp_path):
    assert read_end_marker(tmp_path) is None
    write_end_marker(tmp_path, EndMarker(7, "because"))
    assert read_end_marker(tmp_path) == EndMarker(7, "because")
    remove_end_marker(tmp_path)
    remove_end_marker(tmp_path)
    assert read_end_marker(tmp_path) is None


@pytest.mark.parametrize(
    "content",
    [b"\x80abc", b"", b"{", b"[]", b'{"global_step": "x"}', b"[" * 100_000],
    ids=["no text", "empty", "half", "a list", "no number", "deep"],
)
def test_a_damaged_end_mark_does_not_end_the_next_run(
    linear_model_fn, input_fn, one_pass, tmp_path, caplog, content
):
    estimator = pl.Estimator(linear_model_fn, tmp_path)
    estimator.train(input_fn, steps=1)
    (tmp_path / "training_ended.json").write_bytes(content)
    with pytest.raises(ValueError, match=rf"training_ended\.json in {tmp_path} is damaged"):
        read_end_marker(tmp_path)
    pl.train_and_evaluate(estimator, pl.TrainSpec(input_fn, max_steps=3), pl.EvalSpec(one_pass))
    assert read_end_marker(tmp_path) == EndMarker(3, "max_steps was reached")
    assert "training_ended.json" in caplog.text


def test_train_and_evaluate_marks_the_end_of_a_run(linear_model_fn, input_fn, one_pass, tmp_path):
    estimator = pl.Estimator(linear_model_fn, tmp_path)
    pl.train_and_evaluate(estimator, pl.TrainSpec(input_fn, max_steps=3), pl.EvalSpec(one_pass))
    assert read_end_marker(tmp_path) == EndMarker(3, "max_steps was reached")
