"""The commands of the program, a file each: their options, their help, what they print.

Only what parsing needs is imported at the top of the files: help and usage errors come without
waiting for numpy or torch.
"""

from __future__ import annotations

import argparse
from typing import Any


def add_command(
    subparsers: Any, name: str, help_: str, *, epilog: str, **texts: str
) -> argparse.ArgumentParser:
    """Add a command whose description and examples are printed as they are written.

    Args:
        help_: What it does, in the list of commands; also its description if ``texts`` has none.
        texts: ``description``, ``usage``.
    """
    description = texts.pop("description", f"{help_[0].upper()}{help_[1:]}.")
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name, help=help_, description=description, epilog=epilog, **texts,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    return parser
