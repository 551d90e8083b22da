"""One suite for all places where checkpoints can be: directories, and what fsspec reaches."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paceline as pl
from paceline.checkpoint import (
    Checkpoint,
    CheckpointError,
    Saver,
    TensorSlice,
    keep_best,
    keep_last,
    latest_checkpoint,
    lease_latest,
    list_checkpoints,
    load,
    read_latest,
    read_metrics,
    read_slices,
    read_text,
    record_metrics,
    remove_text,
    save,
    write_shard,
    write_text,
)
from paceline.checkpoint.inspect import add_inspect_arguments, run_inspect

from .writers import Others

fsspec = pytest.importorskip("fsspec")
from fsspec.implementations.memory import MemoryFileSystem  # noqa: E402

KINDS = ["directory", "memory", "file", "objects"]


class ServiceError(Exception):
    """What the package of a protocol has of its own; no OSError."""


class KilledError(BaseException):
    """What a killed process would have done is not done."""


class Objects(MemoryFileSystem):
    """An object store: nothing can be renamed, and what is written appears whole or not at all."""

    protocol = "objects"
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    fails_at: str = ""
    fails_to: str = ""
    num_changes_left: float = math.inf

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return MemoryFileSystem._strip_protocol(path.replace("objects://", "memory://"))

    def _perhaps_fail(self, verb: str) -> None:
        if verb in ("upload", "write", "remove"):
            Objects.num_changes_left -= 1
        if Objects.num_changes_left < 0:  # from now on nothing reaches the store any more
            raise KilledError
        if verb == self.fails_to:
            raise ServiceError("503")

    def info(self, path: str, **kwargs: Any) -> Any:
        self._perhaps_fail("look")
        return super().info(path, **kwargs)

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        self._perhaps_fail("list")
        return super().ls(path, detail, **kwargs)

    def cat_file(self, path: str, *args: Any, **kwargs: Any) -> Any:
        self._perhaps_fail("read")
        return super().cat_file(path, *args, **kwargs)

    def rm(self, path: str, *args: Any, **kwargs: Any) -> None:
        self._perhaps_fail("remove")
        super().rm(path, *args, **kwargs)

    def mv(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("objects cannot be renamed")

    def put_file(self, lpath: str, rpath: str, **kwargs: Any) -> None:
        self._perhaps_fail("upload")
        if self.fails_at and self.fails_at in rpath:
            raise ConnectionError("the line is dead")
        super().put_file(lpath, rpath, **kwargs)

    def pipe_file(self, path: str, value: bytes, **kwargs: Any) -> None:
        self._perhaps_fail("write")
        if self.fails_at and self.fails_at in path:
            raise ConnectionError("the line is dead")
        super().pipe_file(path, value, **kwargs)


fsspec.register_implementation("objects", Objects, clobber=True)


@pytest.fixture(params=KINDS)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A directory that does not exist yet."""
    name = f"{tmp_path.name}/model"
    yield {
        "directory": str(tmp_path / "model"),
        "memory": f"memory://{name}",
        "file": f"file://{tmp_path}/model",
        "objects": f"objects://{name}",
    }[request.param]
    Objects.fails_at = Objects.fails_to = ""
    Objects.num_changes_left = math.inf
    for store in (MemoryFileSystem.store, Objects.store):
        store.clear()
    for directories in (MemoryFileSystem.pseudo_dirs, Objects.pseudo_dirs):
        directories[:] = [""]


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[str]:
    yield f"objects://{tmp_path.name}/model"
    Objects.fails_at = Objects.fails_to = ""
    Objects.num_changes_left = math.inf
    Objects.store.clear()
    Objects.pseudo_dirs[:] = [""]


ARRAYS = {"a/w": np.arange(600_000, dtype=np.float32).reshape(600, 1000), "b": np.array(True)}


def steps(root: str) -> list[int]:
    return [step for _, step in list_checkpoints(root)]


def files_of(root: str) -> list[str]:
    fs, path = fsspec.core.url_to_fs(root)
    fs.invalidate_cache()
    return sorted(name.removeprefix(path).lstrip("/") for name in fs.find(path))


def test_what_is_saved_is_loaded(root: str) -> None:
    path = save(root, 7, ARRAYS, state={"position": 3})
    assert path == os.path.join(root, "model.ckpt-7")
    assert latest_checkpoint(root) == path
    reader = load(path)
    reader.verify()
    assert (reader.step, reader.state) == (7, {"position": 3})
    for name, array in reader.arrays().items():
        np.testing.assert_array_equal(array, ARRAYS[name])
        assert array.flags.writeable
    np.testing.assert_array_equal(reader.read("a/w", np.s_[300:302]), ARRAYS["a/w"][300:302])
    assert read_slices(path + "/", {"a/w": (1, 3)})["a/w"].shape == (2, 1000)


def test_where_nothing_is(root: str) -> None:
    assert latest_checkpoint(root) is None
    assert list_checkpoints(root) == []
    assert read_latest(root) is None
    with lease_latest(root) as path:
        assert path is None
    with pytest.raises(CheckpointError, match="is no checkpoint: it does not exist"):
        load(os.path.join(root, "model.ckpt-1"))


def test_the_background_the_limit_and_the_best(root: str) -> None:
    with Saver(root, keep_last(2)) as saver:
        for step in range(4):
            saver.save(step, {"x": np.full(1000, step)})
            saver.wait()
        assert steps(root) == [2, 3]
        record_metrics(os.path.join(root, "model.ckpt-2"), {"loss": 0.5})
        assert read_metrics(os.path.join(root, "model.ckpt-2")) == {"loss": 0.5}
    with Saver(root, keep_best("loss")) as saver:
        for step in (4, 5):
            saver.save(step, {"x": np.full(1000, step)})
    assert steps(root) == [2, 5]
    assert load(os.path.join(root, "model.ckpt-5")).read("x")[0] == 5


def test_a_step_saved_again_is_replaced(root: str) -> None:
    save(root, 1, {"x": np.zeros(3)})
    before = len(files_of(root))
    save(root, 1, {"x": np.ones(3)})
    assert load(os.path.join(root, "model.ckpt-1")).read("x").tolist() == [1, 1, 1]
    assert len(files_of(root)) == before


def test_several_writers(root: str) -> None:
    whole = np.arange(60.0).reshape(10, 6)

    def part(start: int, stop: int) -> list[TensorSlice]:
        return [TensorSlice(whole[start:stop], (start, 0), (10, 6))]

    def share(draft: str) -> Callable[[], list[str]]:
        return lambda: [write_shard(draft, 1, 2, {"x": part(4, 10)})]

    with Saver(root) as saver:
        for _ in range(2):
            saver.save(3, {"x": part(0, 4)}, others=Others(1, share))
    reader = load(str(latest_checkpoint(root)))
    assert reader.num_writers == 2
    np.testing.assert_array_equal(reader.read("x"), whole)


def test_damage_is_found_and_an_older_one_is_offered(
    root: str, caplog: pytest.LogCaptureFixture
) -> None:
    save(root, 1, ARRAYS)
    path = save(root, 2, ARRAYS)
    fs, inside = fsspec.core.url_to_fs(path)
    (shard,) = [name for name in fs.find(inside) if name.endswith(".safetensors")]
    data = bytearray(fs.cat_file(shard))
    data[-1] ^= 1
    fs.pipe_file(shard, bytes(data))
    with pytest.raises(CheckpointError, match=r"'b' do not fit.*newest whole .*model.ckpt-1"):
        load(path).arrays()
    fs.pipe_file(shard, bytes(data[:-1]))
    assert latest_checkpoint(root) == os.path.join(root, "model.ckpt-1")
    assert "the manifest says" in caplog.text
    fs.rm_file(shard)
    with pytest.raises(CheckpointError, match="is missing"):
        load(path)


def test_small_texts(root: str) -> None:
    assert read_text(root, "note") is None
    remove_text(root, "note")
    for text in ("one", "another one", ""):
        write_text(root, "note", text)
        assert read_text(root, "note") == text
    remove_text(root, "note")
    assert read_text(root, "note") is None


def test_inspect(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    import argparse

    save(root, 5, ARRAYS)
    parser = argparse.ArgumentParser()
    add_inspect_arguments(parser)
    assert run_inspect(parser.parse_args([root, "--verify"])) == 0
    path = os.path.join(root, "model.ckpt-5")
    assert run_inspect(parser.parse_args([path])) == 0
    save(root, 6, ARRAYS)
    assert run_inspect(parser.parse_args([path, "--compare", root])) == 0
    out = capsys.readouterr().out
    assert "verified" in out
    assert "all 2 tensors are the same" in out
    assert "a/w" in out


def test_a_loop_s_checkpoint(root: str) -> None:
    arrays = {"x": np.ones(3)}
    checkpoint = Checkpoint(arrays=arrays)
    checkpoint.save(root, 1)
    arrays["x"][:] = 0
    assert checkpoint.restore(root).step == 1
    assert arrays["x"].tolist() == [1, 1, 1]


def test_an_estimator_trains_goes_on_and_evaluates(root: str) -> None:
    def model_fn(features: Any, labels: Any, mode: Any) -> Any:
        w = pl.get_variable("w", (), initializer=1.0)
        loss = np.mean(np.square(features * w))
        train_op = pl.nn.optimizers.SGD(0.1).minimize(loss) if mode == "train" else None
        return pl.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn() -> Any:
        return pl.Dataset.from_tensor_slices(np.ones(40, np.float32)).batch(4)

    config = pl.RunConfig(save_checkpoints_steps=2, keep_checkpoint_max=2)
    for max_steps in (3, 6):
        estimator = pl.Estimator(model_fn, root, config)
        result = pl.train_and_evaluate(
            estimator, pl.TrainSpec(input_fn, max_steps), pl.EvalSpec(input_fn, throttle_secs=0)
        )
        assert result.global_step == result.metrics["global_step"] == max_steps
    assert read_metrics(str(estimator.latest_checkpoint()))["loss"] > 0
    assert steps(root) == [5, 6]
    warm = pl.Estimator(model_fn, os.path.join(root, "warm"), warm_start_from=root)
    assert warm.evaluate(input_fn)["loss"] == result.metrics["loss"]


@pytest.mark.parametrize("fails_at", ["safetensors", "manifest.json"])
def test_a_save_that_breaks_off_leaves_what_was_there(objects: str, fails_at: str) -> None:
    save(objects, 1, {"x": np.zeros(3)})
    before = files_of(objects)
    Objects.fails_at = fails_at
    for step in (1, 2):
        with pytest.raises(CheckpointError, match=r"cannot save to model_dir 'objects://"):
            save(objects, step, {"x": np.ones(3)})
    assert files_of(objects) == before
    assert load(str(latest_checkpoint(objects))).read("x").tolist() == [0, 0, 0]


def test_a_save_that_is_committed_is_no_failure_where_the_old_cannot_be_removed(
    objects: str, caplog: pytest.LogCaptureFixture
) -> None:
    save(objects, 1, {}, keep_max=1)
    Objects.fails_to = "remove"
    for step in (2, 2):  # deleting another one, and what is replaced
        assert save(objects, step, {}, keep_max=1) == f"{objects}/model.ckpt-2"
    assert "cannot delete" in caplog.text
    assert "ServiceError: 503" in caplog.text
    Objects.fails_to = ""
    save(objects, 3, {}, keep_max=1)
    assert steps(objects) == [3]


DO: dict[str, Callable[[str], object]] = {
    "save": lambda root: save(root, 2, {"x": np.ones(3)}),
    "job": Saver,
    "latest": latest_checkpoint,
    "verified": lambda root: latest_checkpoint(root, verify=True),
    "read": read_latest,
    "list": list_checkpoints,
    "text": lambda root: read_text(root, "note"),
    "load": lambda root: load(f"{root}/model.ckpt-1"),
    "metrics": lambda root: read_metrics(f"{root}/model.ckpt-1"),
    "record": lambda root: record_metrics(f"{root}/model.ckpt-1", {"loss": 1.0}),
    "remove": lambda root: remove_text(root, "note"),
}


@pytest.mark.parametrize(
    ("verb", "done"),
    [
        ("look", "load"),
        ("list", "list"),
        ("list", "latest"),
        ("list", "job"),
        ("read", "latest"),
        ("read", "verified"),
        ("read", "read"),
        ("read", "text"),
        ("read", "load"),
        ("read", "metrics"),
        ("upload", "save"),
        ("write", "save"),
        ("write", "job"),
        ("write", "record"),
        ("remove", "remove"),
    ],
)
def test_a_store_s_own_errors_are_explained_like_all_others(
    objects: str, verb: str, done: str
) -> None:
    """Above all none of them counts as "there is nothing": training would begin at step 0."""
    save(objects, 1, {"x": np.zeros(3)})
    write_text(objects, "note", "text")
    Objects.fails_to = verb
    with pytest.raises(CheckpointError, match=r"objects://.*ServiceError: 503"):
        DO[done](objects)


def test_of_a_store_that_has_failed_the_fix_is_no_other_path(objects: str) -> None:
    Objects.fails_to = "upload"
    with pytest.raises(CheckpointError, match="the store has failed: look at it, and try again"):
        save(objects, 1, {"x": np.zeros(3)})


@pytest.mark.parametrize("keep_max", [1, None])
def test_a_save_killed_between_any_two_changes_loses_nothing_that_was_committed(
    objects: str, keep_max: int | None
) -> None:
    """The n-th save has the value n; step 2 is saved twice."""
    num_killed, is_killed = 0, True
    while is_killed:
        root, num_whole = f"{objects}/{num_killed}", 0
        Objects.num_changes_left = num_killed
        try:
            for value, step in enumerate([1, 2, 2, 3]):
                save(root, step, {"x": np.full(3, value)}, keep_max=keep_max)
                num_whole = value + 1
            is_killed = False
        except KilledError:
            num_killed += 1
        Objects.num_changes_left = math.inf
        values = {load(path).read("x")[0]: path for path, _ in list_checkpoints(root)}
        assert latest_checkpoint(root) == (values[max(values)] if values else None)
        assert max(values, default=-1) >= num_whole - 1
        path = save(root, 4, {"x": np.full(3, 4)}, keep_max=1)
        assert {name.partition("/")[0] for name in files_of(root)} == {"checkpoint", "model.ckpt-4"}
        assert latest_checkpoint(root) == path
    assert num_killed > 12


def test_what_a_killed_upload_left_goes_with_a_later_save(
    objects: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without its manifest it is no checkpoint, and nobody takes it for a damaged one."""
    caplog.set_level(logging.INFO, logger="paceline")
    save(objects, 1, {"x": np.zeros(3)})
    fs, inside = fsspec.core.url_to_fs(objects)
    fs.pipe_file(f"{inside}/model.ckpt-2/data-00000-of-00001-0123abcd.safetensors", b"half")
    fs.pipe_file(f"{inside}/model.ckpt-1/data-00000-of-00001-0123abcd.safetensors", b"half")
    assert steps(objects) == [1]
    assert latest_checkpoint(objects) == f"{objects}/model.ckpt-1"
    assert "damaged" not in caplog.text
    save(objects, 1, {"x": np.zeros(3)})
    save(objects, 3, {"x": np.zeros(3)})
    assert not [name for name in files_of(objects) if "0123abcd" in name]
    assert "model.ckpt-2', left over from an interrupted save" in caplog.text


def test_that_nothing_keeps_a_second_job_out_is_said(
    objects: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Saver(objects):
        pass
    assert f"model_dir '{objects}' has no locks: nothing keeps a second job out" in caplog.text


def test_a_url_that_pathlib_shortened_is_no_directory(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"'s3:/bucket/x' looks like a URL that pathlib"):
        save(Path("s3://bucket/x"), 1, {})


def test_an_unknown_protocol(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"cannot reach 'nowhere://x': Protocol not known"):
        save("nowhere://x", 1, {})
