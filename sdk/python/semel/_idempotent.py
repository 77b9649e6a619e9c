"""Functions that take effect once."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, TypeVar, Union

from ._client import Client
from ._once import Duplicate, once

F = TypeVar("F", bound=Callable[..., Any])

#: A JSON Pointer into the first argument ("/order_id"), or a function of all arguments.
Select = Union[str, Callable[..., Any]]


def idempotent(
    key: Select,
    *,
    fingerprint: Select | None = None,
    takeover: str = "resume",
    consumer: str = "",
    tenant: str = "",
    client: Client | None = None,
) -> Callable[[F], F]:
    """Make a function take effect once for each key. A duplicate gets the stored result.

    ::

        @semel.idempotent(key="/order_id")
        def handler(event, context, run):
            gateway.charge(event["amount"], idempotency_key=run.effect_key)
            return {"charged": event["amount"]}

    If the function has a parameter ``run``, it gets the :class:`Run`. It raises what :class:`once` raises, but
    :class:`Duplicate`. In AWS Lambda, where an argument is the context, the claim lasts until one second after the invocation's
    deadline: a frozen process extends nothing.
    """

    def decorate(function: F) -> F:
        wants_run = "run" in inspect.signature(function).parameters

        def guard(args: tuple[Any, ...], kwargs: dict[str, Any]) -> once:
            options: dict[str, Any] = {}
            for a in (*args, *kwargs.values()):
                remaining: Any = getattr(a, "get_remaining_time_in_millis", None)
                if callable(remaining):
                    options = {"lease": remaining() / 1000 + 1, "extend": False}
            if fingerprint is not None:
                options["fingerprint"] = _select("fingerprint", fingerprint, args, kwargs)
            value = _select("key", key, args, kwargs)
            if isinstance(value, int) and not isinstance(value, bool):
                value = str(value)
            if not isinstance(value, str):
                raise TypeError(f"key: want a str or an int, not {type(value).__name__}")
            return once(value, takeover=takeover, consumer=consumer, tenant=tenant, client=client, **options)

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def later(*args: Any, **kwargs: Any) -> Any:
                guarded = guard(args, kwargs)
                try:
                    async with guarded as run:
                        run.result = result = await function(*args, **({**kwargs, "run": run} if wants_run else kwargs))
                    return result
                except Duplicate as done:
                    if done.key is not guarded.key:
                        raise  # of another key, in the function
                    return done.result

            return later  # type: ignore[return-value]

        @functools.wraps(function)
        def now(*args: Any, **kwargs: Any) -> Any:
            return guard(args, kwargs).call(lambda run: function(*args, **({**kwargs, "run": run} if wants_run else kwargs)))

        return now  # type: ignore[return-value]

    return decorate


def _select(what: str, select: Select, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if callable(select):
        return select(*args, **kwargs)
    if not select.startswith("/"):
        raise ValueError(f"{what} {select!r}: want a JSON Pointer, as /order_id, or a function")
    value = args[0] if args else next(iter(kwargs.values()))
    for part in select[1:].split("/"):
        part = part.replace("~1", "/").replace("~0", "~")
        try:
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (KeyError, IndexError, TypeError, ValueError):
            raise LookupError(f"{what} {select}: the event has no {part!r}") from None
    return value
