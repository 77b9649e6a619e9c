"""Handlers for ``semel work --pipe``, which makes each queue message take effect once.

A handler is a function of a :class:`Message`. What it returns is the stored result. What it raises is the outcome::

    import semel

    def charge(message):
        gateway.charge(message.body["amount"], idempotency_key=message.effect_key)
        return {"charged": message.body["amount"]}

    if __name__ == "__main__":
        semel.run(charge)

The lines between the worker and this process are in docs/pipe.md.
"""

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
from ._run import Handler, run

__all__ = [
    "Busy",
    "Dead",
    "Drop",
    "Handler",
    "Later",
    "Message",
    "Outcome",
    "Retry",
    "Unavailable",
    "run",
]
