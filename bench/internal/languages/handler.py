"""The standard effect, in Python: handler.py exec | pipe | http PORT."""

import json
import os
import sys


def row(key, body):
    return {"insert": "ledger", "row": {"id": key, "size": body["order"]}}


def pipe():
    sys.path.insert(0, os.environ["SDK"])
    import semel

    def handle(message):
        message.insert("ledger", {"id": message.key, "size": message.body["order"]})

    semel.run(handle)


def http(port):
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # headers and body in one packet

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if isinstance(body, list):
                out = [{"id": m["id"], "outcome": "done", "effects": [row(m["key"], m["body"])]} for m in body]
            else:
                out = row(body["id"], body)
            data = json.dumps(out).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128

    Server(("127.0.0.1", port), Handler).serve_forever()


if sys.argv[1] == "pipe":
    pipe()
elif sys.argv[1] == "http":
    http(int(sys.argv[2]))
else:
    print(json.dumps(row(os.environ["SEMEL_KEY"], json.load(sys.stdin))))
