"""Variables and their copies: MB-01, MB-02, MB-03."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from paceline.autodiff import GradientTape, IndexedSlices, Tensor, backward
from paceline.strategies import (
    DEFAULT_STRATEGY,
    Variable,
    VariableAggregation,
    VariableSynchronization,
    get_replica_context,
    get_variable,
)

AUTO, NONE, ON_WRITE, ON_READ = VariableSynchronization
NO_AGGREGATION, SUM, MEAN, ONLY_FIRST = VariableAggregation
MIRRORED = (AUTO, ON_WRITE)
DTYPES = [np.float16, np.float32, np.float64, np.int8, np.uint8, np.int32, np.int64, np.bool_]


def replica_id():
    return get_replica_context().replica_id_in_sync_group


def variable_in(strategy, value=0.0, **options):
    with strategy.scope():
        return Variable(value, **options)


def copies(variable):
    """The values of all copies, as lists or numbers."""
    return [value.tolist() for value in variable.local_values()]


def test_mb_01_a_copy_on_every_device_where_variables_live(every_strategy):
    variable = variable_in(every_strategy, [1.0, 2.0], name="w")
    n = len(every_strategy.extended.parameter_devices)
    assert variable.num_copies == n
    assert copies(variable) == [[1.0, 2.0]] * n
    assert variable.strategy is every_strategy
    assert [str(variable.device_of(i)) for i in range(n)] == list(
        every_strategy.extended.parameter_devices
    )


def test_mb_01_the_representation_lists_the_copies(two_replicas, plain_printing):
    variable = variable_in(two_replicas, 1.0, name="shown")
    assert repr(variable) == (
        "MirroredVariable:{\n"
        "  0: <Variable 'shown' shape=() dtype=float32, numpy=1.0>,\n"
        "  1: <Variable 'shown/replica_1' shape=() dtype=float32, numpy=1.0>\n"
        "}"
    )


def test_mb_01_a_single_copy_is_shown_as_it_is(plain_printing):
    assert repr(Variable(1.0, name="alone")) == (
        "<Variable 'alone' shape=() dtype=float32, numpy=1.0>"
    )


def test_in_a_replica_a_variable_is_that_replicas_copy(several_replicas):
    variable = variable_in(several_replicas, synchronization=ON_READ, aggregation=SUM)
    n = several_replicas.num_replicas_in_sync

    def step():
        variable.assign(float(replica_id()))
        return variable.item(), (variable + 1.0).item(), variable.numpy().item()

    own, plus_one, as_array = several_replicas.run(step)
    assert own.values == as_array.values == tuple(range(n))
    assert plus_one.values == tuple(range(1, n + 1))


def test_a_gradient_goes_to_the_replicas_own_copy(two_replicas):
    variable = variable_in(two_replicas, [1.0, 2.0])

    def step():
        (leaf,) = backward(np.sum(variable * variable))
        return leaf is variable.leaf(replica_id()), leaf.owner is variable

    assert two_replicas.run(step)[0].values == (True, True)
    assert two_replicas.run(step)[1].values == (True, True)


def test_a_tape_finds_the_gradient_of_a_variable(every_strategy):
    variable = variable_in(every_strategy, [1.0, 2.0])

    def step():
        with GradientTape() as tape:
            loss = np.sum(variable * variable)
        return tape.gradient(loss, variable)

    for gradient in every_strategy.experimental_local_results(every_strategy.run(step)):
        assert gradient.numpy().tolist() == [2.0, 4.0]


NO_VALUE = "has a value per replica .* neither read nor saved as a whole"
NO_DIFFERENCE = "is read as the sum of its replicas' copies .* assign the new total"
DISAGREE = r"different values .* aggregation is NONE"
BEGIN, FIRST, SECOND, GIVEN = 10.0, 1.0, 3.0, 6.0


def after(how, begin, delta):
    return {"assign": delta, "assign_add": begin + delta, "assign_sub": begin - delta}[how]


class Expected(NamedTuple):
    """What TensorFlow 2.15 does with a variable of two replicas.

    Where replicas disagree and the aggregation is NONE, it lets mirrored copies differ; here that
    is an error.

    Args:
        combined: What the copies become where replicas assign FIRST and SECOND, or that error.
        copies_of: The copies that are set where a value is assigned as a whole.
        read: What the copies are read as outside replicas, or the error of that.
        difference: The error of a change by a difference outside replicas, if any.
    """

    combined: Any
    copies_of: Any
    read: Any
    difference: str | None = None


OWN = (FIRST, SECOND)
BOTH = lambda value: [value, value]  # noqa: E731
BY_POLICIES = {
    **{
        (mirrored, aggregation): Expected(combined, BOTH, lambda values: values[0])
        for mirrored in MIRRORED
        for aggregation, combined in {
            NO_AGGREGATION: DISAGREE,
            SUM: (FIRST + SECOND,) * 2,
            MEAN: ((FIRST + SECOND) / 2,) * 2,
            ONLY_FIRST: (FIRST, FIRST),
        }.items()
    },
    (ON_READ, NO_AGGREGATION): Expected(OWN, BOTH, NO_VALUE, NO_VALUE),
    (ON_READ, SUM): Expected(OWN, lambda value: [value, 0.0], sum, NO_DIFFERENCE),
    (ON_READ, MEAN): Expected(OWN, BOTH, np.mean),
    (ON_READ, ONLY_FIRST): Expected(OWN, BOTH, lambda values: values[0]),
}


@pytest.mark.parametrize(
    ("synchronization", "aggregation", "expected"),
    [(*policies, expected) for policies, expected in BY_POLICIES.items()],
    ids=[f"{s.name}-{a.name}" for s, a in BY_POLICIES],
)
class TestMB02:
    """MB-02: each verb in and outside replicas, by synchronization and aggregation."""

    @pytest.fixture
    def variable(self, two_replicas, synchronization, aggregation):
        return variable_in(
            two_replicas, BEGIN, synchronization=synchronization, aggregation=aggregation
        )

    @staticmethod
    def require_read(variable, expected, values):
        """The variable has these copies, and is read outside replicas as they say."""
        assert copies(variable) == values
        if isinstance(expected.read, str):
            for read in (variable.item, variable.numpy, variable.value, lambda: variable + 1.0):
                with pytest.raises(ValueError, match=expected.read):
                    read()
        else:
            assert variable.item() == variable.numpy() == expected.read(values)

    def test_the_initial_value_is_that_of_the_whole(self, variable, expected):
        self.require_read(variable, expected, expected.copies_of(BEGIN))

    @pytest.mark.parametrize("how", ["assign", "assign_add", "assign_sub"])
    def test_in_replicas(self, variable, two_replicas, expected, how):
        begin = copies(variable)
        step = lambda: getattr(variable, how)(OWN[replica_id()])  # noqa: E731
        if expected.combined is DISAGREE:
            with pytest.raises(ValueError, match=DISAGREE):
                two_replicas.run(step)
            assert copies(variable) == begin
        else:
            two_replicas.run(step)
            changed = [after(how, b, d) for b, d in zip(begin, expected.combined, strict=True)]
            self.require_read(variable, expected, changed)

    def test_equal_values_are_never_an_error(self, variable, two_replicas, expected, aggregation):
        two_replicas.run(lambda: variable.assign(5.0))
        is_added_up = aggregation is SUM and expected.combined is not OWN
        self.require_read(variable, expected, [10.0, 10.0] if is_added_up else [5.0, 5.0])

    @pytest.mark.parametrize("is_merged", [False, True], ids=["outside", "in merge_call"])
    @pytest.mark.parametrize("how", ["assign", "assign_add", "assign_sub"])
    def test_outside_replicas(self, variable, two_replicas, expected, how, is_merged):
        def change(strategy=None):
            getattr(variable, how)(GIVEN)

        def call():
            if is_merged:
                two_replicas.run(lambda: get_replica_context().merge_call(change))
            else:
                change()

        begin = copies(variable)
        if how != "assign" and expected.difference:
            with pytest.raises(ValueError, match=expected.difference):
                call()
            assert copies(variable) == begin
        else:
            call()
            self.require_read(variable, expected, expected.copies_of(after(how, BEGIN, GIVEN)))

    def test_mb_03_a_value_written_back_is_read_again(self, variable, two_replicas, expected):
        if expected.combined is not DISAGREE:
            two_replicas.run(lambda: variable.assign(OWN[replica_id()]))
        if expected.read is not NO_VALUE:
            saved = variable.numpy()
            variable.assign(saved)
            assert variable.numpy() == saved


@pytest.mark.parametrize("aggregation", VariableAggregation)
def test_replicas_that_are_never_synchronized_are_refused(aggregation, two_replicas):
    with pytest.raises(
        ValueError, match=r"synchronization NONE, which is for .* one replica.*ON_READ"
    ):
        variable_in(two_replicas, synchronization=NONE, aggregation=aggregation)


@pytest.mark.parametrize("synchronization", [ON_READ, NONE])
def test_a_variable_of_one_replica_needs_no_aggregation(synchronization, mirrored):
    variable = variable_in(mirrored(1), BEGIN, synchronization=synchronization)
    variable.assign_add(1.0)
    assert variable.item() == BEGIN + 1.0


@pytest.mark.parametrize("n", [3, 4])
def test_mb_03_the_mean_of_equal_copies_is_their_value_to_the_bit(n, mirrored):
    value = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    variable = variable_in(mirrored(n), value, synchronization=ON_READ, aggregation=MEAN)
    assert variable.numpy().tobytes() == value.tobytes()


def test_mb_03_a_total_of_whole_numbers_is_kept_exactly(mirrored):
    total = 2**53 + 1
    variable = variable_in(mirrored(4), total, synchronization=ON_READ, aggregation=SUM)
    assert int(variable) == total
    variable.assign(total + 2)
    assert int(variable) == total + 2


def test_assigned_values_may_be_overwritten_at_once(mirrored):
    """A replica that goes on and changes the array that it gave disturbs nobody."""
    strategy = mirrored(4)
    variable = variable_in(strategy, np.zeros(10_000), aggregation=SUM)

    def step():
        mine = np.empty(10_000)
        for round_index in range(20):
            mine.fill(replica_id() + round_index)
            variable.assign(mine)
            mine.fill(np.nan)
            assert (variable.numpy() == 6 + 4 * round_index).all()

    strategy.run(step)


@pytest.mark.parametrize("synchronization", [AUTO, ON_READ])
def test_a_variable_holds_arrays_of_its_own(synchronization, every_strategy):
    value = np.zeros(3)
    variable = variable_in(
        every_strategy, value, synchronization=synchronization, aggregation=ONLY_FIRST
    )
    value.fill(1)
    assert list(variable.numpy()) == [0, 0, 0]
    variable.assign(value)
    every_strategy.run(lambda: variable.assign(value))
    value.fill(2)
    assert copies(variable) == [[1, 1, 1]] * variable.num_copies
    variable.numpy().fill(3)
    assert list(variable.numpy()) == [1, 1, 1]
    arrays = variable.local_values()
    assert len({id(a) for a in arrays}) == len(arrays)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("as_scalar", [True, False], ids=["scalar", "array"])
def test_the_dtype_of_the_initial_value_is_kept(dtype, as_scalar, every_strategy):
    variable = variable_in(every_strategy, dtype(1) if as_scalar else np.ones((2, 1), dtype))
    assert variable.dtype == dtype
    for value in (variable.numpy(), np.zeros(variable.shape, dtype)):
        every_strategy.run(lambda value=value: variable.assign(value))
        variable.assign(value)
        assert {v.dtype for v in variable.local_values()} == {np.dtype(dtype)}


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1.0, np.float32),
        ([1.0, 2.0], np.float32),
        ((1.0, 2), np.float32),
        (1, np.int64),
        ([1, 2], np.int64),
        (True, np.bool_),
        (Tensor(np.ones(2)), np.float64),
    ],
    ids=str,
)
def test_pythons_floats_become_float32(value, dtype):
    assert Variable(value).dtype == dtype
    assert Variable(lambda: value).dtype == dtype
    assert Variable(value, dtype=np.float64).dtype == np.float64


def test_a_variable_may_begin_as_another_ones_value(two_replicas):
    first = variable_in(two_replicas, [1.0, 2.0])
    second = variable_in(two_replicas, first)
    first.assign([0.0, 0.0])
    assert copies(second) == [[1.0, 2.0]] * 2


def test_fortran_ordered_values_are_kept_in_c_order(every_strategy):
    value = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    variable = variable_in(every_strategy, value)
    variable.assign(value + 1)
    every_strategy.run(lambda: variable.assign_add(value))
    for copy in variable.local_values():
        assert copy.flags.c_contiguous
        np.testing.assert_array_equal(copy, 2 * value + 1)


def test_scalars_stay_arrays_without_dimensions(every_strategy):
    variable = variable_in(every_strategy, 1.0)
    variable.assign_add(1)
    every_strategy.run(lambda: variable.assign_add(1.0))
    for copy in variable.local_values():
        assert not isinstance(copy, np.generic)
        assert (copy.shape, copy.item()) == ((), 3.0)


@pytest.mark.parametrize("in_replica", [True, False], ids=["in a replica", "outside"])
@pytest.mark.parametrize("value", [[1.0], [[1.0, 2.0]], 1.0, [1.0, 2.0, 3.0]], ids=str)
def test_a_value_of_another_shape_never_broadcasts(value, in_replica, every_strategy):
    variable = variable_in(every_strategy, [1.0, 2.0], name="w")
    assign = lambda: variable.assign(value)  # noqa: E731
    with pytest.raises(ValueError, match=r"variable 'w.*has shape \(2,\).*of shape \(.*reshape"):
        every_strategy.run(assign) if in_replica else assign()


@pytest.mark.parametrize(
    ("start", "value", "fits"),
    [
        (0, 1.5, False),
        (0, np.float32(1), False),
        (0.0, 1j, False),
        (True, 0.5, False),
        (0, True, True),
        (0.0, 7, True),
        (0.0, np.float64(1 / 3), True),
        (np.uint8(0), 7, True),
        (False, 1, True),
    ],
)
def test_a_fraction_is_never_cut_off_silently(start, value, fits):
    variable = Variable(start)
    if fits:
        assert variable.assign(value).numpy() == variable.dtype.type(value)
    else:
        with pytest.raises(TypeError, match=r"has dtype .* of dtype .*astype"):
            variable.assign(value)


@pytest.mark.parametrize(("value", "aggregation"), [(1, MEAN), (True, MEAN), (True, SUM)])
def test_an_aggregation_that_the_dtype_cannot_hold_is_refused(value, aggregation):
    with pytest.raises(ValueError, match=f"which cannot hold the {aggregation.value}"):
        Variable(value, aggregation=aggregation)


@pytest.mark.parametrize(
    "options", [{"synchronization": "ON_READ"}, {"aggregation": "MEAN"}, {"aggregation": ON_READ}]
)
def test_what_is_no_policy_is_refused(options):
    """A text would be none of those that are compared with, and so another one."""
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"{value!r}; it takes one of Variable{name.title()}."):
        Variable(1.0, **options)


@pytest.mark.parametrize(
    ("value", "options", "trainable"),
    [
        (1.0, {}, True),
        (1.0, {"trainable": False}, False),
        (1, {}, False),
        (True, {}, False),
        (1.0, {"synchronization": ON_READ}, False),
    ],
)
def test_floats_that_are_kept_equal_can_be_trained(value, options, trainable, every_strategy):
    variable = variable_in(every_strategy, value, **options)
    assert variable.trainable is trainable
    assert all(variable.leaf(i).requires_grad is trainable for i in range(variable.num_copies))


def test_nan_equals_nan_where_replicas_have_to_agree(two_replicas):
    variable = variable_in(two_replicas)
    two_replicas.run(lambda: variable.assign(np.nan))
    assert np.isnan(variable.numpy())


def test_slices_may_be_added(every_strategy):
    variable = variable_in(every_strategy, np.zeros((3, 1)))
    rows = IndexedSlices(np.ones((2, 1)), np.array([2, 2]), (3, 1))
    variable.assign_sub(rows)
    assert variable.numpy().tolist() == [[0], [0], [-2]]


def test_a_replica_that_assigns_alone_is_told_so(two_replicas):
    variable = variable_in(two_replicas, name="w", aggregation=SUM)

    def step():
        if replica_id() == 0:
            variable.assign(1.0)

    with pytest.raises(RuntimeError, match=r"replica 0 is at assign of variable 'w.*replica 1 has"):
        two_replicas.run(step)


@pytest.mark.parametrize("aggregation", [SUM, MEAN, ONLY_FIRST])
def test_a_shared_variable_from_outside_is_aggregated_too(aggregation, two_replicas, log_lines):
    variable = Variable(0.0, aggregation=aggregation)
    two_replicas.run(lambda: variable.assign_add(1.0 + 2 * replica_id()))
    assert variable.item() == {SUM: 4.0, MEAN: 2.0, ONLY_FIRST: 1.0}[aggregation]
    assert any("outside the scope" in line for line in log_lines())


def test_arithmetic_and_comparison_are_those_of_arrays():
    variable = Variable([1.0, 2.0])
    assert (variable @ np.ones(2, np.float32)).item() == 3.0
    assert (variable == variable).tolist() == [True, True]
    assert variable in {variable}
    assert np.tanh(variable).shape == (2,)
    assert variable.tensor() is variable.leaf(0)


def test_an_assignment_returns_the_variable():
    variable = Variable(0.0)
    assert variable.assign(1.0) is variable
    assert get_variable(variable.name) is variable
    assert variable.strategy is DEFAULT_STRATEGY
