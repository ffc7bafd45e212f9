"""`discreet demo --serve`: the Adult data and three users."""

from __future__ import annotations

from discreet.apps.server.app import build
from discreet.apps.server.demo import prepare
from tests.server.conftest import TestClient


def test_the_demo_serves_the_adult_data_to_three_users(tmp_path):
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "curator.ledger").write_text("of an earlier demo")  # is replaced
    started = prepare(tmp_path / "demo")
    tokens = {user: text for user, _, text in started.tokens}
    assert set(tokens) == {"sam", "ann", "eve"}
    with TestClient(build(started.curator)) as client:
        headers = {"Authorization": f"Bearer {tokens['ann']}"}
        body = {"sql": "SELECT COUNT(*) AS n FROM people", "epsilon": 0.2}
        answer = client.post("/v1/datasets/people/ask", json=body, headers=headers).json()
        # The train part has 32,561 people. Laplace noise of scale 5: P(|noise| > 100) = e^(−20) < 3e-9.
        assert abs(answer["rows"][0][0] - 32_561) < 100
    started.curator.close()
