"""True values to compare prices with, in arithmetic of many digits. The caller sets the precision."""

import mpmath as mp


def gaussian_delta(epsilon, mu):
    """δ(ε) of Gaussian noise with μ = Δ₂/σ. Φ by erfc keeps its digits where Φ is close to 1."""

    def phi(x):
        return mp.erfc(-x / mp.sqrt(2)) / 2

    epsilon, mu = mp.mpf(epsilon), mp.mpf(mu)
    return phi(mu / 2 - epsilon / mu) - mp.exp(epsilon) * phi(-mu / 2 - epsilon / mu)
