"""The small real dataset that examples, demo and tests use, and its public data dictionary."""

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
