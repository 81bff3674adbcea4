/* Frequencies that a reader pastes: a config.json of Hugging Face transformers, or a list of numbers.
   bookRope(text, length) returns what it says, or throws a RangeError that says what is wrong. */
window.bookRope = (function () {
  "use strict";

  const FEWEST = 8, MOST = 128; // pairs of a head
  /* what may stand in rope_scaling or rope_parameters, by rope_type */
  const KEYS = {
    default: [], linear: ["factor"], dynamic: ["factor"], proportional: ["factor"],
    yarn: ["factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"],
    llama3: ["factor", "low_freq_factor", "high_freq_factor"],
    longrope: ["factor", "attention_factor", "short_factor", "long_factor"],
  };
  const ANY = ["rope_type", "type", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings", "finetuned"];
  /* what may stand beside them: what is read, and what says nothing about the frequencies of full attention */
  const BESIDE = ["rope_parameters", "rope_scaling", "rope_theta", "rotary_emb_base", "rotary_pct", "rotary_dim", "partial_rotary_factor",
    "rope_local_base_freq", "rope_interleaved", "rope_interleave", "use_rope", "no_rope_layers", "no_rope_layer_interval"];

  function fail(said) { throw new RangeError(said); }
  const shown = (value) => JSON.stringify(value);

  function sized(found) {
    const pairs = found.frequencies.length, all = pairs + found.still;
    if (pairs < FEWEST) { fail("At least " + FEWEST + " frequencies above 0 are needed, got " + pairs + "."); }
    if (all > MOST) { fail("A head can have at most " + MOST + " pairs of channels here, got " + all + "."); }
    return found;
  }

  function list(text) {
    const words = (text.match(/\[([^]*)\]/)?.[1] ?? text).split(/[\s,;[\]]+/).filter(Boolean), numbers = words.map(Number);
    const odd = numbers.findIndex((v) => !(v >= 0 && v < Infinity));
    if (odd >= 0) { fail("“" + words[odd].slice(0, 30) + "” is not a frequency. Paste a config.json from { to }, or numbers of at least 0 in radians per token."); }
    const frequencies = numbers.filter((v) => v > 0), still = numbers.length - frequencies.length;
    return sized({ frequencies, still, kept: numbers.join(" "), said: "Read as a list of " + frequencies.length + " frequencies" + (still ? " and " + still + " pairs that do not rotate" : "") + "." });
  }

  function config(text, length) {
    let whole;
    try { whole = JSON.parse(text); } catch (error) { fail("This is not JSON: " + error.message + ". Paste the whole config.json, from { to }."); }
    const all = Object.assign({}, whole, whole.text_config), kept = {};
    const present = (value) => value !== undefined && value !== null;
    /* the first of these keys that is there; what was read is kept for the link */
    const get = (...names) => {
      const name = names.find((n) => present(all[n]));
      if (name) { kept[name] = all[name]; }
      return all[name];
    };
    const number = (name, value, least = 0) => {
      if (!present(value)) { fail("The key " + name + " is missing."); }
      if (!(typeof value === "number" && value > least)) { fail(name + " must be a number above " + least + ", got " + shown(value) + "."); }
      return value;
    };
    const given = get("rope_parameters", "rope_scaling") ?? {};
    const layers = Object.keys(given).filter((key) => present(given[key]) && typeof given[key] === "object" && !Array.isArray(given[key]));
    const layer = layers.includes("full_attention") ? "full_attention" : layers[0];
    const told = Object.fromEntries(Object.entries(layer ? given[layer] : given).filter(([, value]) => present(value)));
    const named = told.rope_type ?? told.type ?? "default", kind = named === "su" ? "longrope" : named;
    if (!Object.hasOwn(KEYS, kind)) { fail("The rope_type " + shown(named) + " is not known here. The known types are " + Object.keys(KEYS).join(", ") + "."); }
    const strange = Object.keys(told).find((key) => !ANY.includes(key) && !KEYS[kind].includes(key))
      ?? Object.keys(all).find((key) => /rope|rotary/.test(key) && !/^qk_/.test(key) && !BESIDE.includes(key));
    if (strange) { fail("The key " + strange + " is not known here" + (strange in told ? " for the rope_type " + shown(kind) : "") + ", and it may change the frequencies."); }

    const theta = told.rope_theta ?? get("rope_theta", "rotary_emb_base");
    if (!present(theta) && !BESIDE.some((key) => key in all)) { fail("This config.json has no rope_theta, rope_parameters or rope_scaling. Does the model use RoPE?"); }
    const base = number("rope_theta", theta ?? 10000, 1);
    /* heads of which one part rotates and another does not, as in DeepSeek's models, or heads all alike */
    const part = get("qk_rope_head_dim"), rest = part ? get("qk_nope_head_dim") ?? 0 : 0;
    const head = part ?? get("head_dim") ?? get("hidden_size", "n_embd") / get("num_attention_heads", "n_head");
    if (!Number.isInteger(head)) { fail("The config.json must have head_dim, or hidden_size and num_attention_heads, as integers."); }
    const share = number("partial_rotary_factor", told.partial_rotary_factor ?? get("partial_rotary_factor", "rotary_pct") ?? 1);
    const wide = get("rotary_dim") ?? Math.trunc(head * share), dim = kind === "proportional" ? head : wide;
    if (dim % 2 || wide > head || (head + rest) % 2) { fail("An even number of the " + head + " channels of a head must rotate, got " + wide + "."); }

    const plain = (b) => Array.from({ length: dim / 2 }, (_, i) => b ** (-2 * i / dim));
    const most = () => number("max_position_embeddings", get("max_position_embeddings"));
    const original = () => number("original_max_position_embeddings", get("original_max_position_embeddings") ?? told.original_max_position_embeddings ?? get("max_position_embeddings"), 1);
    const factor = () => number("factor", told.factor);
    const logged = (scale, weight) => (scale <= 1 ? 1 : 0.1 * weight * Math.log(scale) + 1);
    let at = 0, scale = 1; // the length at which the frequencies are these, and the factor of cosines and sines
    const make = {
      default: () => plain(base),
      linear: () => plain(base).map((w) => w / factor()),
      dynamic() {
        at = Math.max(length || factor() * most(), most());
        return plain(base * ((factor() * at) / most() - (factor() - 1)) ** (dim / (dim - 2)));
      },
      yarn() {
        const by = number("factor", told.factor ?? most() / original()), both = told.mscale && told.mscale_all_dim;
        scale = told.attention_factor ?? (both ? logged(by, told.mscale) / logged(by, told.mscale_all_dim) : logged(by, 1));
        const end = (turns) => (dim * Math.log(original() / (turns * 2 * Math.PI))) / (2 * Math.log(base));
        const ends = [end(told.beta_fast || 32), end(told.beta_slow || 1)];
        const [low, high] = told.truncate === false ? ends : [Math.floor(ends[0]), Math.ceil(ends[1])];
        const from = Math.max(low, 0), to = Math.min(high, dim - 1), room = to === from ? 0.001 : to - from;
        return plain(base).map((w, i) => {
          const ramp = Math.min(1, Math.max(0, (i - from) / room));
          return w * (1 - ramp + ramp / by);
        });
      },
      llama3() {
        const low = number("low_freq_factor", told.low_freq_factor), high = number("high_freq_factor", told.high_freq_factor, low);
        return plain(base).map((w) => {
          const keep = Math.min(1, Math.max(0, ((original() * w) / (2 * Math.PI) - low) / (high - low)));
          return w * (keep + (1 - keep) / factor());
        });
      },
      longrope() {
        const by = number("factor", told.factor ?? most() / original());
        at = length || most();
        scale = told.attention_factor ?? (by <= 1 ? 1 : Math.sqrt(1 + Math.log(by) / Math.log(original())));
        const name = at > original() ? "long_factor" : "short_factor", factors = told[name] ?? [];
        if (factors.length !== dim / 2) { fail(name + " must have " + dim / 2 + " numbers, one for each pair, got " + factors.length + "."); }
        return plain(base).map((w, i) => w / number(name, factors[i]));
      },
      proportional: () => plain(base).slice(0, Math.trunc((share * head) / 2)).map((w) => w / (told.factor ?? 1)),
    };
    const frequencies = make[kind](), count = (v) => v.toLocaleString("en-US");
    return sized({
      frequencies, still: (head + rest) / 2 - frequencies.length, at, scale, kept: JSON.stringify(kept),
      said: "Read as rope_type " + kind + (layer ? " of the layers " + layer : "") + " with rope_theta " + count(base) + (present(theta) ? "" : " (not given)") + ": "
        + count(2 * frequencies.length) + " of the " + count(head + rest) + " channels of a head rotate"
        + (at ? ", at a length of " + count(at) + " tokens" : "") + "."
        + (scale === 1 ? "" : " The attention factor of this scaling, " + scale.toFixed(3) + ", also multiplies q and k. The plots do not show this factor."),
    });
  }

  return (text, length) => (/^\s*\{/.test(text) ? config(text, length) : list(text));
})();
