"""Execution times that are drawn from a distribution."""

import numpy as np

from clearway.walltime.distributions import Distribution, Floats


def sample(distribution: Distribution, size: int, seed: int) -> Floats:
    """``size`` execution times; the same seed draws the same."""
    return distribution.quantile(np.random.Generator(np.random.PCG64(seed)).random(size))
