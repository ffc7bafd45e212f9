"""Bits are fresh in loops, threads, forked children and copies."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from discreet.errors import InvalidArgument
from discreet.mechanisms.sampling.entropy import SYSTEM, SeededBits, SystemBits, bits


def test_small_reads_never_repeat_a_byte_string():
    drawn = [SYSTEM.read(16) for _ in range(5000)]
    assert len(set(drawn)) == 5000


def test_reads_have_the_asked_length_across_buffer_ends():
    for count in (0, 1, 7, 2047, 2048, 8191, 8192, 100_000):
        assert len(SYSTEM.read(count)) == count


def _child(queue):
    queue.put([SYSTEM.read(16) for _ in range(3)])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_children_and_their_parent_draw_different_bits():
    SYSTEM.read(16)  # the parent's buffer is full of bytes that a child must not use
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=_child, args=(queue,)) for _ in range(3)]
    for child in children:
        child.start()
    drawn = [value for _ in children for value in queue.get(timeout=600)]
    for child in children:
        child.join()
    drawn += [SYSTEM.read(16) for _ in range(3)]
    assert len(set(drawn)) == 12


def test_a_fork_that_python_was_not_told_about_empties_the_buffer(monkeypatch):
    source = SystemBits()
    source.read(16)
    left = source._buffer
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert source.read(16) != left[:16]


def test_threads_draw_different_bits():
    with ThreadPoolExecutor(8) as pool:
        drawn = list(pool.map(lambda _: SYSTEM.read(16), range(4000)))
    assert len(set(drawn)) == 4000


def test_copies_and_pickles_are_the_one_source():
    assert pickle.loads(pickle.dumps(SYSTEM)) is SYSTEM
    assert copy.deepcopy(SYSTEM) is SYSTEM


def test_seeded_bits_repeat_and_are_marked():
    assert SeededBits(5).read(32) == SeededBits(5).read(32)
    assert not SeededBits(5).secure
    assert bits() is SYSTEM
    assert SYSTEM.secure


@pytest.mark.parametrize("seed", [-1, 1.5, "a", True])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(InvalidArgument, match="insecure_seed must"):
        SeededBits(seed)


def test_integers_have_the_asked_width():
    assert SYSTEM.integer(0) == 0
    assert max(SYSTEM.integer(3) for _ in range(500)) == 7
    assert SYSTEM.integer(1000) < 1 << 1000
