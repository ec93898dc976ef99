"""The files of the page: small, whole, with their licences, and nothing in them that a strict policy forbids."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from clearway.web import page

STATIC = Path(page.__file__).parent / "static"
FILES = sorted(file for file in STATIC.rglob("*") if file.is_file())
OWN = [file for file in FILES if "vendor" not in file.parts]


@pytest.fixture(scope="module")
def client() -> TestClient:
    app = FastAPI()
    page.mount(app)
    return TestClient(app)


def test_all_files_together_are_small() -> None:
    assert sum(file.stat().st_size for file in FILES) < 500_000


def test_what_others_have_written_has_its_licence() -> None:
    licences = {file.stem.removeprefix("LICENSE-") for file in FILES if file.name.startswith("LICENSE-")}
    assert licences == {"preact", "htm"}
    assert all(licence in (STATIC / "vendor/README.txt").read_text() for licence in licences)


def test_every_file_is_served_with_a_strict_policy(client: TestClient) -> None:
    for file in FILES:
        answer = client.get(f"/static/{file.relative_to(STATIC)}")
        assert answer.status_code == 200
        assert answer.content == file.read_bytes()
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert client.get("/").headers["content-type"] == "text/html; charset=utf-8"
    assert client.get("/static/app.js").headers["content-type"].startswith("text/javascript")


def test_a_file_that_the_browser_has_is_not_sent_again(client: TestClient) -> None:
    etag = client.get("/").headers["etag"]
    answer = client.get("/", headers={"If-None-Match": etag})
    assert (answer.status_code, answer.content) == (304, b"")
    assert client.head("/").status_code == 200


OUTSIDE = ["../page.py", "..%2fpage.py", "%2e%2e/page.py", "/etc/passwd", "vendor", "", "app.js/"]


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_path_leads_out_of_the_folder(client: TestClient, path: str) -> None:
    assert client.get(f"/static/{path}").status_code == 404


@pytest.mark.parametrize("file", OWN, ids=lambda file: file.name)
def test_nothing_is_loaded_from_elsewhere_and_no_text_becomes_a_script(file: Path) -> None:
    text = file.read_text()
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerously|\beval\b|new Function", text
    )
    assert not re.search(r"""https?://(?!www\.w3\.org/)|["'(]//""", text)
    assert not re.search(r"localStorage|document\.cookie", text), "the token stays in the tab"
    if file.suffix == ".html":
        assert not re.search(r"<script(?![^>]*src=)|\son\w+=|\sstyle=", text)


def test_the_modules_that_are_imported_exist() -> None:
    imported = [(file, name) for file in OWN for name in re.findall(r'from "([^"]+)"', file.read_text())]
    assert imported
    assert [each for each in imported if not (each[0].parent / each[1]).resolve().is_file()] == []


def test_modules_are_short() -> None:
    assert [file.name for file in OWN if len(file.read_text().splitlines()) > 400] == []
