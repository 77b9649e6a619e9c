// Handlers for semel work --pipe, and the guard of semel serve for programs without a worker.
export { Busy, Dead, Drop, Later, Message, Outcome, Retry, Unavailable, run } from "./run.js";
export { BadRequest, Client, Ended, GuardError, Lost, Mismatch, idempotent, once } from "./once.js";
