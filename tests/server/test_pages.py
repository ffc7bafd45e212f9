"""The pages: what each role sees and does, and that strangers, other sites' forms and scripts do nothing."""

from __future__ import annotations

import re
import stat

import pytest

from discreet.apps.server.pages.facts import grouped_keys
from discreet.ledger.access import Policy
from tests.server.conftest import World, make_world

SQL = "SELECT sex, COUNT(*) AS n, AVG(hours) AS h FROM people GROUP BY sex"


class Visitor:
    """Somebody with a browser: cookies, and the hidden value of the last page's forms."""

    def __init__(self, world: World, user: str | None = None) -> None:
        self.world = world
        self.cookies: dict[str, str] = {}
        if user is not None:
            answer = self.send("POST", "/login", {"token": world.tokens[user]})
            assert answer.status_code == 303, answer.text
            self.set_cookie = answer.headers["set-cookie"]
            self.cookies["discreet"] = re.match(r"discreet=([^;]+)", self.set_cookie)[1]

    def send(self, method: str, path: str, form: dict[str, str] | None = None, **headers: str):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookies:
            named["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        self.world.client.cookies.clear()
        return self.world.client.request(method, path, data=form, headers=named, follow_redirects=False)

    def get(self, path: str = "/"):
        return self.send("GET", path)

    def form_value(self) -> str:
        return re.search(r'name="form" value="([0-9a-f]{64})"', self.get("/").text)[1]

    def post(self, path: str, **fields: str):
        return self.send("POST", path, {"form": self.form_value(), **fields})

    def ask(self, step: str, sql: str = SQL, epsilon: str = "0.2", **fields: str):
        return self.post("/ask", step=step, dataset="people", sql=sql, epsilon=epsilon, delta="", **fields)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    yield from make_world(tmp_path_factory.mktemp("pages"))


# --- signing in


def test_a_stranger_is_sent_to_the_door(shared):
    stranger = Visitor(shared)
    for path in ("/", "/audit", "/account?name=census", "/audit.jsonl"):
        answer = stranger.get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login"), path
    assert stranger.send("POST", "/login", {"token": "dsc_nonsense"}).status_code == 401
    assert "token is not valid" in stranger.send("POST", "/login", {"token": ""}).text


def test_the_cookie_is_no_token_and_no_script_or_other_site_gets_it(shared):
    visitor = Visitor(shared, "ann")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in visitor.set_cookie.split(";")}
    secret = shared.tokens["ann"].split("_", 2)[2]
    assert secret not in visitor.set_cookie
    assert stat.S_IMODE((shared.folder / "session.key").stat().st_mode) == 0o600


def test_a_cookie_that_was_changed_opens_nothing(shared):
    ann, sam = Visitor(shared, "ann"), Visitor(shared, "sam")
    name, ends, mac = ann.cookies["discreet"].split(".")
    other = sam.cookies["discreet"].split(".")
    for cookie in (
        f"{other[0]}.{ends}.{mac}",
        f"{name}.{int(ends) + 1}.{mac}",
        f"{name}.{ends}.{'0' * 64}",
        f"{name}.{ends}",
        f"{name}.{ends}.é",
        "...",
        "",
    ):
        ann.cookies["discreet"] = cookie.encode("ascii", "replace").decode()
        assert ann.get("/").status_code == 303, cookie


def test_a_revoked_token_ends_its_sessions(tmp_path):
    for world in make_world(tmp_path):
        ann = Visitor(world, "ann")
        assert ann.get().status_code == 200
        world.curator.access.revoke(world.curator.access.authenticate(world.tokens["ann"]).token_id)
        assert ann.get().status_code == 303
        assert ann.send("POST", "/ask", {"step": "preview"}).status_code == 303


def test_every_page_has_the_headers_that_stop_scripts_and_frames(shared):
    for answer in (Visitor(shared).get("/login"), Visitor(shared, "ann").get(), Visitor(shared, "sam").get()):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src" not in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["cache-control"] == "no-store"
        assert "<script" not in answer.text
        assert " style=" not in answer.text
        assert not re.search(r'(src|href)="(https?:)?//', answer.text)  # nothing from elsewhere


# --- forms


POSTS = ["/ask", "/verify", "/decide", "/freeze", "/revoke", "/disable", "/users", "/issue", "/allot"]


@pytest.mark.parametrize("path", POSTS)
def test_a_form_of_another_site_does_nothing(shared, path):
    user = "ann" if path == "/ask" else "sam"
    visitor = Visitor(shared, user)
    before = shared.curator.access.changes()
    fields = {"user": "eve", "role": "steward", "days": "1", "account": "census", "frozen": "yes", "step": "ask"}
    fields |= {"dataset": "people", "sql": SQL, "epsilon": "0.1", "id": "x", "decision": "approve"}
    for form, headers in (
        (fields, {}),
        ({**fields, "form": "0" * 64}, {}),
        ({**fields, "form": Visitor(shared, "bob").form_value()}, {}),
        ({**fields, "form": visitor.form_value()}, {"Origin": "https://evil.example"}),
        ({**fields, "form": visitor.form_value()}, {"Origin": "null"}),
    ):
        assert visitor.send("POST", path, form, **headers).status_code == 403
    assert shared.curator.access.changes() == before
    assert shared.spent("census") == 0


def test_forms_that_are_no_forms_are_refused(shared):
    visitor = Visitor(shared, "sam")
    cookie = {"Cookie": f"discreet={visitor.cookies['discreet']}"}
    send = shared.client.request
    assert send("POST", "/users", json={"user": "x"}, headers=cookie).status_code == 415
    many = "&".join(f"a{number}=1" for number in range(100))
    typed = {**cookie, "Content-Type": "application/x-www-form-urlencoded"}
    assert send("POST", "/users", content=many, headers=typed).status_code == 400
    assert send("POST", "/users", content=b"\xff\xfe=1", headers=typed).status_code == 400
    huge = "user=" + "x" * (shared.config.limits.request_bytes + 1)
    assert send("POST", "/users", content=huge, headers=typed).status_code == 413


@pytest.mark.parametrize(
    ("user", "path"), [("ann", path) for path in POSTS[1:]] + [("eve", path) for path in POSTS[2:]]
)
def test_a_role_that_may_not_is_refused_and_logged(shared, user, path):
    visitor = Visitor(shared, user)
    before = shared.curator.access.changes()
    assert visitor.post(path, user="x", role="steward", account="census").status_code == 403
    assert shared.curator.access.changes() == before
    assert shared.curator.access.refusals(1)[0].user == user


def test_an_auditor_sees_no_box_and_cannot_preview(shared):
    eve = Visitor(shared, "eve")
    assert 'name="sql"' not in eve.get().text
    assert eve.ask("preview").status_code == 403
    assert Visitor(shared, "ann").get("/audit").status_code == 403
    assert Visitor(shared, "ann").get("/account?name=census/bob").status_code == 403


# --- asking


@pytest.fixture
def world(tmp_path):
    yield from make_world(tmp_path)


def test_a_preview_comes_before_the_button_and_costs_nothing(world):
    ann = Visitor(world, "ann")
    page = ann.ask("preview", purpose="hours by sex")
    assert page.status_code == 200
    assert "What this would cost" in page.text
    assert "Ask, and spend" in page.text
    assert "expected error" in page.text
    assert world.spent("census") == 0
    tried = ann.ask("try")
    assert "dummy data" in tried.text
    assert world.spent("census") == 0


def test_the_button_asks_once_however_often_it_is_pressed(world):
    ann = Visitor(world, "ann")
    key = re.search(r'name="key" value="([0-9a-f]{32})"', ann.ask("preview").text)[1]
    first, again = ann.ask("ask", key=key), ann.ask("ask", key=key)
    assert first.status_code == again.status_code == 200
    assert "<svg" in first.text
    assert "interval" in first.text
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", first.text)
    assert cells == re.findall(r"<td[^>]*>([^<]*)</td>", again.text)
    assert "charged once" in again.text
    assert world.spent("census/ann") == 1
    assert world.curator.ledger.account("census/ann").history()[-1].user == "ann"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"epsilon": "9"}, "does not fit"),
        ({"epsilon": "nan"}, "must be a number"),
        ({"epsilon": ""}, "epsilon"),
        ({"epsilon": "-1"}, "epsilon"),
        ({"sql": "DROP TABLE people"}, "cannot be asked"),
        ({"sql": "SELECT * FROM people"}, "cannot be asked"),
        ({"sql": "SELECT COUNT(*) FROM read_csv('/etc/passwd')"}, "cannot be asked"),
    ],
)
def test_what_goes_wrong_is_said_above_the_box_and_charges_nothing(shared, fields, words):
    page = Visitor(shared, "ann").ask("ask", **fields)
    assert page.status_code in (200, 404)
    assert words in page.text
    assert shared.spent("census") == 0


def test_what_people_type_is_shown_as_text(world):
    hostile = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
    ann = Visitor(world, "ann")
    page = ann.ask("preview", sql=hostile, purpose=hostile)
    assert "<script>alert" not in page.text
    assert "<img" not in page.text
    assert "&lt;script&gt;" in page.text
    ann.ask("ask", sql="SELECT COUNT(*) AS n FROM people", purpose=hostile)
    sam = Visitor(world, "sam")
    for page in (sam.get(), sam.get("/audit"), sam.get("/account?name=census"), ann.get()):
        assert page.status_code == 200
        assert "<script>alert" not in page.text
        assert "&lt;script&gt;alert" in page.text


def test_what_a_page_is_refused_is_logged(world):
    world.curator.access.set_policy("census", Policy(max_epsilon_per_question=0.01))
    assert "rules do not allow" in Visitor(world, "ann").ask("ask").text
    [refusal] = world.curator.access.refusals()
    assert (refusal.user, refusal.action, refusal.reason) == ("ann", "page /ask", "policy_refused")


def test_an_approval_goes_round(world):
    world.curator.access.set_policy("census", Policy(approval_above=0.1))
    ann, sam = Visitor(world, "ann"), Visitor(world, "sam")
    page = ann.ask("ask", purpose="hours")
    assert "needs approval" in page.text
    assert "hours" in sam.get().text
    assert "SELECT" in sam.get().text  # the question itself, and not only its purpose
    [pending] = world.curator.access.approvals()
    assert sam.post("/decide", id=pending.id, decision="approve").status_code == 303
    assert "<svg" in ann.ask("ask", purpose="hours").text
    assert "used" in ann.get().text
    assert world.spent("census/ann") == 1


# --- managing and auditing


def test_a_steward_manages_from_the_page(world):
    sam = Visitor(world, "sam")
    assert sam.post("/users", user="zoe", role="analyst").status_code == 303
    assert sam.post("/allot", account="census", user="zoe", epsilon="0.3", delta="").status_code == 303
    shown = sam.post("/issue", user="zoe", days="7", share="").text
    token = re.search(r"dsc_[0-9a-f]{18}_[\w-]{43}", shown)[0]
    world.tokens["zoe"] = token
    assert "0.3-DP" in Visitor(world, "zoe").get().text
    assert token not in sam.get().text
    assert sam.post("/freeze", account="census", frozen="yes").status_code == 303
    assert "frozen" in Visitor(world, "zoe").ask("ask").text
    assert sam.post("/freeze", account="census", frozen="no").status_code == 303
    assert sam.post("/revoke", id=world.curator.access.authenticate(token).token_id).status_code == 303
    assert sam.post("/disable", user="bob").status_code == 303
    by = {change.by for change in world.curator.access.changes()[-6:]}
    assert by == {"sam"}
    assert sam.post("/users", user="zoe", role="steward").status_code == 400
    assert sam.post("/freeze", account="nothing", frozen="yes").status_code == 409


def test_an_auditor_verifies_and_exports(world):
    Visitor(world, "ann").ask("ask")
    eve = Visitor(world, "eve")
    assert "Everything agrees" in eve.post("/verify").text
    lines = eve.get("/audit.jsonl")
    assert lines.headers["content-type"].startswith("application/x-ndjson")
    assert '"kind":"entry"' in lines.text
    assert eve.get("/account?name=census").status_code == 200
    assert eve.get("/account?name=nothing").status_code == 404
    world.curator.ledger._backend.write(
        lambda transaction, _: transaction.run(
            "UPDATE discreet_access_state SET body = replace(body, 'analyst', 'steward') WHERE name = 'bob'"
        )
    )
    assert "Something disagrees" in eve.post("/verify").text


def test_public_values_are_the_keys_of_groups(shared):
    people = shared.curator.dataset("people")
    assert grouped_keys("select 1 GROUP  BY sex order by 1", people) == {"sex": ["F", "M"]}
    assert grouped_keys("select sex from people", people) == {}
    assert grouped_keys("select 1 group by sexes", people) == {}


@pytest.mark.slow
def test_an_analyst_sees_how_her_trainings_stand(world):
    facts = {"id": "j1", "model": "income", "account": "census", "step": 30, "steps": 100, "guarantee": "(1, 1e-06)-DP"}
    more = {"user": "ann", "state": "running", "queued": "2026-11-16", "problem": ""}
    world.curator.state.put("job", "j1", {**facts, **more})
    page = Visitor(world, "ann").get().text
    assert "income" in page
    assert "30 of 100" in page
    assert "income" not in Visitor(world, "bob").get().text
