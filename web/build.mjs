// Builds the page into ../taskgraph/interfaces/web/static, or its tests into build/test (--test).
import { readdirSync } from "node:fs";
import { build } from "esbuild";

const common = { bundle: true, format: "esm", target: "es2022", logLevel: "warning" };

if (process.argv.includes("--test")) {
  const entryPoints = readdirSync("test").filter((each) => each.endsWith(".test.ts")).map((each) => `test/${each}`);
  await build({ ...common, entryPoints, outdir: "build/test", outExtension: { ".js": ".mjs" }, platform: "node" });
} else {
  await build({
    ...common,
    entryPoints: ["src/main.ts", "src/worker.ts", "src/page.css"],
    outdir: "../taskgraph/interfaces/web/static",
    minify: true,
    sourcemap: true,
  });
}
