"""Initial values: their moments and limits follow from the formulas of the papers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.nn import initializers

SHAPE = (200, 300)


def draw(initializer, shape=SHAPE, dtype=np.float64, seed=0):
    return initializers.get(initializer)(shape, np.dtype(dtype), np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("name", "variance"),
    [
        ("glorot_uniform", 2 / 500),
        ("glorot_normal", 2 / 500),
        ("he_uniform", 2 / 200),
        ("he_normal", 2 / 200),
        ("lecun_uniform", 1 / 200),
        ("lecun_normal", 1 / 200),
    ],
)
def test_scaled_ones_have_zero_mean_and_the_variance_of_their_paper(name, variance):
    values = draw(name)
    assert values.mean() == pytest.approx(0, abs=4 * math.sqrt(variance / values.size))
    assert values.var() == pytest.approx(variance, rel=0.02)


@pytest.mark.parametrize("name", ["glorot_uniform", "he_uniform", "lecun_uniform"])
def test_uniform_ones_fill_their_range_and_no_more(name):
    values = draw(name)
    limit = math.sqrt(3 * {"g": 2 / 500, "h": 2 / 200, "l": 1 / 200}[name[0]])
    assert np.abs(values).max() <= limit
    assert np.abs(values).max() > 0.999 * limit


@pytest.mark.parametrize("name", ["glorot_normal", "he_normal", "lecun_normal"])
def test_normal_ones_are_cut_at_two_of_the_uncut_deviations(name):
    values = draw(name)
    uncut = values.std() / 0.87962566103423978
    assert np.abs(values).max() == pytest.approx(2 * uncut, rel=0.02)


def test_truncated_normal_keeps_the_stddev_of_before_the_cut():
    values = draw(initializers.TruncatedNormal(mean=1.0, stddev=0.5))
    assert np.abs(values - 1).max() <= 1.0
    assert values.std() == pytest.approx(0.5 * 0.8796, rel=0.02)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((), (1, 1)), ((7,), (7, 7)), ((3, 4), (3, 4)), ((5, 5, 3, 8), (75, 200))],
)
def test_fans_count_the_positions_of_a_convolution(shape, expected):
    assert initializers.fans(shape) == expected


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (2, 3, 4)])
def test_orthogonal_has_orthonormal_rows_or_columns(shape):
    matrix = draw(initializers.Orthogonal(gain=2.0), shape).reshape(-1, shape[-1])
    if matrix.shape[0] < matrix.shape[1]:
        matrix = matrix.T
    np.testing.assert_allclose(matrix.T @ matrix, 4 * np.eye(matrix.shape[1]), atol=1e-12)


def test_orthogonal_refuses_a_vector():
    with pytest.raises(ValueError, match=r"rank ≥ 2.*\(3,\)"):
        draw("orthogonal", (3,))


@pytest.mark.parametrize(
    ("initializer", "expected"),
    [("zeros", 0.0), ("ones", 1.0), (initializers.Constant(2.5), 2.5)],
)
def test_constant_ones_are_the_same_everywhere(initializer, expected):
    assert (draw(initializer, (2, 3)) == expected).all()


def test_random_uniform_and_normal_have_keras_defaults():
    uniform, normal = draw("random_uniform"), draw("random_normal")
    assert uniform.min() >= -0.05
    assert uniform.max() < 0.05
    assert normal.std() == pytest.approx(0.05, rel=0.02)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_have_the_dtype_and_start_from_the_same_numbers(dtype):
    values = draw("he_normal", (3, 4), dtype)
    assert values.dtype == dtype
    np.testing.assert_array_equal(values, draw("he_normal", (3, 4), np.float64).astype(dtype))


def test_a_seed_of_its_own_overrides_the_models_generator():
    first, second = (draw(initializers.glorot_uniform(seed=7), seed=s) for s in (0, 1))
    np.testing.assert_array_equal(first, second)


def test_get_takes_names_class_names_classes_and_callables():
    for spelling in ("glorot_uniform", "GlorotUniform", initializers.glorot_uniform):
        assert initializers.get(spelling) == initializers.VarianceScaling(1.0, "fan_avg", "uniform")
    assert initializers.get(initializers.Zeros) == initializers.Zeros()
    own = lambda shape, dtype, rng: np.zeros(shape, dtype)  # noqa: E731
    assert initializers.get(own) is own


def test_get_lists_the_names_it_knows():
    with pytest.raises(ValueError, match=r"'glorot'.*glorot_normal, glorot_uniform"):
        initializers.get("glorot")
    with pytest.raises(TypeError, match=r"Constant\(0\.5\)"):
        initializers.get(0.5)
    with pytest.raises(TypeError, match=r"Constant\(array\("):
        initializers.get(np.ones((2, 2)))


def test_scaling_refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match="mode must be one of fan_in"):
        initializers.VarianceScaling(mode="fan")
    with pytest.raises(ValueError, match="scale must be positive"):
        initializers.VarianceScaling(scale=0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 5), (70_000, 3)])
def test_large_values_are_drawn_as_if_at_once(shape, dtype):
    uniform = initializers.RandomUniform(-1, 2)(shape, dtype, np.random.default_rng(5))
    normal = initializers.RandomNormal(1, 2)(shape, dtype, np.random.default_rng(5))
    at_once = np.asarray(np.random.default_rng(5).uniform(-1, 2, shape)).astype(dtype)
    np.testing.assert_array_equal(uniform, at_once, strict=True)
    at_once = np.asarray(np.random.default_rng(5).normal(1, 2, shape)).astype(dtype)
    np.testing.assert_array_equal(normal, at_once, strict=True)
