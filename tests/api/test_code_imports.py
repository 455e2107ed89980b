"""Import and export in cells of node: every form of them, modules of all kinds, what only looks like one."""
import unittest

from caisson import DaemonTest
from marks import busy

FILES = {
    "/workspace/near.mjs": "export const near = 1; export let count = 0; export default function named() { return count++ }",
    "/workspace/plain.cjs": "exports.plain = 2",
    "/workspace/broken.mjs": "export const = ;",
    "/workspace/throws.mjs": "throw new RangeError('at load')",
    "/workspace/exits.mjs": "process.exit(7)",
    "/workspace/waits.mjs": "await new Promise(() => setInterval(() => {}, 1000))",
    "/workspace/data.json": '{"a": [1]}',
    "/workspace/looks.mjs": "export const seen = typeof process.pid",
    "/workspace/deep/there.mjs": "export * from '../near.mjs'",
    "/workspace/node_modules/esm/package.json": '{"name": "esm", "type": "module", "exports": {"import": "./main.js"}}',
    "/workspace/node_modules/esm/main.js": "export default 'esm'; export const other = 'more'; export { other as 'odd name' }",
    "/workspace/node_modules/common/index.js": "exports.common = process.argv.length > 0; exports.two = 2",
}


@busy
class Imports(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.box = cls.api.create(timeout_seconds=3600, memory_mb=512)["id"]
        cls.base = f"/v1/sandboxes/{cls.box}"
        for path, text in FILES.items():
            cls.api.write(cls.box, path, text.encode(), parents=1)
        cls.shared = cls.api.post(cls.base + "/contexts", {"language": "node"})["id"]

    def cell(self, code, context=None, **fields):
        return self.api.post(f"{self.base}/contexts/{context or self.shared}/run", {"code": code, "timeout_seconds": 60, **fields})

    def once(self, code):
        return self.api.post(self.base + "/code", {"language": "node", "code": code, "timeout_seconds": 60})

    def shown(self, result):
        self.assertIsNone(result["error"], result)
        return result["results"][-1]["text/plain"] if result["results"] else None

    def failed(self, result, name, *words):
        self.assertEqual((result["error"] or {}).get("name"), name, result)
        for word in words:
            self.assertIn(word, result["error"]["value"])

    def test_every_form(self):
        for code, shown in [
                ("import fs from 'fs'; typeof fs.readFileSync", "'function'"),
                ('import fs1 from "node:fs"\ntypeof fs1.readFileSync', "'function'"),
                ("import { join as glue, sep } from 'path'\nglue('a', 'b') + sep", "'a/b/'"),
                ("import {join,} from 'path'\njoin('a', 'c')", "'a/c'"),
                ("import {} from 'path'\n1", "1"),
                ("import * as os from 'os'; typeof os.cpus", "'function'"),
                ("import path0, * as all from 'path'; path0 === all.default", "true"),
                ("import path1, { sep as s1 } from 'path'; path1.sep === s1", "true"),
                ("import { default as path2 } from 'path'; typeof path2.join", "'function'"),
                ("import './near.mjs'", None),
                ("import from from 'path'; typeof from.join", "'function'"),
                ("import as, { basename as from1 } from 'path'; typeof as.join + from1('a/b')", "'functionb'"),
                ("import/*a*/{/*b*/near/*}*/as/**/n1/**/}from'./near.mjs'/*;*/;n1", "1"),
                ("import{near as n2}from\"./near.mjs\";import{plain as n3}from'./plain.cjs'\nn2+n3", "3"),
                ("import {\n  near as n4, // import x from 'y'\n  count\n} from\n  './near.mjs'\nn4 + count", "1"),
                ("import esm, { other, 'odd name' as odd } from 'esm'; [esm, other, odd].join()", "'esm,more,more'"),
                ("import { common, two } from 'common'; common && two", "2"),
                ("import { near as n5 } from './deep/there.mjs'; n5", "1"),
                ("import data from './data.json' with { type: 'json' }; data.a[0]", "1"),
                ("import data1 from './data.json'\n  with /* a */ { type: 'json' }; data1.a[0]", "1"),
                ("import assert from 'assert'\nassert(true)\n5", "5"),
                ("import assert1 from 'assert'\nassert1\n{ 5 }", "5"),
                ("// a\n'a'; 'use strict'\nimport u1 from 'path'\nlet v1; try { w1 = 1 } catch (error) { v1 = error.name } v1", "'ReferenceError'"),
                ("'use strict'.length\nimport u2 from 'path'\nlet v2; try { w2 = 1 } catch (error) { v2 = error.name } typeof v2", "'undefined'"),
                ("import \u00fcber from 'p\\u0061th'; typeof \u00fcber.join", "'function'"),
                ("let a1 = 1\nimport b1 from 'path'\na1 + typeof b1", "'1object'"),
                ("const early = later.sep; early\nimport later from 'path'", "'/'"),
                ("await 1; import c1 from 'path'; await c1.sep", "'/'"),
                ("#!/usr/bin/env node\nimport d1 from 'path'\nd1.sep", "'/'"),
                ("'use strict'\nimport e1 from 'path'\r\nimport f1 from 'os'\u2028import g1 from 'fs'\n[e1, f1, g1].length", "3"),
                ("{ let x = 1 }\nimport h1 from 'path'; if (h1) { h1.sep }", "'/'"),
                ("function f(a) { return a / 2 } /import x from 'y'/.test('') ; import i1 from 'path'; i1.sep", "'/'"),
                ("import process from 'node:process'\nimport { seen } from './looks.mjs'\nimport { Buffer } from 'buffer'\nseen", "'number'")]:
            with self.subTest(code=code):
                self.assertEqual(self.shown(self.cell(code)), shown)
                self.assertEqual(self.shown(self.once(code)), shown)

    def test_names_stay(self):
        self.cell("import fs, { existsSync } from 'fs'; import * as near from './near.mjs'")
        self.assertEqual(self.shown(self.cell("[existsSync('/workspace'), typeof fs.statSync, near.near].join()")), "'true,function,1'")
        # Once more, as people run a cell again.
        self.assertEqual(self.shown(self.cell("import fs, { existsSync } from 'fs'; typeof fs.statSync")), "'function'")
        # One module for all cells: it is loaded once.
        self.cell("import step from './near.mjs'; step(); step()")
        self.assertEqual(self.shown(self.cell("import again, { count as steps } from './near.mjs'; steps")), "2")
        self.failed(self.cell("existsSync = 1"), "TypeError", "constant")

    def test_what_fails(self):
        for code, name, words in [
                ("import x from 'no-such-package'", "Error", ["no-such-package"]),
                ("import x from './no/such.mjs'", "Error", ["no/such.mjs"]),
                ("import { nope } from 'fs'", "SyntaxError", ["'fs'", "nope"]),
                ("import x from './broken.mjs'", "SyntaxError", []),
                ("import x from './throws.mjs'", "RangeError", ["at load"]),
                ("import x from 'fs' 5", "SyntaxError", ["line 1"]),
                ("import x 'fs'", "SyntaxError", ["line 1"]),
                ("import {a b} from 'fs'", "SyntaxError", ["line 1"]),
                ("import type { X } from 'fs'", "SyntaxError", ["line 1"]),
                ("import { 'a' } from 'fs'", "SyntaxError", ["line 1"]),
                ("import \\u0061b from 'fs'", "SyntaxError", ["line 1"]),
                ("x = 1 import('fs')", "SyntaxError", ["import"]),
                ("import 'a", "SyntaxError", []),
                ("import", "SyntaxError", []),
                ("import { default } from 'fs'", "SyntaxError", []),
                ("import a2 from 'fs'; import a2 from 'os'", "SyntaxError", ["a2"]),
                ("1\nfunction f() {\n  import x from 'fs'\n}", "SyntaxError", ["line 3", "top level"]),
                ("if (1) import 'fs'", "SyntaxError", ["top level"]),
                ("let y = import x from 'fs'", "SyntaxError", ["top level"]),
                ("import fs2 from 'fs'; import.meta.url", "SyntaxError", ["import.meta"]),
                ("import fs3 from 'fs'; let = = 1", "SyntaxError", []),
                ("export * from 'fs'", "SyntaxError", ["script"]),
                ("export { x } from 'fs'", "SyntaxError", ["script"]),
                ("export default 5", "SyntaxError", ["script"]),
                ("{ export const x = 1 }", "SyntaxError", ["top level"])]:
            with self.subTest(code=code):
                for result in (self.cell(code), self.once(code)):
                    self.failed(result, name, *words)
                    self.assertEqual(result["exit_code"], 1)
        # Nothing of such a cell has run, and what it would have declared can be declared.
        self.failed(self.cell("globalThis.ran = 1; import lost from 'no-such-package'"), "Error")
        self.assertEqual(self.shown(self.cell("import lost from 'path'; [typeof ran, lost.sep].join()")), "'undefined,/'")
        self.assertEqual(self.cell("import './exits.mjs'")["exit_code"], 7)
        # Lines keep their numbers.
        self.assertIn("cell-", self.cell("import k1 from 'path'\n\nnull.x")["error"]["traceback"])
        self.assertIn(":3:", self.cell("import k2 from 'path'\n\nnull.x")["error"]["traceback"])

    def test_only_looks_like_one(self):
        for code, shown in [
                ('"import x from \'fs\'"', '"import x from \'fs\'"'),
                ("`\nimport x from 'y'\nexport const z = 1\n`.length", str(len("\nimport x from 'y'\nexport const z = 1\n"))),
                ("// import a from 'b'\n/*\nimport a from 'b'\n*/ 1", "1"),
                ("/\\nimport (x) from 'y'/.source", "\"\\\\nimport (x) from 'y'\""),
                ("`${`${1}import('fs')`}`", "\"1import('fs')\""),
                ("({ import: 1, export: 2 }).import", "1"),
                ("({ import(x) { return x } }).import('fs')", "'fs'"),
                ("class A { static import (x) { return x } export() {} }; A.import('os')", "'os'"),
                ("const o1 = { import: (x) => x }; o1?.import('a') + o1 .\nimport('b')", "'ab'"),
                ("let important = 1; important", "1"),
                ("try { eval(\"import x from 'fs'\") } catch (error) { error.name }", "'SyntaxError'"),
                ("import t1 from 'path'; `import t2 from 'no'` + \"export const t3\" /* import t4 from 'no' */", "\"import t2 from 'no'export const t3\""),
                ("const m1 = await import('path'); m1.sep", "'/'"),
                ("(await import ( './near.mjs' )).near + `import('x')`.length + (await import('./plain.cjs')).default.plain", "14"),
                ("await import('no-such').catch((error) => error.code)", "'ERR_MODULE_NOT_FOUND'"),
                ("(await import/**/('path')).sep + (await import // (\n('path')).sep", "'//'"),
                ("/(?<import>a)(?<export>b)\\k<import>/.source.length + (await import('path')).sep", "'34/'"),
                ("class B { #import(x) { return x } #export() {} f() { return this.#import(1) } }; (await import('path')).sep + new B().f()", "'/1'"),
                ("const f9 = () => import('esm'); (await f9()).default", "'esm'")]:
            with self.subTest(code=code):
                self.assertEqual(self.shown(self.cell(code)), shown)
                self.assertEqual(self.shown(self.once(code)), shown)

    def test_export(self):
        for code, shown in [
                ("export const x1 = 1; x1", "1"), ("export let x2 = 2, y2 = 3\nx2 + y2", "5"), ("export var x3 = 1; x3", "1"),
                ("export function x4() { return 4 }\nx4()", "4"), ("export async function* x5() {}\ntypeof x5", "'function'"),
                ("export class X6 {}\ntypeof X6", "'function'"), ("export default function x7() { return 7 }\nx7()", "7"),
                ("export default class X8 {}; typeof X8", "'function'"), ("const x9 = 9\nexport { x9, x9 as default };\nx9", "9"),
                ("const x11 = 11\nexport { x11 }\nx11", "11"), ("const x12 = 1; export { x12 } /*\n*/ x12 + 1", "2"),
                ("let x13 = 0, y13 = () => 1\nx13 = y13\nexport { x13 }\n(x13)()", "1"),
                ("let x14 = 1\nexport { x14 }\nexport { x14 as y14 }; export { x14 as z14 }\n[x14].length", "1"),
                ("import { sep as x10 } from 'path'\nexport /* a */ const y10 = x10; y10", "'/'")]:
            with self.subTest(code=code):
                self.assertEqual(self.shown(self.cell(code)), shown)
                self.assertEqual(self.shown(self.once(code)), shown)
        self.assertEqual(self.shown(self.cell("x1 + x4() + x7()")), "12")

    def test_many_and_large(self):
        code = "".join(f"import {{ sep as many{i} }} from 'path'\n" for i in range(100))
        self.assertEqual(self.shown(self.cell(code + "many0 + many99")), "'//'")
        code = "".join(f"import {{ sep as over{i} }} from 'path'\n" for i in range(501))
        self.failed(self.cell(code), "SyntaxError", "500")
        text = "import x from 'y'; " * 5000
        self.assertEqual(self.shown(self.cell(f"import big from 'path'; `{text}`.length")), str(len(text)))

    def test_many_in_large_code(self):
        """What it takes grows with the code, not with the code times its imports: minutes, where it did."""
        large = "[" + ",".join(f'"x{i}"' for i in range(80000)) + "].length;\n"
        calls = "".join(f"// import('a{i}')\n" for i in range(600))
        exports = "".join(f"export var many{i} = {i};\n" for i in range(499))
        for code, shown in [(large + calls + "1", "1"), (large + exports + "many498", "498"), (exports + large, "80000")]:
            result = self.once(code)
            self.assertEqual(self.shown(result), shown)
            self.assertLess(result["duration_ms"], 20000)
        result = self.cell(large + "import('path');" * 600)
        self.failed(result, "SyntaxError", "in parts")
        self.assertLess(result["duration_ms"], 20000)

    def test_at_the_edge_of_what_is_read_at_once(self):
        for tail, shown in [("import('path').then(0); 1", "1"), ("const imported = 2; imported", "2"), ("import {sep} from 'path'; sep", "'/'"),
                            ("let exported = 3; export { exported }; exported", "3"), ("import /*" + "a" * 9000 + "*/ ('path').then(0); 4", "4")]:
            for pad in range(4064, 4098, 1 if len(tail) < 60 else 8):
                self.assertEqual(self.shown(self.cell(f"'{'y' * pad}';{tail}")), shown)

    def test_errors_shown_in_the_cells_own_way(self):
        context = self.api.post(self.base + "/contexts", {"language": "node"})["id"]
        for how in ("Error.prepareStackTrace = own", "Object.defineProperty(Error, 'prepareStackTrace', { value: own, configurable: false })"):
            self.cell(f"var own = (error, sites) => 'its own'; {how}; 1", context)
            self.assertEqual(self.shown(self.cell("import p from 'path'; p.sep", context)), "'/'")
            self.assertEqual(self.shown(self.cell("(await import('path')).sep", context)), "'/'")
            self.assertEqual(self.shown(self.cell("export const e = Error.prepareStackTrace === own; e", context)), "true")
        self.api.delete(f"{self.base}/contexts/{context}")

    def test_interrupt_while_imports_are_looked_for(self):
        """What V8 says of an import is shown in the cell's own way, which never ends: the first time."""
        context = self.api.post(self.base + "/contexts", {"language": "node"})["id"]
        self.cell("var kept = 5, looked = 0; Object.defineProperty(Error, 'prepareStackTrace',"
                  " { value: () => { if (looked++ === 0) for (;;); return '' }, configurable: false }); 1", context)
        for seconds in (1, 5, 20):  # if the machine stalls it may not have come so far
            result = self.cell("import p from 'path'; p.sep", context, timeout_seconds=seconds)
            self.assertTrue(result["timed_out"] and not result.get("context_ended"), result)
            if self.shown(self.cell("looked", context)) != "0":
                break
        self.assertEqual(self.shown(self.cell("import q from 'path'; q.sep + kept + (looked > 0)", context)), "'/5true'")
        self.api.delete(f"{self.base}/contexts/{context}")

    def test_a_load_that_never_ends(self):
        context = self.api.post(self.base + "/contexts", {"language": "node"})["id"]
        result = self.cell("import './waits.mjs'", context, timeout_seconds=0.5)
        self.assertTrue(result["timed_out"], result)
        self.assertEqual(self.shown(self.cell("import after from 'path'; after.sep", context)), "'/'")
        self.api.delete(f"{self.base}/contexts/{context}")


if __name__ == "__main__":
    unittest.main()
