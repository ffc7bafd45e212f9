"""The steward's tutorial: its configuration starts, and its questions go through as it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from discreet import datasets
from discreet.apps.server.config import read_config
from tests.server.conftest import make_world

DOCS = Path(__file__).parent.parent.parent / "docs"


def _toml(page: str) -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[0]


def test_the_complete_file_names_every_limit_with_its_default():
    config = read_config("curator.toml", _toml("how-to/server.md"))
    assert config.limits == type(config.limits)()
    assert {user.role.value for user in config.users} == {"steward", "analyst", "auditor"}


@pytest.mark.slow
def test_the_tutorial_of_a_steward_goes_as_it_says(tmp_path):
    datasets.write_hospital(tmp_path / "clinic")
    wards = {"ward": list(datasets.WARDS)}
    sql = "SELECT ward, COUNT(*) AS visits, AVG(cost) AS cost FROM visits GROUP BY ward"
    body = {"sql": sql, "keys": wards, "epsilon": 0.25}
    ask = "/v1/datasets/visits/ask"
    for world in make_world(tmp_path, _toml("tutorials/steward.md")):
        for call in ("preview", "try", "ask"):
            response = world.call("ann", "POST", f"/v1/datasets/visits/{call}", body)
            assert response.status_code == 200, response.text
        assert len(response.json()["rows"]) > 1
        large = {**body, "epsilon": 0.4}
        refused = world.call("ann", "POST", ask, large)
        assert refused.json()["error"]["code"] == "approval_needed"
        approval = refused.json()["error"]["approval"]
        assert world.call("sam", "POST", f"/v1/approvals/{approval}/approve").status_code == 200
        assert world.call("ann", "POST", ask, large).status_code == 200
        assert world.call("ann", "POST", ask, {**body, "epsilon": 0.6}).json()["error"]["code"] == "policy_refused"
        joined = "SELECT COUNT(*) AS n FROM visits JOIN patients USING (patient) WHERE born < 1960"
        response = world.call("bob", "POST", ask, {"sql": joined, "epsilon": 0.2})
        assert response.status_code == 200, response.text
        assert world.call("eve", "POST", "/v1/ledger/verify", {}).json()["ok"]
