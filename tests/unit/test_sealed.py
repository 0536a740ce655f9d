from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from memory.errors import Misconfigured
from memory.sealed import KEY_BYTES, MAX_KEYS, SETTING, NotSealedHere, SealingKeys

OLD, NEW = random.Random(1).randbytes(KEY_BYTES), random.Random(2).randbytes(KEY_BYTES)
SECRET = b"a secret of Mara's"
OWNER = ("space credential", "at://did:plc:mara/space/dev.bastienrobert.memory.space/main", "did:plc:mara")


BOTH = {"new": NEW, "old": OLD}


def keys(by_id: Mapping[str, bytes] = BOTH) -> SealingKeys:
    return SealingKeys(by_id, random_bytes=random.Random(7).randbytes)


def written(folder: Path, text: str | bytes, mode: int = 0o600) -> Path:
    file = folder / "keys"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    file.chmod(mode)
    return file


def read(file: Path) -> SealingKeys:
    return SealingKeys.read(file, random_bytes=random.Random(7).randbytes)


# Sealing


def test_sealed_secret_opens_for_its_owner():
    assert keys().open(keys().seal(SECRET, *OWNER), *OWNER) == SECRET


@given(st.binary(max_size=2000), st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4))
def test_whatever_is_sealed_opens_again(secret: bytes, owner: list[str]):
    assert keys().open(keys().seal(secret, *owner), *owner) == secret


def test_sealed_secret_shows_nothing_but_its_length_and_the_id_of_its_key():
    sealed = keys().seal(SECRET, *OWNER)
    assert sealed.startswith(b"\x01\x03new")
    assert SECRET not in sealed
    assert len(sealed) == 5 + 12 + len(SECRET) + 16


def test_same_secret_is_sealed_differently_each_time():
    sealing = keys()
    assert sealing.seal(SECRET, *OWNER) != sealing.seal(SECRET, *OWNER)


@pytest.mark.parametrize(
    "owner",
    [
        ("space credential", OWNER[1], "did:plc:noor"),
        ("space credential", OWNER[1] + "2", OWNER[2]),
        ("client key", OWNER[1], OWNER[2]),
        ("space credential", OWNER[2], OWNER[1]),
        ("space credential", OWNER[1] + OWNER[2], ""),
        ("space credential", OWNER[1] + OWNER[2]),
        (*OWNER, ""),
        (),
    ],
)
def test_sealed_secret_opens_for_nobody_else(owner: tuple[str, ...]):
    with pytest.raises(NotSealedHere):
        keys().open(keys().seal(SECRET, *OWNER), *owner)


def test_sealed_secret_of_which_any_bit_changed_does_not_open():
    sealed = keys().seal(SECRET, *OWNER)
    for at in range(len(sealed)):
        for bit in range(8):
            changed = bytearray(sealed)
            changed[at] ^= 1 << bit
            with pytest.raises(NotSealedHere):
                keys().open(bytes(changed), *OWNER)


def test_sealed_secret_that_was_cut_or_grew_does_not_open():
    sealed = keys().seal(SECRET, *OWNER)
    for spoilt in [*(sealed[:length] for length in range(len(sealed))), sealed + b"\0"]:
        with pytest.raises(NotSealedHere):
            keys().open(spoilt, *OWNER)


@given(st.binary(max_size=100))
def test_bytes_that_nobody_sealed_do_not_open(junk: bytes):
    with pytest.raises(NotSealedHere):
        keys().open(junk, *OWNER)


@pytest.mark.parametrize("others", [{"new": OLD}, {"old": OLD}, {"old": NEW}])
def test_sealed_secret_opens_with_its_own_key_only(others: dict[str, bytes]):
    sealed = keys().seal(SECRET, *OWNER)
    with pytest.raises(NotSealedHere):
        keys(others).open(sealed, *OWNER)


def test_failure_to_open_tells_nothing():
    sealed = keys().seal(SECRET, *OWNER)
    failures: list[NotSealedHere] = []
    for opening, owner in ((keys({"new": OLD}), OWNER), (keys({"old": OLD}), OWNER), (keys(), ())):
        with pytest.raises(NotSealedHere) as caught:
            opening.open(sealed, *owner)
        failures.append(caught.value)
    assert {str(failure) for failure in failures} == {"A sealed secret cannot be opened."}
    assert all(failure.context == {} and failure.__cause__ is None for failure in failures)


# Rotation


def test_secret_under_an_old_key_opens_and_is_sealed_anew_by_the_first():
    sealed = keys({"old": OLD}).seal(SECRET, *OWNER)
    resealed = keys().reseal(sealed, *OWNER)
    assert resealed is not None
    assert keys({"new": NEW}).open(resealed, *OWNER) == SECRET
    assert keys().reseal(resealed, *OWNER) is None


def test_nothing_is_sealed_anew_for_another_owner():
    with pytest.raises(NotSealedHere):
        keys().reseal(keys({"old": OLD}).seal(SECRET, *OWNER), *OWNER[:2], "did:plc:noor")


def test_beginning_of_what_the_current_key_sealed_tells_it_from_all_else():
    rotating = keys()
    assert rotating.seal(SECRET, *OWNER).startswith(rotating.current_header)
    for key_id in ("ne", "new2", "old"):
        assert not keys({key_id: OLD}).seal(SECRET, *OWNER).startswith(rotating.current_header)


# The file


def test_first_key_of_the_file_seals_and_all_open(tmp_path: Path):
    file = written(
        tmp_path, f"# rotated in spring\n\n2026-03 {NEW.hex()}  # openssl rand -hex 32\r\n 2025 {OLD.hex()}\n"
    )
    found = read(file)
    assert found.current == "2026-03"
    assert found.open(keys({"2025": OLD}).seal(SECRET, *OWNER), *OWNER) == SECRET
    assert found.seal(SECRET, *OWNER).startswith(b"\x01\x072026-03")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it holds no key"),
        ("# none yet\n", "it holds no key"),
        (NEW.hex(), "line 1 is not an id"),
        (f"new {NEW.hex()}\nold", "line 2 is not an id"),
        (f"new {NEW.hex()[:-2]}", "line 1 is not an id"),
        (f"new {NEW.hex()}00", "line 1 is not an id"),
        (f"new {NEW.hex().upper()}", "line 1 is not an id"),
        (f"new:{NEW.hex()}", "line 1 is not an id"),
        (f"new {NEW.hex()} old", "line 1 is not an id"),
        (f"a/b {NEW.hex()}", "line 1 is not an id"),
        (f"{'n' * 33} {NEW.hex()}", "line 1 is not an id"),
        (f"new {'0' * 64}", "the key in line 1 is not random"),
        (f"new {'0123' * 16}", "the key in line 1 is not random"),
        (f"new {NEW.hex()}\nnew {OLD.hex()}", "line 2 stands there twice"),
        (f"new {NEW.hex()}\nold {NEW.hex()}", "line 2 stands there twice"),
        (f"néw {NEW.hex()}", "it is no ASCII text"),
        ("\n" * 70_000, "it is too large"),
        ("".join(f"k{n} {random.Random(n).randbytes(32).hex()}\n" for n in range(MAX_KEYS + 1)), "it holds more than"),
    ],
)
def test_file_that_is_none_of_keys_is_refused_and_not_repeated(tmp_path: Path, text: str, why: str):
    with pytest.raises(Misconfigured, match=why) as caught:
        read(written(tmp_path, text))
    assert caught.value.setting == SETTING == "SPACES_KEY_FILE"
    assert NEW.hex()[:16] not in str(caught.value).lower()


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_file_that_others_may_write_is_refused(tmp_path: Path, mode: int):
    with pytest.raises(Misconfigured, match="others than its owner may write it"):
        read(written(tmp_path, f"new {NEW.hex()}", mode))


@pytest.mark.parametrize(("mode", "warnings"), [(0o600, 0), (0o640, 0), (0o444, 1)])
def test_file_that_all_may_read_is_warned_of(tmp_path: Path, mode: int, warnings: int):
    with capture_logs() as logs:
        read(written(tmp_path, f"new {NEW.hex()}", mode))
    expected = {"event": "key_file_readable_by_all", "setting": SETTING, "log_level": "warning"}
    assert logs == [expected] * warnings


def test_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(Misconfigured, match=rf"No such file or directory: {tmp_path}/keys\.$"):
        read(tmp_path / "keys")


def test_relative_path_is_told_as_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Misconfigured, match=rf": {tmp_path}/none/keys\.$"):
        read(Path("none/keys"))


@pytest.mark.parametrize("key", [f"new {NEW.hex()}", NEW.hex().upper(), "-----BEGIN PRIVATE KEY-----\nMIGH/AgEA"])
def test_key_in_the_place_of_a_file_name_is_not_shown(key: str):
    with pytest.raises(Misconfigured, match=r"^SPACES_KEY_FILE cannot be used: No such file or directory\.$"):
        read(Path(key))


def test_folder_is_no_file_of_keys(tmp_path: Path):
    with pytest.raises(Misconfigured, match="it is no file"):
        read(tmp_path)


def test_keys_are_not_shown():
    assert NEW.hex() not in repr(keys())
    assert repr(NEW)[2:20] not in repr(keys())
