"""Empty stores for the tests of the lake's rooms."""

from tests.lakes import any_store, bucket, local_store, s3_options

__all__ = ["any_store", "bucket", "local_store", "s3_options"]
