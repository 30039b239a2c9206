"""Files to delete in the data folders of executors.

A file stays with the executor that wrote it, so only an executor with the same data folder can delete it. The
store keeps what must be deleted until that is done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import islice

from ...persistence.store import DeletionDone, DeletionOwed
from ...protocol.executors import DeleteFiles, FilesDeleted
from ..journal.change import Change
from .peer import Peer

logger = logging.getLogger("greenroom")

_MOST_SENT = 256
"""The number of deletions that an executor is sent at a time."""


class Deletions:
    """See the module's docstring. `commit` commits a change; `peers` are the executors that are attached."""

    def __init__(self, commit: Callable[[Change], None], peers: Callable[[], Iterable[Peer]]) -> None:
        self._commit = commit
        self._peers = peers
        self._owed: dict[tuple[str, str], DeletionOwed] = {}  # by folder and run
        self._sent: dict[int, tuple[Peer, DeletionOwed]] = {}
        self._failed: set[tuple[str, str]] = set()
        """Those that could not be done. They are repeated when an executor with their folder attaches."""
        self._number = 0

    def owe(self, deletion: DeletionOwed) -> None:
        """Delete these files as soon as an executor with their folder is attached."""
        self._owed[deletion.folder, deletion.run] = deletion
        self._failed.discard((deletion.folder, deletion.run))
        self._send_to_any(deletion.folder)

    def attached(self, peer: Peer) -> None:
        """An executor is attached: have it delete what is in its folder."""
        self._forget_sent(peer)
        self._failed = {key for key in self._failed if key[0] != peer.folder}
        self._send_next(peer)

    def gone(self, peer: Peer) -> None:
        """An executor is gone: another one with its folder has to delete the files."""
        self._forget_sent(peer)
        self._send_to_any(peer.folder)

    def done(self, peer: Peer, message: FilesDeleted) -> None:
        """An executor has deleted files, or failed to."""
        asked, deletion = self._sent.get(message.id, (None, None))
        if asked is not peer or deletion is None:
            return  # another executor has to delete them
        del self._sent[message.id]
        if message.error is not None:
            logger.error(
                "executor %s could not delete files of run %s: %s; it tries again when it attaches again",
                peer.id,
                deletion.run,
                message.error,
            )
            self._failed.add((deletion.folder, deletion.run))
        elif self._owed.get((deletion.folder, deletion.run)) is deletion:
            del self._owed[deletion.folder, deletion.run]
            self._commit(Change((), memos=(DeletionDone(deletion.folder, deletion.run),)))
        self._send_next(peer)

    def _forget_sent(self, peer: Peer) -> None:
        self._sent = {id: sent for id, sent in self._sent.items() if sent[0] is not peer}

    def _send_to_any(self, folder: str) -> None:
        for peer in self._peers():
            if peer.connected and peer.folder == folder:
                self._send_next(peer)
                return

    def _send_next(self, peer: Peer) -> None:
        """Send the next deletions in the executor's folder, when it has done the last ones."""
        if any(to is peer for to, _ in self._sent.values()):
            return
        sent = {(deletion.folder, deletion.run) for _, deletion in self._sent.values()}
        due = (
            deletion
            for key, deletion in self._owed.items()
            if deletion.folder == peer.folder and key not in sent and key not in self._failed
        )
        for deletion in list(islice(due, _MOST_SENT)):
            self._number += 1
            self._sent[self._number] = (peer, deletion)
            peer.send(DeleteFiles(self._number, deletion.handle, deletion.run, deletion.paths))
