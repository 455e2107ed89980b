// Drives @pandastack/sdk, as npm has it, against a daemon; test_pandastack.py starts it and reads what it prints: a
// line of JSON per step, {"step", "ok", "error"}. Everything here is what the SDK's users write; nothing of it is
// patched. Usage: node pandastack.mjs STEP... (all of them, when none is named); PANDASTACK_API and
// PANDASTACK_API_KEY say where.
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

// The package is where the test has installed it, not beside this file.
const require = createRequire(join(process.env.COMPAT_MODULES, "package.json"));
const sdk = require("@pandastack/sdk");
const { Client, Sandbox, NotFoundError, AuthError, BadRequestError, CommandError, SandboxTimeout } = sdk;
const client = new Client({ timeoutMs: 60_000 });

async function withSandbox(use, options = {}) {
  const sandbox = await Sandbox.create(options, client);
  try {
    await use(sandbox);
  } finally {
    await sandbox.kill().catch(() => {});
  }
}

async function collect(iterable) {
  const all = [];
  for await (const one of iterable) all.push(one);
  return all;
}

const steps = {
  async create() {
    await withSandbox(async (sandbox) => {
      assert.match(sandbox.id, /^\S+$/);
      assert.equal(sandbox.status, "running");
      assert.equal(typeof sandbox.template, "string");
    });
  },

  async create_with_options() {
    const options = { template: "code-interpreter", ttlSeconds: 600, persistent: false, metadata: { owner: "compat" } };
    await withSandbox(async (sandbox) => {
      assert.deepEqual(sandbox.info.metadata, { owner: "compat" });
      const lifecycle = await sandbox.lifecycle();
      assert.equal(lifecycle.ttl_seconds, 600);
      assert.equal(lifecycle.persistent, false);
    }, options);
  },

  async create_every_template() {
    for (const template of ["base", "code-interpreter", "agent", "claude-agent", "browser", "ubuntu-24.04"]) {
      await withSandbox(async (sandbox) => assert.equal((await sandbox.exec("echo here")).stdout, "here\n"), { template });
    }
  },

  async list_and_get() {
    await withSandbox(async (sandbox) => {
      const listed = await Sandbox.list(client);
      assert.ok(listed.some((one) => one.id === sandbox.id));
      const again = await Sandbox.get(sandbox.id, client);
      assert.equal(again.id, sandbox.id);
      assert.equal(again.status, "running");
    });
  },

  async delete() {
    const sandbox = await client.sandboxes.create({ metadata: { a: "b" } });
    await sandbox.kill();
    assert.ok(!(await client.sandboxes.list()).some((one) => one.id === sandbox.id));
    await assert.rejects(sandbox.exec("true"));
  },

  async dispose() {
    const sandbox = await Sandbox.create({}, client);
    await sandbox[Symbol.asyncDispose]();
    assert.ok(!(await Sandbox.list(client)).some((one) => one.id === sandbox.id));
  },

  async exec() {
    await withSandbox(async (sandbox) => {
      const result = await sandbox.exec("echo out; echo err >&2; exit 3");
      assert.deepEqual([result.stdout, result.stderr, result.exit_code, result.exitCode], ["out\n", "err\n", 3, 3]);
      assert.equal(typeof result.duration_ms, "number");
      assert.equal((await sandbox.commands.run("echo $((6 * 7))")).stdout, "42\n");
      assert.equal((await sandbox.exec("printf 'gr\\303\\274n'")).stdout, "grün");
      assert.equal((await sandbox.exec("head -c 300000 /dev/zero | tr '\\0' x")).stdout.length, 300000);
    });
  },

  async exec_check() {
    await withSandbox(async (sandbox) => {
      await assert.rejects(sandbox.exec("echo why >&2; exit 7", { check: true }), (error) => {
        assert.ok(error instanceof CommandError);
        assert.deepEqual([error.exitCode, error.stderr], [7, "why\n"]);
        return true;
      });
    });
  },

  // The SDK makes a SandboxTimeout of a 5xx whose text says so; the daemon answers a command that was ended by its time
  // with 200, `timed_out` and the output so far, which the SDK hands on as a result that did not succeed.
  async exec_timeout() {
    await withSandbox(async (sandbox) => {
      // Time enough to say it on a machine that stalls.
      const result = await sandbox.exec("echo begun; sleep 30", { timeoutSeconds: 5 });
      assert.deepEqual([result.exit_code, result.stdout, result.timed_out], [124, "begun\n", true]);
      assert.equal((await sandbox.exec("pgrep -x sleep || echo none")).stdout, "none\n");
    });
  },

  async run_code() {
    await withSandbox(async (sandbox) => {
      assert.equal((await sandbox.runCode("print(2 ** 10)", "python")).stdout, "1024\n");
      assert.equal((await sandbox.runCode("echo $0")).exit_code, 0);
    });
  },

  async exec_stream() {
    await withSandbox(async (sandbox) => {
      let out = "", err = "";
      const code = await sandbox.execStream("for i in 1 2 3; do echo $i; done; echo grün >&2; exit 5",
        { onStdout: (chunk) => (out += chunk), onStderr: (chunk) => (err += chunk) });
      assert.deepEqual([code, out, err], [5, "1\n2\n3\n", "grün\n"]);
      let size = 0;
      assert.equal(await sandbox.execStream("yes grün | head -c 2000000", { onStdout: (chunk) => { size += Buffer.byteLength(chunk); } }), 0);
      assert.ok(Math.abs(size - 2000000) <= 3, `${size}`);
    });
  },

  async exec_stream_as_it_comes() {
    await withSandbox(async (sandbox) => {
      const chunks = [];
      const code = await sandbox.execStream("echo first; until [ -e /tmp/go ]; do sleep 0.05; done; echo last",
        { onStdout: (chunk) => { chunks.push(chunk); if (chunks.length === 1) sandbox.exec("touch /tmp/go"); } });
      assert.deepEqual([code, chunks.join("")], [0, "first\nlast\n"]);
    });
  },

  async exec_stream_timeout() {
    await withSandbox(async (sandbox) => {
      let out = "";
      await assert.rejects(sandbox.execStream("echo begun; sleep 30", { timeoutSeconds: 5, onStdout: (chunk) => (out += chunk) }),
        (error) => error instanceof SandboxTimeout);
      assert.equal(out, "begun\n");
    });
  },

  async fs_write_and_read() {
    await withSandbox(async (sandbox) => {
      const fs = sandbox.filesystem;
      const written = await fs.write("/workspace/deep/er/file.txt", "hello grün\n");
      assert.deepEqual([written.path, written.bytes], ["/workspace/deep/er/file.txt", 12]);
      assert.equal(await fs.read("/workspace/deep/er/file.txt"), "hello grün\n");
      await fs.write("/workspace/bytes", new Uint8Array([0, 1, 2, 255]));
      assert.equal((await sandbox.exec("od -An -tu1 /workspace/bytes | tr -s ' '")).stdout, " 0 1 2 255\n");
      await fs.write("/workspace/empty", "");
      assert.equal(await fs.read("/workspace/empty"), "");
    });
  },

  async fs_upload_and_download() {
    const folder = await mkdtemp(join(tmpdir(), "caisson-compat-"));
    try {
      await withSandbox(async (sandbox) => {
        const text = "0123456789".repeat(50000);
        await writeFile(join(folder, "up"), text);
        await sandbox.filesystem.upload(join(folder, "up"), "/workspace/up");
        await sandbox.filesystem.download("/workspace/up", join(folder, "down/here"));
        assert.equal(await readFile(join(folder, "down/here"), "utf8"), text);
      });
    } finally {
      await rm(folder, { recursive: true });
    }
  },

  async fs_list_stat_walk() {
    await withSandbox(async (sandbox) => {
      const fs = sandbox.filesystem;
      await sandbox.exec("mkdir -p /workspace/tree/a/b; echo 1 > /workspace/tree/one; echo 22 > /workspace/tree/a/two; ln -s .. /workspace/tree/a/b/up");
      const entries = await fs.list("/workspace/tree");
      const by = Object.fromEntries(entries.map((entry) => [entry.name, entry]));
      assert.deepEqual(Object.keys(by).sort(), ["a", "one"]);
      assert.deepEqual([by.a.is_dir, by.one.is_dir, by.one.size, by.one.path], [true, false, 2, "/workspace/tree/one"]);
      assert.ok(by.one.mtime > 1_600_000_000 && by.one.mode !== "");
      const stat = await fs.stat("/workspace/tree/a/two");
      assert.deepEqual([stat.name, stat.path, stat.size, stat.is_dir], ["two", "/workspace/tree/a/two", 3, false]);
      assert.deepEqual([await fs.exists("/workspace/tree"), await fs.exists("/nowhere")], [true, false]);
      const walked = await collect(fs.walk("/workspace/tree"));
      assert.deepEqual(walked.map((step) => step.dir).sort(), ["/workspace/tree", "/workspace/tree/a", "/workspace/tree/a/b"]);
      assert.deepEqual(walked.flatMap((step) => step.files.map((file) => file.name)).sort(), ["one", "two", "up"]);
    });
  },

  async lifecycle() {
    await withSandbox(async (sandbox) => {
      assert.equal((await sandbox.lifecycle()).timeout_seconds, 600);
      assert.equal((await sandbox.setTtl(1234)).ttl_seconds, 1234);
      assert.equal((await sandbox.lifecycle()).timeout_seconds, 0);
      assert.equal((await sandbox.setPersistent(true)).persistent, true);
      const now = await sandbox.lifecycle();
      assert.deepEqual([now.ttl_seconds, now.persistent], [1234, true]);
      assert.equal(typeof now.idle_seconds, "number");
      assert.equal((await sandbox.setPersistent(false)).persistent, false);
    });
  },

  async pause_and_resume() {
    await withSandbox(async (sandbox) => {
      await sandbox.exec("echo kept > /tmp/file");
      await sandbox.pause();
      assert.equal((await Sandbox.get(sandbox.id, client)).status, "paused");
      await sandbox.resume();
      assert.equal((await Sandbox.get(sandbox.id, client)).status, "running");
      await sandbox.pause();
      // A request wakes it.
      assert.equal((await sandbox.exec("cat /tmp/file")).stdout, "kept\n");
    });
  },

  async hibernate_and_wake() {
    await withSandbox(async (sandbox) => {
      await sandbox.filesystem.write("/workspace/file", "kept");
      await sandbox.hibernate();
      assert.notEqual((await Sandbox.get(sandbox.id, client)).status, "running");
      await sandbox.wake();
      assert.equal((await Sandbox.get(sandbox.id, client)).status, "running");
      assert.equal(await sandbox.filesystem.read("/workspace/file"), "kept");
      await sandbox.hibernate();
      assert.equal((await sandbox.exec("cat /workspace/file")).stdout, "kept");
    });
  },

  async code_context() {
    await withSandbox(async (sandbox) => {
      const context = await sandbox.createCodeContext();
      assert.match(context.id, /^\S+$/);
      await context.runCode("x = 20\ndef double(n): return 2 * n");
      const value = await context.runCode("print('printed')\ndouble(x) + 2");
      assert.deepEqual([value.stdout, value.text, value.exit_code], ["printed\n", "42", 0]);
      assert.equal(value.results.length, 1);
      assert.equal((await context.runCode("'grün'")).text, "'grün'");
      const failed = await context.runCode("1 / 0");
      assert.notEqual(failed.exit_code, 0);
      assert.match(failed.error + failed.stderr, /ZeroDivisionError/);
      assert.equal((await context.runCode("x")).text, "20");
      await context.close();
      await context.close();
    });
  },

  async code_context_results() {
    await withSandbox(async (sandbox) => {
      const context = await sandbox.createCodeContext("python3");
      const html = await context.runCode("class Page:\n    def _repr_html_(self): return '<b>bold</b>'\nPage()");
      assert.equal(html.results[0].html, "<b>bold</b>");
      const png = await context.runCode("class Picture:\n    def _repr_png_(self): return b'\\x89PNG'\nPicture()");
      assert.equal(Buffer.from(png.png, "base64").toString("latin1"), "\x89PNG");
      assert.equal(png.results[0].chart, png.png);
      const json = await context.runCode("class Data:\n    def _repr_json_(self): return {'a': [1, None]}\nData()");
      assert.deepEqual(json.results[0].json, { a: [1, null] });
    });
  },

  async code_context_timeout() {
    await withSandbox(async (sandbox) => {
      const context = await sandbox.createCodeContext();
      await context.runCode("y = 1");
      const result = await context.runCode("while True: pass", { timeoutSeconds: 1 });
      assert.notEqual(result.exit_code, 0);
      assert.equal((await context.runCode("y")).text, "1");
    });
  },

  async code_context_languages() {
    await withSandbox(async (sandbox) => {
      const context = await sandbox.createCodeContext("bash");
      await context.runCode("variable=kept; cd /tmp");
      assert.equal((await context.runCode('echo "$variable $PWD"')).stdout, "kept /tmp\n");
    });
  },

  async logs() {
    await withSandbox(async (sandbox) => {
      await sandbox.exec("echo one; echo two >&2");
      const lines = await collect(sandbox.logs());
      assert.ok(lines.some((line) => line.includes("one")) && lines.some((line) => line.includes("two")), lines.join("|"));
      const out = await collect(sandbox.logs({ stream: "stdout" }));
      assert.ok(out.some((line) => line.includes("one")) && !out.some((line) => line.includes("two")), out.join("|"));
      await collect(sandbox.logs({ stream: "both", follow: false }));
    });
  },

  async logs_follow() {
    await withSandbox(async (sandbox) => {
      const seen = [];
      setTimeout(() => sandbox.exec("echo later").catch(() => {}), 100);
      for await (const line of sandbox.logs({ follow: true })) {
        seen.push(line);
        if (line.includes("later")) break;
      }
      assert.ok(seen.some((line) => line.includes("later")));
    });
  },

  async templates() {
    const templates = await client.templates.list();
    assert.ok(Array.isArray(templates) && templates.length > 0);
    for (const template of templates) assert.equal(typeof template.name, "string");
    assert.ok(templates.some((template) => template.name === "host"));
    assert.equal((await client.templates.get("host")).name, "host");
  },

  async errors() {
    await assert.rejects(Sandbox.get("abcdefghijklmnop", client), NotFoundError);
    await assert.rejects(client.sandboxes.delete("abcdefghijklmnop"), NotFoundError);
    await withSandbox(async (sandbox) => {
      await assert.rejects(sandbox.filesystem.read("/nowhere"), NotFoundError);
      await assert.rejects(sandbox.filesystem.stat("/nowhere"), NotFoundError);
      await assert.rejects(sandbox.exec(""), BadRequestError);
    });
    for (const apiKey of ["psk_wrong", "csn_" + "A".repeat(43)]) {
      await assert.rejects(Sandbox.list(new Client({ apiKey })), (error) => {
        assert.ok(error instanceof AuthError);
        assert.ok(error.message.length > 0 && !error.message.includes(apiKey));
        return true;
      });
    }
    await assert.rejects(Sandbox.create({ template: "no-such-template" }, client), BadRequestError);
  },

  // What is still to come is refused, and says so.
  async not_yet() {
    await withSandbox(async (sandbox) => {
      for (const ask of [() => sandbox.snapshot(), () => sandbox.fork(), () => sandbox.forkTree({ count: 2 })]) {
        await assert.rejects(ask(), (error) => error.statusCode === 501 || error.statusCode === 404);
      }
    });
  },
};

const wanted = process.argv.slice(2);
for (const [name, step] of Object.entries(steps)) {
  if (wanted.length && !wanted.includes(name)) continue;
  const began = Date.now();
  try {
    await step();
    console.log(JSON.stringify({ step: name, ok: true, seconds: (Date.now() - began) / 1000 }));
  } catch (error) {
    console.log(JSON.stringify({ step: name, ok: false, error: String(error?.stack ?? error).slice(0, 3000) }));
  }
}
process.exit(0);
