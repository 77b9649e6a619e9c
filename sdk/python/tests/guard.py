"""A real ``semel serve`` for tests: SEMEL_BINARY names the binary."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

import semel  # noqa: E402


class Server:
    """One server on a file in a temporary directory. It can be killed, and started again on its port."""

    def __init__(self):
        self.dir = tempfile.TemporaryDirectory()
        self.address = "127.0.0.1:0"
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [os.environ["SEMEL_BINARY"], "serve", "--queue", f"sqlite:{self.dir.name}/q.db?queue=orders",
             "--listen", self.address, "-o", "json"],
            stdout=subprocess.PIPE,
        )
        self.url = json.loads(self.process.stdout.readline())["listening"]
        self.address = self.url[len("http://"):]

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def close(self):
        self.kill()
        self.dir.cleanup()


class GuardTest(unittest.TestCase):
    """Tests of one server, with a client."""

    @classmethod
    def setUpClass(cls):
        if not os.environ.get("SEMEL_BINARY"):
            raise unittest.SkipTest("SEMEL_BINARY does not name the binary semel")
        cls.server = Server()
        cls.addClassCleanup(cls.server.close)
        cls.client = semel.Client(cls.server.url, timeout=600)
        cls.addClassCleanup(cls.client.close)

    def once(self, key=None, **options):
        return semel.once(key or self.id(), **{"client": self.client, **options})
