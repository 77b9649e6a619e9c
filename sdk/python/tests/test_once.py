"""The guard, against a real server."""

import asyncio
import threading
import time
import unittest

from guard import GuardTest, semel


class CountingClient(semel.Client):
    """A client that reports its requests, and loses the response of each path once."""

    def __init__(self, *args, lose=(), **options):
        super().__init__(*args, **options)
        self.lose = list(lose)
        self.extended = threading.Event()

    def _send(self, path, data, timeout):
        out = super()._send(path, data, timeout)
        if path in self.lose:
            self.lose.remove(path)
            raise ConnectionResetError("the response is lost")
        if path == "/v1/extend":
            self.extended.set()
        return out


class TestOnce(GuardTest):
    def test_duplicate_gets_the_stored_result(self):
        for n, result in enumerate([{"charged": 4200, "ü": [1.5, None]}, "text", "5", 5, None, []]):
            key = f"{self.id()}-{n}"
            with self.once(key) as run:
                self.assertEqual((run.key, run.attempt, run.unknown, run.lost), (key, 1, False, False))
                self.assertGreater(run.fence, 0)
                self.assertEqual(len(run.effect_key), 64)
                self.assertNotEqual(run.effect_key_of("mails"), run.effect_key_of("stock"))
                run.result = result
            with self.assertRaises(semel.Duplicate) as done:
                with self.once(key):
                    self.fail("a duplicate ran")
            self.assertEqual(done.exception.result, result)

    def test_call_returns_the_result_of_the_first_run(self):
        results = [self.once().call(lambda run, n=n: {"n": n}) for n in (1, 2)]
        self.assertEqual(results, [{"n": 1}, {"n": 1}])

    def test_fm16_busy_while_it_runs(self):
        with self.once():
            with self.assertRaises(semel.Busy) as busy:
                with self.once():
                    self.fail("two runs")
            self.assertGreater(busy.exception.delay, 0)

    def test_many_threads_one_run(self):
        ran, ended = [], []

        def work():
            while True:
                try:
                    ended.append(self.once().call(lambda run: ran.append(1) or len(ran)))
                    return
                except semel.Busy:
                    pass

        threads = [threading.Thread(target=work) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual((ran, ended), ([1], [1] * 8))

    def test_fm51_mismatch(self):
        with self.once(fingerprint={"b": 1, "a": 2}):
            pass
        with self.assertRaises(semel.Duplicate):
            with self.once(fingerprint={"a": 2, "b": 1}):
                pass
        with self.assertRaises(semel.Mismatch):
            with self.once(fingerprint={"a": 3, "b": 1}):
                pass

    def test_consumers_and_tenants_have_their_own_keys(self):
        for scope in ({}, {"consumer": "mails"}, {"tenant": "a"}, {"tenant": "b"}):
            with self.once(**scope) as run:
                run.result = scope

    def test_fm03_an_exception_releases_the_key(self):
        for number, (error, unknown) in enumerate([
            (None, False), (semel.Later("not yet"), False), (ValueError("broken"), True), (KeyboardInterrupt(), True),
        ]):
            key = f"{self.id()}-{number}"
            if error is not None:
                with self.assertRaises(type(error)):
                    with self.once(key) as run:
                        first = run
                        raise error
            with self.once(key) as run:
                self.assertEqual(run.unknown, unknown)
                if error is not None:
                    self.assertEqual((run.attempt, run.effect_key), (2, first.effect_key))
                    self.assertGreater(run.fence, first.fence)

    def test_later_waits(self):
        with self.assertRaises(semel.Later):
            with self.once():
                raise semel.Later("not yet", delay=100)
        with self.assertRaises(semel.Busy) as busy:
            with self.once():
                pass
        self.assertGreater(busy.exception.delay, 50)

    def test_a_result_that_is_no_json_fails_the_run(self):
        with self.assertRaises(ValueError):
            self.once().call(lambda run: float("nan"))
        self.assertEqual(self.once().call(lambda run: run.unknown), True)

    def test_the_lease_is_extended(self):
        client = CountingClient(self.server.url, timeout=600)
        self.addCleanup(client.close)
        with self.once(lease=6, client=client) as run:
            claimed = run._expires
            self.assertTrue(client.extended.wait(60))
            deadline = time.monotonic() + 60
            while run._expires == claimed and time.monotonic() < deadline:
                pass
            self.assertGreater(run._expires, claimed)

    def test_fm10_lost_to_another_run(self):
        with self.assertRaises(semel.Lost):
            with self.once(lease=0.1, extend=False) as slow:
                while True:
                    try:
                        self.once().call(lambda run: "other")
                        break
                    except semel.Busy:
                        pass
                self.assertTrue(slow.lost)
        with self.assertRaises(semel.Duplicate) as done:
            with self.once():
                pass
        self.assertEqual(done.exception.result, "other")

    def test_fm31_fm32_a_lost_response_is_repeated(self):
        client = CountingClient(self.server.url, timeout=600, lose=["/v1/claim", "/v1/complete"])
        self.addCleanup(client.close)
        with self.once(client=client) as run:
            self.assertEqual(run.attempt, 1)
            run.result = 1
        self.assertEqual((client.lose, self.once().call(lambda run: 2)), ([], 1))

    def test_fm34_fm35_the_server_dies_and_comes_back(self):
        with self.once() as run:
            self.server.kill()
            with self.assertRaises(semel.Unavailable):
                with semel.once("another", client=semel.Client(self.server.url, timeout=0.2)):
                    self.fail("it ran without a claim")
            self.server.start()
            run.result = "kept"
        self.assertEqual(self.once().call(lambda run: "again"), "kept")

    def test_bad_requests(self):
        with self.assertRaisesRegex(semel.BadRequest, "lease_ms"):
            with self.once(lease=0.01):
                pass
        with self.assertRaisesRegex(ValueError, "ftp"):
            semel.Client("ftp://127.0.0.1")

    def test_async(self):
        async def twice():
            async with self.once() as run:
                run.result = 1
            try:
                async with self.once():
                    return "ran twice"
            except semel.Duplicate as done:
                return done.result

        self.assertEqual(asyncio.run(twice()), 1)

    def test_a_task_that_is_cancelled_while_it_claims_releases_the_key(self):
        claimed, go = threading.Event(), threading.Event()

        class Slow(semel.Client):
            def _send(self, path, data, timeout):
                out = super()._send(path, data, timeout)
                if path == "/v1/claim":
                    claimed.set()
                    go.wait()
                return out

        async def cancelled():
            task = asyncio.ensure_future(self.once(client=client).__aenter__())
            await asyncio.to_thread(claimed.wait)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                go.set()

        client = Slow(self.server.url, timeout=600)
        self.addCleanup(client.close)
        asyncio.run(cancelled())
        while True:
            try:
                self.assertEqual(self.once().call(lambda run: run.unknown), False)
                return
            except semel.Busy:
                pass


if __name__ == "__main__":
    unittest.main()
