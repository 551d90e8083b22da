"""A parameter server reads and writes under its model_dir, whatever it is asked for."""

import numpy as np
import pytest

from paceline.collectives.parameter_server import (
    Client,
    Create,
    Hold,
    Join,
    Message,
    ParameterServer,
    ShardSpec,
    Snapshot,
    Write,
)
from paceline.estimator.saving import CheckpointShards, confined

SPEC = ShardSpec(name="v", whole_shape=(3,), dtype="float32", start=0, stop=3)
CHIEF = Client(0, "chief 0")


@pytest.fixture
def model_dir(tmp_path):
    """Beside it is a directory that no server may touch; links lead there."""
    directory, outside = tmp_path / "model", tmp_path / "outside"
    directory.mkdir()
    (outside / "inner").mkdir(parents=True)
    (directory / "link").symlink_to(outside)
    (directory / "file link").symlink_to(outside / "inner")
    return directory


@pytest.fixture
def server(model_dir):
    server = ParameterServer(
        trainers=["chief 0"],
        rules={},
        storage=CheckpointShards(2, str(model_dir)),
        synchronous=False,
    )
    server.joined(CHIEF)
    ask(server, Join())
    return server


def ask(server, request, *arrays):
    reply = server.handle(CHIEF, Message(request.verb, request.packed(), arrays))
    return request.reply.unpacked(reply.body)


ATTACKS = [
    "{outside}",
    "{model}/../outside",
    "{model}/link",
    "{model}/link/inner",
    "{model}/file link",
    "{model}/ckpt/../../outside",
    "{model}",
    "{model}2",
    "relative",
    "file://{outside}",
    "memory://outside",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_is_written_elsewhere(server, model_dir, tmp_path, attack):
    before = sorted(tmp_path.rglob("*"))
    ask(server, Create(id=0, spec=SPEC), np.ones(3, np.float32))
    ask(server, Hold())
    ask(server, Snapshot(numbers={}))
    path = attack.format(model=model_dir, outside=tmp_path / "outside")
    with pytest.raises(ValueError, match=r"path must lie under .*, the model_dir of this"):
        ask(server, Write(path=path, shard_index=0))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_is_read_from_elsewhere(server, model_dir, tmp_path, attack):
    path = attack.format(model=model_dir, outside=tmp_path / "outside")
    with pytest.raises(ValueError, match=r"path must lie under .*, the model_dir of this"):
        ask(server, Create(id=0, spec=SPEC, checkpoint=path))


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("s3://bucket/models/a/ckpt-1", "s3://bucket/models/a"),
        ("s3://bucket/models/a/drafts/ckpt-1", "s3://bucket/models/a/"),
    ],
)
def test_urls_under_model_dir_are_taken(path, root):
    assert confined(path, root) == path


@pytest.mark.parametrize(
    "path",
    [
        "s3://bucket/models/b/ckpt-1",
        "s3://bucket/models/ab",
        "s3://bucket/models/a",
        "s3://bucket/models/a/",
        "s3://bucket/models/a/../b",
        "s3://bucket/models/a//b",
        "s3://bucket/models/a/x::file:///etc",
        "/etc",
    ],
)
def test_urls_elsewhere_are_refused(path):
    with pytest.raises(ValueError, match="path must lie under"):
        confined(path, "s3://bucket/models/a")


def test_model_dir_may_be_reached_by_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    inside = str(tmp_path / "real" / "ckpt-1")
    assert confined(str(tmp_path / "link" / "ckpt-1"), str(tmp_path / "real")) == inside
    assert confined(inside, str(tmp_path / "link")) == inside
