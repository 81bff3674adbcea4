// Compile Python sources to bytecode with Pyodide's own Python, and store them in one zip file.
//
//     node engine.mjs PYODIDE OUT PREFIX=FOLDER ...    // each FOLDER's sources, named PREFIX/...
//
// A browser would take twice as long to start if it had to compile sympy itself.
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [pyodide, out, ...parts] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(path.join(pyodide, "pyodide.mjs")));
const python = await loadPyodide({ indexURL: pyodide + path.sep });

const sources = {};
for (const part of parts) {
  const [prefix, folder] = part.split("=");
  for (const file of fs.readdirSync(folder, { recursive: true })) {
    if (file.endsWith(".py")) {
      sources[`${prefix}/${file.split(path.sep).join("/")}`] = fs.readFileSync(path.join(folder, file), "utf8");
    }
  }
}

python.globals.set("sources", python.toPy(sources));
python.runPython(`
import zipfile
from importlib._bootstrap_external import _code_to_timestamp_pyc

with zipfile.ZipFile("/out.zip", "w", zipfile.ZIP_STORED) as archive:
    for name, source in sorted(sources.items()):
        # docstrings and the asserts of libraries are left out, those of the book stay
        code = compile(source, name, "exec", dont_inherit=True, optimize=0 if name.startswith("lab/") else 2)
        entry = zipfile.ZipInfo(name.removesuffix(".py") + ".pyc")
        archive.writestr(entry, bytes(_code_to_timestamp_pyc(code, 0, 0)))
`);
fs.writeFileSync(out, python.FS.readFile("/out.zip"));
