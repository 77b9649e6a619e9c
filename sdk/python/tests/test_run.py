"""A handler behind real pipes, as the worker runs it."""

import json
import os
import subprocess
import sys
import textwrap
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

import semel  # noqa: E402
from semel._messages import done, failed  # noqa: E402


class Process:
    """A handler process: lines to it, lines from it."""

    def __init__(self, handler, threads=1):
        program = textwrap.dedent(handler) + f"\nsemel.run(handle, threads={threads})\n"
        self.p = subprocess.Popen(
            [sys.executable, "-c", "import semel\n" + program],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": ROOT}, text=True,
        )

    def __enter__(self):
        assert self.read() == {"ready": 1}
        return self

    def __exit__(self, *_):
        self.p.kill()
        self.p.communicate()

    def send(self, line):
        self.p.stdin.write(json.dumps(line) + "\n")
        self.p.stdin.flush()

    def read(self):
        return json.loads(self.p.stdout.readline())

    def await_running(self):
        """Wait for what the handler prints when it runs."""
        assert self.p.stderr.readline() == "running\n"

    def end(self):
        """Close stdin, as the worker does to stop it."""
        out, err = self.p.communicate()
        return self.p.returncode, out, err


def message(id, body="", **more):
    return {"id": id, "key": f"k{id}", "effect_key": "e" * 64, "fence": 1, "attempt": 1, "max_attempts": 5,
            "lease_expires": "2026-01-02T03:04:05.123456789Z", "queue": "q", "message_id": "m", "redelivered": False,
            "body": body, **more}


class TestPipe(unittest.TestCase):
    def test_outcomes(self):
        with Process("""
            def handle(m):
                print("not a result")
                if m.body == "boom":
                    raise ValueError("bad")
                if m.body == "nan":
                    return float("nan")
                if m.body:
                    raise getattr(semel, m.body)("why", 1.5)
                return {"charged": m.id}
        """) as p:
            for n, (body, want) in enumerate([
                ("", {"outcome": "done", "result": {"charged": 1}}),
                ("Later", {"outcome": "later", "reason": "why", "delay_ms": 1500}),
                ("Dead", {"outcome": "dead", "reason": "why", "delay_ms": 1500}),
                ("Unavailable", {"outcome": "unavailable", "reason": "why", "delay_ms": 1500}),
                ("boom", {"outcome": "retry", "reason": "ValueError: bad"}),
            ], 1):
                p.send(message(n, body))
                self.assertEqual(p.read(), {"id": n, **want})
            p.send(message(9, "nan"))
            self.assertEqual(p.read()["outcome"], "retry")
            code, out, err = p.end()
            self.assertEqual((code, out), (0, ""))
            self.assertIn("not a result", err)
            self.assertIn("Traceback", err)

    def test_array(self):
        with Process("def handle(m): return m.body") as p:
            p.send([message(n, [n]) for n in (1, 2, 3)])
            self.assertEqual([p.read() for _ in range(3)],
                             [{"id": n, "outcome": "done", "result": [n]} for n in (1, 2, 3)])

    def test_cancel_reaches_what_runs_and_what_waits(self):
        with Process("""
            def handle(m):
                print("running", flush=True)
                m.wait_cancelled()
                raise semel.Later("stopped")
        """) as p:
            p.send(message(1))
            p.send(message(2))
            p.await_running()
            p.send({"cancel": 2, "reason": "time is up"})  # 1 runs, so 2 waits
            self.assertEqual(p.read(), {"id": 2, "outcome": "later", "reason": "time is up"})
            p.send({"cancel": 1, "reason": "lease lost"})
            self.assertEqual(p.read(), {"id": 1, "outcome": "later", "reason": "stopped"})
            p.send({"cancel": 1, "reason": "too late"})  # it has its result: nothing happens
            self.assertEqual(p.end()[1], "")

    def test_threads_write_results_in_any_order(self):
        with Process("""
            import threading
            second = threading.Event()
            def handle(m):
                if m.id == 1:
                    second.wait()
                second.set()
        """, threads=2) as p:
            p.send(message(1))
            p.send(message(2))
            self.assertEqual({p.read()["id"], p.read()["id"]}, {1, 2})

    def test_extend(self):
        with Process("""
            def handle(m):
                before = m.lease_expires
                print("running", flush=True)
                while m.lease_expires == before:
                    m.wait_cancelled(0.01)
                return m.lease_expires.isoformat()
        """) as p:
            p.send(message(1))
            p.await_running()
            p.send({"extend": 1, "lease_expires": "2026-01-02T03:05:00Z"})
            self.assertEqual(p.read()["result"], "2026-01-02T03:05:00+00:00")


class TestMessage(unittest.TestCase):
    def test_body(self):
        line = message(1)
        del line["body"]
        self.assertEqual(semel.Message({**line, "body_base64": "/wA="}).body, b"\xff\x00")
        self.assertEqual(semel.Message({**line, "body": {"a": 1}}).body, {"a": 1})

    def test_effects_and_messages_go_with_the_result(self):
        m = semel.Message(message(1))
        m.sql("UPDATE t SET n = $1", b"\xff", rows=1)
        m.insert("t", {"n": 1})
        m.emit("next", {"n": 1}, delay=1.5, headers={"a": "b"})
        m.emit("raw", b"\xff")
        self.assertEqual(done(m, None), {
            "id": 1, "outcome": "done",
            "effects": [{"sql": "UPDATE t SET n = $1", "args": [{"base64": "/w=="}], "rows": 1}, {"insert": "t", "row": {"n": 1}}],
            "emit": [{"queue": "next", "body": '{"n": 1}', "headers": {"a": "b"}, "delay_ms": 1500},
                     {"queue": "raw", "body_base64": "/w=="}],
        })
        self.assertEqual(failed(m, semel.Drop("test")), {"id": 1, "outcome": "drop", "reason": "test"})

    def test_effect_keys(self):  # as docs/worker.md says
        m = semel.Message(message(1))
        self.assertEqual(m.effect_key, "e" * 64)
        self.assertEqual(m.effect_key_of("mails"), "9426a34beaade07d7de97e2e481fa2109b681376596473d4580c4abe1366b6c7")


if __name__ == "__main__":
    unittest.main()
