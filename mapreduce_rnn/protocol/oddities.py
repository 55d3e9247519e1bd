"""What peers do that they should not: counted, and logged once per peer and kind."""

from __future__ import annotations

from collections import Counter

MOST_TOLD_APART = 1000
OTHERS = "others, too many to tell them apart"


class Oddities:
    """Counts oddities by (peer, kind).

    A peer may come under ever new names, but neither the counts nor the log grow without end:
    once there are MOST_TOLD_APART pairs, all further peers count as one. Kinds are from a fixed
    set, never a peer's words.
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def add(self, peer: str, kind: str) -> str | None:
        """Count one; the peer to name in the log if this is the first, None if it is not."""
        if (peer, kind) not in self.counts and len(self.counts) >= MOST_TOLD_APART:
            peer = OTHERS
        self.counts[peer, kind] += 1
        return peer if self.counts[peer, kind] == 1 else None
