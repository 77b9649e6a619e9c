// Handlers for semel work --pipe. The lines between the worker and this process are in docs/pipe.md.
import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { createInterface } from "node:readline";
import { writeSync } from "node:fs";

/** What became of a message that is not done: throw one of the subclasses. */
export class Outcome extends Error {
  constructor(outcome, reason = "", { delay } = {}) {
    super(reason);
    this.name = new.target.name;
    this.outcome = outcome;
    this.delay = delay;
  }
}

const outcome = (word) => class extends Outcome {
  constructor(reason, options) {
    super(word, reason, options);
  }
};

export class Retry extends outcome("retry") {}
export class Later extends outcome("later") {}
export class Dead extends outcome("dead") {}
export class Drop extends outcome("drop") {}
export class Busy extends outcome("busy") {}
export class Unavailable extends outcome("unavailable") {}

/** One run of a handler. */
export class Message {
  #effects = [];
  #emit = [];
  #stop = new AbortController();

  constructor(line) {
    this.id = line.id;
    this.key = line.key;
    this.effectKey = line.effect_key;
    this.fence = line.fence;
    this.attempt = line.attempt;
    this.maxAttempts = line.max_attempts;
    this.leaseExpires = new Date(line.lease_expires);
    this.queue = line.queue;
    this.messageId = line.message_id;
    this.redelivered = line.redelivered;
    this.version = line.version ?? "";
    this.headers = line.headers ?? {};
    this.traceparent = line.traceparent ?? "";
    this.tracestate = line.tracestate ?? "";
    this.baggage = line.baggage ?? "";
    this.body = line.body_base64 === undefined ? line.body : Buffer.from(line.body_base64, "base64");
  }

  get signal() {
    return this.#stop.signal;
  }

  effectKeyOf(name) {
    return createHash("sha256").update(`${this.effectKey}/${name}`).digest("hex");
  }

  sql(statement, args = [], { rows } = {}) {
    this.#effects.push({ sql: statement, args: args.map(value), rows });
  }

  insert(table, row) {
    this.#effects.push({ insert: table, row: Object.fromEntries(Object.entries(row).map(([c, v]) => [c, value(v)])) });
  }

  emit(queue, body, { id, group, headers, delay } = {}) {
    const message = { queue, id, group, headers, delay_ms: milliseconds(delay) };
    if (body instanceof Uint8Array) message.body_base64 = Buffer.from(body).toString("base64");
    else message.body = typeof body === "string" ? body : JSON.stringify(body);
    this.#emit.push(message);
  }

  /** The line of a run that returned. */
  done(result) {
    return {
      id: this.id,
      outcome: "done",
      result,
      effects: this.#effects.length ? this.#effects : undefined,
      emit: this.#emit.length ? this.#emit : undefined,
    };
  }

  /** The line of a run that threw. */
  failed(error) {
    if (!(error instanceof Outcome)) return { id: this.id, outcome: "retry", reason: String(error) };
    return { id: this.id, outcome: error.outcome, reason: error.message || undefined, delay_ms: milliseconds(error.delay) };
  }

  stop(reason) {
    this.#stop.abort(new Error(reason));
  }
}

const value = (v) => (v instanceof Uint8Array ? { base64: Buffer.from(v).toString("base64") } : v);
const milliseconds = (seconds) => (seconds === undefined ? undefined : Math.max(0, Math.round(seconds * 1000)));

/**
 * Handles messages until the worker closes stdin. Messages of several lines run at once: as many as --in-flight, each array of
 * --pipe-batch one by one.
 */
export async function run(handler) {
  const results = process.stdout.write.bind(process.stdout);
  process.stdout.write = process.stderr.write.bind(process.stderr); // whatever the handler or a library prints
  const write = (line) => results(JSON.stringify(line) + "\n");
  const inFlight = new Map();
  const one = async (message) => {
    if (!inFlight.has(message.id)) return; // it was cancelled before
    let line;
    try {
      message.started = true;
      line = message.done(await handler(message));
      JSON.stringify(line);
    } catch (error) {
      line = message.failed(error);
      if (line.outcome === "retry") writeSync(2, `${error?.stack ?? error}\n`);
    }
    inFlight.delete(message.id);
    write(line);
  };
  write({ ready: 1 });
  const running = new Set();
  for await (const text of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    const line = JSON.parse(text);
    const about = inFlight.get(line.cancel ?? line.extend);
    if (line.cancel !== undefined) {
      if (about && !about.started) {
        inFlight.delete(about.id);
        write({ id: about.id, outcome: "later", reason: line.reason });
      }
      about?.stop(line.reason);
    } else if (line.extend !== undefined) {
      if (about) about.leaseExpires = new Date(line.lease_expires);
    } else {
      const batch = [line].flat().map((m) => new Message(m));
      for (const message of batch) inFlight.set(message.id, message);
      const all = (async () => {
        for (const message of batch) await one(message);
      })();
      running.add(all);
      all.finally(() => running.delete(all));
    }
  }
  await Promise.all(running);
}
