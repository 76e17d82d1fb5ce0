"""Ranges cover every page of a table once, and each is read by one reader."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.names import TableName
from headrace.sources.postgres.catalog.locks import RelationSize
from headrace.sources.postgres.copy.measure import CopyRange, copy_statement, ranges, shares
from headrace.sources.shared.copying import MOST_SHARED, SMALL_BYTES

TABLE = TableName("public", "t")


sizes = st.builds(RelationSize, st.integers(0, 10**7), st.integers(0, 10**11), st.integers(0, 10**9))


@given(sizes, st.integers(1, 10**9))
def test_ranges_cover_every_page_once_and_the_last_has_no_end(size: RelationSize, target: int) -> None:
    # A million ranges would prove nothing that a thousand do not.
    target = max(target, size.bytes // 1000, 1)
    cut = ranges(TABLE, 1, size, target)
    assert cut[0].low_page == 0
    assert cut[-1].high_page is None
    for before, after in pairwise(cut):
        assert before.high_page == after.low_page
        assert before.low_page < after.low_page
    assert sum(piece.rows for piece in cut) == size.rows
    assert sum(piece.bytes for piece in cut) == size.bytes


def test_ranges_are_about_as_big_as_asked_for() -> None:
    cut = ranges(TABLE, 1, RelationSize(pages=10_000, bytes=80_000_000, rows=1_000_000), 8_000_000)
    assert len(cut) == 10
    assert {piece.bytes for piece in cut} == {8_000_000}


def test_the_copy_of_a_range_bounds_it_by_page() -> None:
    odd = TableName("Odd Schema", 'q"t')
    whole = CopyRange(odd, 1, 0, None, 0, 0)
    assert copy_statement(["id", "Ünï x", "select"], whole) == (
        'COPY (SELECT id, "Ünï x", "select" FROM ONLY "Odd Schema"."q""t") TO STDOUT'
    )
    middle = copy_statement(["id"], CopyRange(odd, 1, 5, 9, 0, 0))
    assert "ctid >= '(5,0)'::tid AND ctid < '(9,0)'::tid" in middle
    assert "ctid <" not in copy_statement(["id"], CopyRange(odd, 1, 5, None, 0, 0))


@given(st.lists(st.integers(0, 2 * SMALL_BYTES), max_size=200), st.integers(1, 8))
def test_each_range_is_in_one_share_and_large_ones_are_alone(bytes_of: list[int], readers: int) -> None:
    pieces = [CopyRange(TableName("public", f"t{n}"), n, 0, None, 0, size) for n, size in enumerate(bytes_of)]
    dealt = shares(pieces, readers)
    assert [piece.bytes for share in dealt for piece in share] == sorted(bytes_of)
    assert {piece for share in dealt for piece in share} == set(pieces)
    small = sum(size <= SMALL_BYTES for size in bytes_of)
    for share in dealt:
        assert 1 <= len(share) <= min(MOST_SHARED, max(1, -(-small // readers)))
        assert len(share) == 1 or all(piece.bytes <= SMALL_BYTES for piece in share)


def test_a_table_of_many_ranges_comes_after_all_that_is_smaller() -> None:
    """Its last range may be small by itself."""
    large = [CopyRange(TABLE, 1, n, n + 1, 0, size) for n, size in enumerate([SMALL_BYTES + 1, 1])]
    other = CopyRange(TableName("public", "u"), 2, 0, None, 0, SMALL_BYTES)
    assert shares([*large, other], 1) == [[other, large[1]], [large[0]]]
