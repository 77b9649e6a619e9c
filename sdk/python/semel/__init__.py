"""Each message takes effect once: handlers for ``semel work --pipe``, and the guard of ``semel serve`` for any other program.

A handler is a function of a :class:`Message`. What it returns is the stored result. What it raises is the outcome::

    import semel

    def charge(message):
        gateway.charge(message.body["amount"], idempotency_key=message.effect_key)
        return {"charged": message.body["amount"]}

    if __name__ == "__main__":
        semel.run(charge)

A program without a worker guards its work with a key (docs/http-api.md)::

    with semel.once("order-7") as run:
        gateway.charge(4200, idempotency_key=run.effect_key)

The lines between the worker and this process are in docs/pipe.md.
"""

from ._client import BadRequest, Client, GuardError, Lost
from ._idempotent import Select, idempotent
from ._messages import (
    Busy,
    Dead,
    Drop,
    Later,
    Message,
    Outcome,
    Retry,
    Unavailable,
)
from ._once import Duplicate, Ended, Mismatch, Run, once
from ._run import Handler, run

__all__ = [
    "BadRequest",
    "Busy",
    "Client",
    "Dead",
    "Drop",
    "Duplicate",
    "Ended",
    "GuardError",
    "Handler",
    "Later",
    "Lost",
    "Message",
    "Mismatch",
    "Outcome",
    "Retry",
    "Run",
    "Select",
    "Unavailable",
    "idempotent",
    "once",
    "run",
]
