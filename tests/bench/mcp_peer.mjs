// A server on the official TypeScript SDK: the same list of tools, and a read_file that reads in its own
// process. What ours is compared with. Ends with its standard input.
//
//   node mcp_peer.mjs PORT TOOLS.json     (MODULES is the folder with node_modules)
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(process.env.MODULES + '/package.json');
const load = async (name) => import(pathToFileURL(require.resolve(name)));
const { Server, createMcpHandler } = await load('@modelcontextprotocol/server');
const { toNodeHandler } = await load('@modelcontextprotocol/node');

const [port, file] = process.argv.slice(2);
const tools = JSON.parse(readFileSync(file, 'utf8'));

const handler = createMcpHandler(() => {
  const server = new Server({ name: 'peer', version: '1.0.0' }, { capabilities: { tools: {} } });
  server.setRequestHandler('tools/list', () => ({ tools }));
  server.setRequestHandler('tools/call', async (request) => ({
    content: [{ type: 'text', text: await readFile(request.params.arguments.path, 'utf8') }],
  }));
  return server;
});

createServer(toNodeHandler(handler)).listen(Number(port), '127.0.0.1', () => console.log('ready'));
process.stdin.resume().on('end', () => process.exit(0));
