"""``mapreduce-rnn data import`` and ``data inspect``."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapreduce_rnn.commands import add_command
from mapreduce_rnn.signals import interruptible

if TYPE_CHECKING:
    from mapreduce_rnn.data.readers.base import Import
    from mapreduce_rnn.data.store import Meta, Store

_WIDTH = 80  # no output line is longer
_NAMED = 5  # sequences named in a summary

DATA_EPILOG = """\
examples:
  mapreduce-rnn data import kanjivg kanji.store   pen strokes of 6 431 kanji
  mapreduce-rnn data import npz mine.npz my.store your own data
  mapreduce-rnn data inspect kanji.store          what is in it
"""

KANJIVG_EPILOG = """\
examples:
  mapreduce-rnn data import kanjivg kanji.store
      from the installed package, pip install 'mapreduce-rnn[demo]'
  mapreduce-rnn data import kanjivg kanjivg/kanji kanji.store --characters
      from a folder with 04e00.svg and so on, one character a sequence

Every tenth kanji or so is for validation, always the same ones, and none of
them is seen in training. KanjiVG is by Ulrich Apel, CC BY-SA 3.0.
"""

NPZ_EPILOG = """\
arrays of SOURCE, for n sequences of F features, T frames and L labels in all:
  frames         (T, F)   all sequences one after the other; float16 and uint8
                          are stored as they are, the rest as float32
  offsets        (n + 1)  sequence i is frames[offsets[i]:offsets[i + 1]]
labels, in one of two ways:
  texts          (n)      strings, each character is a label
  labels         (L)      integers 1..K
  label_offsets  (n + 1)  sequence i has labels[o[i]:o[i + 1]]
optional:
  alphabet       (K)      strings; else the characters of the training texts
  groups         (n)      writers, speakers: a group is in one split only
  split          (n)      train, validation or test; else a tenth of the groups
                          is for validation, or of the sequences
  ids            (n)      unique names; else 0, 1, ..
  feature_names  (F)      else f0, f1, ..
  pen            (3)      features for figures: x, y upward, 1 = stroke starts
  scale          ()       uint8 frames only: the value of a step of 1
  attribution    ()       string, shown under figures of the data

example, two sequences of 5 and 3 frames:
  python3 -c "import numpy as np; np.savez('mine.npz', texts=['ab', 'ba'],
    frames=np.random.rand(8, 2), offsets=[0, 5, 8])"
  mapreduce-rnn data import npz mine.npz my.store
"""

INSPECT_EPILOG = """\
example:
  mapreduce-rnn data inspect kanji.store --verify
"""


def add_arguments(subparsers: Any) -> None:
    """Add the ``data`` command with its own commands to those of the program."""
    data = add_command(subparsers, "data", "make and look at stores", epilog=DATA_EPILOG)
    commands = data.add_subparsers(title="commands", metavar="COMMAND", required=True)
    into = add_command(
        commands, "import", "make a store from data of another format", epilog=DATA_EPILOG
    )
    formats = into.add_subparsers(title="formats", metavar="FORMAT", required=True)
    _add_kanjivg(formats)
    _add_npz(formats)
    inspect = add_command(commands, "inspect", "show what is in a store", epilog=INSPECT_EPILOG)
    inspect.add_argument("store", metavar="STORE", type=Path, help="folder of the store")
    inspect.add_argument(
        "--verify", action="store_true",
        help="read everything and compare its sums (off: takes as long as reading the data)",
    )  # fmt: skip
    inspect.set_defaults(run=run, act=_inspect)


def run(args: argparse.Namespace) -> int:
    """Run ``data import`` or ``data inspect``; returns the exit code."""
    args.act(args)
    return 0


def _add_kanjivg(formats: Any) -> None:
    parser = add_command(
        formats, "kanjivg", "kanji as pen strokes, labels: components", epilog=KANJIVG_EPILOG
    )
    parser.add_argument(
        "source", metavar="SOURCE", nargs="?", type=Path,
        help="folder of KanjiVG's SVG files (the installed package kanjivg)",
    )  # fmt: skip
    parser.add_argument(
        "--characters",
        action="store_true",
        help="single characters (lines of them: lengths as uneven as in real handwriting)",
    )
    parser.add_argument(
        "--seed", type=_seed, default=0, metavar="N",
        help="draws the training lines (0: any will do; same seed, same store)",
    )  # fmt: skip
    _add_common(parser, _read_kanjivg)


def _add_npz(formats: Any) -> None:
    parser = add_command(
        formats, "npz", "your own data as numpy arrays in one file", epilog=NPZ_EPILOG
    )
    parser.add_argument("source", metavar="SOURCE", type=Path, help="file made by numpy.savez")
    _add_common(parser, _read_npz)


def _add_common(parser: argparse.ArgumentParser, read: Any) -> None:
    parser.add_argument("store", metavar="STORE", type=Path, help="new folder for the store")
    parser.add_argument(
        "--skip-bad",
        action="store_true",
        help="leave bad sequences out and name them (off: they are listed, no store is made)",
    )
    parser.set_defaults(run=run, act=_import, read=read)


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 on, got {text!r}")
    return int(text)


def _read_kanjivg(args: argparse.Namespace) -> Import:
    from mapreduce_rnn.data.readers import kanjivg

    return kanjivg.read(args.source, lines=not args.characters, seed=args.seed)


def _read_npz(args: argparse.Namespace) -> Import:
    from mapreduce_rnn.data.readers import npz

    return npz.read(args.source)


def _import(args: argparse.Namespace) -> None:
    from mapreduce_rnn.data.store import Store, write_store
    from mapreduce_rnn.data.writer import refuse_existing

    refuse_existing(args.store)  # before minutes of reading
    ready: Import = args.read(args)
    with interruptible():
        write_store(args.store, **vars(ready), skip_bad=args.skip_bad)
    print("\n".join(describe(Store.open(args.store))))


def _inspect(args: argparse.Namespace) -> None:
    from mapreduce_rnn.data.store import Store

    store = Store.open(args.store)
    print("\n".join(describe(store)))
    if args.verify:
        store.verify()
        print("verified: all sums are right")


def describe(store: Store) -> list[str]:
    """A store in lines of at most 80 columns."""
    meta = store.meta
    facts = [
        ("store", str(store.path)),
        ("source", meta.source),
        ("sequences", ", ".join(f"{n:,} {name}" for name, n in meta.counts.items() if n)),
        ("lengths", _lengths(store)),
        ("features", f"{len(meta.feature_names)} {meta.dtype}: {', '.join(meta.feature_names)}"),
        ("labels", f"{store.label_lengths.mean():.1f} a sequence out of {len(meta.alphabet)}"),
        *_left_out(meta),
        ("on disk", size(sum(meta.sizes.values()))),
        ("attribution", meta.attribution),
    ]
    return [line for name, text in facts if text for line in _lines(name, text)]


def _lengths(store: Store) -> str:
    import numpy as np

    median, most, nearly_all = np.percentile(store.lengths, [50, 90, 99])
    return (
        f"mean {store.lengths.mean():.0f} frames, median {median:.0f}, 90 % up to {most:.0f}, "
        f"99 % up to {nearly_all:.0f}, longest {store.lengths.max()}"
    )


def _left_out(meta: Meta) -> list[tuple[str, str]]:
    """Sequences that did not come into the store, the first few by name."""
    left_out = [("no frames", meta.dropped), ("bad", meta.skipped)]
    return [(name, f"{len(ids)} left out: {_some(ids)}") for name, ids in left_out if ids]


def _some(ids: tuple[str, ...]) -> str:
    return ", ".join(ids[:_NAMED]) + (", .." if len(ids) > _NAMED else "")


def size(count: float) -> str:
    """A number of bytes for people, in three digits."""
    units = ["bytes", "kB", "MB", "GB", "TB"]
    while count >= 999.5 and len(units) > 1:
        count /= 1000
        del units[0]
    return f"{count:.3g} {units[0]}"


def _lines(name: str, text: str) -> list[str]:
    """Text with its name before it, wrapped; kanji and the like are two columns wide."""
    indent = " " * 13
    width = _WIDTH if text.isascii() else (_WIDTH + len(indent)) // 2
    return textwrap.wrap(
        text, width, initial_indent=f"{name:<13}", subsequent_indent=indent, break_on_hyphens=False
    )
