"""The view that CREATE VIEWS makes of a table, as SQL: casts over the source's rows of text.

    CREATE VIEW "orders" AS
    SELECT
      CAST(row_data[0] AS BIGINT) AS `id`,
      row_data[1] AS `code`
    FROM "shop" WHERE oid = 16385

If you run that text by hand, you get the same rows, for every type: the text is the source's own, and each
expression does in Spark's functions what the decoder of the column's form does. A value that the lake's type
cannot hold is NULL in both. (Headrace does not run this text: the view's table is mirrored with types.)
"""

from __future__ import annotations

from headrace.core.names import quote_identifier
from headrace.core.schema import TableSchema
from headrace.sources.contract.decoder import Decoder


def definition(view: str, source: str, oid: int, schema: TableSchema, decoder: Decoder) -> str:
    """The CREATE VIEW statement; the decoder is the source's."""
    columns = [
        f"  {decoder.cast(column, f'row_data[{i}]')} AS `{column.name.replace('`', '``')}`"
        for i, column in enumerate(schema.columns)
    ]
    return (
        f"CREATE VIEW {_quote(view)} AS\nSELECT\n"
        + ",\n".join(columns)
        + f"\nFROM {_quote(source)} WHERE oid = {oid}"
    )


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if quote_identifier(name) == name else quote_identifier(name)
