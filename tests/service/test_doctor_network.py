"""`doctor` meets relays, directories and ports on this machine that are well or not."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Final

import pytest
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from websockets.asyncio.server import ServerConnection, serve

from indexer.doctor.machine import Port, check_disk, check_port, check_spool
from indexer.doctor.network import Limits, Network, look_up
from indexer.doctor.outside import FIREHOSE, Followed, check_directory, check_names, check_source
from indexer.doctor.report import State, passed
from indexer.resync.disk import DiskBudget
from memory.database import Database
from tests.api_client import Api
from tests.doctor_servers import NAME, NETWORK, OK, answering, fix_of, free_port, head, look_up_test_names

NOW: Final = datetime(2026, 11, 30, 12, tzinfo=UTC)
API_PATH: Final = "/xrpc/dev.bastienrobert.memory.getStats?repo=did:web:nobody.invalid"
QUICK: Final = Limits(name_s=5, connection_s=5, tls_s=0.05, http_s=0.05)


def clock() -> datetime:
    return NOW


# --- sources


def relay(port: int, scheme: str = "http", host: str = "127.0.0.1") -> Followed:
    return Followed(f"{scheme}://{host}:{port}", "INDEXER_RELAY_URLS")


async def test_firehose_that_answers_passes():
    asked: list[str] = []

    async def stream(connection: ServerConnection) -> None:
        assert connection.request is not None
        asked.append(connection.request.path)
        await connection.send(b"frame")
        await connection.wait_closed()

    async with serve(stream, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        check = await check_source(NETWORK, relay(port))
    assert check.state is State.OK
    assert check.name == f"source http://127.0.0.1:{port}"
    assert re.fullmatch(r"a firehose answers, after \d+ ms", check.what)
    assert asked == [FIREHOSE]


@pytest.mark.parametrize(
    ("answer", "what", "fix"),
    [
        (head("404 Not Found"), "no firehose: it answers 404", "Correct INDEXER_RELAY_URLS: wss://"),
        (OK, "no firehose: it answers 200", "Correct INDEXER_RELAY_URLS: wss://"),
        (head("101 Switching Protocols", Upgrade="h2c"), "it answers 101", "Correct INDEXER_RELAY_URLS"),
        (head("429 Too Many Requests"), "it answers 429", "Stop other readers at this address, or wait"),
        (head("503 Service Unavailable"), "it answers 503", "Wait: it is in trouble"),
        (
            head("301 Moved Permanently", Location="https://new.test/xrpc/x"),
            "it answers 301",
            "Name in INDEXER_RELAY_URLS where it leads: https://new.test.",
        ),
        (head("302 Found", Location="/elsewhere"), "it answers 302", "Correct INDEXER_RELAY_URLS"),
    ],
)
async def test_server_that_is_no_firehose_fails(answer: bytes, what: str, fix: str):
    async with answering(answer) as port:
        check = await check_source(NETWORK, relay(port))
    assert check.state is State.FAILED
    assert what in check.what
    assert fix_of(check).startswith(fix)


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "its answer is no HTTP"),
        (b"\0\xff\r\n\r\n", "its answer is no HTTP"),
        (b"HTTP/1.1 ", "it hangs up instead of answering"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, "it hangs up instead of answering"),
    ],
)
async def test_server_that_speaks_otherwise_fails(answer: bytes, what: str):
    async with answering(answer) as port:
        check = await check_source(NETWORK, relay(port))
    assert (check.state, check.what) == (State.FAILED, what)
    assert fix_of(check).startswith(f"See what listens on port {port} of 127.0.0.1")


async def test_silent_server_fails_after_its_time():
    async with answering(b"") as port:
        check = await check_source(Network(look_up_test_names, limits=QUICK), relay(port))
    assert check.what == "silence for 0.05 s"
    assert fix_of(check).startswith("See what listens on port")


async def test_closed_port_fails():
    closed_port = free_port()
    check = await check_source(NETWORK, relay(closed_port, host=NAME))
    assert (check.state, check.what) == (State.FAILED, f"no connection to port {closed_port}")
    assert fix_of(check).startswith(f"Let this machine connect to port {closed_port} of {NAME} (firewall)")


async def test_address_that_is_reached_counts_though_another_is_not():
    async def two(_: str) -> Sequence[str]:
        return ["127.0.0.2", "127.0.0.1"]

    async with answering(head("404 Not Found")) as port:
        check = await check_source(Network(two), relay(port, host=NAME))
    assert check.what == "no firehose: it answers 404"


@pytest.mark.parametrize(("host", "what"), [("gone.test", "its name is not found"), ("nowhere.test", "no address")])
async def test_name_that_is_not_found_fails(host: str, what: str):
    check = await check_source(NETWORK, relay(1, host=host))
    assert check.state is State.FAILED
    assert what in check.what
    assert fix_of(check).startswith(f"Check how INDEXER_RELAY_URLS spells {host}")


async def test_slow_look_up_ends_in_time():
    async def never(_: str) -> Sequence[str]:
        await asyncio.Event().wait()
        raise AssertionError

    check = await check_source(Network(never, limits=Limits(name_s=0.01)), relay(1, host=NAME))
    assert check.what == "silence for 0.01 s"


async def test_name_that_cannot_be_one_fails():
    check = await check_source(Network(), relay(1, host="a" * 70 + ".test"))
    assert check.state is State.FAILED
    assert "its name" in check.what


async def test_names_of_this_machine_are_looked_up_for_real():
    assert set(await look_up("localhost")) & {"127.0.0.1", "::1"}


# --- TLS


def certificate(name: str, *, until: datetime, folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """What a server has that calls itself so, and what trusts its certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(until - timedelta(days=2))
        .not_valid_after(until)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "both.pem").write_bytes(secret + pem)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(folder / "both.pem")
    return served, ssl.create_default_context(cadata=pem.decode())


def tomorrow() -> datetime:
    return datetime.now(UTC) + timedelta(days=1)


async def test_answer_over_tls_is_heard(tmp_path: Path):
    served, trust = certificate(NAME, until=tomorrow(), folder=tmp_path)
    async with answering(head("404 Not Found"), served) as port:
        check = await check_source(Network(look_up_test_names, trust), relay(port, "https", NAME))
    assert check.what == "no firehose: it answers 404"


@pytest.mark.parametrize(
    ("name", "days", "trusted", "what"),
    [
        (NAME, 1, False, "self-signed certificate"),
        (NAME, -1, True, "certificate has expired"),
        ("other.test", 1, True, "Hostname mismatch"),
    ],
)
async def test_certificate_that_does_not_hold_fails(name: str, days: int, trusted: bool, what: str, tmp_path: Path):
    served, trust = certificate(name, until=datetime.now(UTC) + timedelta(days=days), folder=tmp_path)
    network = Network(look_up_test_names, trust if trusted else ssl.create_default_context())
    async with answering(OK, served) as port:
        check = await check_source(network, relay(port, "https", NAME))
    assert check.state is State.FAILED
    assert check.what.startswith(f"its certificate is refused ({what}")
    assert fix_of(check).startswith("If other hosts fail alike, mend this machine: its clock")


async def test_server_without_tls_fails_and_tells_how_to_name_it():
    async with answering(head("400 Bad Request")) as port:
        check = await check_source(NETWORK, relay(port, "https", NAME))
    assert check.state is State.FAILED
    assert fix_of(check) == f"If {NAME} serves without TLS, name it with ws:// or http:// in INDEXER_RELAY_URLS."


async def test_server_that_stalls_the_handshake_fails_after_its_time():
    async with answering(b"") as port:
        check = await check_source(Network(look_up_test_names, limits=QUICK), relay(port, "https", NAME))
    assert check.what == "silence for 0.05 s"
    assert "ws://" in fix_of(check)


# --- the directory and names


@pytest.mark.parametrize("ahead_s", [0, 300, -300])
async def test_directory_that_answers_passes_and_tells_its_clock(ahead_s: int):
    date = format_datetime(NOW + timedelta(seconds=ahead_s), usegmt=True)
    async with answering(head("200 OK", Date=date)) as port:
        check, ahead = await check_directory(NETWORK, f"http://127.0.0.1:{port}", clock)
    assert check.state is State.OK
    assert ahead == pytest.approx(ahead_s, abs=3)


@pytest.mark.parametrize(
    "date", [None, "yesterday", "Mon, 30 Nov 2026 12:00:00 -0000", "Mon, 99 Nov 2026 12:00:00 GMT"]
)
async def test_directory_without_a_readable_clock_passes_all_the_same(date: str | None):
    async with answering(head("200 OK", **({"Date": date} if date else {}))) as port:
        check, ahead = await check_directory(NETWORK, f"http://127.0.0.1:{port}", clock)
    assert (check.state, ahead) == (State.OK, None)


@pytest.mark.parametrize(
    ("status", "fix"),
    [
        ("404 Not Found", "Name a directory of did:plc in INDEXER_PLC_URL: the public one is https://plc.directory."),
        ("503 Service Unavailable", "Wait: until it is well, nothing new is learnt"),
        ("429 Too Many Requests", "Wait: until it is well, nothing new is learnt"),
    ],
)
async def test_directory_that_is_not_well_fails(status: str, fix: str):
    async with answering(head(status)) as port:
        check, _ = await check_directory(NETWORK, f"http://127.0.0.1:{port}", clock)
    assert check.state is State.FAILED
    assert fix_of(check).startswith(fix)


async def test_directory_that_cannot_be_reached_fails():
    closed_port = free_port()
    check, ahead = await check_directory(NETWORK, f"http://127.0.0.1:{closed_port}", clock)
    assert (check.state, ahead) == (State.FAILED, None)
    assert fix_of(check).startswith(f"Let this machine connect to port {closed_port}")


@pytest.mark.parametrize(
    ("urls", "state", "what"),
    [
        (["https://relay.test", "http://127.0.0.1:1"], State.OK, "relay.test found"),
        (["http://127.0.0.1:1", "http://[::1]:1", "http://localhost"], State.OK, "no name to look up"),
        (["https://relay.test", "https://gone.test"], State.WARNING, "gone.test not found"),
        (["https://gone.test", "https://away.test"], State.FAILED, "away.test, gone.test not found"),
    ],
)
async def test_names_are_judged_together(urls: list[str], state: State, what: str):
    check = await check_names(NETWORK, urls)
    assert check.state is state
    assert what in check.what
    assert (check.fix is None) == (state is State.OK)
    assert state is not State.FAILED or "/etc/resolv.conf" in fix_of(check)


# --- ports and disk


def api_port(port: int, host: str = "127.0.0.1") -> Port:
    return Port(host, port, API_PATH, "APPVIEW_")


async def test_free_port_passes_and_stays_free():
    port = free_port()
    for _ in range(2):
        assert await check_port(NETWORK, api_port(port)) == passed(f"port {port}", "is free")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
async def test_port_where_our_api_answers_passes(database: Database, host: str):
    server = uvicorn.Server(uvicorn.Config(Api(database).app, log_config=None, lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        serving = asyncio.create_task(server.serve([listener]))
        check = await check_port(NETWORK, api_port(port, host))
        server.should_exit = True
        await serving
    assert check == passed(f"port {port}", "is answered by us")


@pytest.mark.parametrize("answer", [head("404 Not Found"), b"SSH-2.0\r\n\r\n"])
async def test_port_of_another_program_fails(answer: bytes):
    async with answering(answer) as port:
        check = await check_port(NETWORK, api_port(port))
    assert (check.state, check.what) == (State.FAILED, "is taken by another program")
    assert fix_of(check) == (
        f"Stop what listens there (`ss -ltnp 'sport = :{port}'` tells), or choose another by APPVIEW_PORT."
    )


async def test_address_of_another_machine_fails():
    check = await check_port(NETWORK, api_port(free_port(), "192.0.2.1"))
    assert check.what == "nothing can listen on 192.0.2.1"
    assert fix_of(check) == "Give an address of this machine by APPVIEW_HOST."


async def test_privileged_port_fails(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> socket.socket:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("socket.create_server", refuse)
    check = await check_port(NETWORK, api_port(443))
    assert check.what == "needs privileges"
    assert fix_of(check).startswith("Choose one above 1023 by APPVIEW_PORT")


async def test_folder_for_large_repos_is_written_to(tmp_path: Path):
    assert (await check_spool(DiskBudget(tmp_path, in_all_bytes=0, kept_free_bytes=0))).state is State.OK
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240


@pytest.mark.parametrize("fault", ["gone", "file"])
async def test_folder_for_large_repos_that_cannot_be_written_to_fails(tmp_path: Path, fault: str):
    place = tmp_path / fault
    if fault == "file":
        place.touch()
    check = await check_spool(DiskBudget(place))
    assert check.state is State.FAILED
    assert check.what.startswith(f"nothing can be written to {place}: ")
    assert fix_of(check) == "Let the indexer write there, or name another folder by INDEXER_SPOOL_DIR."


async def test_disk_is_looked_at_where_the_folder_will_be(tmp_path: Path):
    check = await check_disk(tmp_path / "not" / "yet")
    assert "GiB free for" in check.what
