"""`doctor` looks at the keys of Spaces: their files, what they open, and what the public URL shows of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from appview.service import open_app
from indexer.doctor.database import Place, check_database
from indexer.doctor.network import Answer, Endpoint, Network, NoAnswer, Step
from indexer.doctor.report import Check, State, passed
from indexer.doctor.spaces import Kept, SpaceFiles, check_client, judge_keys, look_at_credentials, read_keys
from memory.database import Database
from memory.dpop import ProofKey
from memory.errors import Misconfigured
from memory.sealed import SealingKeys
from memory.settings import load
from memory.space_credential import SpaceCredential
from tests.doctor_servers import fix_of
from tests.memory_rows import ALICE, BOB, SPACE

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
URL = "https://memory.example"
OLD, NEW, OTHER = (bytes(range(first, first + 32)).hex() for first in (0, 50, 100))


def written(folder: Path, text: str, mode: int = 0o600, name: str = "space-keys") -> Path:
    file = folder / name
    file.write_text(text)
    file.chmod(mode)
    return file


def keys_in(file: Path) -> SealingKeys:
    return SealingKeys.read(file, random_bytes=bytes)


async def put(database: Database, keys: SealingKeys, viewer: str, token: str, *, sealed_for: str | None = None) -> None:
    credential = SpaceCredential("eyJh", ProofKey.from_bytes(bytes(31) + b"\x01"))
    sealed = credential.seal(keys, space=SPACE, viewer=sealed_for or viewer)
    async with database.connection() as conn:
        await conn.execute(
            "insert into credentials (repo, token, space, sealed, key_id, expires_at) values ($1, $2, $3, $4, $5, $6)",
            *(viewer, token, SPACE, sealed, keys.current, NOW + timedelta(hours=1)),
        )


async def check(database: Database, file: Path | None) -> Check:
    keys = read_keys(file)
    async with database.connection() as conn:
        kept = await look_at_credentials(conn, keys if isinstance(keys, SealingKeys) else None)
    return judge_keys(file, keys, kept)


# The keys that seal


async def test_without_a_file_there_are_no_spaces(database: Database):
    assert await check(database, None) == passed(
        "space keys", "SPACES_KEY_FILE is not set: there are no private Spaces"
    )
    assert judge_keys(None, None, None).state is State.OK


async def test_credentials_without_a_file_fail(database: Database, tmp_path: Path):
    await put(database, keys_in(written(tmp_path, f"a {OLD}\n")), ALICE, "t")
    found = await check(database, None)
    assert (found.state, found.what) == (State.FAILED, "credentials are kept (1), and SPACES_KEY_FILE is not set here")
    assert fix_of(found) == "Let the indexer have the file that the API has, by SPACES_KEY_FILE."


async def test_file_that_opens_everything_passes(database: Database, tmp_path: Path):
    file = written(tmp_path, f"2026 {NEW}\n2025 {OLD}\n")
    assert (await check(database, file)).what == "the key 2026 seals; no credential is kept yet"
    for viewer in (ALICE, BOB):
        await put(database, keys_in(file), viewer, "t")
    assert await check(database, file) == passed(
        "space keys", "the key 2026 seals, and every credential kept opens (2)"
    )


async def test_credentials_of_an_older_key_are_warned_of_with_the_command(database: Database, tmp_path: Path):
    await put(database, keys_in(written(tmp_path, f"2025 {OLD}\n")), ALICE, "t")
    file = written(tmp_path, f"2026 {NEW}\n2025 {OLD}\n")
    await put(database, keys_in(file), BOB, "t")
    found = await check(database, file)
    assert (found.state, found.what) == (State.WARNING, "1 of 2 credentials are sealed by an older key (2025)")
    assert fix_of(found).startswith("Run `python -m indexer rotate-key`")


@pytest.mark.parametrize(
    ("sealed_by", "held"),
    [
        (f"api {OTHER}\n", f"2026 {NEW}\n"),  # another file
        (f"2026 {OTHER}\n", f"2026 {NEW}\n"),  # another key of the same id
        (f"2026 {OTHER}\n", f"2026 {NEW}\nelse {OTHER}\n"),  # the right key by another id
    ],
)
async def test_credentials_that_no_key_opens_fail(database: Database, tmp_path: Path, sealed_by: str, held: str):
    await put(database, keys_in(written(tmp_path, sealed_by)), ALICE, "t")
    file = written(tmp_path, held, 0o644)  # which is the lesser trouble
    await put(database, keys_in(file), BOB, "t")
    found = await check(database, file)
    named = sealed_by.partition(" ")[0]
    assert found.state is State.FAILED
    assert found.what == f"1 of 2 credentials open by no key of the file (sealed by {named})"
    assert fix_of(found).startswith("Let the API and the indexer have the same file")


async def test_credential_of_another_viewer_is_one_that_no_key_opens(database: Database, tmp_path: Path):
    file = written(tmp_path, f"2026 {NEW}\n")
    await put(database, keys_in(file), ALICE, "t", sealed_for=BOB)
    assert (await check(database, file)).state is State.FAILED


async def test_many_keys_are_cut_short():
    found = judge_keys(Path("x"), Misconfigured("It is no file."), None)
    assert (found.state, found.what) == (State.FAILED, "It is no file.")
    keys = SealingKeys({"k": bytes(32)}, random_bytes=bytes)
    shown = judge_keys(Path("/none/such"), keys, Kept(9, shut=5, ids=("a", "b", "c", "d", "e")))
    assert shown.what.endswith("(sealed by a, b, c and 2 more)")
    assert judge_keys(Path("/none/such"), keys, None).what == "the key k seals"


@pytest.mark.parametrize("at_once", [1, 2, 1000])
async def test_all_pages_of_credentials_are_looked_at(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
):
    monkeypatch.setattr("indexer.doctor.spaces._AT_ONCE", at_once)
    old = keys_in(written(tmp_path, f"2025 {OLD}\n"))
    for viewer in (ALICE, BOB):
        for token in "abc":
            await put(database, old, viewer, token)
    keys = keys_in(written(tmp_path, f"2026 {NEW}\n2025 {OLD}\n"))
    async with database.connection() as conn:
        assert await look_at_credentials(conn, keys) == Kept(6, older=6, ids=("2025",))
        assert await look_at_credentials(conn, keys_in(written(tmp_path, f"x {OTHER}\n"))) == Kept(
            6, shut=6, ids=("2025",)
        )
        assert await look_at_credentials(conn, None) == Kept(6)
        monkeypatch.setattr("indexer.doctor.spaces.CREDENTIALS_LOOKED_AT", 1)
        looked_at = min(at_once, 6)
        assert await look_at_credentials(conn, keys) == Kept(looked_at, older=looked_at, ids=("2025",))


@pytest.mark.parametrize(
    ("text", "mode", "state", "words"),
    [
        (f"2026 {NEW}\n", 0o600, State.OK, "the key 2026 seals"),
        (f"2026 {NEW}\n", 0o440, State.OK, "the key 2026 seals"),  # as systemd hands it over
        (f"2026 {NEW}\n", 0o644, State.WARNING, "everybody on this machine may read the file"),
        (f"2026 {NEW}\n", 0o620, State.FAILED, "others than its owner may write it"),
        ("", 0o600, State.FAILED, "it holds no key"),
        ("2026 Mandarin\n", 0o600, State.FAILED, "line 1 is not an id and 64 hex digits"),
        (None, 0, State.FAILED, "No such file"),
    ],
)
async def test_file_is_judged_as_by_whoever_uses_it(
    database: Database, tmp_path: Path, text: str | None, mode: int, state: State, words: str
):
    found = await check(database, tmp_path / "none" if text is None else written(tmp_path, text, mode))
    assert (found.name, found.state) == ("space keys", state)
    assert words in found.what
    assert "Mandarin" not in repr(found)
    assert (found.fix is None) == (state is State.OK)


async def test_database_tells_what_the_keys_open(database: Database, database_url: str, tmp_path: Path):
    file = written(tmp_path, f"2026 {NEW}\n")
    await put(database, keys_in(file), ALICE, "t")
    place = Place(database_url, embedded=True)
    assert (await check_database(place, lambda: NOW, keys_in(file))).kept == Kept(1)
    other = keys_in(written(tmp_path, f"a {OTHER}\n"))
    assert (await check_database(place, lambda: NOW, other)).kept == Kept(1, shut=1, ids=("2026",))
    async with database.connection() as conn:
        await conn.execute("drop table credentials")
    findings = await check_database(place, lambda: NOW, other)
    assert (findings.kept, len(findings.checks)) == (None, 3)


# The keys by which Spaces believe who we are


def pem(number: int) -> str:
    key = ec.derive_private_key(number, ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@dataclass(frozen=True, slots=True)
class Shown(Network):
    """What stands at the public URL, by path; a path without anything is not found."""

    pages: Mapping[str, bytes] | None = None  # null: nobody answers

    async def read(
        self, endpoint: Endpoint, path: str, headers: Mapping[str, str] | None = None
    ) -> tuple[Answer, bytes]:
        if self.pages is None:
            raise NoAnswer(Step.CONNECTION, "no connection to port 443")
        assert endpoint == Endpoint.of(URL)
        return Answer(200 if path in self.pages else 404, {}, 0.0), self.pages.get(path, b"")

    async def get(self, endpoint: Endpoint, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return (await self.read(endpoint, path, headers))[0]


async def pages_of(database_url: str, client_keys: Path | None, url: str = URL) -> dict[str, bytes]:
    """What an API shows that was started with this file."""
    given = {"DATABASE_URL": database_url, "APPVIEW_PUBLIC_URL": url}
    if client_keys is not None:
        given["SPACES_CLIENT_KEY_FILE"] = str(client_keys)
    async with (
        open_app(load(given), port=8600, clock=lambda: NOW, monotonic=lambda: 0.0) as app,
        httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=URL) as client,
    ):
        answers = {path: await client.get(path) for path in ("/jwks.json", "/client-metadata.json")}
    return {path: answer.content for path, answer in answers.items() if answer.status_code == 200}


@pytest.fixture
def client_file(tmp_path: Path) -> Path:
    return written(tmp_path, pem(5) + pem(6), name="client.pem")


async def test_client_that_is_shown_as_it_is_passes(database_url: str, client_file: Path):
    network = Shown(pages=await pages_of(database_url, client_file))
    assert await check_client(network, URL, SpaceFiles(None, client_file)) == passed(
        "space client", f"{URL}/client-metadata.json leads to what is public of the keys of the file"
    )


async def test_client_file_that_all_may_read_is_warned_of(database_url: str, tmp_path: Path):
    open_to_all = written(tmp_path, pem(5), 0o644, name="client.pem")
    network = Shown(pages=await pages_of(database_url, open_to_all))
    found = await check_client(network, URL, SpaceFiles(None, open_to_all))
    assert found is not None
    assert (found.state, found.what) == (State.WARNING, "everybody on this machine may read the file")
    assert fix_of(found) == "Run `chmod 600` on the file of SPACES_CLIENT_KEY_FILE."


@pytest.mark.parametrize("others", [pem(7), pem(5), pem(6) + pem(5)])
async def test_api_that_shows_other_keys_fails(database_url: str, tmp_path: Path, client_file: Path, others: str):
    network = Shown(pages=await pages_of(database_url, written(tmp_path, others, name="others.pem")))
    found = await check_client(network, URL, SpaceFiles(None, client_file))
    assert found is not None
    assert (found.state, found.what) == (State.FAILED, "/jwks.json does not show the keys of the file")
    assert fix_of(found).startswith("Start `python -m appview serve` anew, with SPACES_CLIENT_KEY_FILE")


async def test_api_that_shows_no_client_fails(database_url: str, client_file: Path):
    network = Shown(pages=await pages_of(database_url, None))
    found = await check_client(network, URL, SpaceFiles(None, client_file))
    assert found is not None
    assert (found.state, found.what) == (State.FAILED, "/jwks.json answers 404")
    assert fix_of(found).startswith("Let what listens there hand /jwks.json on to the API.")


async def test_metadata_of_another_url_or_of_nobody_fails(database_url: str, client_file: Path):
    pages = await pages_of(database_url, client_file)
    elsewhere = await pages_of(database_url, client_file, "https://elsewhere.example")
    for metadata in (elsewhere["/client-metadata.json"], b"[]", b"{", b"\xff", json.dumps({"client_id": URL}).encode()):
        network = Shown(pages=pages | {"/client-metadata.json": metadata})
        found = await check_client(network, URL, SpaceFiles(None, client_file))
        assert found is not None
        assert (found.state, found.what) == (
            State.FAILED, f"/client-metadata.json is not that of a client at {URL}"
        )  # fmt: skip


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"keys": []}', b"\xff\xfe"])
async def test_answer_that_is_no_set_of_the_keys_fails(client_file: Path, body: bytes):
    network = Shown(pages={"/jwks.json": body, "/client-metadata.json": b"{}"})
    found = await check_client(network, URL, SpaceFiles(None, client_file))
    assert found is not None
    assert found.what == "/jwks.json does not show the keys of the file"


@pytest.mark.parametrize("url", [None, "http://memory.example", "http://localhost:8600"])
async def test_client_without_a_public_url_by_https_fails(client_file: Path, url: str | None):
    found = await check_client(Shown(), url, SpaceFiles(None, client_file))
    assert found is not None
    assert found.state is State.FAILED
    assert fix_of(found).startswith("Set APPVIEW_PUBLIC_URL as https")


async def test_client_file_that_cannot_be_used_fails(tmp_path: Path):
    for file in (written(tmp_path, "Mandarin", name="client.pem"), tmp_path / "none"):
        found = await check_client(Shown(), URL, SpaceFiles(None, file))
        assert found is not None
        assert (found.name, found.state) == ("space client", State.FAILED)
        assert "SPACES_CLIENT_KEY_FILE cannot be used" in found.what
        assert "Mandarin" not in repr(found)


async def test_url_where_nobody_answers_is_warned_of(client_file: Path):
    found = await check_client(Shown(), URL, SpaceFiles(None, client_file))
    assert found is not None
    assert (found.state, found.fix) == (State.WARNING, "Mend what `service` says.")
    assert "no connection to port 443" in found.what


async def test_without_a_client_file_it_is_told_what_that_means(tmp_path: Path):
    spaces = SpaceFiles(tmp_path / "keys")
    silent = await check_client(Shown(pages={}), URL, spaces)
    assert silent is not None
    assert (silent.state, "let named apps in only" in silent.what) == (State.OK, True)
    shown = await check_client(Shown(pages={"/jwks.json": b"{}"}), URL, spaces)
    assert shown is not None
    assert (shown.state, shown.what.startswith("the API says who it is")) == (State.OK, True)
    assert await check_client(Shown(), URL, spaces) is None
    assert await check_client(Shown(pages={}), None, spaces) is None
    assert await check_client(Shown(pages={}), URL, SpaceFiles()) is None
