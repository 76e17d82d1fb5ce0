"""decode: bytes from a source to Arrow columns, whole buffers at a time.

    replication stream ─ copydata ─▶ pgoutput ─┐
                                               ├─▶ text columns ─ values ─▶ Arrow, and what is bad
    COPY rows ───────── copydata ─▶ copyrows ──┤              (and from there to rows of the lake)
    texts of rows, by triggers ───▶ queue ─────┘

    MySQL's result sets and binlog ───────────────────▶ mysql ───▶ the same, by forms of its own

    values ─ printing ─▶ the source's text again        rows as bytes ─ digest ─▶ two numbers, for a proof

Snapshot and stream both become `TextColumn`s, and share all code after that: a value decodes to the same
bits, whether it came with the snapshot or with the stream.

Promises: pure (no I/O, no clock, no state between calls but arguments and results); no Python step per row or
value, so that a core decodes about two million rows a second; whatever the bytes are, the outcome is right,
or a value listed as bad, or an error with a code. Never a guess, never a crash, never a read outside of the
buffer. Tests compare each kernel with a slow, obvious twin in `headrace_testing.reference`.

It must never put a value into an error's text, and never import from the rooms above.
"""
