/* Runs the programs that lab/program.py writes: lists of operations of PyTorch, in the page.
   A value is a tensor {shape, data}, always contiguous, or a list of tensors. */
window.bookRun = (function make() {
  "use strict";

  /* ---- tensors ---- */

  const ARRAYS = { single: Float32Array, half: Float32Array, bfloat16: Float32Array };
  let kind = "single"; // of what the step at work makes

  function size(shape) { return shape.reduce(function (n, m) { return n * m; }, 1); }
  function tensor(shape, data) {
    return { shape: shape, data: data || new (ARRAYS[kind] || Float64Array)(size(shape)) };
  }
  function scalar(number) { return tensor([], [Number(number)]); }
  function wrapped(x) { return typeof x === "object" ? x : scalar(x); }
  function axisOf(x, k) { return k < 0 ? k + x.shape.length : k; }

  function stridesOf(shape) {
    const strides = Array(shape.length);
    let step = 1;
    for (let k = shape.length - 1; k >= 0; k--) { strides[k] = step; step *= shape[k]; }
    return strides;
  }

  /* a tensor of this shape, its numbers picked out of data by strides from a place on */
  function picked(data, shape, strides, from) {
    const out = tensor(shape), into = out.data, last = shape.length - 1;
    if (!into.length) return out;
    if (last < 0) { into[0] = data[from]; return out; }
    const index = new Int32Array(shape.length), long = shape[last], step = strides[last];
    let row = from, w = 0;
    for (;;) {
      for (let i = 0, at = row; i < long; i++, at += step) into[w++] = data[at];
      let k = last - 1;
      for (; k >= 0; k--) {
        row += strides[k];
        if (++index[k] < shape[k]) break;
        row -= strides[k] * shape[k];
        index[k] = 0;
      }
      if (k < 0) return out;
    }
  }

  /* the shape of a and b together, as PyTorch broadcasts */
  function joined(a, b) {
    const length = Math.max(a.length, b.length), shape = [];
    for (let i = 0; i < length; i++) {
      const x = a[a.length - length + i], y = b[b.length - length + i];
      shape.push(x === undefined || x === 1 ? (y === undefined ? 1 : y) : x);
    }
    return shape;
  }

  function expanded(x, shape) {
    const strides = Array(shape.length).fill(0), own = stridesOf(x.shape);
    const before = shape.length - x.shape.length;
    x.shape.forEach(function (n, k) { if (n !== 1) strides[before + k] = own[k]; });
    return picked(x.data, shape, strides, 0);
  }

  /* ---- the forms that operations have ---- */

  function each(f) {
    return function (x) {
      const out = tensor(x.shape);
      for (let i = 0; i < out.data.length; i++) out.data[i] = f(x.data[i]);
      return out;
    };
  }

  function both(f) {
    return function (a, b) {
      a = wrapped(a); b = wrapped(b);
      const shape = joined(a.shape, b.shape), out = tensor(shape), n = out.data.length;
      const whole = function (x) { return x.data.length === n || x.data.length === 1 ? x : expanded(x, shape); };
      const x = whole(a).data, y = whole(b).data, dx = x.length === 1 ? 0 : 1, dy = y.length === 1 ? 0 : 1;
      for (let i = 0; i < n; i++) out.data[i] = f(x[i * dx], y[i * dy]);
      return out;
    };
  }

  /* f(get, length, put) for every line along an axis, which may become shorter or longer */
  function lines(x, k, f, longer) {
    k = axisOf(x, k);
    const n = x.shape[k], m = longer === undefined ? n : longer, step = stridesOf(x.shape)[k];
    const shape = x.shape.slice();
    shape[k] = m;
    const out = tensor(shape), outer = size(x.shape.slice(0, k));
    for (let a = 0; a < outer; a++) {
      for (let b = 0; b < step; b++) {
        const from = a * n * step + b, to = a * m * step + b;
        f(function (i) { return x.data[from + i * step]; }, n, function (i, v) { out.data[to + i * step] = v; });
      }
    }
    return out;
  }

  function reduced(f, start) {
    return function (x, axes, keep) {
      const all = x.shape.map(function (_, k) { return k; });
      const along = (axes === null || axes === undefined || axes.length === 0 ? all : [].concat(axes))
        .map(function (k) { return axisOf(x, k); });
      let y = x;
      along.forEach(function (k) {
        y = lines(y, k, function (get, n, put) {
          let v = start;
          for (let i = 0; i < n; i++) v = f(v, get(i));
          put(0, v);
        }, 1);
      });
      const shape = keep ? y.shape : y.shape.filter(function (_, k) { return !along.includes(k); });
      return tensor(shape, y.data);
    };
  }

  function running(f, start) {
    return function (x, k) {
      return lines(x, k, function (get, n, put) {
        let v = start;
        for (let i = 0; i < n; i++) put(i, v = f(v, get(i)));
      });
    };
  }

  /* ---- shapes ---- */

  function view(x, shape) {
    shape = shape.slice();
    const open = shape.indexOf(-1);
    if (open >= 0) { shape[open] = 1; shape[open] = x.data.length / size(shape); }
    return tensor(shape, x.data);
  }

  function permute(x, order) {
    const strides = stridesOf(x.shape);
    order = order.map(function (k) { return axisOf(x, k); });
    return picked(x.data, order.map(function (k) { return x.shape[k]; }), order.map(function (k) { return strides[k]; }), 0);
  }

  function slice(x, k, start, end, step) {
    k = axisOf(x, k || 0);
    const n = x.shape[k], strides = stridesOf(x.shape), shape = x.shape.slice();
    function bound(v, otherwise) {
      if (v === null || v === undefined) return otherwise;
      return Math.max(0, Math.min(n, v < 0 ? v + n : v));
    }
    const from = bound(start, 0), to = bound(end, n), by = step || 1;
    shape[k] = Math.max(0, Math.ceil((to - from) / by));
    const at = from * strides[k];
    strides[k] *= by;
    return picked(x.data, shape, strides, at);
  }

  function without(x, k) {
    return tensor(x.shape.filter(function (_, i) { return i !== k; }), x.data);
  }

  function select(x, k, i) {
    k = axisOf(x, k);
    i = i < 0 ? i + x.shape[k] : i;
    return without(slice(x, k, i, i + 1), k);
  }

  function cat(list, k) {
    list = list.filter(function (x) { return !(x.shape.length === 1 && x.shape[0] === 0); });
    k = axisOf(list[0], k || 0);
    const shape = list[0].shape.slice();
    shape[k] = list.reduce(function (n, x) { return n + x.shape[k]; }, 0);
    const out = tensor(shape), outer = size(shape.slice(0, k)), inner = size(shape.slice(k + 1));
    let at = 0;
    list.forEach(function (x) {
      const width = x.shape[k] * inner;
      for (let a = 0; a < outer; a++) {
        out.data.set(x.data.subarray(a * width, (a + 1) * width), a * shape[k] * inner + at);
      }
      at += width;
    });
    return out;
  }

  /* a negative width cuts off */
  function pad(x, widths, value) {
    for (let i = 0; i < widths.length / 2; i++) {
      const k = x.shape.length - 1 - i, parts = [];
      const block = function (n) {
        const shape = x.shape.slice();
        shape[k] = n;
        const t = tensor(shape);
        t.data.fill(value || 0);
        return t;
      };
      const before = widths[2 * i], after = widths[2 * i + 1];
      x = slice(x, k, Math.max(0, -before), x.shape[k] + Math.min(0, after));
      if (before > 0) parts.push(block(before));
      parts.push(x);
      if (after > 0) parts.push(block(after));
      if (parts.length > 1) x = cat(parts, k);
    }
    return x;
  }

  /* ---- products ---- */

  function bmm(a, b) {
    const batch = a.shape[0], n = a.shape[1], m = a.shape[2], p = b.shape[2], out = tensor([batch, n, p]);
    const A = a.data, B = b.data, C = out.data;
    for (let z = 0; z < batch; z++) {
      for (let i = 0; i < n; i++) {
        const row = (z * n + i) * p;
        for (let k = 0; k < m; k++) {
          const v = A[(z * n + i) * m + k], from = (z * m + k) * p;
          if (v === 0) continue;
          for (let j = 0; j < p; j++) C[row + j] += v * B[from + j];
        }
      }
    }
    return out;
  }

  function mm(a, b) {
    const out = bmm(tensor([1].concat(a.shape), a.data), tensor([1].concat(b.shape), b.data));
    return tensor([a.shape[0], b.shape[1]], out.data);
  }

  function solveTriangular(a, b, options) {
    const n = a.shape[a.shape.length - 1], m = b.shape[b.shape.length - 1];
    const batch = joined(a.shape.slice(0, -2), b.shape.slice(0, -2));
    const A = expanded(a, batch.concat([n, n])).data, out = expanded(b, batch.concat([n, m])), X = out.data;
    for (let z = 0; z < size(batch); z++) {
      for (let s = 0; s < n; s++) {
        const i = options.upper ? n - 1 - s : s, row = (z * n + i) * m;
        for (let k = options.upper ? i + 1 : 0; k < (options.upper ? n : i); k++) {
          const v = A[(z * n + i) * n + k];
          for (let j = 0; j < m; j++) X[row + j] -= v * X[(z * n + k) * m + j];
        }
        if (options.unitriangular) continue;
        for (let j = 0; j < m; j++) X[row + j] /= A[(z * n + i) * n + i];
      }
    }
    return out;
  }

  /* for one system of equations, by elimination with the largest pivots; b may have one axis */
  function solve(a, b) {
    const n = a.shape[0], m = b.data.length / n, A = Float64Array.from(a.data), out = tensor(b.shape, b.data.slice()), X = out.data;
    function swap(data, width, i, k) {
      for (let j = 0; j < width; j++) { const v = data[i * width + j]; data[i * width + j] = data[k * width + j]; data[k * width + j] = v; }
    }
    function take(data, width, i, k, share) { for (let j = 0; j < width; j++) data[i * width + j] -= share * data[k * width + j]; }
    for (let k = 0; k < n; k++) {
      let pivot = k;
      for (let i = k + 1; i < n; i++) if (Math.abs(A[i * n + k]) > Math.abs(A[pivot * n + k])) pivot = i;
      swap(A, n, k, pivot); swap(X, m, k, pivot);
      for (let i = 0; i < n; i++) {
        const share = A[i * n + k] / A[k * n + k];
        if (i !== k && share !== 0) { take(A, n, i, k, share); take(X, m, i, k, share); }
      }
    }
    for (let i = 0; i < n; i++) for (let j = 0; j < m; j++) X[i * m + j] /= A[i * n + i];
    return out;
  }

  /* the exponentials of matrices: a series for a small part of each, squared again and again */
  function matrixExp(x) {
    const n = x.shape[x.shape.length - 1], all = tensor([x.data.length / n / n, n, n], x.data);
    const most = x.data.reduce(function (v, w) { return Math.max(v, Math.abs(w)); }, 0) * n;
    const halvings = Math.max(0, Math.ceil(Math.log2(most || 1)) + 2), part = each(function (v) { return v / Math.pow(2, halvings); })(all);
    let term = each(function () { return 0; })(all);
    for (let i = 0; i < term.data.length; i++) term.data[i] = Number(i % (n * n) % (n + 1) === 0);
    let sum = term;
    for (let k = 1; k < 16; k++) { term = each(function (v) { return v / k; })(bmm(term, part)); sum = add(sum, term); }
    for (let k = 0; k < halvings; k++) sum = bmm(sum, sum);
    return tensor(x.shape, sum.data);
  }

  /* the entries along an axis that an index names */
  function indexed(x, k, index) {
    const list = Array.from(index.data, function (i) { return slice(x, k, i < 0 ? i + x.shape[k] : i, (i < 0 ? i + x.shape[k] : i) + 1); });
    const found = cat(list, k);
    return index.shape.length ? found : without(found, axisOf(found, k));
  }

  /* ---- functions ---- */

  /* Abramowitz and Stegun 7.1.26, within 1.5e-7 */
  function erf(x) {
    const t = 1 / (1 + 0.3275911 * Math.abs(x));
    const sum = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
    return Math.sign(x) * (1 - sum * Math.exp(-x * x));
  }

  function softmax(x, k) {
    return lines(x, k, function (get, n, put) {
      let most = -Infinity, sum = 0;
      for (let i = 0; i < n; i++) most = Math.max(most, get(i));
      for (let i = 0; i < n; i++) sum += Math.exp(get(i) - most);
      for (let i = 0; i < n; i++) put(i, Math.exp(get(i) - most) / sum);
    });
  }

  function layerNorm(x, shape, weight, bias, eps) {
    const n = size(shape), out = tensor(x.shape);
    for (let p = 0; p < x.data.length; p += n) {
      let mean = 0, square = 0;
      for (let i = 0; i < n; i++) mean += x.data[p + i] / n;
      for (let i = 0; i < n; i++) square += Math.pow(x.data[p + i] - mean, 2) / n;
      const scale = 1 / Math.sqrt(square + eps);
      for (let i = 0; i < n; i++) {
        out.data[p + i] = (x.data[p + i] - mean) * scale * (weight ? weight.data[i] : 1) + (bias ? bias.data[i] : 0);
      }
    }
    return [out];
  }

  function embedding(table, index) {
    const n = table.shape[1], out = tensor(index.shape.concat([n]));
    index.data.forEach(function (row, i) { out.data.set(table.data.subarray(row * n, row * n + n), i * n); });
    return out;
  }

  function where(condition, a, b) {
    a = wrapped(a); b = wrapped(b);
    const shape = joined(joined(condition.shape, a.shape), b.shape), out = tensor(shape);
    const c = expanded(condition, shape).data, x = expanded(a, shape).data, y = expanded(b, shape).data;
    for (let i = 0; i < out.data.length; i++) out.data[i] = c[i] ? x[i] : y[i];
    return out;
  }

  /* half to even, as PyTorch rounds */
  function round(v) {
    const r = Math.round(v);
    return Math.abs(v % 1) === 0.5 && r % 2 ? r - 1 : r;
  }

  /* a number as bfloat16 keeps it: the upper half of single precision, rounded to even */
  const single = new Float32Array(1), bits = new Uint32Array(single.buffer);
  function bfloat16(v) {
    single[0] = v;
    if (v !== v) return v;
    bits[0] = (bits[0] + 0x7fff + ((bits[0] >>> 16) & 1)) & 0xffff0000;
    return single[0];
  }

  const add = both(function (a, b) { return a + b; });
  const sub = both(function (a, b) { return a - b; });
  const mul = both(function (a, b) { return a * b; });
  const div = both(function (a, b) { return a / b; });
  const sum = reduced(function (a, b) { return a + b; }, 0);
  function same(x) { return x; }
  /* numbers of another kind are copied: whole ones lose what is behind the point */
  const cast = each(function (v) { return kind === "whole" ? Math.trunc(v) : kind === "bool" ? Number(v !== 0) : v; });
  function scaled(f) {
    return function (a, b, options) { return f(a, options && options.alpha !== undefined ? mul(b, options.alpha) : b); };
  }
  function compare(f) { return both(function (a, b) { return Number(f(a, b)); }); }
  const less = compare(function (a, b) { return a < b; }), most = compare(function (a, b) { return a <= b; });
  const more = compare(function (a, b) { return a > b; }), least = compare(function (a, b) { return a >= b; });
  const not = each(function (v) { return Number(!v); }); // bitwise_not, too, is of truths alone
  const equal = compare(function (a, b) { return a === b; }), other = compare(function (a, b) { return a !== b; });
  const and = both(function (a, b) { return Number(a && b); }); // bitwise_and, too
  function filled(x, v) { const out = tensor(x.shape); out.data.fill(Number(v)); return out; }
  function mean(x, axes, keep) {
    const total = sum(x, axes, keep), n = x.data.length / total.data.length;
    return each(function (v) { return v / n; })(total);
  }

  const OPERATIONS = {
    "view.default": view, "alias.default": same, "clone.default": cast, "_to_copy.default": cast, "prims.copy_strided.default": same,
    "getitem": function (list, i) { return list[i]; },
    "permute.default": permute, "cat.default": cat, "constant_pad_nd.default": pad,
    "slice.Tensor": slice, "select.int": select,
    "expand.default": function (x, shape) {
      return expanded(x, shape.map(function (n, k) { return n === -1 ? x.shape[x.shape.length - shape.length + k] : n; }));
    },
    "unsqueeze.default": function (x, k) {
      const shape = x.shape.slice();
      shape.splice(k < 0 ? k + shape.length + 1 : k, 0, 1);
      return tensor(shape, x.data);
    },
    "squeeze.dims": function (x, axes) {
      axes = axes.map(function (k) { return axisOf(x, k); });
      return tensor(x.shape.filter(function (n, k) { return !(axes.includes(k) && n === 1); }), x.data);
    },
    "split_with_sizes.default": function (x, sizes, k) {
      let at = 0;
      return sizes.map(function (n) { at += n; return slice(x, k || 0, at - n, at); });
    },
    "flip.default": function (x, axes) {
      return axes.reduce(function (y, k) {
        return lines(y, k, function (get, n, put) { for (let i = 0; i < n; i++) put(i, get(n - 1 - i)); });
      }, x);
    },
    "unfold.default": function (x, k, n, step) {
      k = axisOf(x, k);
      const strides = stridesOf(x.shape), shape = x.shape.slice(), inner = strides[k];
      shape[k] = Math.floor((x.shape[k] - n) / step) + 1;
      strides[k] *= step;
      return picked(x.data, shape.concat([n]), strides.concat([inner]), 0);
    },
    "add.Tensor": scaled(add), "sub.Tensor": scaled(sub), "rsub.Scalar": function (a, b) { return sub(b, a); },
    "mul.Tensor": mul, "mul.Scalar": mul, "div.Tensor": div,
    "pow.Tensor_Scalar": both(Math.pow), "pow.Scalar": both(Math.pow), "pow.Tensor_Tensor": both(Math.pow), "atan2.default": both(Math.atan2),
    "minimum.default": both(Math.min), "maximum.default": both(Math.max),
    "eq.Scalar": equal, "ne.Scalar": other, "lt.Scalar": less, "le.Scalar": most, "gt.Scalar": more, "ge.Scalar": least,
    "eq.Tensor": equal, "ne.Tensor": other, "lt.Tensor": less, "le.Tensor": most, "gt.Tensor": more, "ge.Tensor": least,
    "logical_not.default": not, "bitwise_not.default": not, "logical_and.default": and, "bitwise_and.Tensor": and,
    "exp.default": each(Math.exp), "exp2.default": each(function (v) { return Math.pow(2, v); }), "expm1.default": each(Math.expm1),
    "log.default": each(Math.log), "log2.default": each(Math.log2), "log10.default": each(Math.log10), "log1p.default": each(Math.log1p),
    "abs.default": each(Math.abs), "neg.default": each(function (v) { return -v; }), "sign.default": each(Math.sign),
    "sqrt.default": each(Math.sqrt), "rsqrt.default": each(function (v) { return 1 / Math.sqrt(v); }),
    "reciprocal.default": each(function (v) { return 1 / v; }), "round.default": each(round), "floor.default": each(Math.floor), "ceil.default": each(Math.ceil),
    "sin.default": each(Math.sin), "cos.default": each(Math.cos), "atan.default": each(Math.atan), "cosh.default": each(Math.cosh), "sinh.default": each(Math.sinh), "tanh.default": each(Math.tanh),
    "relu.default": each(function (v) { return Math.max(v, 0); }),
    "sigmoid.default": each(function (v) { return 1 / (1 + Math.exp(-v)); }),
    "gelu.default": each(function (v) { return 0.5 * v * (1 + erf(v / Math.SQRT2)); }),
    "clamp.default": function (x, low, high) {
      const lo = low === null || low === undefined ? -Infinity : low, hi = high === null || high === undefined ? Infinity : high;
      return each(function (v) { return Math.min(hi, Math.max(lo, v)); })(x);
    },
    "clamp_min.default": both(Math.max), "full_like.default": filled, "where.self": where,
    "sum.dim_IntList": sum, "mean.dim": mean,
    "prod.dim_int": reduced(function (a, b) { return a * b; }, 1),
    "amax.default": reduced(Math.max, -Infinity), "amin.default": reduced(Math.min, Infinity),
    "any.dim": reduced(function (a, b) { return Number(a || b); }, 0), "any.dims": reduced(function (a, b) { return Number(a || b); }, 0),
    "linalg_vector_norm.default": function (x, order, axes, keep) { return each(Math.sqrt)(sum(mul(x, x), axes, keep)); },
    "cumsum.default": running(function (a, b) { return a + b; }, 0),
    "cummax.default": function (x, k) { return [running(Math.max, -Infinity)(x, k)]; },
    "_softmax.default": softmax, "native_layer_norm.default": layerNorm,
    "mm.default": mm, "bmm.default": bmm, "addmm.default": function (c, a, b) { return add(c, mm(a, b)); },
    "linalg_matrix_exp.default": matrixExp, "_linalg_solve_ex.default": function (a, b) { return [solve(a, b)]; },
    "index_select.default": indexed,
    "index.Tensor": function (x, list) { const k = list.findIndex(function (i) { return i; }); return indexed(x, k, list[k]); },
    "embedding.default": embedding, "linalg_solve_triangular.default": solveTriangular,
  };

  /* ---- programs ---- */

  function fromHalf(h) {
    const sign = h & 0x8000 ? -1 : 1, exponent = (h >> 10) & 31, fraction = h & 1023;
    if (exponent === 0) return sign * fraction * Math.pow(2, -24);
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * Math.pow(2, exponent - 15) * (1 + fraction / 1024);
  }

  const READ = {
    half: function (raw, at, n) { return Float32Array.from(new Uint16Array(raw, at, n), fromHalf); },
    single: function (raw, at, n) { return new Float32Array(raw, at, n); },
    double: function (raw, at, n) { return new Float64Array(raw, at, n); },
    whole: function (raw, at, n) { return Float64Array.from(new Int32Array(raw, at, n)); },
    bool: function (raw, at, n) { return Float64Array.from(new Int32Array(raw, at, n)); },
  };

  /* the programs of a bundle, by name, ready to run */
  function load(bundle) {
    const raw = Uint8Array.from(atob(bundle.data), function (c) { return c.charCodeAt(0); }).buffer;
    const tensors = bundle.tensors.map(function (t) { return tensor(t[0], READ[t[1]](raw, t[2], size(t[0]))); });
    const programs = {};
    Object.keys(bundle.programs).forEach(function (name) {
      const program = bundle.programs[name];
      programs[name] = Object.assign({}, program, {
        tensors: program.tensors.map(function (i) { return tensors[i]; }),
        needed: {},
      });
    });
    return programs;
  }

  /* call f with the number of every value that arguments refer to */
  function refer(argument, f) {
    if (argument === null || typeof argument !== "object") return;
    if ("v" in argument) f(argument.v);
    else Object.keys(argument).forEach(function (key) { refer(argument[key], f); });
  }

  /* which values an output needs */
  function needed(program, output) {
    if (program.needed[output]) return program.needed[output];
    const first = program.inputs.length + program.tensors.length, want = new Set();
    want.add(program.outputs.find(function (o) { return o[0] === output; })[1]);
    for (let i = program.steps.length - 1; i >= 0; i--) {
      if (want.has(first + i)) refer(program.steps[i].slice(1, 3), function (v) { want.add(v); });
    }
    program.needed[output] = want;
    return want;
  }

  function argument(values, a) {
    if (a === null || typeof a !== "object") return a;
    if (Array.isArray(a)) return a.map(function (b) { return argument(values, b); });
    if ("v" in a) return values[a.v];
    if ("number" in a) return Number(a.number);
    const all = {};
    Object.keys(a).forEach(function (key) { all[key] = argument(values, a[key]); });
    return all;
  }

  function rounded(x) {
    if (kind !== "bfloat16") return x;
    return Array.isArray(x) ? x.map(rounded) : each(bfloat16)(x);
  }

  /* Outputs by name, {shape, data} each, for inputs by name, flat lists of numbers.
     Only what the outputs asked for need is computed; all of them unless some are named. */
  function run(program, inputs, outputs) {
    const names = outputs || program.outputs.map(function (o) { return o[0]; });
    const want = names.map(function (name) { return needed(program, name); });
    const values = program.inputs.map(function (i) { return tensor(i[1], Float64Array.from(inputs[i[0]])); });
    program.tensors.forEach(function (t) { values.push(t); });
    const first = values.length;
    program.steps.forEach(function (step, i) {
      if (!want.some(function (w) { return w.has(first + i); })) return;
      if (!OPERATIONS[step[0]]) throw new Error("no operation " + step[0]);
      kind = step[3];
      const given = argument(values, step[1]);
      if (Object.keys(step[2]).length) given.push(argument(values, step[2]));
      values[first + i] = rounded(OPERATIONS[step[0]].apply(null, given));
    });
    kind = "single";
    const found = {};
    names.forEach(function (name) {
      found[name] = values[program.outputs.find(function (o) { return o[0] === name; })[1]];
    });
    return found;
  }

  /* The programs of a bundle in a worker, so that the page stays fluid while they run: what comes back
     is a function (name, inputs, outputs) that promises what run returns. Its source is this function
     itself, as a page from disk may load no other. */
  function apart(bundle) {
    const work = "const bookRun = (" + make + ")(); let programs; onmessage = function (sent) {" +
      "const d = sent.data; if (d.bundle) { programs = bookRun.load(d.bundle); return; }" +
      "postMessage(bookRun.run(programs[d.name], d.inputs, d.outputs)); };";
    const worker = new Worker(URL.createObjectURL(new Blob([work], { type: "text/javascript" })));
    const waiting = [];
    worker.onmessage = function (sent) { waiting.shift()(sent.data); };
    worker.postMessage({ bundle: { programs: bundle.programs, tensors: bundle.tensors, data: bundle.data } });
    return function (name, inputs, outputs) {
      worker.postMessage({ name: name, inputs: inputs, outputs: outputs });
      return new Promise(function (done) { waiting.push(done); });
    };
  }

  return { load: load, run: run, apart: apart, operations: Object.keys(OPERATIONS) };
})();
