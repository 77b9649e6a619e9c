"""The guard for programs without a worker: a key is claimed, run and completed through ``semel serve``."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import threading
import time
import uuid
from types import TracebackType
from typing import Any, Callable, Mapping, TypeVar

from ._client import Client, GuardError, default
from ._messages import Busy, Outcome, Unavailable

T = TypeVar("T")


class Duplicate(GuardError):
    """The key is done. ``result`` is what its run returned."""

    def __init__(self, key: str, result: Any) -> None:
        super().__init__(f"key {key!r} is done")
        self.key = key
        self.result = result


class Mismatch(GuardError):
    """The key was used with another fingerprint."""


class Ended(GuardError):
    """The key failed for good, or waits for a person (``semel dlq``, ``semel records resolve``)."""


#: What an outcome that a run raises says of its effect: ``ran`` of /v1/release. Any other exception: the outcome is unknown.
_RAN = {"later": "not_applied", "dead": "not_applied", "drop": "not_applied", "busy": "unstarted", "unavailable": "unstarted"}


class Run:
    """One run of a key."""

    def __init__(self, key: str, response: Mapping[str, Any]) -> None:
        self.key = key
        #: Grows with every attempt of a key: a guarded resource refuses smaller ones.
        self.fence: int = response["token"]
        #: This attempt, from 1.
        self.attempt: int = response["attempt"]
        #: Whether an earlier run may have had its effect.
        self.unknown: bool = response["unknown"]
        #: The idempotency key for the only effect, the same in all attempts.
        self.effect_key: str = response["effect_key"]
        #: What duplicates get: anything that json.dumps takes.
        self.result: Any = None
        self._hold: str = response["hold"]
        self._expires = 0.0
        self._lost = threading.Event()
        self._ended = threading.Event()

    def effect_key_of(self, name: str) -> str:
        """The idempotency key of one of several effects. The name must not change."""
        return hashlib.sha256(f"{self.effect_key}/{name}".encode()).hexdigest()

    @property
    def lost(self) -> bool:
        """Whether the run should stop: another one may have the key by now."""
        return self._lost.is_set() or time.monotonic() >= self._expires


class once:
    """A key that takes effect once: a context manager, also with ``async with``.

    ::

        try:
            with semel.once("order-7", fingerprint=body) as run:
                charge(body["amount"], idempotency_key=run.effect_key)
                run.result = {"charged": body["amount"]}
        except semel.Duplicate as done:
            return done.result

    It raises :class:`Duplicate` if the key is done, :class:`Busy` while another run has it (``delay``: seconds),
    :class:`Mismatch`, :class:`Ended`, and :class:`Unavailable` if the server does not respond. While the body runs, a thread
    extends the lease. If the body raises, the key is released: the next claim runs again. :class:`Later` and the other
    outcomes say that nothing was applied; after any other exception the next run has ``unknown`` set. :class:`Lost` is raised
    at the end if another run took the key over.

    ``fingerprint`` is a str, or a value that is sent as JSON: the same key with another one is a mismatch. ``lease`` is in
    seconds. ``extend=False`` leaves the lease as it is. ``takeover="once"`` parks a run that was interrupted.
    """

    def __init__(
        self,
        key: str,
        *,
        fingerprint: Any = None,
        lease: float = 30,
        extend: bool = True,
        takeover: str = "resume",
        consumer: str = "",
        tenant: str = "",
        client: Client | None = None,
    ) -> None:
        self.key = key
        self._client = client or default()
        self._lease, self._extend = lease, extend
        self._request = {"key": key, "lease_ms": int(lease * 1000), "takeover": takeover}
        if fingerprint is not None and not isinstance(fingerprint, str):
            fingerprint = json.dumps(fingerprint, sort_keys=True, separators=(",", ":"), allow_nan=False)
        for name, value in (("fingerprint", fingerprint), ("consumer", consumer), ("tenant", tenant)):
            if value:
                self._request[name] = value
        self._lock = threading.Lock()
        self._run: Run | None = None
        self._cancelled = False

    def call(self, function: Callable[[Run], T]) -> T:
        """Run a function of a :class:`Run`, whose result is stored. A duplicate gets the stored result."""
        try:
            with self as run:
                run.result = result = function(run)
            return result
        except Duplicate as done:
            if done.key is not self.key:
                raise  # of another key, in the function
            return done.result

    def __enter__(self) -> Run:
        if self._run is not None:
            raise RuntimeError(f"key {self.key!r}: once() is for one with statement, make a new one")
        sent = time.monotonic()
        # A repeated request has the same nonce: it is the same claim.
        response = self._client.post("/v1/claim", {**self._request, "nonce": uuid.uuid4().hex}, self._client.timeout)
        if response["verdict"] != "acquired":
            raise self._refused(response)
        run = Run(self.key, response)
        run._expires = sent + self._lease
        with self._lock:
            self._run = run
            cancelled = self._cancelled
        if cancelled:
            self._abandon(run)
        elif self._extend:
            threading.Thread(target=self._heartbeat, args=(run,), name="semel-lease", daemon=True).start()
        return run

    def _refused(self, response: Mapping[str, Any]) -> Exception:
        verdict, reason = response["verdict"], response.get("reason", "")
        if verdict == "replay":
            return Duplicate(self.key, _stored(response))
        if verdict == "busy":
            return Busy(f"another run has key {self.key!r}", response.get("retry_after_ms", 0) / 1000)
        if verdict == "mismatch":
            return Mismatch(f"key {self.key!r} was used with another fingerprint")
        return Ended(f"key {self.key!r} is {verdict}: {reason}")

    def _heartbeat(self, run: Run) -> None:
        while not run._ended.wait(self._lease / 3):
            sent = time.monotonic()
            try:
                body = {"hold": run._hold, "lease_ms": self._request["lease_ms"]}
                self._client.post("/v1/extend", body, run._expires - sent)
                run._expires = sent + self._lease
            except Unavailable:
                return  # the lease has ended by our clock
            except GuardError:
                run._lost.set()
                return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        run = self._run
        assert run is not None
        run._ended.set()
        if error is None:
            self._complete(run)
        else:
            self._release(run, error)

    def _complete(self, run: Run) -> None:
        body: dict[str, Any] = {"hold": run._hold}
        try:
            if run.result is not None:
                body["result"] = json.dumps(run.result, allow_nan=False)
        except (TypeError, ValueError) as error:
            self._release(run, error)
            raise
        # After the end of the lease the store decides: one more request returns its decision.
        self._client.post("/v1/complete", body, max(5.0, run._expires - time.monotonic()))

    def _release(self, run: Run, error: BaseException) -> None:
        body: dict[str, Any] = {"hold": run._hold, "reason": f"{type(error).__name__}: {error}"[:1000]}
        if isinstance(error, Outcome):
            body["ran"] = _RAN.get(error.outcome, "maybe_applied")
            if error.delay:
                body["retry_after_ms"] = int(error.delay * 1000)
        try:
            self._client.post("/v1/release", body, min(5.0, self._client.timeout))
        except (GuardError, Unavailable):
            pass  # the lease ends by itself; the run's own error is what counts

    async def __aenter__(self) -> Run:
        try:
            return await asyncio.to_thread(self.__enter__)
        except asyncio.CancelledError:  # the thread goes on: the claim may still come
            with self._lock:
                self._cancelled = True
                run = self._run
            if run is not None:
                threading.Thread(target=self._abandon, args=(run,)).start()
            raise

    def _abandon(self, run: Run) -> None:
        """Release the claim of a task that was cancelled before it ran."""
        run._ended.set()
        self._release(run, Busy("cancelled before it ran"))

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.shield(asyncio.to_thread(self.__exit__, kind, error, trace))


def _stored(response: Mapping[str, Any]) -> Any:
    """The stored result: the value of its JSON, else its text, else its bytes."""
    if "result_base64" in response:
        return base64.b64decode(response["result_base64"])
    text = response.get("result", "")
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text
