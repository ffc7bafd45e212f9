"""Flower, imported by name when it is used, so that everything else works without it."""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from discreet.errors import MissingExtra

#: Flower's own logger, which shows progress in its format.
LOGGER = logging.getLogger("flwr")


def flower(module: str) -> Any:
    """A module of Flower, or one line that says what to install."""
    try:
        with warnings.catch_warnings():
            # Flower's command line imports names that its own dependencies call deprecated.
            warnings.simplefilter("ignore", DeprecationWarning)
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtra("federated training needs Flower: pip install 'discreet[federated]'") from error


def strategy_base() -> Any:
    """Flower's `Strategy`; `object` without Flower, so that the class can be documented."""
    try:
        return flower("flwr.serverapp.strategy").Strategy
    except MissingExtra:
        return object


@contextmanager
def quiet() -> Iterator[None]:
    """Drop Flower's log lines: those of a wrapped strategy speak of one reply, because it sees the noisy mean alone."""

    def dropped(record: logging.LogRecord) -> bool:
        return False

    LOGGER.addFilter(dropped)
    try:
        yield
    finally:
        LOGGER.removeFilter(dropped)
