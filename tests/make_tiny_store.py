"""Write the tests' tiny store: make_tiny_store.py FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # run by hand, outside of pytest

from stores import tiny_store

tiny_store(Path(sys.argv[1]))
