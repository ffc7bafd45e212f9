"""A chart shows each group of a result once, in the order of its keys, with its error."""

from __future__ import annotations

import pytest

import discreet as dp
from discreet.analytics import count, mean, median, top_k
from discreet.errors import InvalidArgument
from tests.analytics.plans import table

figures = pytest.importorskip("matplotlib.figure", reason="matplotlib is not installed (the docs extra has it)")


@pytest.fixture
def people(account):
    data = [("p", float(i % 9), i % 4, "abc"[i % 3], float(i % 2)) for i in range(300)]
    return dp.Private(table(data), account=account, bounds={"x": (0, 9)})


def axes():
    return figures.Figure().subplots()


def test_bars_stand_side_by_side_for_a_second_group_column(people):
    found = people.group_by("g", "k", keys={"g": ["c", "a"], "k": [0, 1]}).count().release(epsilon=5.0)
    drawn = found.plot(axes=axes())
    assert [label.get_text() for label in drawn.get_yticklabels()] == ["c", "a"]
    assert [text.get_text() for text in drawn.get_legend().get_texts()] == ["0", "1"]
    assert sorted(bar.get_width() for bar in drawn.patches) == sorted(found.columns["count"])


def test_a_histogram_has_a_bar_for_each_bin(people):
    found = people.histogram("x", edges=[0, 2, 4, 9]).release(epsilon=5.0)
    drawn = found.plot(axes=axes())
    assert [bar.get_x() for bar in drawn.patches] == [0, 2, 4]
    assert [bar.get_height() for bar in drawn.patches] == list(found.columns["count"])
    assert len(found.plot(axes=axes(), kind="bars").get_yticklabels()) == 3


def test_a_heat_map_writes_each_number_in_its_cell(people):
    found = people.marginal("g", "k", categories={"g": ["a", "b", "c"], "k": [1, 0]}).release(epsilon=5.0)
    drawn = found.plot(axes=axes(), kind="heatmap")
    assert len(drawn.texts) == 6
    assert f"{found.columns['count'][0]:,.4g}" in drawn.texts[0].get_text()
    assert "±" in drawn.texts[0].get_text()


def test_a_quantile_says_its_error_in_ranks(people):
    drawn = people.group_by("g", keys=["a", "b"]).median("x").release(epsilon=5.0).plot(axes=axes())
    assert "ranks" in drawn.get_xlabel()


def test_a_new_figure_is_made_where_none_is_given(people):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    for kind in ("bars", "heatmap", None):
        found = people.group_by("g", "k", keys={"g": ["a", "b"], "k": [0, 1]}).count().release(epsilon=5.0)
        assert found.plot(kind=kind).figure.get_size_inches()[0] > 3
        matplotlib.pyplot.close("all")


@pytest.mark.parametrize("kind", ["bars", "heatmap"])
def test_nothing_found_is_an_empty_picture(tmp_path, kind):
    account = dp.Ledger(tmp_path / "l").account("a", dp.ApproxDP(9.0, 1e-6), aside=5e-7)
    groups = dp.Private(table([]), account=account).group_by("g", "k", keys=dp.discover())
    assert not groups.count().release(epsilon=1.0, delta=1e-7).plot(axes=axes(), kind=kind).patches


def test_what_cannot_be_drawn_is_refused(people):
    found = people.group_by("g", keys=["a", "b"]).aggregate(
        n=count(), t=top_k("g", k=1, categories=["a"]), m=mean("x"), h=median("x")
    )
    result = found.release(epsilon=5.0)
    for column in ("t", "g", "n_error", "h_rank_error", "no"):
        with pytest.raises(InvalidArgument, match="column"):
            result.plot(column, axes())
    for kind in ("pie", "heatmap", "histogram"):
        with pytest.raises(InvalidArgument, match="kind"):
            result.plot(axes=axes(), kind=kind)
    with pytest.raises(InvalidArgument, match="number"):
        people.top_k("g", k=1, categories=["a"]).release(epsilon=5.0).plot(axes=axes())
