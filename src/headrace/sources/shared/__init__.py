"""Code that more than one source needs, and that knows none of them.

patterns   how a person names tables
findings   what the checks of several sources say in the same words
copying    how small parts of tables are read together
"""
