/** What became of a message that is not done. Throw one of the subclasses; any other error means Retry. */
export abstract class Outcome extends Error {
  readonly outcome: "retry" | "later" | "dead" | "drop" | "busy" | "unavailable";
  /** In seconds: when the message is tried again. */
  readonly delay?: number;
  constructor(reason?: string, options?: { delay?: number });
}

/** It is unknown whether the effect happened: the message is retried. */
export class Retry extends Outcome {}
/** Nothing was applied: the message is retried. */
export class Later extends Outcome {}
/** Nothing was applied, and no retry can help: the message goes to the dead-letter queue. */
export class Dead extends Outcome {}
/** The message is dropped on purpose: its key is completed without an effect. */
export class Drop extends Outcome {}
/** Nothing was applied: the message is redelivered, and no attempt is spent. */
export class Busy extends Outcome {}
/** The downstream cannot be reached: no attempt is spent, and the worker's breaker opens. */
export class Unavailable extends Outcome {}

export type JSONValue = null | boolean | number | string | JSONValue[] | { [name: string]: JSONValue };
/** A value of a statement. Objects and arrays are stored as JSON text. */
export type SQLValue = JSONValue | Uint8Array;

/** One run of a handler. Effects and emitted messages count if the handler returns; they are dropped if it throws. */
export interface Message<Body = any> {
  readonly id: number;
  /** What must take effect once. */
  readonly key: string;
  /** The idempotency key of the only effect, the same in all attempts. */
  readonly effectKey: string;
  /** Grows with every attempt of a key: a guarded resource refuses smaller ones. */
  readonly fence: number;
  readonly attempt: number;
  readonly maxAttempts: number;
  /** When the claim ends. It moves while the worker extends the lease. */
  readonly leaseExpires: Date;
  readonly queue: string;
  readonly messageId: string;
  readonly redelivered: boolean;
  readonly version: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly traceparent: string;
  readonly tracestate: string;
  readonly baggage: string;
  /** The value of a JSON object or array, else a string, else bytes. */
  readonly body: Body;
  /** Aborted when the handler should stop: the lease is lost, the time is up, or the worker stops. */
  readonly signal: AbortSignal;
  /** The idempotency key of one of several effects. The name must not change. */
  effectKeyOf(name: string): string;
  /** Queues SQL that commits with the record (--effects sql). rows is how many rows it must change. */
  sql(statement: string, args?: SQLValue[], options?: { rows?: number }): void;
  /** Queues a new row that commits with the record (--effects sql). */
  insert(table: string, row: Record<string, SQLValue>): void;
  /** Sends a message with the record. A body that is neither a string nor bytes is sent as JSON. */
  emit(queue: string, body: JSONValue | Uint8Array, options?: {
    id?: string; group?: string; headers?: Record<string, string>; delay?: number;
  }): void;
}

/** What a handler returns is the stored result. */
export type Handler<Body = any> = (message: Message<Body>) => unknown;

/** Handles messages of semel work --pipe until the worker closes stdin. What is printed to stdout goes to stderr. */
export function run<Body = any>(handler: Handler<Body>): Promise<void>;

/** The key cannot be run. */
export class GuardError extends Error {}
/** Another run has the key, or it has ended: this run must have no further effect. */
export class Lost extends GuardError {}
/** The server refused the request: the message names the member. */
export class BadRequest extends GuardError {}
/** The key was used with another fingerprint. */
export class Mismatch extends GuardError {}
/** The key failed for good, or waits for a person. */
export class Ended extends GuardError {}

export interface ClientOptions {
  /** Default: the variable SEMEL_URL, then http://127.0.0.1:8080. */
  url?: string;
  /** Sent with each request: a proxy's Authorization, for example. */
  headers?: Record<string, string>;
  /** How many seconds a claim is repeated while the server does not respond. Default: 10. */
  timeout?: number;
}

/** Where semel serve is. */
export class Client {
  readonly url: string;
  readonly timeout: number;
  constructor(options?: ClientOptions);
}

/** One run of a key. */
export interface Run {
  readonly key: string;
  /** Grows with every attempt of a key: a guarded resource refuses smaller ones. */
  readonly fence: number;
  /** This attempt, from 1. */
  readonly attempt: number;
  /** Whether an earlier run may have had its effect. */
  readonly unknown: boolean;
  /** The idempotency key of the only effect, the same in all attempts. */
  readonly effectKey: string;
  /** Aborted when the run should stop: another one may have the key. */
  readonly signal: AbortSignal;
  /** The idempotency key of one of several effects. The name must not change. */
  effectKeyOf(name: string): string;
}

export interface OnceOptions {
  /** A string, or a value that is sent as JSON: the same key with another one is a Mismatch. */
  fingerprint?: JSONValue;
  /** In seconds. Default: 30. It is extended every third of it while the work runs. */
  lease?: number;
  /** false: the lease is not extended. */
  extend?: boolean;
  /** once parks a run that was interrupted; resume (the default) runs it again. */
  takeover?: "resume" | "once";
  consumer?: string;
  tenant?: string;
  client?: Client;
}

/**
 * Runs work once for a key. What it returns is stored, and duplicates get it. If it throws, the key is released: the next call
 * runs again. Later and the other outcomes say that nothing was applied; after any other error the next run has unknown set.
 *
 * Throws Busy while another run has the key (delay: seconds), Mismatch, Ended, Lost if another run took the key over, and
 * Unavailable if the server does not respond.
 */
export function once<T>(key: string, work: (run: Run) => T | Promise<T>, options?: OnceOptions): Promise<{ result: T; duplicate: boolean }>;

/** A JSON Pointer into the first argument ("/order_id"), or a function of all arguments. */
export type Select<A extends unknown[]> = string | ((...args: A) => JSONValue);

/**
 * A function that takes effect once for each key. Duplicates get the stored result. work gets the Run after the arguments: a function
 * of AWS Lambda is (event, context, run). There, the claim lasts until one second after the invocation's deadline.
 */
export function idempotent<A extends unknown[], T>(
  options: { key: Select<A>; fingerprint?: Select<A>; takeover?: "resume" | "once"; consumer?: string; tenant?: string; client?: Client },
  work: (...args: [...A, Run]) => T | Promise<T>,
): (...args: A) => Promise<T>;
