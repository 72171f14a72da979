"""How far a single execution lies from its plane."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class LognormalResidual:
    """A factor on the plane's seconds, of mean one: the spread grows with the time, and so with the lengths.

    The paper's figure 2a shows such growing bands; the lognormal form is a project decision.
    """

    relative_sd: float
    """Standard deviation of the factor; 0 makes every execution lie on the plane."""

    def factor(self, standard_normal: NDArray[np.float64]) -> NDArray[np.float64]:
        """One factor per standard normal number; same shape, positive."""
        sigma2 = np.log1p(self.relative_sd**2)
        factor: NDArray[np.float64] = np.exp(np.sqrt(sigma2) * standard_normal - 0.5 * sigma2)
        return factor
