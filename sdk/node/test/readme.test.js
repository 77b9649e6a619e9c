// The code of the README compiles, and what it takes from the package exists.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import * as semel from "../index.js";

test("the code of the README", () => {
  const text = readFileSync(new URL("../README.md", import.meta.url), "utf8");
  const blocks = [...text.matchAll(/^```js\n(.*?)^```$/gms)].map((m) => m[1]);
  assert.ok(blocks.length > 1);
  for (const block of blocks) {
    const { status, stderr } = spawnSync(process.execPath, ["--check", "--input-type=module", "-"], { input: block, encoding: "utf8" });
    assert.equal(status, 0, stderr + block);
    for (const [, name] of block.matchAll(/\bsemel\.(\w+)/g)) assert.ok(name in semel, name);
  }
});
