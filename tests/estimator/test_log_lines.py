"""What runs log: TensorFlow's events, with its words where people look for them (OB-01, OB-02)."""

import json
import logging
import re

import pytest

import paceline as pl
from paceline.observe import JsonLines

NUMBER = r"[-+.e\d]+|nan"
SECS = r"\d+\.\d+"
MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"

TRAINING = [
    "There is no checkpoint in DIR: training begins at step 0.",
    "Create CheckpointSaverHook: every 3 steps, into DIR.",
    "Calling model_fn.",
    "Done calling model_fn.",
    "The model has 3 parameters in 1 trainable variable.",
    "Saving checkpoints for 0 into DIR/model.ckpt-0.",
    "Input: each batch goes to one replica; shard 0 of 1, 1 replica in sync, global batch 8 .*",
    "loss = NUMBER, step = 0",
    "global_step/sec: NUMBER",
    "Saving checkpoints for 3 into DIR/model.ckpt-3.",
    "loss = NUMBER, step = 2 (SECS sec)",
    "global_step/sec: NUMBER",
    "Saving checkpoints for 4 into DIR/model.ckpt-4.",
    "Loss for final step: NUMBER.",
    "Training ended at step 4 of 4: max_steps was reached.",
]
EVALUATION = [
    "Starting evaluation at MOMENT",
    "Restoring parameters from DIR/model.ckpt-4",
    "Evaluation [1/2]",
    "Evaluation [2/2]",
    "Inference Time : SECSs, 2 batch(es).",
    "Finished evaluation at MOMENT",
    "Saving dict for global step 4: global_step = 4, loss = NUMBER, mean_label = NUMBER",
    "Saving 'checkpoint_path' summary for global step 4: DIR/model.ckpt-4",
]
PREDICTION: list[str] = []


def pattern(line, directory):
    """A line of the tables as a regular expression."""
    text = re.escape(line).replace(r"\.\*", ".*")
    for word, means in (("NUMBER", NUMBER), ("SECS", SECS), ("MOMENT", MOMENT)):
        text = text.replace(word, f"({means})")
    return text.replace("DIR", re.escape(str(directory)))


def require_story(found, story, directory):
    # When a checkpoint is on disk is told whenever that is seen.
    found = [line for line in found if "is on disk" not in line]
    assert len(found) == len(story), found
    for line, expected in zip(found, story, strict=True):
        assert re.fullmatch(pattern(expected, directory), line), f"{line!r} is no {expected!r}"


@pytest.fixture
def told(lines):
    """The lines since this was last called."""
    seen = [0]

    def new():
        before, seen[0] = seen[0], len(lines())
        return lines()[before:]

    return new


def test_ob_01_ob_02_the_log_tells_the_story_of_each_run(
    linear_model_fn, tmp_path, input_fn, one_pass, told
):
    config = pl.RunConfig(save_checkpoints_steps=3, log_step_count_steps=2)
    estimator = pl.Estimator(linear_model_fn, tmp_path, config)
    told()
    estimator.train(input_fn, steps=4)
    require_story(told(), TRAINING, tmp_path)
    estimator.evaluate(input_fn, steps=2)
    require_story(told(), EVALUATION, tmp_path)
    list(estimator.predict(one_pass))
    require_story(told(), PREDICTION, tmp_path)


@pytest.mark.parametrize(
    ("steps", "logged"), [(3, [1, 2, 3]), (19, [*range(1, 20)]), (25, [*range(2, 26, 2), 25])]
)
def test_ob_02_each_of_a_few_steps_is_logged_and_some_of_many(
    estimator, input_fn, told, steps, logged
):
    estimator.train(input_fn, steps=1)
    told()
    estimator.evaluate(input_fn, steps)
    found = [line for line in told() if line.startswith("Evaluation [")]
    assert found == [f"Evaluation [{step}/{steps}]" for step in logged]


def test_json_lines_have_the_values_by_name(estimator, input_fn, one_pass, caplog):
    """For programs, which need not take the sentences apart."""
    caplog.set_level(logging.INFO, logger="paceline")
    estimator.train(input_fn, steps=2)
    results = estimator.evaluate(one_pass)
    form = JsonLines()
    lines = [json.loads(form.format(record)) for record in caplog.records]
    assert all({"time", "level", "message", "pid"} <= line.keys() for line in lines)
    values = [line["values"] for line in lines if "values" in line]
    assert results in values
    assert [v["global_step"] for v in values if "model_dir" in v] == [0, 2]
    assert [v["step"] for v in values if "step" in v] == [0]
