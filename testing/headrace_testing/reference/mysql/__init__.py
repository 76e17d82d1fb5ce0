"""The twins of `decode.mysql`, one value at a time, by the standard library.

result_rows   the values of a row of a result set
row_events    frames of the spool, and the rows of their events
images        values as a row event holds them
json_tree     JSON, printed
"""
