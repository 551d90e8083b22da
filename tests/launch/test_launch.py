"""`paceline launch` over gRPC: a job of processes, watched over as one (CL-05)."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap

import psutil
import pytest

from paceline.cluster import ClusterError, addresses, num_cores
from paceline.cluster.launch import LaunchOptions, launch, restart_delay_secs

from .processes import left_of

COMMAND = (sys.executable, "-m", "paceline")


def test_cl05_every_task_runs_the_script_in_its_role(run):
    job = {"num_workers": 2, "chief": True, "num_ps": 1, "evaluator": True}
    result = run("print(TASK, *sys.argv[1:])", "--steps", "5", **job)
    assert result.code == 0
    for name in ("chief 0", "worker 0", "worker 1", "ps 0", "evaluator 0"):
        assert result.of(name) == [f"{name} --steps 5"]


def test_all_tasks_have_one_cluster_on_different_ports(run):
    result = run("print(os.environ['TF_CONFIG'])", num_workers=2, evaluator=True)
    configs = [json.loads(result.of(f"{name} 0")[0]) for name in ("worker", "evaluator")]
    configs.append(json.loads(result.of("worker 1")[0]))
    assert len({json.dumps(config["cluster"]) for config in configs}) == 1
    cluster = configs[0]["cluster"]
    assert list(cluster) == ["worker", "evaluator"]
    assert len({*cluster["worker"], *cluster["evaluator"]}) == 3


def test_both_streams_keep_their_lines_and_their_task(run):
    text = """
print("out"); print("err", file=sys.stderr)
sys.stdout.write("no end of line")
"""
    result = run(text, num_workers=1)
    assert result.out == ["[worker 0] out", "[worker 0] no end of line"]
    assert "[worker 0] err" in result.err


def test_on_request_each_line_is_json_of_tasks_and_launcher(run):
    text = """
from paceline.observe import ensure_handler, logger
print("printed")
ensure_handler()
logger().info("logged", extra={"values": {"loss": 1.5}})
"""
    result = run(text, num_workers=2, log_json=True)
    assert [json.loads(line)["message"] for line in result.out] == ["printed"] * 2
    told = [json.loads(line) for line in result.err]
    values = {line["task"]: line["values"] for line in told if line["message"] == "logged"}
    assert values == {"worker 0": {"loss": 1.5}, "worker 1": {"loss": 1.5}}
    assert any(line["task"] == "launch" for line in told)


@pytest.mark.parametrize(
    ("how", "code", "told"),
    [
        ("raise ValueError('boom')", 1, "exit code 1"),
        ("sys.exit(3)", 3, "exit code 3"),
        ("os._exit(77)", 77, "exit code 77"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "signal 9"),
        ("os.abort()", 134, "signal 6"),
    ],
)
def test_when_a_task_fails_the_others_are_ended_and_its_code_is_returned(run, how, code, told):
    result = run(f"if TASK == 'worker 1':\n    {how}\nwait_for_ever()", num_workers=3)
    assert result.code == code
    assert result.notes()[-1] == f"worker 1 failed ({told})"


def test_the_traceback_of_the_task_that_failed_first_is_printed_last(run):
    text = """
if TASK == "worker 0":
    raise ValueError("the cause")
def on_end(*args):
    raise RuntimeError("a consequence")
signal.signal(signal.SIGTERM, on_end)
wait_for_ever()
"""
    result = run(text, num_workers=2)
    assert result.code == 1
    said = result.err.index("[launch] worker 0 failed (exit code 1)")
    assert result.err[said + 1] == "[worker 0] Traceback (most recent call last):"
    assert result.err[-1] == "[worker 0] ValueError: the cause"
    assert "the cause" not in "".join(result.notes())


def test_the_culprit_is_named_and_not_the_task_that_lost_it_and_ended_first(run, tmp_path):
    os.mkfifo(tmp_path / "ended")
    text = f"""
pipe = {str(tmp_path / "ended")!r}
if TASK == "worker 0":
    file = open(pipe, "w")
    file.write(str(os.getpid()))
    file.close()
    print("Traceback (most recent call last):", "lost worker 1", sep="\\n", file=sys.stderr)
    os._exit(138)
pid = open(pipe).read()
while os.path.exists("/proc/" + pid):  # the launcher has not seen its end yet
    os.sched_yield()
raise ValueError("the cause")
"""
    result = run(text, num_workers=2)
    assert result.code == 1
    assert result.notes()[-1] == "worker 1 failed (exit code 1)"
    assert result.err[-1] == "[worker 1] ValueError: the cause"


def test_where_all_have_lost_a_peer_that_is_the_exit_code(run):
    result = run("sys.exit(138)", num_workers=2)
    assert result.code == 138
    assert "failed (exit code 138: it has lost another task)" in result.notes()[-1]


def test_a_failing_evaluator_fails_the_job(run):
    text = "if TASK == 'evaluator 0':\n    sys.exit(4)\nwait_for_ever()"
    assert run(text, num_workers=1, evaluator=True).code == 4


def test_the_launcher_waits_for_the_evaluator_and_says_so(run, tmp_path):
    os.mkfifo(tmp_path / "worker")
    text = f"""
pipe = {str(tmp_path / "worker")!r}
if TASK == "worker 0":
    open(pipe, "w").write(str(os.getpid()))
else:
    pid = open(pipe).read()
    while os.path.exists("/proc/" + pid):  # the launcher has not seen its end yet
        os.sched_yield()
    print("evaluated")
"""
    result = run(text, num_workers=1, evaluator=True)
    assert result.code == 0
    assert "training has ended; waiting for evaluator 0" in result.notes()
    assert result.of("evaluator 0") == ["evaluated"]


@pytest.mark.parametrize("task", ["worker 0", "worker 1", "evaluator 0"])
def test_a_task_that_stands_still_when_all_others_have_ended_is_killed_by_name(run, task):
    """Be it the chief: the launcher would wait for ever."""
    text = f"if TASK == {task!r}:\n    os.kill(os.getpid(), signal.SIGSTOP)"
    result = run(text, num_workers=2, evaluator=True, grace_secs=0.5)
    assert result.code == 128 + signal.SIGKILL
    assert f"all others have ended; killing {task} (stopped)" in result.notes()
    assert result.notes()[-1] == f"{task} failed (signal 9)"


def test_a_task_that_ignores_sigterm_is_killed_after_the_grace(run):
    text = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
if TASK == "worker 0":
    wait_for_ever()
sys.exit(2)
"""
    assert run(text, num_workers=2, grace_secs=0.2).code == 2


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_ctrl_c_and_its_like_end_all(run, number, code):
    text = f"if TASK == 'worker 1':\n    os.kill(os.getppid(), {int(number)})\nwait_for_ever()"
    result = run(text, num_workers=2, max_restarts=3)
    assert result.code == code
    assert result.notes()[-1] == f"{number.name}: ending all tasks"


def test_a_second_ctrl_c_does_not_wait_for_the_grace(run):
    text = """
signal.signal(signal.SIGTERM, lambda *args: os.kill(os.getppid(), signal.SIGINT))
os.kill(os.getppid(), signal.SIGINT)
wait_for_ever()
"""
    assert run(text, num_workers=1, grace_secs=60).code == 130


def test_handlers_of_the_caller_are_back_afterwards(run):
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
    run("pass", num_workers=1)
    assert before == [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]


def test_a_failed_job_is_restarted_as_a_whole_as_often_as_allowed(run):
    text = """
print("start", os.environ["PACELINE_RESTART_COUNT"], os.environ["PACELINE_JOB_ID"])
if TASK == "worker 1" and os.environ["PACELINE_RESTART_COUNT"] != "2":
    sys.exit(9)
if os.environ["PACELINE_RESTART_COUNT"] != "2":
    wait_for_ever()
"""
    result = run(text, num_workers=2, max_restarts=3)
    assert result.code == 0
    starts = [line.split() for line in result.of("worker 1") if line.startswith("start")]
    assert [count for _, count, _ in starts] == ["0", "1", "2"]
    assert len({job_id for _, _, job_id in starts}) == 3
    assert result.notes()[1:3] == [
        "worker 1 failed (exit code 9); restart 1 of 3 of the whole job",
        "worker 1 failed (exit code 9); restart 2 of 3 of the whole job in 1 s",
    ]


@pytest.mark.parametrize(
    ("num_short_runs", "secs"), [(1, 0), (2, 1), (3, 2), (4, 4), (7, 32), (8, 60), (2000, 60)]
)
def test_what_fails_again_and_again_is_restarted_later_and_later(num_short_runs, secs):
    assert restart_delay_secs(num_short_runs) == secs


def test_ctrl_c_ends_the_wait_for_a_restart(script):
    command = [*COMMAND, "launch", "--workers", "1", "--max-restarts", "99", script("sys.exit(1)")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as launcher:
        for line in launcher.stderr:
            if "in 4 s" in line:
                launcher.send_signal(signal.SIGINT)
        assert launcher.wait(timeout=20) == 130
    assert "in 4 s" in line, "nothing was said and started after it"


def test_a_job_that_was_asked_to_end_is_not_restarted(run):
    """One task was told to make room for others: SIGTERM."""
    text = """
print("start", os.environ["PACELINE_RESTART_COUNT"])
if TASK == "worker 1":
    os.kill(os.getpid(), 15)
wait_for_ever()
"""
    result = run(text, num_workers=2, max_restarts=3)
    assert result.code == 143
    assert result.of("worker 1") == ["start 0"]


def test_when_no_restart_is_left_the_last_failure_counts(run):
    result = run("sys.exit(5 + int(os.environ['PACELINE_RESTART_COUNT']))", max_restarts=1)
    assert result.code == 6


def test_the_cores_are_shared_out_unless_the_user_has_said_otherwise(run):
    text = "print(os.environ['OPENBLAS_NUM_THREADS'], os.environ['OMP_NUM_THREADS'])"
    environ = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    share = str(max(1, num_cores() // 2))

    result = run(text, num_workers=2, environ=environ)
    assert result.of("worker 0") == [f"{share} {share}"]
    assert f"OPENBLAS_NUM_THREADS={share} OMP_NUM_THREADS={share}" in result.notes()[0]

    result = run(text, num_workers=2, environ=environ | {"OMP_NUM_THREADS": "7"})
    assert result.of("worker 0") == [f"{share} 7"]
    assert "OMP_NUM_THREADS" not in result.notes()[0]


def test_a_tf_config_of_the_launcher_is_not_passed_on_and_that_is_said(run):
    environ = os.environ | {"TF_CONFIG": '{"environment": "cloud"}'}
    result = run("print('environment' in os.environ['TF_CONFIG'])", num_workers=1, environ=environ)
    assert result.of("worker 0") == ["False"]
    assert "TF_CONFIG is set here" in result.notes()[1]


def test_that_this_shell_is_alone_does_not_hold_for_the_tasks(run):
    text = "from paceline.cluster import resolve\nprint(resolve().describe())"
    result = run(text, num_workers=2, environ=os.environ | {"PACELINE_ALONE": "1"})
    assert result.of("worker 1") == ["TF_CONFIG: worker 1 of a cluster of 2 workers"]


def test_e3_all_tasks_have_one_secret_that_nobody_prints(run):
    text = """
import hashlib
from pathlib import Path
file = Path(os.environ["PACELINE_TOKEN_FILE"])
assert "PACELINE_TOKEN" not in os.environ
assert file.stat().st_mode & 0o777 == 0o600
print(hashlib.sha256(file.read_bytes()).hexdigest())
print(file)
"""
    environ = {k: v for k, v in os.environ.items() if k != "PACELINE_TOKEN"}
    results = [run(text, num_workers=2, environ=environ) for _ in range(2)]
    for result in results:
        assert result.of("worker 0") == result.of("worker 1")
    assert results[0].of("worker 0")[0] != results[1].of("worker 0")[0]

    given = "one given by hand, long enough"
    result = run(text, num_workers=1, environ=environ | {"PACELINE_TOKEN": given})
    assert result.of("worker 0")[0] == hashlib.sha256(given.encode()).hexdigest()
    assert given not in "".join(result.out + result.err)


def test_e3_a_secret_that_is_too_short_is_refused_before_anything_starts(run):
    with pytest.raises(ClusterError, match="PACELINE_TOKEN must have at least 16"):
        run("", environ=os.environ | {"PACELINE_TOKEN": "guess"})


def test_nothing_stays_open(run):
    for address in list(addresses._held):  # other tests' ports, of which the oldest would go now
        addresses.release_port(*address)
    before = set(os.listdir("/proc/self/fd"))
    run("sys.exit(1)", num_workers=2, max_restarts=1)
    assert set(os.listdir("/proc/self/fd")) == before


def test_nothing_that_a_task_started_is_left(run):
    text = """
import subprocess
print(subprocess.Popen(["sleep", "100"]).pid)
"""
    (pid,) = run(text, num_workers=1).of("worker 0")
    assert_ended([int(pid)])


def assert_ended(pids):
    """Wait until processes that are not our children have gone."""
    assert not [p for p in left_of(pids) if p.status() != psutil.STATUS_ZOMBIE]


def test_no_orphan_is_left_when_the_launcher_is_killed(script):
    path = script("print(os.getpid(), flush=True)\nwait_for_ever()")
    with subprocess.Popen(
        [*COMMAND, "launch", "--workers", "2", path], stdout=subprocess.PIPE, text=True
    ) as launcher:
        lines = [launcher.stdout.readline() for _ in range(4)]
        launcher.kill()
    pids = [int(line.split()[-1]) for line in lines if line.split()[-1].isdecimal()]
    assert len(pids) == 2
    assert_ended(pids)


def test_the_job_ends_when_nobody_reads_its_output(script):
    text = """
    def save(number, frame):
        open(sys.argv[0] + ".saved", "w").close()
        os._exit(143)
    signal.signal(signal.SIGTERM, save)
    print(os.getpid(), flush=True)
    while True: print('more')
    """
    path = script(textwrap.dedent(text))
    with subprocess.Popen(
        [*COMMAND, "launch", "--workers", "1", path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as launcher:
        pid = int(launcher.stdout.readline().split()[-1])
        launcher.stdout.close()
        assert launcher.wait(timeout=20) == 141
    assert_ended([pid])
    assert os.path.exists(f"{path}.saved"), "the task was asked to end"


def test_a_full_disk_under_the_log_does_not_end_the_job(script):
    path = script("print('out'); print('err', file=sys.stderr)")
    with open("/dev/full", "wb") as full:
        command = [*COMMAND, "launch", "--workers", "2", path]
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, timeout=60)
    assert ended.returncode == 0
    assert sorted(ended.stdout.splitlines()) == [b"[worker 0] out", b"[worker 1] out"]


def test_modules_are_launched_as_python_does(tmp_path, monkeypatch, capfdbinary):
    (tmp_path / "a_module.py").write_text("import sys; print(__name__, sys.argv[1:])")
    monkeypatch.chdir(tmp_path)
    options = LaunchOptions(program=("a_module", "x"), is_module=True, num_workers=1)
    with open(1, "wb", closefd=False) as out:
        assert launch(options, os.environ, out, out) == 0
    assert b"[worker 0] __main__ ['x']" in capfdbinary.readouterr().out


def test_a_script_that_is_not_there_is_refused_at_once(tmp_path):
    with pytest.raises(ClusterError, match=r"script is 'nowhere.py', but there is no such file"):
        launch(LaunchOptions(program=("nowhere.py",)))


def test_a_job_without_anybody_to_train_is_refused(run):
    with pytest.raises(ClusterError, match="ask for somebody to train"):
        run("", num_workers=0, num_ps=1)
