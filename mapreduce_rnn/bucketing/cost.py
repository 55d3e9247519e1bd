"""What a partition into buckets costs.

The cost model is ``frames``, the paper's: a sequence costs as many frames as the longest sequence
it is padded to, so c sequences in a bucket with upper length u cost c u.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

Number = int | float


def frames_cost(upper: ArrayLike, counts: ArrayLike) -> Number:
    """Frames of ``counts[k]`` sequences padded to ``upper[k]``, over all k: sum of counts x upper.

    Integers of any width are summed exactly, floats with one rounding per product.
    With lengths as ``upper`` it is the number of frames without padding.
    """
    pairs = zip(np.asarray(counts).tolist(), np.asarray(upper).tolist(), strict=True)
    products = [count * length for count, length in pairs]
    return sum(products) if all(isinstance(p, int) for p in products) else math.fsum(products)


def padding(real: Number, padded: Number) -> float:
    """Share of ``padded`` frames that are padding, 0 to 1; 0 where there are no frames at all."""
    return float((padded - real) / padded) if padded else 0.0
