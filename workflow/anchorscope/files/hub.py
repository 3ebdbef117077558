"""Files from a model hub: whole and what their hash says, or one sentence that says what to do.

The token is the hub client's own affair (its login, or HF_TOKEN in the environment); nothing here sees it.
"""

import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from tenacity import Future, RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_chain, wait_fixed

from anchorscope.files.identity import read_json
from anchorscope.files.logs import log

SECONDS_BEFORE_RETRIES = (1, 4, 16)
# What the client raises: RuntimeError comes from parallel downloads, ValueError from a proxy's page in place of JSON.
FAILURES = (OSError, HTTPError, RuntimeError, ValueError)
BLOCK = 2**20
# Length of a hash to how the hub makes it of a file: small files have git's, large ones a SHA-256.
HASHES = {40: lambda size: hashlib.sha1(b"blob %d\0" % size), 64: lambda size: hashlib.sha256()}
CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)


class HubError(RuntimeError):
    """What could not be fetched, why, and what to do about it, in one sentence."""


def download(kind: str, repo: str, revision: str, wanted: list[str], unwanted: list[str] | None = None) -> Path:
    """The folder, in the hub client's own cache, with the wanted files of a pinned revision; whole and verified.

    `kind` is "model" or "dataset". Without a network the cache alone serves.
    """
    log.info("fetching %s at %s", repo, revision)
    folder = Path(_with_retries(kind, repo, revision, wanted, unwanted))
    verify(folder, repo)
    return folder


def _with_retries(kind: str, repo: str, revision: str, wanted: list[str], unwanted: list[str] | None) -> str:
    def announce(state: RetryCallState) -> None:
        error = cast(Future, state.outcome).exception()
        log.warning("fetching %s failed (%s); trying again in %d s", repo, type(error).__name__, state.upcoming_sleep)

    tries = Retrying(
        retry=retry_if_exception(_may_pass),
        wait=wait_chain(*map(wait_fixed, SECONDS_BEFORE_RETRIES)),
        stop=stop_after_attempt(1 + len(SECONDS_BEFORE_RETRIES)),
        before_sleep=announce,
        reraise=True,
    )
    try:
        return tries(
            snapshot_download,
            repo,
            repo_type=kind,
            revision=revision,
            allow_patterns=wanted,
            ignore_patterns=unwanted,
        )
    except FAILURES as error:
        # Without its cause: a message of the client may hold a signed address.
        raise HubError(_sentence(error, kind, repo, revision)) from None


def verify(folder: Path, repo: str) -> None:
    """Compare every file with the hash that the hub listed for it; one that differs is removed, to be fetched anew."""
    listing = folder.parents[1] / "trees" / f"{folder.name}.json"  # which the client keeps beside the snapshots
    if not listing.is_file():
        log.warning("%s cannot be verified: an older client fetched it and kept no list of its hashes", repo)
        return
    listed = read_json(listing)["files"]
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    size = sum(file.stat().st_size for file in files)
    log.info("comparing %d files, %.1f GB, with their hashes", len(files), size / 1e9)
    for file in files:
        entry = listed[file.relative_to(folder).as_posix()]
        expected = entry.get("lfs_sha256") or entry["blob_id"]
        if _hash_of(file, expected) != expected:
            file.resolve().unlink()
            file.unlink(missing_ok=True)
            raise HubError(
                f"{file.name} of {repo} does not match the hash that the hub gave for it and was removed; "
                "run again to download it anew."
            )


def _hash_of(file: Path, like: str) -> str:
    digest = HASHES[len(like)](file.stat().st_size)
    with open(file, "rb") as handle:
        while block := handle.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error, and those that led to it: the client wraps what happened on the way."""
    while error:
        yield error
        error = error.__cause__


def _status(error: BaseException) -> int | None:
    """The hub's own answer, where there was one."""
    return next((link.response.status_code for link in _chain(error) if isinstance(link, HfHubHTTPError)), None)


def _may_pass(error: BaseException) -> bool:
    """Whether the same request may succeed a little later, and the client has not tried it several times already."""
    if isinstance(error, HfHubHTTPError):
        return _status(error) in (408, 429) or _status(error) >= 500
    if isinstance(error, LocalEntryNotFoundError) or not isinstance(error, FAILURES):
        return False
    return getattr(error, "errno", None) not in CANNOT_WRITE


def _sentence(error: BaseException, kind: str, repo: str, revision: str) -> str:
    """What to do. Nothing of the client's own message is repeated: it may hold a signed address."""
    page = f"{constants.ENDPOINT}/{'datasets/' if kind == 'dataset' else ''}{repo}"
    status = _status(error)
    kinds = [type(link) for link in _chain(error)]
    if GatedRepoError in kinds:
        return (
            f"{repo} is gated (the hub answered {status}): accept its licence at {page}, log in with `hf auth login` "
            "or set HF_TOKEN, and run again."
        )
    if RevisionNotFoundError in kinds:
        return f"{repo} has no revision {revision}: set `revision` in the config to a commit listed at {page}/commits."
    if RepositoryNotFoundError in kinds or status in (401, 403):
        return (
            f"The hub shows no {kind} {repo} to this account (it answered {status}): check the name at {page}, "
            "log in with `hf auth login` or set HF_TOKEN, or look at the settings of a proxy on the way."
        )
    if status == 429:
        return f"The hub limits how often it may be asked, and {repo} is not whole yet: log in or wait, and run again."
    if status is not None and status < 500:
        return f"The hub answered {status} for {repo}: look at {page}, and at the settings of a proxy on the way."
    if status is not None:
        return f"The hub answered {status} for {repo} again and again: run again later; whole files are kept."
    if getattr(error, "errno", None) in CANNOT_WRITE:
        return (
            f"{repo} cannot be written to {constants.HF_HUB_CACHE} ({os.strerror(error.errno)}): make room or get "
            "access there, or point HF_HOME elsewhere, and run again."
        )
    return (
        f"The hub cannot be reached from here, and {repo} at {revision} is not whole in the cache: "
        "run `snakemake fetch` where there is a network, such as a login node, then run again here."
    )
