"""ST-45, MB-21, MB-24: `function` is accepted everywhere, and runs Python as it is."""

import numpy as np
import pytest

import paceline as pl
from paceline.autodiff import Tensor
from paceline.strategies import Function, get_replica_context


def double(x):
    return 2 * x


@pytest.mark.parametrize(
    "mark",
    [
        pl.function,
        pl.function(),
        pl.function(jit_compile=True, autograph=False, reduce_retracing=True),
        pl.function(experimental_relax_shapes=True, experimental_compile=False),
        lambda f: pl.function(f, input_signature=None),
    ],
)
def test_st_45_mb_21_marked_or_not_the_result_is_the_same(mark):
    marked = mark(double)
    assert marked(3) == 6
    assert marked.python_function is double
    assert (marked.__name__, marked.__module__) == ("double", __name__)
    assert marked.get_concrete_function(np.ones(2))(np.ones(2)).tolist() == [2, 2]


def test_es_24_st_45_a_body_runs_at_each_call():
    """Unlike a traced one: side effects happen each time, and conditions see values."""
    seen = []

    @pl.function
    def step(x):
        seen.append(x)
        return "large" if x > 1 else "small"

    assert [step(1), step(2), step(1)] == ["small", "large", "small"]
    assert seen == [1, 2, 1]


def test_st_45_methods_are_marked():
    class Model:
        factor = 3

        @pl.function(input_signature=[pl.TensorSpec([None], np.float32)])
        def __call__(self, x):
            return self.factor * x

        @pl.function
        def step(self, x, *, twice=False):
            return self(x) * (2 if twice else 1)

    assert Model().step(np.ones(1, np.float32), twice=True).tolist() == [6]
    assert isinstance(Model.step, Function)
    with pytest.raises(TypeError, match="argument 0 has dtype float64"):
        Model()(np.ones(1))


def test_st_45_mb_24_a_step_takes_what_the_spec_of_a_distributed_dataset_says(every_strategy):
    n = every_strategy.num_replicas_in_sync
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    data = pl.Dataset.from_tensor_slices((x, {"y": x[:, 0]})).batch(6, drop_remainder=True)
    batches = every_strategy.experimental_distribute_dataset(data)

    def replica_step(batch):
        return get_replica_context().all_reduce("SUM", batch[0].sum())

    @pl.function(input_signature=[batches.element_spec])
    def step(batch):
        return every_strategy.run(replica_step, (batch,))

    totals = every_strategy.experimental_local_results(step(next(iter(batches))))
    assert [float(total) for total in totals] == [66.0] * n


SIGNATURE = [pl.TensorSpec([None, 2], np.float32), {"n": pl.TensorSpec([], np.int64)}]
X = np.zeros((3, 2), np.float32)


@pytest.mark.parametrize("x", [X, Tensor(X), X[:0]])
@pytest.mark.parametrize("n", [4, np.int64(4), Tensor(np.int64(4))])
def test_mb_24_what_fits_a_signature_is_passed_on(x, n):
    marked = pl.function(lambda x, n: (x, n), SIGNATURE)
    given = {"n": n}
    assert marked(x, given) == (x, given) or marked(x, given)[0] is x
    assert marked(n=given, x=x)[1] is given


@pytest.mark.parametrize(
    ("args", "error", "text"),
    [
        ((X[0], {"n": 1}), ValueError, r"argument 0 has shape \(2,\), .* says \(None, 2\)"),
        ((X, {"n": 1.5}), TypeError, r"argument 1\['n'\] has dtype float64, .* says int64"),
        ((X.astype(int), {"n": 1}), TypeError, "argument 0 has dtype int64"),
        ((X, {"m": 1}), ValueError, "argument 1"),
        ((X,), TypeError, "missing a required argument"),
    ],
)
def test_mb_24_what_does_not_fit_a_signature_is_refused(args, error, text):
    with pytest.raises(error, match=text):
        pl.function(lambda x, n: None, SIGNATURE)(*args)


def test_mb_24_a_signature_has_a_spec_for_each_argument():
    with pytest.raises(TypeError, match=r"called with 2 argument\(s\), its input_signature has 1"):
        pl.function(lambda *args: None, SIGNATURE[:1])(X, X)


def test_mb_24_a_concrete_function_is_for_arguments_like_those_given():
    concrete = pl.function(lambda x, n: x * n).get_concrete_function(
        pl.TensorSpec(None, np.float32), n=2
    )
    assert concrete(X, 3).shape == X.shape
    with pytest.raises(TypeError, match="argument 0 has dtype float64"):
        concrete(np.ones(2), 3)


def test_mb_24_a_spec_says_what_it_stands_for():
    spec = pl.TensorSpec([None, 2], "float32", name="x")
    assert repr(spec) == "TensorSpec(shape=(None, 2), dtype=float32, name='x')"
    assert spec == pl.TensorSpec((None, 2))
    with pytest.raises(ValueError, match="lengths ≥ 0 or None"):
        pl.TensorSpec([-1])


def test_st_45_only_what_can_be_called_is_marked():
    with pytest.raises(TypeError, match="marks a callable, it was given 3"):
        pl.function(3)
