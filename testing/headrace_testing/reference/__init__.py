"""reference: the slow, obvious twin of every kernel, one value at a time, for tests and benchmarks only.

    framing   frames and messages           rows     tuples and lines of COPY
    values    texts of every type           digest   two numbers for a byte string
    composite texts of whole rows, as the queue has them
    mysql/    rows and values of MySQL
    rewind    the handoff as an equation over multisets
    contents  a collection at a time: the sum of its updates

Written from the manuals, not from the kernels, with the standard library where it can do the work:
where the two disagree, at least one is wrong. Nothing outside of tests and `bench/` calls this.
"""
