"""What holds for every rule; their options."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contributions import RULES, contributions, drawn, rule, value
from mapreduce_rnn import checkpoint
from mapreduce_rnn.config import MapReduceConfig, fields
from mapreduce_rnn.errors import ReduceError, UsageError
from mapreduce_rnn.reduce import RULES as KNOWN
from mapreduce_rnn.reduce import Arrays, Rejected, Rule, make_rule, resolved_options

every_rule = pytest.mark.parametrize("name", RULES)


def run(chosen: Rule, first: int, last: int, model: Arrays, state: Arrays) -> tuple[Arrays, Arrays]:
    """Rounds in which slots return their start and some noise, drawn from the round's number."""
    for number in range(first, last + 1):
        noise = drawn(np.random.default_rng(number), 3)
        starts = [chosen.start(model, state, slot) for slot in range(3)]
        trained = [{"w": a["w"] + b["w"]} for a, b in zip(starts, noise, strict=True)]
        returned = contributions(*trained, weights=[2, number, 1])
        reduction = chosen.apply(model, state, returned, learning_rate=0.1 / number)
        model, state = reduction.model, reduction.state
    return model, state


@every_rule
def test_stop_and_resume_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    chosen = rule(name)
    model = value(0.0)
    model["w"] = np.linspace(-1, 1, 50, dtype=np.float32)
    whole = run(chosen, 1, 4, model, chosen.init(model))
    checkpoint.save(tmp_path, 2, *run(chosen, 1, 2, model, chosen.init(model)), {})
    loaded = checkpoint.load(tmp_path)
    resumed = run(rule(name), 3, 4, dict(loaded.model), dict(loaded.state))
    for arrays, again in zip(whole, resumed, strict=True):
        assert {k: a.tobytes() for k, a in again.items()} == {
            k: a.tobytes() for k, a in arrays.items()
        }


@every_rule
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_identical_contributions_that_did_not_move_come_back_bit_for_bit(
    name: str, dtype: str
) -> None:
    (model,) = drawn(np.random.default_rng(3), 1, dtype)
    limits = np.finfo(dtype)
    model["w"][:4] = [-0.0, limits.max, -limits.max, limits.smallest_subnormal]
    chosen = rule(name, slots=4)
    returned = contributions(*[model] * 4, weights=[1, 2, 3, 4])
    reduction = chosen.apply(model, chosen.init(model), returned, 0.1)
    assert reduction.model["w"].tobytes() == model["w"].tobytes()
    assert reduction.model["w"].dtype == dtype


@every_rule
def test_a_slot_that_is_not_finite_changes_nothing_but_the_report(name: str) -> None:
    chosen = rule(name)
    state = chosen.init(value(0.0))
    good = contributions(value(1.0), value(9.0), value(3.0))
    bad = [good[0], contributions({}, value(np.nan))[1], good[2]]
    reduction = chosen.apply(value(0.0), state, bad, 0.1)
    without = chosen.apply(value(0.0), state, [good[2], good[0]], 0.1)
    assert reduction.rejected == (Rejected(1, "w", "not finite"),)
    assert reduction.model["w"].tobytes() == without.model["w"].tobytes()


@every_rule
def test_missing_extra_and_misshaped_arrays_are_refused_by_name(name: str) -> None:
    chosen = rule(name, slots=4)
    wrong = [{}, {**value(1.0), "x": np.zeros(1)}, {"w": np.zeros(2, np.float32)}]
    reduction = chosen.apply(
        value(0.0), chosen.init(value(0.0)), contributions(*wrong, value(1.0)), 0.1
    )
    assert [(r.slot, r.name) for r in reduction.rejected] == [(0, "w"), (1, "x"), (2, "w")]


@every_rule
@pytest.mark.parametrize("weights", [[0, 0], [1, 1]])
def test_nothing_to_average_is_an_error(name: str, weights: list[int]) -> None:
    chosen = rule(name)
    bad = contributions(value(np.nan), value(np.inf), weights=weights)
    with pytest.raises(ReduceError, match="model kept"):
        chosen.apply(value(0.0), chosen.init(value(0.0)), bad, 0.1)


@every_rule
def test_inputs_are_read_only_misaligned_and_stay_as_they_are(name: str) -> None:
    def received(x: float) -> Arrays:
        data = b"\0" + np.float32([x, x]).tobytes()
        return {"w": np.frombuffer(data, np.uint8)[1:].view(np.float32)}

    chosen = rule(name)
    model, returned = received(0.0), [received(x) for x in (1.0, 2.0, 4.0)]
    state = chosen.init(model)
    for array in state.values():
        array.flags.writeable = False
    results = [chosen.apply(model, state, contributions(*returned), 0.1) for _ in range(2)]
    assert results[0].model["w"].tobytes() == results[1].model["w"].tobytes()
    assert [a["w"].tolist() for a in (model, *returned)] == [[x] * 2 for x in (0, 1, 2, 4)]
    assert results[0].model["w"].flags.writeable


@every_rule
@given(order=st.permutations(range(4)))
def test_the_order_of_arrival_changes_nothing(name: str, order: list[int]) -> None:
    chosen = rule(name, slots=4)
    arrays = drawn(np.random.default_rng(5), 4, "float64")
    returned = contributions(*arrays, weights=[4, 1, 3, 2])
    state = chosen.init(arrays[0])
    first = chosen.apply(arrays[0], state, returned, 0.1)
    second = chosen.apply(arrays[0], state, [returned[slot] for slot in order], 0.1)
    assert first.model["w"].tobytes() == second.model["w"].tobytes()


def test_the_option_offers_every_rule() -> None:
    (option,) = (f.option for f in fields() if f.name == "reduce")
    assert list(option.choices) == list(KNOWN) == RULES


@pytest.mark.parametrize(
    ("name", "given_options", "resolved"),
    [
        ("mean", (), ()),
        ("momentum", (), ("eta=0.75", "zeta=1.0")),
        ("momentum", (" eta = 0.5 ",), ("eta=0.5", "zeta=1.0")),
        ("nesterov", ("lr=1", "lr=2"), ("lr=2.0", "momentum=0.9")),
        ("slowmo", ("beta=0.1",), ("alpha=1.0", "beta=0.1")),
        ("adam", (), ("lr=0.01", "beta1=0.9", "beta2=0.99", "tau=0.001")),
        ("median", (), ()),
        ("trimmed-mean", (), ("trim=0.2",)),
        ("consensus", (), ("topology=ring", "matrix=")),
    ],
)
def test_options_are_resolved_with_all_defaults(
    name: str, given_options: tuple[str, ...], resolved: tuple[str, ...]
) -> None:
    options = MapReduceConfig(reduce=name, reduce_option=given_options, map_tasks=4)
    assert resolved_options(options) == resolved
    again = MapReduceConfig(reduce=name, reduce_option=resolved, map_tasks=4)
    assert make_rule(again) == make_rule(options)


@given(st.floats(0, 1, exclude_max=True), st.floats(0, 1e300, exclude_min=True))
def test_resolved_options_are_exact(eta: float, zeta: float) -> None:
    options = MapReduceConfig(
        reduce="momentum", reduce_option=(f"eta={eta!r}", f"zeta={zeta!r}"), map_tasks=3
    )
    resolved = MapReduceConfig(
        reduce="momentum", reduce_option=resolved_options(options), map_tasks=3
    )
    assert make_rule(resolved) == make_rule(options)


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("momentum", "beta=1", "momentum has no option 'beta'; known: eta, zeta"),
        ("mean", "eta=0.5", "mean has no option 'eta'; it has none"),
        ("consensus", "n_slots=2", "known: topology, matrix"),
        ("momentum", "eta", "eta must be a number, got ''"),
        ("momentum", "eta=x", "eta must be a number, got 'x'"),
        ("momentum", "eta=nan", "eta must be a number, got 'nan'"),
        ("momentum", "zeta=inf", "zeta must be a number, got 'inf'"),
        ("momentum", "eta=1", "eta must be at least 0 and less than 1, got 1.0"),
        ("momentum", "zeta=0", "zeta must be more than 0, got 0.0"),
        ("nesterov", "lr=-1", "lr must be more than 0"),
        ("nesterov", "momentum=1.5", "momentum must be at least 0 and less than 1"),
        ("slowmo", "alpha=0", "alpha must be more than 0"),
        ("slowmo", "beta=-0.1", "beta must be at least 0"),
        ("adam", "tau=0", "tau must be more than 0"),
        ("adam", "beta2=1", "beta2 must be at least 0 and less than 1"),
        ("trimmed-mean", "trim=0.5", "trim must be at least 0 and less than 0.5, got 0.5"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(name: str, option: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"^--reduce-option: .*{message}") as refused:
        rule(name, option)
    assert "\n" not in str(refused.value)


def test_the_number_of_slots_must_be_resolved() -> None:
    with pytest.raises(ValueError, match="map_tasks"):
        make_rule(MapReduceConfig())
