// Microsoft's Node client of tables, as somebody who is not taskgraph. Each line of stdin is a request as JSON, and is
// answered by a line of stdout. Values that JSON does not tell apart are named by their kind: {"$time": …},
// {"$int64": …}, {"$binary": …}.
"use strict";
const readline = require("node:readline");
const { AzureSASCredential, TableClient } = require("@azure/data-tables");

const options = { allowInsecureConnection: true, retryOptions: { maxRetries: 0 } };

function shown(value) {
  if (value instanceof Date) return { $time: value.toISOString() };
  if (typeof value === "bigint") return { $int64: value.toString() };
  if (value instanceof Uint8Array) return { $binary: Buffer.from(value).toString("base64") };
  return value;
}

function taken(value) {
  return value !== null && typeof value === "object" ? new Date(value.$time) : value;
}

function each(change, object) {
  return Object.fromEntries(Object.entries(object).map(([name, value]) => [name, change(value)]));
}

async function answer({ table, connection, endpoint, token, filter, merge }) {
  const client = connection
    ? TableClient.fromConnectionString(connection, table, options)
    : new TableClient(endpoint, table, new AzureSASCredential(token), options);
  try {
    const rows = [];
    if (merge) {
      await client.updateEntity(each(taken, merge), "Merge", { etag: "*" });
    } else {
      for await (const entity of client.listEntities({ queryOptions: { filter } })) rows.push(each(shown, entity));
    }
    return { rows };
  } catch (error) {
    return { refused: error.statusCode ?? 0, message: String(error.message) };
  }
}

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(await answer(JSON.parse(line))) + "\n");
  }
})();
