/* Run proofs and exercises in the page: a cell to edit, and what was found. A proof by algebra opens by a button.
   Python and sympy are in book-prove-engine.js, which is loaded when a reader first presses the button. All of it is
   text, so that it works from disk too, where a page may fetch nothing. */
(function () {
  "use strict";
  const HERE = document.currentScript.src.replace(/[^/]*$/, "");
  const DATA = document.querySelector("script.book-proofs");
  const ROWS = JSON.parse(DATA ? DATA.textContent : '{"proofs": [], "exercises": []}');
  const KINDS = {
    proofs: { begins: "# proves by algebra", run: "run", called: "proof", report: report, install: installProof },
    exercises: { begins: "# Exercise: ", run: "judge", called: "exercise", report: reportWords, install: installExercise },
  };
  const LONG = 5000;  // milliseconds after which the page says that a cell takes long

  /* ---- the worker: the text of these functions is its script, and it can use nothing else of this file ---- */
  async function unzipped(bytes) {  // not from a Blob, which a worker from disk cannot read in WebKit
    const gzip = new DecompressionStream("gzip"), writer = gzip.writable.getWriter();
    writer.write(bytes);
    writer.close();
    return new Uint8Array(await new Response(gzip.readable).arrayBuffer());
  }
  function worker(unzipped) {
    let python = null;
    self.importScripts = function () { throw new Error("not here"); };  // so Pyodide takes this for a module, which a page from disk cannot have
    async function start(message) {
      const [wasm, library, site] = await Promise.all([message.wasm, message.library, message.site].map(unzipped));
      self.fetch = async function (address) {  // Pyodide asks for two files: they are here already
        if (String(address).endsWith(".wasm")) { return new Response(wasm, { headers: { "Content-Type": "application/wasm" } }); }
        if (String(address).endsWith(".zip")) { return new Response(library); }
        throw new Error("not here: " + address);
      };
      python = await self.loadPyodide({
        indexURL: "https://none.invalid/", stdLibURL: "https://none.invalid/library.zip",
        createPyodideModule: self._createPyodideModule, lockFileContents: message.lock,
      });
      python.FS.writeFile("/site.zip", site);
      postMessage({ what: "python" });
      python.runPython("import sys\nsys.path.insert(0, '/site.zip')\nfrom lab import page_proof");
    }
    self.onmessage = async function (event) {
      try {
        if (event.data.what === "start") {
          await start(event.data);
          postMessage({ what: "ready" });
          return;
        }
        const from = performance.now(), run = python.pyimport("lab.page_proof")[event.data.what];
        const found = JSON.parse(run(event.data.before, event.data.source));
        postMessage({ what: "ran", found: found, seconds: (performance.now() - from) / 1000 });
      } catch (error) {
        postMessage({ what: "failed", error: String(error) });
      }
    };
  }

  /* ---- loading, once for all cells of the page ---- */
  let running = null, ready = null, answered = null;
  function bytes(text) {  // a loop: Uint8Array.from takes seconds for so many
    const raw = atob(text), made = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) { made[i] = raw.charCodeAt(i); }
    return made;
  }

  function script(address) {
    return new Promise(function (done, failed) {
      const element = document.createElement("script");
      element.src = address;
      element.onload = done;
      element.onerror = function () { failed("the file book-prove-engine.js could not be loaded"); };
      document.head.append(element);
    });
  }
  async function engine(tell) {
    if (!window.bookEngine && location.protocol.startsWith("http")) {  // from disk a page may not fetch, and it is fast
      const answer = await fetch(HERE + "book-prove-engine.js"), parts = [], reader = answer.body.getReader();
      for (let size = 0, part; (part = (await reader.read()).value); parts.push(part)) {
        size += part.length;
        tell("Loading Python and sympy: " + (size / 1e6).toFixed(0) + " MB of 16 …");
      }
      await script(URL.createObjectURL(new Blob(parts, { type: "text/javascript" })));
    } else if (!window.bookEngine) {
      await script(HERE + "book-prove-engine.js");
    }
    return window.bookEngine;
  }
  function start(tell) {
    ready = ready || engine(tell).then(async function (made) {
      tell("Starting Python …");
      const source = ["(" + worker + ")(" + unzipped + ");\n", await unzipped(bytes(made.scripts))];
      running = new Worker(URL.createObjectURL(new Blob(source, { type: "text/javascript" })));
      const parts = { what: "start", wasm: bytes(made.wasm), library: bytes(made.library), site: bytes(made.site), lock: made.lock };
      return new Promise(function (done, failed) {
        running.onerror = function (event) { failed(event.message || "the browser did not start a worker"); };
        running.onmessage = function (event) {
          const what = event.data.what;
          if (what === "python") { tell("Loading sympy …"); }
          else if (what === "ready") { done(); }
          else if (answered) { answered(event.data); }
          else { failed(event.data.error); }
        };
        running.postMessage(parts, [parts.wasm.buffer, parts.library.buffer, parts.site.buffer]);
      });
    });
    return ready;
  }
  function stop() {
    if (running) { running.terminate(); }
    running = ready = answered = null;
  }

  /* ---- one cell ---- */
  function element(tag, name, text) {
    const made = document.createElement(tag);
    if (name) { made.className = name; }
    if (text) { made.textContent = text; }
    return made;
  }
  function button(name, text) { const made = element("button", name, text); made.type = "button"; return made; }
  function numbered(label) {
    const number = document.querySelector("#equation-" + label + " .eqno");
    return "Equation " + (number ? number.textContent.replace("#", "").trim() : label);
  }
  function counted(number, one, many) { return number + " " + (number === 1 ? one : many); }

  /* What was found, as a list: one line for each equation, the further checks, the time. */
  function report(answer, found, seconds, proof) {
    const list = element("ul"), seen = new Map();
    answer.append(element("p", "prove-lead", found.holds ? "✓ Every check holds." : "✗ A check fails in line " + found.line + "."));
    found.equations.forEach(function (one) { seen.set(one.label + one.holds, (seen.get(one.label + one.holds) || []).concat(one)); });
    seen.forEach(function (all) {
      const one = all[0], line = element("li"), times = all.length > 1 ? " (" + all.length + " cases)" : "";
      if (one.holds) {
        line.append(numbered(one.label) + times + ": both sides are equal, and the variant with a mistake differs from the left side.");
      } else if (!one.differs) {
        line.append(numbered(one.label) + ": the variant with a mistake also equals the left side, so this check cannot detect the mistake.");
      } else {
        const shown = one.formula || one.text;
        line.append(numbered(one.label) + ": the two sides differ" + (shown ? (one.entry ? ", in " + one.entry + "," : "") + " by" : "."));
        if (one.formula) {
          const gap = element("div", "prove-gap");
          gap.innerHTML = one.formula;  // MathML that sympy wrote
          line.append(gap);
        } else if (one.text) { line.append(element("code", "prove-gap", one.text)); }
      }
      list.append(line);
    });
    if (!found.holds && found.equations.every(function (one) { return one.holds; })) { list.append(element("li", "", found.error)); }
    if (found.checks) { list.append(element("li", "", counted(found.checks, "further check holds.", "further checks hold."))); }
    answer.append(list);
    if (proof.left) { answer.append(element("p", "prove-small", counted(proof.left, "check", "checks") + " of this cell need" + (proof.left === 1 ? "s" : "") + " PyTorch and cannot run in the browser. The tests of the book run " + (proof.left === 1 ? "it." : "them."))); }
    answer.append(element("p", "prove-small", "Your browser computed this with sympy in " + seconds.toFixed(seconds < 1 ? 2 : 1) + " s. Shift+Enter runs it again."));
  }

  /* What the check of an exercise printed, in its own words. */
  function reportWords(answer, found, seconds) {
    answer.append(element("p", "prove-lead", (found.holds ? "✓ " : "✗ ") + (found.error ? "Line " + found.line + ": " + found.error : found.words || "Nothing was checked. The last line must call the check, as at the start (Reset).")));
    if (found.error && found.words) { answer.append(element("pre", "prove-gap", found.words)); }
    answer.append(element("p", "prove-small", "Your browser computed this in " + seconds.toFixed(seconds < 1 ? 2 : 1) + " s. Shift+Enter runs it again."));
  }

  const TOKEN = /(#.*$)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|\b(for|in|if|else|def|return|lambda|and|or|not|import|from|assert|with|as|True|False|None)\b|\b(\d+(?:\.\d+)?)\b|\b(proves|vanishes)\b/g;
  /* The source in colours, under the text that is edited; the line of an error is marked. */
  function paint(ink, source, bad) {
    ink.textContent = "";
    source.split("\n").forEach(function (line, k) {
      const row = element("span", "prove-line" + (k + 1 === bad ? " prove-bad" : ""));
      let at = 0;
      line.replace(TOKEN, function (all, comment, string, key, number, name, place) {
        row.append(line.slice(at, place), element("span", comment ? "c1" : string ? "s2" : key ? "k" : number ? "mi" : "nf", all));
        at = place + all.length;
      });
      row.append(line.slice(at) || (line ? "" : "\u200b"));
      ink.append(row);
    });
  }

  /* Make a cell to edit and run: its box, and the functions that other buttons need. */
  function cell(kind, row) {
    const box = element("div", "prove"), bar = element("div", "prove-bar");
    const go = button("prove-go", "Run"), halt = button("", "Stop"), slip = button("", "Make a mistake"), back = button("", "Reset");
    const status = element("span", "prove-status"), editor = element("div", "prove-editor");
    const ink = element("pre", "prove-ink highlight"), edit = element("textarea", "prove-edit"), answer = element("div", "prove-answer");
    let next = 0, clock = 0;
    status.setAttribute("role", "status");
    answer.setAttribute("aria-live", "polite");
    ink.setAttribute("aria-hidden", "true");
    edit.setAttribute("aria-label", "Python source of the " + kind.called + ". Shift+Enter runs it.");
    edit.spellcheck = false;
    edit.autocapitalize = "off";
    edit.value = row.source;
    editor.append(ink, edit);
    bar.append(go, halt, slip, back, status);
    box.append(bar, editor, answer);

    function draw(bad) { paint(ink, edit.value, bad); }
    function idle(state) {
      clearInterval(clock);
      box.dataset.state = state;
      go.disabled = false;
      halt.hidden = true;
      status.textContent = "";
    }
    function changed() { answer.textContent = ""; idle(""); draw(); }
    async function run() {
      if (box.dataset.state === "runs") { return; }
      if (answered) { status.textContent = "Another cell on this page is running."; return; }
      const mine = {};
      run.now = mine;
      answer.textContent = "";
      draw();
      box.dataset.state = "runs";
      go.disabled = true;
      halt.hidden = false;
      try {
        status.textContent = "Loading Python and sympy …";
        await start(function (text) { status.textContent = text; });
        if (run.now !== mine) { return; }
        const from = performance.now();
        status.textContent = "Running …";
        clock = setInterval(function () {
          const past = performance.now() - from;
          if (past > LONG) { status.textContent = "Running for " + (past / 1000).toFixed(0) + " s. Some cells take half a minute."; }
        }, 1000);
        const message = await new Promise(function (done) {
          answered = done;
          running.postMessage({ what: kind.run, before: row.before, source: edit.value });
        });
        answered = null;
        if (run.now !== mine) { return; }
        if (message.what === "failed") { throw message.error; }
        idle(message.found.holds ? "holds" : "broken");
        kind.report(answer, message.found, message.seconds, row);
        draw(message.found.holds ? 0 : message.found.line);
      } catch (error) {
        if (run.now !== mine) { return; }
        stop();
        idle("broken");
        answer.append(element("p", "prove-lead", "The " + kind.called + " could not be run: " + error));
      }
    }
    go.addEventListener("click", run);
    halt.addEventListener("click", function () {
      run.now = null;
      stop();
      idle("");
      status.textContent = "Stopped. The next run will load Python again.";
      go.focus();
    });
    slip.hidden = !row.mistakes.length;
    slip.addEventListener("click", function () {
      if (box.dataset.state === "runs") { return; }
      edit.value = row.mistakes[next++ % row.mistakes.length];
      run();
    });
    back.addEventListener("click", function () {
      if (box.dataset.state === "runs") { return; }
      edit.value = row.source;
      changed();
    });
    edit.addEventListener("input", changed);
    edit.addEventListener("keydown", function (event) {
      if (event.key === "Enter" && (event.shiftKey || event.ctrlKey)) { event.preventDefault(); run(); }
    });
    halt.hidden = true;
    draw();
    return { box: box, go: go, run: run };
  }

  function installProof(fold, made) {
    const quick = button("prove-quick", "▶ Run this proof");
    quick.addEventListener("click", function () {
      fold.open = true;
      made.go.focus();
      made.run();
    });
    fold.addEventListener("toggle", function () { quick.hidden = fold.open; });
    quick.hidden = fold.open;
    fold.querySelector(".cell_input").replaceWith(made.box);
    fold.after(quick);
  }
  function installExercise(fold, made) { fold.replaceWith(made.box); }

  Object.keys(KINDS).forEach(function (name) {
    const kind = KINDS[name], cells = Array.from(document.querySelectorAll(".cell_input pre")).filter(function (code) {
      return code.textContent.trimStart().startsWith(kind.begins);
    });
    ROWS[name].forEach(function (row) {
      const fold = cells[row.number].closest("details.book-code");
      if (fold) { kind.install(fold, cell(kind, row)); }
    });
  });
})();
