"""`/admin/reload` and `/admin/rollback`: for whom, with which answers, and on a root that is read-only."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import httpx
import pytest

from glow.artifact import IndexRoot
from glow.contract import AdminResult, Workers
from glow.errors import ReadOnlyError
from tests.records import read_whole

Serve = Callable[..., AbstractContextManager[Any]]


def test_only_the_admin_key_opens_them(versions: Any, serve: Serve, admin: dict[str, str]) -> None:
    with serve(api_keys=f"tester:{'0' * 64}") as served:
        for path in ("/admin/reload", "/admin/rollback"):
            assert served.http.post(path).json()["code"] == "key_missing"
            wrong = served.http.post(path, headers={"X-API-Key": "wrong"})
            assert (wrong.status_code, wrong.json()["code"]) == (403, "key_refused")
        assert served.live == "a1"
    with serve(admin_key="") as served:
        for headers in (admin, {}, {"X-API-Key": "wrong"}):
            assert served.http.post("/admin/reload", headers=headers).status_code == 404


def test_reload_follows_current_where_nothing_is_watched(
    versions: Any, serve: Serve, admin: dict[str, str]
) -> None:
    with serve(poll_s=60) as served:
        versions.publish("b1")
        found = served.http.post("/admin/reload", headers=admin)
        assert found.status_code == 200, found.text
        answer = read_whole(found.content, AdminResult)
        assert (answer.previous, answer.live.version, found.headers["x-index-version"]) == ("a1", "b1", "b1")
        assert answer.workers == Workers(count=1, following=1, refusing=0)
        assert served.search().json()["index"]["version"] == "b1"
        again = served.http.post("/admin/reload", headers=admin).json()
        assert (again["previous"], again["live"]["version"]) == ("b1", "b1")


def test_reload_tries_a_refused_version_again_and_says_why_it_is_refused(
    versions: Any, serve: Serve, admin: dict[str, str]
) -> None:
    with serve(poll_s=60) as served:
        folder = versions.add("b1")
        tower = (folder / "model" / "query.onnx").read_bytes()
        (folder / "model" / "query.onnx").write_bytes(b"?" * len(tower))
        versions.point("b1")
        for _ in range(2):
            refused = served.http.post("/admin/reload", headers=admin)
            assert (refused.status_code, refused.json()["code"]) == (409, "swap_refused")
            assert all(word in refused.json()["detail"] for word in ("b1", "query.onnx", "a1 stays live"))
        assert served.http.get("/info").json()["workers"] == {"count": 1, "following": 1, "refusing": 1}
        (folder / "model" / "query.onnx").write_bytes(tower)
        assert served.http.post("/admin/reload", headers=admin).json()["live"]["version"] == "b1"


def test_rollback_goes_back_or_to_the_version_that_is_named(
    versions: Any, serve: Serve, admin: dict[str, str]
) -> None:
    versions.publish("b1")
    versions.publish("a2")
    with serve(poll_s=60) as served:

        def roll_back(**body: Any) -> httpx.Response:
            return served.http.post("/admin/rollback", headers=admin, json=body)

        first = served.http.post("/admin/rollback", headers=admin).json()  # without a body
        assert (first["previous"], first["live"]["version"], served.live) == ("a2", "b1", "b1")
        assert roll_back().json()["live"]["version"] == IndexRoot(versions.path).current() == "a1"
        none = roll_back()
        assert (none.status_code, none.json()["code"]) == (409, "swap_refused")
        assert "has no previous version" in none.json()["detail"]
        assert roll_back(version="a2").json()["live"]["version"] == "a2"
        for wrong, word in (("b9", "b9"), ("../a1", "not a version name")):
            refused = roll_back(version=wrong)
            assert (refused.status_code, refused.json()["code"]) == (409, "swap_refused")
            assert word in refused.json()["detail"] and str(versions.path) not in refused.text
        assert roll_back(version=7).json()["code"] == "invalid_request"
        assert roll_back(verson="a1").status_code == 422
        assert served.http.post("/admin/reload", headers=admin, json={"x": 1}).status_code == 422
        assert served.live == IndexRoot(versions.path).current() == "a2"


def test_a_version_that_a_gate_refused_is_a_409_that_openapi_declares(
    versions: Any, serve: Serve, admin: dict[str, str]
) -> None:
    versions.add("b1")
    record = {"status": "failed", "time": "now", "checks": [{"name": "nDCG@10 dense", "passed": False}]}
    IndexRoot(versions.path).amend("b1", {"gate": record})
    with serve(poll_s=60) as served:
        refused = served.http.post("/admin/rollback", headers=admin, json={"version": "b1"})
        assert (refused.status_code, refused.json()["code"]) == (409, "gate_refused")
        assert all(word in refused.json()["detail"] for word in ("b1", "nDCG@10 dense", "--force"))
        assert str(versions.path) not in refused.text
        assert served.live == IndexRoot(versions.path).current() == "a1"
        operation = served.http.get("/openapi.json").json()["paths"]["/admin/rollback"]["post"]
        declared = operation["responses"]["409"]["description"]
        codes = ("swap_refused", "gate_refused", "index_busy", "index_read_only")
        assert all(code in declared for code in codes)


def test_a_full_service_rolls_back_all_the_same(versions: Any, serve: Serve, admin: dict[str, str]) -> None:
    with serve(poll_s=60, max_in_flight=1) as served:
        versions.publish("b1")
        served.service.pool.admission.enter()
        assert served.search().status_code == 429
        assert served.http.post("/admin/reload", headers=admin).status_code == 200
        served.service.pool.admission.leave()


def test_a_root_that_is_being_changed_is_busy(
    versions: Any, serve: Serve, admin: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glow.artifact.root.WAIT_S", 0.05)
    monkeypatch.setattr(IndexRoot.locked, "__defaults__", (0.05,))
    versions.publish("b1")
    with serve() as served:
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with IndexRoot(versions.path).locked():
                held.set()
                done.wait(30)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(30)
        busy = served.http.post("/admin/rollback", headers=admin)
        done.set()
        thread.join()
        assert (busy.status_code, busy.json()["code"]) == (409, "index_busy")


def test_a_read_only_root_is_a_409_with_the_command(
    versions: Any, serve: Serve, admin: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise ReadOnlyError("cannot write the index root")

    versions.publish("b1")
    monkeypatch.setattr(IndexRoot, "rollback", refuse)
    monkeypatch.setattr(IndexRoot, "publish", refuse)
    with serve() as served:
        commands = (({}, "rollback --index-root INDEX_ROOT"), ({"version": "a1"}, "INDEX_ROOT a1"))
        for body, command in commands:
            refused = served.http.post("/admin/rollback", headers=admin, json=body)
            assert (refused.status_code, refused.json()["code"]) == (409, "index_read_only")
            assert command in refused.json()["detail"]
