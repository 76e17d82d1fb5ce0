"""reference: the slow, obvious twin of every kernel, one value at a time, for tests and benchmarks only.

Written from the manuals, not from the kernels, with the standard library where it can do the work:
where the two disagree, at least one is wrong. Nothing outside of tests and `bench/` calls this.
"""
