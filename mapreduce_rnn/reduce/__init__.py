"""How the models that the slots return become the next global model: one file per rule."""

from mapreduce_rnn.config import MapReduceConfig
from mapreduce_rnn.reduce.base import Arrays, Contribution, Reduction, Rejected, Rule
from mapreduce_rnn.reduce.mean import Mean, average

_RULES = {"mean": Mean}


def make_rule(options: MapReduceConfig) -> Rule:
    """The rule that the options choose; they are checked where they are parsed."""
    return _RULES[options.reduce]()


__all__ = [
    "Arrays",
    "Contribution",
    "Mean",
    "Reduction",
    "Rejected",
    "Rule",
    "average",
    "make_rule",
]
