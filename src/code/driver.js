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

  // What a module beside the cell would load; its promise is kept by nobody else.
  const here = path.join(process.cwd(), 'cell.js');
  const loader = new Module(here);
  loader.filename = here;
  loader._compile('module.exports = (name, options) => import(name, options)', here);
  const load = loader.exports;
  Object.defineProperty(globalThis, '$mport', { value: load });

  let compiled = 0;

  function refusal(why) {
    const error = new SyntaxError(why);
    error.stack = `SyntaxError: ${why}`;
    return error;
  }

  const refuse = (text, at, why) =>
    refusal(`line ${text.slice(0, at).split(/\r\n|[\n\r\u2028\u2029]/).length}: ${why}`);

  // The message itself: the description is of Error.prepareStackTrace, which may be the cell's.
  function messageOf(exception) {
    let message = '';
    if (!exception || exception.objectId === undefined) return message;
    session.post('Runtime.getProperties', { objectId: exception.objectId, ownProperties: true }, (failure, answer) => {
      const own = failure ? undefined : answer.result.find((one) => one.name === 'message');
      if (own && own.value) message = String(own.value.value);
    });
    session.post('Runtime.releaseObject', { objectId: exception.objectId });
    return message;
  }

  // Where V8 stops reading in this part of the text, and why; null: it is a whole program, perhaps one
  // that awaits. No directive of a part is one of the cell, so none is taken for one.
  function problemOf(text, from, to, head = '(async () => {;') {
    compiled += to - from;
    if (compiled > COMPILED_MAX) throw refusal('too much code for so many imports: run it in parts');
    const part = text.slice(from, to);
    let details = null;
    session.post('Runtime.compileScript', { expression: `${head}${part}\n})`, sourceURL: '', persistScript: false },
      (failure, answer) => { details = failure ? { lineNumber: 0, columnNumber: 0 } : answer.exceptionDetails; });
    if (!details) return null;
    const ends = /\r\n|[\n\r\u2028\u2029]/g;
    let begin = 0;
    for (let line = 0; line < details.lineNumber && ends.exec(part); line++) begin = ends.lastIndex;
    const at = from + begin + details.columnNumber - (details.lineNumber === 0 ? head.length : 0);
    return { message: messageOf(details.exception), at };
  }

  // The first problem behind `from`. V8 reads from left to right: what it says of a window is true of
  // the text if `certain` thinks so too, and otherwise the window is too small. So what many imports
  // take grows with the text, not with its square.
  function firstProblem(text, from, known, certain) {
    for (let size = known - from + WINDOW; ; size *= 2) {
      const to = Math.min(from + size, text.length);
      const problem = problemOf(text, from, to);
      // With the character behind the word, and the other half of that.
      if (to === text.length || (problem && problem.at + 'import'.length + 2 <= to && certain(problem))) return problem;
    }
  }

  // The words of one declaration, from its first: V8 has said that it begins there.
  function scanner(text, from) {
    let at = from;
    const take = (pattern) => {
      pattern.lastIndex = at;
      const found = pattern.exec(text);
      if (found) at = pattern.lastIndex;
      return found && found[0];
    };
    const blanks = () => take(/(?:[\s\uFEFF]|\/\/[^\n\r\u2028\u2029]*|\/\*[^]*?\*\/)*/y);
    const next = (pattern) => {
      const before = at;
      blanks();
      const found = take(pattern);
      if (found === null) at = before;
      return found;
    };
    return {
      mark: (mark) => next(mark === '*' ? /\*/y : mark === '{' ? /\{/y : mark === '}' ? /\}/y : mark === ':' ? /:/y : /,/y) !== null,
      name: () => next(/[\p{ID_Start}$_][\p{ID_Continue}$\u200c\u200d]*/uy),
      word: (word) => next(new RegExp(`${word}(?![\\p{ID_Continue}$\\\\])`, 'uy')) !== null,
      text: () => {
        const literal = next(/"(?:[^"\\\n\r]|\\[^])*"|'(?:[^'\\\n\r]|\\[^])*'/y);
        if (literal === null) return null;
        return literal.includes('\\') ? vm.runInThisContext(literal) : literal.slice(1, -1);
      },
      // Behind a whole declaration: a semicolon, or the line's end, or nothing.
      end: () => {
        const blank = blanks();
        if (take(/;/y) !== null || at === text.length || /[\n\r\u2028\u2029]/.test(blank)) return at;
        return -1;
      },
      // `assert` in the same line only: in the next one it is a name, and {…} behind it a block.
      attributes: () => {
        const before = at;
        const gap = blanks();
        const word = take(/(?:with|assert)(?![\p{ID_Continue}$\\])/uy);
        blanks();
        if (text[at] === '{' && (word === 'with' || (word === 'assert' && !/[\n\r\u2028\u2029]/.test(gap)))) return true;
        at = before;
        return false;
      },
      call: () => next(/\(/y) !== null,
      at: () => at,
    };
  }

  // {a as b, "c" as d}: pairs of names. `second` may be missing, and is then the first.
  function readNames(scan) {
    const pairs = [];
    while (!scan.mark('}')) {
      const quoted = scan.text();
      const name = quoted === null ? scan.name() : quoted;
      const local = scan.word('as') ? scan.name() || scan.text() : quoted === null ? name : null;
      if (name === null || local === null) return null;
      pairs.push([name, local]);
      if (!scan.mark(',')) return scan.mark('}') ? pairs : null;
    }
    return pairs;
  }

  function readAttributes(scan) {
    if (!scan.attributes()) return undefined;
    const attributes = {};
    if (!scan.mark('{')) return null;
    while (!scan.mark('}')) {
      const quoted = scan.text();
      const key = quoted === null ? scan.name() : quoted;
      const value = scan.mark(':') ? scan.text() : null;
      if (key === null || value === null) return null;
      attributes[key] = value;
      if (!scan.mark(',')) return scan.mark('}') ? { with: attributes, assert: attributes } : null;
    }
    return { with: attributes, assert: attributes };
  }

  // `import x, {a as b} from 'c'` and its other forms; null: it is none of them.
  function readImport(text, at) {
    const scan = scanner(text, at + 'import'.length);
    const found = { from: scan.text(), whole: null, names: [] };
    if (found.from === null) {
      const first = scan.name();
      if (first !== null) found.names.push(['default', first]);
      if (first === null || scan.mark(',')) {
        if (scan.mark('*')) {
          found.whole = scan.word('as') ? scan.name() : null;
          if (found.whole === null) return null;
        } else {
          const names = scan.mark('{') ? readNames(scan) : null;
          if (!names) return null;
          found.names.push(...names);
        }
      }
      found.from = scan.word('from') ? scan.text() : null;
      if (found.from === null) return null;
    }
    found.options = readAttributes(scan);
    found.end = scan.end();
    return found.options === null || found.end < 0 ? null : found;
  }

  // This import and those that follow it at once, which are as much at the top level; null: it is none.
  function readImports(text, at) {
    const found = [];
    for (let one = readImport(text, at); one && found.length <= IMPORTS_MAX; one = readImport(text, at)) {
      found.push(one);
      const scan = scanner(text, one.end);
      if (!scan.word('import')) break;
      at = scan.at() - 'import'.length;
    }
    return found.length > 0 ? found : null;
  }

  // How far `export` is to be left out so that the rest is a script, and whether that is a whole
  // statement; null: there is no such place.
  function readExport(text, at) {
    const scan = scanner(text, at + 'export'.length);
    if (scan.mark('{')) {
      const end = readNames(scan) && !scan.word('from') ? scan.end() : -1;
      return end < 0 ? null : { end, whole: true };
    }
    const unnamed = scan.word('default');
    const rest = { end: scan.at(), whole: false };
    scan.word('async');
    const kind = scan.name();
    const named = () => {
      scan.mark('*');
      return scan.name() !== null;
    };
    if (kind === 'function' || kind === 'class') return named() ? rest : null;
    return !unnamed && ['const', 'let', 'var'].includes(kind) ? rest : null;
  }

  const blank = (text) => text.replace(/[^\n\r\u2028\u2029]/g, ' ');

  const isExport = (text, problem) => problem.message === "Unexpected token 'export'" && text.startsWith('export', problem.at);
  const isImport = (text, problem) =>
    problem.message === 'Cannot use import statement outside a module' && text.startsWith('import', problem.at);

  // import() as a script of the inspector's has it finds no module. What is one, and no property of
  // that name and no text, V8 says of `export` in its place, which is as long and may be nowhere else.
  function replaceCalls(text) {
    let probe = text.replace(/(?<![\p{ID_Continue}$#]|\(\?<|\\k<)import(?![\p{ID_Continue}$\\])/gu, 'export');
    let done = text;
    for (let at = 0; probe !== done; ) {
      const problem = firstProblem(probe, 0, at, (one) => isExport(probe, one));
      if (!problem) return done;
      // Nothing is replaced in what is no program: V8 is to speak of it as it was written.
      if (!isExport(probe, problem) || !text.startsWith('import', problem.at)) return text;
      at = problem.at;
      const end = at + 'import'.length;
      if (!scanner(text, end).call()) return text;
      probe = `${probe.slice(0, at)}$mport${probe.slice(end)}`;
      done = `${done.slice(0, at)}$mport${done.slice(end)}`;
    }
    return done;
  }

  // The cell as a script: without its imports, which are returned, and the word `export`. Each stands
  // where V8 stops, behind what is a whole program: at the top level, in no text and no comment. What
  // is behind it is read for itself.
  function withoutImports(source) {
    const imports = [];
    const text = source.replace(/^#!/, '//');
    let done = '';
    let from = 0;
    for (let round = 0; ; round++) {
      const problem = firstProblem(text, from, from, (one) => isExport(text, one) || (isImport(text, one) && readImport(text, one.at)));
      if (!problem) break;
      const { at } = problem;
      const importing = isImport(text, problem);
      if (!importing && !isExport(text, problem)) return { text: done + text.slice(from), imports };
      if (problemOf(text, from, at))
        throw refuse(text, at, `${importing ? 'import' : 'export'} is possible at the top level only; elsewhere there is import('name')`);
      const found = importing ? readImports(text, at) : null;
      const exported = importing ? null : readExport(text, at);
      if (!found && !exported)
        throw refuse(text, at, importing ? 'this is no import declaration'
          : 'code is run as a script: `export` is possible before a declaration that has a name, and as {names}');
      if (found) imports.push(...found);
      if (round >= IMPORTS_MAX || imports.length > IMPORTS_MAX) throw refuse(text, at, `more than ${IMPORTS_MAX} imports and exports`);
      const end = found ? found[found.length - 1].end : exported.end;
      // A statement has to be left where there was one.
      const gone = blank(text.slice(at, end));
      done += text.slice(from, at) + (found || exported.whole ? `;${gone.slice(1)}` : gone);
      from = end;
    }
    done += text.slice(from);
    return { text: replaceCalls(done), imports, strict: imports.length > 0 && isStrict(done) };
  }

  // null: it was interrupted meanwhile, or is refused, and has ended.
  function script(source) {
    if (!/\b(?:im|ex)port\b/.test(source)) return { text: source, imports: [] };
    let found = null;
    compiled = 0;
    // The cell's own way to show an error has nothing to do with what V8 says here.
    const formatter = Object.getOwnPropertyDescriptor(Error, 'prepareStackTrace');
    const aside = formatter !== undefined && formatter.configurable && Object.isExtensible(Error) &&
      delete Error.prepareStackTrace;
    // Enabled it compiles; but what a cell prints would be kept there too.
    session.post('Runtime.enable');
    guarded(() => { found = withoutImports(source); });
    session.post('Runtime.disable');
    if (aside) Object.defineProperty(Error, 'prepareStackTrace', formatter);
    // An interrupt may have come when all was found.
    return state.running ? found : null;
  }

  async function loadAll(imports) {
    const loaded = [];
    for (const one of imports) {
      const module = await load(one.from, one.options);
      for (const [name] of one.names)
        if (!(name in module)) throw refusal(`The requested module '${one.from}' does not provide an export named '${name}'`);
      loaded.push(module);
    }
    return loaded;
  }

  // Whether the cell begins with 'use strict': V8 refuses that in such a function.
  function isStrict(text) {
    if (!/use strict/.test(text)) return false;
    const problem = problemOf(text, 0, text.length, '(async (a = 0) => {');
    return problem !== null && problem.message.startsWith("Illegal 'use strict' directive");
  }

  // In one line, so that every other line keeps its number.
  function declarations(imports, strict) {
    return (strict ? "'use strict';" : '') + imports.map((one, index) => {
      const module = `globalThis[Symbol.for("caisson.imports")][${index}]`;
      const names = one.names.map(([name, local]) => `${JSON.stringify(name)}: ${local}`).join(', ');
      return (names && `const {${names}} = ${module};`) + (one.whole === null ? '' : `const ${one.whole} = ${module};`);
    }).join('');
  }

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
