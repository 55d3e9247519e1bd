from __future__ import annotations

import dataclasses
import logging
import math
import os
import re
import subprocess
import sys
from functools import partial
from html import unescape
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from matplotlib.text import Text

from mapreduce_rnn.errors import UsageError
from mapreduce_rnn.report import bucketplots, canvas, figures, strokes, try_report, write_report
from mapreduce_rnn.report.html import differing, page
from mapreduce_rnn.report.pictures import draw
from mapreduce_rnn.report.run import Example, Run, read_run
from mapreduce_rnn.report.style import DARK
from mapreduce_rnn.report.tables import run_verdict, summary, validation_table
from mapreduce_rnn.runlog import JsonLines
from runs import ATTRIBUTION, config, round_event, write_run

NO_SCORE = {"validation": {"loss": None, "label_error": None, "edits": 0, "reference": 0}}


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with a gap in its training loss and one in its validation, and its report."""
    gaps: dict[int, dict[str, Any]] = {3: {"train_loss": None}, 5: NO_SCORE}
    run_dir = write_run(tmp_path_factory.mktemp("runs") / "demo", changes=gaps)
    assert write_report(run_dir) == run_dir / "report.html"
    return run_dir


def page_of(run_dir: Path) -> str:
    """The page's text without its figures."""
    return page(read_run(run_dir), ())


FIGURES = ["training", "timeline", "examples", "buckets"]


def test_a_report_is_four_figures_and_a_page(reported: Path) -> None:
    drawn = sorted((reported / "figures").iterdir())
    assert [path.name for path in drawn] == sorted(f"{name}.png" for name in FIGURES)
    assert all(path.read_bytes().startswith(b"\x89PNG\r\n") for path in drawn)
    assert not list(reported.glob("**/*.partial"))


def test_the_page_needs_no_other_file_and_no_network(reported: Path) -> None:
    text = (reported / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"<script|<link(?! rel=\"icon\" href=\"data:,\")|@import|url\((?!#)", text)
    assert not re.search(r'src=|href="(?:https?:)?//', text)
    assert len(re.findall(r"<svg viewBox", text)) == 4 + 3 + 6 + 2
    wanted = set(re.findall(r'(?:href="|url\()#(\w+)', text))
    assert wanted <= set(re.findall(r' id="(\w+)"', text))
    assert set(FIGURES) <= wanted


def test_the_page_fits_narrow_and_dark_screens(reported: Path) -> None:
    text = (reported / "report.html").read_text(encoding="utf-8")
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    assert f"@media (prefers-color-scheme: dark) {{ :root {{ --ground: {DARK.ground};" in text
    drawings = "".join(re.findall(r"<defs>.*?</svg>", text, re.DOTALL))
    assert set(re.findall(r"(?:fill|stroke): ([^;\"]*)", drawings)) <= {
        "none", *(f"var(--{name})" for name in ("ground", "ink", "muted", "rule", "accent",
                                               "second", "warning", "good", "transfer")),
    }  # fmt: skip


def test_words_in_the_page_s_figures_are_text_in_its_font(reported: Path) -> None:
    text = (reported / "report.html").read_text(encoding="utf-8")
    assert "DejaVu" not in text
    words = re.findall(r"<text style=\"([^\"]*)\"[^>]*>([^<]*)</text>", text)
    assert "Label error on validation (%)" in [word for _, word in words]
    assert all("var(--font)" in style for style, _ in words)


def test_every_picture_of_the_data_names_its_source(reported: Path) -> None:
    text = (reported / "report.html").read_text(encoding="utf-8")
    [caption] = re.findall(r"<figcaption>(What differs.*?)</figcaption>", text)
    assert ATTRIBUTION in caption


def test_examples_are_numbered_as_in_the_figure_and_marked_where_they_differ(
    reported: Path,
) -> None:
    run = read_run(reported)
    titles = [text.get_text() for text in strokes.examples(run).figure.texts]
    assert titles[:2] == ["1:  0 edits / 1 label", "2:  2 edits / 3 labels"]
    text = page(run, ())
    assert '<strong>2</strong> line-1 <span class="muted">2 edits / 3 labels</span>' in text
    assert "<dd><mark>氵</mark> ㇐ <mark>口</mark></dd>" in text
    assert "<dd><mark>水</mark> ㇐</dd>" in text


def test_marks_are_a_least_edit_script() -> None:
    reference, hypothesis = tuple("abcd"), tuple("xacd")
    in_reference, in_hypothesis = differing(reference, hypothesis)
    assert (in_reference, in_hypothesis) in [({1}, {0}), ({0, 1}, {0, 1})]
    assert differing((), ("a", "b")) == (frozenset(), {0, 1})


@pytest.mark.parametrize(
    ("floor", "words", "kind"),
    [(0.3, "better than the best constant output", "better"), (0.95, "NO BETTER than", "worse")],
)
def test_the_page_says_plainly_whether_the_model_is_better_than_a_constant(
    tmp_path: Path, floor: float, words: str, kind: str
) -> None:
    text = page_of(write_run(tmp_path / "run", floor=floor))
    [verdict] = re.findall(rf'<p class="verdict {kind}">(.*?)</p>', text)
    assert words in verdict
    assert "(93.1&nbsp;%)" in verdict


def test_the_table_has_a_row_per_validation_and_shows_gaps(reported: Path) -> None:
    table = validation_table(read_run(reported))
    assert len(table.rows) == 12
    assert table.rows[0] == ("1", "1", "0:08", "67.304", "61.516", "84.5 %", "0.005")
    assert table.rows[2][3] == "-"
    assert table.rows[4][4:6] == ("-", "-")


def test_lines_of_the_figure_have_a_gap_where_a_number_is_missing(reported: Path) -> None:
    figure = figures.training(read_run(reported)).figure
    for panel in figure.axes[:2]:
        train, validation, _best = (list(line.get_ydata()) for line in panel.lines)  # type: ignore[arg-type]
        assert [i for i, y in enumerate(train) if math.isnan(y)] == [2]
        assert [i for i, y in enumerate(validation) if math.isnan(y)] == [4]


def test_the_figure_compares_with_the_constant_output_on_time_and_epochs(reported: Path) -> None:
    loss_time, loss_epoch, error_time, error_epoch = figures.training(
        read_run(reported)
    ).figure.axes
    for panel in (error_time, error_epoch):
        assert list(panel.lines[0].get_ydata()) == [pytest.approx(0.931)] * 2  # type: ignore[arg-type]
        labels = panel.get_legend_handles_labels()[1]
        assert labels == ["best constant output 93.1 %", "best round 12: 33.5 %"]
    said = "training time (s):\nmap + transfer + reduce + checkpoint"
    assert loss_time.get_xlabel() == error_time.get_xlabel() == said
    assert loss_epoch.get_xlabel() == error_epoch.get_xlabel() == "epoch"
    assert loss_time.get_ylim() == loss_epoch.get_ylim()
    assert list(error_time.lines[1].get_xdata())[:2] == [8.1, 16.2]  # type: ignore[arg-type]


def test_headings_stay_in_their_panel_and_clear_of_each_other(reported: Path) -> None:
    run = read_run(reported)
    late = dataclasses.replace(run.rounds[-1], number=12345, elapsed=9e4)
    with canvas.settings():
        assert_headings_fit(
            figures.training(dataclasses.replace(run, rounds=(*run.rounds[:-1], late)))
        )
        assert_headings_fit(bucketplots.of_run(run))


def assert_headings_fit(drawing: canvas.Drawing) -> None:
    canvas.png(drawing.figure)
    dpi = drawing.figure.dpi
    for axis, tile in zip(drawing.figure.axes, drawing.tiles, strict=True):
        [title] = axis.findobj(partial(title_of, axis))
        legend, ticks = axis.get_legend(), axis.yaxis.get_tightbbox()
        assert legend is not None
        assert ticks is not None
        row, above = legend.get_window_extent(), title.get_window_extent()
        assert dpi * tile.left <= min(row.x0, above.x0, ticks.x0)
        assert max(row.x1, above.x1) <= dpi * (tile.left + tile.width)
        assert ticks.y1 <= row.y0 < row.y1 <= above.y0
        assert above.y1 <= drawing.figure.bbox.height - dpi * tile.top


def title_of(axis: Any, artist: Any) -> bool:
    return isinstance(artist, Text) and artist.get_text() == axis.get_title(loc="left")


def test_no_line_is_drawn_to_a_point_after_a_pen_up_jump() -> None:
    points = ((0.0, 0.0, True), (1.0, 0.0, False), (5.0, 0.0, True), (9.0, 3.0, True))
    run = Run(Path("run"), examples=(Example("a", (), (), 0, points),))
    line = strokes.examples(run).figure.axes[0].lines[0]
    x = ["gap" if math.isnan(value) else value for value in line.get_xdata()]  # type: ignore[union-attr]
    assert x == ["gap", 0.0, 1.0, "gap", 5.0, "gap", 9.0]
    assert [x[i] for i in line.get_markevery()] == [5.0, 9.0]  # type: ignore[union-attr]


def test_examples_keep_one_scale_and_do_not_overlap() -> None:
    extents = [(0.0, 0.0), (1.0, 1.0), (0.5, 2.0), (9.0, 1.0), (3.0, 0.0)]
    tiles, scale = strokes.place(extents)
    for tile, (width, height) in zip(tiles, extents, strict=True):
        assert tile.width > width * scale
        assert tile.height > height * scale
        assert 0 <= tile.left < tile.left + tile.width <= 2 * canvas.TILE
    for first, second in combinations(tiles, 2):
        beside = first.left + first.width < second.left
        assert beside or first.top + first.height < second.top


def test_odd_runs_can_be_drawn(reported: Path) -> None:
    run = read_run(reported)
    dot = Example("漢", ("字",), (), 1, ((3.0, 3.0, True),))
    flat = Example("$x^", (), (), 0, tuple((float(i), 0.0, i == 0) for i in range(500)))
    lost = Example("nan", (), (), 0, ((math.nan, math.nan, True),))
    odd = dataclasses.replace(run, examples=(dot, flat, lost), attribution="漢字 $\\frac{ (c) é\n")
    timeless = tuple(dataclasses.replace(round, elapsed=math.nan) for round in run.rounds)
    blank = dataclasses.replace(timeless[0], validation=None, train_loss=math.nan)
    for rounds in (timeless, (blank,)):
        pictures = draw(dataclasses.replace(odd, rounds=rounds))
        assert all(picture.png and picture.svg for picture in pictures)
        assert [picture.name for picture in pictures] == FIGURES


def test_the_buckets_section_shows_what_other_numbers_of_buckets_would_cost(reported: Path) -> None:
    run = read_run(reported)
    fed, costs = bucketplots.of_run(run).figure.axes
    assert fed.get_xlabel() == "length (frames)"
    planned, chosen = costs.lines
    assert list(planned.get_xdata()) == list(range(1, 10))  # type: ignore[arg-type]
    assert list(chosen.get_xdata()) == [8]  # type: ignore[arg-type]
    assert list(chosen.get_ydata()) == [pytest.approx(1.03 / 1.01)]  # type: ignore[arg-type]
    [caption] = [picture.caption for picture in draw(run) if picture.name == "buckets"]
    assert "chosen automatically: 8 of up to 9 buckets: 2.0 % above" in caption


@pytest.mark.parametrize("costs", [None, [], [3.0, "two"], [2.0, -1.0], 7], ids=repr)
def test_a_run_without_planned_costs_shows_its_buckets(tmp_path: Path, costs: Any) -> None:
    run_dir = write_run(tmp_path / "run", rounds=1)
    plan = {**config("cpu")["plan"], "planned_cost": costs, "bucket_choice": None}
    known = {name: value for name, value in plan.items() if value is not None}
    (run_dir / "config.toml").write_text(tomli_w.dumps({"plan": known}), encoding="utf-8")
    run = read_run(run_dir)
    assert len(bucketplots.of_run(run).figure.axes) == 1
    [caption] = [picture.caption for picture in draw(run) if picture.name == "buckets"]
    assert caption.endswith("of the frames fed.")


def test_equal_runs_give_equal_figures(reported: Path) -> None:
    assert draw(read_run(reported)) == draw(read_run(reported))


def test_a_run_in_progress_is_reported_as_far_as_it_is(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "run", rounds=4, ended=False)
    metrics = run_dir / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes() + b'{"round":5,"epo')
    text = page_of(run_dir)
    assert "the run has not ended: it is still going, or it was killed" in text
    assert "metrics.jsonl is damaged at line 5: it was read up to there" in text
    assert "examples.json is missing: it is written when a run ends" in text
    assert text.count("<td>4</td>") == 2


@pytest.mark.parametrize("content", [None, b"", b'{"event": NaN}\n', b"\xff\xfe[[[", b"[]\n"])
@pytest.mark.parametrize("name", ["config.toml", "metrics.jsonl", "events.jsonl", "examples.json"])
def test_a_missing_or_damaged_file_is_named_and_the_rest_is_shown(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    run_dir = write_run(tmp_path / "run")
    (run_dir / name).unlink()
    if content is not None:
        (run_dir / name).write_bytes(content)
    run = read_run(run_dir)
    empty = content == b"" and name in ("config.toml", "metrics.jsonl", "events.jsonl")
    assert empty or any(problem.startswith(name) for problem in run.problems)
    assert page(run, ()).endswith("</html>\n")


def test_numbers_of_the_wrong_type_are_shown_as_missing(tmp_path: Path) -> None:
    wrong = {"train_loss": "12", "epochs_done": None, "validation": {"loss": [1]}, "rejected": 3}
    run = read_run(write_run(tmp_path / "run", rounds=1, changes={1: wrong}))
    assert validation_table(run).rows == (("-", "1", "0:08", "-", "-", "-", "0.005"),)
    assert run_verdict(run).better is None


def test_a_run_without_validation_is_reported(tmp_path: Path) -> None:
    changes = {n: {"validation": None} for n in range(1, 13)}
    run_dir = write_run(tmp_path / "run", changes=changes)
    text = page_of(run_dir)
    assert "No round of this run was validated." in text
    assert "No label error to compare" in text
    assert ("Last round", "12: train loss 8.983, not validated") in summary(read_run(run_dir))


@pytest.mark.parametrize(("kind", "said"), [("cpu", True), ("cuda", False)])
def test_cpu_figures_are_called_that(tmp_path: Path, kind: str, said: bool) -> None:
    facts = dict(summary(read_run(write_run(tmp_path / "run", device=kind))))
    assert ("CPU figures, not GPU figures" in facts["Workers"]) is said
    assert facts["Machine"].startswith("workshop, Example CPU 3000")


@pytest.mark.parametrize(
    ("options", "kind"),
    [({}, "bidirectional"), ({"bidirectional": False}, "unidirectional")],
    ids=["older run", "one direction"],
)
def test_the_summary_says_which_lstm_was_trained(
    tmp_path: Path, options: dict[str, bool], kind: str
) -> None:
    run = read_run(write_run(tmp_path / "run"))
    config = {**run.config, "model": {**run.config["model"], **options}}
    facts = dict(summary(dataclasses.replace(run, config=config)))
    assert facts["Model"].startswith(f"{kind} LSTM, 1 layer of 96 units, ")


def test_the_best_round_is_the_earliest_of_equal_ones_and_never_nan(tmp_path: Path) -> None:
    score = {"validation": {"loss": 1.0, "label_error": 0.2}}
    run = read_run(write_run(tmp_path / "run", changes={1: NO_SCORE, 7: score, 9: score}))
    assert run.best is not None
    assert run.best.number == 7


def test_a_round_that_ran_again_after_a_resume_counts_its_later_time(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "run", rounds=4, ended=False)
    with JsonLines(run_dir / "events.jsonl") as events:
        events.write({"event": "resume", "time": 2e9, "round": 3})
        events.write(round_event(4) | {"elapsed": 50.0})
    run = read_run(run_dir)
    assert [round.elapsed for round in run.rounds] == pytest.approx([8.1, 16.2, 24.3, 50.0])
    assert "resumed after round 3" in dict(summary(run))["State"]


def test_names_from_the_data_are_text_not_markup(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "<b>"))
    odd = dataclasses.replace(run.examples[0], id="<script>", reference=("<i>&",), hypothesis=())
    text = page(dataclasses.replace(run, examples=(odd,)), ())
    assert not re.search(r"<script|<b>|<i>", text)
    assert "<i>&" in unescape(text)


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: None])
def test_what_is_no_run_folder_is_refused_in_one_line(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "x"
    make(path)
    with pytest.raises(UsageError, match="expected a run folder, or a folder of runs") as error:
        write_report(path)
    assert "\n" not in str(error.value)


def test_training_never_fails_for_a_plot(
    reported: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no fonts today")

    monkeypatch.setattr(figures, "training", fail)
    assert try_report(reported, logging.getLogger("mapreduce_rnn.test")) is None
    assert "training is not affected" in caplog.text
    assert "no fonts today" in caplog.text


def test_plots_need_no_display_and_keep_no_figure_open(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "run", rounds=300)
    script = (
        "import sys; from pathlib import Path\n"
        "from mapreduce_rnn.report import write_report\n"
        "write_report(Path(sys.argv[1]))\n"
        "assert 'matplotlib.pyplot' not in sys.modules and 'tkinter' not in sys.modules"
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "HOME")}
    environment |= {"MPLBACKEND": "TkAgg", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, run_dir],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (run_dir / "figures" / "training.png").stat().st_size > 0


def test_the_summary_says_how_the_models_were_reduced(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"))
    assert dict(summary(run))["Reduce"] == "momentum, eta=0.5, every epoch"
