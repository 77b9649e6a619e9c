"""The loop between the worker's lines and a handler."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
import traceback
from typing import IO, Any, Callable

from ._messages import Message, done, failed

#: A function of a message. What it returns is the stored result: anything that json.dumps takes.
Handler = Callable[[Message], Any]

#: How many seconds a result may wait for the others of its line.
FLUSH = 0.02

READY = b'{"ready":1}\n'


def run(function: Handler, threads: int = 1) -> None:
    """Handle messages of ``semel work --pipe`` until the worker closes stdin.

    ``threads`` is how many run at once; the worker's ``--in-flight`` must be at least that. print() of the handler goes to
    stderr, because stdout has the results.
    """
    incoming = os.fdopen(os.dup(0), "rb")
    outgoing = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever the handler or a library prints
    sys.stdout = sys.stderr
    Loop(function, incoming, outgoing, threads).run()


class Loop:
    """One process: a thread reads lines, others run the handler."""

    def __init__(self, function: Handler, incoming: IO[bytes], outgoing: IO[bytes], threads: int = 1) -> None:
        if threads < 1:
            raise ValueError("threads must be 1 or more")
        self._function = function
        self._incoming = incoming
        self._outgoing = outgoing
        self._threads = threads
        self._lock = threading.Lock()
        self._waiting: "queue.SimpleQueue[list[Message] | None]" = queue.SimpleQueue()
        self._known: dict[int, Message] = {}  # without a result
        self._started: set[int] = set()

    def run(self) -> None:
        reader = threading.Thread(target=self._read, name="semel-reader", daemon=True)
        workers = [threading.Thread(target=self._work, name=f"semel-{n}") for n in range(2, self._threads + 1)]
        self._write(READY)
        reader.start()
        for w in workers:
            w.start()
        self._work()  # the main thread is one of them: signals and libraries expect that
        for w in workers:
            w.join()

    def _read(self) -> None:
        for line in self._incoming:
            if line.strip():
                self._take(json.loads(line))
        for _ in range(self._threads):
            self._waiting.put(None)

    def _take(self, line: Any) -> None:
        if isinstance(line, dict) and "id" not in line:
            if "cancel" in line:
                self._cancel(line["cancel"], line.get("reason", ""))
            elif "extend" in line:
                with self._lock:
                    message = self._known.get(line["extend"])
                if message is not None:
                    message._lease_expires = line["lease_expires"]
            return
        batch = [Message(m) for m in (line if isinstance(line, list) else [line])]
        with self._lock:
            for message in batch:
                self._known[message.id] = message
        self._waiting.put(batch)

    def _cancel(self, id: int, reason: str) -> None:
        """Stop a run; one that has not started has its result here."""
        with self._lock:
            message = self._known.get(id)
            if message is None:
                return
            message._cancelled.set()
            if id in self._started:
                return
            del self._known[id]
        self._write(encode({"id": id, "outcome": "later", "reason": reason}))

    def _work(self) -> None:
        while True:
            batch = self._waiting.get()
            if batch is None:
                return
            results, since = [], time.monotonic()
            for message in batch:
                results.append(self._one(message))
                if time.monotonic() - since > FLUSH:
                    self._write(b"".join(results))
                    results, since = [], time.monotonic()
            self._write(b"".join(results))

    def _one(self, message: Message) -> bytes:
        with self._lock:
            if message.id not in self._known:
                return b""  # it was cancelled before
            self._started.add(message.id)
        try:
            line = encode(done(message, self._function(message)))
        except Exception as error:  # noqa: BLE001: any exception is a failed run
            outcome = failed(message, error)
            if outcome["outcome"] == "retry":
                traceback.print_exc(file=sys.stderr)
            line = encode(outcome)
        with self._lock:
            self._started.discard(message.id)
            self._known.pop(message.id, None)
        return line

    def _write(self, data: bytes) -> None:
        with self._lock:
            view = memoryview(data)
            while view:
                n = self._outgoing.write(view)
                view = view[n or 0 :]


def encode(line: dict[str, Any]) -> bytes:
    """A line as the worker reads it. NaN and infinities are refused: they are no JSON."""
    return (json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n").encode()
