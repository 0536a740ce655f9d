"""What an operator sets for Spaces is read when the API starts, and shown where others look for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from appview.call import SpaceOpening
from appview.faces.xrpc import XrpcFace
from appview.http import Edge
from appview.service import App, open_app
from memory.errors import Misconfigured
from memory.settings import load
from tests.api_client import NOW
from tests.exchanging import CLIENT_URL, attesting

KEY = "first 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n"


@asynccontextmanager
async def app_with(database_url: str, **set_to: object) -> AsyncGenerator[App]:
    settings = load({"DATABASE_URL": database_url} | {name: str(value) for name, value in set_to.items()})
    async with open_app(settings, port=8600, clock=lambda: NOW, monotonic=lambda: 0.0) as app:
        yield app


async def get(app: App, path: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=CLIENT_URL) as client:
        return await client.get(path)


def written(folder: Path, text: str) -> Path:
    file = folder / "spaces.keys"
    file.write_text(text)
    file.chmod(0o600)
    return file


@pytest.fixture
def client_key(tmp_path: Path) -> Path:
    attesting(tmp_path)
    return tmp_path / "client.pem"


async def test_client_is_shown_with_its_keys(database_url: str, client_key: Path):
    async with app_with(database_url, SPACES_CLIENT_KEY_FILE=client_key, APPVIEW_PUBLIC_URL=CLIENT_URL) as app:
        metadata, keys = await get(app, "/client-metadata.json"), await get(app, "/jwks.json")
    assert metadata.json()["client_id"] == f"{CLIENT_URL}/client-metadata.json"
    assert metadata.json()["jwks_uri"] == f"{CLIENT_URL}/jwks.json"
    [key] = keys.json()["keys"]
    assert (key["kty"], key["crv"], "d" in key) == ("EC", "P-256", False)
    for answer in (metadata, keys):
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["access-control-allow-origin"] == "*"


async def test_who_has_no_key_shows_no_client(database_url: str):
    async with app_with(database_url, APPVIEW_PUBLIC_URL=CLIENT_URL) as app:
        for path in ("/client-metadata.json", "/jwks.json"):
            assert (await get(app, path)).status_code == 404


async def test_client_without_a_public_url_is_no_client(database_url: str, client_key: Path):
    with pytest.raises(Misconfigured, match="APPVIEW_PUBLIC_URL") as caught:
        async with app_with(database_url, SPACES_CLIENT_KEY_FILE=client_key):
            pass
    assert caught.value.setting == "SPACES_CLIENT_KEY_FILE"


@pytest.mark.parametrize("name", ["SPACES_KEY_FILE", "SPACES_CLIENT_KEY_FILE"])
@pytest.mark.parametrize("text", [None, "", "Mandarin", "first 00\n"])
async def test_file_that_cannot_be_used_is_told_by_its_setting(
    database_url: str, tmp_path: Path, name: str, text: str | None
):
    file = tmp_path / "nothing" if text is None else written(tmp_path, text)
    with pytest.raises(Misconfigured) as caught:
        async with app_with(database_url, APPVIEW_PUBLIC_URL=CLIENT_URL, **{name: file}):
            pass
    assert caught.value.setting == name
    assert "Mandarin" not in str(caught.value)


def opening_of_app(app: App) -> SpaceOpening | None:
    edge = app.faces["/xrpc/"]
    assert isinstance(edge, Edge)
    assert isinstance(edge.face, XrpcFace)
    return edge.face.resources.opening


async def test_no_space_is_opened_where_there_are_no_keys(database_url: str):
    async with app_with(database_url) as app:
        assert opening_of_app(app) is None


@pytest.mark.parametrize(("limit", "of_viewer", "of_authority"), [(25, 3, 25), (1, 1, 1), (0, None, None)])
async def test_viewers_open_a_tenth_as_often_as_they_may_ask(
    database_url: str, tmp_path: Path, limit: int, of_viewer: int | None, of_authority: int | None
):
    file = written(tmp_path, KEY)
    async with app_with(database_url, SPACES_KEY_FILE=file, APPVIEW_RATE_LIMIT=limit) as app:
        opening = opening_of_app(app)
    assert opening is not None
    for rates, most in ((opening.viewers, of_viewer), (opening.authorities, of_authority)):
        allowance = rates.take("somebody")
        assert (None if allowance is None else allowance.limit) == most
