from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import Misconfigured
from memory.identity import (
    BadIdentity,
    Identity,
    PlcExport,
    did_web_url,
    identity_of_document,
    parse_document,
)

PLC = Path(__file__).parents[1] / "recordings" / "firehose" / "plc"
BOB = "did:plc:jrhrntjyyptgvnk752yer4wd"
FRANK = "did:plc:qj3aoj6dzgwffdh4hscw2mm4"
GRACE = "did:plc:ejr6eouxxk3z2tefnsbl7zp2"

K256_KEY = "did:key:zQ3shSVq7cGySsLLdzyRsqagmVrYvnKop69VsMo2znNBeHzuV"
BOB_RENAMED = datetime(2026, 11, 29, 23, 40, 29, 239000, UTC)
MARCH = datetime(2026, 3, 1, tzinfo=UTC)
INSTANT = timedelta(microseconds=1)


@pytest.fixture(scope="module")
def recorded() -> PlcExport:
    return PlcExport.read(PLC / "export.jsonl")


def operation(**changes: object) -> dict[str, object]:
    return {
        "type": "plc_operation",
        "verificationMethods": {"atproto": K256_KEY},
        "rotationKeys": [],
        "alsoKnownAs": ["at://mara.test"],
        "services": {"atproto_pds": {"type": "AtprotoPersonalDataServer", "endpoint": "https://pds.example.com"}},
        "prev": None,
    } | changes


def line(did: str = BOB, **changes: object) -> dict[str, object]:
    return {"did": did, "operation": operation(), "nullified": False, "createdAt": "2026-03-01T00:00:00.000Z"} | changes


def export_of(path: Path, *lines: object) -> PlcExport:
    export = path / "export.jsonl"
    export.write_text("".join(json.dumps(each) + "\n" for each in lines), "utf-8")
    return PlcExport.read(export)


def only(path: Path, **changes: object) -> Identity:
    identity = export_of(path, line(operation=operation(**changes))).last(BOB)
    assert identity is not None
    return identity


def test_an_operation_holds_from_its_own_instant(recorded: PlcExport) -> None:
    before, after = recorded.at(BOB, BOB_RENAMED - INSTANT), recorded.at(BOB, BOB_RENAMED)
    assert before is not None
    assert after is not None
    assert (before.handle, after.handle) == ("bob.test", "bob-renamed.test")
    assert after.resolved_at == BOB_RENAMED


def test_nothing_is_known_before_the_first_operation_or_of_a_stranger(recorded: PlcExport) -> None:
    assert recorded.at(BOB, MARCH) is None
    assert recorded.at("did:plc:stranger", BOB_RENAMED) is None
    assert recorded.last("did:plc:stranger") is None


def test_the_last_identity_is_the_one_at_the_end(recorded: PlcExport) -> None:
    last = recorded.last(BOB)
    assert last is not None
    assert last.handle == "bob-renamed.test"
    assert last == recorded.at(BOB, BOB_RENAMED + timedelta(days=900))


def test_a_tombstone_leaves_neither_handle_nor_host_nor_key(recorded: PlcExport) -> None:
    identity = recorded.last(FRANK)
    assert identity is not None
    assert identity.tombstoned
    assert (identity.handle, identity.host, identity.signing_key) == (None, None, None)


def test_a_move_changes_host_and_key_and_the_old_key_stays_valid_for_its_time(recorded: PlcExport) -> None:
    moved = recorded.last(GRACE)
    assert moved is not None
    assert moved.host == "http://localhost:2584"
    before = recorded.at(GRACE, moved.resolved_at - INSTANT)
    assert before is not None
    assert before.host == "http://localhost:2583"
    assert recorded.keys_valid_at(GRACE, moved.resolved_at - INSTANT) == {before.signing_key}
    assert recorded.keys_valid_at(GRACE, moved.resolved_at) == {moved.signing_key}
    assert before.signing_key != moved.signing_key


def test_no_key_is_valid_before_the_first_operation_or_after_a_tombstone(recorded: PlcExport) -> None:
    end = BOB_RENAMED + timedelta(days=1)
    assert recorded.keys_valid_at(BOB, MARCH) == frozenset()
    assert recorded.keys_valid_at(FRANK, end) == frozenset()


def test_nullified_operations_never_stood(tmp_path: Path) -> None:
    stolen = line(
        operation=operation(alsoKnownAs=["at://thief.test"]), nullified=True, createdAt="2026-04-01T00:00:00Z"
    )
    export = export_of(tmp_path, line(), stolen)
    last = export.last(BOB)
    assert last is not None
    assert last.handle == "mara.test"
    assert len(list(export.changes(None, None))) == 1


def test_the_first_form_of_operations_is_read(tmp_path: Path) -> None:
    create = {
        "type": "create",
        "signingKey": K256_KEY,
        "recoveryKey": K256_KEY,
        "handle": "Mara.bsky.example",
        "service": "https://pds.example.com",
        "prev": None,
        "sig": "…",
    }
    identity = export_of(tmp_path, line(operation=create)).last(BOB)
    assert identity == Identity(
        BOB, "mara.bsky.example", "https://pds.example.com", K256_KEY, tombstoned=False, resolved_at=MARCH
    )


@pytest.mark.parametrize(
    ("also_known_as", "handle"),
    [
        (["at://Mara.TEST"], "mara.test"),
        (["https://mara.example", "at://mara.test", "at://other.test"], "mara.test"),
        (["at://no_handle", "at://mara.test"], None),
        (["at://"], None),
        ([], None),
    ],
)
def test_the_first_at_uri_is_the_handle_in_lower_case(
    tmp_path: Path, also_known_as: list[str], handle: str | None
) -> None:
    assert only(tmp_path, alsoKnownAs=also_known_as).handle == handle


@pytest.mark.parametrize(
    ("service", "host"),
    [
        ({"type": "AtprotoPersonalDataServer", "endpoint": "https://PDS.example.com/"}, "https://pds.example.com"),
        ({"type": "AtprotoPersonalDataServer", "endpoint": "https://pds.example.com/path"}, None),
        ({"type": "AtprotoPersonalDataServer", "endpoint": "not a url"}, None),
        ({"type": "SomethingElse", "endpoint": "https://pds.example.com"}, None),
    ],
)
def test_a_host_is_normalised_or_absent(tmp_path: Path, service: dict[str, str], host: str | None) -> None:
    assert only(tmp_path, services={"atproto_pds": service}).host == host


def test_an_operation_without_services_has_no_host(tmp_path: Path) -> None:
    assert only(tmp_path, services={}).host is None


@pytest.mark.parametrize("methods", [{}, {"atproto": "did:key:zNonsense"}, {"atproto": "did:web:example.com"}])
def test_a_key_that_cannot_be_read_is_no_key(tmp_path: Path, methods: dict[str, str]) -> None:
    assert only(tmp_path, verificationMethods=methods).signing_key is None


def test_unknown_properties_of_lines_and_operations_are_passed_over(tmp_path: Path) -> None:
    newer = line(operation=operation(future=1)) | {"seq": 5, "type": "sequenced_op"}
    assert export_of(tmp_path, newer).last(BOB) is not None


def test_lines_may_come_in_any_order(tmp_path: Path) -> None:
    renamed = line(operation=operation(alsoKnownAs=["at://new.test"]), createdAt="2026-04-01T00:00:00Z")
    export = export_of(tmp_path, renamed, line())
    assert [identity.handle for identity in export.changes(None, None)] == ["mara.test", "new.test"]


def test_blank_lines_are_passed_over(tmp_path: Path) -> None:
    export = tmp_path / "export.jsonl"
    export.write_text("\n" + json.dumps(line()) + "\n\n", "utf-8")
    assert PlcExport.read(export).last(BOB) is not None


@pytest.mark.parametrize(
    "bad",
    [
        "{",
        "[]",
        "null",
        "{}",
        json.dumps(line(did="alice")),
        json.dumps(line(createdAt="yesterday")),
        json.dumps(line(createdAt="2026-03-01T00:00:00")),
        json.dumps(line(operation=None)),
        json.dumps(line(operation={"type": "plc_invention"})),
        json.dumps(line(operation=operation(alsoKnownAs="at://mara.test"))),
        json.dumps(line(operation=operation(services=None))),
        json.dumps(line(nullified="no")),
        json.dumps(
            {"did": "did:web:a.example", "document": {"id": "did:web:b.example"}, "createdAt": "2026-03-01T00:00:00Z"}
        ),
        json.dumps({"did": "did:web:a.example", "document": 5, "createdAt": "2026-03-01T00:00:00Z"}),
        "[" * 100_000,
    ],
)
def test_a_malformed_line_is_named_by_file_and_number(tmp_path: Path, bad: str) -> None:
    export = tmp_path / "export.jsonl"
    export.write_text(json.dumps(line()) + "\n" + bad + "\n", "utf-8")
    with pytest.raises(Misconfigured, match=r"export\.jsonl, line 2: ") as refused:
        PlcExport.read(export)
    assert refused.value.context["line"] == 2


def test_bytes_that_are_no_text_are_a_malformed_line(tmp_path: Path) -> None:
    export = tmp_path / "export.jsonl"
    export.write_bytes(b"\xff\xfe\x00\n")
    with pytest.raises(Misconfigured, match="line 1"):
        PlcExport.read(export)


def test_an_export_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="absent"):
        PlcExport.read(tmp_path / "absent.jsonl")


def test_changes_exclude_the_start_and_include_the_end(recorded: PlcExport) -> None:
    changed = [identity.did for identity in recorded.changes(BOB_RENAMED - INSTANT, BOB_RENAMED)]
    assert changed == [BOB]
    assert list(recorded.changes(BOB_RENAMED, BOB_RENAMED)) == []


HISTORIES = st.lists(
    st.builds(
        Identity,
        did=st.sampled_from(["did:plc:a", "did:plc:b", "did:plc:c"]),
        handle=st.sampled_from([None, "a.test", "b.test"]),
        host=st.none(),
        signing_key=st.none(),
        tombstoned=st.booleans(),
        resolved_at=st.integers(0, 30).map(lambda minutes: MARCH + timedelta(minutes=minutes)),
    ),
    max_size=12,
)
TIMES = st.integers(-1, 31).map(lambda minutes: MARCH + timedelta(minutes=minutes))


@given(HISTORIES, TIMES)
def test_the_identity_at_a_time_is_the_latest_until_then(history: list[Identity], time: datetime) -> None:
    export = PlcExport(history)
    for did in ("did:plc:a", "did:plc:b", "did:plc:c"):
        until = [each for each in history if each.did == did and each.resolved_at <= time]
        latest = max(reversed(until), key=lambda each: each.resolved_at, default=None)
        assert export.at(did, time) == latest


@given(HISTORIES, st.lists(TIMES, max_size=5).map(sorted))
def test_a_clock_that_advances_in_any_steps_meets_every_change_once(
    history: list[Identity], stops: Sequence[datetime]
) -> None:
    export = PlcExport(history)
    bounds = [None, *stops, None]
    met = [each for after, until in pairwise(bounds) for each in export.changes(after, until)]
    assert met == list(export.changes(None, None))
    assert sorted(map(repr, met)) == sorted(map(repr, history))


def test_a_document_line_holds_from_when_it_was_met(tmp_path: Path) -> None:
    did = "did:web:mara.example"
    document = {
        "@context": ["https://www.w3.org/ns/did/v1"],
        "id": did,
        "alsoKnownAs": ["at://mara.example"],
        "verificationMethod": [
            {"id": f"{did}#atproto", "type": "Multikey", "controller": did, "publicKeyMultibase": K256_KEY[8:]}
        ],
        "service": [
            {"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": "https://pds.example"}
        ],
    }
    export = export_of(tmp_path, {"did": did, "document": document, "createdAt": "2026-03-01T02:00:00+02:00"}, line())
    assert export.at(did, MARCH - INSTANT) is None
    assert export.at(did, MARCH) == Identity(
        did, "mara.example", "https://pds.example", K256_KEY, tombstoned=False, resolved_at=MARCH
    )


def test_documents_say_the_same_as_the_directory_that_made_them(recorded: PlcExport) -> None:
    documents = json.loads((PLC / "did-docs.json").read_text("utf-8"))
    served = {did: document for did, document in documents.items() if "id" in document}
    assert len(served) == 7
    for did, document in served.items():
        last = recorded.last(did)
        assert last is not None
        assert identity_of_document(parse_document(did, json.dumps(document).encode()), last.resolved_at) == last


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"verificationMethod": [{"id": "#other", "type": "Multikey", "publicKeyMultibase": K256_KEY[8:]}]},
        {"verificationMethod": [{"id": "#atproto", "type": "JsonWebKey2020"}]},
        {"verificationMethod": [{"id": "#atproto", "type": "Multikey", "publicKeyMultibase": "zNonsense"}]},
        {"service": [{"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": {"uri": "x"}}]},
        {"service": [{"id": "#other", "type": ["LinkedDomains"], "serviceEndpoint": ["https://example.com"]}]},
    ],
)
def test_a_document_may_lack_everything_but_its_id(document: dict[str, object]) -> None:
    did = "did:web:mara.example"
    parsed = parse_document(did, json.dumps(document | {"id": did}).encode())
    assert identity_of_document(parsed, MARCH) == Identity(did, None, None, None, tombstoned=False, resolved_at=MARCH)


def test_the_first_of_several_keys_counts() -> None:
    did = "did:web:mara.example"
    methods = [
        {"id": "#atproto", "type": "Multikey", "publicKeyMultibase": K256_KEY[8:]},
        {"id": "#atproto", "type": "Multikey", "publicKeyMultibase": "zNonsense"},
    ]
    parsed = parse_document(did, json.dumps({"id": did, "verificationMethod": methods}).encode())
    assert identity_of_document(parsed, MARCH).signing_key == K256_KEY


@pytest.mark.parametrize(
    "answer", [b"", b"<html>", b"{}", b'{"id": 5}', b'{"id": "did:web:other.example"}', b"\xff", b"[" * 100_000]
)
def test_an_answer_that_is_no_document_of_that_did_is_refused(answer: bytes) -> None:
    with pytest.raises(BadIdentity):
        parse_document("did:web:mara.example", answer)


@pytest.mark.parametrize(
    ("did", "url"),
    [
        ("did:web:mara.example", "https://mara.example/.well-known/did.json"),
        ("did:web:localhost", "http://localhost/.well-known/did.json"),
        ("did:web:localhost%3A2583", "http://localhost:2583/.well-known/did.json"),
    ],
)
def test_the_document_of_a_did_web_stands_at_its_host(did: str, url: str) -> None:
    assert did_web_url(did) == url


@pytest.mark.parametrize(
    "did",
    [
        "did:web:mara.example:people:mara",
        "did:web:mara.example%3A8443",
        "did:web:localhost%3A25x83",
        "did:web:169.254.169.254",
        "did:web:internal",
        "did:web:",
        "did:key:zQ3sh",
    ],
)
def test_forms_of_did_web_that_the_protocol_does_not_use_are_not_asked_for(did: str) -> None:
    with pytest.raises(BadIdentity):
        did_web_url(did)


def test_an_audit_log_gives_the_history_of_its_did(recorded: PlcExport) -> None:
    logs = json.loads((PLC / "plc-audit-logs.json").read_text("utf-8"))
    history = PlcExport.of_audit_log(GRACE, json.dumps(logs[GRACE]).encode())
    assert list(history.changes(None, None)) == [each for each in recorded.changes(None, None) if each.did == GRACE]


@pytest.mark.parametrize(
    "answer", [b"", b"{}", b'{"message": "not found"}', b"[{}]", json.dumps([line(GRACE)]).encode()]
)
def test_an_answer_that_is_no_audit_log_of_that_did_is_refused(answer: bytes) -> None:
    with pytest.raises(BadIdentity):
        PlcExport.of_audit_log(BOB, answer)
