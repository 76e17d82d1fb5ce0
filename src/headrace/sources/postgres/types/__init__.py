"""types: how the values of PostgreSQL's types stand in the lake.

columns   from a type of the catalog to a column of the lake
casts     a printed value as an expression of Spark's SQL
"""
