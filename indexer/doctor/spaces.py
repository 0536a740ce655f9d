"""Private Spaces: the files of keys, whether they open what is kept, and whether Spaces can believe who we are."""

from __future__ import annotations

import json
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from indexer.doctor.network import Endpoint, Network, NoAnswer
from indexer.doctor.report import Check, failed, passed, warned
from indexer.store.sealed import BEFORE_ALL, load_sealed_by_others
from memory.client_keys import KEYS_PATH, METADATA_PATH, key_set, read_client_keys
from memory.client_keys import SETTING as CLIENT_SETTING
from memory.errors import Misconfigured
from memory.es256 import Es256Key
from memory.queries import Connection
from memory.sealed import SETTING, NotSealedHere, SealingKeys
from memory.space_credential import open_credential

KEYS: Final = "space keys"
CLIENT: Final = "space client"
CREDENTIALS_LOOKED_AT: Final = 100_000

_AT_ONCE: Final = 1_000
_ALL_KEYS: Final = ""  # no key has this id
_IDS_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class SpaceFiles:
    """Where keys are."""

    keys: Path | None = None  # null: there are to be no Spaces
    client_keys: Path | None = None

    @property
    def in_use(self) -> bool:
        """Whether there are to be Spaces."""
        return self.keys is not None


@dataclass(frozen=True, slots=True)
class Kept:
    """Credentials that are kept, by whether the keys of the file open them."""

    in_all: int
    older: int = 0  # that a key opens which does not seal any more
    shut: int = 0  # that no key opens
    ids: tuple[str, ...] = ()  # of the keys that sealed those


def read_keys(file: Path | None) -> SealingKeys | Misconfigured | None:
    """The keys of the file, or what is wrong with it; None: there is none."""
    if file is None:
        return None
    try:
        return SealingKeys.read(file, random_bytes=secrets.token_bytes)
    except Misconfigured as failure:
        return failure


async def look_at_credentials(conn: Connection, keys: SealingKeys | None) -> Kept:
    """Tries to open what is kept, up to a bound; without keys, that is counted only. Raises StatementFailed."""
    in_all = older = shut = 0
    ids: dict[str, None] = {}
    last = BEFORE_ALL
    while in_all < CREDENTIALS_LOOKED_AT and (rows := await load_sealed_by_others(conn, _ALL_KEYS, last, _AT_ONCE)):
        in_all, last = in_all + len(rows), rows[-1]
        if keys is None:
            continue
        for row in rows:
            try:
                open_credential(keys, row.sealed, space=row.space, viewer=row.repo)
            except NotSealedHere:
                shut += 1
            else:
                if row.sealed.startswith(keys.current_header):
                    continue
                older += 1
            ids[_key_id(row.sealed)] = None
    return Kept(in_all, older, shut, tuple(sorted(ids)))


def judge_keys(file: Path | None, keys: SealingKeys | Misconfigured | None, kept: Kept | None) -> Check:
    """By what was read of the file, and what it opens; null: the database could not be asked."""
    if keys is None or file is None:
        if kept is not None and kept.in_all:
            fix = f"Let the indexer have the file that the API has, by {SETTING}."
            return failed(KEYS, f"credentials are kept ({kept.in_all:,}), and {SETTING} is not set here", fix)
        return passed(KEYS, f"{SETTING} is not set: there are no private Spaces")
    if isinstance(keys, Misconfigured):
        return failed(KEYS, keys.message, "Mend that; docs/settings.md tells how to make such a file.")
    if kept is not None and kept.shut:
        return failed(
            KEYS,
            f"{kept.shut:,} of {kept.in_all:,} credentials open by no key of the file (sealed by {_shown(kept.ids)})",
            "Let the API and the indexer have the same file, and put back what was taken out of it. What stays shut is"
            " gone in two hours, and is opened anew by its viewers.",
        )
    if _is_open_to_all(file):
        return warned(KEYS, "everybody on this machine may read the file", f"Run `chmod 600` on the file of {SETTING}.")
    if kept is not None and kept.older:
        return warned(
            KEYS,
            f"{kept.older:,} of {kept.in_all:,} credentials are sealed by an older key ({_shown(kept.ids)})",
            "Run `python -m indexer rotate-key`, after the API was started with the file as it is.",
        )
    what = f"the key {keys.current} seals"
    if kept is None:
        return passed(KEYS, what)
    opened = f", and every credential kept opens ({kept.in_all:,})" if kept.in_all else "; no credential is kept yet"
    return passed(KEYS, what + opened)


async def check_client(network: Network, url: str | None, files: SpaceFiles) -> Check | None:
    """Whether the public URL leads to the keys by which we say who we are; None: nobody has to know."""
    if files.client_keys is None:
        return await _check_unset(network, url) if files.in_use and url is not None else None
    try:
        keys = read_client_keys(files.client_keys)
    except Misconfigured as failure:
        fix = "Mend that, for the API does not start with it; docs/settings.md tells how to make such a file."
        return failed(CLIENT, failure.message, fix)
    if url is None or not url.startswith("https://"):
        fix = "Set APPVIEW_PUBLIC_URL as https, like https://memory.example.com: the API does not start without."
        return failed(CLIENT, f"{CLIENT_SETTING} takes an APPVIEW_PUBLIC_URL by https", fix)
    try:
        wrong = await _check_shown(network, url, keys)
    except NoAnswer as silence:
        return warned(CLIENT, f"what {url} shows is not known: {silence.reason}", "Mend what `service` says.")
    if wrong is None and _is_open_to_all(files.client_keys):
        fix = f"Run `chmod 600` on the file of {CLIENT_SETTING}."
        return warned(CLIENT, "everybody on this machine may read the file", fix)
    return wrong or passed(CLIENT, f"{url}{METADATA_PATH} leads to what is public of the keys of the file")


async def _check_unset(network: Network, url: str) -> Check | None:
    try:
        answer = await network.get(Endpoint.of(url), KEYS_PATH)
    except NoAnswer:  # `service` says so
        return None
    if answer.status == HTTPStatus.OK:
        return passed(CLIENT, f"the API says who it is, by keys of which {CLIENT_SETTING} says nothing here")
    return passed(CLIENT, f"without {CLIENT_SETTING}, Spaces that let named apps in only are closed to this service")


async def _check_shown(network: Network, url: str, keys: tuple[Es256Key, ...]) -> Check | None:
    """What is wrong with what the API shows; None: nothing."""
    restart = f"Start `python -m appview serve` anew, with {CLIENT_SETTING} and APPVIEW_PUBLIC_URL as they are here."
    pages: dict[str, Any] = {}
    for path in (KEYS_PATH, METADATA_PATH):
        answer, body = await network.read(Endpoint.of(url), path)
        if answer.status != HTTPStatus.OK:
            fix = f"Let what listens there hand {path} on to the API. {restart}"
            return failed(CLIENT, f"{path} answers {answer.status}", fix)
        with suppress(ValueError):
            pages[path] = json.loads(body)
    if pages.get(KEYS_PATH) != json.loads(key_set(keys)):
        return failed(CLIENT, f"{KEYS_PATH} does not show the keys of the file", restart)
    match pages.get(METADATA_PATH):
        case {"client_id": str(client_id), "jwks_uri": str(jwks_uri)} if (client_id, jwks_uri) == (
            url + METADATA_PATH,
            url + KEYS_PATH,
        ):
            return None
        case _:
            return failed(CLIENT, f"{METADATA_PATH} is not that of a client at {url}", restart)


def _is_open_to_all(file: Path) -> bool:
    try:
        return bool(file.stat().st_mode & stat.S_IROTH)
    except OSError:  # it was read a moment ago
        return False


def _key_id(sealed: bytes) -> str:
    """The id of the key that sealed this, as it begins."""
    return sealed[2 : 2 + sealed[1]].decode("ascii", "replace") if len(sealed) > 1 else "nobody"


def _shown(ids: tuple[str, ...]) -> str:
    more = len(ids) - _IDS_SHOWN
    return ", ".join(ids[:_IDS_SHOWN]) + (f" and {more} more" if more > 0 else "")
