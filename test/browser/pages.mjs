// Opens the status page of a real service, and the page of servetrace trace, in a headless
// Chromium: at the widths of a phone and of a desktop, light and dark. It fails if a page
// scrolls sideways, has a finding of axe-core, loads anything else or has a script.
//
//   node pages.mjs BIN [SCREENSHOTS]
//
// BIN is the folder of the built commands. With SCREENSHOTS, it keeps pictures there.
import { spawn, execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync, mkdirSync } from 'node:fs';
import { createServer } from 'node:net';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';

// The packages are in the folder of NODE_PATH, which import does not read.
const load = createRequire(path.join(process.env.NODE_PATH ?? process.cwd(), 'any.js'));
const { chromium } = load('playwright-core');
const axe = load.resolve('axe-core/axe.min.js');

const [bin, screenshots] = process.argv.slice(2).map((p) => path.resolve(p));
const browserPath = ['chromium', 'chromium-browser', 'google-chrome']
  .flatMap((name) => (process.env.PATH ?? '').split(':').map((dir) => path.join(dir, name)))
  .find(existsSync);
const faults = [];
const fail = (where, text) => { faults.push(where); console.error(`${where}: ${text}`); };

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((done) => server.once('listening', done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

// until returns the first result that is not false, within ten seconds.
async function until(what, ask) {
  for (let left = 100; left > 0; left--) {
    const result = await ask().catch(() => false);
    if (result) return result;
    await wait(100);
  }
  throw new Error(`${what}: not within ten seconds`);
}

// look opens a page and judges it.
async function look(browser, name, url, expected) {
  const backgrounds = {};
  for (const colorScheme of ['light', 'dark']) {
    for (const width of [375, 1280]) {
      const where = `${name}, ${width} px, ${colorScheme}`;
      const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme, bypassCSP: true });
      const page = await context.newPage();
      const loaded = [];
      page.on('request', (request) => loaded.push(request.url()));
      page.on('pageerror', (error) => fail(where, error.message));
      await page.goto(url);
      if (loaded.length > 1) fail(where, `it loads ${loaded.slice(1)}`);
      const text = await page.content();
      for (const part of expected) if (!text.includes(part)) fail(where, `no ${part}`);
      if (await page.locator('script').count()) fail(where, 'it has a script');
      const wide = await page.evaluate(() => [...document.querySelectorAll('body *')]
        .filter((e) => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
        .map((e) => `${e.tagName} ${e.textContent.slice(0, 40)}`));
      const scroll = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      if (scroll > 0 || wide.length) fail(where, `it is ${scroll} px too wide: ${wide.slice(0, 5)}`);
      if (screenshots) await page.screenshot({ path: path.join(screenshots, `${name}-${width}-${colorScheme}.png`), fullPage: true });
      for (const closed of await page.locator('details').all()) await closed.evaluate((e) => { e.open = true; });
      await page.addScriptTag({ path: axe });
      const { violations, passes } = await page.evaluate(() => axe.run());
      for (const v of violations) fail(where, `axe-core: ${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => n.html)}`);
      if (passes.length < 10) fail(where, `axe-core has run only ${passes.length} rules`);
      const root = await page.evaluate(() => getComputedStyle(document.querySelector('p')).color);
      backgrounds[colorScheme] = root;
      await context.close();
      console.log(`${where}: looked at, ${passes.length} rules of axe-core`);
    }
  }
  if (backgrounds.light === backgrounds.dark) fail(name, 'light and dark have the same colour of text');
}

const work = mkdtempSync(path.join(tmpdir(), 'servetrace-browser-'));
const [http, admin] = [await freePort(), await freePort()];
const service = spawn(path.join(bin, 'hello'), {
  cwd: work, stdio: 'ignore',
  env: {
    ...process.env, SERVE_HTTP_PORT: String(http), SERVE_ADMIN_PORT: String(admin), SERVE_CONSOLE_OUTPUT: './spans',
    // The second plugin is not there, so that the page has errors.
    SERVE_TRACING_EXPORTER_PLUGIN: `${path.join(bin, 'plugins/console')},a-plugin-with-a-long-name=/nowhere/with/a/long/path/to/the/plugin`,
  },
});
let browser;
try {
  const status = `http://127.0.0.1:${admin}/-/tracing`;
  await until('the service', async () => (await fetch(`http://127.0.0.1:${http}/`)).ok);
  for (let i = 0; i < 20; i++) await (await fetch(`http://127.0.0.1:${http}/`)).text();
  await until('a trace on the status page', async () => (await (await fetch(status)).text()).includes('class="trace"'));
  await until('span files', async () => readdirSync(path.join(work, 'spans')).length >= 2);
  const once = await fetch(status);
  if (once.headers.get('refresh') !== '5') fail('status', `the header Refresh is ${once.headers.get('refresh')}`);
  const files = readdirSync(path.join(work, 'spans')).map((name) => path.join('spans', name));
  const html = path.join(work, 'traces.html');
  const draw = (...args) => execFileSync(path.join(bin, 'servetrace'), ['trace', ...args], { cwd: work, maxBuffer: 1 << 28 });
  writeFileSync(html, draw(...files, '-o', 'html'));
  const svg = path.join(work, 'traces.svg');
  writeFileSync(svg, draw(...files, '-o', 'svg'));

  if (screenshots) mkdirSync(screenshots, { recursive: true });
  browser = await chromium.launch({
    executablePath: browserPath,
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
  // The history needs two samples.
  await until('the history', async () => (await (await fetch(status)).text()).includes('class="spark"'));
  await look(browser, 'status', `${status}?refresh=off`, ['class="trace"', 'class="path"', 'backing-off', 'class="spark"', 'Last traces']);
  await look(browser, 'traces', `file://${html}`, ['critical path:', 'class="whole"', '<details>']);
  const picture = await (await browser.newContext()).newPage();
  await picture.goto(`file://${svg}`);
  if (await picture.locator('rect.path').count() === 0) fail('traces.svg', 'no critical path');
  // The page of a trace is whole without its neighbours.
  if (/(src|href)="(?!#)/.test(readFileSync(html, 'utf8'))) fail('traces.html', 'it needs another file');
} finally {
  await browser?.close();
  service.kill('SIGTERM');
  await new Promise((done) => (service.exitCode === null && service.signalCode === null ? service.once('exit', done) : done()));
  rmSync(work, { recursive: true, force: true });
}
if (faults.length) {
  console.error(`${faults.length} faults`);
  process.exit(1);
}
