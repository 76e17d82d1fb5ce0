"""A second kind of source, that only introduces itself: for tests of what is said of any kind."""
