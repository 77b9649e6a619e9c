"""A handler of semel work --pipe with a habit: the first argument."""

import json
import os
import sys
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(__file__), *[".."] * 6, "sdk", "python"))

import semel

habit = sys.argv[1]
seen = set()
first_key = None


def post(key, body):
    headers = {"Idempotency-Key": key} if key else {}
    request = urllib.request.Request(os.environ["ATTACK_URL"] + "/charges", json.dumps(body).encode(), headers)
    try:
        urllib.request.urlopen(request).close()
    except urllib.error.HTTPError as error:
        if error.code == 429:
            raise semel.Later("throttled") from error
        if error.code != 409:
            raise


def charge(message):
    global first_key
    if "amount" not in (message.body if isinstance(message.body, dict) else {}):
        raise semel.Dead("no amount")
    first_key = first_key or message.effect_key
    if habit == "marks":  # as done, before it is
        if message.key in seen:
            return None
        seen.add(message.key)
    key = {"bare": "", "renames": f"{message.effect_key}-{message.attempt}", "remembers": first_key}.get(habit, message.effect_key)
    if habit == "journal":
        with open(sys.argv[2], "a", encoding="utf-8") as f:
            f.write(json.dumps({"key": message.key}) + "\n")
        return None
    try:
        post(key, message.body)
    except Exception:
        if habit != "careless":
            raise


semel.run(charge)
