// Builds the page into ../taskgraph/interfaces/web/static, or its tests into build/test (--test).
//
// A name with its content's hash in it can be kept for ever, so index.html, which names these, is all that a browser
// asks for again. The same sources and packages give the same names on every machine. report.template is the page as
// one file, in which `taskgraph report` puts an archive. Beside the page lies Pyodide, which it loads when something is to
// be worked out and no server is there: its machine code packed, as static hosts pack nothing.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const common = { bundle: true, format: "esm", target: "es2022", logLevel: "warning" };
const into = "../taskgraph/interfaces/web/static";
const pyodide = "node_modules/pyodide";

async function buildTests() {
  const entryPoints = readdirSync("test").filter((each) => each.endsWith(".test.ts")).map((each) => `test/${each}`);
  const define = { WORKER: JSON.stringify("./worker.js"), PYTHON: '""' };
  rmSync("build/test", { recursive: true, force: true });
  await build({
    ...common, entryPoints, define, outdir: "build/test", outExtension: { ".js": ".mjs" }, platform: "node",
  });
}

/** What esbuild has made of these sources: its outputs by their sources, and all that went into them. */
async function made(entryPoints, define = {}) {
  const { metafile } = await build({
    ...common, entryPoints, define, outdir: into, entryNames: "[name]-[hash]", chunkNames: "[name]-[hash]",
    splitting: true, minify: true, metafile: true, legalComments: "none", external: ["node:*", "ws"],
  });
  const outputs = new Map();
  for (const [path, each] of Object.entries(metafile.outputs)) {
    if (entryPoints.includes(each.entryPoint)) outputs.set(each.entryPoint, { name: basename(path), imports: each.imports });
  }
  return { outputs, inputs: Object.keys(metafile.inputs) };
}

/** index.html with the names of what was built in place of the sources', and the chunks that these begin with. */
function page(outputs) {
  let text = readFileSync("index.html", "utf8");
  for (const [source, { name, imports }] of outputs) {
    const parts = text.split(`"${source}"`);
    if (parts.length !== 2) throw new Error(`index.html names ${source} ${parts.length - 1} times; once is right`);
    text = parts.join(`"${name}"`);
    const first = imports.filter((each) => each.kind === "import-statement").map((each) => basename(each.path));
    const links = first.map((each) => `    <link rel="modulepreload" href="${each}" />\n`);
    text = text.replace("  </head>", `${links.join("")}  </head>`);
  }
  return text;
}

/** The notices of all packages of which something is in the bundle. */
function licences(inputs) {
  const folders = inputs.map((each) => /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/.exec(each)?.[0]);
  const notices = [...new Set(folders)].filter(Boolean).sort().map((folder) => {
    const { name, version, license } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
    const own = readdirSync(folder).find((each) => /^licen[cs]e(\.(md|txt))?$/i.test(each));
    const file = own ? `${folder}/${own}` : `licences/${license}.txt`;
    if (!license || !existsSync(file)) throw new Error(`${folder} has no licence`);
    return `${name} ${version} (${license})\n\n${readFileSync(file, "utf8").trim()}\n`;
  });
  if (inputs.some((each) => each.includes(pyodide))) {
    notices.push(`Python, in pyodide\n\n${readFileSync("licences/Python.txt", "utf8").trim()}\n`);
  }
  const head = "The page of taskgraph contains parts of these packages; taskgraph.zip has the licences of those in it.\n";
  return [head, ...notices].join(`\n${"-".repeat(80)}\n\n`);
}

/** A text within an element `script`, which nothing in it may end. */
function inlined(attributes, text) {
  if (/<\/script|<!--|\r/i.test(text)) throw new Error(`what is inlined as ${attributes} would end before its end`);
  return `    <script ${attributes}>${text}</script>\n`;
}

const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

/** All in one file, which asks for nothing: not even its own worker is another file. */
async function report(worker, notices) {
  const define = { WORKER: '""', PYTHON: '""' };
  const bundle = { ...common, define, minify: true, write: false, legalComments: "none", outdir: "." };
  const { outputFiles } = await build({ ...bundle, entryPoints: ["src/page.css", "src/main.ts"] });
  const [style, script] = [".css", ".js"].map((end) => outputFiles.find((each) => each.path.endsWith(end)).text);
  const policy = [
    "default-src 'none'", `script-src ${hash(script)}`, `style-src ${hash(style)}`, "img-src data:", "worker-src blob:",
    "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'", "trusted-types taskgraph",
  ];
  const head = [
    `    <meta http-equiv="Content-Security-Policy" content="${policy.join("; ")}" />\n`,
    '    <meta name="taskgraph-source" content="none" />\n',
    `    <style>${style}</style>\n`,
    inlined('type="text/plain" id="licences"', notices),
    inlined('type="text/plain" id="worker"', worker),
    inlined('type="text/plain" id="archive"', "ARCHIVE"),
    inlined('type="module"', script),
  ];
  const kept = readFileSync("index.html", "utf8").split("\n").filter((each) => !each.includes('"src/'));
  return kept.join("\n").replace("  </head>", () => `${head.join("")}  </head>`);
}

/** Puts bytes beside the page, with the digest of what they are made of in the name. */
function put(bytes, source, name, end) {
  const whole = `${name}-${createHash("sha256").update(source).digest("hex").slice(0, 8).toUpperCase()}${end}`;
  writeFileSync(`${into}/${whole}`, bytes);
  return JSON.stringify(whole);
}

async function buildPython() {
  const code = readFileSync(`${pyodide}/pyodide.asm.wasm`);
  const packed = gzipSync(code, { level: 9 });
  const library = readFileSync(`${pyodide}/python_stdlib.zip`);
  const worker = await made(["src/python_worker.ts"], {
    WASM: put(packed, code, "pyodide", ".wasm.gz"),
    STDLIB: put(library, library, "python_stdlib", ".zip"),
    FILES_BYTES: String(packed.length + library.length),
  });
  const [{ name }] = worker.outputs.values();
  return { name, inputs: worker.inputs };
}

async function buildPage() {
  if (existsSync(into)) rmSync(into, { recursive: true });
  mkdirSync(into, { recursive: true });
  const worker = await made(["src/worker.ts"]);
  const [{ name }] = worker.outputs.values();
  const python = await buildPython();
  const define = { WORKER: JSON.stringify(`./${name}`), PYTHON: JSON.stringify(`./${python.name}`) };
  const rest = await made(["src/page.css", "src/main.ts"], define);
  const own = [...worker.inputs, ...rest.inputs];
  writeFileSync(`${into}/LICENSES.txt`, licences([...own, ...python.inputs]));
  writeFileSync(`${into}/report.template`, await report(readFileSync(`${into}/${name}`, "utf8"), licences(own)));
  writeFileSync(`${into}/index.html`, page(rest.outputs)); // last: where it is, all is
}

await (process.argv.includes("--test") ? buildTests() : buildPage());
