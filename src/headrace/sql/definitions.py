"""The view that CREATE VIEWS makes of a table, as SQL: casts over the source's rows of text.

    CREATE VIEW "orders" AS
    SELECT
      CAST(row_data[0] AS BIGINT) AS `id`,
      row_data[1] AS `code`
    FROM "shop" WHERE oid = 16385

Whoever runs that text by hand gets the same rows, for every type: text is what the source printed, and each
expression here is what the decoder of the column's form does, in Spark's own functions. What the lake's type
cannot hold is NULL here as there. (A generated view is not run so: its table is mirrored with types.)
"""

from __future__ import annotations

from headrace.core.names import quote_identifier
from headrace.core.schema import TableSchema
from headrace.sources.contract.decoder import Decoder


def definition(view: str, source: str, oid: int, schema: TableSchema, decoder: Decoder) -> str:
    """The statement that makes the view; the decoder is that of the source."""
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
