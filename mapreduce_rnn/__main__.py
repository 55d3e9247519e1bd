"""``python -m mapreduce_rnn`` is ``mapreduce-rnn``."""

from __future__ import annotations

import sys

from mapreduce_rnn.cli import main

sys.exit(main())
