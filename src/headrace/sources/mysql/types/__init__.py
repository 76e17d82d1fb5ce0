"""types: how the values of a server's types stand in the lake, and how they are printed.

columns   from a type of the catalog to a column of the lake, and how a copy selects it
printing  values of the lake as text, and back in Spark's SQL
"""
