"""Functions that take effect once."""

import asyncio
import unittest

from guard import GuardTest, semel


class Context:
    """The context of an invocation of AWS Lambda."""

    def get_remaining_time_in_millis(self):
        return 5000


class TestIdempotent(GuardTest):
    def decorated(self, function, key="/id", **options):
        return semel.idempotent(key, client=self.client, consumer=self.id(), **options)(function)

    def test_duplicates_get_the_stored_result(self):
        ran = []

        def charge(event, run):
            ran.append(run.effect_key)
            return {"n": len(ran)}

        charge = self.decorated(charge, key="/order/0/id~1x")
        self.assertEqual(charge.__name__, "charge")
        event = {"order": [{"id/x": 7}]}
        self.assertEqual([charge(event), charge(event), charge(event={"order": [{"id/x": "7"}]})], [{"n": 1}] * 3)
        self.assertEqual((len(ran), len(ran[0])), (1, 64))

    def test_a_function_selects_key_and_fingerprint(self):
        charge = self.decorated(lambda n, *, order: order, key=lambda n, order: order, fingerprint=lambda n, order: n)
        self.assertEqual((charge(1, order="a"), charge(1, order="a")), ("a", "a"))
        with self.assertRaises(semel.Mismatch):
            charge(2, order="a")

    def test_a_function_may_call_another_one_that_is_done(self):
        with self.once("inner", consumer=self.id()):
            pass

        def outer(event):
            with self.once("inner", consumer=self.id()):
                self.fail("a duplicate ran")

        with self.assertRaises(semel.Duplicate) as done:
            self.decorated(outer)({"id": "outer"})
        self.assertEqual(done.exception.key, "inner")

    def test_async(self):
        ran = []

        async def charge(event, run):
            ran.append(run)
            return event["id"]

        charge = self.decorated(charge)

        async def twice():
            return [await charge({"id": "a"}), await charge({"id": "a"})]

        self.assertEqual((asyncio.run(twice()), len(ran)), (["a", "a"], 1))

    def test_in_lambda_the_claim_ends_with_the_invocation(self):
        requests = []

        class Client(semel.Client):
            def _send(self, path, data, timeout):
                requests.append((path, data))
                return super()._send(path, data, timeout)

        client = Client(self.server.url)
        self.addCleanup(client.close)
        semel.idempotent("/id", client=client, consumer=self.id())(lambda event, context: None)({"id": 1}, Context())
        self.assertEqual([path for path, _ in requests], ["/v1/claim", "/v1/complete"])
        self.assertIn(b'"lease_ms":6000,', requests[0][1])

    def test_fm55_an_event_without_a_key_does_not_run(self):
        charge = self.decorated(lambda event: self.fail("it ran"))
        for event, error in (({}, LookupError), ({"id": None}, TypeError), ({"id": True}, TypeError), ([], LookupError)):
            with self.assertRaises(error):
                charge(event)
        with self.assertRaises(semel.BadRequest):
            charge({"id": ""})
        with self.assertRaisesRegex(ValueError, "JSON Pointer"):
            self.decorated(lambda event: None, key="id")({"id": 1})


if __name__ == "__main__":
    unittest.main()
