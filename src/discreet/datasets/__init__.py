"""The data that examples, demo and tests use: a small real dataset, a made-up hospital, and their public values."""

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
from discreet.datasets._hospital import DISTRICTS, WARDS, hospital, write_hospital

__all__ = [
    "CATEGORIES",
    "DISTRICTS",
    "EDUCATION",
    "INCOME",
    "MARITAL_STATUS",
    "NATIVE_COUNTRY",
    "OCCUPATION",
    "RACE",
    "RELATIONSHIP",
    "SEX",
    "WARDS",
    "WORKCLASS",
    "adult",
    "hospital",
    "write_adult",
    "write_hospital",
]
