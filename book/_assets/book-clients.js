/* Figures that the reader's browser computes, because a grid of their states would
   be too large to store.  Each takes the values of the sliders and returns what
   differs from the default figure, as a frame does.  The Python function of the
   same figure is the reference: the browser test compares the two. */
window.bookClients = (function () {
  "use strict";

  const TURN = 2 * Math.PI;

  /* what lab.explore.panels writes above the panel of a number, "" for the first */
  function head(text, number) {
    return {
      text: text, x: 0.5, y: 1, xref: "x" + number + " domain", yref: "y" + number + " domain",
      yanchor: "bottom", showarrow: false,
    };
  }

  /* book.figures.rope.phase_clocks */
  const FARTHEST = 256, COLUMNS = 8, CELL = 2.7;

  function turnsText(turns) { return turns.toFixed(turns >= 10 ? 0 : turns >= 1 ? 1 : 2); }

  function clocks(values) {
    const distance = values.distance, position = values.position || 0;
    const base = values.base || 10000, pairs = (values.dim || 16) / 2;
    const theta = Array.from({ length: pairs }, function (_, i) { return Math.pow(base, -i / pairs); });
    const columns = pairs > COLUMNS ? COLUMNS : Math.max(1, Math.floor(pairs / 2)), rows = Math.ceil(pairs / columns);
    const below = pairs > COLUMNS ? 1.9 : 1.35, pitch = CELL + (pairs > COLUMNS ? 1.3 : 0.5);
    const centres = theta.map(function (_, i) { return [CELL * (i % columns), -pitch * Math.floor(i / columns)]; });
    function hands(at) {
      const x = [], y = [];
      theta.forEach(function (t, i) {
        x.push(centres[i][0], centres[i][0] + Math.cos(t * at), null);
        y.push(centres[i][1], centres[i][1] + Math.sin(t * at), null);
      });
      return { x: x, y: y };
    }
    function scoreAt(d) { return theta.reduce(function (sum, t) { return sum + Math.cos(t * d); }, 0) / pairs; }
    const turns = theta.map(function (t) { return turnsText(t * distance / TURN); });
    const score = scoreAt(distance), shown = score.toFixed(2);
    return {
      data: [
        hands(position),
        hands(position - distance),
        { x: centres.map(function (c) { return c[0]; }), y: centres.map(function (c) { return c[1] - below; }), text: turns },
        { y: Array.from({ length: FARTHEST + 1 }, function (_, d) { return scoreAt(d); }) },
        { x: [distance, distance], y: [0, score] },
      ],
      layout: {
        xaxis: { range: [-CELL / 2, CELL * (columns - 1) + CELL / 2] },
        yaxis: { range: [-pitch * (rows - 1) - below - 0.55, 1.15] },
        shapes: centres.map(function (c) {
          const box = { x0: c[0] - 1, x1: c[0] + 1, y0: c[1] - 1, y1: c[1] + 1, xref: "x", yref: "y" };
          return Object.assign({ type: "circle", line: { width: 1 } }, box);
        }),
        annotations: [
          head("one dial for each pair of channels, fastest first,<br>and the turns between its hands", ""),
          head("score at distance " + distance + ": " + shown, "2"),
        ],
        meta: {
          alt: pairs + " dials, one for each pair of channels, from the fastest to the slowest. " +
            "Each has a hand for the query at position " + position + " and one for the key " + distance +
            " tokens behind. Between the hands lie " + turns[0] + " turns on the first dial and " + turns[pairs - 1] +
            " on the last. Below, the score against distance from 0 to " + FARTHEST + ": at " + distance +
            " it is " + shown + ".",
        },
      },
    };
  }

  /* book.figures.circulant_string.circulant_spectrum */
  function reach(values) { return Math.max(1, Math.ceil(1.15 * Math.max(...values.map(Math.abs)) - 1e-9)); }

  function circulant(values) {
    const d = Object.keys(values).filter(function (name) { return /^c\d+$/.test(name); }).length;
    const all = Array.from({ length: d }, function (_, m) { return m; });
    const c = all.map(function (m) { return values["c" + m]; }), r = values.r;
    const skew = all.map(function (m) { return c[m] - c[(d - m) % d]; });
    function transform(part) {
      return all.map(function (k) {
        return c.reduce(function (sum, value, m) { return sum + value * part(-TURN * k * m / d); }, 0);
      });
    }
    const real = transform(Math.cos), imag = transform(Math.sin);
    const turns = imag.map(function (v) { return 2 * v; });
    const plane = reach(real.concat(imag)), line = reach(turns), bars = reach(c.concat(skew));
    const pairs = turns.slice(1, Math.ceil(d / 2)).map(function (v) { return Math.abs(v).toFixed(2); }).join(", ");
    function span(axes, half) { axes.range = [-half, half]; return axes; }
    return {
      data: [
        { y: c },
        { y: skew },
        { x: real, y: imag },
        { y: turns },
        { x: turns.map(function (v) { return Math.cos(r * v); }), y: turns.map(function (v) { return Math.sin(r * v); }) },
      ],
      layout: {
        yaxis: span({}, 1.15 * bars), xaxis2: span({}, plane), yaxis2: span({}, plane), xaxis3: span({}, line), yaxis3: span({}, line),
        annotations: [
          head("c, and what L keeps of it", ""), head("eigenvalues of C", "2"),
          head("eigenvalues of L", "3"), head("eigenvalues of exp(" + r + " L)", "4"),
        ],
        meta: {
          alt: "Four panels for the circulant matrix C with first column " + c.join(", ") + ": the column, the " +
            "eigenvalues of C in the complex plane, those of L = C − Cᵀ on the imaginary axis at plus and minus " + pairs +
            " and at 0, and those of exp(" + r + " L) on the unit circle.",
        },
      },
    };
  }

  /* book.figures.rope_2d_3d.grid_kernel */
  const SIDE = 14, GRID_PAIRS = 32, GRID_BASE = 10, GOLDEN = Math.PI * (3 - Math.sqrt(5));
  const GRID_SHAPES = {
    "raster index": "stripes along the rows, slightly tilted",
    "equal frequencies": "a ridge along the rising diagonal through the query",
    "axial": "a plus of one ridge along the row and one along the column of the query",
    "mixed, one head": "the same plus, turned by 30 degrees",
    "mixed, many directions": "a round hill about the query",
  };

  /* the frequencies of pair i along rows and columns */
  function gridFrequency(encoder, i) {
    function power(base, share) { return Math.pow(base, -share); }
    function along(angle, size) { return [size * Math.cos(angle), size * Math.sin(angle)]; }
    const half = GRID_PAIRS / 2, second = i < half ? 0 : Math.PI / 2, share = (i % half) / half;
    switch (encoder) {
      case "raster index": { const t = power(10000, i / GRID_PAIRS); return [SIDE * t, t]; }
      case "equal frequencies": { const t = power(GRID_BASE, i / GRID_PAIRS); return [t, t]; }
      case "axial": return i < half ? [power(GRID_BASE, share), 0] : [0, power(GRID_BASE, share)];
      case "mixed, one head": return along(Math.PI / 6 + second, power(GRID_BASE, share));
      default: return along(GOLDEN * i, power(GRID_BASE, i / GRID_PAIRS));
    }
  }

  function grid(values) {
    const omega = Array.from({ length: GRID_PAIRS }, function (_, i) { return gridFrequency(values.encoder, i); });
    const cells = Array.from({ length: SIDE }, function (_, n) { return n; });
    let same = 0, high = 0;
    const z = cells.map(function (row) {
      return cells.map(function (column) {
        const down = row - values.row, right = column - values.column;
        const score = omega.reduce(function (sum, w) { return sum + Math.cos(w[0] * down + w[1] * right); }, 0) / GRID_PAIRS;
        same += score > 1 - 1e-9; high += score > 0.5;
        return score;
      });
    });
    function count(n) { return n === 1 ? "1 cell" : n + " cells"; }
    return {
      data: [{ z: z }, { x: [values.column], y: [values.row] }],
      layout: {
        annotations: [
          head(values.encoder + "<br>score 1 in " + count(same) + ", above 0.5 in " + count(high), ""),
        ],
        meta: {
          alt: "Heat-map of the score of a query in row " + values.row + ", column " + values.column + " of a 14 by 14 " +
            "grid with an equal key in every cell; " + values.encoder + ": " + GRID_SHAPES[values.encoder] +
            ". The score is 1 in " + count(same) + " and above 0.5 in " + count(high) + ".",
        },
      },
    };
  }

  return { clocks: clocks, circulant: circulant, grid: grid };
})();
