"""The report's colours, shared by figures and page, and the page's style sheet."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Theme:
    """Colours; each text colour has a contrast of at least 4.5 to 1 on ``ground``."""

    ground: str
    ink: str
    muted: str  # secondary text, axes
    rule: str  # grid, borders
    accent: str  # validation
    second: str  # training
    warning: str  # the constant output; wrong labels
    good: str
    transfer: str  # of messages, in a timeline
    curves: tuple[str, ...]  # of runs beside each other, at least 3 to 1 on ``ground``


LIGHT = Theme(
    ground="#ffffff", ink="#1b2230", muted="#596273", rule="#e3e6eb", accent="#1c5fae",
    second="#7a8495", warning="#b0451a", good="#1b7444", transfer="#d99a1c",
    curves=("#0b63b0", "#c2410c", "#15803d", "#9333ea", "#a16207", "#0e7490", "#be185d", "#57534e"),
)  # fmt: skip
DARK = Theme(
    ground="#15181d", ink="#e7e9ed", muted="#a3abb8", rule="#2d333d", accent="#7db3f5",
    second="#8a94a5", warning="#f19b70", good="#6fcf97", transfer="#e8b64a",
    curves=("#6cb2f7", "#fb9a5b", "#62d684", "#c99bff", "#e0bb4d", "#55d3e6", "#f98bc0", "#b8b2aa"),
)  # fmt: skip


_PAGE_FONT = 'system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif'
_FONT = "DejaVu Sans"  # comes with matplotlib


def rc() -> dict[str, Any]:
    """matplotlib settings on top of its default ones: figures are drawn in the light colours."""
    return {
        "axes.edgecolor": LIGHT.muted,
        "axes.labelcolor": LIGHT.muted,
        "axes.labelpad": 5,
        "axes.titlecolor": LIGHT.ink,
        "axes.titlesize": 11,
        "axes.titlelocation": "left",
        "axes.titlepad": 9,
        "axes.titleweight": "bold",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.8,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "figure.facecolor": LIGHT.ground,
        "axes.facecolor": LIGHT.ground,
        "font.family": [_FONT],
        "font.size": 10.5,
        "grid.color": LIGHT.rule,
        "grid.linewidth": 0.8,
        "text.color": LIGHT.ink,
        "xtick.color": LIGHT.muted,
        "ytick.color": LIGHT.muted,
        "ytick.major.size": 0,
        "legend.borderaxespad": 0.0,
        "legend.borderpad": 0.3,
        "legend.columnspacing": 1.3,
        "legend.fontsize": 10,
        "legend.frameon": False,
        "legend.handlelength": 1.6,
        "legend.handletextpad": 0.5,
        "lines.linewidth": 2.0,
        "lines.solid_capstyle": "round",
        "lines.solid_joinstyle": "round",
        "svg.fonttype": "none",  # text stays text
        "svg.hashsalt": "mapreduce-rnn",  # equal figures, equal names inside
    }


def on_page(svg: str) -> str:
    """SVG that matplotlib has drawn with :func:`rc`, in the page's colours and font."""
    for name, colour in _named(LIGHT).items():
        svg = svg.replace(colour, f"var(--{name})")
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # the same in every figure, and nothing points there
    return re.sub(rf"'{_FONT}'[^;\"]*", "var(--font)", svg)


def style_sheet() -> str:
    """CSS of the page: one column, from 360 pixels up, light or dark as the reader has it."""
    return (
        f":root {{ color-scheme: light dark; --font: {_PAGE_FONT}; {_variables(LIGHT)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}\n{_RULES}"
    )


def _variables(theme: Theme) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in _named(theme).items())


def _named(theme: Theme) -> dict[str, str]:
    """Its colours by the names that the page gives them."""
    one, many = asdict(theme), {f"curve-{i}": c for i, c in enumerate(theme.curves)}
    del one["curves"]
    return {**one, **many}


_RULES = """
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.5 var(--font); }
main { max-width: 992px; margin: 0 auto; padding: 24px 16px 48px; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 40px 0 12px; }
p { margin: 4px 0 12px; max-width: 44rem; }
a { color: var(--accent); }
code { font: 0.875em/1.5 ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
figure { margin: 0; }
svg { display: block; max-width: 100%; height: auto; stroke-linejoin: round; }
.source { position: absolute; }
.panels { display: grid; gap: 16px;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); }
.panels svg { width: 100%; }
figcaption, .muted { color: var(--muted); font-size: 0.875rem; }
figcaption { max-width: 44rem; margin-top: 8px; }
.panels figcaption { grid-column: 1 / -1; margin: 0; }
.panels svg:only-of-type + figcaption { grid-column: auto; align-self: center; }
figure + .muted { margin-top: 20px; }
.verdict { border-left: 4px solid var(--muted); padding: 4px 0 4px 12px; margin: 16px 0 24px;
  font-size: 1.1rem; font-weight: 600; }
.verdict.better { border-color: var(--good); }
.verdict.worse { border-color: var(--warning); color: var(--warning); }
.problems { border: 1px solid var(--rule); border-radius: 6px; padding: 12px 16px;
  font-size: 0.9375rem; }
.problems ul { margin: 4px 0 0; padding-left: 20px; }
dl { display: grid; grid-template-columns: 9rem 1fr; gap: 6px 16px; margin: 0; }
dt { color: var(--muted); }
dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow: auto; }
.scroll.long { max-height: 44rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums;
  font-size: 0.9375rem; }
thead th { position: sticky; top: 0; background: var(--ground); color: var(--muted);
  vertical-align: bottom; box-shadow: inset 0 -1px var(--muted); }
th { font-weight: 500; }
th, td { text-align: right; padding: 6px 12px; white-space: nowrap; }
th:first-child, td:first-child { padding-left: 0; }
th:last-child, td:last-child { padding-right: 0; }
th.name { text-align: left; }
td, th[scope="row"] { border-bottom: 1px solid var(--rule); }
small { display: block; color: var(--muted); }
tr.best td { font-weight: 600; }
.examples { list-style: none; margin: 16px 0 0; padding: 0; display: grid; gap: 16px 32px;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); }
.examples dl { grid-template-columns: 5.5rem 1fr; gap: 2px 12px; }
.examples svg { margin: 6px 0; }
#examples path { vector-effect: non-scaling-stroke; }
.labels { line-height: 1.7; }
mark { background: none; color: var(--warning); font-weight: 600; text-decoration: underline;
  text-underline-offset: 3px; }
@media (max-width: 640px) {
  main { padding: 20px 12px 40px; }
  dl { grid-template-columns: 1fr; gap: 0; }
  dl > dd { margin-bottom: 10px; }
  .examples dl { gap: 0 12px; }
  .examples dd { margin-bottom: 0; }
  table { font-size: 0.6875rem; line-height: 1.3; }
  th { white-space: normal; }
  th, td { padding: 6px 3px; }
  small { white-space: normal; }
}
@media print {
  .scroll, .scroll.long { overflow: visible; max-height: none; }
  table { font-size: 0.75rem; }
  th, td { padding: 4px 6px; }
  th, small { white-space: normal; }
  .panels { grid-template-columns: 1fr 1fr; }
  tr, .panels svg, .examples li { break-inside: avoid; }
  h2 { break-after: avoid; }
}
"""
