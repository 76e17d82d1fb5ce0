"""Hashing: hashes take the place of values of hashed columns before anything else sees the stream.

    the server ─► whole frames ─► `ColumnHasher` ─► transactions, the spool, and all that comes of it

The values reach this process and go no further: neither the spool nor the lake nor a task ever has one. All
other bytes stay as they are, so the frames are read like any others. A layout (R) keeps the type of the
column: the decoder compares it with the record of the table.

A rule names columns. A table may come under columns or a name that the rule does not know, because somebody
renamed them and the schema check has not seen it yet. Then all values are hashed that the rule does not show:
the check will find them, and their bytes hold nothing meanwhile.

A layout in a block of a running transaction holds for that transaction alone until it commits, by the same
rule as in `running_transactions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from headrace.core.hashing import HashKey
from headrace.core.names import TableName
from headrace.decode import pgoutput
from headrace.decode.kernel import Bytes, Ints
from headrace.decode.pgoutput.framing import DELETE, INSERT, RELATION, UPDATE
from headrace.sources.contract.column_rules import ColumnRules
from headrace.sources.postgres.stream.running_transactions import ABORT, COMMIT, START, STOP

_CHANGES = (INSERT, UPDATE, DELETE)
_BOUNDS = (RELATION, START, STOP, COMMIT, ABORT)
_FRAME, _OID = 5, 4
_NULL, _UNCHANGED = ord("n"), ord("u")
_CHARACTER = 1042  # the oid of char(n), as in `types.columns`, which loads Arrow
_WHOLE = 0  # in place of the number of a running transaction

# The columns of a layout: None shows a value as it is; True hashes it without the padding of char(n).
_Columns = tuple[bool | None, ...]


@dataclass(slots=True)
class ColumnHasher:
    """Puts hashes into one stream."""

    rules: ColumnRules
    key: HashKey
    _in_stream: bool = False
    _block: int = _WHOLE  # the running transaction whose block the last bytes ended in
    _layouts: dict[int, dict[int, _Columns]] = field(default_factory=lambda: {_WHOLE: {}})
    _names: dict[int, TableName] = field(default_factory=dict)  # of ruled tables, by oid

    def apply(self, data: Bytes) -> Bytes:
        """Return whole frames with hashes in them."""
        messages = pgoutput.scan(data, in_stream=self._in_stream)
        self._in_stream = messages.in_stream
        changed = np.isin(messages.kind, _CHANGES) & np.isin(messages.relation, self._oids(data, messages))
        pieces, done = [], 0
        for row in np.flatnonzero(changed | np.isin(messages.kind, _BOUNDS)).tolist():
            if not changed[row]:
                self._pass_bound(data, messages, row)
                continue
            columns = self._columns(int(messages.relation[row]))
            if columns is not None:
                start, body, stop = (
                    int(of[row]) for of in (messages.frame_start, messages.body, messages.stop)
                )
                content = self._hash_content(data[body:stop].tobytes(), columns)
                head = data[start + _FRAME : body].tobytes()
                length = _FRAME - 1 + len(head) + len(content)
                pieces += [data[done:start].tobytes(), b"d", length.to_bytes(4, "big"), head, content]
                done = stop
        if not done:
            return data
        return np.frombuffer(b"".join([*pieces, data[done:].tobytes()]), np.uint8)

    def _oids(self, data: Bytes, messages: pgoutput.Messages) -> Ints:
        """The ruled tables that may have changes here."""
        for row in np.flatnonzero(messages.kind == RELATION).tolist():
            layout = pgoutput.relation(data, int(messages.body[row]), int(messages.stop[row]))
            name = TableName(layout.namespace, layout.name)
            if name in self.rules.tables:
                self._names[layout.oid] = name
        return np.array([*self._names], np.int64)

    def _pass_bound(self, data: Bytes, messages: pgoutput.Messages, row: int) -> None:
        kind, number = messages.kind[row], int(messages.xid[row])
        if kind == RELATION:
            layout = pgoutput.relation(data, int(messages.body[row]), int(messages.stop[row]))
            if layout.oid in self._names:
                self._layouts.setdefault(self._block, {})[layout.oid] = self._of_layout(layout)
        elif kind == START:
            self._block = number
        elif kind == STOP:
            self._block = _WHOLE
        elif kind == COMMIT:
            self._layouts[_WHOLE] |= self._layouts.pop(number, {})
        else:
            said = pgoutput.stream_abort(data, int(messages.body[row]), int(messages.stop[row]))
            if said.subxid == said.xid:
                self._layouts.pop(number, None)

    def _of_layout(self, layout: pgoutput.Relation) -> _Columns:
        name = self._names[layout.oid]
        return tuple(
            None if self.rules.shows(name, column.name) else column.type_oid == _CHARACTER
            for column in layout.columns
        )

    def _columns(self, oid: int) -> _Columns | None:
        """The columns of a table in the block at hand; None if all of its values are shown."""
        own = self._layouts.get(self._block, {}).get(oid)
        columns = self._layouts[_WHOLE].get(oid, ()) if own is None else own
        return None if columns and all(each is None for each in columns) else columns

    def _hash_content(self, content: bytes, columns: _Columns) -> bytes:
        """The content of a change with hashes; a tuple that does not fit its layout shows no value."""
        pieces, at = [content[:_OID]], _OID
        while at < len(content):
            count = int.from_bytes(content[at + 1 : at + 3], "big")
            pieces.append(content[at : at + 3])
            at += 3
            fitting: Sequence[bool | None] = columns if count == len(columns) else (False,) * count
            for padded in fitting:
                kind = content[at : at + 1]
                at += 1
                if not kind or kind[0] in (_NULL, _UNCHANGED):
                    pieces.append(kind)
                    continue
                length = int.from_bytes(content[at : at + 4], "big")
                value = content[at + 4 : at + 4 + length]
                at += 4 + length
                if padded is not None:
                    value = self.key.hash(value.rstrip(b" ") if padded else value).encode()
                pieces += [kind, len(value).to_bytes(4, "big"), value]
        return b"".join(pieces)
