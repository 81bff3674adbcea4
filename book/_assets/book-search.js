/* The search: MiniSearch over the sections that book-passages.js holds, best first. Any word of a
   query counts; words at the beginning of others count, and words with a slip. A hit opens at the
   paragraph that says most of what was asked. */
(() => {
"use strict";
const { pages, passages } = window.bookPassages;

// words that say nothing, and spellings that are one word
const EMPTY = new Set(("a an and are as at be better but by can do does for from how i if in is it its my no not of on or should so " +
  "than that the their then there they this to use was what when where which who why will with work works you your").split(" "));
const SPELLINGS = [
  [/^([a-z]{4,})iz(?=(?:e|es|ed|er|ers|ing|able|ations?)$)/, "$1is"],
  [/^([a-z]+)lyz(?=(?:e|es|ed|er|ing)$)/, "$1lys"],
  [/^(behavi|col|neighb)or/, "$1our"],
  [/^center(?=s?$)/, "centre"],
];
// what people type → words of the book; a key of several words stands for all of them together
const SYNONYMS = {
  __proto__: null, // "constructor" is a word as any other
  // positions
  rope: "rotary position embedding",
  "rope scaling": "yarn interpolation ntk",
  rope_scaling: "yarn interpolation ntk",
  "rope theta": "base geometric frequencies",
  rope_theta: "base geometric frequencies",
  "theta base": "base geometric frequencies",
  10000: "base geometric frequencies",
  sine: "sinusoids",
  nope: "without positions",
  extrapolate: "extrapolation longer",
  "longer context": "length extrapolation longer training",
  "context window": "length extrapolation effective window",
  context: "context length",
  "train short": "length extrapolation longer",
  "test long": "length extrapolation longer",
  "length generalization": "length extrapolation",
  needle: "needles",
  haystack: "needles",
  aliasing: "wavelength offsets same",
  alias: "wavelength offsets same",
  nyquist: "wavelength offsets same",
  negative: "signs signed",
  "2d": "grids image coordinates",
  "2-d": "grids image coordinates",
  "3d": "grids volume coordinates",
  "3-d": "grids volume coordinates",
  dimensional: "coordinates grids",
  video: "grids volume coordinates",
  "point cloud": "grids volume coordinates",
  "point clouds": "grids volume coordinates",
  interpolate: "stretched interpolated resolution",
  lie: "generators commuting skew",
  householder: "mirror reflection",
  merge: "fold",
  // images
  resolution: "resolution images sizes interpolated",
  size: "sizes resolution",
  resize: "sizes resolution",
  "class token": "position frame",
  cls: "class token position",
  mnist: "digits",
  cifar: "digits vision transformer",
  imagenet: "digits vision transformer",
  swin: "bias images relative",
  // linear attention
  mamba: "ssd state space",
  rnns: "recurrence recurrent state",
  rnn: "recurrence recurrent state",
  chunkwise: "chunk",
  "fast weight": "delta rule",
  "fast weights": "delta rule",
  "kernel trick": "linear attention features",
  "softmax kernel": "random features favor",
  approximation: "estimate error",
  lookup: "recall",
  forget: "recall lookups",
  "in-context": "recall copies",
  retrieval: "associative recall needles",
  zoology: "recall",
  mqar: "recall",
  copying: "copies copy",
  copy: "copies",
  repeat: "copies copy",
  repeats: "copies copy",
  "repeat itself": "copies copy",
  hybrid: "softmax heads half",
  mixture: "half hybrid",
  // numbers, speed and memory
  nan: "nan denominator",
  overflow: "stabiliser nan",
  unit: "norms length",
  kv: "cache keys values",
  oom: "memory",
  "out of memory": "memory",
  flops: "multiplications count",
  fast: "speed faster clock",
  throughput: "speed tokens second clock",
  latency: "speed token by token clock",
  benchmark: "speed clock bench",
  "forward pass": "read once",
  decoding: "written token",
  generation: "written token",
  bf16: "bfloat16",
  fp16: "half precision bfloat16",
  precision: "bfloat16 float32",
  // training and evidence
  hyperparameter: "training learned encoder rate start penalty",
  initialise: "start training learned encoder",
  warmup: "training learned encoder rate",
  schedule: "training learned encoder rate",
  ablation: "training changes one time study",
  converge: "learn loss training",
  "not learn": "learn loss training",
  "not decrease": "learn loss lookups",
  gibberish: "nonsense layout",
  significance: "significant interval corrected",
  "statistical significance": "significant told interval corrected",
  "statistically significant": "significant told interval corrected",
  "confidence interval": "significant told interval corrected",
  "p-value": "significant told interval corrected",
  "multiple comparisons": "significant told interval corrected",
  bonferroni: "significant told interval corrected",
  breaks: "worse wrong",
  dataset: "task bring",
  // models of others, and this book
  finetune: "trained resolution",
  "fine-tune": "trained resolution",
  huggingface: "transformers released models",
  "hugging face": "transformers released models",
  timm: "released models",
  llama: "halves layout released",
  qwen: "released models",
  gemma: "released models",
  mistral: "released models",
  mrope: "m-rope",
  pretrained: "trained model checkpoint",
  convert: "trained model checkpoint",
  checkpoint: "trained model checkpoint",
  "cross attention": "encoder key_positions other",
  "own encoder": "bring own encoder",
  "own position encoding": "bring own encoder",
  "custom encoder": "bring own encoder",
  "custom position encoding": "bring own encoder",
  contribute: "bring own encoder",
  playground: "try move build",
  install: "run machine make python",
  windows: "windows machine python",
  docker: "container machine cloud",
  colab: "cloud",
  glossary: "terms",
  symbols: "notation",
  mistakes: "corrections errors",
  errata: "corrections",
  errors: "errors corrections",
  paper: "published work corrections",
  bug: "corrections wrong",
  // words that say the same
  rotate: "turn rotation",
  rotation: "turn",
  position: "place",
  frequency: "speed",
  similarity: "comparison",
  after: "behind",
  speed: "frequency clock",
};

// letters are found by their names
"alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho  sigma tau upsilon phi chi psi omega"
  .split(" ").forEach((name, i) => { if (name) { SYNONYMS[name] ??= String.fromCodePoint(0x3b1 + i); } });

/* A text as it is read: of formulas, which stand between two word joiners, single letters alone. */
function read(text) {
  return text.replace(/\u2060([^\u2060]*)\u2060/gu, (_, formula) => (formula.length > 1 ? " " : formula));
}
function words(text) {
  return text.replace(/(\d),(?=\d{3})/g, "$1").toLowerCase().match(/[\p{L}\p{N}][\p{L}\p{N}_+]*/gu) || [];
}
/* The words that a class or a function is named by. */
function parts(name) {
  return /[a-z][A-Z]|_/.test(name) ? name.replace(/([a-z])(?=[A-Z])|_/g, "$1 ").toLowerCase() : "";
}
function stem(word) {
  if (EMPTY.has(word)) { return null; }
  const british = SPELLINGS.reduce((w, [from, to]) => w.replace(from, to), word);
  return british.length > 3 ? british.replace(/(?:(?<=ss)es|(?<![su])s)$/, "") : british;
}
function weight(page, heading) {
  if (/^(Summary|Exercises)$/.test(heading)) { return .5; }
  if (page.startsWith("notebooks/")) { return 1; }
  if (page.startsWith("book/api/")) { return .35; }
  return { "book/terms": .4, "book/corrections": .5, "book/notation": .4, "book/bibliography": .1, "book/symptoms": 1.2 }[page] || .9;
}

const MOST = 4; // words of a phrase
const stems = text => words(text).map(stem).filter(Boolean);
const key = text => stems(text).join(" ");

// the glossary: its further terms stand for the first; and where an entry leads, its terms are names
const meanings = new Map(Object.entries(SYNONYMS).map(([words, others]) => [key(words), others]));
const named = passages.map(([, , , names]) => names.split(", ").map(key).filter(Boolean));
passages.forEach(([page, , heading], id) => {
  if (pages[page][0] !== "book/terms") { return; }
  for (const name of named[id]) { meanings.set(name, `${meanings.get(name) || ""} ${heading}`); }
});
// a page is also called what its title says before a colon
passages.forEach(([page], id) => {
  if (id > 0 && passages[id - 1][0] === page) { return; }
  named[id].push(key(pages[page][1].replace(/^\d+\. /, "").split(":")[0]));
});

const index = new MiniSearch({
  fields: ["title", "heading", "names", "text"],
  tokenize: words,
  processTerm: stem,
});
index.addAll(passages.map(([page, , heading, names, text], id) => {
  const [name, title] = pages[page];
  const first = id === 0 || passages[id - 1][0] !== page;  // the page itself stands for its title
  return { id, title: first && !name.startsWith("book/api/") ? read(title) : "", heading: read(heading), names, text: read(text) };
}));

/* Return for each word of a query [its terms, those that it stands for, whether a phrase says so]. */
function meant(query) {
  const typed = query.trim().split(/\s+/).filter(word => stems(word).length), found = [];
  for (let i = 0, n; i < typed.length; i += n) {
    for (n = Math.min(MOST, typed.length - i); n > 1 && !meanings.has(key(typed.slice(i, i + n).join(" "))); n--);
    const phrase = meanings.get(key(typed.slice(i, i + n).join(" ")));
    for (const word of typed.slice(i, i + n)) { found.push([stems(word), stems(phrase || parts(word)), n > 1]); }
  }
  return found;
}

/* Return what a query finds: [{page, anchor, title, heading, excerpt}], best first. */
function find(query) {
  const terms = meant(query), own = new Set(terms.flatMap(([word]) => word));
  const whole = terms.flatMap(([_, others, phrase]) => (phrase ? others : []));
  const typed = (term, least) => own.has(term) && term.length > least;
  const hits = index.search([...new Set(terms.flatMap(([word, others]) => [...word, ...others]))].join(" "), {
    processTerm: term => term,
    prefix: term => typed(term, 3),
    fuzzy: term => typed(term, 5) && .2,
    boost: { title: 4, heading: 4, names: 6 },
    boostTerm: term => (own.has(term) ? 1 : whole.includes(term) ? .8 : .7),
    boostDocument: id => weight(pages[passages[id][0]][0], passages[id][2]),
  });
  const asked = ` ${terms.flatMap(([word]) => word).join(" ")} `;
  for (const hit of hits) {
    const share = list => list.filter(term => hit.queryTerms.includes(term)).length / (list.length || 1);
    const told = terms.reduce((sum, [own, other, phrase]) => sum + Math.max(share(own), (phrase ? .9 : .5) * share(other)), 0);
    hit.score *= (.25 + told / (terms.length || 1)) ** 1.4;
    // what the glossary calls as the query does
    const most = Math.max(0, ...named[hit.id].filter(name => asked.includes(` ${name} `)).map(name => name.split(" ").length));
    hit.score *= 1 + (most > 1 ? most / terms.length : 0);
  }
  // a page that speaks of it in many places comes before one that says it once
  const pageOf = ({ id }) => passages[id][0], sums = new Map();
  for (const hit of hits.slice(0, 200)) { sums.set(pageOf(hit), (sums.get(pageOf(hit)) || 0) + hit.score); }
  const most = Math.max(...sums.values());
  for (const hit of hits) { hit.score *= 1 + .5 * (sums.get(pageOf(hit)) || 0) / most; }
  hits.sort((a, b) => b.score - a.score);
  const of = new Map();
  return hits.filter(({ id }) => {
    const page = passages[id][0];
    of.set(page, (of.get(page) || 0) + 1);
    return of.get(page) <= 3;
  }).slice(0, 30).map(({ id, terms: matched }) => {
    const [page, anchor, heading, , text] = passages[id], [name, title] = pages[page];
    return { page: name, anchor, title, heading, excerpt: best(text, matched) };
  });
}
/* Return the paragraph with most of the words, those words, and whether it has one. */
function best(text, matched) {
  const known = new Set(matched);
  let most = -1, found = "";
  for (const line of text.split("\n")) {
    const count = new Set(words(line).map(stem).filter(w => known.has(w))).size + (line.length > 60 ? .5 : 0);
    if (count > most) { most = count; found = line; }
  }
  return { text: found, known, found: most >= 1 };
}

window.bookSearch = find;
const list = document.querySelector("ul.search");
if (!list) { return; }

/* Return an excerpt around the first word that was found, with these words marked. */
function excerpt({ text, known }) {
  const parts = text.split(/([\p{L}\p{N}][\p{L}\p{N}_+]*)/u);
  const hit = parts.map(part => known.has(stem(part.toLowerCase())));
  let from = Math.max(0, hit.indexOf(true) - 24);
  if (text.length < 240) { from = 0; }
  const shown = document.createElement("p");
  if (from) { shown.append("… "); }
  let length = 0;
  for (let i = from; i < parts.length && length < 240; i++) {
    length += parts[i].length;
    if (hit[i]) {
      const mark = document.createElement("mark");
      mark.textContent = parts[i];
      shown.append(mark);
    } else { shown.append(parts[i]); }
    if (length >= 240) { shown.append(" …"); }
  }
  return shown;
}
function address({ page, anchor, excerpt: { text, found } }) {
  // browsers that know it scroll to the paragraph, others to the section
  const start = text.split(/[…\n\u2060]/)[0].trim().split(" ").slice(0, 8).join(" ");
  const there = found && start.length > 12 ? ":~:text=" + encodeURIComponent(start).replace(/-/g, "%2D") : "";
  return `${page}.html#${anchor}${there}`;
}

const query = new URLSearchParams(location.search).get("q") || "";
const summary = document.querySelector(".search-summary"), field = document.querySelector(".bd-search-container input");
field.value = query;
const hits = query ? find(query) : [];
for (const hit of hits) {
  const entry = document.createElement("li"), link = document.createElement("a"), from = document.createElement("small");
  link.href = address(hit);
  link.textContent = hit.heading;
  from.textContent = hit.heading === hit.title.replace(/^\d+\. /, "") ? "" : hit.title;
  entry.append(link, from, excerpt(hit.excerpt));
  list.append(entry);
}
summary.textContent = !query ? "Type what you are looking for, for example a word, a method or a symptom."
  : hits.length ? `${hits.length} results for “${query}”, the best first.` : `No page contains “${query}” or a similar word.`;
})();
