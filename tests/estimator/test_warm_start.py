"""Warm start (B1): which variables begin with the values of another model, and how rows move."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import paceline as pl
from paceline.checkpoint import CheckpointError, list_checkpoints, load
from paceline.checkpoint import save as save_checkpoint
from paceline.estimator import SessionRunHook, VocabInfo, WarmStartSettings
from paceline.nn import optimizers


def model_of(shapes, momentum=0.0):
    """A model with float32 variables of these shapes, all ones at first, and one not trainable."""

    def model_fn(features, labels, mode):
        total = 0.0
        for name, shape in shapes.items():
            total = total + np.sum(pl.get_variable(name, shape, initializer=1.0)) * 0
        pl.get_variable("moving", (2,), initializer=1.0, trainable=False)
        loss = np.mean(features) * 0 + total
        optimizer = optimizers.SGD(0.1, momentum=momentum)
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss))

    return model_fn


def input_fn():
    return pl.Dataset.from_tensors((np.ones((4, 1), np.float32), np.ones((4, 1), np.float32)))


OLD = {
    "a/w": np.full((2, 3), 5, np.float32),
    "a/b": np.full(3, 6, np.float32),
    "c": np.full(2, 7, np.float32),
    "moving": np.full(2, 8, np.float32),
    "global_step": np.array(40, np.int64),
}
SHAPES = {"a/w": (2, 3), "a/b": (3,), "c": (2,)}


@pytest.fixture
def old(tmp_path):
    save_checkpoint(tmp_path / "old", 40, OLD)
    return tmp_path / "old"


def beginning(tmp_path, warm_start_from, shapes=None, config=None):
    """The values at step 0, by name."""
    model = model_of(SHAPES if shapes is None else shapes)
    estimator = pl.Estimator(model, tmp_path / "new", config, warm_start_from=warm_start_from)
    estimator.train(input_fn, steps=1)
    return load(tmp_path / "new" / "model.ckpt-0").arrays()


def firsts(values):
    """The first element of each, without counters."""
    return {name: float(v.reshape(-1)[0]) for name, v in values.items() if "/it" not in name}


@pytest.mark.parametrize("what", ["directory", "checkpoint", "settings"])
def test_b1_warm_start_takes_all_trainable_variables_and_not_the_step(tmp_path, old, what):
    source = {
        "directory": old,
        "checkpoint": str(old / "model.ckpt-40"),
        "settings": WarmStartSettings(old),
    }[what]
    values = beginning(tmp_path, source)
    assert firsts(values) == {"a/w": 5, "a/b": 6, "c": 7, "moving": 1, "global_step": 0}


TENSORFLOW = Path(__file__).parents[1] / "peers" / "tensorflow_checkpoints"
"""What TensorFlow 2.15 has saved; `keras.npz` has what it reads there."""


def test_a_model_begins_with_the_values_of_a_checkpoint_of_tensorflows(tmp_path):
    shapes = {"hidden/kernel": (3, 4), "hidden/bias": (4,), "out/kernel": (4, 2)}
    found = beginning(tmp_path, TENSORFLOW / "keras", shapes)
    with np.load(TENSORFLOW / "keras.npz") as read:
        for name, layer in (("hidden", 0), ("out", 2)):
            key = f"layer_with_weights-{layer}|kernel|.ATTRIBUTES|VARIABLE_VALUE"
            np.testing.assert_array_equal(found[f"{name}/kernel"], read[key])


def test_the_newest_of_a_directory_of_tensorflows_is_taken(tmp_path):
    for suffix in (".index", ".data-00000-of-00001"):
        shutil.copy(TENSORFLOW / f"estimator{suffix}", tmp_path / f"model.ckpt-3{suffix}")
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-3"\n')
    found = beginning(tmp_path / "new", tmp_path, {"dnn/logits/bias": (3,)})
    assert not (found["dnn/logits/bias"] == 1).any()


@pytest.mark.parametrize(
    ("chosen", "taken"),
    [
        ("a", {"a/w", "a/b"}),  # the beginning of the name
        ("a/w", {"a/w"}),
        (".*b", {"a/b"}),
        ("moving|c", {"c"}),  # an expression chooses among the trainable ones,
        (["moving", "c"], {"moving", "c"}),  # a list among all
        (["a/.*", "mov"], {"a/w", "a/b", "moving"}),
    ],
)
def test_expressions_choose(tmp_path, old, chosen, taken):
    values = firsts(beginning(tmp_path, WarmStartSettings(old, chosen)))
    assert {name for name, value in values.items() if value > 1} == taken


def test_variables_choose(tmp_path, old):
    kept = pl.Variable(np.zeros(2, np.float32), name="c")
    values = firsts(beginning(tmp_path, WarmStartSettings(old, [kept])))
    assert {name for name, value in values.items() if value > 1} == {"c"}


def test_variables_are_found_under_their_old_names(tmp_path, old):
    settings = WarmStartSettings(old, "d|e", var_name_to_prev_var_name={"d": "a/w", "e": "a/b"})
    values = beginning(tmp_path, settings, {"d": (2, 3), "e": (3,), "c": (2,)})
    assert {k: v for k, v in firsts(values).items() if v > 1} == {"d": 5, "e": 6}


def test_a_model_with_a_checkpoint_goes_on_from_its_own_and_says_so(tmp_path, old, lines):
    beginning(tmp_path, None)
    estimator = pl.Estimator(model_of(SHAPES), tmp_path / "new", warm_start_from=old)
    estimator.train(input_fn, steps=1)
    assert load(estimator.latest_checkpoint()).step == 2
    assert estimator.get_variable_value("c")[0] == 1
    assert any("goes on at step 1. It has begun: there is no warm start" in x for x in lines())


def test_evaluation_without_a_checkpoint_is_warm_started_too(tmp_path, old):
    def model_fn(features, labels, mode):
        return pl.EstimatorSpec(mode, loss=np.mean(pl.get_variable("c", (2,))))

    estimator = pl.Estimator(model_fn, tmp_path / "new", warm_start_from=old)
    assert estimator.evaluate(input_fn)["loss"] == 7


def test_all_workers_begin_alike(on_workers, tmp_path, old):
    class First(SessionRunHook):
        def after_create_session(self, session, coord=None):
            self.values = {name: v.copy() for name, v in session.values().items()}

    def work(strategy, index):
        config = pl.RunConfig(train_distribute=strategy)
        # Only the chief sees the old checkpoint.
        source = old if index == 0 else tmp_path / "nowhere"
        estimator = pl.Estimator(model_of(SHAPES), tmp_path / "new", config, None, source)
        first = First()
        estimator.train(input_fn, hooks=[first], steps=1)
        return firsts(first.values)

    expected = {"a/w": 5, "a/b": 6, "c": 7, "moving": 1, "global_step": 0}
    assert on_workers(2, 1, work) == [expected] * 2


def test_the_old_checkpoint_is_kept_from_deletion_until_it_was_read(tmp_path, old):
    there = []

    class Elsewhere(SessionRunHook):
        """The old model's job goes on and keeps one checkpoint."""

        def begin(self):
            save_checkpoint(old, 41, OLD, keep_max=1)
            there.append([step for _, step in list_checkpoints(old)])

        def after_run(self, run_context, run_values):
            save_checkpoint(old, 42, OLD, keep_max=1)
            there.append([step for _, step in list_checkpoints(old)])

    estimator = pl.Estimator(model_of(SHAPES), tmp_path / "new", warm_start_from=old)
    estimator.train(input_fn, hooks=[Elsewhere()], steps=1)
    assert there == [[40, 41], [42]]


OLD_WORDS = ["the", "cat", "sat", "down"]
NEW_WORDS = ["down", "dog", "the", "sat", "bark"]
TABLE = np.arange(12, dtype=np.float32).reshape(4, 3) + 100


@pytest.fixture
def vocab(tmp_path):
    """`vocab(**options)`: a VocabInfo from OLD_WORDS to NEW_WORDS."""
    (tmp_path / "old.txt").write_text("\n".join(OLD_WORDS) + "\n")
    (tmp_path / "new.txt").write_text("\n".join(NEW_WORDS))  # the last line needs no end

    def make(**options):
        usual = {
            "new_vocab": tmp_path / "new.txt",
            "new_vocab_size": 5,
            "num_oov_buckets": 1,
            "old_vocab": tmp_path / "old.txt",
        }
        return VocabInfo(**{**usual, **options})

    return make


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({}, [3, None, 0, 2, None, None]),
        ({"new_vocab_size": 3}, [3, None, 0, None]),
        ({"num_oov_buckets": 0}, [3, None, 0, 2, None]),
        ({"old_vocab_size": 3}, [None, None, 0, 2, None, None]),
        ({"old_vocab_size": 4, "num_oov_buckets": 2}, [3, None, 0, 2, None, None, None]),
    ],
)
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_follow_their_words_and_others_keep_their_initial_value(
    tmp_path, vocab, options, rows, axis
):
    old = TABLE if axis == 0 else TABLE.T.copy()
    save_checkpoint(tmp_path / "old", 1, {"table": old})
    settings = WarmStartSettings(
        tmp_path / "old", var_name_to_vocab_info={"table": vocab(axis=axis, **options)}
    )
    shape = (len(rows), 3) if axis == 0 else (3, len(rows))
    found = beginning(tmp_path, settings, {"table": shape})["table"]
    expected = np.array([np.ones(3) if row is None else TABLE[row] for row in rows])
    np.testing.assert_array_equal(found if axis == 0 else found.T, expected)


def test_a_backup_initializer_gives_the_rows_of_unknown_words(tmp_path, vocab):
    save_checkpoint(tmp_path / "old", 1, {"table": TABLE})
    info = vocab(backup_initializer=lambda shape, dtype, rng: np.full(shape, -1, dtype))
    settings = WarmStartSettings(
        tmp_path / "old",
        vars_to_warm_start=None,  # only those with a vocabulary
        var_name_to_vocab_info={"words": info},
        var_name_to_prev_var_name={"words": "table"},
    )
    found = beginning(tmp_path, settings, {"words": (6, 3), "c": (2,)})
    assert found["words"][:, 0].tolist() == [109, -1, 100, 106, -1, -1]
    assert found["c"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("settings", "shapes", "message"),
    [
        ({}, {"new": (1,)}, r"'new' is to be warm-started, .* has no 'new'.*vars_to_warm_start"),
        ({"vars_to_warm_start": "nothing"}, SHAPES, "chooses none of the model's variables"),
        ({}, {"c": (3,)}, r"'c' is made with shape \(3,\), and 'c' .* has \(2,\).*vocab_info"),
        (
            {"var_name_to_prev_var_name": {"d": "c"}},
            SHAPES,
            r"var_name_to_prev_var_name names 'd', which was not warm-started.*'\.\*'.*a/b, a/w, c",
        ),
        (
            {"var_name_to_prev_var_name": {"c": "cc"}},
            SHAPES,
            r"'c' is to be warm-started, .* has no 'cc' \(but 'c', .*among 5",
        ),
    ],
)
def test_settings_that_do_not_fit_the_model_or_the_checkpoint(
    tmp_path, old, settings, shapes, message
):
    with pytest.raises(ValueError, match=message):
        beginning(tmp_path, WarmStartSettings(old, **settings), shapes)
    # Else the next run, with what was refused put right, would go on from initial values.
    assert list_checkpoints(tmp_path / "new") == []
    assert firsts(beginning(tmp_path, old))["c"] == 7


@pytest.mark.parametrize(
    ("options", "shape", "message"),
    [
        ({}, (5, 3), r"shape \(5, 3\), and along axis 0 .*new_vocab_size \+ num_oov_buckets = 6"),
        ({}, (6, 4), r"shape \(6, 4\) and had \(4, 3\); along other axes than 0"),
        ({"new_vocab_size": 6}, (7, 3), r"new.txt' has 5 words, and 6 are to be used"),
        ({"old_vocab_size": 5}, (6, 3), r"old.txt' has 4 words, and 5 are to be used"),
        ({"old_vocab": "missing.txt"}, (6, 3), r"cannot read the vocabulary 'missing.txt'"),
        ({"axis": 1}, (6, 3), r"along axis 1"),
    ],
)
def test_vocabularies_that_do_not_fit(tmp_path, vocab, options, shape, message):
    save_checkpoint(tmp_path / "old", 1, {"table": TABLE})
    info = {"table": vocab(**options)}
    settings = WarmStartSettings(tmp_path / "old", var_name_to_vocab_info=info)
    with pytest.raises(ValueError, match=message):
        beginning(tmp_path, settings, {"table": shape})


def test_a_vocabulary_with_a_word_twice(tmp_path, vocab):
    (tmp_path / "old.txt").write_text("the\ncat\nthe\n")
    save_checkpoint(tmp_path / "old", 1, {"table": TABLE})
    settings = WarmStartSettings(tmp_path / "old", var_name_to_vocab_info={"table": vocab()})
    with pytest.raises(ValueError, match=r"old.txt' has the word 'the' twice"):
        beginning(tmp_path, settings, {"table": (6, 3)})


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: WarmStartSettings("x", "("), ValueError, r"vars_to_warm_start '\(' is no regular"),
        (lambda: VocabInfo("n", 0, 0, "o"), ValueError, "new_vocab_size must be at least 1"),
        (lambda: VocabInfo("n", 1, -1, "o"), ValueError, "num_oov_buckets must be at least 0"),
        (lambda: VocabInfo("n", 1, 1, "o", 0), ValueError, "old_vocab_size .*-1 for all"),
        (lambda: VocabInfo("n", 1, 1, "o", axis=2), ValueError, "axis must be 0 or 1"),
        (lambda: pl.Estimator(model_of({}), warm_start_from=7), TypeError, "path or WarmStartSett"),
    ],
)
def test_wrong_settings_are_refused_at_once(tmp_path, make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_source_that_is_not_there(tmp_path):
    with pytest.raises(CheckpointError, match=f"{tmp_path / 'nowhere'}' is no checkpoint"):
        beginning(tmp_path, tmp_path / "nowhere")
    assert os.listdir(tmp_path) == ["new"]
