"""The looks of a report: one page that asks the network for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .markup import Child, Markup, element, joined

_LIGHT: Final = (
    "#2f6fde", "#d9660a", "#17916a", "#a63fb8", "#b8860b", "#c2375a",
    "#0b8fa8", "#6b5bd2", "#6f8f12", "#8a5a2b", "#e0559a", "#4d5b6b",
)  # fmt: skip
_DARK: Final = (
    "#7aa8ff", "#ff9a4d", "#4fcf9f", "#d685e6", "#e3b341", "#ff7d97",
    "#4fc7de", "#a99bff", "#b5d04a", "#c99a6b", "#ff9acb", "#a9b7c6",
)  # fmt: skip
NUM_COLOURS: Final = len(_LIGHT)

_STYLE: Final = """
:root {
  color-scheme: light dark;
  --bg: #f7f7f5; --panel: #ffffff; --ink: #1d1d1b; --muted: #6a6a64; --line: #e3e3dd;
  --good: #18794e; --bad: #c62a2f; --live: #2f6fde;
  __LIGHT__
  --p0: #8fb5f2; --p1: #2f6fde; --p2: #17916a; --p3: #d9660a; --p4: #a63fb8; --p5: #b8860b;
  --p6: #c2375a; --p7: #b4b4ac;
}
@media (prefers-color-scheme: dark) {
  :root {
    --bg: #151517; --panel: #1e1e21; --ink: #ececea; --muted: #9c9c96; --line: #34343a;
    --good: #4cc38a; --bad: #ff6369; --live: #7aa8ff;
    __DARK__
    --p0: #4c6a9f; --p1: #7aa8ff; --p2: #4fcf9f; --p3: #ff9a4d; --p4: #d685e6; --p5: #e3b341;
    --p6: #ff7d97; --p7: #5c5c62;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--bg); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
  font-variant-numeric: tabular-nums;
}
main { max-width: 1340px; margin: 0 auto; padding: 36px 28px 64px; }
header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 6px 16px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 18px; margin: 40px 0 14px; }
.state { font-size: 13px; font-weight: 600; padding: 2px 10px; border-radius: 99px;
  border: 1px solid currentColor; }
.good { color: var(--good); } .bad { color: var(--bad); } .live { color: var(--live); }
.when { color: var(--muted); width: 100%; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(158px, 1fr)); gap: 12px;
  margin-top: 24px; }
.tile, figure, .panel { background: var(--panel); border: 1px solid var(--line);
  border-radius: 10px; }
.tile { padding: 12px 16px; }
.tile b { display: block; font-size: 22px; line-height: 1.3; font-weight: 600;
  overflow-wrap: anywhere; }
.tile span, .unit { color: var(--muted); font-size: 13px; font-weight: 400; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(520px, 100%), 1fr));
  gap: 16px; }
figure { margin: 0; padding: 14px 16px 8px; position: relative; }
figcaption { min-height: 24px; }
svg.chart { width: 100%; height: auto; display: block; overflow: visible; }
.grid { stroke: var(--line); } .axis { stroke: var(--muted); }
.tick, .axis-title { fill: var(--muted); font-size: 12px; }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.pale { opacity: 0.38; stroke-width: 1.2; }
.mark { stroke: var(--bad); stroke-dasharray: 3 4; stroke-width: 1.5; }
.cursor { stroke: var(--muted); stroke-width: 1; visibility: hidden; }
__STROKES__
.d1 { stroke-dasharray: 7 4; } .d2 { stroke-dasharray: 2 3; } .d3 { stroke-dasharray: 9 3 2 3; }
.dot { stroke: var(--panel); stroke-width: 1; }
__FILLS__
.p0 { background: var(--p0); } .p1 { background: var(--p1); } .p2 { background: var(--p2); }
.p3 { background: var(--p3); } .p4 { background: var(--p4); } .p5 { background: var(--p5); }
.p6 { background: var(--p6); } .p7 { background: var(--p7); }
.legend { float: right; font-size: 13px; color: var(--muted); }
p.legend { float: none; margin: 0 0 10px; }
.legend-item { margin-left: 14px; white-space: nowrap; } p .legend-item { margin: 0 16px 0 0; }
.key { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 6px; }
.key.dashed { height: 3px; margin-bottom: 3px; border-radius: 0; }
.readout { position: absolute; top: 40px; left: 96px; padding: 4px 10px; font-size: 13px;
  background: var(--panel); border: 1px solid var(--line); border-radius: 6px; display: none;
  pointer-events: none; white-space: pre; }
.panel { padding: 16px; overflow-x: auto; }
.bar-row { display: grid; grid-template-columns: 110px 1fr 90px; gap: 12px; align-items: center;
  margin: 6px 0; }
.bar { display: flex; height: 22px; } .phase { display: block; height: 100%; }
.phase:first-child { border-radius: 4px 0 0 4px; } .phase:last-child { border-radius: 0 4px 4px 0; }
.row-total { text-align: right; color: var(--muted); }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; font-weight: 600; color: var(--muted); font-size: 13px; }
th, td { padding: 6px 14px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
.events td:nth-child(-n+3) { white-space: nowrap; }
code { font: 13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  overflow-wrap: anywhere; }
details summary { cursor: pointer; color: var(--muted); margin: 10px 0; }
footer { margin-top: 40px; color: var(--muted); font-size: 13px; }
@media (max-width: 600px) { main { padding: 20px 14px 40px; } }
"""

_SCRIPT: Final = """
for (const svg of document.querySelectorAll("svg.chart")) {
  const about = JSON.parse(svg.dataset.chart);
  const cursor = svg.querySelector(".cursor");
  const readout = svg.parentElement.querySelector(".readout");
  const width = about.width - about.left - about.right;
  const show = (how) => { readout.style.display = how ? "block" : "none";
    cursor.style.visibility = how ? "visible" : "hidden"; };
  svg.addEventListener("pointerleave", () => show(false));
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = (event.clientX - box.left) * about.width / box.width;
    const step = about.first + (at - about.left) / width * (about.last - about.first);
    const nearest = about.series.map((s) => s.points.reduce(
      (best, p) => Math.abs(p[0] - step) < Math.abs(best[0] - step) ? p : best));
    if (!nearest.length) return;
    const shown = nearest.reduce(
      (best, p) => Math.abs(p[0] - step) < Math.abs(best[0] - step) ? p : best)[0];
    const x = about.left + (shown - about.first) / (about.last - about.first) * width;
    cursor.setAttribute("x1", x); cursor.setAttribute("x2", x);
    readout.textContent = "step " + shown.toLocaleString("en") + about.series.map((s, i) =>
      "\\n" + s.label + "  " + Number(nearest[i][1].toPrecision(5))).join("");
    show(true);
    readout.style.left = (x / about.width < 0.55 ? x / about.width * 100 + 3 : 14) + "%";
  });
}
"""


def _variables(colours: Sequence[str]) -> str:
    return " ".join(f"--c{number}: {colour};" for number, colour in enumerate(colours))


def _each(rule: str) -> str:
    """A rule of the style sheet for each colour of curves, whose number stands for #."""
    return "\n".join(rule.replace("#", str(number)) for number in range(NUM_COLOURS))


def _style() -> str:
    parts = {
        "__LIGHT__": _variables(_LIGHT),
        "__DARK__": _variables(_DARK),
        "__STROKES__": _each(".s# { stroke: var(--c#); }"),
        "__FILLS__": _each(".dot.s#, .key.s# { fill: var(--c#); background: var(--c#); }"),
    }
    style = _STYLE
    for name, part in parts.items():
        style = style.replace(name, part)
    return style


def page(title: str, *content: Child) -> str:
    """A whole document."""
    head = element(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        element("title", title),
        element("style", Markup(_style())),
    )
    body = element("body", element("main", *content), element("script", Markup(_SCRIPT)))
    return "<!DOCTYPE html>\n" + joined(Markup('<html lang="en">'), head, body, Markup("</html>\n"))


def table(headings: list[str], rows: list[list[Child]]) -> Markup:
    """A table in a panel."""
    head = element("tr", *[element("th", heading) for heading in headings])
    body = [element("tr", *[element("td", cell) for cell in row]) for row in rows]
    return element("div", element("table", head, *body), class_="panel")


def tiles(facts: list[tuple[str, str]]) -> Markup:
    """Large figures, each with what it says."""
    return element(
        "div",
        *[
            element("div", element("b", value), element("span", name), class_="tile")
            for name, value in facts
        ],
        class_="tiles",
    )
