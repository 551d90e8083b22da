"""Charts as SVG: curves over the global step, and stacked bars of times."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, final

from .markup import Markup, element, joined
from .run import Curve

WIDTH, HEIGHT = 620, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 12, 42
_MOST_POINTS: Final = 400
NUM_DASHES: Final = 3
_SMOOTHED_FROM = 60
_LOG_FROM_RATIO = 200.0


@final
@dataclass(frozen=True)
class Series:
    """One line of a chart.

    Args:
        label: What the legend calls it.
        curve: Its points.
        colour: The number of its colour.
        dashes: The number of its pattern; 0 is a line without gaps.
        is_marked: Whether each point has a dot, as those of evaluations have.
    """

    label: str
    curve: Curve
    colour: int
    dashes: int = 0
    is_marked: bool = False


@final
class _Scale:
    """Where on the page a number lies."""

    def __init__(self, low: float, high: float, begin: float, end: float, is_log: bool) -> None:
        self._map = math.log10 if is_log else float
        self._low, self._span = self._map(low), (self._map(high) - self._map(low)) or 1.0
        self._begin, self._length = begin, end - begin

    def __call__(self, value: float) -> float:
        return round(self._begin + self._length * (self._map(value) - self._low) / self._span, 1)


def line_chart(
    title: str, series: Sequence[Series], unit: str = "", marks: Sequence[int] = ()
) -> Markup:
    """A figure with a title, a legend, axes with units, and curves over the global step.

    A curve of many points is drawn pale, with a moving average above it. The values' axis begins
    at 0 where they have a unit; else it is logarithmic where all are positive and the largest is
    200 times the smallest.

    Args:
        title: What is shown.
        series: Those without points are left out; there is at least one with some.
        unit: That of the values.
        marks: Steps at which a run was continued.
    """
    series = [s for s in series if s.curve]
    values = [value for s in series for _, value in s.curve]
    steps = [step for s in series for step, _ in s.curve]
    is_log = not unit and min(values) > 0 and max(values) / min(values) > _LOG_FROM_RATIO
    low, high = _padded(min(values), max(values), is_log)
    low = 0.0 if unit else low
    first, last = min(steps), max(steps)
    x = _Scale(first, last if last > first else first + 1, _LEFT, WIDTH - _RIGHT, False)
    y = _Scale(low, high, HEIGHT - _BOTTOM, _TOP, is_log)
    value_ticks = _log_ticks(low, high) if is_log else _ticks(low, high, 5)
    drawing = joined(
        *[_value_tick(y(v), number(v)) for v in value_ticks],
        *[_step_tick(x(v), f"{v:,.0f}") for v in _ticks(first, last, 6, whole=True)],
        *[_mark(x(step)) for step in marks if first <= step <= last],
        *[_line(s, x, y, is_log) for s in series],
        _axis_title("global step", (WIDTH + _LEFT - _RIGHT) / 2, HEIGHT - 6),
    )
    shown = [{"label": s.label, "points": _thinned(s.curve)} for s in series]
    places = {"first": first, "last": max(last, first + 1), "left": _LEFT, "right": _RIGHT}
    svg = element(
        "svg",
        element("title", title),
        drawing,
        element("line", class_="cursor", y1=_TOP, y2=HEIGHT - _BOTTOM),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        class_="chart",
        data_chart=json.dumps({"series": shown, "width": WIDTH, **places}),
    )
    named = element("span", f" {unit}", class_="unit") if unit else None
    logarithmic = element("span", " logarithmic", class_="unit") if is_log else None
    heading = element("figcaption", element("b", title), named, logarithmic, _legend(series))
    return element("figure", heading, svg, element("output", class_="readout"))


def stacked_bars(rows: Mapping[str, Mapping[str, float]], kinds: Sequence[str]) -> Markup:
    """One bar for each row, on a common scale of milliseconds.

    Args:
        rows: What each part of a bar takes, by row and kind.
        kinds: The parts, in order; the number of a kind is that of its colour.
    """
    longest = max(sum(parts.values()) for parts in rows.values()) or 1.0
    bars = []
    for name, parts in rows.items():
        total = sum(parts.values())
        pieces = [
            element(
                "i",
                class_=f"phase p{index}",
                style=f"width:{100 * parts[kind] / longest:.2f}%",
                title=f"{kind}: {number(parts[kind])} ms of {number(total)}",
            )
            for index, kind in enumerate(kinds)
            if parts.get(kind)
        ]
        bars.append(
            element(
                "div",
                element("span", name, class_="row-name"),
                element("div", *pieces, class_="bar"),
                element("span", f"{number(total)} ms", class_="row-total"),
                class_="bar-row",
            )
        )
    used = [(i, kind) for i, kind in enumerate(kinds) if any(r.get(kind) for r in rows.values())]
    keys = [
        element("span", element("i", class_=f"key p{index}"), kind, class_="legend-item")
        for index, kind in used
    ]
    return element("div", element("p", *keys, class_="legend"), *bars, class_="bars")


def number(value: float) -> str:
    """A number with about four digits that count."""
    if value == 0 or not math.isfinite(value):
        return f"{value:.4g}"
    size = abs(value)
    if size >= 1e7 or size < 1e-4:
        return f"{value:.3g}"
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _padded(low: float, high: float, is_log: bool) -> tuple[float, float]:
    if is_log:
        return low / 1.2, high * 1.2
    margin = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return low - margin, high + margin


def _ticks(low: float, high: float, count: int, whole: bool = False) -> list[float]:
    """About `count` round numbers from `low` to `high`."""
    rough = (high - low) / count or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= rough * 0.999)
    step = max(1.0, round(step)) if whole else step
    begin = math.ceil(low / step - 1e-9)
    return [k * step for k in range(begin, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    apart = max(1, math.ceil(len(powers) / 6))
    return [10.0**power for power in powers][::apart]


def _value_tick(y: float, text: str) -> Markup:
    return joined(
        element("line", class_="grid", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y),
        element("text", text, class_="tick", x=_LEFT - 8, y=y + 4, text_anchor="end"),
    )


def _step_tick(x: float, text: str) -> Markup:
    bottom = HEIGHT - _BOTTOM
    return joined(
        element("line", class_="axis", x1=x, x2=x, y1=bottom, y2=bottom + 4),
        element("text", text, class_="tick", x=x, y=bottom + 17, text_anchor="middle"),
    )


def _axis_title(text: str, x: float, y: float) -> Markup:
    return element("text", text, class_="axis-title", x=x, y=y, text_anchor="middle")


def _mark(x: float) -> Markup:
    line = element("title", "the run was continued here")
    return element("line", line, class_="mark", x1=x, x2=x, y1=_TOP, y2=HEIGHT - _BOTTOM)


def _line(series: Series, x: _Scale, y: _Scale, is_log: bool) -> Markup:
    colour = f"s{series.colour}"
    dashes = f" d{1 + (series.dashes - 1) % NUM_DASHES}" if series.dashes else ""
    kind = f"line {colour}{dashes}"
    points = _thinned(series.curve)
    if series.is_marked or len(points) == 1:
        dots = [
            element("circle", class_=f"dot {colour}", cx=x(step), cy=y(value), r=3)
            for step, value in points
        ]
        return joined(_path(points, x, y, kind), *dots)
    if len(points) < _SMOOTHED_FROM:
        return _path(points, x, y, kind)
    smooth = _smoothed(points, is_log)
    pale = _path(points, x, y, f"line pale {colour}")
    return joined(pale, _path(smooth, x, y, kind))


def _path(points: Curve, x: _Scale, y: _Scale, kind: str) -> Markup:
    return element(
        "polyline", class_=kind, points=" ".join(f"{x(step)},{y(value)}" for step, value in points)
    )


def _thinned(curve: Curve) -> Curve:
    """At most a few hundred points, each the mean of its neighbours."""
    if len(curve) <= _MOST_POINTS:
        return curve
    edges = [round(i * len(curve) / _MOST_POINTS) for i in range(_MOST_POINTS + 1)]
    parts = [curve[begin:end] for begin, end in pairwise(edges)]
    return [(part[-1][0], math.fsum(v for _, v in part) / len(part)) for part in parts]


def _smoothed(curve: Curve, is_log: bool) -> Curve:
    """The mean over a twentieth of the points around each; of logarithms where these are drawn."""
    half = max(1, len(curve) // 40)
    values = [math.log(value) if is_log else value for _, value in curve]
    sums = [0.0, *accumulate(values)]
    result = []
    for index, (step, _) in enumerate(curve):
        begin, end = max(0, index - half), min(len(curve), index + half + 1)
        mean = (sums[end] - sums[begin]) / (end - begin)
        result.append((step, math.exp(mean) if is_log else mean))
    return result


def _legend(series: Sequence[Series]) -> Markup:
    if len(series) == 1:
        return Markup()
    keys = [
        element(
            "span",
            element("i", class_=f"key s{s.colour}{' dashed' if s.dashes else ''}"),
            s.label,
            class_="legend-item",
        )
        for s in series
    ]
    return element("span", *keys, class_="legend")
