/* The state of a figure: its default state, with frames laid over it (lab/explore/frames.py), and
   with the numbers that the page computes filled in (lab/explore/computed.py). */
window.bookStates = (function () {
  "use strict";

  function isMap(value) { return value !== null && typeof value === "object" && !Array.isArray(value); }

  /* Mappings merge, null removes, everything else replaces. */
  function layOver(base, change) {
    if (!isMap(base) || !isMap(change)) { return change; }
    const merged = Object.assign({}, base);
    Object.keys(change).forEach(function (key) {
      const value = layOver(merged[key], change[key]);
      if (value === null) { delete merged[key]; } else { merged[key] = value; }
    });
    return merged;
  }

  function layFrame(figure, frame) {
    const data = figure.data.slice();
    (frame.data || []).forEach(function (trace, i) {
      const number = frame.traces[i];
      data[number] = layOver(data[number], trace);
    });
    return { data: data, layout: layOver(figure.layout, frame.layout || {}) };
  }

  /* ---- numbers as Python writes them ---- */

  function fixed(value, decimals) {
    const twice = Math.abs(value) * Math.pow(2, decimals + 1), shown = Math.abs(value) * Math.pow(10, decimals);
    // a number that lies halfway goes to the even one, not up
    if (Number.isInteger(twice) && shown % 1 === 0.5 && Math.floor(shown) % 2 === 0) {
      return (Math.sign(value) * Math.floor(shown) / Math.pow(10, decimals)).toFixed(decimals);
    }
    return value.toFixed(decimals);
  }

  function general(value, digits) {
    const places = digits - 1 - Math.floor(Math.log10(Math.abs(value)));
    const short = Number(places >= 0 && places <= 20 ? fixed(value, places) : value.toPrecision(digits)), size = Math.abs(short);
    if (size === 0 || (size >= 1e-4 && size < Math.pow(10, digits))) { return String(short); }
    return short.toExponential().replace(/e([+-])(\d)$/, "e$10$2");
  }

  function written(value, spec) {
    if (spec[0] === "?") { return spec.slice(1).split("|")[value]; }
    const [, sign, comma, digits, kind] = /^(\+?)(,?)(?:\.(\d+))?([fg%]?)$/.exec(spec);
    let text = String(value);
    if (kind === "g") { text = general(value, digits === undefined ? 6 : Number(digits)); }
    if (kind === "f") { text = fixed(value, Number(digits)); }
    if (kind === "%") { text = fixed(100 * value, Number(digits)) + "%"; }
    if (comma) { text = text.replace(/^-?\d+/, function (whole) { return whole.replace(/\B(?=(\d{3})+$)/g, ","); }); }
    return sign && value >= 0 ? "+" + text : text;
  }

  /* ---- what is filled in ---- */

  function shaped(flat, at, shape) {
    if (!shape.length) { return Number.isFinite(flat[at]) ? flat[at] : null; }
    const step = shape.slice(1).reduce(function (n, m) { return n * m; }, 1);
    return Array.from({ length: shape[0] }, function (_, i) { return shaped(flat, at + i * step, shape.slice(1)); });
  }

  function value(found, source) {
    if (typeof source === "string") {
      return source.replace(/⟦(.*?)\|(.*?)\|(.*?)⟧/g, function (_, of, at, spec) { return written(found(of)[at], spec); });
    }
    if (!isMap(source)) { return source; }
    if (source.each) { return source.each.map(function (part) { return value(found, part); }); }
    const [of, at, ...shape] = source.of;
    return shaped(found(of), at, shape);
  }

  function put(target, path, what) {
    const copy = Array.isArray(target) ? target.slice() : Object.assign({}, target);
    copy[path[0]] = path.length > 1 ? put(copy[path[0]], path.slice(1), what) : what;
    return copy;
  }

  /* A function from the numbers of the parameters' values to the figure's data and layout. */
  function states(spec) {
    const about = spec.layout.meta.explorer, parameters = about.parameters;
    const frames = new Map(spec.frames.map(function (frame) { return [frame.name, frame]; }));
    let programs = null;
    return function (index) {
      let figure = { data: spec.data, layout: spec.layout };
      about.groups.forEach(function (names) {
        const key = parameters.map(function (p, i) { return names.includes(p.name) ? p.name + "=" + index[i] : ""; });
        figure = layFrame(figure, frames.get(key.filter(Boolean).join(",")));
      });
      const fill = figure.layout.meta.fill;
      if (!fill) { return figure; }
      programs = programs || window.bookRun.load(about.programs);
      const amounts = {}, outputs = {};
      parameters.forEach(function (p, i) { amounts[p.name] = [Number(p.values[index[i]])]; });
      // "0.weights" is an output of the program 0, "gamma" a parameter
      function found(of) {
        const [name, output] = of.split(".");
        if (output === undefined) { return amounts[name]; }
        outputs[name] = outputs[name] || window.bookRun.run(programs[name], amounts);
        return outputs[name][output].data;
      }
      Object.keys(fill).forEach(function (place) { figure = put(figure, place.split("/"), value(found, fill[place])); });
      return figure;
    };
  }

  return { states: states, written: written };
})();
