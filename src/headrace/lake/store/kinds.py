"""The kinds of buckets: a row for each interface of object stores that obstore and delta-rs share.

A kind has schemes of addresses, and settings that come from the environment or from options. A new kind is
a row in `KINDS` and a line in `bucket._CLIENTS`. This module loads no library of a store, since every
command comes here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.core.errors import Misconfigured

# Settings of the connection, which delta-rs takes as it takes the others; obstore wants them apart.
CONNECTION = frozenset({"allow_http", "timeout"})


@dataclass(frozen=True, slots=True)
class BucketKind:
    """One interface: S3's, Google's, or Azure's."""

    name: str
    schemes: tuple[str, ...]  # the first is the one that other engines know best
    address: str  # as a hint shows it
    variables: str  # the prefix of its settings, as variables of the environment
    settings: frozenset[str]  # without the prefix
    credentials: str  # for a hint
    complete: str  # a hint: which settings belong together

    def setting(self, key: str) -> str:
        """The setting's own name in lower case, with or without the prefix."""
        return key.lower().removeprefix(self.variables.lower())

    def from_environment(self) -> dict[str, str]:
        """The settings of the environment, less those that not both libraries know (AWS_CA_BUNDLE, ...)."""
        known = self.settings | CONNECTION
        return {
            key: value
            for key, value in os.environ.items()
            if key.startswith(self.variables) and self.setting(key) in known
        }


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """The address of a lake in a bucket, and the settings that the address itself holds."""

    kind: BucketKind
    bucket: str
    prefix: str
    account: str | None = None  # Azure's

    @property
    def url(self) -> str:
        """One spelling for all ways to write it, which delta-rs, DuckDB, Polars and Hadoop read."""
        where = f"{self.bucket}@{self.account}{_AZURE_HOST}" if self.account else self.bucket
        return f"{self.kind.schemes[0]}://{where}/{self.prefix}".rstrip("/")


S3 = BucketKind(
    "S3",
    ("s3", "s3a"),
    "s3://bucket/prefix",
    "AWS_",
    frozenset(
        """access_key_id secret_access_key session_token region default_region endpoint endpoint_url
        virtual_hosted_style_request skip_signature role_arn role_session_name web_identity_token_file
        container_credentials_relative_uri container_credentials_full_uri
        container_authorization_token_file server_side_encryption sse_kms_key_id sse_bucket_key_enabled
        endpoint_url_sts request_payer unsigned_payload conditional_put disable_tagging checksum_algorithm
        metadata_endpoint""".split()
    ),
    "AWS_ACCESS_KEY_ID, ... or a role",
    "give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or neither, AWS_REGION, AWS_ENDPOINT_URL",
)
GOOGLE = BucketKind(
    "Google Cloud Storage",
    ("gs",),
    "gs://bucket/prefix",
    "GOOGLE_",
    frozenset(
        """service_account service_account_path service_account_key application_credentials base_url
        skip_signature""".split()
    ),
    "GOOGLE_APPLICATION_CREDENTIALS, GOOGLE_SERVICE_ACCOUNT_KEY or the machine's service account",
    "give GOOGLE_SERVICE_ACCOUNT_KEY (JSON) or GOOGLE_APPLICATION_CREDENTIALS (a file's path), or neither",
)
AZURE = BucketKind(
    "Azure Blob Storage",
    ("abfss", "abfs", "az"),
    "abfss://container@account.dfs.core.windows.net/prefix",
    "AZURE_",
    frozenset(
        """storage_account_name storage_account_key storage_access_key storage_master_key storage_client_id
        client_id storage_client_secret client_secret storage_tenant_id storage_authority_id tenant_id
        authority_id storage_authority_host authority_host storage_sas_key storage_sas_token storage_token
        storage_use_emulator storage_endpoint endpoint msi_endpoint identity_endpoint object_id
        msi_resource_id federated_token_file use_azure_cli skip_signature disable_tagging""".split()
    ),
    "AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, AZURE_CLIENT_ID, ... or a managed identity",
    "give AZURE_STORAGE_ACCOUNT_NAME, or the account in the address: "
    "abfss://container@account.dfs.core.windows.net/prefix; a key is Base64",
)
KINDS = (S3, GOOGLE, AZURE)

_AZURE_HOST = ".dfs.core.windows.net"
_AZURE_EMULATOR = "devstoreaccount1"


def kind_of(scheme: str) -> BucketKind | None:
    """The kind of bucket that such an address names; None if it is of no kind."""
    return next((kind for kind in KINDS if scheme in kind.schemes), None)


def parse_address(kind: BucketKind, rest: str, options: Mapping[str, str]) -> BucketAddress:
    """Take apart what stands behind the scheme; `options` may name Azure's account."""
    where, _, prefix = rest.rstrip("/").partition("/")
    bucket, _, host = where.partition("@")
    if not bucket or "@" in host or (host and kind is not AZURE):
        raise _address_error(kind, "the lake's address names no bucket")
    if kind is not AZURE:
        return BucketAddress(kind, bucket, prefix)
    if host and not (host.endswith(_AZURE_HOST) and host.removesuffix(_AZURE_HOST)):
        raise _address_error(kind, f'the lake\'s address names "{host}", which is no account of Azure')
    settings = {kind.setting(key): value for key, value in options.items()}
    emulated = settings.get("storage_use_emulator", "").lower() == "true"
    named = settings.get("storage_account_name") or (_AZURE_EMULATOR if emulated else None)
    account = host.removesuffix(_AZURE_HOST) or named
    if account is None:
        raise settings_error(kind, bucket, "no account is named")
    return BucketAddress(kind, bucket, prefix, account)


def settings_error(kind: BucketKind, bucket: str, detail: str) -> Misconfigured:
    """Make the error of settings with which no bucket can be opened."""
    return Misconfigured(
        "LAKE_BUCKET_SETTINGS",
        f'the settings for bucket "{bucket}" are not complete or not valid',
        detail=detail,
        hint=kind.complete,
    )


def _address_error(kind: BucketKind, primary: str) -> Misconfigured:
    return Misconfigured("LAKE_URL", primary, hint=f"give {kind.address}")
