"""A source's server as the judge of its mirror.

postgres_rows   PostgreSQL's rows as text
"""
