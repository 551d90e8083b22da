"""The error function of an array, by rational functions."""

from __future__ import annotations

import numpy as np

from .numerics import narrowed, widened
from .tensor_like import Array

# W. J. Cody, Rational Chebyshev Approximations for the Error Function, Math. Comp. 23 (1969), with
# the coefficients of his CALERF; numerator and denominator, highest power first. The first pair
# gives erf(x) / x from x^2 for |x| <= 0.46875, the second erfc(x) exp(x^2) from x up to 4, and well
# enough up to 6, where erfc(x) is too small to matter beside 1.
_SMALL = (
    (
        1.85777706184603153e-1,
        3.16112374387056560,
        1.13864154151050156e2,
        3.77485237685302021e2,
        3.20937758913846947e3,
    ),
    (
        1.0,
        2.36012909523441209e1,
        2.44024637934444173e2,
        1.28261652607737228e3,
        2.84423683343917062e3,
    ),
)
_LARGE = (
    (
        2.15311535474403846e-8,
        5.64188496988670089e-1,
        8.88314979438837594,
        6.61191906371416295e1,
        2.98635138197400131e2,
        8.81952221241769090e2,
        1.71204761263407058e3,
        2.05107837782607147e3,
        1.23033935479799725e3,
    ),
    (
        1.0,
        1.57449261107098347e1,
        1.17693950891312499e2,
        5.37181101862009858e2,
        1.62138957456669019e3,
        3.29079923573345963e3,
        4.36261909014324716e3,
        3.43936767414372164e3,
        1.23033935480374942e3,
    ),
)

# erf(x) / x from x^2 for |x| <= 3.95, to 2e-8: a minimax fit of ours, for float32 and below.
_SINGLE = (
    (
        2.0259326338e-6,
        2.8468653679e-4,
        3.8080759852e-3,
        5.2875180002e-2,
        1.9154821210e-1,
        1.1283791438,
    ),
    (3.7831996530e-5, 1.1707064917e-3, 1.5054916057e-2, 1.1455876657e-1, 5.0308785906e-1, 1.0),
)


def erf(x: Array) -> Array:
    """The error function: to 2e-15 in float64, to 4e-7 in float32."""
    if x.dtype != np.float64:
        near = np.clip(widened(x), -3.95, 3.95)
        return narrowed(np.clip(near * _ratio(*_SINGLE, near * near), -1, 1), x)
    size = np.minimum(np.absolute(x), 6.0)
    square = size * size
    tail = 1 - np.exp(-square) * _ratio(*_LARGE, size)
    return np.where(size <= 0.46875, x * _ratio(*_SMALL, square), np.copysign(tail, x))


def _ratio(numerator: tuple[float, ...], denominator: tuple[float, ...], x: Array) -> Array:
    value = _polynomial(numerator, x)
    value /= _polynomial(denominator, x)
    return value


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    """Horner's rule, in place."""
    value = coefficients[0] * x
    for coefficient in coefficients[1:-1]:
        value += coefficient
        value *= x
    value += coefficients[-1]
    return value
