"""Messages, and what becomes of them."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from datetime import datetime
from typing import Any, Mapping


class Outcome(Exception):
    """What became of a message that is not done. Raise one of its subclasses.

    ``reason`` goes to the record, the dead letter and the log. ``delay`` is in seconds: when the message is tried again.
    """

    outcome = ""

    def __init__(self, reason: str = "", delay: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.delay = delay


class Retry(Outcome):
    """It is unknown whether the effect happened. The message is retried. Any other exception means the same."""

    outcome = "retry"


class Later(Outcome):
    """Nothing was applied. The message is retried."""

    outcome = "later"


class Dead(Outcome):
    """Nothing was applied, and no retry can help. The message goes to the dead-letter queue."""

    outcome = "dead"


class Drop(Outcome):
    """The message is dropped on purpose: its key is completed without an effect."""

    outcome = "drop"


class Busy(Outcome):
    """Nothing was applied. The message is redelivered, and no attempt is spent."""

    outcome = "busy"


class Unavailable(Outcome):
    """The downstream cannot be reached. No attempt is spent, and the worker's breaker opens."""

    outcome = "unavailable"


class Message:
    """One run of a handler.

    Effects and emitted messages count if the handler returns. They are dropped if it raises.
    """

    def __init__(self, line: Mapping[str, Any]) -> None:
        self.id: int = line["id"]
        #: What must take effect once.
        self.key: str = line["key"]
        #: Grows with every attempt of a key: a guarded resource refuses smaller ones.
        self.fence: int = line.get("fence", 0)
        #: This attempt, from 1, and the last one that is made.
        self.attempt: int = line.get("attempt", 1)
        self.max_attempts: int = line.get("max_attempts", 0)
        self.queue: str = line.get("queue", "")
        self.message_id: str = line.get("message_id", "")
        #: Whether the broker delivered this message before.
        self.redelivered: bool = line.get("redelivered", False)
        self.version: str = line.get("version", "")
        self.headers: dict[str, str] = line.get("headers") or {}
        self.traceparent: str = line.get("traceparent", "")
        self.tracestate: str = line.get("tracestate", "")
        self.baggage: str = line.get("baggage", "")
        #: The body: the value of a JSON object or array, else str, else bytes.
        self.body: Any = line.get("body", "")
        if "body_base64" in line:
            self.body = base64.b64decode(line["body_base64"])
        self._effect_key: str = line.get("effect_key", "")
        self._lease_expires: str = line.get("lease_expires", "")
        self._cancelled = threading.Event()
        self._effects: list[dict[str, Any]] = []
        self._emit: list[dict[str, Any]] = []

    @property
    def effect_key(self) -> str:
        """The idempotency key for the only effect, the same in all attempts."""
        return self._effect_key

    def effect_key_of(self, name: str) -> str:
        """The idempotency key of one of several effects. The name must not change."""
        return hashlib.sha256(f"{self._effect_key}/{name}".encode()).hexdigest()

    @property
    def lease_expires(self) -> datetime:
        """When the claim ends, unless the worker extends it, which it does while the handler runs."""
        text = self._lease_expires.replace("Z", "+00:00")
        whole, dot, rest = text.partition(".")
        if dot:  # at most six digits
            digits = rest[: -len("+00:00")][:6].ljust(6, "0")
            text = f"{whole}.{digits}+00:00"
        return datetime.fromisoformat(text)

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: the lease is lost, the time is up, or the worker stops."""
        return self._cancelled.is_set()

    def wait_cancelled(self, timeout: float | None = None) -> bool:
        """Wait until the handler should stop."""
        return self._cancelled.wait(timeout)

    def sql(self, statement: str, *args: Any, rows: int | None = None) -> None:
        """Queue SQL that commits with the record (``--effects sql``). ``rows`` is how many rows it must change."""
        effect: dict[str, Any] = {"sql": statement}
        if args:
            effect["args"] = [_value(a) for a in args]
        if rows is not None:
            effect["rows"] = rows
        self._effects.append(effect)

    def insert(self, table: str, row: Mapping[str, Any]) -> None:
        """Queue a new row that commits with the record (``--effects sql``)."""
        self._effects.append({"insert": table, "row": {c: _value(v) for c, v in row.items()}})

    def emit(
        self,
        queue: str,
        body: Any,
        *,
        id: str = "",
        group: str = "",
        headers: Mapping[str, str] | None = None,
        delay: float = 0,
    ) -> None:
        """Send a message with the record. A body that is neither str nor bytes is sent as JSON."""
        message: dict[str, Any] = {"queue": queue}
        if isinstance(body, (bytes, bytearray, memoryview)):
            message["body_base64"] = base64.b64encode(bytes(body)).decode()
        else:
            message["body"] = body if isinstance(body, str) else json.dumps(body)
        for name, value in (("id", id), ("group", group), ("headers", dict(headers or {}))):
            if value:
                message[name] = value
        if delay:
            message["delay_ms"] = int(delay * 1000)
        self._emit.append(message)


def _value(v: Any) -> Any:
    """A value of a statement: bytes as the worker reads them."""
    if isinstance(v, (bytes, bytearray, memoryview)):
        return {"base64": base64.b64encode(bytes(v)).decode()}
    return v


def done(message: Message, result: Any) -> dict[str, Any]:
    """The line of a run that returned."""
    line: dict[str, Any] = {"id": message.id, "outcome": "done"}
    if result is not None:
        line["result"] = result
    if message._effects:
        line["effects"] = message._effects
    if message._emit:
        line["emit"] = message._emit
    return line


def failed(message: Message, error: BaseException) -> dict[str, Any]:
    """The line of a run that raised."""
    if not isinstance(error, Outcome) or not error.outcome:
        return {"id": message.id, "outcome": "retry", "reason": f"{type(error).__name__}: {error}"}
    line: dict[str, Any] = {"id": message.id, "outcome": error.outcome}
    if error.reason:
        line["reason"] = error.reason
    if error.delay is not None:
        line["delay_ms"] = max(0, int(error.delay * 1000))
    return line
