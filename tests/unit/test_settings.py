from __future__ import annotations

import re
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from memory.errors import Misconfigured
from memory.settings import PARTS, default_text, load

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_nothing_set_gives_the_defaults():
    settings = load({})
    assert settings.database.url is None
    assert settings.database.data_dir == Path(".data/postgres")
    assert settings.indexer.plc_url == "https://plc.directory"
    assert settings.indexer.repos == "all"
    assert settings.indexer.repo_max_bytes == 256 * 1024 * 1024
    assert (settings.appview.host, settings.appview.port) == ("127.0.0.1", 8600)


def test_empty_and_blank_variables_count_as_unset():
    assert load({"DATABASE_URL": "", "APPVIEW_PORT": " ", "INDEXER_REPOS": "\t", "APPVIEW_COLOUR": ""}) == load({})


def test_variables_of_others_are_not_ours():
    assert load({"PATH": "/bin", "PORT": "1", "MY_APPVIEW_PORT": "1"}) == load({})


def test_lists_are_split_and_sources_spelled_one_way():
    settings = load(
        {
            "INDEXER_RELAY_URLS": "wss://Relay.example, https://b.example:443",
            "INDEXER_PDS_URLS": "localhost:2583",
            "APPVIEW_PUBLIC_URL": "https://memory.example/",
        }
    )
    assert settings.indexer.relay_urls == ("https://relay.example", "https://b.example")
    assert settings.indexer.pds_urls == ("http://localhost:2583",)
    assert settings.appview.public_url == "https://memory.example"


def test_sizes_take_units():
    assert load({"INDEXER_REPO_MAX_BYTES": "1 GiB"}).indexer.repo_max_bytes == 2**30
    assert load({"INDEXER_REPO_MAX_BYTES": "1000"}).indexer.repo_max_bytes == 1000


def test_repos_come_from_a_file_of_dids(tmp_path: Path):
    file = tmp_path / "repos"
    file.write_text("did:plc:abc # ours\n\n# nobody\ndid:web:example.com\n")
    assert load({"INDEXER_REPOS": str(file)}).indexer.repos == {"did:plc:abc", "did:web:example.com"}


def test_line_that_is_no_did_is_told_by_its_number(tmp_path: Path):
    file = tmp_path / "repos"
    file.write_text("did:plc:abc\nalice.example\n")
    with pytest.raises(Misconfigured, match="INDEXER_REPOS cannot be used: line 2 of that file is no DID"):
        load({"INDEXER_REPOS": str(file)})


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("DATABASE_URL", "mysql://me:Mandarin@host/db"),
        ("DATABASE_URL", "host=localhost password=Mandarin"),
        ("INDEXER_RELAY_URLS", "relay.example/xrpc"),
        ("INDEXER_PDS_URLS", "ftp://pds.example"),
        ("INDEXER_PLC_URL", "plc directory"),
        ("INDEXER_REPOS", "/no/such/file"),
        ("INDEXER_REPO_MAX_MEMORIES", "0"),
        ("INDEXER_REPO_MAX_BYTES", "much"),
        ("INDEXER_REPO_MAX_BYTES", "0"),
        ("INDEXER_REPO_MAX_EDGES", "-1"),
        ("INDEXER_BATCH_EVENTS", "1.5"),
        ("INDEXER_HEALTH_PORT", "0"),
        ("INDEXER_HEALTH_PORT", "65536"),
        ("INDEXER_VERSION_CONTENT_DAYS", "-1"),
        ("INDEXER_HOST_RATE", "0"),
        ("INDEXER_HOST_RATE", "nan"),
        ("INDEXER_HOST_RATE", "inf"),
        ("INDEXER_FETCHES_AT_ONCE", "0"),
        ("INDEXER_FETCHES_AT_ONCE", "65"),
        ("INDEXER_SPOOL_DIR", "/no/such/folder"),
        ("INDEXER_AUDIT_DAYS", "-1"),
        ("APPVIEW_PORT", "65536"),
        ("APPVIEW_PORT", "http"),
        ("APPVIEW_PUBLIC_URL", "https://memory.example/api"),
        ("EMBEDDING_BACKEND", "gpu"),
        ("EMBEDDING_THREADS", "0"),
        ("EMBEDDING_ALLOW_PRIVATE", "perhaps"),
        ("EMBEDDING_URL", "localhost:11434"),
        ("EMBEDDING_URL", "ftp://localhost/v1"),
        ("EMBEDDING_URL", "http://me:Mandarin@localhost/v1"),
        ("EMBEDDING_URL", "http://localhost/v1?key=Mandarin"),
        ("EMBEDDING_URL", "http://localhost/v 1"),
        ("EMBEDDING_MODEL", "two words"),
        ("EMBEDDING_API_KEY", "Mandarin duck"),
        ("EMBEDDING_DIMENSIONS", "4001"),
        ("EMBEDDING_PASSAGE_TYPE", "query"),
        ("EMBEDDING_BATCH_SIZE", "0"),
        ("EMBEDDING_TIMEOUT_SECONDS", "nan"),
        ("EMBEDDING_ONNX_DIR", "/no/such/folder"),
        ("EMBEDDING_ONNX_POOLING", "max"),
        ("SPACES_MAX_STALENESS_S", "0"),
        ("SPACES_MAX_STALENESS_S", "86401"),
        ("SPACES_MAX_STALENESS_S", "soon"),
    ],
)
def test_value_that_cannot_be_used_is_told_by_setting_and_meaning(setting: str, value: str):
    with pytest.raises(Misconfigured, match=f"^{setting} cannot be used: ") as caught:
        load({setting: value})
    assert caught.value.setting == setting
    assert "Default: " in str(caught.value)
    assert "Mandarin" not in str(caught.value)


@pytest.mark.parametrize(
    ("backend", "given", "missing"),
    [
        ("server", {}, "EMBEDDING_URL"),
        ("server", {"EMBEDDING_URL": "http://localhost/v1"}, "EMBEDDING_MODEL"),
        ("onnx", {}, "EMBEDDING_ONNX_DIR"),
    ],
)
def test_embedding_backend_without_what_it_needs_is_refused(backend: str, given: dict[str, str], missing: str):
    with pytest.raises(Misconfigured, match=f"^{missing} cannot be used: with EMBEDDING_BACKEND={backend}") as caught:
        load({"EMBEDDING_BACKEND": backend} | given)
    assert caught.value.setting == missing


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("http://LOCALHOST:11434", "http://localhost:11434/v1/embeddings"),
        ("http://localhost:11434/v1/", "http://localhost:11434/v1/embeddings"),
        ("https://api.example/v1/embeddings", "https://api.example/v1/embeddings"),
        ("https://api.example/openai/v3", "https://api.example/openai/v3/embeddings"),
    ],
)
def test_address_of_an_embedding_server_is_completed(given: str, asked: str):
    assert load({"EMBEDDING_URL": given}).embedding.url == asked


def test_key_and_a_file_with_it_are_not_both_taken():
    with pytest.raises(Misconfigured, match="EMBEDDING_API_KEY_FILE cannot be used: EMBEDDING_API_KEY is set too"):
        load({"EMBEDDING_API_KEY": "a", "EMBEDDING_API_KEY_FILE": "/run/secrets/key"})


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("APPVIEW_PROT", "APPVIEW_PORT"), ("INDEXER_RELAY_URL", "INDEXER_RELAY_URLS"), ("INDEXER_REPO", "INDEXER_REPOS")],
)
def test_unknown_name_is_refused_with_the_nearest_known(name: str, nearest: str):
    with pytest.raises(Misconfigured, match=rf"^{name} is no setting\. Did you mean {nearest}\?") as caught:
        load({name: "x"})
    assert caught.value.setting == name


@pytest.mark.parametrize("name", ["EMBEDDING_QQQQQQQQQQQQQQQQ", "SPACES_QQQQQQQQQQQQQQQQ", "APPVIEW_QQQQQQQQQQQQQQQQ"])
def test_unknown_name_like_no_other_is_refused_with_the_page(name: str):
    with pytest.raises(Misconfigured, match=r"docs/settings\.md"):
        load({name: "x"})


def test_unknown_database_name_is_only_warned_of():
    with capture_logs() as logs:
        assert load({"DATABASE_PRIVATE_HOST": "Mandarin"}) == load({})
    assert logs == [{"event": "setting_ignored", "log_level": "warning", "setting": "DATABASE_PRIVATE_HOST"}]


def test_password_is_not_shown():
    settings = load({"DATABASE_URL": "postgresql://me:Mandarin@host/db"})
    assert "Mandarin" not in repr(settings)


def test_page_and_models_name_the_same_settings_defaults_and_meanings():
    written = re.findall(r"^\| `([A-Z_]+)` \| `?([^`|]+)`? \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    read = [
        (name, default_text(part, field), part.model_fields[field].description)
        for part in PARTS
        for name, field in part.variables().items()
    ]
    assert written == read
