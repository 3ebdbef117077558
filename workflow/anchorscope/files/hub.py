"""Files from the hub: whole and verified against their hashes, or one sentence that says what to do.

The hub client handles the token itself (its login, or HF_TOKEN in the environment); nothing here sees it.
"""

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

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

from anchorscope.files.bundled import run_command
from anchorscope.files.faults import with_those_behind
from anchorscope.files.identity import read_json
from anchorscope.files.logs import log

SECONDS_BEFORE_RETRIES = (1, 4, 16)
# What the client raises: RuntimeError comes from parallel downloads, ValueError from a proxy's page in place of JSON.
FAILURES = (OSError, HTTPError, RuntimeError, ValueError)
# The hub's two kinds of hash, by length: git's for small files, SHA-256 for large ones.
HASHES: dict[int, Callable[[int], Any]] = {
    40: lambda size: hashlib.sha1(b"blob %d\0" % size),
    64: lambda size: hashlib.sha256(),
}
CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)


class HubError(RuntimeError):
    """What could not be fetched, why, and what to do about it, in one sentence."""


def download(kind: str, repo: str, revision: str, wanted: list[str], unwanted: list[str] | None = None) -> Path:
    """Fetch the wanted files of a pinned revision and verify them; return their folder in the hub client's cache.

    `kind` is "model" or "dataset". Without a network, the cache has to hold them already.
    """
    log.info("fetching %s at %s", repo, revision)

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
        folder = tries(
            snapshot_download,
            repo,
            repo_type=kind,
            revision=revision,
            allow_patterns=wanted,
            ignore_patterns=unwanted,
        )
    except FAILURES as error:
        # Without its cause: the client's message may hold a signed address.
        raise HubError(_sentence(error, kind=kind, repo=repo, revision=revision)) from None
    verify(Path(folder), repo)
    return Path(folder)


def verify(folder: Path, repo: str) -> None:
    """Compare every file with its hash on the hub. Remove one that differs, so that it is fetched again."""
    listing = folder.parents[1] / "trees" / f"{folder.name}.json"  # the client keeps it beside the snapshots
    if not listing.is_file():
        log.warning("%s cannot be verified: it was fetched by an older client, which kept no hashes", repo)
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
                f"{file.name} of {repo} does not match the hash that the hub gives for it and was removed; "
                "run again to download it again."
            )


def _hash_of(file: Path, like: str) -> str:
    with open(file, "rb") as handle:
        return hashlib.file_digest(handle, lambda: HASHES[len(like)](file.stat().st_size)).hexdigest()


def _may_pass(error: BaseException) -> bool:
    """Whether the same request may succeed a little later; not where the client itself has retried in vain."""
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        return status in (408, 429) or status >= 500
    if isinstance(error, LocalEntryNotFoundError) or not isinstance(error, FAILURES):
        return False
    return getattr(error, "errno", None) not in CANNOT_WRITE


def _sentence(error: BaseException, kind: str, repo: str, revision: str) -> str:
    """What went wrong and what to do. The client's own message is not repeated: it may hold a signed address."""
    page = f"{constants.ENDPOINT}/{'datasets/' if kind == 'dataset' else ''}{repo}"
    kinds = [type(link) for link in with_those_behind(error)]
    answers = (link.response.status_code for link in with_those_behind(error) if isinstance(link, HfHubHTTPError))
    status = next(answers, None)  # None if the hub did not answer
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
            "log in with `hf auth login` or set HF_TOKEN, or check the settings of any proxy on the way."
        )
    if status == 429:
        return f"The hub limits the number of requests, and {repo} is not complete yet: log in or wait, then run again."
    if status is not None and status < 500:
        return f"The hub answered {status} for {repo}: check {page}, and the settings of any proxy on the way."
    if status is not None:
        return f"The hub kept answering {status} for {repo}: run again later; complete files are kept."
    if isinstance(error, OSError) and error.errno in CANNOT_WRITE:
        return (
            f"{repo} cannot be written to {constants.HF_HUB_CACHE} ({os.strerror(error.errno)}): make room or get "
            "access there, or point HF_HOME elsewhere, and run again."
        )
    return (
        f"The hub cannot be reached from here, and {repo} at {revision} is not complete in the cache: "
        f"run `{run_command('fetch')}` where there is a network, such as a login node, then run again here."
    )
