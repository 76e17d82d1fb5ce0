"""types: the lake types of the servers' types, and the printing of values.

columns   from a type of the catalog to a column of the lake, and the expression by which a copy selects it
printing  values of the lake as text, and back in Spark's SQL
"""
