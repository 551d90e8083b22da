"""The command `paceline`: help, exit codes, errors in one line."""

import os
import subprocess
import sys

import pytest

from paceline import __version__
from paceline.__main__ import main


@pytest.mark.parametrize("command", ["launch", "check-cluster", "doctor"])
def test_each_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"usage: paceline {command}" in capsys.readouterr().out


def test_the_help_lists_the_commands(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    for line in ("launch  ", "check-cluster  ", "doctor  "):
        assert line in out


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"paceline {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["no-such-command"],
        ["launch"],
        ["launch", "--workers", "-1", "x.py"],
        ["launch", "--workers", "two", "x.py"],
        ["launch", "--grace-secs", "nan", "x.py"],
        ["launch", "--backend", "smoke", "x.py"],
    ],
)
def test_a_wrong_command_line_is_exit_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: paceline" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["launch", "evaluate"])
def test_where_the_script_is_missing_only_that_is_asked_for(command, capsys):
    with pytest.raises(SystemExit):
        main([command])
    assert capsys.readouterr().err.endswith("the following arguments are required: script\n")


def test_a_wrong_request_is_one_line_and_exit_code_2(capsys):
    assert main(["launch", "nowhere.py"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("paceline launch: script is 'nowhere.py'")
    assert err.count("\n") == 1


def test_options_after_the_script_are_the_scripts(tmp_path):
    path = tmp_path / "script.py"
    path.write_text("import sys; print(sys.argv[1:])")
    arguments = ["launch", "--workers", "1", str(path), "--workers", "7", "-m", "--", "x"]
    ran = subprocess.run(
        [sys.executable, "-m", "paceline", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "[worker 0] ['--workers', '7', '-m', '--', 'x']\n"
    assert ran.stderr == "[launch] starting worker 0 over gRPC\n"
