// A handler behind real pipes, as the worker runs it.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { test } from "node:test";

const index = new URL("../index.js", import.meta.url).href;

/** A handler process: lines to it, lines from it. */
function start(t, handler) {
  const p = spawn(process.execPath, ["--input-type=module", "-e", `import * as semel from ${JSON.stringify(index)};\nsemel.run(${handler})`]);
  t.after(() => p.kill("SIGKILL"));
  const out = createInterface({ input: p.stdout })[Symbol.asyncIterator]();
  const err = createInterface({ input: p.stderr })[Symbol.asyncIterator]();
  return {
    send: (line) => p.stdin.write(JSON.stringify(line) + "\n"),
    read: async () => JSON.parse((await out.next()).value),
    stderr: async () => (await err.next()).value,
    async end() {
      p.stdin.end();
      const rest = [];
      for await (const line of out) rest.push(line);
      return [p.exitCode ?? (await new Promise((done) => p.on("exit", done))), rest];
    },
  };
}

const message = (id, body) => ({
  id, key: `k${id}`, effect_key: "e".repeat(64), fence: 1, attempt: 1, max_attempts: 5, lease_expires: "2026-01-02T03:04:05Z",
  queue: "q", message_id: "m", redelivered: false, body,
});

test("what a handler returns and throws is the outcome", async (t) => {
  const p = start(t, `(m) => {
    console.log("not a result");
    if (m.body === "boom") throw new TypeError("bad");
    if (m.body) throw new semel[m.body]("why", { delay: 1.5 });
    m.sql("UPDATE t SET n = $1", [Buffer.from([255])], { rows: 1 });
    m.insert("t", { n: 1 });
    m.emit("next", { n: 1 }, { delay: 1.5 });
    return m.effectKeyOf("mails");
  }`);
  assert.deepEqual(await p.read(), { ready: 1 });
  p.send(message(1, ""));
  assert.deepEqual(await p.read(), {
    id: 1, outcome: "done", result: "9426a34beaade07d7de97e2e481fa2109b681376596473d4580c4abe1366b6c7",
    effects: [{ sql: "UPDATE t SET n = $1", args: [{ base64: "/w==" }], rows: 1 }, { insert: "t", row: { n: 1 } }],
    emit: [{ queue: "next", body: '{"n":1}', delay_ms: 1500 }],
  });
  for (const [word, outcome] of [["Later", "later"], ["Dead", "dead"], ["Drop", "drop"], ["Busy", "busy"], ["Unavailable", "unavailable"]]) {
    p.send(message(2, word));
    assert.deepEqual(await p.read(), { id: 2, outcome, reason: "why", delay_ms: 1500 });
  }
  p.send(message(3, "boom"));
  assert.deepEqual(await p.read(), { id: 3, outcome: "retry", reason: "TypeError: bad" });
  assert.equal(await p.stderr(), "not a result");
  assert.deepEqual(await p.end(), [0, []]);
});

test("an array has a result for each message", async (t) => {
  const p = start(t, "(m) => m.body");
  await p.read();
  p.send([1, 2, 3].map((n) => message(n, [n])));
  for (const n of [1, 2, 3]) assert.deepEqual(await p.read(), { id: n, outcome: "done", result: [n] });
});

test("cancel reaches what runs and what waits", async (t) => {
  const p = start(t, `(m) => new Promise((_, reject) => {
    console.log("running");
    m.signal.addEventListener("abort", () => reject(new semel.Later(m.signal.reason.message + ", stopped")));
  })`);
  await p.read();
  p.send([message(1), message(2)]);
  assert.equal(await p.stderr(), "running");
  p.send({ cancel: 2, reason: "time is up" });
  assert.deepEqual(await p.read(), { id: 2, outcome: "later", reason: "time is up" });
  p.send({ cancel: 1, reason: "lease lost" });
  assert.deepEqual(await p.read(), { id: 1, outcome: "later", reason: "lease lost, stopped" });
});

test("an extended lease is seen", async (t) => {
  const p = start(t, `async (m) => {
    const before = +m.leaseExpires;
    console.log("running");
    while (+m.leaseExpires === before) await new Promise(setImmediate);
    return m.leaseExpires;
  }`);
  await p.read();
  p.send(message(1));
  assert.equal(await p.stderr(), "running");
  p.send({ extend: 1, lease_expires: "2026-01-02T03:05:00Z" });
  assert.equal((await p.read()).result, "2026-01-02T03:05:00.000Z");
});
