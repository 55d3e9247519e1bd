"""How the models that the slots return become the next global model: one file per rule."""

from __future__ import annotations

from mapreduce_rnn.config import MapReduceConfig
from mapreduce_rnn.reduce import options as rule_options
from mapreduce_rnn.reduce.adam import Adam
from mapreduce_rnn.reduce.base import Arrays, Contribution, Reduction, Rejected, Rule
from mapreduce_rnn.reduce.consensus import Consensus
from mapreduce_rnn.reduce.mean import Mean, average
from mapreduce_rnn.reduce.median import Median
from mapreduce_rnn.reduce.momentum import Momentum
from mapreduce_rnn.reduce.nesterov import Nesterov
from mapreduce_rnn.reduce.slowmo import SlowMo
from mapreduce_rnn.reduce.trimmed_mean import TrimmedMean

RULES: dict[str, type[Rule]] = {
    "mean": Mean,
    "momentum": Momentum,
    "nesterov": Nesterov,
    "slowmo": SlowMo,
    "adam": Adam,
    "median": Median,
    "trimmed-mean": TrimmedMean,
    "consensus": Consensus,
}


def make_rule(options: MapReduceConfig) -> Rule:
    """The rule that the options choose.

    Args:
        options: ``map_tasks``, the number of slots, must be resolved.

    Raises:
        UsageError: An option that the rule does not have, a value out of range, too few slots.
    """
    if options.map_tasks is None:
        raise ValueError("expected resolved map_tasks, got None: pass the plan's config")
    rule = RULES[options.reduce]
    given = rule_options.parse(options.reduce, rule, options.reduce_option)
    return rule.for_slots(options.map_tasks, **given)


def resolved_options(options: MapReduceConfig) -> tuple[str, ...]:
    """``reduce_option`` with all defaults filled in; arguments and errors as in make_rule."""
    return rule_options.spelt(make_rule(options))


__all__ = [
    "RULES",
    "Arrays",
    "Contribution",
    "Reduction",
    "Rejected",
    "Rule",
    "average",
    "make_rule",
    "resolved_options",
]
