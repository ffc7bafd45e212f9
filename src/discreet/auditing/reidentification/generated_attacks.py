"""Two famous attacks, on generated tables of about the real sizes: the governor's record, and film ratings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.auditing.reidentification.demonstration import Demonstration, balanced, cells_of, generator, noisy_guesses

Integers = NDArray[np.int64]

# Voters of Cambridge, Massachusetts, in the 1990s, and its ZIP codes (Sweeney 1997 found the governor among them).
_VOTERS, _ZIP_CODES, _DAYS_OF_BIRTH = 54_805, 5, 365 * 70
# Fewer people than the 480,000 of the Netflix data, with as many ratings each as a typical user there.
_USERS, _FILMS, _RATINGS_EACH, _DAYS = 20_000, 5_000, 100, 2_000
_ATTACKED, _MOST_KNOWN = 200, 8
# The attacker knows dates to two weeks and scores to one star (Narayanan & Shmatikov 2008).
_DAYS_OFF, _STARS_OFF = 14, 1
# Films are watched like their rank to this power.
_POPULARITY = 0.8
_PEOPLE = 2_000


def governor() -> Demonstration:
    """Birth date, sex and ZIP code, joined to the list of voters."""
    draw = generator("governor")
    born = draw.integers(0, _DAYS_OF_BIRTH, _VOTERS)
    sex = draw.integers(0, 2, _VOTERS)
    weights = np.array([0.3, 0.25, 0.2, 0.15, 0.1])
    zip_code = draw.choice(_ZIP_CODES, _VOTERS, p=weights)
    secret = draw.random(_VOTERS) < 0.3  # a diagnosis
    curve = []
    for label, columns in (
        ("sex and ZIP code", (sex, zip_code)),
        ("birth year too", (sex, zip_code, born // 365)),
        ("birth date, sex, ZIP code", (sex, zip_code, born)),
    ):
        cells = cells_of(*columns)
        unique = np.bincount(cells)[cells] == 1
        curve.append((label, float(unique.mean())))
    return Demonstration(
        "The governor's record",
        f"Hospital records without names have birth date, sex and ZIP code. So does the public list of {_VOTERS:,} "
        "voters, with names. In 1997 this found the governor's own record.",
        "of voters with a record, the diagnosis is guessed right",
        float(unique.mean()) + 0.5 * float(1 - unique.mean()),
        noisy_guesses(cells, secret, balanced(np.arange(_VOTERS), secret, _PEOPLE, "governor's guess")),
        0.5,
        curve=tuple(curve),
    )


def ratings() -> Demonstration:
    """A few approximate ratings single a person out of a sparse table."""
    draw = generator("ratings")
    popularity = np.arange(1, _FILMS + 1) ** -_POPULARITY
    film = draw.choice(_FILMS, (_USERS, _RATINGS_EACH), p=popularity / popularity.sum())
    day = draw.integers(0, _DAYS, (_USERS, _RATINGS_EACH))
    stars = draw.integers(1, 6, (_USERS, _RATINGS_EACH))
    by_film = _index(film)
    targets = draw.choice(_USERS, _ATTACKED, replace=False)
    singled_out = np.zeros(_MOST_KNOWN)
    for user in targets.tolist():
        known_ratings = draw.choice(_RATINGS_EACH, _MOST_KNOWN, replace=False)
        left: Integers | None = None
        for step, rating in enumerate(known_ratings.tolist()):
            about = film[user, rating], day[user, rating], stars[user, rating]
            matching = _matching(by_film, film, day, stars, about)
            left = matching if left is None else np.intersect1d(left, matching)
            singled_out[step] += len(left) == 1
    curve = tuple((f"{step + 1} ratings known", float(share)) for step, share in enumerate(singled_out / _ATTACKED))
    # With noise: the count of people who match a target's ratings, with the target and without.
    secret = draw.random(_USERS) < 0.5
    cells = np.arange(_USERS, dtype=np.int64)
    return Demonstration(
        "Film ratings",
        f"{_USERS:,} people rated films; names are removed. Someone knows a few films that a colleague watched, within "
        f"{_DAYS_OFF} days and {_STARS_OFF} star. The table is sparse, so almost nobody else matches, and all other "
        "ratings of the colleague are found.",
        f"of people, by {_MOST_KNOWN} approximate ratings, a secret rating is learned or guessed right",
        float(singled_out[-1] / _ATTACKED + 0.5 * (1 - singled_out[-1] / _ATTACKED)),
        noisy_guesses(cells, secret, balanced(cells, secret, _PEOPLE, "ratings' guess")),
        0.5,
        curve=curve,
    )


def _index(film: Integers) -> list[Integers]:
    """The places of each film's ratings, in the flattened table."""
    order = np.argsort(film.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(film.ravel(), minlength=_FILMS))
    return [np.asarray(group, dtype=np.int64) for group in np.split(order, ends[:-1])]


def _matching(
    by_film: list[Integers], film: Integers, day: Integers, stars: Integers, about: tuple[int, int, int]
) -> Integers:
    """Users with a rating of this film near this day and score."""
    ratings = by_film[int(about[0])]
    near = np.abs(day.ravel()[ratings] - about[1]) <= _DAYS_OFF
    alike = np.abs(stars.ravel()[ratings] - about[2]) <= _STARS_OFF
    return np.unique(ratings[near & alike] // film.shape[1])
