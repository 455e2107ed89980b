// The imports and exports of a cell: a part of driver.js. embed.py puts it in its place there, so it
// is indented as that is, and uses its names. driver.js calls script(), loadAll() and declarations().

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
