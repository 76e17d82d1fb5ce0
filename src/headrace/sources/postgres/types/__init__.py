"""types: the lake types of PostgreSQL's types.

columns   from a type of the catalog to a column of the lake
casts     a printed value as an expression of Spark's SQL
"""
