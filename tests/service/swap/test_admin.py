"""`/admin/reload` and `/admin/rollback`: for whom, with which answers, and on a root that is read-only."""

import threading
from typing import Any

import pytest

from glow.artifact import IndexRoot
from glow.contract import AdminResult, Workers
from glow.errors import ReadOnlyError
from tests.records import read_whole
from tests.service.asking import assert_problem
from tests.service.swap.conftest import ADMIN, Serve


def test_only_the_admin_key_opens_them(serve: Serve) -> None:
    with serve(api_keys=f"tester:{'0' * 64}") as served:
        for path in ("/admin/reload", "/admin/rollback"):
            assert_problem(served.http.post(path), 401, "key_missing")
            assert_problem(served.http.post(path, headers={"X-API-Key": "wrong"}), 403, "key_refused")
        assert served.live == "a1"
    with serve(admin_key="") as served:
        for headers in (ADMIN, {}, {"X-API-Key": "wrong"}):
            assert served.http.post("/admin/reload", headers=headers).status_code == 404


def test_reload_follows_current_where_nothing_is_watched(versions: Any, serve: Serve) -> None:
    with serve(poll_s=60, max_in_flight=1) as served:
        versions.publish("b1")
        served.service.pool.admission.enter()
        assert served.search().status_code == 429
        found = served.admin("reload")  # a full service follows all the same
        served.service.pool.admission.leave()
        assert found.status_code == 200, found.text
        answer = read_whole(found.content, AdminResult)
        assert (answer.previous, answer.live.version, found.headers["x-index-version"]) == ("a1", "b1", "b1")
        assert answer.workers == Workers(count=1, following=1, refusing=0)
        assert served.search().json()["index"]["version"] == "b1"
        again = served.admin("reload").json()
        assert (again["previous"], again["live"]["version"]) == ("b1", "b1")


def test_reload_tries_a_refused_version_again_and_says_why_it_is_refused(versions: Any, serve: Serve) -> None:
    with serve(poll_s=60) as served:
        path = versions.add("b1") / "model" / "query.onnx"
        tower = path.read_bytes()
        path.write_bytes(b"?" * len(tower))
        versions.point("b1")
        for _ in range(2):
            refused = assert_problem(served.admin("reload"), 409, "swap_refused")
            assert all(word in refused.detail for word in ("b1", "query.onnx", "a1 stays live"))
        assert served.http.get("/info").json()["workers"] == {"count": 1, "following": 1, "refusing": 1}
        path.write_bytes(tower)
        assert served.admin("reload").json()["live"]["version"] == "b1"


def test_rollback_goes_back_or_to_the_version_that_is_named(versions: Any, serve: Serve) -> None:
    versions.publish("b1")
    versions.publish("a2")
    with serve(poll_s=60) as served:
        first = served.admin("rollback").json()
        assert (first["previous"], first["live"]["version"], served.live) == ("a2", "b1", "b1")
        assert (
            served.admin("rollback").json()["live"]["version"] == IndexRoot(versions.path).current() == "a1"
        )
        none = assert_problem(served.admin("rollback"), 409, "swap_refused")
        assert "has no previous version" in none.detail
        assert served.admin("rollback", version="a2").json()["live"]["version"] == "a2"
        for wrong, word in (("b9", "b9"), ("../a1", "not a version name")):
            refused = assert_problem(served.admin("rollback", version=wrong), 409, "swap_refused")
            assert word in refused.detail and str(versions.path) not in refused.detail
        assert served.admin("rollback", version=7).json()["code"] == "invalid_request"
        assert served.admin("rollback", verson="a1").status_code == 422
        assert served.admin("reload", x=1).status_code == 422
        assert served.live == IndexRoot(versions.path).current() == "a2"


def test_a_version_that_a_gate_refused_is_a_409_that_openapi_declares(versions: Any, serve: Serve) -> None:
    versions.add("b1")
    record = {"status": "failed", "time": "now", "checks": [{"name": "nDCG@10 dense", "passed": False}]}
    IndexRoot(versions.path).amend("b1", {"gate": record})
    with serve(poll_s=60) as served:
        refused = assert_problem(served.admin("rollback", version="b1"), 409, "gate_refused")
        assert all(word in refused.detail for word in ("b1", "nDCG@10 dense", "--force"))
        assert str(versions.path) not in refused.detail
        assert served.live == IndexRoot(versions.path).current() == "a1"
        operation = served.http.get("/openapi.json").json()["paths"]["/admin/rollback"]["post"]
        declared = operation["responses"]["409"]["description"]
        codes = ("swap_refused", "gate_refused", "index_busy", "index_read_only")
        assert all(code in declared for code in codes)


def test_a_root_that_is_being_changed_is_busy_and_one_that_is_read_only_is_told_with_the_command(
    versions: Any, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise ReadOnlyError("cannot write the index root")

    def hold() -> None:
        with IndexRoot(versions.path).locked():
            held.set()
            done.wait(30)

    monkeypatch.setattr("glow.artifact.root.WAIT_S", 0.05)
    monkeypatch.setattr(IndexRoot.locked, "__defaults__", (0.05,))
    versions.publish("b1")
    held, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=hold)
    with serve() as served:
        thread.start()
        held.wait(30)
        assert_problem(served.admin("rollback"), 409, "index_busy")
        done.set()
        thread.join()
        monkeypatch.setattr(IndexRoot, "rollback", refuse)
        monkeypatch.setattr(IndexRoot, "publish", refuse)
        commands = (({}, "rollback --index-root INDEX_ROOT"), ({"version": "a1"}, "INDEX_ROOT a1"))
        for body, command in commands:
            assert command in assert_problem(served.admin("rollback", **body), 409, "index_read_only").detail
