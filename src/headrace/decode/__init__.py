"""decode: bytes of a source's wire to Arrow columns, whole buffers at a time.

    replication stream ─ copydata ─▶ pgoutput ─┐
                                               ├─▶ text columns ─ values ─▶ Arrow, and what is bad
    COPY rows ───────── copydata ─▶ copytext ──┤              (`copyrows`: all of this way, for whole rows)
    texts of rows, by triggers ───▶ queue ─────┘

    MySQL's result sets and binlog ───────────────────▶ mysql ───▶ the same, by forms of its own

    values ─ printing ─▶ the source's text again        rows as bytes ─ digest ─▶ two numbers, for a proof

Snapshot and stream meet at the `TextColumn`, and share everything behind it: the same value always decodes to
the same bits, whichever way it came.

Promises: pure (no I/O, no clock, no state between calls but what is passed in and out); no Python step
per row or value, so that a core does about two million rows a second; whatever the bytes are, the
outcome is right, or a value listed as bad, or a coded error. Never a guess, never a crash, never a read
outside of the buffer. Tests hold each kernel against its
slow, obvious twin in `headrace_testing.reference`.

It must never put a value into an error's text, and never import from the rooms above.
"""
