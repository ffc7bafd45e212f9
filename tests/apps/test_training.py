"""`discreet train` and `discreet check`: public facts in, private outputs out, and clear errors."""

from __future__ import annotations

import gzip
import json
import struct

import numpy as np
import pytest

import discreet as dp
from discreet.apps.training import read_config
from discreet.apps.training.config import Images
from discreet.apps.training.data import encode, load_images
from discreet.errors import InvalidArgument
from tests.apps.conftest import CONFIG, Run
from tests.apps.test_commands import INIT


def test_a_training_is_charged_and_leaves_model_statement_and_report(run: Run, folder):
    run(INIT)
    done = run("discreet train config.toml")
    assert done.code == 0, done.err
    assert "(1, 1e-06)-DP" in done.out
    assert {path.name for path in (folder / "model").iterdir()} == {"model.pt", "report.html", "statement.json"}
    with dp.Ledger("census.ledger") as ledger:
        lines = ledger.account("census").statement().lines
        assert [line.purpose for line in lines if line.kind != "close"] == [
            "a small model",
            "accuracy on held-out people",
        ]
        written = json.loads((folder / "model" / "statement.json").read_text())
        assert written["statement"] == json.loads(ledger.account("census").statement().to_json())


def test_a_training_that_does_not_fit_is_refused_before_anything_is_written(run: Run, folder):
    run("discreet ledger init census.ledger --account census --epsilon 0.1 --delta 1e-6")
    done = run("discreet train config.toml")
    assert done.code == 3
    assert not list((folder / "model").iterdir())


def test_a_model_that_was_paid_for_is_kept_even_if_its_evaluation_does_not_fit(run: Run, folder):
    run(INIT)
    (folder / "config.toml").write_text(CONFIG.replace("epsilon = 0.5", "epsilon = 50.0"))
    done = run("discreet train config.toml")
    assert done.code == 3, done
    assert "the model is trained, charged and saved in" in done.err
    assert (folder / "model" / "model.pt").stat().st_size > 0


BROKEN = {
    "a misspelt key": ("batch_size = 40", "batchsize = 40"),
    "an unknown key": ("epochs = 1", "epochs = 1\ncolor = 3"),
    "an unknown table": ("[model]", "[modell]"),
    "no label": ('label = "sex"', ""),
    "a label that is a feature": ('label = "sex"', 'label = "age"'),
    "a column that is not there": ("age = [0, 120]", "wage = [0, 120]"),
    "bounds the wrong way round": ("age = [0, 120]", "age = [120, 0]"),
    "categories of another kind": ("age = [0, 120]", 'age = ["20", "30"]'),
    "classes of another kind": ('classes = ["Female", "Male"]', "classes = [0, 1]"),
    "one category": ("age = [0, 120]", 'age = ["x"]'),
    "an unknown model": ('kind = "logistic"', 'kind = "forest"'),
    "a cnn for a table": ('kind = "logistic"', 'kind = "cnn"'),
    "no epsilon": ("epsilon = 1.0\ndelta", "delta"),
    "a negative epsilon": ("epsilon = 1.0\ndelta", "epsilon = -1.0\ndelta"),
    "a text for a number": ("examples = 400", 'examples = "many"'),
    "a batch larger than the data": ("batch_size = 40", "batch_size = 4000"),
    "no such file": ('file = "people.parquet"\nlabel', 'file = "nobody.parquet"\nlabel'),
    "no such ledger": ('file = "census.ledger"', 'file = "nowhere.ledger"'),
    "no such account": ('account = "census"', 'account = "nobody"'),
    "an unknown sampling": ("epochs = 1", 'epochs = 1\nsampling = "luck"'),
}


@pytest.mark.parametrize("why", BROKEN)
def test_a_wrong_configuration_is_one_clear_line_and_charges_nothing(why, run: Run, folder):
    run(INIT)
    old, new = BROKEN[why]
    assert old in CONFIG
    (folder / "config.toml").write_text(CONFIG.replace(old, new, 1))
    done = run("discreet train config.toml")
    assert done.code == 2, done
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    with dp.Ledger("census.ledger") as ledger:
        assert ledger.account("census").statement().lines == ()


@pytest.mark.slow
def test_bounds_of_a_date_are_refused_and_numbers_written_as_text_are_not(run: Run, folder):
    run(INIT)
    rows = "".join(f"1950-02-03,{n % 90 if n else 'unknown'},{'FM'[n % 2]}\n" for n in range(200))
    (folder / "stays.csv").write_text("day,age,sex\n" + rows)
    text = (folder / "config.toml").read_text().partition("[evaluate]")[0]
    text = text.replace("people.parquet", "stays.csv").replace('["Female", "Male"]', '["F", "M"]')
    text = text.replace("hours = [0, 100]\n", "") + '[output]\nfolder = "model"\n' * ("[output]" not in text)
    (folder / "text.toml").write_text(text)
    (folder / "dates.toml").write_text(text.replace("age = [0, 120]", "day = [0, 120]"))
    refused = run("discreet train dates.toml")
    assert refused.code == 2
    assert "day must be a column of numbers, got one of type date" in refused.err
    done = run("discreet train text.toml")
    assert done.code == 0, done.err


def test_an_account_for_persons_is_not_trained_as_if_for_rows(run: Run):
    run("discreet ledger init census.ledger --account census --epsilon 3 --delta 1e-6 --unit person_id --max-rows 2")
    assert run("discreet train config.toml").code == 2


def test_a_row_is_encoded_by_itself():
    """Changing one row changes only that row of the result. Strange values become zeros."""
    facts = {"age": (0.0, 100.0), "sex": ("f", "m")}
    columns = {
        "age": np.array([10, None, float("nan"), float("inf"), 1e308, "x"], dtype=object),
        "sex": np.array(["f", "m", None, 3, "F", ["list"]], dtype=object),
        "y": np.array([0, 1, 1, 0, 1, 0], dtype=object),
    }
    inputs, labels = encode(columns, facts, "y", (0, 1))
    assert np.isfinite(inputs).all()
    assert np.abs(inputs).max() <= 1
    assert labels.tolist() == [0, 1, 1, 0, 1, 0]
    for row in range(6):
        kept = [other for other in range(6) if other != row]
        without, _ = encode({name: column[kept] for name, column in columns.items()}, facts, "y", (0, 1))
        assert np.array_equal(without, inputs[kept])


def idx(path, array, *, packed=False):
    content = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content) if packed else content)


def test_idx_images_are_read_packed_or_not(tmp_path):
    pixels = np.arange(2 * 16 * 16, dtype=np.uint8).reshape(2, 16, 16)
    idx(tmp_path / "images.gz", pixels, packed=True)
    idx(tmp_path / "labels", np.array([3, 9], dtype=np.uint8))
    images, labels = load_images(Images(tmp_path / "images.gz", tmp_path / "labels", 10))
    assert images.shape == (2, 1, 16, 16)
    assert images.min() == -1.0
    assert labels.tolist() == [3, 9]


@pytest.mark.parametrize("content", [b"", b"\x00\x00\x08\x03", b"\x00\x00\x08\x01\x00\x00\x00\x09ab", b"\x1f\x8bxx"])
def test_a_file_that_is_no_idx_file_is_refused(tmp_path, content):
    (tmp_path / "images").write_bytes(content)
    idx(tmp_path / "labels", np.array([3], dtype=np.uint8))
    with pytest.raises(InvalidArgument):
        load_images(Images(tmp_path / "images", tmp_path / "labels", 10))


@pytest.mark.slow
def test_images_train_too(run: Run, folder):
    run(INIT)
    rows = np.random.default_rng(0).integers(0, 255, (40, 16, 16), dtype=np.uint8)
    idx(folder / "images", rows)
    idx(folder / "labels", np.arange(40, dtype=np.uint8) % 2)
    data = CONFIG[CONFIG.index("[data]") : CONFIG.index("[model]")]
    text = CONFIG.replace(data, '[data]\nimages = "images"\nlabels = "labels"\nclasses = 2\n')
    text = text.replace('kind = "logistic"', 'kind = "cnn"').replace("examples = 400", "examples = 40")
    text = text.replace("batch_size = 40", "batch_size = 4")
    text = text.replace('file = "people.parquet"\nepsilon', 'images = "images"\nlabels = "labels"\nepsilon')
    (folder / "config.toml").write_text(text)
    done = run("discreet train config.toml --json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["steps"] == 10


def test_relative_paths_start_where_the_configuration_lies(tmp_path):
    found = read_config(tmp_path / "config.toml", CONFIG)
    assert found.data.file == tmp_path / "people.parquet"
    assert found.folder == tmp_path / "model"


# --- check --------------------------------------------------------------------------------------------------------


def test_a_model_that_mixes_examples_is_found_with_its_remedy(run: Run):
    done = run("discreet check model.py:mixes --json")
    assert done.code == 1
    found = json.loads(done.out)
    assert found["trainable"] is False
    assert "BatchNorm" in found["findings"][0]["problem"]
    assert "GroupNorm" in found["findings"][0]["remedy"]


def test_what_only_shows_when_the_model_runs_is_found_too(run: Run, folder):
    """A mean over the batch in the forward pass, which no module shows."""
    code = """
from torch import nn


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x - x.mean(0))


def build():
    return Mixed()
"""
    (folder / "mixed.py").write_text(code)
    assert run("discreet check mixed.py:build").code == 0  # its modules look fine
    done = run("discreet check mixed.py:build --shape 4 --classes 2 --json")
    assert done.code == 1
    assert json.loads(done.out)["trainable"] is False


def test_a_good_model_is_tried_on_noise(run: Run):
    found = json.loads(run("discreet check model.py:build --shape 1,28,28 --json").out)
    assert found["trainable"] is True
    assert any("convolution" in line for line in found["coverage"])
