// The guard for programs without a worker: a key is claimed, run and completed through semel serve (docs/http-api.md).
import { Buffer } from "node:buffer";
import { createHash, randomUUID } from "node:crypto";

import { Busy, Outcome, Unavailable } from "./run.js";

/** The key cannot be run. */
export class GuardError extends Error {
  constructor(message) {
    super(message);
    this.name = new.target.name;
  }
}

export class Lost extends GuardError {}
export class BadRequest extends GuardError {}
export class Mismatch extends GuardError {}
export class Ended extends GuardError {}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** How long one request may take, in milliseconds. The server responds earlier. */
const REQUEST_TIMEOUT = 20_000;

/** Where semel serve is. */
export class Client {
  #headers;

  constructor({ url = process.env.SEMEL_URL || "http://127.0.0.1:8080", headers = {}, timeout = 10 } = {}) {
    if (!/^https?:$/.test(new URL(url).protocol)) throw new TypeError(`url ${url}: want http://HOST:PORT or https://HOST:PORT`);
    this.url = url.replace(/\/+$/, "");
    this.timeout = timeout;
    this.#headers = { ...headers, "content-type": "application/json" };
  }

  /** Sends a request, and repeats it for timeout seconds, until the server responds. All requests may be repeated. */
  async post(path, body, timeout) {
    const until = performance.now() + timeout * 1000;
    for (let wait = 50; ; wait = Math.min(1000, 2 * wait)) {
      let reason;
      const limit = Math.ceil(Math.max(100, Math.min(REQUEST_TIMEOUT, until - performance.now())));
      try {
        const [status, response] = await this.send(path, body, limit);
        if (status < 300) return response;
        const { code = "", message = "" } = response?.error ?? {};
        if (status === 409) throw new Lost(message);
        if (status < 500) throw new BadRequest(`${path}: ${status} ${code}: ${message}`);
        reason = `${path}: ${status} ${message}`;
      } catch (error) {
        if (error instanceof GuardError) throw error;
        reason = `${this.url}${path}: ${error.cause ?? error}`;
      }
      if (performance.now() + wait >= until) {
        throw new Unavailable(`no response of semel serve, the outcome is unknown: ${reason}`);
      }
      await pause(wait);
    }
  }

  /** One request: its status and body. */
  async send(path, body, timeout) {
    const response = await fetch(this.url + path, {
      method: "POST", headers: this.#headers, body: JSON.stringify(body), redirect: "error", signal: AbortSignal.timeout(timeout),
    });
    return [response.status, await response.json()];
  }
}

let standard;

/** What an outcome that a run throws says of its effect: `ran` of /v1/release. Any other error: the outcome is unknown. */
const RAN = { later: "not_applied", dead: "not_applied", drop: "not_applied", busy: "unstarted", unavailable: "unstarted" };

/** One run of a key. */
class Run {
  #stop = new AbortController();

  constructor(key, claim) {
    this.key = key;
    this.fence = claim.token;
    this.attempt = claim.attempt;
    this.unknown = claim.unknown;
    this.effectKey = claim.effect_key;
  }

  get signal() {
    return this.#stop.signal;
  }

  effectKeyOf(name) {
    return createHash("sha256").update(`${this.effectKey}/${name}`).digest("hex");
  }

  stop(error) {
    this.#stop.abort(error);
  }
}

/** Runs work once for a key. A duplicate gets the stored result. */
export async function once(key, work, { fingerprint, lease = 30, extend = true, takeover, consumer, tenant, client } = {}) {
  client ??= standard ??= new Client();
  const sent = performance.now();
  const claim = await client.post("/v1/claim", {
    key, lease_ms: Math.round(lease * 1000), takeover, consumer, tenant,
    fingerprint: fingerprint === undefined || typeof fingerprint === "string" ? fingerprint : canonical(fingerprint),
    nonce: randomUUID(), // a repeated request is the same claim
  }, client.timeout);
  if (claim.verdict === "replay") return { result: stored(claim), duplicate: true };
  if (claim.verdict !== "acquired") throw refused(key, claim);
  const run = new Run(key, claim);
  const kept = keep(client, claim.hold, run, lease, sent, extend);
  let result, text;
  try {
    result = await work(run);
    text = result === undefined ? undefined : encode(result);
  } catch (error) {
    kept.end();
    await release(client, claim.hold, error);
    throw error;
  }
  kept.end();
  // After the end of the lease the store decides: one more request returns its decision.
  await client.post("/v1/complete", { hold: claim.hold, result: text }, Math.max(5, (kept.expires - performance.now()) / 1000));
  return { result, duplicate: false };
}

/**
 * A function that takes effect once for each key. In AWS Lambda, where an argument is the context, the claim lasts until one
 * second after the invocation's deadline: a frozen process extends nothing.
 */
export function idempotent({ key, fingerprint, ...options }, work) {
  return async (...args) => {
    const at = args.findIndex((a) => typeof a?.getRemainingTimeInMillis === "function");
    const context = args[at];
    if (context) args.length = at + 1; // older runtimes add a callback
    const time = context && { lease: context.getRemainingTimeInMillis() / 1000 + 1, extend: false };
    const print = fingerprint === undefined ? undefined : select("fingerprint", fingerprint, args);
    let value = select("key", key, args);
    if (Number.isSafeInteger(value)) value = String(value);
    if (typeof value !== "string") throw new TypeError(`key: want a string or an integer, not ${typeof value}`);
    const { result } = await once(value, (run) => work(...args, run), { ...options, ...time, fingerprint: print });
    return result;
  };
}

/** The value at a JSON Pointer of the first argument, or what a function makes of all. */
function select(what, how, args) {
  if (typeof how === "function") return how(...args);
  if (!how?.startsWith?.("/")) throw new TypeError(`${what} ${how}: want a JSON Pointer, as /order_id, or a function`);
  let value = args[0];
  for (const part of how.slice(1).split("/").map((p) => p.replaceAll("~1", "/").replaceAll("~0", "~"))) {
    if (value === null || typeof value !== "object" || !Object.hasOwn(value, part)) throw new TypeError(`${what} ${how}: the event has no ${part}`);
    value = value[part];
  }
  return value;
}

/** Extends a lease every third of it until the run ends. The run's signal is aborted when another run may have the key. */
function keep(client, hold, run, lease, sent, extend) {
  const kept = { expires: sent + lease * 1000, end: () => { clearTimeout(timer); clearTimeout(limit); ended = true; } };
  let ended = false;
  let timer, limit;
  const watch = () => {
    clearTimeout(limit);
    limit = setTimeout(() => run.stop(new Lost("the lease has ended")), Math.max(0, kept.expires - performance.now()));
    limit.unref();
  };
  const beat = async () => {
    const at = performance.now();
    try {
      await client.post("/v1/extend", { hold, lease_ms: Math.round(lease * 1000) }, (kept.expires - at) / 1000);
    } catch (error) {
      if (!ended) run.stop(error);
      return;
    }
    kept.expires = at + lease * 1000;
    if (ended) return;
    watch();
    next();
  };
  const next = () => {
    timer = setTimeout(beat, lease * 1000 / 3);
    timer.unref(); // it is the work that keeps the process alive
  };
  watch();
  if (extend) next();
  return kept;
}

function refused(key, claim) {
  if (claim.verdict === "busy") return new Busy(`another run has key ${key}`, { delay: (claim.retry_after_ms ?? 0) / 1000 });
  if (claim.verdict === "mismatch") return new Mismatch(`key ${key} was used with another fingerprint`);
  return new Ended(`key ${key} is ${claim.verdict}: ${claim.reason ?? ""}`);
}

async function release(client, hold, error) {
  const body = { hold, reason: String(error).slice(0, 1000) };
  if (error instanceof Outcome) {
    body.ran = RAN[error.outcome];
    if (error.delay) body.retry_after_ms = Math.round(error.delay * 1000);
  }
  try {
    await client.post("/v1/release", body, Math.min(5, client.timeout));
  } catch {
    // The lease ends by itself; the run's own error is what counts.
  }
}

/** The stored result: the value of its JSON, else its text, else its bytes. */
function stored({ result = "", result_base64: base64 }) {
  if (base64 !== undefined) return Buffer.from(base64, "base64");
  if (result === "") return undefined;
  try {
    return JSON.parse(result);
  } catch {
    return result;
  }
}

function encode(result) {
  const text = JSON.stringify(result);
  if (text === undefined) throw new TypeError(`the result is no JSON: ${typeof result}`);
  return text;
}

/** JSON with sorted members, as the package for Python makes it of the same strings, integers and objects. */
function canonical(value) {
  return JSON.stringify(value, (_, v) => (v && typeof v === "object" && !Array.isArray(v)
    ? Object.fromEntries(Object.entries(v).sort(([a], [b]) => (a < b ? -1 : 1)))
    : v));
}
