"""The history of a run comes to curves, phases and incidents; the report shows all of them."""

from __future__ import annotations

import json
import os
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from paceline.__main__ import main
from paceline.observe import History, Run, write_report
from paceline.observe.chart import Series, _ticks, line_chart, number
from paceline.observe.markup import Markup, element
from paceline.observe.report import report
from paceline.observe.watch import status

Events = list[dict[str, Any]]


def steps(step: int, loss: float | None = 0.5, **fields: Any) -> dict[str, Any]:
    phases = {"input": 0.1, "forward": 0.3}
    rates = {"steps_per_sec": 10.0, "examples_per_sec": 320.0}
    return {"event": "steps", "step": step, "loss": loss, "phases": phases, "own_steps": 10} | (
        rates | fields
    )


def begin(step: int = 0, **fields: Any) -> dict[str, Any]:
    return {"event": "begin", "step": step, "is_chief": True, "host": "h", "pid": 7} | fields


def write(model_dir: Path, **tasks: Events) -> Path:
    for task, events in tasks.items():
        history = History(str(model_dir), task.replace("_", "-"))
        for event in events:
            history.note(**event)
        history.close()
    return model_dir


def a_run(model_dir: Path) -> Path:
    """Begun, killed, continued; evaluated by another process."""
    return write(
        model_dir,
        worker_0=[
            begin(last_step=30, config={"model_dir": "'m'", "report": "True"}),
            {"event": "checkpoint", "step": 0},
            steps(10, 4.0, scalars={"learning_rate": 0.1}),
            {"event": "checkpoint", "step": 10},
            steps(20, 3.0),
            begin(10, restart=1, last_step=30),
            steps(20, 2.0),
            steps(30, 1.0),
            {"event": "end", "step": 30, "reason": "max_steps was reached"},
        ],
        worker_1=[begin(is_chief=False), steps(10), {"event": "failure", "step": 10, "error": "E"}],
        evaluator_0=[
            {"event": "evaluation", "step": 10, "name": "", "metrics": {"loss": 3.5, "auc": 0.5}},
            {"event": "evaluation", "step": 30, "name": "b", "metrics": {"auc": 0.75}},
        ],
    )


def test_curves_have_each_step_once_although_a_run_went_back(tmp_path: Path) -> None:
    run = Run.read(str(a_run(tmp_path)))
    assert run.curve("loss") == [(10, 4.0), (20, 2.0), (30, 1.0)]
    assert run.scalars == {"learning_rate": [(10, 0.1)]}


def test_metrics_are_those_of_all_tasks_by_evaluation(tmp_path: Path) -> None:
    run = Run.read(str(a_run(tmp_path)))
    assert run.metrics["auc"] == {"eval": [(10, 0.5)], "eval_b": [(30, 0.75)]}
    assert run.metrics["loss"] == {"eval": [(10, 3.5)]}


def test_phases_are_milliseconds_of_a_step_of_each_worker(tmp_path: Path) -> None:
    run = Run.read(str(a_run(tmp_path)))
    assert run.phases["worker-0"] == {"input": pytest.approx(10), "forward": pytest.approx(30)}
    assert set(run.phases) == {"worker-0", "worker-1"}


def test_a_run_that_was_killed_is_told_from_one_that_failed_or_ended(tmp_path: Path) -> None:
    run = Run.read(str(a_run(tmp_path)))
    told = [(task, event["event"], event["step"]) for task, event in run.incidents]
    assert [t[1:] for t in told if t[0] == "worker-0"] == [
        ("begin", 0),
        ("killed", 20),
        ("begin", 10),
        ("end", 30),
    ]
    assert ("worker-1", "failure", 10) in told
    assert run.end is not None
    assert run.end["reason"] == "max_steps was reached"


def test_a_run_under_way_has_no_end(tmp_path: Path) -> None:
    run = Run.read(str(write(tmp_path, worker_0=[begin(), steps(10)])))
    assert run.end is None
    assert "under way" in report([run])


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"event": "steps"}',
        b'{"event": "steps", "time": "x", "step": 1}',
        b'{"event": "steps", "time": 1, "step": 1, "phases": [1]}',
        b'{"event": "steps", "time": 1, "step": 1, "scalars": {"a": "b"}}',
        b'{"event": "begin", "time": 1, "step": 1, "config": 3}',
        b'{"event": "other", "time": 1, "step": 1}',
        b"[" * 100_000,
        b'{"event": "\x1b[2J", "time": 1, "step": 1}',
        b'{"event": "steps", "time": 1, "step": 1, "loss": []}',
        b'{"event": "steps", "time": 1, "step": 1, "loss": 1e999}',
        b'{"event": "steps", "time": 1e30, "step": 1}',
        b'{"event": "steps", "time": 1, "step": -1}',
        b'{"event": "begin", "time": 1, "step": 1, "last_step": 1' + b"0" * 400 + b"}",
        b'{"event": "begin", "time": 1, "step": 1, "params": "x"}',
        b'{"event": "evaluation", "time": 1, "step": 1, "metrics": {"a": {}}}',
        b'{"event": "evaluation", "time": 1, "step": 1, "name": [], "metrics": {}}',
        b'{"event": "failure", "time": 1, "step": 1, "error": 3}',
    ],
)
def test_damaged_lines_are_passed_over_told_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, line: bytes
) -> None:
    write(tmp_path, worker_0=[begin(), steps(10)])
    with (tmp_path / "history" / "worker-0.jsonl").open("ab") as file:
        file.write(line + b"\n")
    run = Run.read(str(tmp_path))
    assert (len(run.chief), run.num_damaged) == (2, 1)
    assert "1 damaged line(s)" in report([run])
    assert f"{tmp_path}/history/worker-0.jsonl, line 3 is damaged" in caplog.text
    assert all(message.isprintable() for message in caplog.messages)
    status(run, time.time()).line()


def test_a_line_that_its_writer_was_killed_in_does_not_hide_the_next(tmp_path: Path) -> None:
    write(tmp_path, worker_0=[begin(), steps(10)])
    path = tmp_path / "history" / "worker-0.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    write(tmp_path, worker_0=[begin(5)])
    assert [event["event"] for event in Run.read(str(tmp_path)).chief] == ["begin", "begin"]


def test_what_is_no_number_is_left_out_of_curves(tmp_path: Path) -> None:
    run = Run.read(str(write(tmp_path, worker_0=[begin(), steps(1, float("nan")), steps(2)])))
    assert run.curve("loss") == [(2, 0.5)]


def test_behind_a_url_histories_are_found_and_the_report_is_written() -> None:
    fsspec = pytest.importorskip("fsspec")
    history = History("memory://runs/one", "worker-0")
    history.note(**begin())
    history.note(**steps(10))
    history.close()
    path = write_report("memory://runs/one")
    page = fsspec.filesystem("memory").cat_file(path).decode()
    fsspec.filesystem("memory").rm("/runs", recursive=True)
    assert path == "memory://runs/one/report.html"
    assert "<h1>one</h1>" in page


class Page(HTMLParser):
    """Checks that elements are closed in order; notes what a browser would fetch or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_report_is_one_page_that_needs_no_network(tmp_path: Path) -> None:
    page = Page(report([Run.read(str(a_run(tmp_path)))]))
    tags = [tag for tag, _ in page.elements]
    assert tags.count("svg") == len({"loss", "auc", "learning_rate", "steps/s", "examples/s"})
    assert tags.count("script") == 1
    assert not {"img", "link", "iframe", "object"} & set(tags)
    assert not [a for _, attributes in page.elements for a in attributes if a in ("src", "href")]
    for told in ("times continued", "was killed", "restart 1", "fails: E", "max_steps was reached"):
        assert told in page.text


def test_everything_that_a_run_says_is_escaped(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>\"'&"
    events = [
        begin(host=evil, config={evil: evil}, strategy=evil),
        steps(1, scalars={evil: 1.0}),
        steps(2, scalars={evil: 2.0}),
        {"event": "evaluation", "step": 2, "name": evil, "metrics": {evil: 1.0}},
        {"event": "failure", "step": 2, "error": evil},
    ]
    page = Page(report([Run.read(str(write(tmp_path / "<b>", worker_0=events)))]))
    assert sum(tag == "script" for tag, _ in page.elements) == 1
    assert page.text.count("alert(1)") >= 6


def test_runs_are_compared_in_one_chart_each_with_its_name(tmp_path: Path) -> None:
    for name, rate in (("slow", 10.0), ("fast", 20.0)):
        config = {"model_dir": repr(name), "tf_random_seed": "1"}
        write(tmp_path / name, worker_0=[begin(config=config), steps(10, steps_per_sec=rate)])
    page = Page(report([Run.read(str(tmp_path / name)) for name in ("slow", "fast")]))
    charts = [json.loads(a["data-chart"] or "") for t, a in page.elements if t == "svg"]
    labels = [[series["label"] for series in chart["series"]] for chart in charts]
    assert labels == [["slow: training", "fast: training"]] * 3
    assert "Comparison of slow, fast" in page.text


def test_each_run_of_a_comparison_has_a_colour_and_its_evaluations_are_dashed(
    tmp_path: Path,
) -> None:
    names = [f"run{index}" for index in range(12)]
    for name in names:
        metrics = {"event": "evaluation", "step": 10, "name": "", "metrics": {"loss": 1.0}}
        again = metrics | {"name": "b"}
        write(tmp_path / name, worker_0=[begin(), steps(10), steps(20), metrics, again])
    page = Page(report([Run.read(str(tmp_path / name)) for name in names]))
    lines = [(a["class"] or "").split() for tag, a in page.elements if tag == "polyline"]
    of_loss = lines[: 3 * len(names)]
    assert [line[1] for line in of_loss] == [f"s{i}" for i in range(12) for _ in range(3)]
    assert [line[2:] for line in of_loss[:3]] == [[], ["d1"], ["d2"]]
    style = report([Run.read(str(tmp_path / names[0]))])
    colours = re.findall(r"--c\d+: (#\w+);", style)
    assert [len(set(colours[:12])), len(set(colours[12:]))] == [12, 12]


def test_the_parameters_in_which_runs_differ_are_compared(tmp_path: Path) -> None:
    for name, rate in (("slow", 0.1), ("fast", 0.2)):
        params = {"rate": rate, "units": [4, 4]}
        write(tmp_path / name, worker_0=[begin(params=params), steps(10)])
    page = report([Run.read(str(tmp_path / name)) for name in ("slow", "fast")])
    differ, same = page.partition("Configurations")[2].split("<details>")
    assert "<td>params[&#x27;rate&#x27;]</td><td><code>0.1</code></td><td><code>0.2" in differ
    assert "units" not in differ
    assert "params[&#x27;units&#x27;]" in same


@pytest.mark.parametrize(
    "curve",
    [[(1, 1.0)], [(1, 0.0), (2, 0.0)], [(0, 1e-9), (10**9, 1e9)], [(1, -5.0), (2, 5e300)]],
    ids=["one point", "constant", "many sizes", "huge"],
)
def test_any_curve_can_be_drawn_within_its_chart(curve: list[tuple[int, float]]) -> None:
    drawn = line_chart("x", [Series("a", curve, 0)])
    places = [
        float(p) for ps in re.findall(r'points="([^"]*)"', drawn) for p in re.split("[, ]", ps)
    ]
    assert len(places) == 2 * len(curve)
    assert all(0 <= place <= 620 for place in places)


def test_a_long_curve_is_thinned_to_means_and_smoothed() -> None:
    curve = [(step, float(step % 2)) for step in range(10_000)]
    drawn = line_chart("x", [Series("a", curve, 0)])
    assert len(drawn) < 60_000
    assert drawn.count("<polyline") == 2


@pytest.mark.parametrize(
    ("low", "high", "count", "expected"),
    [
        (0, 1, 5, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (3, 47, 5, [10, 20, 30, 40]),
        (-1, 1, 4, [-1, -0.5, 0, 0.5, 1]),
    ],
)
def test_ticks_are_round_numbers(
    low: float, high: float, count: int, expected: list[float]
) -> None:
    assert _ticks(low, high, count) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (0.12345, "0.1235"), (12345.6, "12,346"), (1.5e-7, "1.5e-07"), (3e9, "3e+09")],
)
def test_numbers_have_four_digits_that_count(value: float, shown: str) -> None:
    assert number(value) == shown


def test_markup_is_not_escaped_twice() -> None:
    inner = element("b", "<")
    assert element("p", inner, "<", class_="a", data_x='"') == Markup(
        '<p class="a" data-x="&quot;"><b>&lt;</b>&lt;</p>'
    )


def test_paceline_report_writes_the_page_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_run(tmp_path)
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == f"{tmp_path}/report.html"
    both = str(tmp_path / "both.html")
    assert main(["report", "--compare", str(tmp_path), str(tmp_path), "-o", both]) == 0
    assert "Comparison" in Path(both).read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["{0}"], "there is no history in"),
        (["{0}", "{0}"], "one directory, or several with --compare, 2 given"),
        (["--compare", "{0}"], "--compare takes two directories or more, 1 given"),
    ],
)
def test_paceline_report_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert main(["report", *[argument.format(tmp_path) for argument in arguments]]) == 2
    assert told in capsys.readouterr().err


def test_a_history_is_not_written_through_a_symbolic_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / "history").mkdir()
    (tmp_path / "history" / "worker-0.jsonl").symlink_to(precious)
    history = History(str(tmp_path), "worker-0")
    history.note(**begin())
    assert isinstance(history.problem, OSError)
    assert precious.read_text() == "kept"


@pytest.mark.parametrize("name", ["worker-0.jsonl", "worker-1.jsonl"])
def test_a_history_that_is_no_file_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    write(tmp_path, worker_0=[begin(), steps(10)])
    path = tmp_path / "history" / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    assert main(["report", str(tmp_path)]) == 2
    assert f"it is not a regular file: '{path}'" in capsys.readouterr().err
