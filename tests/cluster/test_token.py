"""The job's secret, from PACELINE_TOKEN (E3)."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from paceline.cluster import ClusterError, ClusterSpec, job_token
from paceline.cluster.token import needs_token, token_file

SECRET = "5f4dcc3b5aa765d61d8327deb882cf99"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (SECRET, SECRET),
        (f" {SECRET}\n", SECRET),
        ("0123456789abcdef", "0123456789abcdef"),
        ("", None),
        ("  \n", None),
    ],
)
def test_the_secret_is_what_the_variable_holds_without_blanks(value, expected):
    assert job_token({"PACELINE_TOKEN": value}) == expected


def test_without_the_variable_there_is_no_secret():
    assert job_token({}) is None


def test_a_secret_that_can_be_guessed_is_refused_and_not_shown():
    with pytest.raises(ClusterError) as caught:
        job_token({"PACELINE_TOKEN": " 0123456789abcde "})
    assert "PACELINE_TOKEN must have at least 16 characters, and has 15" in str(caught.value)
    assert "0123456789" not in str(caught.value)


def test_the_secret_may_be_in_a_file(tmp_path):
    file = tmp_path / "token"
    file.write_text(SECRET + "\n")
    file.chmod(0o600)
    environ = {"PACELINE_TOKEN_FILE": str(file)}
    assert job_token(environ) == SECRET
    assert job_token(environ | {"PACELINE_TOKEN": SECRET}) == SECRET


@pytest.mark.parametrize(
    ("text", "environ", "problem"),
    [
        (None, {}, r"PACELINE_TOKEN_FILE is '.*token': .*No such file"),
        ("", {}, "must have at least 16 characters, and has 0"),
        ("guess", {}, "must have at least 16 characters, and has 5"),
        (SECRET, {"PACELINE_TOKEN": SECRET[::-1]}, "hold different secrets"),
    ],
)
def test_a_file_that_is_of_no_use_is_refused_by_name(tmp_path, text, environ, problem):
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
        file.chmod(0o600)
    with pytest.raises(ClusterError, match=problem) as caught:
        job_token({"PACELINE_TOKEN_FILE": str(file)} | environ)
    assert str(file) in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_file_that_others_can_read_is_warned_about(tmp_path, caplog):
    file = tmp_path / "token"
    file.write_text(SECRET)
    file.chmod(0o644)
    assert job_token({"PACELINE_TOKEN_FILE": str(file)}) == SECRET
    assert "every user of this machine can read" in caplog.text
    assert SECRET not in caplog.text


def test_the_file_that_the_launcher_makes_is_for_this_user_alone_and_in_no_directory(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with token_file({"PACELINE_TOKEN": SECRET}) as path:
        assert Path(path).stat().st_mode & 0o777 == 0o600
        assert job_token({"PACELINE_TOKEN_FILE": path}) == SECRET
        other = [sys.executable, "-c", f"print(open({path!r}).read())"]
        assert subprocess.check_output(other, text=True).strip() == SECRET
        assert not list(tmp_path.iterdir()), "kill -9 would leave it"


def test_a_file_that_the_user_has_is_not_copied(tmp_path, monkeypatch):
    file = tmp_path / "token"
    file.write_text(SECRET)
    file.chmod(0o600)
    monkeypatch.chdir(tmp_path)
    with token_file({"PACELINE_TOKEN_FILE": "token"}) as path:
        assert path == str(file)
    assert file.exists()


def test_a_secret_that_nobody_has_given_is_made():
    with token_file({}) as first, token_file({}) as second:
        secrets = [job_token({"PACELINE_TOKEN_FILE": path}) for path in (first, second)]
    assert len({*secrets}) == 2


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ({"worker": ["host-1:1", "host-2:1"]}, True),
        ({"worker": ["10.0.0.1:1", "127.0.0.1:1"]}, True),
        ({"chief": ["host-1:1"], "ps": ["host-2:1"]}, True),
        ({"worker": ["127.0.0.1:1", "localhost:2"]}, False),
        ({"worker": ["host-1:1"]}, False),
        ({"worker": ["127.0.0.1:1", "127.0.0.1:2"], "evaluator": ["host-1:1"]}, False),
        ({"worker": ["", ""]}, False),
        ({}, False),
    ],
)
def test_a_secret_is_needed_where_other_machines_can_call(jobs, expected):
    assert needs_token(ClusterSpec(jobs)) is expected
