"""Exports: checkpoints that are kept apart, each with other files in it."""

import os
from pathlib import Path

import numpy as np
import pytest

from paceline.checkpoint import (
    CheckpointError,
    Saver,
    delete_old_exports,
    delete_saved,
    has_saved,
    latest_checkpoint,
    lease,
    list_exports,
    load,
    newest_saved,
    read_file,
    read_metrics,
    record_metrics,
    save,
    save_at,
    save_export,
)
from paceline.checkpoint.names import directory_of

from .test_damage import edit_manifest

ARRAYS = {"w": np.arange(3.0)}


def save_in_background(model_dir, step, arrays):
    with Saver(model_dir) as saver:
        saver.save(step, arrays)


def test_an_export_is_a_checkpoint_with_other_files_in_it(tmp_path):
    path = save_export(tmp_path / "e", 7, ARRAYS, {"a.json": b"{}", "b/c": __file__})
    found = load(path)
    assert found.step == 7
    np.testing.assert_array_equal(found.read("w"), ARRAYS["w"])
    found.verify()
    assert read_file(path, "a.json", 2) == b"{}"
    with open(__file__, "rb") as file:
        assert read_file(path, "b/c", 1 << 20) == file.read()


def test_names_rise_also_where_the_clock_went_back(tmp_path):
    later = save_export(tmp_path, 0, ARRAYS, {})
    os.rename(later, tmp_path / "4000000000")
    assert save_export(tmp_path, 0, ARRAYS, {}) == str(tmp_path / "4000000001")
    (tmp_path / "5").mkdir()
    (tmp_path / "notes").mkdir()
    assert [os.path.basename(p) for p in list_exports(tmp_path)] == ["4000000000", "4000000001"]


def test_what_fails_leaves_nothing_behind_and_what_a_kill_leaves_goes_with_the_next_one(tmp_path):
    with pytest.raises(CheckpointError, match="cannot export to"):
        save_export(tmp_path, 0, ARRAYS, {"a": tmp_path / "missing"})
    assert [name for name in os.listdir(tmp_path) if not name.startswith(".paceline-lock")] == []
    killed = tmp_path / ".paceline-tmp-4000000000-0123abcd"
    killed.mkdir()
    (killed / "weights.safetensors").write_bytes(b"half")
    path = save_export(tmp_path, 0, ARRAYS, {})
    assert not killed.exists()
    assert list_exports(tmp_path) == [path]


@pytest.mark.parametrize("name", ["", "/a", "../a", "a/../b", "a//b", "a\\b"])
def test_a_file_lies_inside_of_the_export(tmp_path, name):
    with pytest.raises(ValueError, match="relative path"):
        save_export(tmp_path, 0, ARRAYS, {name: b""})


def test_the_oldest_are_deleted_but_none_that_is_being_read(tmp_path):
    paths = [save_export(tmp_path, step, ARRAYS, {}) for step in range(4)]
    with lease(paths[0]):
        delete_old_exports(tmp_path, 2)
        assert list_exports(tmp_path) == [paths[0], *paths[2:]]
    delete_old_exports(tmp_path, None)
    assert len(list_exports(tmp_path)) == 3
    delete_old_exports(tmp_path, 1)
    assert list_exports(tmp_path) == paths[3:]
    assert list_exports(tmp_path / "nowhere") == []


def test_a_file_that_is_missing_or_larger_than_it_may_be_is_named(tmp_path):
    path = save_export(tmp_path, 0, ARRAYS, {"a": b"12345"})
    with pytest.raises(CheckpointError, match="a': it has 5 bytes and may have at most 4"):
        read_file(path, "a", 4)
    with pytest.raises(CheckpointError, match="b': it does not exist"):
        read_file(path, "b", 4)


def test_ck_13_what_is_saved_under_a_name_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "models" / "best"
    save_at(path, ARRAYS, step=7, state={"a": [1]})
    save_at(path, {"v": np.ones(2)}, state={"a": [2]})
    found = load(path)
    assert (found.names, found.state) == (("v",), {"a": [2]})
    found.verify()
    with pytest.raises(CheckpointError, match=r"there already.*overwrite=True"):
        save_at(path, ARRAYS, overwrite=False)
    assert [name for name in os.listdir(path.parent) if not name.startswith(".paceline-lock")] == [
        "best"
    ]


@pytest.mark.parametrize("is_file", [True, False], ids=["a file", "a directory"])
def test_what_others_have_written_is_never_replaced(tmp_path, is_file):
    path = tmp_path / "notes"
    if not is_file:
        path.mkdir()
    (path if is_file else path / "diary").write_text("dear")
    with pytest.raises(CheckpointError, match="was not saved by paceline"):
        save_at(path, ARRAYS)
    assert (path if is_file else path / "diary").read_text() == "dear"


def test_an_empty_directory_may_be_filled(tmp_path):
    (tmp_path / "m").mkdir()
    save_at(tmp_path / "m", ARRAYS)
    assert load(tmp_path / "m").names == ("w",)


def test_the_newest_of_what_was_saved_under_names_is_found(tmp_path):
    assert newest_saved(tmp_path / "missing") is None
    for name in ("z", "a", "m"):
        save_at(tmp_path / name, ARRAYS)
    (tmp_path / "other").mkdir()
    (tmp_path / "file").write_text("")
    assert newest_saved(tmp_path) == str(tmp_path / "m")


def test_what_was_saved_is_deleted_once_nobody_reads_it(tmp_path):
    path = tmp_path / "m"
    delete_saved(path)
    save_at(path, ARRAYS)
    assert has_saved(path)
    with lease(path), pytest.raises(CheckpointError, match="somebody reads it"):
        delete_saved(path)
    delete_saved(path)
    assert not has_saved(path)


@pytest.mark.parametrize("path", ["model", "./model", "model.keras", "model/", "a/model"])
def test_a_path_may_be_relative_to_the_current_directory(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    for step in (1, 2):  # the second replaces the first
        save_at(path, ARRAYS, step=step)
    assert load(path).step == 2
    assert load(tmp_path / path).step == 2
    delete_saved(path)
    assert not has_saved(path)
    left = [name for name in os.listdir() if name != ".paceline-lock"]
    assert left == (["a"] if path.startswith("a/") else [])


@pytest.mark.parametrize("base", ["exports", "./exports", "exports/", "."])
def test_exports_may_be_relative_to_the_current_directory(tmp_path, monkeypatch, base):
    monkeypatch.chdir(tmp_path)
    path = save_export(base, 3, ARRAYS, {"a.json": b"{}"})
    assert load(path).step == 3
    assert list_exports(base) == [path]


@pytest.mark.parametrize("save", [save, save_in_background])
@pytest.mark.parametrize("model_dir", ["m", "./m", "m/", "."])
def test_a_model_dir_may_be_relative_to_the_current_directory(
    tmp_path, monkeypatch, save, model_dir
):
    monkeypatch.chdir(tmp_path)
    for step in (1, 1, 2):  # the second replaces the first
        save(model_dir, step, ARRAYS)
    path = latest_checkpoint(model_dir)
    assert load(path).step == 2
    record_metrics(path, {"loss": 1.0})
    assert read_metrics(path) == {"loss": 1.0}


def test_a_refusal_calls_a_saved_model_by_its_path_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError) as caught:
        save_at("file/model.keras", ARRAYS)
    assert str(caught.value).startswith("cannot save 'file/model.keras': ")
    assert "model_dir" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "directory"),
    [
        ("name", "."),
        ("./name", "."),
        ("a/name", "a"),
        ("/name", "/"),
        ("/a/name", "/a"),
        ("memory://name", "memory://"),
        ("memory://a/name", "memory://a"),
    ],
)
def test_the_directory_of_a_path_is_never_empty(path, directory):
    assert directory_of(path) == directory


@pytest.fixture
def export(tmp_path):
    return Path(save_export(tmp_path, 0, ARRAYS, {"a.json": b"{}", "b/c": __file__}))


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(file.read_bytes() + b" "),
        lambda file: file.write_bytes(file.read_bytes()[:-1] + b"?"),
        Path.unlink,
    ],
    ids=["longer", "changed", "missing"],
)
@pytest.mark.parametrize("name", ["a.json", "b/c"])
def test_a_damaged_file_of_an_export_is_found(export, name, damage):
    damage(export / name)
    with pytest.raises(CheckpointError, match=f"cannot read '{export / name}': "):
        read_file(export, name, 1 << 20)
    with pytest.raises(CheckpointError, match=f"cannot read '{export / name}': "):
        load(export).verify()


def test_what_the_manifest_does_not_list_is_read_unverified(export):
    """As everything in exports of earlier versions."""
    (export / "notes").write_bytes(b"mine")
    assert read_file(export, "notes", 4) == b"mine"
    assert load(export).files == ("a.json", "b/c")
    load(export).verify()


def test_a_manifest_without_other_files_is_as_before(tmp_path):
    save_at(tmp_path / "x", ARRAYS)
    assert '"files"' not in (tmp_path / "x" / "manifest.json").read_text()


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "a/../../b", ""])
def test_a_manifest_lists_no_file_outside_of_the_export(export, name):
    entry = {"size_bytes": 2, "crc32": 0}
    edit_manifest(export, lambda manifest: manifest["files"].update({name: entry}))
    with pytest.raises(CheckpointError, match=r"without '\.\.'"):
        load(export)
