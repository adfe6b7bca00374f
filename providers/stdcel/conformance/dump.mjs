// Prints the CEL specification's conformance tests as JSON: one array of {file, section, name, expr, …}.
// usage: node dump.mjs FOLDER    where FOLDER holds the unpacked npm package @bufbuild/cel-spec (Apache-2.0)
import { pathToFileURL } from "node:url";
import { resolve } from "node:path";

const load = async (name) => (await import(pathToFileURL(resolve(process.argv[2], `dist/esm/testdata/${name}.js`)))).tests;
const out = [];
const walk = (node, path) => {
  for (const suite of node.suites ?? []) walk(suite, [...path, suite.name]);
  for (const test of node.tests ?? []) {
    const { original, error } = test;
    out.push({ file: path[0], section: path.slice(1).join("/"), ...original, parse_error: error });
  }
};
walk(await load("conformance"), []);
const parsing = await load("parsing");
for (const suite of [parsing, ...(parsing.suites ?? [])]) {
  for (const test of suite.tests ?? []) {
    out.push({ file: "parsing", section: suite.name, name: test.original.expr, ...test.original, parse_only: true, parse_error: test.error });
  }
}
process.stdout.write(JSON.stringify(out));
