"""True values to compare prices with, in arithmetic of many digits. The caller sets the precision."""

import itertools

import mpmath as mp


def gaussian_delta(epsilon, mu):
    """δ(ε) of Gaussian noise with μ = Δ₂/σ. Φ by erfc keeps its digits where Φ is close to 1."""

    def phi(x):
        return mp.erfc(-x / mp.sqrt(2)) / 2

    epsilon, mu = mp.mpf(epsilon), mp.mpf(mu)
    return phi(mu / 2 - epsilon / mu) - mp.exp(epsilon) * phi(-mu / 2 - epsilon / mu)


def normals_delta(first, second, epsilon):
    """δ(ε) between two mixtures of N(m, 1) over integers m, each given as {m: weight}.

    P − e^ε Q is a polynomial in e^x times a positive function, so its sign changes at the logarithms of its roots.
    """
    growth, means = mp.exp(mp.mpf(epsilon)), sorted({*first, *second})
    excess = {m: first.get(m, mp.mpf(0)) - growth * second.get(m, mp.mpf(0)) for m in means}
    powers = range(means[-1], means[0] - 1, -1)
    roots = mp.polyroots([excess.get(m, mp.mpf(0)) * mp.exp(-mp.mpf(m * m) / 2) for m in powers], 200, 200)
    real = sorted(mp.log(mp.re(z)) for z in roots if abs(mp.im(z)) < mp.mpf(10) ** -20 and mp.re(z) > 0)
    ends = [-mp.inf, *real, mp.inf]
    total = mp.mpf(0)
    for start, end in itertools.pairwise(ends):
        total += max(mp.fsum(c * (mp.ncdf(end - m) - mp.ncdf(start - m)) for m, c in excess.items()), 0)
    return total


def sampled_gaussian_delta(rate, mu, factor):
    """H_y of (1−q)N(0, 1) + qN(μ, 1) against N(0, 1) at any y > 0."""
    inside = 1 + (factor - 1) / rate
    if inside <= 0:
        return 1 - factor
    start = mp.log(inside) / mu + mu / 2
    return (1 - rate - factor) * mp.ncdf(-start) + rate * mp.ncdf(mu - start)


def two_sampled_gaussians(rate, mu, epsilon):
    """δ(ε) of two such steps, with a unit removed or added, whichever is larger: an integral over the first."""
    with mp.workdps(20):
        q, m, growth = mp.mpf(rate), mp.mpf(mu), mp.exp(mp.mpf(epsilon))

        def ratio(x):
            return 1 - q + q * mp.exp(m * x - m * m / 2)

        def added(factor):
            # H_y(Q, P) = 1 − y + y·H_{1/y}(P, Q)
            return 1 - factor + factor * sampled_gaussian_delta(q, m, 1 / factor)

        nodes = [-12, -4, -1, 0, 1, 2, 4, 8, 14]
        removing = mp.quad(lambda x: mp.npdf(x) * ratio(x) * sampled_gaussian_delta(q, m, growth / ratio(x)), nodes)
        adding = mp.quad(lambda x: mp.npdf(x) * added(growth * ratio(x)), nodes)
        return max(removing, adding)
