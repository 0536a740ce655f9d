"""What each statement says anew, it says alike: the filters, what masks a memory, and who may read it.

SQL has no name for a condition that costs nothing, so lists and search write theirs out in every select.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime

import pytest

from appview.filters import Filters
from memory.database import Database
from memory.queries import Statement, load_queries
from tests.architecture.selects import Parsed, Select, implies, parse, split, text_of
from tests.architecture.sources import ROOT
from tests.memory_rows import day

SQL = ROOT / "appview" / "store" / "sql"
FILES = {
    path.stem: {statement.name: statement for statement in load_queries(path)}
    for path in sorted(SQL.glob("*.sql"))
    # Those tell of memories that the others have found; and who may read what, whatever there is to read.
    if path.stem not in ("history", "views", "grants")
}
STATEMENTS = {name: statement for statements in FILES.values() for name, statement in statements.items()}

OF_MASKING = "include_superseded"
FILTERS = Filters().in_sql().keys() - {OF_MASKING}
IN_REPOS = frozenset({"repos", "memories", "memory_versions", "memory_edges", "embeddings", "invalid_records"})

# Conditions, one of which has to hold of whatever is read.
IN_READABLE_SPACE = frozenset({"space = ''", "space = any (:spaces)"})
OF_SERVED_REPO = frozenset({"visible", "status = 'deactivated'"})  # archived stores are shown, without what they hold

SAMPLES = """
    select ({shown}) as shown, ({masked}) as masked
    from unnest(array[null, '2026-01-02', '2026-01-03', '2026-01-04']::timestamptz[]) as f (masked_from)
    cross join unnest(
        array[null, '{{}}', '{{[2026-01-02,2026-01-03)}}', '{{[2026-01-03,)}}']::tstzmultirange[]
    ) as s (masked_spans)
"""


def parsed(statements: Iterable[Statement] = STATEMENTS.values()) -> list[tuple[Statement, Parsed]]:
    return [(statement, parse(statement)) for statement in statements]


def filters_of(select: Select) -> dict[str, str]:
    """The conditions that hold of everything while a parameter is null, by this parameter."""
    found: dict[str, str] = {}
    for group in select.groups():
        match next(iter(split(group, ",")), []):
            case [str(parameter), "is", "null", "or", *_] as condition if parameter[1:] in FILTERS:
                found[parameter[1:]] = text_of(condition)
            case _:
                pass
    return found


def masking_of(select: Select) -> str | None:
    """What says whether a newer memory masks one, unless that does not matter."""
    whole = [group for group in select.groups() if f":{OF_MASKING}" in group and "masked_from" in text_of(group)]
    return text_of([whole[0]]) if whole else None


def selects_in(*files: str) -> list[tuple[str, Select]]:
    statements = [statement for file in files for statement in FILES[file].values()]
    return [(statement.name, select) for statement, tree in parsed(statements) for select in tree.selects]


def unlike(texts: Iterable[tuple[str, str | None]]) -> set[str]:
    """The statements, first of each pair, that say another thing than most."""
    said = [(name, text) for name, text in texts if text is not None]
    usual = Counter(text for _, text in said).most_common(1)
    return {name for name, text in said if text != usual[0][0]}


def unlike_masking(statements: list[tuple[Statement, Parsed]]) -> set[str]:
    return unlike((statement.name, masking_of(select)) for statement, tree in statements for select in tree.selects)


def unlike_filters(statements: list[tuple[Statement, Parsed]], parameter: str) -> set[str]:
    selects = [(statement.name, select) for statement, tree in statements for select in tree.selects]
    return unlike((name, filters_of(select).get(parameter)) for name, select in selects)


def lacking_filters(statements: list[tuple[Statement, Parsed]]) -> set[tuple[str, ...]]:
    """The statements that take filters and read memories without one of them; with those that are missing."""
    return {
        (statement.name, *sorted(lacking))
        for statement, tree in statements
        if {*statement.parameters} & (FILTERS - {"as_of"})
        for select in tree.selects
        if "memories" in select.sources()
        if (lacking := lacking_in(select, tree, FILTERS | ({*statement.parameters} & {OF_MASKING})))
    }


def lacking_in(select: Select, tree: Parsed, wanted: AbstractSet[str]) -> set[str]:
    """Which filters are applied to its rows neither by itself nor by a select that it reads from."""
    lacking = {*wanted} - filters_of(select).keys() - ({OF_MASKING} if masking_of(select) else set())
    for selects in inner_sources(select, tree):
        lacking &= {name for each in selects for name in lacking_in(each, tree, lacking)}
    return lacking


def inner_sources(select: Select, tree: Parsed) -> list[list[Select]]:
    """What it reads that is another select of its statement, or some that are united."""
    sources = [tree.named.get(each, []) if isinstance(each, str) else each for each in select.sources()]
    return [selects for selects in sources if selects]


def unbound(statements: list[tuple[Statement, Parsed]], facts: frozenset[str]) -> set[str]:
    """The statements with a select that reads what is in repos, and for whose rows none of `facts` has to hold."""
    return {
        statement.name
        for statement, tree in statements
        for select in tree.selects
        if (tables := sum(source in IN_REPOS for source in select.sources() if isinstance(source, str)))
        if not is_bound(select, tree, facts) or ties_of(select) < tables - binds_itself(select, facts)
    }


def ties_of(select: Select) -> int:
    """How many tables it reads only in the Space of another one."""
    return sum(text_of(condition) in ("space = space", "space = :space") for condition in select.conditions())


def is_bound(select: Select, tree: Parsed, facts: frozenset[str]) -> bool:
    """Whether one of `facts` holds: by the select itself, by what it reads from, or by what it stands in."""
    return binds(select, tree, facts) or (select.outer is not None and is_bound(select.outer, tree, facts))


def binds(select: Select, tree: Parsed, facts: frozenset[str]) -> bool:
    if binds_itself(select, facts) or (facts is IN_READABLE_SPACE and "unnest (:spaces)" in select.sources()):
        return True
    return any(all(binds(each, tree, facts) for each in selects) for selects in inner_sources(select, tree))


def binds_itself(select: Select, facts: frozenset[str]) -> bool:
    return any(implies(condition, facts.__contains__) for condition in select.conditions())


def unlike_guards(statements: list[tuple[Statement, Parsed]]) -> set[str]:
    """Of the statements that may leave public memories out, those that say otherwise which Spaces they read."""
    guards = [
        (statement.name, text_of(condition))
        for statement, tree in statements
        if "public" in statement.parameters
        for select in tree.selects
        for condition in select.conditions()
        if any(word in text_of(condition) for word in (":spaces", ":public", "space = ''"))
        if "select" not in text_of(condition)
        if "space <= ''" not in text_of(condition)  # that says less than another, for the planner
    ]
    return unlike(guards)


def test_there_are_filters_in_lists_and_in_search():
    filtered = {name for name, statement in STATEMENTS.items() if {*statement.parameters} >= FILTERS}
    assert {"list_newest", "list_occurred_of", "search_of", "search_all", "explain_memory"} <= filtered


@pytest.mark.parametrize("parameter", sorted(FILTERS))
def test_a_filter_is_the_same_in_every_select(parameter: str):
    assert unlike_filters(parsed(), parameter) == set()


def test_who_takes_filters_applies_all_of_them_wherever_memories_are_read():
    assert lacking_filters(parsed()) == set()


@pytest.mark.parametrize("file", FILES)
def test_what_masks_a_memory_is_the_same_in_every_select_of_a_file(file: str):
    assert unlike_masking(parsed(FILES[file].values())) == set()


@pytest.mark.parametrize("include_superseded", [False, True])
@pytest.mark.parametrize("as_of", [None, day(1), day(2), day(3)])
async def test_lists_and_searches_agree_on_what_is_masked(
    database: Database, as_of: datetime | None, include_superseded: bool
):
    """Lists say what is not, so that an index finds it. Here both are asked of the same memories."""
    [[shown], [masked]] = [
        [said for said in {masking_of(select) for _, select in selects} if said is not None]
        for selects in (selects_in("lists"), selects_in(*(FILES.keys() - {"lists", "stores"})))
    ]
    cases = SAMPLES.format(shown=shown, masked=masked)
    for parameter, value in ((":as_of", "$1::timestamptz"), (":include_superseded", "$2::bool")):
        cases = cases.replace(parameter, value)
    async with database.connection() as conn:
        rows = await conn.fetch(cases, as_of, include_superseded)
    assert [row["shown"] for row in rows] == [not row["masked"] for row in rows]
    assert len({row["shown"] for row in rows}) == (1 if include_superseded else 2)


def test_every_select_of_what_is_in_repos_is_bound_to_readable_spaces():
    assert unbound(parsed(), IN_READABLE_SPACE) == set()


def test_every_select_of_what_is_in_repos_is_bound_to_repos_that_are_served():
    assert unbound(parsed(), OF_SERVED_REPO) == set()


def test_who_may_leave_public_memories_out_says_alike_which_spaces_are_read():
    assert unlike_guards(parsed()) == set()


def altered(name: str, said: str, otherwise: str) -> list[tuple[Statement, Parsed]]:
    """All statements, of which one says a thing otherwise where it says it last; `said` is a regular expression."""
    sql = STATEMENTS[name].sql
    last = list(re.finditer(said, sql))[-1]
    changed = replace(STATEMENTS[name], sql=sql[: last.start()] + otherwise + sql[last.end() :])
    return parsed((STATEMENTS | {name: changed}).values())


@pytest.mark.parametrize("name", ["list_newest", "list_occurred", "search_of", "search_all"])
def test_a_filter_that_is_forgotten_is_seen(name: str):
    trees = altered(name, r"and \(\$\d+(::text\[\])? is null or coalesce\(m\.agent, ''\) = any\(\$\d+\)\)", "")
    assert lacking_filters(trees) - lacking_filters(parsed()) == {(name, "agents")}


@pytest.mark.parametrize("name", ["list_newest", "list_occurred", "search_of", "search_all", "explain_memory"])
def test_a_filter_that_is_another_is_seen(name: str):
    assert unlike_filters(altered(name, "m.created_at >= ", "m.created_at > "), "created_after") == {name}


@pytest.mark.parametrize("name", ["list_newest", "list_occurred", "search_of", "search_all", "explain_memory"])
def test_masking_that_is_another_is_seen(name: str):
    trees = altered(name, r"m\.masked_spans is null", "m.masked_spans is not null")
    beside = next(statements for statements in FILES.values() if name in statements)
    assert unlike_masking([(statement, tree) for statement, tree in trees if statement.name in beside]) == {name}


@pytest.mark.parametrize(
    ("name", "said", "otherwise"),
    [
        ("list_newest", r"m\.space = ''", "true"),
        ("list_occurred", r"m\.space = ''", "m.space <> ''"),
        ("list_newest", r"and r\.space = m\.space", ""),
        ("list_newest_of", r"r\.space = any\(", "r.repo = any("),
        ("list_occurred_of", r"and m\.space = r\.space", ""),
        ("search_of", r"and m\.space = r\.space", ""),
        ("search_all", r"r\.space = readable\.space and ", ""),
        ("search_all", r"m\.space = ''", "true"),
        ("entries_after", r"m\.space = '' or ", "true or "),
        ("store_place_by_id", r"r\.space = any\(", "r.repo = any("),
    ],
)
def test_a_select_that_is_not_bound_to_readable_spaces_is_seen(name: str, said: str, otherwise: str):
    assert unbound(altered(name, said, otherwise), IN_READABLE_SPACE) == {name}


@pytest.mark.parametrize(
    ("name", "said", "otherwise"),
    [
        ("list_newest", r"and r\.visible", ""),
        ("list_newest_of", r"r\.visible and", ""),
        ("search_all", r"and r\.visible", ""),
        ("entries_after", r"and r\.visible", ""),
        ("stores_of_repos", r"r\.visible or", "true or"),
    ],
)
def test_a_select_that_is_not_bound_to_served_repos_is_seen(name: str, said: str, otherwise: str):
    assert unbound(altered(name, said, otherwise), OF_SERVED_REPO) == {name}


@pytest.mark.parametrize("name", ["list_newest_of", "search_of"])
def test_a_select_that_says_otherwise_which_spaces_are_read_is_seen(name: str):
    assert unlike_guards(altered(name, r"r\.space = '' and \$\d+(::bool)?", "r.space = ''")) == {name}
