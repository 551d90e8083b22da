"""The report of a run, or of several side by side: one page for a browser, from their histories."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from .chart import Series, line_chart, number, stacked_bars
from .growing_file import replace_file
from .markup import Child, Markup, element, joined
from .page import NUM_COLOURS, page, table, tiles
from .phases import PHASES
from .run import Curve, Event, Run

_RATES: Final = (
    ("steps_per_sec", "Steps per second", "1/s"),
    ("examples_per_sec", "Examples per second", "1/s"),
)
_EXPLAINED: Final = (
    "Milliseconds of a step of each worker, on its first replica. Communication is all waiting for "
    "other replicas, workers and servers; save is what a step waits for a checkpoint; evaluate, "
    "an evaluation between two steps."
)


def write_report(model_dir: str, path: str | None = None) -> str:
    """Write the report of what has been trained in `model_dir`.

    Args:
        model_dir: A path, or a URL that fsspec knows.
        path: Where to; by default `report.html` in it.

    Returns:
        Where it is.

    Raises:
        ValueError: There is no history in `model_dir`.
        OSError: It cannot be written.
    """
    path = path or f"{model_dir.rstrip('/')}/report.html"
    replace_file(path, report([Run.read(model_dir)]).encode())
    return path


def report(runs: Sequence[Run]) -> str:
    """The page of one run, or of several to compare.

    Each run has a colour of its own, up to `NUM_COLOURS` of them; its evaluations are dashed.
    """
    if len(runs) == 1:
        return _of_one(runs[0])
    title = "Comparison of " + ", ".join(run.name for run in runs)
    facts = [dict(_facts(run)) for run in runs]
    names = list(dict.fromkeys(name for found in facts for name in found))
    return page(
        title,
        element("header", element("h1", title)),
        element("h2", "At a glance"),
        table(
            ["", *[run.name for run in runs]],
            [[name, *[found.get(name, "") for found in facts]] for name in names],
        ),
        _charts(runs),
        _phases(runs),
        element("h2", "Configurations"),
        _configurations(runs),
        _footer(runs),
    )


def _of_one(run: Run) -> str:
    return page(
        run.name,
        _header(run),
        tiles(_facts(run)),
        _charts([run]),
        _phases([run]),
        element("h2", "Events"),
        _events(run),
        element("h2", "Configuration"),
        _configurations([run]),
        _footer([run]),
    )


def _header(run: Run) -> Markup:
    end = run.end
    kind, state = "live", "under way, or killed"
    if end is not None and end["event"] == "end":
        kind, state = "good", f"ended: {end.get('reason', '')}"
    elif end is not None:
        kind, state = "bad", "failed"
    began = _clock(run.beginnings[0]["time"]) if run.beginnings else "?"
    when = f"{began} to {_clock(run.last_time)} UTC"
    return element(
        "header",
        element("h1", run.name),
        element("span", state, class_=f"state {kind}"),
        element("span", when, class_="when"),
    )


def _facts(run: Run) -> list[tuple[str, str]]:
    """The figures that one wants to know first."""
    steps, beginnings = run.steps, run.beginnings
    facts = []
    if steps:
        loss = run.curve("loss")
        last = beginnings[-1].get("last_step") if beginnings else None
        of_all = f" of {last:,}" if last else ""
        facts.append(("steps", f"{steps[-1]['step']:,}{of_all}"))
        facts += [("loss of the last step", number(loss[-1][1]))] if loss else []
    for name, by_name in run.metrics.items():
        for where, curve in by_name.items():
            facts += [(f"{where}: {name}", number(curve[-1][1]))] if curve else []
    for name, label, _ in _RATES:
        values = [value for _, value in run.curve(name)]
        facts += (
            [(f"{label.lower()}, median", number(sorted(values)[len(values) // 2]))]
            if values
            else []
        )
    if beginnings:
        facts.append(("from beginning to end", _duration(run.last_time - beginnings[0]["time"])))
        about = beginnings[-1]
        workers, replicas = about.get("num_workers", 1), about.get("num_local_replicas", 1)
        facts.append(("workers × replicas", f"{workers} × {replicas}"))
    facts.append(("checkpoints", str(len({e["step"] for e in run.checkpoints}))))
    if len(beginnings) > 1:
        facts.append(("times continued", str(len(beginnings) - 1)))
    return facts


def _charts(runs: Sequence[Run]) -> Markup:
    """Every curve that any of the runs has: of one name in one chart, training and evaluations."""
    names = dict.fromkeys(["loss", *[n for run in runs for n in (*run.metrics, *run.scalars)]])
    figures = [_figure(name, [_of_name(name, run) for run in runs], "", runs) for name in names]
    for name, title, unit in _RATES:
        figures.append(_figure(title, [{"training": run.curve(name)} for run in runs], unit, runs))
    if not any(figures):
        return Markup()
    return joined(element("h2", "Curves"), element("div", *figures, class_="charts"))


def _of_name(name: str, run: Run) -> dict[str, Curve]:
    """The curves of a name: of training, and of each evaluation."""
    of_training = run.curve("loss") if name == "loss" else run.scalars.get(name, ())
    return {"training": of_training, **run.metrics.get(name, {})}


def _figure(
    title: str, curves: Sequence[Mapping[str, Curve]], unit: str, runs: Sequence[Run]
) -> Markup | None:
    """A chart of the curves of each run; None where there are none."""
    series = [
        Series(
            f"{run.name}: {label}" if len(runs) > 1 else label,
            curve,
            colour=(index if len(runs) > 1 else place) % NUM_COLOURS,
            dashes=place if len(runs) > 1 else 0,
            is_marked=label != "training",
        )
        for index, (run, by_label) in enumerate(zip(runs, curves, strict=True))
        for place, (label, curve) in enumerate(by_label.items())
        if curve
    ]
    marks = [int(event["step"]) for event in runs[0].beginnings[1:]] if len(runs) == 1 else []
    return line_chart(title, series, unit, marks) if series else None


def _phases(runs: Sequence[Run]) -> Markup:
    rows = {
        f"{run.name}: {task}" if len(runs) > 1 else task: phases
        for run in runs
        for task, phases in run.phases.items()
    }
    if not rows:
        return Markup()
    columns = [kind for kind in PHASES if any(row.get(kind) for row in rows.values())]
    cells: list[list[Child]] = [
        [name, *[number(row.get(kind, 0.0)) for kind in columns]] for name, row in rows.items()
    ]
    return joined(
        element("h2", "What the time of a step goes to"),
        element("div", stacked_bars(rows, PHASES), element("p", _EXPLAINED), class_="panel"),
        element("details", element("summary", "in numbers (ms)"), table(["", *columns], cells)),
    )


def _events(run: Run) -> Markup:
    rows: list[list[Child]] = [
        [_clock(event["time"]), task, f"{event['step']:,}", _told(event)]
        for task, event in run.incidents
    ]
    saved = ", ".join(f"{step:,}" for step in sorted({e["step"] for e in run.checkpoints}))
    checkpoints = element("p", element("b", "Checkpoints of steps "), saved or "none")
    listed = element("div", table(["time (UTC)", "task", "step", "event"], rows), class_="events")
    return joined(listed, checkpoints)


def _told(event: Event) -> Markup:
    if event["event"] == "begin":
        restart = event.get("restart") or 0
        again = f", restart {restart} of its launcher" if restart else ""
        verb = "goes on" if event["step"] else "begins"
        where = f"on {event.get('host', '?')}, process {event.get('pid', '?')}{again}"
        return joined(verb, " ", where)
    if event["event"] == "end":
        return element("span", f"ends: {event.get('reason', '')}", class_="good")
    if event["event"] == "killed":
        return element("span", "was killed, or its host was lost, after this", class_="bad")
    return element("code", f"fails: {event.get('error', '')}", class_="bad")


def _configurations(runs: Sequence[Run]) -> Markup:
    """What differs between runs, or from the run's first setting, then all the rest."""
    configs = [_settings(run) for run in runs]
    names = list(dict.fromkeys(name for config in configs for name in config))
    rows: dict[bool, list[list[Child]]] = {True: [], False: []}
    for name in names:
        values = [str(config.get(name, "")) for config in configs]
        is_set = len(set(values)) > 1 if len(runs) > 1 else values[0] not in ("None", "False", "")
        cells: list[Child] = [element("code", value) for value in values]
        rows[is_set].append([name, *cells])
    headings = ["", *[run.name if len(runs) > 1 else "" for run in runs]]
    summary = "what is the same" if len(runs) > 1 else "what is off or not given"
    rest = element("details", element("summary", summary), table(headings, rows[False]))
    return joined(table(headings, rows[True]) if rows[True] else None, rest)


def _settings(run: Run) -> dict[str, object]:
    """The settings of a run at its last beginning, and the parameters of its model."""
    if not run.beginnings:
        return {}
    about = run.beginnings[-1]
    params = {f"params[{name!r}]": value for name, value in about["params"].items()}
    return {**about["config"], "strategy": about.get("strategy"), **params}


def _footer(runs: Sequence[Run]) -> Markup:
    now = datetime.now(UTC).isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")
    damaged = sum(run.num_damaged for run in runs)
    note = f" {damaged} damaged line(s) of the history were passed over." if damaged else ""
    return element("footer", f"Made by paceline report at {now} UTC.{note}")


def _clock(secs: float) -> str:
    return f"{datetime.fromtimestamp(secs, UTC):%Y-%m-%d %H:%M:%S}"


def _duration(secs: float) -> str:
    return str(timedelta(seconds=round(max(0, secs))))


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line of `paceline report`."""
    parser.description = "Write report.html of a run, or of several side by side."
    parser.add_argument("model_dir", nargs="+", help="where it was trained; a path or a URL")
    parser.add_argument("--compare", action="store_true", help="one page of several runs")
    out = "where to; by default report.html in the (first) directory, comparison.html of several"
    parser.add_argument("--output", "-o", metavar="FILE", help=out)


def run_report(arguments: argparse.Namespace) -> int:
    """Carry out `paceline report`; its exit code."""
    places = arguments.model_dir
    if arguments.compare != (len(places) > 1):
        asked = (
            "--compare takes two directories or more"
            if arguments.compare
            else ("one directory, or several with --compare")
        )
        print(f"paceline report: {asked}, {len(places)} given", file=sys.stderr)
        return 2
    try:
        if not arguments.compare:
            print(write_report(places[0], arguments.output))
            return 0
        path = arguments.output or "comparison.html"
        replace_file(path, report([Run.read(place) for place in places]).encode())
    except (ValueError, OSError, ImportError) as error:
        print(f"paceline report: {error}", file=sys.stderr)
        return 2
    print(path)
    return 0
