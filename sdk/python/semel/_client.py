"""Requests to ``semel serve`` (docs/http-api.md)."""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from typing import Any, Mapping
from urllib.parse import urlsplit

from ._messages import Unavailable

#: Where ``semel serve`` listens by default.
DEFAULT_URL = "http://127.0.0.1:8080"

#: How long one request may take, in seconds. The server responds earlier.
REQUEST_TIMEOUT = 20.0

#: How many connections are kept open between requests.
KEPT = 16


class GuardError(Exception):
    """The key cannot be run. Its subclasses say why."""


class Lost(GuardError):
    """Another run has the key, or it has ended: this run must have no further effect."""


class BadRequest(GuardError):
    """The server refused the request: the message names the member."""


class Client:
    """A connection to ``semel serve``. Threads may share it.

    ``url`` defaults to the variable SEMEL_URL, then to http://127.0.0.1:8080. ``headers`` are sent with each request: a proxy's
    ``Authorization``, for example. ``timeout`` is how many seconds a claim is repeated while the server does not respond.
    """

    def __init__(self, url: str = "", *, headers: Mapping[str, str] | None = None, timeout: float = 10) -> None:
        self.url = url or os.environ.get("SEMEL_URL") or DEFAULT_URL
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url {self.url!r}: want http://HOST:PORT or https://HOST:PORT")
        self.timeout = timeout
        self._make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path.rstrip("/")
        self._headers = {**(headers or {}), "Content-Type": "application/json"}
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._pid = os.getpid()

    def post(self, path: str, body: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Send a request, and repeat it for ``timeout`` seconds, until the server responds.

        All requests of the API may be repeated: a second one gets the same response.
        """
        data = json.dumps(body, separators=(",", ":")).encode()
        until, pause = time.monotonic() + timeout, 0.05
        while True:
            try:
                status, response = self._send(path, data, max(0.1, min(REQUEST_TIMEOUT, until - time.monotonic())))
                error = response.get("error", {})
                if status < 300:
                    return response
                if status == 409:
                    raise Lost(error.get("message", "lost"))
                if status < 500:
                    raise BadRequest(f"{path}: {status} {error.get('code', '')}: {error.get('message', '')}")
                reason = f"{path}: {status} {error.get('message', '')}"
            except (OSError, http.client.HTTPException, ValueError) as failure:
                reason = f"{self.url}{path}: {type(failure).__name__}: {failure}"
            if time.monotonic() + pause >= until:
                raise Unavailable(f"no response of semel serve, the outcome is unknown: {reason}")
            time.sleep(pause)
            pause = min(1.0, 2 * pause)

    def _send(self, path: str, data: bytes, timeout: float) -> tuple[int, dict[str, Any]]:
        connection = self._take(timeout)
        try:
            connection.request("POST", self._path + path, data, self._headers)
            response = connection.getresponse()
            text = response.read()
            body = json.loads(text) if text else {}
        except BaseException:
            connection.close()
            raise
        self._keep(connection)
        return response.status, body if isinstance(body, dict) else {}

    def _take(self, timeout: float) -> http.client.HTTPConnection:
        with self._lock:
            if self._pid != os.getpid():  # a child of fork must not write to its parent's connections
                self._pid, self._idle = os.getpid(), []
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            return self._make(self._host, self._port, timeout=timeout)
        connection.timeout = timeout
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        return connection

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < KEPT:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close the connections that are idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


_default: Client | None = None
_default_lock = threading.Lock()


def default() -> Client:
    """The client of calls that name none."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Client()
        return _default
