// The guard, against a real server.
import assert from "node:assert/strict";
import { test } from "node:test";

import * as semel from "../index.js";
import { serve } from "./server.js";

/** A client that loses the first response of some paths, and counts extensions. */
class Losing extends semel.Client {
  constructor(options, lose) {
    super(options);
    this.lose = lose;
    this.extended = new Promise((done) => { this.sawExtend = done; });
  }

  async send(path, body, timeout) {
    const out = await super.send(path, body, timeout);
    if (path === "/v1/extend") this.sawExtend();
    const at = this.lose.indexOf(path);
    if (at < 0) return out;
    this.lose.splice(at, 1);
    throw new TypeError("the response is lost");
  }
}

/** Calls once until the key is not busy any more. */
async function whenFree(key, work, options) {
  for (;;) {
    try {
      return await semel.once(key, work, options);
    } catch (error) {
      if (!(error instanceof semel.Busy)) throw error;
    }
  }
}

test("once", { skip: process.env.SEMEL_BINARY ? false : "SEMEL_BINARY does not name the binary semel" }, async (t) => {
  const server = await serve(t);
  const client = new semel.Client({ url: server.url, timeout: 600 });

  await t.test("a duplicate gets the stored result", async () => {
    for (const [n, result] of [{ charged: 4200, ü: [1.5, null] }, "text", "5", 5, undefined, []].entries()) {
      const first = await semel.once(`stored-${n}`, (run) => {
        assert.deepEqual([run.key, run.attempt, run.unknown, run.signal.aborted], [`stored-${n}`, 1, false, false]);
        assert.equal(run.effectKey.length, 64);
        assert.notEqual(run.effectKeyOf("mails"), run.effectKeyOf("stock"));
        assert.ok(run.fence > 0);
        return result;
      }, { client });
      assert.deepEqual(first, { result, duplicate: false });
      const second = await semel.once(`stored-${n}`, () => assert.fail("a duplicate ran"), { client });
      assert.deepEqual(second, { result, duplicate: true });
    }
  });

  await t.test("FM16: busy while it runs, and one run of many calls", async () => {
    let runs = 0;
    await semel.once("busy", async () => {
      await assert.rejects(semel.once("busy", () => assert.fail("two runs"), { client }), (e) => e instanceof semel.Busy && e.delay > 0);
    }, { client });
    const all = await Promise.all(Array.from({ length: 8 }, () => whenFree("many", async () => ++runs, { client, lease: 600 })));
    assert.deepEqual([runs, all.map((o) => o.result), all.filter((o) => !o.duplicate).length], [1, Array(8).fill(1), 1]);
  });

  await t.test("FM51: a mismatch", async () => {
    await semel.once("print", () => 1, { client, fingerprint: { b: 1, a: [2] } });
    assert.equal((await semel.once("print", () => 2, { client, fingerprint: { a: [2], b: 1 } })).result, 1);
    await assert.rejects(semel.once("print", () => 2, { client, fingerprint: { a: [3], b: 1 } }), semel.Mismatch);
  });

  await t.test("FM3: an error releases the key", async () => {
    for (const [n, [error, unknown]] of [[new semel.Later("not yet"), false], [new TypeError("broken"), true]].entries()) {
      let first;
      await assert.rejects(semel.once(`error-${n}`, (run) => { first = run; throw error; }, { client }), error);
      await semel.once(`error-${n}`, (run) => {
        assert.deepEqual([run.attempt, run.unknown, run.effectKey], [2, unknown, first.effectKey]);
        assert.ok(run.fence > first.fence);
      }, { client });
    }
    await assert.rejects(semel.once("function", () => () => 1, { client }), /no JSON/);
    await assert.rejects(semel.once("delay", () => { throw new semel.Later("wait", { delay: 100 }); }, { client }), semel.Later);
    await assert.rejects(semel.once("delay", () => 1, { client }), (e) => e instanceof semel.Busy && e.delay > 50);
  });

  await t.test("the lease is extended", async () => {
    const counting = new Losing({ url: server.url, timeout: 600 }, []);
    await semel.once("long", (run) => counting.extended.then(() => assert.equal(run.signal.aborted, false)), { client: counting, lease: 6 });
  });

  await t.test("FM10: lost to another run", async () => {
    const slow = semel.once("lost", async (run) => {
      await new Promise((done) => run.signal.addEventListener("abort", done));
      assert.equal((await whenFree("lost", () => "other", { client })).duplicate, false);
    }, { client, lease: 0.1, extend: false });
    await assert.rejects(slow, semel.Lost);
    assert.equal((await semel.once("lost", () => "again", { client })).result, "other");
  });

  await t.test("FM31, FM32: a lost response is repeated", async () => {
    const losing = new Losing({ url: server.url, timeout: 600 }, ["/v1/claim", "/v1/complete"]);
    assert.deepEqual(await semel.once("repeat", (run) => run.attempt, { client: losing }), { result: 1, duplicate: false });
    assert.deepEqual([losing.lose, (await semel.once("repeat", () => 2, { client })).result], [[], 1]);
  });

  await t.test("FM34, FM35: the server dies and is started again", async () => {
    await semel.once("outage", async () => {
      await server.kill();
      const impatient = new semel.Client({ url: server.url, timeout: 0.2 });
      await assert.rejects(semel.once("other", () => assert.fail("it ran without a claim"), { client: impatient }), semel.Unavailable);
      await server.start();
      return "kept";
    }, { client });
    assert.equal((await semel.once("outage", () => "again", { client })).result, "kept");
  });

  await t.test("idempotent functions", async () => {
    let runs = 0;
    const charge = semel.idempotent({ key: "/order/0/id~1x", fingerprint: "/n", client }, async (event, run) => ({ n: ++runs, key: run.effectKey.length }));
    const event = (n) => ({ n, order: [{ "id/x": 7 }] });
    assert.deepEqual([await charge(event(1)), await charge(event(1)), runs], [{ n: 1, key: 64 }, { n: 1, key: 64 }, 1]);
    await assert.rejects(charge(event(2)), semel.Mismatch);
    assert.equal(await semel.idempotent({ key: (a, b) => a + b, client }, (a, b) => b)("a", "b"), "b");
  });

  await t.test("in Lambda the claim ends with the invocation", async () => {
    const requests = [];
    class Spy extends semel.Client {
      send(path, body, timeout) {
        requests.push([path, body.lease_ms]);
        return super.send(path, body, timeout);
      }
    }
    const handler = semel.idempotent({ key: "/id", client: new Spy({ url: server.url }) }, () => "done");
    assert.equal(await handler({ id: "lambda" }, { getRemainingTimeInMillis: () => 5000 }), "done");
    assert.deepEqual(requests, [["/v1/claim", 6000], ["/v1/complete", undefined]]);
  });

  await t.test("FM55: an event without a key does not run", async () => {
    const charge = semel.idempotent({ key: "/id", client }, () => assert.fail("it ran"));
    for (const event of [{}, { id: null }, { id: true }, { id: 1.5 }, null, "text"]) await assert.rejects(charge(event), TypeError);
    await assert.rejects(charge({ id: "" }), semel.BadRequest);
    await assert.rejects(semel.idempotent({ key: "id", client }, () => 1)({ id: 1 }), /JSON Pointer/);
  });

  await t.test("bad requests", async () => {
    await assert.rejects(semel.once("bad", () => 1, { client, lease: 0.01 }), (e) => e instanceof semel.BadRequest && /lease_ms/.test(e.message));
    assert.throws(() => new semel.Client({ url: "ftp://127.0.0.1" }), /http:/);
  });
});
