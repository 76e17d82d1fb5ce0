"""The twins of `decode.mysql`, one value at a time, by the standard library.

result_rows   the values of a row of a result set
"""
