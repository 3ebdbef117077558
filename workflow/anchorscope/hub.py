"""Files from a model hub: whole and what their hash says, or one sentence that says what to do.

The token is the hub client's own affair (its login, or HF_TOKEN in the environment); nothing here sees it.
"""

import errno
import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from anchorscope.logs import log

SECONDS_BEFORE_RETRIES = (1, 4, 16)
BLOCK = 2**20
# Length of a cached file's name to how the hub made that name from its content.
HASHES = {40: lambda size: hashlib.sha1(b"blob %d\0" % size), 64: lambda size: hashlib.sha256()}


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
    for seconds in (*SECONDS_BEFORE_RETRIES, None):
        try:
            return snapshot_download(
                repo, repo_type=kind, revision=revision, allow_patterns=wanted, ignore_patterns=unwanted
            )
        except (OSError, HTTPError) as error:
            if seconds is None or not _may_pass(error):
                # Without its cause: a message of the client may hold a signed address.
                raise HubError(_sentence(error, kind, repo, revision)) from None
            log.warning("fetching %s failed (%s); trying again in %d s", repo, type(error).__name__, seconds)
            time.sleep(seconds)
    raise AssertionError("the last try returns or raises")


def verify(folder: Path, repo: str) -> None:
    """Compare every file with the hash that the hub gave for it; one that differs is removed, to be fetched anew.

    The client's cache names a file by that hash.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    log.info(
        "comparing %d files, %.1f GB, with their hashes", len(files), sum(file.stat().st_size for file in files) / 1e9
    )
    for file in files:
        blob = file.resolve()
        if len(blob.name) not in HASHES:
            log.warning("%s of %s cannot be verified: the cache does not name it by its hash", file.name, repo)
        elif _hash_of(blob) != blob.name:
            blob.unlink()
            file.unlink(missing_ok=True)
            raise HubError(
                f"{file.name} of {repo} does not match the hash that the hub gave for it and was removed; "
                "run again to download it anew."
            )


def _hash_of(blob: Path) -> str:
    digest = HASHES[len(blob.name)](blob.stat().st_size)
    with open(blob, "rb") as handle:
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
    return not isinstance(error, LocalEntryNotFoundError) and getattr(error, "errno", None) != errno.ENOSPC


def _sentence(error: BaseException, kind: str, repo: str, revision: str) -> str:
    page = f"{constants.ENDPOINT}/{'datasets/' if kind == 'dataset' else ''}{repo}"
    status = _status(error)
    links = list(_chain(error))
    if any(isinstance(link, GatedRepoError) for link in links) or status == 403:
        return (
            f"{repo} is gated (the hub answered {status}): accept its licence at {page}, log in with `hf auth login` "
            "or set HF_TOKEN, and run again."
        )
    if any(isinstance(link, RevisionNotFoundError) for link in links):
        return f"{repo} has no revision {revision}: set `revision` in the config to a commit listed at {page}/commits."
    if any(isinstance(link, RepositoryNotFoundError) for link in links) or status == 401:
        return (
            f"The hub shows no {kind} {repo} to this account (it answered {status}): check the name at {page}, "
            "or log in with `hf auth login` or set HF_TOKEN."
        )
    if status == 429:
        return f"The hub limits how often it may be asked, and {repo} is not whole yet: log in or wait, and run again."
    if status is not None:
        return f"The hub answered {status} for {repo} again and again: run again later; whole files are kept."
    if any(isinstance(link, LocalEntryNotFoundError | HTTPError) for link in links):
        return (
            f"The hub cannot be reached from here, and {repo} at {revision} is not whole in the cache: "
            "run `snakemake fetch` where there is a network, such as a login node, then run again here."
        )
    return f"{repo} could not be fetched: {' '.join(str(error).split())}"
