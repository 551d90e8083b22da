"""Compiled loops for what NumPy needs many passes over memory for: `pip install 'paceline[fast]'`.

Each loop stands beside NumPy code that does the same, and gives the same numbers to the bit: it has
the same arithmetic in the same order, only in one pass. (Where it stands for a matrix product, its
sums are in another order than BLAS's, which itself has one for each processor.) So it does not
matter to a job that one of its workers has numba and another has not, nor to a run that goes on
elsewhere.

NumPy code asks `compiled_loop` for the loop and goes on by itself where there is none: numba is not
installed, an array is not NumPy's, or so small that NumPy's passes stay in the processor's cache.
Importing this imports no numba; the first loop that is found does.
"""

from .finding import Loop, compiled_from, compiled_loop, describe

__all__ = ["Loop", "compiled_from", "compiled_loop", "describe"]
