"""Sign-in through an identity provider: the provider's own tokens open the door, and nothing that looks like one."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from discreet.apps.server import oidc
from discreet.apps.server.oidc import Provider
from discreet.errors import InvalidArgument
from tests.server.conftest import CONFIG, World, make_world

ISSUER, AUDIENCE = "https://login.hospital.example", "curator"


class Local:
    """An identity provider of our own: a key pair, its public half as JWKS, and tokens signed with it."""

    def __init__(self) -> None:
        self.private = ec.generate_private_key(ec.SECP256R1())

    def jwks(self, name: str = "one") -> str:
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.private.public_key()))
        return json.dumps({"keys": [{**public, "kid": name, "use": "sig", "alg": "ES256"}]})

    def token(self, user: str, *, kid: str | None = "one", algorithm: str = "ES256", key=None, **claims) -> str:
        now = int(time.time())
        whole = {"iss": ISSUER, "aud": AUDIENCE, "sub": user, "iat": now, "exp": now + 60, **claims}
        present = {name: value for name, value in whole.items() if value is not None}
        return jwt.encode(present, key or self.private, algorithm=algorithm, headers={"kid": kid} if kid else {})


@pytest.fixture
def provider() -> Local:
    return Local()


@pytest.fixture
def world(tmp_path: Path, provider: Local) -> Iterator[World]:
    (tmp_path / "keys.json").write_text(provider.jwks())
    oidc_section = f'[oidc]\nissuer = "{ISSUER}"\naudience = "{AUDIENCE}"\nkeys = "keys.json"\n'
    yield from make_world(tmp_path, CONFIG + oidc_section)


def test_a_known_user_signs_in_and_asks_within_their_part(world, provider):
    token = provider.token("ann")
    me = world.call(token, "GET", "/v1/me")
    assert me.json()["user"] == "ann"
    assert me.json()["role"] == "analyst"
    asked = world.ask(token)
    assert asked.status_code == 200, asked.text
    assert world.curator.ledger.account("census/ann").history()[-1].user == "ann"
    assert world.call("ann", "GET", "/v1/me").status_code == 200  # the ledger's own tokens work as before


def test_what_the_provider_did_not_sign_for_us_is_refused(world, provider):
    now = int(time.time())
    stranger = Local()
    good = provider.token("ann")
    head, body, signature = good.split(".")
    unsigned = base64.urlsafe_b64encode(b'{"alg":"none","kid":"one"}').decode().rstrip("=")
    public = json.loads(provider.jwks())["keys"][0]
    bad = {
        "another key": stranger.token("ann"),
        "an unknown key": provider.token("ann", kid="two"),
        "no key": provider.token("ann", kid=None),
        "no signature": f"{unsigned}.{body}.",
        "another body": f"{head}.{stranger.token('sam').split('.')[1]}.{signature}",
        "a secret that is public": provider.token("sam", algorithm="HS256", key=(json.dumps(public) + "x" * 32)),
        "a key of another kind": provider.token("ann", algorithm="RS256", key=rsa.generate_private_key(65537, 2048)),
        "expired": provider.token("ann", exp=now - 3600),
        "no end": provider.token("ann", exp=None),
        "not yet": provider.token("ann", nbf=now + 3600),
        "another issuer": provider.token("ann", iss="https://evil.example"),
        "another audience": provider.token("ann", aud="payroll"),
        "no audience": provider.token("ann", aud=None),
        "an unknown user": provider.token("mallory"),
        "no user": provider.token("ann", sub=""),
        "nonsense": "a.b.c",
    }
    answers = {why: world.call(token, "GET", "/v1/me") for why, token in bad.items()}
    assert {why: answer.status_code for why, answer in answers.items()} == dict.fromkeys(bad, 401)
    assert len({answer.text for answer in answers.values()}) == 1
    reasons = {refusal.reason for refusal in world.curator.access.refusals()}
    assert len(reasons) > 3  # the steward sees why
    assert world.spent("census/ann") == 0


def test_a_user_who_is_disabled_here_is_refused_whatever_the_provider_says(world, provider):
    world.curator.access.disable_user("ann")
    assert world.call(provider.token("ann"), "GET", "/v1/me").status_code == 401


def test_the_role_is_the_stewards_word_not_the_providers(world, provider):
    token = provider.token("ann", role="steward", scope="manage approve", groups=["stewards"])
    assert world.call(token, "GET", "/v1/users").status_code == 403


def test_a_new_key_is_found_and_strangers_cannot_make_the_server_fetch_again_and_again(
    world, provider, tmp_path, monkeypatch
):
    fetched = []
    original = oidc._fetched
    monkeypatch.setattr(oidc, "_fetched", lambda place: fetched.append(place) or original(place))
    assert world.call(provider.token("ann"), "GET", "/v1/me").status_code == 200
    (tmp_path / "keys.json").write_text(provider.jwks("two"))
    for _ in range(20):
        assert world.call(provider.token("ann", kid="two"), "GET", "/v1/me").status_code == 401
    assert len(fetched) == 1
    monkeypatch.setattr(oidc, "_AT_THE_EARLIEST", -1.0)
    assert world.call(provider.token("ann", kid="two"), "GET", "/v1/me").status_code == 200


def test_a_broken_key_of_the_provider_locks_nobody_out(world, provider, tmp_path):
    listed = json.loads(provider.jwks())["keys"]
    broken = [{"kty": "EC", "crv": "P-999", "kid": "x"}, {"kty": "RSA", "kid": "y"}, {"kty": "OKP", "x": 5, "kid": "z"}]
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [*broken, *listed]}))
    assert world.call(provider.token("ann"), "GET", "/v1/me").status_code == 200


def test_an_address_counts_only_if_the_provider_checked_it(world, provider):
    sign_in = oidc.SignIn(
        world.curator.access, Provider(ISSUER, AUDIENCE, str(world.folder / "keys.json"), claim="email")
    )
    assert sign_in(provider.token("x", email="ann", email_verified=True)).user == "ann"
    for claims in ({"email": "ann"}, {"email": "ann", "email_verified": "true"}, {}):
        with pytest.raises(oidc.AccessDenied):
            sign_in(provider.token("x", **claims))


def test_keys_come_over_a_safe_way_or_from_a_file():
    with pytest.raises(InvalidArgument, match="https"):
        Provider(ISSUER, AUDIENCE, "http://login.example/keys")
    with pytest.raises(InvalidArgument):
        Provider("", AUDIENCE, "keys.json")
