// The interpreter of a node code context: reads cells from standard input, runs them in one global
// scope as a REPL does, and reports on the control channel (core/code/records.h). Runs inside the
// sandbox, for node 18 and later, without any package. Standard output and standard error belong to
// the user's code alone.
//
// V8's own REPL mode does the work, over the inspector in the same thread: top-level await, and let
// and const that may be declared anew. vm's breakOnSigint around it ends what loops for ever. Import
// declarations, which a script cannot have, are found by V8 too and loaded before the cell runs.
(() => {
  'use strict';
  // A cell may declare these names, and then they are its own for the time that it takes.
  const { Buffer, Error, SyntaxError, process, setImmediate } = globalThis;
  const fs = require('fs');
  const inspector = require('inspector');
  const net = require('net');
  const path = require('path');
  const util = require('util');
  const vm = require('vm');
  const Module = require('module');
  const { createRequire } = Module;

  const RESULTS_MAX = 64;
  let BYTES_MAX = 8 << 20;
  let TEXT_MAX = 1 << 20;
  let ERROR_MAX = 256 << 10;
  const IMPORTS_MAX = 500;
  const COMPILED_MAX = 16 << 20;
  const WINDOW = 4096;
  const once = process.env.CAISSON_ONCE === '1';
  delete process.env.CAISSON_ONCE;
  delete process.env.CAISSON_DRIVER;

  const session = new inspector.Session();
  session.connect();
  const exitSymbol = Symbol('exit');
  const reallyExit = process.reallyExit.bind(process);
  const runScript = new vm.Script('globalThis[Symbol.for("caisson.run")]()', { filename: 'caisson' });
  const state = { control: -1, cell: 0, last: 0, running: false, results: 0, sent: 0, code: 0, before: new Set() };

  function record(kind, index, key, payload) {
    const body = payload || Buffer.alloc(0);
    let data = Buffer.concat([
      Buffer.from(`${kind} ${state.cell} ${index} ${key} ${body.length}\n`), body, Buffer.from('\n')]);
    while (data.length > 0) {
      try {
        data = data.subarray(fs.writeSync(state.control, data));
      } catch (error) {
        if (error.code !== 'EAGAIN' && error.code !== 'EINTR') reallyExit(70);
      }
    }
  }

  // --- processes of a cell ---

  const runner = process.ppid;

  function processes() {
    const parents = new Map();
    const ours = new Set();
    for (const name of fs.readdirSync('/proc')) {
      if (!/^[0-9]+$/.test(name)) continue;
      try {
        const stat = fs.readFileSync(`/proc/${name}/stat`, 'latin1');
        parents.set(Number(name), Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]));
      } catch (error) {
        // It has ended meanwhile.
      }
    }
    for (const pid of parents.keys()) {
      let at = pid;
      for (let depth = 0; depth < 1000 && parents.has(at) && at !== runner; depth++) at = parents.get(at);
      if (at === runner && pid !== runner && pid !== process.pid) ours.add(pid);
    }
    return ours;
  }

  function killNew() {
    for (const pid of processes()) {
      if (state.before.has(pid)) continue;
      try {
        process.kill(pid, 'SIGKILL');
      } catch (error) {
        // It has ended meanwhile.
      }
    }
  }

  // --- results ---

  function send(index, kind, bytes) {
    let data = bytes;
    const text = kind.startsWith('text/');
    if (text && data.length > TEXT_MAX) {
      record('left', index, kind, Buffer.from(String(data.length)));
      let cut = TEXT_MAX;
      while (cut > 0 && (data[cut] & 0xc0) === 0x80) cut--;
      data = data.subarray(0, cut);
    }
    if (state.sent + data.length > BYTES_MAX) {
      if (data.length === bytes.length) record('left', index, kind, Buffer.from(String(bytes.length)));
      return;
    }
    state.sent += data.length;
    record('data', index, kind, data);
  }

  function plainJson(value, depth) {
    if (depth > 24) return false;
    if (value === null || ['string', 'boolean'].includes(typeof value)) return true;
    if (typeof value === 'number') return Number.isFinite(value);
    if (typeof value !== 'object') return false;
    if (Array.isArray(value)) return value.every((item) => plainJson(item, depth + 1));
    const prototype = Object.getPrototypeOf(value);
    return (prototype === Object.prototype || prototype === null) &&
      Object.values(value).every((item) => plainJson(item, depth + 1));
  }

  function toBytes(kind, value) {
    if (Buffer.isBuffer(value) || value instanceof Uint8Array) return Buffer.from(value);
    if (kind.endsWith('json') && typeof value !== 'string') return Buffer.from(JSON.stringify(value));
    if (/^image\/(?!svg)/.test(kind)) return Buffer.from(String(value), 'base64');
    return Buffer.from(String(value));
  }

  function show(value) {
    const index = state.results++;
    if (index >= RESULTS_MAX) return;
    const forms = new Map();
    try {
      // As other notebooks for node do it: an object that knows its own forms.
      const bundle = value && typeof value === 'object' && typeof value._repr_mimebundle_ === 'function'
        ? value._repr_mimebundle_() : null;
      for (const [kind, form] of Object.entries(bundle || {})) forms.set(kind, toBytes(kind, form));
      for (const [method, kind] of [['_toHtml', 'text/html'], ['_toSvg', 'image/svg+xml'],
        ['_toPng', 'image/png'], ['_toMd', 'text/markdown']]) {
        if (value && typeof value === 'object' && typeof value[method] === 'function' && !forms.has(kind))
          forms.set(kind, toBytes(kind, value[method]()));
      }
      if (value && typeof value === 'object' && !forms.has('application/json') && plainJson(value, 0))
        forms.set('application/json', Buffer.from(JSON.stringify(value)));
    } catch (error) {
      // Its other forms are as good.
    }
    if (!forms.has('text/plain')) {
      let text;
      try {
        text = util.inspect(value, { maxStringLength: TEXT_MAX });
      } catch (error) {
        text = `(it cannot be shown: ${error})`;
      }
      forms.set('text/plain', Buffer.from(text));
    }
    for (const [kind, bytes] of forms)
      if (/^[A-Za-z0-9/+._;=-]{1,100}$/.test(kind)) send(index, kind, bytes);
    record('whole', index, '-');
  }

  // --- the end of a cell ---

  function cut(text) {
    const bytes = Buffer.from(text);
    return bytes.length <= ERROR_MAX ? bytes : Buffer.from(`${text.slice(0, ERROR_MAX / 8)}\n...\n`);
  }

  // Frames of the driver's own are nothing to the user.
  function cleanStack(stack) {
    const lines = stack.split('\n');
    const own = lines.findIndex((line) =>
      /^\s+at .*(node:inspector|\[eval\]|caisson:1:|node:vm)/.test(line));
    return (own < 0 ? lines : lines.slice(0, own)).join('\n');
  }

  function reportError(error) {
    let name = 'Error', value = '', stack = '';
    try {
      if (error instanceof Error || (error && typeof error.stack === 'string')) {
        name = String(error.name || 'Error');
        value = String(error.message);
        stack = cleanStack(String(error.stack));
      } else {
        name = 'Uncaught';
        value = util.inspect(error);
        stack = `Uncaught ${value}`;
      }
    } catch (second) {
      value = '(its text cannot be had)';
    }
    record('error', 0, 'name', cut(name));
    record('error', 0, 'value', cut(value));
    record('error', 0, 'traceback', cut(stack));
  }

  function finish(code) {
    if (!state.running) return;
    state.running = false;
    if (state.results > RESULTS_MAX)
      record('left', RESULTS_MAX, 'results', Buffer.from(String(state.results - RESULTS_MAX)));
    if (!once) {
      record('end', code, '-');
      setImmediate(next);
      return;
    }
    // As a program: it ends when nothing is left to wait for.
    state.code = code;
    socket.unref();
    if (code !== 0) reallyExit(code);
  }

  function interrupted() {
    killNew();
    const error = new Error('the code was interrupted');
    error.name = 'Interrupted';
    error.stack = 'Interrupted: the code was interrupted';
    reportError(error);
    finish(130);
  }

  function failed(error) {
    if (error && error[exitSymbol]) {
      finish(error.code);
      return;
    }
    reportError(error);
    finish(1);
  }

  // The value itself, of what the inspector describes.
  function valueOf(described) {
    if (described.objectId === undefined) {
      if (described.unserializableValue !== undefined) {
        const text = described.unserializableValue;
        return text.endsWith('n') && text !== 'Infinity' ? BigInt(text.slice(0, -1)) : Number(text);
      }
      return described.value;
    }
    let value;
    globalThis[Symbol.for('caisson.take')] = (given) => { value = given; };
    session.post('Runtime.callFunctionOn', {
      objectId: described.objectId,
      functionDeclaration: 'function(v){globalThis[Symbol.for("caisson.take")](v)}',
      arguments: [{ objectId: described.objectId }],
    });
    delete globalThis[Symbol.for('caisson.take')];
    return value;
  }

  function settled(number, failure, answer) {
    if (!state.running || state.cell !== number) return;
    if (failure) {
      failed(new Error(failure.message));
      return;
    }
    const details = answer.exceptionDetails;
    try {
      if (details) {
        failed(details.exception ? valueOf(details.exception) : new Error(details.text));
        return;
      }
      const value = valueOf(answer.result);
      if (value !== undefined) {
        globalThis._ = value;
        show(value);
      }
    } catch (error) {
      failed(error);
      return;
    }
    session.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
    finish(0);
  }

  // --- import and export ---

  // embed: imports.js

  function begin(number, source) {
    state.cell = state.last = number;
    state.results = state.sent = 0;
    state.before = processes();
    state.running = true;
    record('begin', 0, '-');
    try {
      const found = script(source);
      if (!found) return;
      const { text, imports, strict } = found;
      if (imports.length === 0) {
        run(number, text);
        return;
      }
      const current = () => state.running && state.cell === number;
      // Before the cell declares anything: a module must not meet a name that has no value yet.
      loadAll(imports).then((loaded) => {
        if (!current()) return;
        globalThis[Symbol.for('caisson.imports')] = loaded;
        run(number, declarations(imports, strict) + text);
        delete globalThis[Symbol.for('caisson.imports')];
      }, (error) => { if (current()) failed(error); });
    } catch (error) {
      failed(error);
    }
  }

  // Runs it so that SIGINT ends it, which is then the end of the cell, as what it throws is.
  function guarded(work) {
    globalThis[Symbol.for('caisson.run')] = work;
    try {
      runScript.runInThisContext({ breakOnSigint: true });
    } catch (error) {
      if (error && error.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED') interrupted();
      else failed(error);
    }
  }

  function run(number, source) {
    guarded(() => {
      session.post('Runtime.evaluate', {
        expression: `${source}\n//# sourceURL=cell-${number}.js`,
        replMode: true, awaitPromise: true, objectGroup: 'cell', userGesture: false,
      }, (failure, answer) => settled(number, failure, answer));
    });
  }

  // --- what the user's code finds ---

  process.exit = (code) => {
    const given = code === undefined ? process.exitCode : code;
    if (once) reallyExit(Number(given) || 0);
    const error = new Error('process.exit() was called');
    error[exitSymbol] = true;
    error.code = (Number(given) || 0) & 255;
    throw error;
  };
  process.on('SIGINT', () => { if (state.running) interrupted(); });
  process.on('uncaughtException', (error) => {
    if (error && error[exitSymbol]) {
      finish(error.code);
      return;
    }
    process.stderr.write(`Uncaught ${error && error.stack ? cleanStack(error.stack) : util.inspect(error)}\n`);
    if (once) {
      state.code = 1;
      reallyExit(1);
    }
  });
  process.on('exit', (code) => {
    if (once && state.control >= 0) record('end', code || state.code, '-');
  });
  globalThis.require = createRequire(path.join(process.cwd(), 'cell.js'));
  globalThis.module = { exports: {} };
  globalThis.exports = globalThis.module.exports;
  globalThis.display = (...values) => values.forEach(show);

  // --- requests ---

  let buffered = Buffer.alloc(0);

  function handle(line) {
    const words = line.split(' ');
    if (words[0] === 'open') {
      if (state.control >= 0) return;
      if (words.length === 3) {
        BYTES_MAX = Math.min(BYTES_MAX, Number(words[2]));
        TEXT_MAX = Math.min(TEXT_MAX, BYTES_MAX >> 1);
        ERROR_MAX = Math.min(ERROR_MAX, BYTES_MAX >> 4);
      }
      state.control = fs.openSync(`/proc/${Number(words[1])}/fd/1`, fs.constants.O_WRONLY);
      record('ready', 0, '-', Buffer.from(`Node.js ${process.versions.node}`));
      return;
    }
    const number = Number(words[1]);
    if (words[0] !== 'cell' || words.length !== 4 || !(number > state.last)) return;
    let source;
    try {
      source = decodeURIComponent(words[3]);
    } catch (error) {
      return; // half a line of a daemon that is gone: it comes again, whole
    }
    if (Buffer.byteLength(source) === Number(words[2])) begin(number, source);
  }

  function next() {
    while (!state.running) {
      const at = buffered.indexOf(10);
      if (at < 0) return;
      const line = buffered.subarray(0, at).toString('latin1');
      buffered = buffered.subarray(at + 1);
      handle(line);
    }
  }

  const socket = new net.Socket({ fd: Number(process.env.CAISSON_REQUESTS), readable: true, writable: false });
  delete process.env.CAISSON_REQUESTS;
  socket.on('data', (data) => {
    buffered = Buffer.concat([buffered, data]);
    next();
  });
  socket.on('end', () => { if (!once) reallyExit(0); });
  socket.on('error', () => reallyExit(70));
})();
