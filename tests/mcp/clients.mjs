// The official clients, unmodified, against a daemon: every step of `steps` over the way that WAY (JSON) says:
//   {"sdk": "v1" | "v2", "era": "legacy" | "modern" | "auto", "url", "token" | "command", "args", "env"}
// One line of JSON a step: {"step", "ok", "error"?}. test_clients.py starts it and counts.
import { strict as assert } from 'node:assert';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const way = JSON.parse(process.env.WAY);
const require = createRequire(process.env.MODULES + '/package.json');
const load = async (name) => import(pathToFileURL(require.resolve(name)));

async function classes() {
  if (way.sdk === 'v1') {
    const { Client } = await load('@modelcontextprotocol/sdk/client/index.js');
    const { StreamableHTTPClientTransport: Http } = await load('@modelcontextprotocol/sdk/client/streamableHttp.js');
    const { StdioClientTransport: Stdio } = await load('@modelcontextprotocol/sdk/client/stdio.js');
    const types = await load('@modelcontextprotocol/sdk/types.js');
    return { Client, Http, Stdio, types };
  }
  const { Client, StreamableHTTPClientTransport: Http } = await load('@modelcontextprotocol/client');
  const { StdioClientTransport: Stdio } = await load('@modelcontextprotocol/client/stdio');
  return { Client, Http, Stdio };
}

const { Client, Http, Stdio, types } = await classes();
const updated = [];

function connectOptions() {
  const mode = { legacy: 'legacy', auto: 'auto', modern: { pin: '2026-07-28' } }[way.era];
  return way.sdk === 'v2' ? { versionNegotiation: { mode } } : {};
}

async function connect() {
  const client = new Client({ name: 'caisson-tests', version: '1.0.0' }, { capabilities: {}, ...connectOptions() });
  const transport = way.url
    ? new Http(new URL(way.url), { requestInit: { headers: { Authorization: 'Bearer ' + way.token } } })
    : new Stdio({ command: way.command, args: way.args, env: { ...process.env, ...way.env }, stderr: 'inherit' });
  const heard = (message) => updated.push(message.params.uri);
  if (way.sdk === 'v1') client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, heard);
  else client.setNotificationHandler('notifications/resources/updated', heard);
  await client.connect(transport);
  return client;
}

const text = (result) => result.content.filter((part) => part.type === 'text').map((part) => part.text).join('\n');
const modern = way.sdk === 'v2' && way.era !== 'legacy';
// v1 takes the result's schema in between.
const request = (client, params, options) =>
  way.sdk === 'v1' ? client.callTool(params, undefined, options) : client.callTool(params, options);
const call = (client, name, args = {}, options = undefined) => request(client, { name, arguments: args }, options);

async function until(what, condition) {
  for (let turn = 0; turn < 1200; turn++) {
    if (await condition()) return;
    await new Promise((done) => setTimeout(done, 25));
  }
  throw new Error('never: ' + what);
}

let client, box;

const steps = {
  async connect() {
    client = await connect();
    assert.equal(client.getServerVersion().name, 'caisson');
    if (way.sdk === 'v2') assert.equal(client.getProtocolEra(), modern ? 'modern' : 'legacy');
    assert.ok(client.getInstructions().length < 2048);
  },
  async tools() {
    const { tools } = await client.listTools();
    for (const name of ['create_sandbox', 'run_shell', 'run_code', 'read_file', 'list_sandboxes', 'start_job', 'edit_file'])
      assert.ok(tools.some((tool) => tool.name === name), name);
    for (const tool of tools) assert.match(tool.name, /^[a-z0-9_]{1,40}$/);
  },
  async create() {
    const result = await call(client, 'create_sandbox', { name: process.env.BOX, timeout_seconds: 600 });
    assert.ok(!result.isError, text(result));
    assert.ok(text(result).includes(process.env.BOX), text(result));
    box = process.env.BOX;
  },
  async exit_code() {
    const result = await call(client, 'run_shell', { sandbox_id: box, command: 'echo out; echo err >&2; exit 3' });
    assert.ok(!result.isError);
    for (const part of ['out', 'err', '3']) assert.ok(text(result).includes(part), text(result));
  },
  async progress() {
    const seen = [];
    // It goes on when something was heard of it: a machine that stands still may else show nothing but the end.
    const running = call(client, 'run_shell', { sandbox_id: box, command:
      'for i in 1 2 3 4; do echo line-$i; sleep 0.3; done; until [ -e /workspace/heard ]; do sleep 0.02; done; echo line-5' },
      { onprogress: (progress) => seen.push(progress) });
    await until('progress', () => seen.length > 0);
    await call(client, 'write_file', { sandbox_id: box, path: '/workspace/heard', content: '' });
    const result = await running;
    assert.ok(text(result).includes('line-5'));
    assert.ok(seen.length >= 1 && seen.some((one) => (one.message ?? '').includes('line-')), JSON.stringify(seen));
    for (let i = 1; i < seen.length; i++) assert.ok(seen[i].progress > seen[i - 1].progress);
  },
  async files() {
    const wrote = await call(client, 'write_file', { sandbox_id: box, path: '/workspace/greeting', content: 'grüße\n' });
    assert.ok(!wrote.isError, text(wrote));
    assert.ok(text(await call(client, 'read_file', { sandbox_id: box, path: '/workspace/greeting' })).includes('grüße'));
    assert.ok(text(await call(client, 'list_files', { sandbox_id: box, path: '/workspace' })).includes('greeting'));
  },
  async code() {
    const result = await call(client, 'run_code', { sandbox_id: box, language: 'python', code: 'print("in python")\n6 * 7' });
    assert.ok(text(result).includes('in python') && text(result).includes('42'), text(result));
  },
  async jobs() {
    const begun = await call(client, 'start_job', { sandbox_id: box, command: 'echo begun; sleep 600' });
    const id = /job_id[^a-z0-9]*([a-z0-9]{8,})/.exec(text(begun));
    assert.ok(id, text(begun));
    await until('its first words', async () =>
      text(await call(client, 'read_job', { sandbox_id: box, job_id: id[1] })).includes('begun'));
    const stopped = await call(client, 'stop_job', { sandbox_id: box, job_id: id[1] });
    assert.ok(!stopped.isError, text(stopped));
  },
  async cancel() {
    const abort = new AbortController();
    const mark = 'abandoned-' + process.env.BOX;
    const ends = call(client, 'run_shell', { sandbox_id: box, command: `touch /workspace/${mark}; (setsid sh -c "exec -a ${mark} sleep 300" &) ; exec sleep 300` },
      { signal: abort.signal }).then(() => 'answered', () => 'rejected');
    await until('it runs', async () => text(await call(client, 'list_files', { sandbox_id: box, path: '/workspace' })).includes(mark));
    abort.abort('enough');
    assert.equal(await ends, 'rejected');
    await until('its processes are gone', async () =>
      text(await call(client, 'run_shell', { sandbox_id: box, command: 'ps -eo args | grep -c "[s]leep 300" || true' })).startsWith('0'));
  },
  async errors() {
    const unknown = await call(client, 'run_shell', { sandbox_id: 'nosuchthing', command: 'true' });
    assert.ok(unknown.isError && text(unknown).includes(box), text(unknown));
    const bad = await call(client, 'run_shell', { sandbox_id: box, comand: 'true' });
    assert.ok(bad.isError && text(bad).includes('command'), text(bad));
    await assert.rejects(call(client, 'no_such_tool'));
  },
  async resources() {
    const { resources } = await client.listResources();
    assert.ok(resources.length > 0);
    const { contents } = await client.readResource({ uri: resources[0].uri });
    assert.equal(contents[0].uri, resources[0].uri);
    assert.ok((await client.listResourceTemplates()).resourceTemplates.length >= 2);
    await assert.rejects(client.readResource({ uri: 'sandbox://nosuchthing' }));
  },
  async watches() {
    const { resources } = await client.listResources();
    const uri = resources[0].uri;
    const listening = modern ? await client.listen({ resourceSubscriptions: [uri] }) : await client.subscribeResource({ uri });
    const second = await call(client, 'create_sandbox', { name: box + '-second', timeout_seconds: 60 });
    assert.ok(!second.isError, text(second));
    await until('the inventory has changed', () => updated.includes(uri));
    await call(client, 'terminate_sandbox', { sandbox_id: box + '-second' });
    if (modern) await listening.close();
    else await client.unsubscribeResource({ uri });
  },
  async terminate() {
    const result = await call(client, 'terminate_sandbox', { sandbox_id: box });
    assert.ok(!result.isError, text(result));
    const after = await call(client, 'run_shell', { sandbox_id: box, command: 'true' });
    assert.ok(after.isError, text(after));
  },
  async close() {
    await client.close();
  },
};

let failed = false;
for (const [step, run] of Object.entries(steps)) {
  try {
    await run();
    console.log(JSON.stringify({ step, ok: true }));
  } catch (error) {
    failed = true;
    console.log(JSON.stringify({ step, ok: false, error: String(error?.stack ?? error) }));
    if (step === 'connect') break;
  }
}
process.exit(failed ? 1 : 0);
