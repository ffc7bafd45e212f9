"""The small real data that the examples, the demo and the tests use, and what is publicly known about it."""

from discreet.datasets._adult import (
    CATEGORIES,
    EDUCATION,
    INCOME,
    MARITAL_STATUS,
    NATIVE_COUNTRY,
    OCCUPATION,
    RACE,
    RELATIONSHIP,
    SEX,
    WORKCLASS,
    adult,
    write_adult,
)

__all__ = [
    "CATEGORIES",
    "EDUCATION",
    "INCOME",
    "MARITAL_STATUS",
    "NATIVE_COUNTRY",
    "OCCUPATION",
    "RACE",
    "RELATIONSHIP",
    "SEX",
    "WORKCLASS",
    "adult",
    "write_adult",
]
