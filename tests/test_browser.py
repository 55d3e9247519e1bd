"""Both reports in a real browser, which is cut off from every network."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from comparisons import write_cell
from mapreduce_rnn.report import write_report
from mapreduce_rnn.report.style import DARK, LIGHT
from runs import write_run

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
CALM = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr",
    "--proxy-server=127.0.0.1:9",
)  # fmt: skip
SCHEMES = {"dark": 0, "light": 1}  # blink's preferredColorScheme
WIDTHS = (360, 1280)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not BROWSER, reason="no Chromium here"),
]


@pytest.fixture(scope="module", params=["run", "comparison"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report.html of a run, and one of a grid with everything in it."""
    folder = tmp_path_factory.mktemp("pages") / request.param
    if request.param == "run":
        return write_report(write_run(folder))
    for count in (1, 6):
        for buckets in ("none", "1", "2", "4", "8", "16", "auto"):
            for seed in (1, 2, 3):
                write_cell(folder, count, buckets, seed)
    write_cell(folder, 2, "8", rounds=2, end=None)
    return write_report(folder)


def browse(page: Path, profile: Path, *options: str) -> tuple[str, str]:
    """Open a page; returns what the browser printed, and what went to its log."""
    done = subprocess.run(
        [BROWSER, *CALM, f"--user-data-dir={profile}", *options, page.as_uri()],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    return done.stdout, done.stderr


@pytest.fixture
def framed(page: Path, tmp_path: Path) -> Path:
    """A page with the report in frames of both widths, which tells how wide the report is there.

    A window is never as narrow as a telephone; a frame is.
    """
    frames = "".join(
        f'<iframe src="{page.as_uri()}" width="{width}" height="900" style="border:0"></iframe>'
        for width in WIDTHS
    )
    script = (
        "addEventListener('load', () => { document.title = [...document.querySelectorAll("
        "'iframe')].map(f => f.contentDocument.documentElement.scrollWidth).join(' '); });"
    )
    path = tmp_path / "frames.html"
    path.write_text(f"<!doctype html><script>{script}</script>{frames}", encoding="utf-8")
    return path


def test_the_page_is_never_wider_than_its_window_and_asks_for_nothing(
    framed: Path, tmp_path: Path
) -> None:
    printed, log = browse(
        framed, tmp_path / "profile", "--allow-file-access-from-files", "--dump-dom"
    )
    [widths] = re.findall(r"<title>(.*?)</title>", printed)
    assert [int(width) for width in widths.split()] == list(WIDTHS)
    assert "CONSOLE" not in log
    assert "ERR_" not in log


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_page_follows_the_reader_s_colours(page: Path, tmp_path: Path, scheme: str) -> None:
    picture = tmp_path / "page.png"
    browse(
        page, tmp_path / "profile", f"--screenshot={picture}", "--window-size=1280,6000",
        f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
    )  # fmt: skip
    pixels = np.asarray(Image.open(picture).convert("RGB"))
    ground = bytes.fromhex({"dark": DARK, "light": LIGHT}[scheme].ground.removeprefix("#"))
    assert tuple(pixels[0, 0]) == tuple(ground)
    assert 0.5 < (pixels == list(ground)).all(axis=-1).mean() < 0.99


def test_the_page_can_be_printed(page: Path, tmp_path: Path) -> None:
    paper = tmp_path / "page.pdf"
    browse(page, tmp_path / "profile", f"--print-to-pdf={paper}", "--no-pdf-header-footer")
    content = paper.read_bytes()
    assert content.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", content)) > 1
