"""The stores: bytes under keys, the same on a local directory and on an object store.

    contract   what every store promises, and the errors that they share
    local      a directory
    kinds      the kinds of buckets: S3, Google Cloud Storage, Azure
    bucket     a bucket of any kind
    many       many requests at once
    open       from an address to its store; the only one that knows the others

Nothing here looks into what a store holds.
"""
