"""Each code of each charset is read as the server itself converts it, on MySQL and on MariaDB."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from headrace.decode.mysql.charsets import NAMES
from headrace.decode.mysql.forms import decode_text
from headrace.decode.text import TextColumn
from headrace.sources.mysql.catalog.table_def import CODES_ALIKE
from headrace_testing.mysql import Database, Server

# Texts of big5 that are read though the servers, which keep them, show U+FFFD.
BETTER = {"big5": set("╴￣ˍ／＼十卅")}
# All codes of one and two bytes, of three in EUC, and of four those of the first plane in GB 18030.
CODES = """
    SELECT UNHEX(RIGHT(HEX(256 + n), 2)) FROM numbers WHERE n < 256 UNION ALL
    SELECT UNHEX(HEX(n)) FROM numbers WHERE n BETWEEN 0x8020 AND 0xFFFF AND n % 256 >= 0x20 UNION ALL
    SELECT UNHEX(HEX(0x8F0000 + n)) FROM numbers WHERE n >= 0x8080 AND n % 256 >= 0x80 UNION ALL
    SELECT UNHEX(HEX(0x81308130 + n DIV 12600 * 0x1000000 + n DIV 1260 % 10 * 0x10000 + n DIV 10 % 126 * 0x100
        + n % 10)) FROM numbers WHERE n < 4 * 12600
"""
# Charsets whose codes are Unicode's own numbers.
PLAIN = ("ucs2", "utf16", "utf16le", "utf32")


@pytest.fixture(params=["mysql", "mariadb"])
def database(request: pytest.FixtureRequest) -> Database:
    server: Server = request.getfixturevalue(f"{request.param}_server")
    made: Database = request.getfixturevalue(f"{request.param}_database")
    with made.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE numbers (n int PRIMARY KEY)")
        cursor.execute("CREATE TABLE codes (b varbinary(4))")
        cursor.execute(f"SET SESSION {server.flavour.recursion} = 65536")
        counted = "WITH RECURSIVE c (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM c WHERE n < 65535)"
        cursor.execute(f"INSERT INTO numbers {counted} SELECT n FROM c")
        cursor.execute(f"INSERT INTO codes {CODES}")
    return made


def test_every_code_is_read_as_the_server_reads_it(database: Database) -> None:
    charsets = "SELECT character_set_name, maxlen FROM information_schema.character_sets"
    found, alike = {}, set()
    for charset, most in database.execute(charsets):
        if charset.startswith("utf8") or charset in ("ascii", "binary", *PLAIN):
            continue
        pairs = database.execute(
            f"SELECT b, CAST(CONVERT(CONVERT(b USING {charset}) USING utf8mb4) AS BINARY) FROM codes "
            "WHERE LENGTH(b) <= %s AND (LENGTH(b) < 3 OR LENGTH(b) = %s)",
            [most, most],
        )
        texts = _read([bytes(code) for code, _ in pairs], charset)
        differing = _differing(pairs, texts, BETTER.get(charset, set()))
        found[charset] = differing[:5]
        singles = Counter(text for text in texts if text is not None and len(text) == 1)
        if max(singles.values()) > 1:
            alike.add(charset)
    assert {charset: differing for charset, differing in found.items() if differing} == {}
    assert set(found) | set(PLAIN) | ({"gb18030"} - set(found)) == NAMES
    assert alike | {"tis620"} == CODES_ALIKE  # whose codes without a character the servers show alike


def _read(codes: list[bytes], charset: str) -> list[str | None]:
    texts: list[str | None] = decode_text(
        TextColumn.of(codes), f"text({charset})", pa.string()
    ).array.to_pylist()
    return texts


def _differing(
    pairs: list[tuple[bytes, bytes | None]], texts: list[str | None], better: set[str]
) -> list[tuple[bytes, str | None, str | None]]:
    """The codes that the server reads otherwise; a question mark or U+FFFD says that it can't."""
    wrong: list[tuple[bytes, str | None, str | None]] = []
    for (code, converted), ours in zip(pairs, texts, strict=True):
        theirs = (converted or b"").decode()
        lost = not theirs or "\ufffd" in theirs or theirs.count("?") > code.count(b"?")
        if (None if lost else theirs) != ours and ours not in (*better, "\ufffd"):
            wrong.append((bytes(code), theirs, ours))
    return wrong
