"""``python -P -m mapreduce_rnn.workers``: a worker process, started by the master."""

from __future__ import annotations

import sys

from mapreduce_rnn.workers.main import main

sys.exit(main())
