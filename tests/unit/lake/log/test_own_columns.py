"""Our columns of a history are told from the user's, whatever those are called."""

from typing import cast

import pyarrow as pa
import pytest

from headrace.core.history import history_schema, own_fields
from headrace.core.schema import Column, TableSchema
from headrace.core.transaction_id import TransactionId
from headrace.lake.log.histories import Part
from headrace.lake.log.table import LakeTable


@pytest.mark.parametrize("transaction", TransactionId)
def test_a_user_may_have_a_history_of_ours_as_a_table(transaction: TransactionId) -> None:
    theirs = [Column(field.name, field.type, "", "") for field in own_fields(transaction).values()]
    id_column = Column("id", pa.int64(), "", "")
    schema = history_schema(TableSchema((id_column, *theirs), (), full=True, transaction=transaction))
    part = Part(cast(LakeTable, None), schema, (), (None, 0))
    assert part.columns == ["id", *(field.name for field in own_fields(transaction).values())]
    assert part.own["_transaction"] == f"_{transaction.column}"
