"""The options of the config as arguments of commands: same names, help and checks everywhere."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mapreduce_rnn import runfolder
from mapreduce_rnn.config import Field, TrainConfig, fields, override


def add_options(parser: argparse.ArgumentParser, options: Iterable[Field]) -> None:
    """One argument per option, grouped by section; absent ones stay out of the namespace."""
    groups: dict[str, Any] = {}
    for f in options:
        if f.section not in groups:
            groups[f.section] = parser.add_argument_group(f.group)
        _add_option(groups[f.section], f)


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options that were written out, by name, as :func:`mapreduce_rnn.config.override` takes
    them."""
    return {f.name: getattr(args, f.name) for f in fields() if hasattr(args, f.name)}


def chosen_config(args: argparse.Namespace, source: str) -> TrainConfig:
    """The options of ``--config FILE``, if that is given, with those that were written out.

    Raises UsageError, naming ``source`` or the file.
    """
    config = TrainConfig()
    if args.config is not None:
        file = Path(args.config)
        config = runfolder.options_in(runfolder.read_toml(file), file)
    return override(config, given_options(args), source)


def _add_option(group: Any, f: Field) -> None:
    help = f.help.replace("%", "%%")  # argparse formats it
    common = {"dest": f.name, "default": argparse.SUPPRESS, "help": help}
    if f.type is bool:
        group.add_argument(f.flag, action=argparse.BooleanOptionalAction, **common)
    elif f.type is tuple:  # several times, or several at once
        group.add_argument(
            f.flag, type=_comma_separated, action="extend", metavar=f.option.metavar, **common
        )
    else:
        choices = f.option.choices or None
        metavar = None if choices else f.option.metavar or "|".join(["N", *f.option.words])
        parse = _number_or_word(f) if f.option.words else f.type
        group.add_argument(f.flag, type=parse, choices=choices, metavar=metavar, **common)


def _number_or_word(f: Field) -> Callable[[str], int | str]:
    def parse(text: str) -> int | str:
        return text if text in f.option.words else int(text)

    parse.__name__ = " or ".join([f.type.__name__, *f.option.words])  # argparse names it
    return parse


def _comma_separated(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
