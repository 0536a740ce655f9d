from __future__ import annotations

import logging

import pytest

from memory.space import PUBLIC, ReadableSpaces, SpaceRef, parse_space_uri, space_of

SPACE = "at://did:plc:host/space/dev.bastienrobert.memory.space/main"


def test_a_space_uri_comes_out_as_it_went_in() -> None:
    space = parse_space_uri(SPACE)
    assert space == SpaceRef("did:plc:host", "dev.bastienrobert.memory.space", "main")
    assert str(space) == SPACE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "did:plc:host/space/dev.bastienrobert.memory.space/main",
        "at://did:plc:host",
        "at://did:plc:host/space/dev.bastienrobert.memory.space",
        f"{SPACE}/",
        f"{SPACE}?x=1",
        f"{SPACE}#/text",
        f"{SPACE}/did:plc:author/dev.bastienrobert.memory.record/3mine22222222",
        "at://host.test/space/dev.bastienrobert.memory.space/main",
        "at://did:plc:host/spaces/dev.bastienrobert.memory.space/main",
        "at://did:plc:host/space/short/main",
        "at://did:plc:host/space/dev.bastienrobert.memory.space/a b",
        "at://did:plc:host/space/dev.bastienrobert.memory.space/a%20b",
        "at://did:plc:host/space/dev.bastienrobert.memory.space/..",
        "at://did:web:localhost%3A2583/space/dev.bastienrobert.memory.space/main",
    ],
)
def test_anything_else_is_no_space(text: str) -> None:
    assert parse_space_uri(text) is None


def test_a_space_is_made_of_valid_parts_only() -> None:
    assert space_of("did:plc:host", "dev.bastienrobert.memory.space", "main") == parse_space_uri(SPACE)
    assert space_of("host.test", "dev.bastienrobert.memory.space", "main") is None


def test_public_records_are_readable_by_everybody() -> None:
    nobody = ReadableSpaces.public_only()
    assert nobody.as_list() == []
    assert PUBLIC in nobody
    assert SPACE not in nobody


def test_granted_spaces_are_readable_and_listed_in_order() -> None:
    second = f"{SPACE}-2"
    viewer = ReadableSpaces(frozenset({second, SPACE}))
    assert SPACE in viewer
    assert f"{SPACE}-3" not in viewer
    assert viewer.as_list() == [SPACE, second]


def test_public_is_never_among_the_granted_spaces() -> None:
    with pytest.raises(ValueError, match="need no permission"):
        ReadableSpaces(frozenset({PUBLIC}))


def test_equal_sets_of_spaces_are_equal() -> None:
    assert ReadableSpaces(frozenset({SPACE})) == ReadableSpaces(frozenset([SPACE]))
    assert hash(ReadableSpaces(frozenset())) == hash(ReadableSpaces.public_only())


def test_neither_a_space_nor_a_set_of_them_shows_its_uri_when_it_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    space = parse_space_uri(SPACE)
    viewer = ReadableSpaces(frozenset({SPACE}))
    logging.getLogger("test").warning("%r %r %s", space, viewer, [viewer])
    assert "memory.space" not in caplog.text
    assert "did:plc:host" not in caplog.text
    assert f"{viewer}" == "ReadableSpaces(…)"
