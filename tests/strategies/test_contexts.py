"""Which strategy and which replica code runs under: ST-05 to ST-11."""

import re
import threading

import pytest

from paceline.strategies import (
    DEFAULT_STRATEGY,
    Variable,
    get_replica_context,
    get_strategy,
    has_strategy,
    in_cross_replica_context,
)


def seen():
    """What the three questions answer here, and whether there is a replica context."""
    return get_strategy(), has_strategy(), in_cross_replica_context(), bool(get_replica_context())


def test_st_11_outside_any_scope_code_is_the_default_strategys_replica():
    assert seen() == (DEFAULT_STRATEGY, False, False, True)


def test_st_11_in_a_scope_code_is_in_cross_replica_context(every_strategy):
    with every_strategy.scope():
        assert seen() == (every_strategy, every_strategy is not DEFAULT_STRATEGY, True, False)
    assert seen() == (DEFAULT_STRATEGY, False, False, True)


def test_st_11_in_run_code_is_a_replica(every_strategy):
    answers = every_strategy.run(lambda: [seen()])[0]
    for answer in zip(*map(every_strategy.experimental_local_results, answers), strict=True):
        assert answer == (every_strategy, every_strategy is not DEFAULT_STRATEGY, False, True)


def test_st_11_in_merge_call_code_is_in_cross_replica_context(every_strategy):
    answers = []
    every_strategy.run(lambda: get_replica_context().merge_call(lambda _: answers.append(seen())))
    assert answers == [(every_strategy, every_strategy is not DEFAULT_STRATEGY, True, False)]


def test_st_10_get_strategy_gives_the_default_singleton_outside():
    assert get_strategy() is get_strategy() is DEFAULT_STRATEGY


def test_st_05_the_same_scope_may_be_entered_again(every_strategy):
    with every_strategy.scope() as strategy, every_strategy.scope() as again:
        assert strategy is again is get_strategy()


def test_st_05_another_strategys_scope_is_refused_and_both_are_named(mirrored):
    outer, inner = mirrored(2), mirrored(3)
    both = f"{re.escape(repr(inner))}.*inside the scope.*{re.escape(repr(outer))}"
    with outer.scope(), pytest.raises(RuntimeError, match=both), inner.scope():
        pass


def test_st_05_the_default_strategys_scope_is_refused_in_another(two_replicas):
    with (
        two_replicas.scope(),
        pytest.raises(RuntimeError, match="DefaultStrategy"),
        DEFAULT_STRATEGY.scope(),
    ):
        pass


def test_st_05_a_scope_is_refused_inside_a_replica(two_replicas):
    def step():
        with two_replicas.scope():
            pass

    with pytest.raises(RuntimeError, match="scope was called inside a replica of Mirrored"):
        two_replicas.run(step)


def test_st_05_a_scope_holds_in_its_own_thread_only(two_replicas):
    elsewhere = []
    with two_replicas.scope():
        thread = threading.Thread(target=lambda: elsewhere.append(get_strategy()))
        thread.start()
        thread.join()
    assert elsewhere == [DEFAULT_STRATEGY]


def test_st_05_a_scope_ends_with_an_error_in_it(two_replicas):
    with pytest.raises(KeyError), two_replicas.scope():
        raise KeyError
    assert not has_strategy()


@pytest.mark.parametrize("verb", ["run", "reduce", "gather"])
def test_strategies_do_not_nest_by_their_verbs_either(verb, mirrored):
    outer, inner = mirrored(2), mirrored(3)
    calls = {
        "run": lambda: inner.run(lambda: 1),
        "reduce": lambda: inner.reduce("SUM", 1.0),
        "gather": lambda: inner.gather([1.0], axis=0),
    }
    with outer.scope(), pytest.raises(RuntimeError, match=f"{verb} of .* inside the scope of"):
        calls[verb]()


def test_the_default_strategy_runs_in_any_scope(two_replicas):
    with two_replicas.scope():
        assert DEFAULT_STRATEGY.run(get_strategy) is DEFAULT_STRATEGY


@pytest.mark.parametrize("verb", ["run", "reduce", "gather", "reduce_to"])
def test_st_14_cross_replica_verbs_are_refused_in_a_replica(verb, two_replicas):
    calls = {
        "run": lambda: two_replicas.run(lambda: 1),
        "reduce": lambda: two_replicas.reduce("SUM", 1.0),
        "gather": lambda: two_replicas.gather([1.0], axis=0),
        "reduce_to": lambda: two_replicas.extended.reduce_to("SUM", 1.0),
    }
    with pytest.raises(RuntimeError, match=f"{verb} was called inside a replica.*all_reduce"):
        two_replicas.run(calls[verb])


def test_st_06_verbs_need_no_scope(every_strategy):
    total = every_strategy.reduce("SUM", every_strategy.run(lambda: 1.0))
    assert total == every_strategy.num_replicas_in_sync


def test_st_06_a_variable_is_read_and_written_outside_the_scope(every_strategy):
    with every_strategy.scope():
        variable = Variable([1.0, 2.0])
    variable.assign([3.0, 4.0])
    assert [list(v) for v in variable.local_values()] == [[3.0, 4.0]] * variable.num_copies
    assert list(variable.numpy()) == [3.0, 4.0]


def test_st_07_a_variable_from_outside_the_scope_warns_once_and_by_name(
    several_replicas, log_lines
):
    variable = Variable(1.0, name="outsider")

    def step():
        return variable * 2.0 + variable

    several_replicas.run(step)
    several_replicas.run(step)
    (line,) = [line for line in log_lines() if "outsider" in line]
    assert "outside the scope of MirroredStrategy" in line


def test_st_07_one_replica_shares_with_nobody_and_does_not_warn(log_lines, mirrored):
    variable = Variable(1.0)
    for strategy in DEFAULT_STRATEGY, mirrored(1):
        strategy.run(lambda: variable * 2.0)
    assert not [line for line in log_lines() if "outside the scope" in line]


def test_a_variable_of_one_strategy_is_refused_in_replicas_of_another(mirrored):
    with mirrored(2).scope():
        variable = Variable(1.0, name="theirs")
    with pytest.raises(RuntimeError, match="'theirs' was created in the scope of Mirrored"):
        mirrored(4).run(lambda: variable * 2.0)


def test_a_mirrored_variable_used_by_a_single_replica_is_used_as_a_whole(two_replicas, mirrored):
    with two_replicas.scope():
        variable = Variable(1.0)
    assert mirrored(1).run(lambda: variable.item()) == 1.0
    DEFAULT_STRATEGY.run(lambda: variable.assign_add(1.0))
    assert variable.local_values() == [2.0, 2.0]
