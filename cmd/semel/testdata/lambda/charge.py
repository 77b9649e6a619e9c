"""A function of AWS Lambda, and the part of its runtime that calls it."""

import json
import os
import signal
import sys
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(__file__), *[".."] * 4, "sdk", "python"))

import semel


@semel.idempotent(key="/order_id", fingerprint="/amount")
def handler(event, context, run):
    with open(sys.argv[1], "a", encoding="utf-8") as f:
        f.write(json.dumps({"order_id": event["order_id"], "effect_key": run.effect_key, "unknown": run.unknown}) + "\n")
    if event.get("dies") and not run.unknown:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"charged": event["amount"]}


class Context:
    def __init__(self, milliseconds):
        self.milliseconds = milliseconds

    def get_remaining_time_in_millis(self):
        return self.milliseconds


api = f"http://{os.environ['AWS_LAMBDA_RUNTIME_API']}/2018-06-01/runtime/invocation"
while True:
    with urllib.request.urlopen(f"{api}/next") as invocation:
        event, id = json.load(invocation), invocation.headers["Lambda-Runtime-Aws-Request-Id"]
    try:
        path, result = "response", handler(event, Context(event["milliseconds"]))
    except Exception as error:
        path, result = "error", {"errorType": type(error).__name__, "errorMessage": str(error)}
    urllib.request.urlopen(urllib.request.Request(f"{api}/{id}/{path}", json.dumps(result).encode())).close()
