"""The tables that a query names are found, and replaced so that its columns are found as before."""

from __future__ import annotations

import pytest

from headrace.sql.relations import mentions_in, rewritten


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT * FROM orders", "orders"),
        ("select a from p.o o, main.p.items as i where o.id = i.id", "p.o main.p.items"),
        ('SELECT 1 FROM "Sales Data"."Order" JOIN `x` USING (id)', "Sales Data.Order x"),
        ("SELECT (SELECT max(n) FROM b) FROM (SELECT * FROM a) q WHERE EXISTS (SELECT 1 FROM c)", "b a c"),
        ("WITH w AS (SELECT * FROM a), v (x) AS (SELECT 1) SELECT * FROM w, v, b", "a b"),
        ("WITH a AS (SELECT * FROM a WHERE n IN (SELECT n FROM b)), b AS (TABLE a) TABLE b", "a b"),
        ("SELECT * FROM (WITH a AS (SELECT * FROM p.a) SELECT * FROM a) q JOIN a USING (id)", "p.a a"),
        ("WITH RECURSIVE a (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM a) SELECT * FROM a", ""),
        ("SELECT extract(year FROM day), trim(BOTH ' ' FROM s) FROM a", "a"),
        ("SELECT a IS DISTINCT FROM b, a IS NOT DISTINCT FROM c FROM d", "d"),
        ("SELECT * FROM (a JOIN b ON a.id = b.id) LEFT JOIN LATERAL (SELECT * FROM c) q ON true", "a b c"),
        ("FROM a SELECT * WHERE x IN (TABLE b)", "a b"),
        ("SELECT 'FROM x', \"FROM\" FROM a -- FROM y\n/* FROM z /* */ */ UNION SELECT * FROM b", "a b"),
        ("SELECT * FROM range(10), a", "a"),
        ("DESCRIBE TABLE EXTENDED public.a", "public.a"),
        ("DESC a", "a"),
        ("EXPLAIN SELECT * FROM a", "a"),
        ("SELECT a, b FROM t GROUP BY a, b ORDER BY a, b", "t"),
        ("VALUES (1), (2)", ""),
    ],
)  # fmt: skip
def test_relations_are_found_where_they_stand(sql: str, names: str) -> None:
    assert " ".join(".".join(mention.parts) for mention in mentions_in(sql)) == names


def _rewritten(sql: str) -> str:
    return rewritten(sql, {mention: "/".join(mention.parts) for mention in mentions_in(sql)}).text


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("SELECT id FROM p.t", "SELECT id FROM `p/t` AS `t`"),
        ("SELECT p.t.id FROM p.t WHERE P.T.id = 1", "SELECT `t`.id FROM `p/t` AS `t` WHERE `t`.id = 1"),
        ("SELECT p.t.* FROM p.t", "SELECT `t`.* FROM `p/t` AS `t`"),
        ("SELECT x.id FROM p.t x", "SELECT x.id FROM `p/t` x"),
        ("SELECT 1 FROM p.t AS x JOIN u ON true", "SELECT 1 FROM `p/t` AS x JOIN `u` AS `u` ON true"),
        ("SELECT p.t FROM u AS p", "SELECT p.t FROM `u` AS p"),
        ("DESCRIBE p.t", "DESCRIBE `p/t`"),
        ("SELECT * FROM (TABLE p.t)", "SELECT * FROM (TABLE `p/t`)"),
    ],
)  # fmt: skip
def test_names_are_replaced_with_their_columns(sql: str, wanted: str) -> None:
    assert _rewritten(sql) == wanted


def test_a_place_leads_back_to_what_was_written() -> None:
    sql = "SELECT id FROM p.t WHERE wrong wrong"
    found = rewritten(sql, dict.fromkeys(mentions_in(sql), "a longer name"))
    assert sql[found.original(found.text.index("wrong")) :] == "wrong wrong"
    assert found.original(3) == 3
