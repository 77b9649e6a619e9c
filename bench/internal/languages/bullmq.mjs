// A consumer of BullMQ with a hand-written inbox: reads the deliveries of a file, sends them, and works until all are done.
import { readFileSync } from "node:fs";
import { Queue, Worker } from "bullmq";
import pg from "pg";

const { REDIS, DATABASE_URL, DELIVERIES, EFFECT } = process.env;
const [host, port] = REDIS.split(":");
const options = { connection: { host, port: Number(port) }, prefix: "semel-bench" };
const messages = readFileSync(DELIVERIES, "utf8").trim().split("\n").map((line) => JSON.parse(line));

const queue = new Queue("orders", options);
for (let from = 0; from < messages.length; from += 1000) {
  await queue.addBulk(messages.slice(from, from + 1000).map((data) => ({ name: "order", data, opts: { removeOnComplete: true } })));
}

const pool = new pg.Pool({ connectionString: DATABASE_URL, max: 32 });
let left = messages.length;
await new Promise((done, fail) => {
  const worker = new Worker(
    "orders",
    ({ data }) => pool.query({ name: "effect", text: EFFECT, values: [data.id, data.order] }),
    { ...options, concurrency: 100 },
  );
  worker.on("completed", () => --left === 0 && done());
  worker.on("failed", (_, error) => fail(error));
  worker.on("error", fail);
});
process.exit(0);
